"""External programs in process groups of their own that do not outlive who waits for them."""

import math
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Ends a process group when a line comes, or when its input ends because nobody is left to
# write one: then the process that waits for the group was killed. $1: tenths of a second
# between the request to end and the end.
_GUARD = """
read -r group || exit 0
read -r line
kill -s TERM -- "-$group" || exit 0
left=$1
while [ "$left" -gt 0 ]; do
    sleep 0.1
    kill -s 0 -- "-$group" || exit 0
    left=$((left - 1))
done
kill -s KILL -- "-$group"
exit 0
"""


class Program:
    """A program that runs, and a guard that ends its whole process group.

    In a `with` block: the group ends with the block, whatever the program has left running.
    It ends with this process, too, in whatever way that ends.

    Args:
        command: The program and its arguments; no shell sees them.
        cwd: Its working folder. There its output goes to stdout.txt and stderr.txt, and its
            input comes from stdin.txt, if there is one.
        env: Environment variables besides those of this process.
        grace_s: Seconds between SIGTERM and SIGKILL.

    Raises:
        OSError: If it cannot be started.
    """

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], grace_s: float
    ) -> None:
        self._grace_s, self.was_stopped = grace_s, False
        quiet = subprocess.DEVNULL
        # In sessions of their own neither sees the Ctrl-C of a terminal.
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(math.ceil(10 * grace_s))], bufsize=0, cwd="/",
            stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True,
        )  # fmt: skip
        try:
            entry = cwd / "stdin.txt"
            with (
                (entry if entry.exists() else Path(os.devnull)).open("rb") as stdin,
                (cwd / "stdout.txt").open("wb") as stdout,
                (cwd / "stderr.txt").open("wb") as stderr,
            ):
                self._process = subprocess.Popen(
                    command, cwd=cwd, env={**os.environ, **env}, start_new_session=True,
                    stdin=stdin, stdout=stdout, stderr=stderr,
                )  # fmt: skip
        except BaseException:
            self._to_guard(b"")
            self._guard.wait()
            raise
        self._to_guard(f"{self._process.pid}\n".encode(), and_close=False)

    def wait(self, timeout_s: float | None) -> int | None:
        """Wait for the program's end.

        Returns:
            Its exit code, that of a signal negative; None if the time was up before.
        """
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def stop(self) -> None:
        """Ask the guard to end the group, and do not wait for it."""
        self.was_stopped = True
        self._to_guard(b"\n")

    def _to_guard(self, text: bytes, *, and_close: bool = True) -> None:
        pipe = self._guard.stdin
        assert pipe is not None
        with suppress(OSError, ValueError):  # killed by someone, or asked already
            pipe.write(text)
        if and_close:
            pipe.close()

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._to_guard(b"\n")
        # A program that has ended counts as a member of its group until it is waited for.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s + 1)
        if self._guard.wait():  # it was killed before it could do its work
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
