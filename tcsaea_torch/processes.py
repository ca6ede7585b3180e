"""External programs in process groups of their own that do not outlive who waits for them."""

import errno
import math
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

# Ends a process group, whose number it reads, when an empty line comes or when its input ends
# because nobody is left to write one: then the process that waits for the group was killed. The
# number comes from the group itself, so that no program ever runs that its guard does not know; an
# empty line may be quicker. $1: tenths of a second between the request to end and the end.
_GUARD = """
read -r group || exit 0
if [ -n "$group" ]; then read -r line; else read -r group || exit 0; fi
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
# Tells the guard, whose input is this shell's for a moment, and becomes the program. $0: its input.
_START = 'echo $$ >&0 && exec "$@" <"$0"'


class Program:
    """A program, and a guard that ends its whole process group.

    It starts with a `with` block, and its group ends with the block, whatever it has left running.
    It ends with this process, too, in whatever way and at whatever moment that ends.

    Args:
        command: The program and its arguments; no shell sees them.
        cwd: Its working folder. There its output goes to stdout.txt and stderr.txt, and its
            input comes from stdin.txt, if there is one.
        env: Environment variables besides those of this process.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    _guard: subprocess.Popen[bytes] | None = None
    _process: subprocess.Popen[bytes]
    was_stopped = False

    def __init__(
        self, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], grace_s: float
    ) -> None:
        self._command, self._cwd, self._grace_s = command, cwd, grace_s
        self._env = {**os.environ, **env}

    def __enter__(self) -> "Program":
        """Start it.

        Raises:
            OSError: If it cannot be started.
        """
        cwd, quiet = self._cwd, subprocess.DEVNULL
        _check_program(self._command[0], cwd, self._env)
        entry = "stdin.txt" if (cwd / "stdin.txt").exists() else os.devnull
        # In sessions of their own neither sees the Ctrl-C of a terminal.
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(math.ceil(10 * self._grace_s))], bufsize=0,
            cwd="/", stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True,
        )  # fmt: skip
        try:
            with (
                (cwd / "stdout.txt").open("wb") as stdout,
                (cwd / "stderr.txt").open("wb") as stderr,
            ):
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _START, entry, *self._command], cwd=cwd, env=self._env,
                    stdin=guard.stdin, stdout=stdout, stderr=stderr, start_new_session=True,
                )  # fmt: skip
        except BaseException:
            _tell(guard, b"")
            guard.wait()
            raise
        self._guard = guard
        if self.was_stopped:
            self.stop()
        return self

    def wait(self, timeout_s: float | None) -> int | None:
        """Wait for the program's end.

        Returns:
            Its exit code, that of a signal negative; None if the time was up before.
        """
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def stop(self) -> None:
        """Ask the guard to end the group, at once or when it starts, and do not wait for it."""
        self.was_stopped = True
        if self._guard is not None:
            _tell(self._guard, b"\n")

    def __exit__(self, *_: object) -> None:
        assert self._guard is not None
        _tell(self._guard, b"\n")
        # A program that has ended counts as a member of its group until it is waited for.
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s + 1)
        if self._guard.wait():  # it was killed before it could do its work
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _tell(guard: subprocess.Popen[bytes], text: bytes) -> None:
    """Write to a guard, once."""
    pipe = guard.stdin
    assert pipe is not None
    with suppress(OSError, ValueError):  # killed by someone, or asked already
        pipe.write(text)
    pipe.close()


def _check_program(name: str, cwd: Path, env: Mapping[str, str]) -> None:
    """Refuse a program that is not there; the shell that starts it could not say so as clearly."""
    folders = [cwd] if os.path.dirname(name) else env.get("PATH", os.defpath).split(os.pathsep)
    paths = [cwd / folder / name for folder in folders]
    if not any(shutil.which(path) for path in paths):
        code = errno.EACCES if any(path.is_file() for path in paths) else errno.ENOENT
        raise OSError(code, os.strerror(code), name)
