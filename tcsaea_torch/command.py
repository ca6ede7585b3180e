"""Objectives that are external programs."""

import json
import math
import re
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tcsaea_torch.errors import CommandError, InvalidInputError
from tcsaea_torch.placeholders import (
    check_text_with_placeholders,
    count_in_file,
    filled,
    filled_file,
    values_by_name,
)
from tcsaea_torch.processes import Program
from tcsaea_torch.validation import (
    as_float_tensor,
    as_scalar,
    check_callable,
    check_int,
    check_names,
    check_path,
    check_real,
    check_sequence,
    check_text,
    describe,
)

_OWN_FILES = ("command.json", "stdin.txt", "stdout.txt", "stderr.txt")
_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eEdD][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """What a program that has ended left behind; `parse` makes a value of it."""

    stdout: str
    """What it printed."""
    stderr: str
    """What it printed to its error output."""
    returncode: int
    """Its exit code, one of the objective's `exit_codes`."""
    folder: Path
    """Its working folder, with all files that it wrote; there until `parse` has ended."""
    seconds: float
    """How long it took."""


def last_number(result: CommandResult) -> float:
    """Return the last number that a program printed; Fortran's 1.5D-3 is one, nan is one too.

    Raises:
        ValueError: If it printed none.
    """
    numbers = _NUMBER.findall(result.stdout)
    if not numbers:
        raise ValueError("it printed no number")
    return float(numbers[-1].lower().replace("d", "e"))


@dataclass(frozen=True, eq=False)
class CommandObjective:
    """An objective that runs an external program, in a working folder for each evaluation.

    The program is started without a shell, in a process group of its own, which ends with the
    evaluation: also when its time is up, when `minimize` is interrupted, and when this process
    is killed. It needs a POSIX system. Objects can be pickled as far as `parse` can, and so work
    in process pools and on clusters.

    Placeholders are {x0}, {x1}, ... and those of `names`, written with all digits; formats work
    as in Python: `{layers:d}` for integers, `{thickness:.3f}`. {{ is a brace.

    Example:
        >>> slow = CommandObjective(
        ...     ["sh", "-c", 'echo "layers: $1, peak force: $2"', "simulate", "{n:d}", "{t}"],
        ...     names=("t", "n"),
        ...     timeout_s=60,
        ... )
        >>> slow([1.25, 3.0])
        1.25

    Raises:
        InvalidInputError: If an argument is not as described below.
    """

    command: Sequence[Any]
    """The program and its arguments, with placeholders. A program given by a relative path such
    as ./simulate lies where the objective is made, unless `inputs` or `templates` bring it."""
    _: KW_ONLY
    parse: Callable[[CommandResult], Any] = last_number
    """Makes the value of what the program printed and wrote."""
    names: Sequence[str] | None = None
    """A name for each dimension, as in `Problem`."""
    stdin: str | None = None
    """Text for the program's standard input, with placeholders."""
    inputs: Sequence[Any] = ()
    """Files and folders to copy into each working folder."""
    templates: Sequence[Any] = ()
    """Text files to copy with their placeholders filled; other braces stay as they are."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables besides those of this process."""
    timeout_s: float | None = None
    """Seconds that the program may run; None: for ever. Unlike that of `minimize`, this limit
    ends it."""
    grace_s: float = 5.0
    """Seconds between the request to end (SIGTERM) and the end (SIGKILL)."""
    exit_codes: Sequence[int] = (0,)
    """Exit codes that mean success."""
    workdir: Any = None
    """Where the working folders are made; None: among the system's temporary files."""
    keep: bool | Literal["failed"] = False
    """Whether folders stay, or those of failed evaluations; they also have command.json,
    stdout.txt and stderr.txt."""
    _programs: set[Program] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        def set_field(name: str, value: object) -> None:
            object.__setattr__(self, name, value)  # the normalised form of what was given

        if self.names is not None:
            names = check_sequence("names", self.names)
            set_field("names", check_names("names", names, length=len(names)))
        check_callable("parse", self.parse)
        set_field("inputs", _check_files("inputs", self.inputs, "files and folders"))
        set_field("templates", _check_files("templates", self.templates, "text files"))
        _check_distinct([*self.inputs, *self.templates])
        set_field("command", self._check_command())
        self._check_placeholders()
        set_field("env", _check_env(self.env))
        if self.timeout_s is not None:
            limit = check_real("timeout_s", self.timeout_s, minimum=0, exclusive=True)
            set_field("timeout_s", limit)
        set_field("grace_s", check_real("grace_s", self.grace_s, minimum=0))
        codes = check_sequence("exit_codes", self.exit_codes)
        set_field("exit_codes", tuple(check_int("exit_codes", code) for code in codes))
        if self.workdir is not None:
            set_field("workdir", check_path("workdir", self.workdir).absolute())
        if not (isinstance(self.keep, bool) or self.keep == "failed"):
            raise InvalidInputError(
                f"keep must be True, False or 'failed', got {describe(self.keep)}"
            )
        if self.keep and self.workdir is None:
            raise InvalidInputError(
                f"workdir must say where folders are kept with keep = {self.keep!r}, got None"
            )

    def _check_command(self) -> tuple[str, ...]:
        expected = "a sequence of strings such as ['./simulate', '{x0}']"
        if isinstance(self.command, str) or not isinstance(self.command, Sequence):
            raise InvalidInputError(f"command must be {expected}, got {describe(self.command)}")
        command = []
        for part in self.command:
            if not isinstance(part, str | Path):
                raise InvalidInputError(f"command must be {expected}, got {describe(part)} in it")
            command.append(str(part) if isinstance(part, Path) else part)
        if not command or not command[0]:
            raise InvalidInputError(f"command must be {expected}, got {describe(self.command)}")
        program = Path(command[0])
        # Path("./simulate") has lost its "./", so the text tells a path from a program's name.
        is_path = "/" in command[0] or isinstance(self.command[0], Path)
        brought = {Path(path).name for path in (*self.inputs, *self.templates)}
        if is_path and not program.is_absolute() and "{" not in command[0]:
            if len(program.parts) == 1 and program.name in brought:
                command[0] = f"./{program}"
            elif program.parts[0] not in brought:
                command[0] = str(program.absolute())
                if not program.is_file():
                    raise InvalidInputError(
                        f"command must begin with a program that is there, got {str(program)!r} "
                        f"in {str(Path.cwd())!r}"
                    )
        return tuple(command)

    def _check_placeholders(self) -> None:
        n = sum(check_text_with_placeholders("command", part, self.names) for part in self.command)
        if self.stdin is not None:
            text = check_text("stdin", self.stdin)
            n += check_text_with_placeholders("stdin", text, self.names)
        for path in self.templates:
            try:
                in_file = count_in_file(Path(path).read_text(encoding="utf-8"), self.names)
            except ValueError as error:
                raise InvalidInputError(f"templates must be text, got {str(path)!r}") from error
            if not in_file:
                raise InvalidInputError(
                    f"templates must have placeholders such as {{x0}}, got {str(path)!r} without "
                    "(files without belong to inputs)"
                )
            n += in_file
        if not n:
            raise InvalidInputError(
                "command must have placeholders such as {x0}, if neither stdin nor templates "
                f"have, got {describe(self.command)}"
            )

    def __call__(self, x: Any) -> float:
        """Run the program and return its value.

        Args:
            x: One point, of shape `d`.

        Raises:
            CommandError: If the program cannot be started, takes too long, ends with another
                exit code, or if its output makes no finite number.
            InvalidInputError: If placeholders cannot be filled with this point.
        """
        values = self._values(x)
        command = [filled(part, values) for part in self.command]
        folder = self._new_folder()
        keeps = bool(self.keep)
        try:
            self._fill(folder, command, values)
            value = self._value(command, folder)
            keeps = self.keep is True
        except CommandError as error:
            raise CommandError(f"{error}; see {folder}" if keeps else str(error)) from error
        finally:
            if not keeps:
                shutil.rmtree(folder, ignore_errors=True)
        return value

    def stop(self) -> None:
        """End all programs that this objective runs in this process; their evaluations fail."""
        for program in tuple(self._programs):
            program.stop()

    def _values(self, x: Any) -> dict[str, float]:
        point = as_float_tensor("x", x)
        n = "d" if self.names is None else len(self.names)
        if point.ndim != 1 or (self.names is not None and len(point) != n):
            raise InvalidInputError(
                f"x must be one point, of shape ({n},), got shape {tuple(point.shape)} "
                "(a problem of commands is not vectorized)"
            )
        return values_by_name(point.tolist(), self.names)

    def _new_folder(self) -> Path:
        if self.workdir is not None:
            Path(self.workdir).mkdir(parents=True, exist_ok=True)
        prefix = time.strftime("%Y%m%d-%H%M%S-") if self.workdir else "tcsaea-"
        return Path(tempfile.mkdtemp(prefix=prefix, dir=self.workdir))

    def _fill(self, folder: Path, command: Sequence[str], values: Mapping[str, float]) -> None:
        """Put into a folder what the program needs, and what tells people about it."""
        what = {"command": command, "x": {name: values[name] for name in values}}
        (folder / "command.json").write_text(json.dumps(what, indent=2))
        for path in map(Path, self.inputs):
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            else:
                shutil.copy2(path, folder / path.name)
        for path in map(Path, self.templates):
            text = filled_file(path.read_text(encoding="utf-8"), values, self.names)
            (folder / path.name).write_text(text, encoding="utf-8")
            shutil.copymode(path, folder / path.name)
        if self.stdin is not None:
            (folder / "stdin.txt").write_text(filled(self.stdin, values), encoding="utf-8")

    def _value(self, command: Sequence[str], folder: Path) -> float:
        """Run a program in its folder and return its value."""
        name = _shortened(shlex.join(command))
        began = time.monotonic()
        program = Program(command, cwd=folder, env=self.env, grace_s=self.grace_s)
        self._programs.add(program)
        try:
            with program:
                code = program.wait(self.timeout_s)
        except OSError as error:
            raise CommandError(f"the command {name} could not be started: {error}") from error
        finally:
            self._programs.discard(program)
        seconds = time.monotonic() - began
        stdout, stderr = (
            (folder / f"{stream}.txt").read_text(encoding="utf-8", errors="replace")
            for stream in ("stdout", "stderr")
        )
        said = _said(stdout, stderr)
        if program.was_stopped:
            raise CommandError(f"the command {name} was stopped after {seconds:.3g} s")
        if code is None:
            raise CommandError(f"the command {name} took longer than {self.timeout_s:g} s{said}")
        if code not in self.exit_codes:
            raise CommandError(f"the command {name} {_ending(code)}{said}")
        result = CommandResult(
            stdout=stdout, stderr=stderr, returncode=code, folder=folder, seconds=seconds
        )
        try:
            value = self.parse(result)
        except Exception as error:
            raise CommandError(
                f"the command {name} ended, but its output could not be read: "
                f"{type(error).__name__}: {error}{said}"
            ) from error
        number = as_scalar(value)
        if number is None or not math.isfinite(number):
            raise CommandError(
                f"the command {name} must give one finite number, got {describe(value)}{said}"
            )
        return number

    def __getstate__(self) -> dict[str, Any]:
        # Programs that run here are none of a copy's.
        return {**self.__dict__, "_programs": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def _check_files(name: str, value: Any, kinds: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a sequence of paths, got {describe(value)}")
    paths = [check_path(name, path).absolute() for path in value]
    for path in paths:
        if not (path.is_file() or (path.is_dir() and "folders" in kinds)):
            raise InvalidInputError(f"{name} must be {kinds} that are there, got {str(path)!r}")
    return tuple(map(str, paths))


def _check_distinct(paths: Sequence[str]) -> None:
    names = [Path(path).name for path in paths]
    taken = next((n for i, n in enumerate(names) if n in (*_OWN_FILES, *names[:i])), None)
    if taken is not None:
        raise InvalidInputError(
            f"inputs and templates must have distinct names, other than {', '.join(_OWN_FILES)}, "
            f"got {taken!r}"
        )


def _check_env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"env must be a dict of strings, got {describe(value)}")
    for pair in value.items():
        if not all(isinstance(text, str) for text in pair):
            raise InvalidInputError(f"env must be a dict of strings, got {describe(pair)} in it")
    return dict(value)


def _ending(code: int) -> str:
    """Say how a program ended that failed."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = {s.value: s.name for s in signal.Signals}
    return f"was killed by {known.get(-code, f'signal {-code}')}"


def _shortened(text: str, n: int = 300) -> str:
    return text if len(text) <= n else f"{text[: n - 4]} ..."


def _said(stdout: str, stderr: str) -> str:
    """Quote the last lines of what a program printed, in one line for logs and tables."""
    for name, text in (("stderr", stderr), ("stdout", stdout)):
        lines = [line.strip() for line in text[-2000:].splitlines() if line.strip()]
        if lines:
            return f"; its {name} ends with: " + " | ".join(lines[-8:])[-800:]
    return "; it printed nothing"
