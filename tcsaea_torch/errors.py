"""Everything that this library raises on purpose.

Each class also derives from the built-in exception that a caller would expect,
so `except ValueError` works as well as `except tcsaea_torch.errors.TcsaeaError`.
"""


class TcsaeaError(Exception):
    """Base class of every error raised by this library."""


class InvalidInputError(TcsaeaError, ValueError):
    """An argument has the wrong type, shape, range or content."""


class ProtocolError(TcsaeaError, RuntimeError):
    """Calls came in an order, or with an id, that the ask/tell protocol excludes."""


class FitError(TcsaeaError, RuntimeError):
    """A surrogate could not be fitted or factorised."""


class ObjectiveError(TcsaeaError, RuntimeError):
    """The user's objective functions failed so often that a run cannot go on."""


class JournalError(TcsaeaError, RuntimeError):
    """A journal cannot be written or read, or belongs to another run."""


class MissingDependencyError(TcsaeaError, ImportError):
    """An optional package is needed for what was asked."""


class CommandError(TcsaeaError, RuntimeError):
    """An external program failed, took too long, or printed no value."""
