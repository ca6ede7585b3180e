"""The rules of ask and tell: what users say about evaluations, turned into events."""

from typing import Any

import torch

from tcsaea_torch.asking import waiting
from tcsaea_torch.errors import InvalidInputError, ProtocolError
from tcsaea_torch.events import Asked, Failed, Record, RunState, Status, Told, Withdrawn
from tcsaea_torch.existing_data import is_off
from tcsaea_torch.problem import Problem, check_value
from tcsaea_torch.types import Float, Tensor
from tcsaea_torch.validation import check_int, check_matrix


def record_of(state: RunState, id: Any) -> Record:
    """Return an evaluation's record.

    Raises:
        InvalidInputError: If the id is no integer.
        ProtocolError: If the id is unknown.
    """
    number = check_int("id", id)
    if not 0 <= number < len(state.records):
        raise ProtocolError(f"evaluation {number} is unknown: ask() never handed it out")
    return state.records[number]


def told(state: RunState, id: Any, value: Any) -> tuple[Told | Withdrawn, ...]:
    """Return what a value means; nothing if it is known already.

    A value may come late, after `fail`. What a retry of it has not been handed out yet is
    not needed any more, and is withdrawn.

    Raises:
        InvalidInputError: If the value is no finite real number.
        ProtocolError: If the id is unknown or has another value.
    """
    record = record_of(state, id)
    try:
        number = check_value(record.objective, value)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"value of evaluation {id} {str(error).split(' ', 1)[1]}; "
            "report a failed evaluation by fail(id, reason)"
        ) from error
    if record.status is Status.DONE:
        if record.value == number:
            return ()
        raise ProtocolError(f"evaluation {id} was told {record.value!r} before, now {number!r}")
    has_ended = record.status is not Status.PENDING
    if has_ended and state.observed[record.point_id, record.objective.column]:
        raise ProtocolError(f"the value of evaluation {id} is known from a retry")
    place = record.point_id, record.objective
    not_needed = [
        Withdrawn(id=other.id)
        for other in (waiting(state) if has_ended else ())
        if (other.point_id, other.objective) == place
    ]
    return Told(id=record.id, value=number), *not_needed


def failed(state: RunState, id: Any, reason: str, *, retry: bool) -> tuple[Failed, ...]:
    """Return what a failure means; nothing if it is known already.

    Raises:
        InvalidInputError: If the id is no integer.
        ProtocolError: If the id is unknown or the evaluation has ended before.
    """
    record = record_of(state, id)
    if record.status is Status.FAILED and record.reason == reason and not retry:
        return ()
    if record.status is not Status.PENDING:
        raise ProtocolError(f"evaluation {id} is {record.status} already")
    return (Failed(id=record.id, reason=reason, retry=retry),)


def check_points(problem: Problem, X: Any) -> Float[Tensor, "n d"]:
    """Return points that a user wants evaluated, in the user's units.

    Raises:
        InvalidInputError: If a point is outside of the bounds, or between integers.
    """
    points = check_matrix("X", X, columns=problem.d)
    off = is_off(problem, points).nonzero().tolist()
    if off:
        row, column = off[0]
        raise InvalidInputError(
            "X must lie within the bounds, and on integers where there are, "
            f"got {points[row, column]:g} in row {row}, column {column}"
        )
    return points


def asked_at(state: RunState, points: Float[Tensor, "n d"]) -> Asked:
    """Return what it means to ask for both objectives at points in the user's units.

    Raises:
        ProtocolError: If the budget is too small.
    """
    if any(u + len(points) > n for u, n in zip(state.used, state.total, strict=True)):
        raise ProtocolError(
            f"{len(points)} points are more than is left of the budget {state.total}"
        )
    return Asked(
        X=state.problem.to_unit(points),
        evaluation_mask=torch.ones(len(points), 2, dtype=torch.bool),
        strategy_state=state.strategy_state,
    )
