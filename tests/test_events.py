"""A run's state as a fold over its events, event by event."""

import math
from itertools import permutations

import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.events import (
    Asked,
    Attached,
    Failed,
    RunState,
    Status,
    Told,
    Withdrawn,
    apply,
    fold,
)
from tcsaea_torch.problem import Problem
from tcsaea_torch.types import Objective

NAN = math.nan
BOTH, FAST_ONLY, IDLE = [True, True], [True, False], [False, False]


def new_state(n_fast=10, n_slow=5, directions=("minimize", "minimize")):
    problem = Problem(
        fast=abs, slow=abs, bounds=[[0.0, 0.0], [10.0, 10.0]], tau=2, directions=directions
    )
    return RunState(problem, n_fast=n_fast, n_slow=n_slow, strategy_state={"step": 0})


def asked(*rows, X=None, step=1, queued=False):
    """Ask for rows with these masks; row k is at (k, 1) in user's units."""
    X = [[k / 10, 0.1] for k in range(len(rows))] if X is None else X
    return Asked(
        X=torch.tensor(X, dtype=torch.float64).reshape(-1, 2),
        evaluation_mask=torch.tensor(rows),
        strategy_state={"step": step},
        queued=queued,
        time=7.0,
    )


def attached(X, Y):
    return Attached(X=torch.tensor(X, dtype=torch.float64), Y=torch.tensor(Y, dtype=torch.float64))


def values(state):
    """Return the known values, row by row; None where not known."""
    return [
        [y if known else None for y, known in zip(*row, strict=True)]
        for row in zip(state.Y.tolist(), state.observed.tolist(), strict=True)
    ]


def statuses(state):
    return [record.status.value for record in state.records]


# ------------------------------------------------------------------ asking and telling


def test_a_new_state_knows_nothing():
    state = new_state()
    assert state.X.shape == state.X_user.shape == state.Y.shape == (0, 2)
    assert state.observed.shape == state.pending.shape == state.failed.shape == (0, 2)
    assert (state.used, state.total, state.records) == ([0, 0], (10, 5), [])
    assert state.n_attached_complete == 0


def test_asking_adds_rows_and_records_with_the_slow_one_first():
    state = apply(new_state(), asked(BOTH, IDLE, FAST_ONLY))
    assert state.X.tolist() == [[0.0, 0.1], [0.1, 0.1], [0.2, 0.1]]
    assert state.X_user.tolist() == [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]]
    assert state.pending.tolist() == [BOTH, IDLE, FAST_ONLY]
    assert [(r.id, r.point_id, r.objective) for r in state.records] == [
        (0, 0, Objective.SLOW),
        (1, 0, Objective.FAST),
        (2, 2, Objective.FAST),
    ]
    assert {(r.status, r.asked_at) for r in state.records} == {(Status.PENDING, 7.0)}
    assert all(math.isnan(r.value) and math.isnan(r.ended_at) for r in state.records)
    assert state.used == [2, 1]
    assert state.strategy_state == {"step": 1}


def test_telling_keeps_users_signs_in_records_and_minimised_values_in_rows():
    state = apply(new_state(directions=("maximize", "minimize")), asked(BOTH))
    apply(state, Told(id=1, value=3.0, time=9.0))
    assert values(state) == [[-3.0, None]]
    assert state.pending.tolist() == [[False, True]]
    record = state.records[1]
    assert (record.status, record.value, record.ended_at) == (Status.DONE, 3.0, 9.0)
    apply(state, Told(id=0, value=4.0))
    assert values(state) == [[-3.0, 4.0]]
    assert not state.pending.any()


def test_failing_keeps_the_other_value():
    state = fold(new_state(), [asked(BOTH), Told(id=1, value=3.0)])
    apply(state, Failed(id=0, reason="broken", time=8.0))
    assert values(state) == [[3.0, None]]
    assert state.failed.tolist() == [[False, True]]
    assert not state.pending.any()
    record = state.records[0]
    assert (record.status, record.reason, record.ended_at) == (Status.FAILED, "broken", 8.0)
    assert math.isnan(record.value)
    assert state.used == [1, 1]


def test_values_that_are_not_known_are_zeros_never_nan():
    state = fold(new_state(), [asked(BOTH, FAST_ONLY, IDLE), Failed(id=0, reason="")])
    apply(state, attached([[5, 5]], [[NAN, 2.0]]))
    assert state.Y.tolist() == [[0, 0], [0, 0], [0, 0], [0, 2]]


def test_a_late_value_counts():
    state = fold(new_state(), [asked(BOTH), Failed(id=0, reason="late"), Told(id=0, value=2.0)])
    assert values(state) == [[None, 2.0]]
    assert not state.failed.any()
    record = state.records[0]
    assert (record.status, record.value, record.reason) == (Status.DONE, 2.0, "")


