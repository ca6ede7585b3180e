"""How a run begins: the sizes of a new one, and the journal of one that goes on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tcsaea_torch.errors import InvalidInputError, JournalError
from tcsaea_torch.journal import Journal
from tcsaea_torch.problem import Problem
from tcsaea_torch.study import Settings
from tcsaea_torch.validation import check_int, check_path


def check_sizes(problem: Problem, n_slow: Any, n_init: Any) -> tuple[int, int]:
    """Return the budget of slow evaluations and the size of the initial design.

    Args:
        problem: The problem.
        n_slow: The budget.
        n_init: The size; None: one that suits budget and dimensions.

    Raises:
        InvalidInputError: If one is no count, or the design is larger than the budget.
    """
    budget = check_int("n_slow", n_slow, minimum=1)
    if n_init is None:
        n_init = min(100, max(problem.d + 2, budget // 3), budget)
    size = check_int("n_init", n_init, minimum=1)
    if size > budget:
        raise InvalidInputError(f"n_init must be at most n_slow = {n_slow}, got {n_init}")
    return budget, size


@contextmanager
def reopened(path: str | os.PathLike[str]) -> Iterator[tuple[Journal, Settings]]:
    """Open a journal to go on with its run, and close it only after an error.

    Args:
        path: The journal.

    Yields:
        The journal and the settings in its header.

    Raises:
        JournalError: If the run cannot go on, for whatever reason is found inside.
    """
    journal = Journal.open(check_path("path", path))
    try:
        yield journal, Settings.of_header(journal.header)
    except BaseException as error:
        journal.close()
        if isinstance(error, JournalError):
            raise JournalError(f"cannot resume {str(path)!r}: {error}") from error
        raise
