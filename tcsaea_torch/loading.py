"""Problems in the user's own files: `crash.py:problem`, or `package.module:problem`."""

import difflib
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problem import Problem
from tcsaea_torch.validation import describe

_WANTED = "a Problem, or a function without arguments that returns one"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A name in a Python file or in a module that can be imported."""

    place: str
    """A path that ends in .py, or the name of a module."""
    name: str
    """The name in it."""

    @classmethod
    def of(cls, text: str) -> "Target":
        """Read FILE.py:NAME or package.module:NAME.

        Raises:
            InvalidInputError: If it is neither.
        """
        place, _, name = text.rpartition(":")
        if not place or not name.isidentifier():
            raise InvalidInputError(
                f"problem must be FILE.py:NAME or package.module:NAME, got {text!r}"
            )
        return cls(place=place, name=name)

    def __str__(self) -> str:
        return f"{self.place}:{self.name}"

    @property
    def path(self) -> Path | None:
        """The file, as an absolute path; None for a module."""
        is_file = self.place.endswith(".py") or Path(self.place).name != self.place
        return Path(self.place).absolute() if is_file else None

    @property
    def folder(self) -> str:
        """Where neighbours are found: the file's folder, or the present one."""
        return os.getcwd() if self.path is None else str(self.path.parent)

    @contextmanager
    def loaded(self) -> Iterator["Loaded"]:
        """Load the problem. While the context lasts, its code can import its neighbours.

        Raises:
            InvalidInputError: If there is no such problem, or its code raises.
        """
        before = list(sys.path)
        sys.path.insert(0, self.folder)
        module, is_new = None, False
        try:
            module, is_new = self._module()
            yield Loaded(target=self, module=module.__name__, problem=self._problem(module))
        finally:
            sys.path[:] = before
            if module is not None and is_new:
                sys.modules.pop(module.__name__, None)

    def _module(self) -> tuple[ModuleType, bool]:
        """Return the module, and whether it was made here, from a file."""
        if self.path is None:
            try:
                return importlib.import_module(self.place), False
            except ModuleNotFoundError as error:
                if f"{self.place}.".startswith(f"{error.name}."):
                    raise InvalidInputError(
                        "problem must be in a module or in a file that ends in .py, and there is "
                        f"no module {error.name!r}"
                    ) from error
                raise _raised(self.place, error, _origin(self.place)) from error
            except (Exception, SystemExit) as error:
                raise _raised(self.place, error, _origin(self.place)) from error
        if self.path.suffix != ".py":
            raise InvalidInputError(f"problem must be in a file that ends in .py, got {self.place}")
        if not self.path.is_file():
            raise InvalidInputError(f"problem must be in a file, and there is none at {self.path}")
        # As in a program of its own, but for names that are taken.
        name = self.path.stem.replace(".", "_")
        name = f"{name}_of_the_run" if name in sys.modules else name
        try:
            return _executed(str(self.path), name), True
        except (Exception, SystemExit) as error:
            raise _raised(self.place, error, self.path) from error

    def _problem(self, module: ModuleType) -> Problem:
        value = getattr(module, self.name, module)
        if value is module:
            known = {n: v for n, v in vars(module).items() if not n.startswith("_")}
            near = difflib.get_close_matches(self.name, known, n=1, cutoff=0.5)
            near = near or [n for n, v in known.items() if isinstance(v, Problem)]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidInputError(f"{self.place} has no {self.name!r}{hint}")
        if isinstance(value, Problem):
            return value
        if not callable(value):
            raise InvalidInputError(f"{self} must be {_WANTED}, got {describe(value)}")
        try:
            inspect.signature(value).bind()
        except TypeError as error:
            raise InvalidInputError(f"{self} must be {_WANTED}: {error}") from error
        except ValueError:
            pass  # a function that does not say what it takes
        try:
            made = value()
        except (Exception, SystemExit) as error:
            path = self.path or _origin(self.place)
            raise _raised(f"{self.name}() in {self.place}", error, path) from error
        if not isinstance(made, Problem):
            raise InvalidInputError(f"{self} must be {_WANTED}, but it returned {describe(made)}")
        return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Loaded:
    """A problem of the user, and what other processes need to load its code too."""

    target: Target
    module: str
    """Under which name objects of its code are found."""
    problem: Problem

    @property
    def for_workers(self) -> tuple[str, str | None, str]:
        """Arguments for `begin_worker`."""
        path = self.target.path
        return self.target.folder, None if path is None else str(path), self.module


def begin_worker(folder: str, path: str | None, module: str) -> None:
    """Prepare a process that evaluates objectives.

    Args:
        folder: Where neighbours of the code are found.
        path: Its file; None for a module, which is imported when it is needed.
        module: Under which name its objects are found.
    """
    # Ctrl-C is for the process that decides: it ends the workers. They do not outlive it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sys.path.insert(0, folder)
    if path is not None:
        _executed(path, module)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _executed(path: str, name: str) -> ModuleType:
    """Execute a file as a module that pickles and dataclasses find by its name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _origin(module: str) -> Path | None:
    """Return the file of a module, if that can be told."""
    with suppress(Exception):  # to look may execute the package's own code
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin)
    return None


def _raised(what: str, error: BaseException, path: Path | None) -> InvalidInputError:
    """Return an error that says what the user's code raised, and in which line of its file."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    where = ""
    if isinstance(error, SyntaxError) and error.filename is not None:
        where = f" in line {error.lineno} of {error.filename}"
    elif lines:
        where = f" in line {lines[-1]}"
    text = f": {error}" if str(error) else ""
    return InvalidInputError(f"{what} raised {type(error).__name__}{where}{text}")
