"""Who works on a study: a process, told from a later one with the same number."""

import os
import secrets
import socket
import subprocess
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The process that may write a study."""

    pid: int
    host: str
    started: str
    """When the process started, as its system says it; empty if it does not."""
    since: float
    """When it opened the study: seconds since the epoch."""
    token: str
    """Tells apart several openings by one process."""

    @classmethod
    def this_process(cls) -> "Owner":
        """Return an owner that is this process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            host=socket.gethostname(),
            started=_started(pid) or "",
            since=time.time(),
            token=secrets.token_hex(8),
        )

    @classmethod
    def of(cls, content: Any) -> "Owner":
        """Return the owner that `content` describes.

        Raises:
            ValueError: If it describes none.
        """
        if not isinstance(content, dict) or {n: type(v) for n, v in content.items()} != {
            f.name: f.type for f in fields(cls)
        }:
            raise ValueError("the lock is broken")
        return cls(**content)

    def content(self) -> dict[str, Any]:
        """Return what `of` takes."""
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether it belongs to this machine."""
        return self.host == socket.gethostname()

    @property
    def lives(self) -> bool | None:
        """Whether the process still runs; None if that cannot be seen from here."""
        if not self.is_here:
            return None
        started = _started(self.pid)
        if started is None:
            return False
        return started == self.started if started and self.started else None

    def __str__(self) -> str:
        place = "" if self.is_here else f" on {self.host}"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid}{place} (since {when})"


def _started(pid: int) -> str | None:
    """Return when a process started: None if there is none, empty if that is unknown."""
    if Path("/proc/self/stat").exists():
        try:
            # The name, in parentheses, may hold anything; the state comes after it.
            state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            return None
        return None if state in "ZX" else rest[18]
    try:
        listed = subprocess.run(
            ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
    except OSError:
        return ""  # no such program: whether the process lives is not known
    return listed.stdout.strip() or None
