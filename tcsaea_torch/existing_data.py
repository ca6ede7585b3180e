"""Data that existed before a run: which of its rows are one point, and what is too little."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import Attached
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Bool, Float, Objective, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_column,
    check_matrix,
    check_real,
    describe,
)

_KEYS = ("X", "fast", "slow", "tolerance")
_CHUNK, _N_DISTANCES = 1024, 2**23  # rows, and distances, that are looked at together


def attached(
    problem: Problem,
    known: Float[Tensor, "k d"],
    X: Any,
    fast: Any = None,
    slow: Any = None,
    *,
    tolerance: Any = 1e-9,
    stacklevel: int = 3,
) -> Attached:
    """Check the arguments of `Optimizer.attach` and return the event they make.

    Its rows that are a known point have exactly that point's X, so whoever applies or
    replays it needs to look for equal X only.

    Args:
        problem: The problem.
        known: The run's points so far, in user's units.
        X: As in `Optimizer.attach`, the others too.
        fast: Fast values.
        slow: Slow values.
        tolerance: How near rows of one point are.
        stacklevel: Whom the warning names: 3 is the caller's caller.

    Raises:
        InvalidInputError: If an argument is wrong.
    """
    limit = check_real("tolerance", tolerance, minimum=0.0, maximum=0.1)
    points = check_matrix("X", _in_order(X, problem.names or ()), columns=problem.d)
    missing = [None] * len(points)
    columns = [
        check_column(name, missing if values is None else values, length=len(points))
        for name, values in (("fast", fast), ("slow", slow))
    ]
    points = _merged(points, known, _steps(problem), problem.bounds[0], limit)
    outside = is_off(problem, points).any(dim=-1)
    if outside.any():
        warnings.warn(
            f"{int(outside.sum())} of {len(points)} attached points lie outside the bounds "
            "or between integers; the models use them, proposals stay inside",
            stacklevel=stacklevel,
        )
    return Attached(X=points, Y=torch.stack(columns, dim=-1))


def is_off(problem: Problem, X: Float[Tensor, "n d"]) -> Bool[Tensor, "n d"]:
    """Return which entries of points in user's units are outside the bounds or between integers."""
    low, high = problem.bounds
    k = list(problem.integers)
    off = (X < low) | (X > high)
    off[:, k] |= X[:, k] != X[:, k].round()
    return off


def initial_events(problem: Problem, data: Any) -> tuple[Attached, ...]:
    """Check `initial_data` and return its events, in order.

    Args:
        problem: The problem.
        data: A dict of arguments for `Optimizer.attach`, a sequence of them, or None.

    Raises:
        InvalidInputError: If an argument is wrong; of several dicts, it says which.
    """
    tables = [] if data is None else [data] if isinstance(data, dict) else data
    is_sequence = isinstance(tables, Sequence)
    if not is_sequence or not all(isinstance(table, dict) and "X" in table for table in tables):
        raise InvalidInputError(
            "initial_data must be a dict of X and optionally fast, slow and tolerance, "
            f"or a sequence of such dicts, got {describe(data)}"
        )
    events: list[Attached] = []
    for k, table in enumerate(tables):
        known = torch.cat([problem.bounds[:0], *(event.X for event in events)])
        try:
            for key in table:
                check_choice("initial_data's keys", key, _KEYS)
            events.append(attached(problem, known, **table, stacklevel=4))
        except InvalidInputError as error:
            if tables is not data:
                raise
            raise InvalidInputError(f"initial_data[{k}]: {error}") from error
    return tuple(events)


def warn_of_few_values(
    strategy_state: Mapping[str, Any], observed: Bool[Tensor, "n 2"], *, stacklevel: int = 4
) -> bool:
    """Warn if surrogates were fitted to fewer than two values of an objective.

    Args:
        strategy_state: The strategy's state after its step.
        observed: The values that it had, and those that are on their way.
        stacklevel: Whom the warning names: 4 is the caller's caller's caller.

    Returns:
        Whether there was a warning.
    """
    if not any(name.startswith("theta_") for name in strategy_state):
        return False  # no surrogate yet: the initial design comes first
    counts = zip(Objective, observed.sum(dim=0).tolist(), strict=True)
    few = [f"{n} {objective} value{'' if n == 1 else 's'}" for objective, n in counts if n < 2]
    if few:
        warnings.warn(
            f"there {'is' if few[0].startswith('1') else 'are'} only {' and '.join(few)}, too "
            "few for a surrogate: points are drawn at random in the whole space until there "
            "are two of each objective",
            stacklevel=stacklevel,
        )
    return bool(few)


def _in_order(X: Any, names: Sequence[str]) -> Any:
    """Put the columns of a table that are named as the problem's variables in their order."""
    columns = getattr(X, "columns", None)
    given = list(columns) if isinstance(columns, Iterable) else []
    is_named = all(isinstance(name, str) for name in given)
    if is_named and len(given) == len(names) and set(given) == set(names):
        return X[list(names)]
    return X


def _steps(problem: Problem) -> Float[Tensor, " d"]:
    """Return what a distance of 1 is in each dimension, in user's units.

    It is the box's side, but one step for integers, lest neighbours become one in a large
    box; and a fixed parameter's own size, for the unit cube cannot tell its values apart.
    """
    low, high = problem.bounds
    steps = torch.where(high > low, high - low, torch.where(low != 0, low.abs(), 1.0))
    steps[list(problem.integers)] = 1.0
    return steps


def _merged(
    X: Float[Tensor, "n d"],
    known: Float[Tensor, "k d"],
    steps: Float[Tensor, " d"],
    origin: Float[Tensor, " d"],
    tolerance: float,
) -> Float[Tensor, "n d"]:
    """Replace points by the nearest known or earlier ones that lie within the tolerance.

    A point that was replaced attracts no others: chains do not grow.
    """
    if tolerance == 0:
        return X
    X, places = X.clone(), torch.cat([known, X])  # of the known and new points; k + n rows
    n, start = len(known), 0
    while start < len(X):
        chunk = X[start : start + max(1, min(_CHUNK, _N_DISTANCES // (n + _CHUNK)))]
        b = len(chunk)
        places[n : n + b] = chunk
        scaled = (places[: n + b] - origin) / steps
        distance = torch.cdist(scaled[n:], scaled, p=math.inf).numpy()
        distance[:, n:][np.triu_indices(b)] = math.inf  # only earlier ones count
        nearest = distance.argmin(axis=1)
        joins = distance[np.arange(b), nearest] <= tolerance
        # Whether an earlier one of this chunk is a point of its own is known in turn only.
        for i in np.flatnonzero((distance[:, n:] <= tolerance).any(axis=1)):
            distance[i, n:][joins] = math.inf
            nearest[i] = distance[i].argmin()
            joins[i] = distance[i, nearest[i]] <= tolerance
        is_own = torch.from_numpy(~joins)
        chunk[~is_own] = places[torch.from_numpy(nearest)][~is_own]
        own = chunk[is_own]
        places[n : n + len(own)] = own
        n, start = n + len(own), start + b
    return X