def test_a_retry_is_a_new_evaluation_and_costs_one():
    state = fold(new_state(), [asked(BOTH), Failed(id=0, reason="no", retry=True, time=8.0)])
    assert statuses(state) == ["failed", "pending", "pending"]
    retry = state.records[2]
    assert (retry.point_id, retry.objective, retry.asked_at) == (0, Objective.SLOW, 8.0)
    assert state.used == [1, 2]
    assert state.pending.tolist() == [[True, True]]
    assert not state.failed.any()
    apply(state, Told(id=2, value=6.0))
    assert values(state) == [[None, 6.0]]


def test_retries_stop_at_the_budget():
    state = fold(new_state(n_slow=3), [asked(BOTH), Failed(id=0, reason="", retry=True)])
    apply(state, Failed(id=2, reason="", retry=True))
    assert state.used == [1, 3]
    apply(state, Failed(id=3, reason="", retry=True))
    assert state.used == [1, 3]
    assert len(state.records) == 4
    assert state.failed.tolist() == [[False, True]]


def test_a_withdrawn_retry_is_neither_handed_out_nor_counted():
    events = [asked(BOTH, queued=True), Failed(id=0, reason="", retry=True), Told(id=0, value=2.0)]
    state = fold(new_state(), [*events, Withdrawn(id=2, time=9.0)])
    assert list(state.to_hand_out) == [1]
    assert state.used == [1, 1]
    assert values(state) == [[None, 2.0]]
    record = state.records[2]
    assert (record.status, record.ended_at) == (Status.WITHDRAWN, 9.0)
    assert record.reason == "not needed: the value came late"


def test_what_failed_before_it_was_handed_out_is_not_handed_out():
    state = apply(new_state(), asked(BOTH, queued=True))
    apply(state, Failed(id=0, reason="", retry=True))
    assert list(state.to_hand_out) == [1, 2]


def test_a_failed_retry_does_not_take_a_late_value_away():
    events = [asked(BOTH, queued=True), Failed(id=0, reason="", retry=True), Told(id=0, value=2.0)]
    state = fold(new_state(), [*events, Failed(id=2, reason="")])
    assert values(state) == [[None, 2.0]]
    assert not state.failed.any()


def test_of_a_late_value_and_a_retrys_value_the_first_holds():
    events = [asked(BOTH, queued=True), Failed(id=0, reason="", retry=True), Told(id=0, value=2.0)]
    state = fold(new_state(), [*events, Told(id=2, value=2.5)])
    assert values(state) == [[None, 2.0]]
    assert statuses(state) == ["done", "pending", "done"]
    assert [state.records[k].value for k in (0, 2)] == [2.0, 2.5]


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_the_order_of_telling_does_not_matter(order):
    endings = [
        Told(id=0, value=1.0),
        Told(id=1, value=2.0),
        Failed(id=2, reason="x"),
        Told(id=3, value=-4.0),
    ]
    state = apply(new_state(), asked(BOTH, BOTH))
    fold(state, [endings[k] for k in order])
    assert values(state) == [[2.0, 1.0], [-4.0, None]]
    assert state.failed.tolist() == [[False, False], [False, True]]
    assert statuses(state) == ["done", "done", "failed", "done"]
    assert not state.pending.any()


# ------------------------------------------------------------------ attaching


def test_attached_rows_are_in_users_units_and_signs():
    state = new_state(directions=("minimize", "maximize"))
    apply(state, attached([[1, 2], [20, -10]], [[3, 4], [NAN, 5]]))
    assert state.X_user.tolist() == [[1, 2], [20, -10]]
    assert state.X.tolist() == [[0.1, 0.2], [2.0, -1.0]]
    assert values(state) == [[3, -4], [None, -5]]
    assert state.used == [0, 0]
    assert state.records == []
    assert state.n_attached_complete == 1


def test_rows_with_equal_points_become_one():
    state = new_state()
    apply(state, attached([[1, 2], [3, 4]], [[5, NAN], [6, NAN]]))
    apply(state, attached([[3, 4], [1, 2], [7, 8]], [[NAN, 60], [NAN, 50], [NAN, 70]]))
    assert state.X_user.tolist() == [[1, 2], [3, 4], [7, 8]]
    assert values(state) == [[5, 50], [6, 60], [None, 70]]
    assert state.n_attached_complete == 2


def test_equal_points_within_one_call_become_one():
    state = apply(new_state(), attached([[1, 2], [1, 2]], [[5, NAN], [NAN, 50]]))
    assert values(state) == [[5, 50]]


def test_nearly_equal_points_do_not():
    state = apply(new_state(), attached([[1, 2], [1, 2 + 1e-15]], [[5, NAN], [NAN, 50]]))
    assert values(state) == [[5, None], [None, 50]]


