"""What workers did when: the intervals that a virtual clock reports."""

from dataclasses import dataclass
from enum import StrEnum

from tcsaea_torch.types import Objective


class Outcome(StrEnum):
    """How a worker's time with an evaluation ended."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    LOST = "lost"
    """The worker went away; the evaluation begins anew elsewhere."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """One worker's time with one evaluation."""

    lane: Objective
    """Which objective was evaluated."""
    worker: int
    """Number of the worker within its lane, from 0."""
    evaluation_id: int
    """Id of the evaluation, as in `Result.history`."""
    start: float
    """When it began."""
    end: float
    """When it ended."""
    outcome: Outcome
    """How it ended."""
