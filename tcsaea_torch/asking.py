"""What `Optimizer.ask` returns, and what a scheduler may ask for."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tcsaea_torch.events import Record, RunState
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import check_int


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """One call of one objective that should be made."""

    id: int
    """Pass it to `tell` or `fail`."""
    point_id: int
    """Equal for the fast and the slow evaluation of one point."""
    x: np.ndarray
    """The point in user's units: float64 of shape (d,), a copy of its own."""
    objective: Objective
    """Which objective to evaluate: "fast" or "slow"."""


@dataclass(frozen=True, kw_only=True)
class NextAction:
    """What a scheduler may do now, see `Optimizer.next_action`."""

    kind: Literal["ask", "wait", "stop"]
    """"ask": `ask` has work; "wait": nothing before a pending evaluation has ended; "stop":
    the run is over."""
    n_fast: int
    """Fast evaluations that `ask` could hand out now."""
    n_slow: int
    """Slow evaluations that `ask` could hand out now."""
    waits_for: tuple[int, ...]
    """Ids of evaluations that the strategy waits for."""


Wanted = dict[Objective, int]
"""How many evaluations of each objective are asked for."""


def check_wanted(n_fast: Any, n_slow: Any) -> Wanted | None:
    """Return how many evaluations are asked for; None: all that can be decided now.

    Raises:
        InvalidInputError: If a number is no count.
    """
    if n_fast is None and n_slow is None:
        return None
    given = {Objective.FAST: ("n_fast", n_fast), Objective.SLOW: ("n_slow", n_slow)}
    return {o: 0 if n is None else check_int(name, n, minimum=0) for o, (name, n) in given.items()}


def evaluation_of(state: RunState, record: Record) -> Evaluation:
    """Return what a user gets to see of a record when it is handed out."""
    x = state.x(record.point_id)
    return Evaluation(id=record.id, point_id=record.point_id, x=x, objective=record.objective)


def waiting(state: RunState) -> Iterator[Record]:
    """Yield what was asked for and not handed out."""
    return (state.records[id] for id in state.to_hand_out)


def count(records: Iterable[Record]) -> Wanted:
    """Return how many records there are of each objective."""
    n = Counter(record.objective for record in records)
    return {o: n[o] for o in Objective}


def first_of(records: Iterable[Record], wanted: Wanted) -> list[Record]:
    """Return the first records, as many of each objective as are wanted."""
    left, chosen = dict(wanted), []
    for record in records:
        if not any(left.values()):
            break
        if left[record.objective] > 0:
            left[record.objective] -= 1
            chosen.append(record)
    return chosen