def test_both_zeros_are_one_point():
    state = apply(new_state(), attached([[0.0, 2], [-0.0, 2]], [[5, NAN], [NAN, 50]]))
    assert values(state) == [[5, 50]]


def test_the_same_value_again_changes_nothing():
    state = new_state()
    for _ in range(3):
        apply(state, attached([[1, 2]], [[5, 6]]))
    assert values(state) == [[5, 6]]
    assert state.n_attached_complete == 1


def test_another_value_is_a_repeated_measurement():
    state = apply(new_state(), attached([[1, 2]], [[5, NAN]]))
    apply(state, attached([[1, 2], [1, 2]], [[5.5, NAN], [NAN, 6]]))
    assert state.X_user.tolist() == [[1, 2], [1, 2]]
    assert values(state) == [[5, 6], [5.5, None]]


def test_attached_values_complete_rows_that_were_asked_for():
    state = fold(new_state(), [asked(FAST_ONLY), Told(id=0, value=5.0)])
    apply(state, attached([[0, 1]], [[NAN, 6]]))
    assert values(state) == [[5, 6]]
    assert state.n_attached_complete == 0
    assert state.used == [1, 0]


def test_attached_values_do_not_replace_those_that_are_on_their_way():
    state = apply(new_state(), asked(BOTH))
    apply(state, attached([[0, 1]], [[5, NAN]]))
    assert state.pending.tolist() == [[True, True], [False, False]]
    fold(state, [Told(id=0, value=6.0), Told(id=1, value=5.5)])
    assert values(state) == [[5.5, 6], [5, None]]


def test_an_attached_value_completes_a_row_whose_evaluation_failed():
    state = fold(new_state(), [asked(BOTH), Told(id=1, value=5.0), Failed(id=0, reason="")])
    apply(state, attached([[0, 1]], [[NAN, 6]]))
    assert values(state) == [[5, 6]]


def test_idle_rows_are_padding_and_take_no_values():
    state = fold(new_state(), [asked(IDLE), attached([[0, 1]], [[5, 6]])])
    assert values(state) == [[None, None], [5, 6]]


def test_nothing_attached():
    state = apply(new_state(), Attached(X=torch.zeros(0, 2).double(), Y=torch.zeros(0, 2).double()))
    assert state.n_rows == 0


# ------------------------------------------------------------------ mechanics


@pytest.mark.parametrize("step", [1, 7, 16, 17, 300])
def test_buffers_grow(step):
    state, n = new_state(n_fast=300, n_slow=0), 0
    while n < 300:
        rows = range(n, min(n + step, 300))
        X = [[k / 1000, 0.5] for k in rows]
        apply(state, asked(*[FAST_ONLY for _ in rows], X=X))
        for k in rows:
            apply(state, Told(id=k, value=float(k)))
        n += len(rows)
    assert state.n_rows == 300
    assert state.X[:, 0].tolist() == [k / 1000 for k in range(300)]
    assert state.X_user[:, 0].tolist() == pytest.approx([k / 100 for k in range(300)])
    assert state.Y[:, 0].tolist() == list(range(300))
    assert state.observed.tolist() == [FAST_ONLY] * 300
    # An early row is still found by its point.
    apply(state, Attached(X=state.X_user[3:4].clone(), Y=torch.tensor([[NAN, 9.0]]).double()))
    assert state.n_rows == 300
    assert state.Y[3].tolist() == [3, 9]
    # New attached rows have room as well.
    apply(state, attached([[k / 7, 10.0] for k in range(300)], [[1.0, 2.0]] * 300))
    assert state.n_rows == 600
    assert state.n_attached_complete == 300


def test_points_are_handed_out_as_copies():
    state = apply(new_state(), asked(BOTH))
    x = state.x(0)
    x[:] = 99.0
    assert state.X_user.tolist() == [[0.0, 1.0]]


def test_events_are_not_changed_by_later_ones():
    event = attached([[1, 2]], [[5, NAN]])
    state = apply(new_state(), event)
    apply(state, attached([[1, 2]], [[NAN, 6]]))
    assert event.X.tolist() == [[1, 2]]
    assert math.isnan(event.Y[0, 1])


def test_fold_applies_in_order_and_returns_the_state():
    state = new_state()
    assert fold(state, iter([asked(BOTH), Told(id=0, value=1.0)])) is state
    assert values(state) == [[None, 1.0]]


@pytest.mark.usefixtures("unchecked")
def test_anything_else_is_no_event():
    with pytest.raises(InvalidInputError, match="event must be Asked, HandedOut, Told, Failed"):
        apply(new_state(), "told")  # pyright: ignore[reportArgumentType]
