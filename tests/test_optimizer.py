"""The ask/tell protocol: what may come in which order, what it costs, and what is kept."""

import math
import random
import re
import threading
import time
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from tcsaea_torch import TCSAEA, Objective, Optimizer, Problem, RandomSearch, Status, strategies
from tcsaea_torch.errors import InvalidInputError, ProtocolError
from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies import Proposal

FAST, SLOW = Objective.FAST, Objective.SLOW
NAN, INF = math.nan, math.inf
QUICK_FIT = FitConfig(
    input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=5)
)
NAMES = ["tc-saea", "tc-saea-released", "random"]
MODEL_BASED = NAMES[:2]


def fast(x):
    return float((x**2).sum())


def slow(x):
    return float(((x - 1) ** 2).sum())


def problem(**changes):
    options = {"fast": fast, "slow": slow, "bounds": [[0.0, 0.0], [1.0, 1.0]], "tau": 2}
    return Problem(**{**options, **changes})


def cheap(name):
    """Make a strategy whose search is short: the protocol is the same, the proposals worse."""
    if name == "random":
        return strategies.get(name)
    return strategies.get(
        name, search=RVEAConfig(n_generations=2), n_ref_vectors=12, kriging=QUICK_FIT
    )


def make(changes=None, **options):
    """Make an optimizer of the toy problem; by default, it searches at random."""
    options = {"n_slow": 14, "n_init": 8, "strategy": "random", **options}
    return Optimizer(problem(**(changes or {})), **options)


def value_of(optimizer, evaluation):
    return optimizer.problem.function_of(evaluation.objective)(evaluation.x)


def tell_all(optimizer, evaluations, fails=lambda evaluation: False):
    for evaluation in evaluations:
        if fails(evaluation):
            optimizer.fail(evaluation.id, "no luck")
        else:
            optimizer.tell(evaluation.id, value_of(optimizer, evaluation))


def run(optimizer, fails=lambda evaluation: False):
    """Run to the end and return all evaluations in the order of asking."""
    asked = []
    while evaluations := optimizer.ask():
        tell_all(optimizer, evaluations, fails)
        asked += evaluations
    return asked


def points(evaluations):
    return np.stack([e.x for e in evaluations])


def refuses(error, text):
    return pytest.raises(error, match="^" + re.escape(text))


# ------------------------------------------------------------------ asking


def test_the_first_ask_gives_the_design_the_slow_value_of_each_point_first():
    optimizer = make()
    evaluations = optimizer.ask()
    assert [e.id for e in evaluations] == list(range(16))
    assert [e.objective for e in evaluations] == [SLOW, FAST] * 8
    assert [e.point_id for e in evaluations] == [k for k in range(8) for _ in range(2)]
    for a, b in zip(evaluations[::2], evaluations[1::2], strict=True):
        assert (a.x == b.x).all()
    assert len(np.unique(points(evaluations), axis=0)) == 8
    assert optimizer.n_used == (8, 8)
    assert optimizer.n_total == (28, 14)


def test_the_design_is_a_latin_hypercube_of_the_users_box():
    optimizer = make({"bounds": [[-5.0, 10.0], [5.0, 30.0]]})
    slices = np.floor((points(optimizer.ask()[::2]) - [-5.0, 10.0]) / [10.0, 20.0] * 8)
    assert np.sort(slices, axis=0).tolist() == [[k, k] for k in range(8)]


@pytest.mark.parametrize("name", NAMES)
def test_ids_count_all_evaluations_and_are_handed_out_once(name):
    optimizer = make(strategy=cheap(name))
    assert [e.id for e in run(optimizer)] == list(range(sum(optimizer.n_used)))


def test_points_are_float64_copies_of_their_own():
    optimizer = make()
    evaluations = optimizer.ask()
    before = optimizer.archive.X.clone()
    for e in evaluations:
        assert e.x.dtype == np.float64
        assert e.x.shape == (2,)
        e.x[:] = -77.0
    assert torch.equal(optimizer.archive.X, before)
    assert (points(optimizer.pending) >= 0).all()
    assert not np.shares_memory(evaluations[0].x, evaluations[1].x)


def test_asking_again_gives_what_needs_no_values_and_then_nothing():
    optimizer = make()
    first, second = optimizer.ask(), optimizer.ask()
    assert len(first) == 16
    assert len(second) == 12  # random search waits for nothing
    assert optimizer.ask() == []
    assert optimizer.waits_for == ()
    assert not optimizer.is_done
    assert [e.id for e in optimizer.pending] == list(range(28))


@pytest.mark.parametrize("name", MODEL_BASED)
def test_the_fast_objective_goes_on_while_slow_values_are_outstanding(name):
    optimizer = make({"tau": 5}, strategy=cheap(name))
    design = optimizer.ask()
    slow_ids = {e.id for e in design if e.objective is SLOW}
    fast_ids = {e.id for e in design if e.objective is FAST}
    assert optimizer.waits_for == ()
    assert optimizer.ask() == []
    assert set(optimizer.waits_for) == fast_ids
    n_generations, evaluations = 0, [e for e in design if e.objective is FAST]
    while evaluations:
        *most, last = evaluations
        tell_all(optimizer, most)
        assert optimizer.ask() == []  # one fast value is missing
        assert optimizer.waits_for == (last.id,)
        tell_all(optimizer, [last])
        evaluations = optimizer.ask()
        assert all(e.objective is FAST for e in evaluations)
        n_generations += bool(evaluations)
    assert n_generations >= 3
    assert optimizer.n_used[0] == 8 * (5 if name == "tc-saea" else 4)
    # Now the slow values are waited for, and a period follows when the last one came.
    assert set(optimizer.waits_for) == slow_ids
    tell_all(optimizer, [e for e in design if e.objective is SLOW])
    period = optimizer.ask()
    assert optimizer.waits_for == ()
    assert sum(e.objective is SLOW for e in period) == 3


def test_the_order_of_telling_does_not_change_the_run():
    def shuffled(optimizer):
        generator = random.Random(3)
        waiting = []
        while True:
            waiting += optimizer.ask()
            if not waiting:
                return
            generator.shuffle(waiting)
            for _ in range(min(4, len(waiting))):
                tell_all(optimizer, [waiting.pop()])

    in_order, out_of_order = (make({"tau": 5}, strategy=cheap("tc-saea")) for _ in range(2))
    run(in_order)
    shuffled(out_of_order)
    assert torch.equal(in_order.archive.X, out_of_order.archive.X)
    assert torch.equal(in_order.archive.Y, out_of_order.archive.Y)


# ------------------------------------------------------------------ telling


@pytest.mark.parametrize(
    "value",
    [2, 2.0, np.float64(2), np.float32(2), np.array([2.0]), torch.tensor(2.0), torch.tensor([[2]])],
)
def test_values_may_be_any_real_scalar(value):
    optimizer = make()
    optimizer.ask()
    optimizer.tell(0, value)
    record = optimizer.record(0)
    assert (record.status, record.value) == (Status.DONE, 2.0)
    assert optimizer.archive.Y[0, 0].tolist() == [0.0, 2.0]
    assert optimizer.archive.observed[0, 0].tolist() == [False, True]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (NAN, "must be a finite real number, got nan (float)"),
        (INF, "must be a finite real number, got inf (float)"),
        (torch.tensor(-INF), "must be a finite real number, got -inf (float)"),
        ("2", "must be one real number, got '2' (str)"),
        (None, "must be one real number, got None (NoneType)"),
        (True, "must be one real number, got True (bool)"),
        (np.ones(2), "must be one real number, got ndarray of shape (2,)"),
        ([2.0], "must be one real number, got [2.0] (list)"),
        (2j, "must be one real number, got 2j (complex)"),
    ],
)
def test_other_values_are_refused_with_a_hint_to_fail(value, what):
    optimizer = make()
    optimizer.ask()
    with refuses(InvalidInputError, f"value of evaluation 3 {what}") as caught:
        optimizer.tell(3, value)
    assert str(caught.value).endswith("; report a failed evaluation by fail(id, reason)")
    assert optimizer.record(3).status is Status.PENDING
    assert len(optimizer.events) == 1


def test_telling_the_same_again_changes_nothing():
    optimizer = make()
    optimizer.ask()
    optimizer.tell(0, 2.0)
    optimizer.tell(0, 2)
    assert len(optimizer.events) == 2


def test_telling_another_value_is_refused():
    optimizer = make()
    optimizer.ask()
    optimizer.tell(0, 2.0)
    with refuses(ProtocolError, "evaluation 0 was told 2.0 before, now 2.5"):
        optimizer.tell(0, 2.5)
    assert optimizer.record(0).value == 2.0


@pytest.mark.parametrize("method", ["tell", "fail", "record"])
@pytest.mark.parametrize("id", [-1, 16, 10**6])
def test_unknown_ids(method, id):
    optimizer = make()
    optimizer.ask()
    with refuses(ProtocolError, f"evaluation {id} is unknown: ask() never handed it out"):
        getattr(optimizer, method)(id, *{"tell": [1.0], "fail": ["no"], "record": []}[method])


@pytest.mark.parametrize("id", ["0", 0.5, None, True, [0]])
@pytest.mark.usefixtures("unchecked")
def test_ids_are_integers(id):
    optimizer = make()
    optimizer.ask()
    with refuses(InvalidInputError, "id must be an integer, got "):
        optimizer.tell(id, 1.0)


@pytest.mark.usefixtures("unchecked")
def test_ids_may_be_of_any_integer_type():
    optimizer = make()
    optimizer.ask()
    optimizer.tell(np.int64(3), 1.0)  # pyright: ignore[reportArgumentType]
    assert optimizer.record(3).status is Status.DONE


def test_records_are_copies():
    optimizer = make()
    optimizer.ask()
    optimizer.record(0).value = 5.0
    optimizer.record(0).status = Status.DONE
    assert optimizer.record(0).status is Status.PENDING


# ------------------------------------------------------------------ failing


def test_a_failure_is_counted_and_keeps_the_points_other_value():
    optimizer = make()
    optimizer.ask()
    optimizer.tell(1, 5.0)
    optimizer.fail(0, "mesh broken")
    record = optimizer.record(0)
    assert (record.status, record.reason) == (Status.FAILED, "mesh broken")
    assert optimizer.archive.observed[0, 0].tolist() == [True, False]
    assert optimizer.archive.Y[0, 0].tolist() == [5.0, 0.0]
    assert optimizer.n_used == (8, 8)
    assert 0 not in [e.id for e in optimizer.pending]
    assert optimizer.result().all_Y[0].isnan().tolist() == [False, True]


def test_a_value_after_a_failure_counts():
    optimizer = make()
    optimizer.ask()
    optimizer.fail(0, "late")
    optimizer.tell(0, 3.0)
    assert optimizer.record(0).status is Status.DONE
    assert optimizer.archive.Y[0, 0].tolist() == [0.0, 3.0]


def test_failing_twice():
    optimizer = make()
    optimizer.ask()
    optimizer.fail(0, "mesh broken")
    optimizer.fail(0, "mesh broken")
    assert len(optimizer.events) == 2
    with refuses(ProtocolError, "evaluation 0 is failed already"):
        optimizer.fail(0, "another reason")
    with refuses(ProtocolError, "evaluation 0 is failed already"):
        optimizer.fail(0, "mesh broken", retry=True)
    optimizer.tell(1, 1.0)
    with refuses(ProtocolError, "evaluation 1 is done already"):
        optimizer.fail(1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"reason": None}, "reason must be a string, got None (NoneType)"),
        ({"reason": ValueError("x")}, "reason must be a string, got ValueError('x') (ValueError)"),
        ({"retry": 1}, "retry must be True or False, got 1 (int)"),
    ],
)
def test_bad_arguments_of_fail(arguments, message):
    optimizer = make()
    optimizer.ask()
    with refuses(InvalidInputError, message):
        optimizer.fail(0, **arguments)
    assert optimizer.record(0).status is Status.PENDING


def test_a_retry_gets_a_new_id_for_the_same_point_and_costs_one():
    optimizer = make(strategy=cheap("tc-saea"))
    first = optimizer.ask()[4]
    optimizer.fail(4, "try again", retry=True)
    assert optimizer.n_used == (8, 9)
    (retry,) = optimizer.ask()
    assert (retry.id, retry.point_id, retry.objective) == (16, first.point_id, SLOW)
    assert (retry.x == first.x).all()
    optimizer.tell(16, 7.0)
    assert optimizer.archive.Y[0, first.point_id].tolist() == [0.0, 7.0]
    assert optimizer.record(4).status is Status.FAILED
    with refuses(ProtocolError, "the value of evaluation 4 is known from a retry"):
        optimizer.tell(4, 6.0)


@pytest.mark.parametrize("name", NAMES)
def test_retries_stop_at_the_budget(name):
    optimizer = make(n_slow=9, strategy=cheap(name))
    n_tries = 0
    for _ in range(40):
        for e in optimizer.ask():
            if e.objective is SLOW:
                n_tries += 1
                optimizer.fail(e.id, "never works", retry=True)
            else:
                optimizer.tell(e.id, value_of(optimizer, e))
    assert n_tries == 9
    assert optimizer.n_used[1] == 9
    assert optimizer.n_used[0] <= 18
    assert optimizer.is_done
    assert optimizer.result().status == "finished"


def test_retries_of_fast_values_leave_fewer_points():
    optimizer = make({"tau": 1}, n_slow=9)
    tell_all(optimizer, optimizer.ask())
    # The last point is asked for now; tau = 1 has no call to spare for its retry.
    (last,) = (e for e in optimizer.ask() if e.objective is FAST)
    optimizer.fail(last.id, "no", retry=True)
    assert optimizer.n_used == optimizer.n_total == (9, 9)
    assert optimizer.ask() == []


@pytest.mark.parametrize("end", ["fails", "agrees", "differs"])
def test_a_value_that_came_late_stays_whatever_its_retry_brings(end):
    optimizer = make(strategy=cheap("tc-saea"))
    design = optimizer.ask()
    optimizer.fail(0, "slow machine", retry=True)
    (retry,) = optimizer.ask()
    optimizer.tell(0, 3.0)
    if end == "fails":
        optimizer.fail(retry.id, "slow machine")
    else:
        optimizer.tell(retry.id, 3.0 if end == "agrees" else 4.0)
    assert optimizer.archive.Y[0, 0].tolist() == [0.0, 3.0]
    assert optimizer.archive.observed[0, 0].tolist() == [False, True]
    assert optimizer.pending != []
    tell_all(optimizer, design[1:])
    run(optimizer)
    assert optimizer.is_done
    assert optimizer.pending == []


def test_a_value_that_came_late_takes_its_retry_back():
    optimizer = make(strategy=cheap("tc-saea"))
    design = optimizer.ask()
    optimizer.fail(0, "slow machine", retry=True)
    optimizer.tell(0, 3.0)
    assert optimizer.n_used == (8, 8)
    assert optimizer.ask() == []
    assert len(optimizer.pending) == 15
    tell_all(optimizer, design[1:])
    asked = run(optimizer)
    assert all(e.point_id != 0 for e in asked)
    assert optimizer.is_done
    assert optimizer.archive.Y[0, 0, 1] == 3.0


@pytest.mark.parametrize("name", MODEL_BASED)
def test_points_that_failed_are_not_proposed_again(name):
    optimizer = make({"tau": 3}, strategy=cheap(name))
    asked = run(optimizer, fails=lambda e: e.id % 3 == 0)
    calls = Counter((e.objective, *e.x) for e in asked)
    assert max(calls.values()) == 1
    assert optimizer.n_used[1] == 14
    assert sum(r.status is Status.FAILED for r in optimizer.result().history) == len(asked[::3])


@pytest.mark.filterwarnings("ignore:there (is|are) only [01] (fast|slow) value")
@pytest.mark.parametrize("name", ["tc-saea", "random"])
@pytest.mark.parametrize(("lost", "n_kept"), [(SLOW, 0), (SLOW, 1), (FAST, 0), (FAST, 1)])
def test_runs_in_which_one_objective_hardly_ever_works_go_on(name, lost, n_kept):
    optimizer = make(n_slow=11, n_init=6, strategy=cheap(name))
    left = [n_kept]

    def fails(e):
        if e.objective is not lost:
            return False
        left[0] -= 1
        return left[0] < 0

    asked = run(optimizer, fails)
    X = points(asked)
    assert np.isfinite(X).all()
    assert ((X >= 0) & (X <= 1)).all()
    assert optimizer.n_used[1] == 11
    assert len(np.unique(points([e for e in asked if e.objective is SLOW]), axis=0)) == 11
    assert len(optimizer.result().X) == n_kept


# ------------------------------------------------------------------ attaching

ATTACHED_X = np.random.default_rng(0).random((20, 2))


@pytest.mark.parametrize(
    "kind",
    [np.asarray, np.ndarray.tolist, torch.tensor, lambda a: torch.tensor(a).float()],
    ids=["numpy", "list", "torch", "float32"],
)
def test_attached_arrays_of_every_kind(kind):
    X = np.round(ATTACHED_X[:3] * 64) / 64
    optimizer = make()
    optimizer.attach(kind(X), fast=kind(np.array([1.0, NAN, 3.0])), slow=kind(X[:, 0]))
    assert optimizer.archive.X[0].tolist() == X.tolist()
    assert optimizer.archive.observed[0].tolist() == [[True, True], [False, True], [True, True]]
    assert optimizer.archive.Y[0, :, 0].tolist() == [1.0, 0.0, 3.0]
    assert optimizer.archive.Y[0, :, 1].tolist() == X[:, 0].tolist()
    assert optimizer.n_used == (0, 0)


def test_attached_tables():
    table = pd.DataFrame({"a": [0.1, 0.2], "b": [0, 1], "mass": [5.0, None], "force": [1, 2]})
    optimizer = make({"directions": ("minimize", "maximize")})
    optimizer.attach(table[["a", "b"]], fast=table["mass"], slow=table["force"])
    result = optimizer.result()
    assert result.all_X.tolist() == [[0.1, 0.0], [0.2, 1.0]]
    assert result.all_Y[:, 1].tolist() == [1.0, 2.0]
    assert result.all_Y[0, 0] == 5.0
    assert result.all_Y[1, 0].isnan()


def test_none_and_nan_mean_not_measured():
    optimizer = make()
    optimizer.attach([[0.1, 0.2], [0.3, 0.4]], fast=[None, 1], slow=None)
    optimizer.attach([[0.5, 0.6]])
    assert optimizer.archive.observed[0, :, 0].tolist() == [False, True, False]
    assert not optimizer.archive.observed[0, :, 1].any()
    # Points without a value are no points of the result.
    assert optimizer.result().all_X.tolist() == [[0.3, 0.4]]


def test_columns_are_accepted_as_vectors():
    optimizer = make()
    optimizer.attach(ATTACHED_X[:3], fast=[[1.0], [2.0], [3.0]], slow=torch.ones(3, 1))
    assert optimizer.archive.complete.sum() == 3


@pytest.mark.parametrize(
    "values",
    [
        pd.DataFrame({"mass": [1.0, 2.0]}),
        pd.array([1.0, None], dtype="Float64"),
        pd.Series([1, None], dtype="Int64"),
    ],
    ids=["frame of one column", "array with NA", "series with NA"],
)
def test_columns_of_tables_are_accepted_as_vectors(values):
    make().attach(ATTACHED_X[:2], fast=values)


def test_fast_and_slow_data_in_different_orders_meet_at_equal_points():
    optimizer = make()
    common = [13, 2, 7, 19, 4, 11]
    X_slow = np.concatenate([ATTACHED_X[common], [[0.5, 0.5]]])[::-1].copy()
    optimizer.attach(ATTACHED_X, fast=np.arange(20.0))
    optimizer.attach(X_slow, slow=10 * np.arange(7.0))
    archive = optimizer.archive
    assert len(archive) == 21
    assert archive.observed[0].sum(dim=0).tolist() == [20, 7]
    assert archive.complete.sum() == 6
    # X_slow is reversed: its rows 6, 5, ..., 1 are the common ones.
    expected = {(float(row), 10.0 * (6 - k)) for k, row in enumerate(common)}
    assert {tuple(y) for y in optimizer.result().Y.tolist()} == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": [[0.1, NAN]]}, "X must be finite, got nan in row 0, column 1"),
        ({"X": [[0.1, 0.2], [-INF, 0.3]]}, "X must be finite, got -inf in row 1, column 0"),
        ({"X": [0.1, 0.2]}, "X must have shape (n, 2), got shape (2,)"),
        ({"X": [[0.1, 0.2, 0.3]]}, "X must have shape (n, 2), got shape (1, 3)"),
        ({"X": [["a", "b"]]}, "X must be an array of real numbers, got [['a', 'b']] (list)"),
        ({"X": [[0.1, 0.2]], "fast": [1, 2]}, "fast must have shape (1,), got shape (2,)"),
        ({"X": [[0.1, 0.2]], "slow": []}, "slow must have shape (1,), got shape (0,)"),
        ({"X": [[0.1, 0.2]], "slow": [[1, 2]]}, "slow must have shape (1,), got shape (1, 2)"),
        ({"X": [[0.1, 0.2]], "fast": ["x"]}, "fast must be an array of real numbers, got ['x']"),
        ({"X": [[0.1, 0.2]] * 2, "slow": [1, INF]}, "slow must not be infinite, got inf at 1"),
    ],
)
def test_bad_attached_data_changes_nothing(arguments, message):
    optimizer = make()
    with refuses(InvalidInputError, message):
        optimizer.attach(**arguments)
    assert len(optimizer.events) == 0
    assert len(optimizer.archive) == 0


def test_one_number_is_no_vector():
    with refuses(InvalidInputError, "fast must have shape (1,), got shape ()"):
        make().attach([[0.1, 0.2]], fast=1.0)


def test_points_outside_the_bounds_are_used_with_a_warning_and_not_proposed():
    X = ATTACHED_X[:9] * 3 - 1
    y_fast, y_slow = [fast(x) for x in X], [slow(x) for x in X]
    n_outside = int(((X < 0) | (X > 1)).any(axis=1).sum())
    optimizer = make(strategy=cheap("tc-saea"))
    with pytest.warns(UserWarning, match=f"^{n_outside} of 9 attached points lie outside the bo"):
        optimizer.attach(X, fast=y_fast, slow=y_slow)
    assert optimizer.result().X.tolist() == X.tolist()
    asked = points(run(optimizer))
    assert len(asked) > 14
    assert ((asked >= 0) & (asked <= 1)).all()


@pytest.mark.parametrize("n_attached", [3, 7, 8, 9])
@pytest.mark.parametrize("name", NAMES)
def test_complete_attached_points_reduce_the_design(name, n_attached):
    X = ATTACHED_X[:n_attached]
    optimizer = make(n_slow=9, strategy=cheap(name))
    optimizer.attach(X, fast=[fast(x) for x in X], slow=[slow(x) for x in X])
    first = optimizer.ask()
    n_design = 8 - n_attached
    if n_design > 0:
        assert [e.objective for e in first] == [SLOW, FAST] * n_design
    tell_all(optimizer, first)
    run(optimizer)
    # Attached points cost nothing: all calls are still there, and are spent.
    assert optimizer.n_used[1] == 9
    assert optimizer.archive.complete.sum() == 9 + n_attached


def test_incomplete_attached_points_leave_the_design_as_it_is():
    with_data, without = make(), make()
    with_data.attach(ATTACHED_X, fast=np.ones(20))
    assert (points(with_data.ask()) == points(without.ask())).all()


def test_initial_data_is_attached_first():
    data = {"X": ATTACHED_X[:9], "fast": np.arange(9.0), "slow": np.arange(9.0)[::-1].copy()}
    attached, initial = (
        make(strategy=cheap("tc-saea")),
        make(strategy=cheap("tc-saea"), initial_data=data),
    )
    attached.attach(**data)
    assert (points(attached.ask()) == points(initial.ask())).all()


def test_data_that_comes_during_the_start_does_not_disturb_it():
    def generation(data):
        optimizer = make({"tau": 5}, strategy=cheap("tc-saea"))
        for _ in range(2):
            tell_all(optimizer, [e for e in optimizer.ask() if e.objective is FAST])
        if data:
            # Slow values say nothing to a search that looks at fast ones only.
            optimizer.attach(ATTACHED_X[:9], slow=np.ones(9))
        return points(optimizer.ask())

    assert (generation(True) == generation(False)).all()


def test_data_that_comes_during_the_periods_is_learnt():
    def period(data):
        optimizer = make(strategy=cheap("tc-saea"))
        while optimizer.n_used[1] <= 8:
            tell_all(optimizer, optimizer.ask())
        if data:
            optimizer.attach(ATTACHED_X, fast=np.linspace(0, 1, 20), slow=np.linspace(1, 0, 20))
        return points(optimizer.ask())

    assert not np.array_equal(period(True), period(False))


# ------------------------------------------------------------------ budgets


@pytest.mark.parametrize("tau", [1, 2, 2.5, 5])
@pytest.mark.parametrize(("n_slow", "n_init"), [(13, 8), (9, 9), (1, 1)])
@pytest.mark.parametrize("name", NAMES)
def test_budgets_are_spent_exactly(name, n_slow, n_init, tau):
    optimizer = make({"tau": tau}, n_slow=n_slow, n_init=n_init, strategy=cheap(name))
    asked = run(optimizer)
    n_fast = math.floor(tau * n_slow)
    assert optimizer.n_total == (n_fast, n_slow)
    assert sum(e.objective is SLOW for e in asked) == optimizer.n_used[1] == n_slow
    assert sum(e.objective is FAST for e in asked) == optimizer.n_used[0] <= n_fast
    if name == "tc-saea":
        assert optimizer.n_used[0] == n_fast
    if name == "random":
        assert optimizer.n_used[0] == n_slow
    assert optimizer.result().status == "finished"
    assert optimizer.archive.complete.sum() == n_slow


@pytest.mark.parametrize(("tau", "n_slow", "n_fast"), [(1.15, 100, 115), (4.1, 30, 123)])
def test_rounding_costs_no_fast_call(tau, n_slow, n_fast):
    assert int(tau * n_slow) == n_fast - 1
    assert make({"tau": tau}, n_slow=n_slow).n_total == (n_fast, n_slow)


@pytest.mark.parametrize(
    ("d", "n_slow", "n_init"), [(2, 30, 10), (2, 6, 4), (2, 3, 3), (11, 20, 13), (3, 1000, 100)]
)
def test_the_default_design_is_a_third_of_the_budget(d, n_slow, n_init):
    changes = {"bounds": [[0.0] * d, [1.0] * d]}
    assert make(changes, n_slow=n_slow, n_init=None).n_init == n_init


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n_slow", "n_init"), [(14, 8), (7, 7)])
def test_a_run_that_is_done_proposes_nothing_more(name, n_slow, n_init):
    optimizer = make({"tau": 3}, n_slow=n_slow, n_init=n_init, strategy=cheap(name))
    while not optimizer.is_done:
        tell_all(optimizer, optimizer.ask())
    assert optimizer.ask() == []
    assert optimizer.pending == []


def test_a_strategy_cannot_overspend():
    class Greedy:
        name = "greedy"

        def init(self, run):
            return {}

        def propose(self, state, run):
            mask = torch.ones(1, 20, 2, dtype=torch.bool)
            return Proposal(X=torch.full((1, 20, run.d), 0.5).double(), evaluation_mask=mask), {}

    optimizer = make(strategy=Greedy())
    with refuses(ProtocolError, "strategy 'greedy' proposes more than the budget"):
        optimizer.ask()
    assert optimizer.n_used == (0, 0)


# ------------------------------------------------------------------ reproducibility


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_decides_the_run(name):
    same = [make(n_slow=11, strategy=cheap(name), seed=seed) for seed in (5, 5, 6)]
    for optimizer in same:
        run(optimizer)
    assert torch.equal(same[0].archive.X, same[1].archive.X)
    assert not torch.equal(same[0].archive.X[:, :8], same[2].archive.X[:, :8])


@pytest.mark.parametrize("seed", [-1, 2**53, -(2**63), np.int64(12)])
@pytest.mark.usefixtures("unchecked")
def test_seeds_are_any_integers(seed):
    optimizer = make(seed=seed)
    assert len(run(optimizer)) == 28
    assert optimizer.result().seed == seed


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63) + 1])
def test_seeds_may_be_large(seed):
    optimizer = make(seed=seed)
    assert optimizer.result().seed == seed
    X = points(optimizer.ask())
    for other in (seed - 1, seed % 2**32, seed % 2**53):
        assert not np.array_equal(X, points(make(seed=other).ask()))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("unchecked")  # beartype draws from `random`
def test_global_random_numbers_are_not_touched(name):
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    run(make(strategy=cheap(name)))
    assert random.getstate() == before[0]
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(after, before[1], strict=True))
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_the_default_dtype_neither_matters_nor_changes(name):
    expected = make({"integers": [0]}, n_slow=11, strategy=cheap(name))
    run(expected)
    for dtype in (torch.float64, torch.float16):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            optimizer = make({"integers": [0]}, n_slow=11, strategy=cheap(name))
            run(optimizer)
            assert torch.get_default_dtype() == dtype
        finally:
            torch.set_default_dtype(before)
        assert torch.equal(optimizer.archive.X, expected.archive.X)


def test_gradients_off_or_on_makes_no_difference():
    expected, optimizer = (make(n_slow=11, strategy=cheap("tc-saea")) for _ in range(2))
    run(expected)
    with torch.no_grad():
        run(optimizer)
    assert torch.equal(optimizer.archive.X, expected.archive.X)
    assert not expected.archive.X.requires_grad


# ------------------------------------------------------------------ the user's problem

DIRECTIONS = [("minimize", "maximize"), ("maximize", "minimize"), ("maximize", "maximize")]


@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_maximising_the_negative_is_the_same_run(name, directions):
    signs = [1.0 if way == "minimize" else -1.0 for way in directions]
    changes = {
        "fast": lambda x: signs[0] * fast(x),
        "slow": lambda x: signs[1] * slow(x),
        "directions": directions,
    }
    minimised, optimizer = make(strategy=cheap(name)), make(changes, strategy=cheap(name))
    run(minimised)
    run(optimizer)
    expected, result = minimised.result(), optimizer.result()
    assert torch.equal(result.all_X, expected.all_X)
    factors = torch.tensor(signs).double()
    assert torch.equal(result.Y, expected.Y * factors)
    assert torch.equal(result.pareto_Y, expected.pareto_Y * factors)
    assert torch.equal(optimizer.archive.Y, minimised.archive.Y)
    assert optimizer.ref_point is not None
    assert minimised.ref_point is not None
    assert torch.equal(optimizer.ref_point, minimised.ref_point * factors)
    assert result.hypervolume() == expected.hypervolume()
    assert [r.value for r in result.history] == [
        r.value * signs[r.objective.column] for r in expected.history
    ]


@pytest.mark.parametrize("name", NAMES)
def test_integers_and_fixed_parameters_are_respected(name):
    value = 0.1 + 0.2
    bounds = [[value, -5, 0.0], [value, 5, 1e-3]]
    optimizer = make({"bounds": bounds, "integers": [1], "tau": 3}, strategy=cheap(name))
    X = points(run(optimizer))
    assert (X[:, 0] == value).all()
    assert (X[:, 1] == np.round(X[:, 1])).all()
    assert ((X >= bounds[0]) & (X <= bounds[1])).all()
    assert len(np.unique(X[:, 1])) > 4
    assert optimizer.n_used[1] == 14


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["tc-saea", "random"])
def test_proposals_stay_inside_awkward_bounds(name, dtype):
    bounds = np.array([[0.1, -3e7, 1e-300, -8e307], [0.7, 1e6, 2e-300, 8e307]])
    scale = {"fast": lambda x: x[0] + x[1] / 1e7, "slow": lambda x: x[2] / 1e-300 + x[3] / 1e308}
    optimizer = make({"bounds": bounds, **scale}, strategy=cheap(name), dtype=dtype)
    X = points(run(optimizer))
    assert X.dtype == np.float64
    assert ((X >= bounds[0]) & (X <= bounds[1])).all()
    assert optimizer.archive.X.dtype == dtype
    assert optimizer.n_used[1] == 14


@pytest.mark.parametrize("scale", [(1e300, 1e-300), (0.0, 0.0)])
def test_objectives_of_any_scale_give_finite_proposals(scale):
    changes = {"fast": lambda x: scale[0] * fast(x), "slow": lambda x: scale[1] * slow(x)}
    optimizer = make(changes, strategy=cheap("tc-saea"))
    X = points(run(optimizer))
    assert ((X >= 0) & (X <= 1)).all()
    assert optimizer.n_used[1] == 14


@pytest.mark.parametrize("name", NAMES)
def test_one_dimension(name):
    optimizer = make({"bounds": [[-2.0], [3.0]]}, strategy=cheap(name))
    X = points(run(optimizer))
    assert X.shape[1] == 1
    assert ((X >= -2) & (X <= 3)).all()
    assert optimizer.n_used[1] == 14


def finite(name, bounds=((0, 0), (2, 2)), **options):
    changes = {"bounds": bounds, "integers": range(len(bounds[0])), "tau": 3}
    return make(changes, n_slow=40, strategy=cheap(name), **options)


@pytest.mark.parametrize("name", MODEL_BASED)
@pytest.mark.parametrize("bounds", [((0, 0), (2, 2)), ((0,), (3,)), ((5, 5), (5, 5))])
def test_a_finite_space_ends_exhausted(name, bounds):
    optimizer = finite(name, bounds, n_init=2)
    asked = run(optimizer)
    size = int(np.prod(np.array(bounds[1]) - bounds[0] + 1))
    assert len(np.unique(points(asked), axis=0)) == size
    result = optimizer.result()
    assert result.status == "exhausted"
    assert result.message.startswith("the strategy has nothing more to propose: ")
    assert optimizer.is_done
    assert optimizer.ask() == []


@pytest.mark.parametrize("name", MODEL_BASED)
def test_no_call_is_repeated_in_a_finite_space_after_the_design(name):
    optimizer = finite(name)
    design = optimizer.ask()
    seen = {(e.objective, *e.x) for e in design}
    tell_all(optimizer, design, fails=lambda e: e.id % 5 == 0)  # failed ones too
    later = [(e.objective, *e.x) for e in run(optimizer)]
    assert len(set(later) | seen) == len(later) + len(seen)


@pytest.mark.parametrize("name", NAMES)
def test_no_call_is_repeated_in_the_design_of_a_finite_space(name):
    calls = [(e.objective, *e.x) for e in finite(name, seed=0).ask()]
    assert len(calls) == len(set(calls))


# ------------------------------------------------------------------ what is known


def test_a_run_from_start_to_end():
    optimizer = make(n_slow=9)
    assert not optimizer.is_done
    assert optimizer.result().status == "running"
    design = optimizer.ask()
    assert optimizer.pending != []
    tell_all(optimizer, design)
    assert optimizer.pending == []
    assert not optimizer.is_done  # one more point is to come
    (last_slow, last_fast) = optimizer.ask()
    tell_all(optimizer, [last_slow])
    assert not optimizer.is_done
    assert [e.id for e in optimizer.pending] == [last_fast.id]
    tell_all(optimizer, [last_fast])
    assert optimizer.is_done
    assert optimizer.ask() == []
    result = optimizer.result()
    assert result.status == "finished"
    assert result.message == "the slow budget is spent: 9 of 9 slow and 9 of 18 fast evaluations"


def test_the_archive_is_in_the_unit_cube_and_minimised(device):
    changes = {"bounds": [[-5.0, 10.0], [5.0, 30.0]], "directions": ("minimize", "maximize")}
    optimizer = make(changes, device=device, dtype=torch.float32)
    evaluations = optimizer.ask()
    tell_all(optimizer, evaluations)
    archive = optimizer.archive
    assert archive.X.shape == (1, 8, 2)
    assert archive.X.dtype == torch.float32
    assert archive.X.device.type == archive.observed.device.type == device.type
    expected = (points(evaluations[::2]) - [-5.0, 10.0]) / [10.0, 20.0]
    assert archive.X[0].cpu().numpy() == pytest.approx(expected, abs=1e-6)
    assert archive.Y[0, 0].tolist() == pytest.approx(
        [fast(evaluations[0].x), -slow(evaluations[0].x)], rel=1e-6
    )


def test_what_a_caller_does_to_an_archive_or_result_stays_with_the_caller():
    optimizer = make()
    tell_all(optimizer, optimizer.ask())
    for owned in (optimizer.archive.X, optimizer.archive.Y, optimizer.archive.observed):
        owned.zero_()
    for owned in (optimizer.result().all_X, optimizer.result().all_Y):
        owned.zero_()
    assert optimizer.archive.complete.all()
    assert (optimizer.archive.X > 0).all()
    assert (optimizer.archive.Y > 0).all()


def test_runs_on_every_device(device):
    optimizer = make(strategy=cheap("tc-saea"), device=str(device))
    X = points(run(optimizer))
    assert ((X >= 0) & (X <= 1)).all()
    assert optimizer.n_used == (28, 14)


def test_events_tell_the_whole_story():
    optimizer = make()
    optimizer.attach(ATTACHED_X[:1], fast=[1.0])
    optimizer.ask()
    optimizer.tell(0, 1.0)
    optimizer.fail(1, "no")
    assert [type(e).__name__ for e in optimizer.events] == ["Attached", "Asked", "Told", "Failed"]
    times = [event.time for event in optimizer.events]
    assert times == sorted(times)


def test_the_reference_point_is_the_worst_of_the_design_plus_a_tenth():
    optimizer = make()
    design = optimizer.ask()
    assert optimizer.ref_point is None
    tell_all(optimizer, design[:-1])
    assert optimizer.ref_point is None
    with refuses(InvalidInputError, "ref_point must be given: this run's initial design"):
        optimizer.result().hypervolume()
    tell_all(optimizer, design[-1:])
    X = points(design[::2])
    Y = np.array([[fast(x), slow(x)] for x in X])
    expected = Y.max(axis=0) + 0.1 * (Y.max(axis=0) - Y.min(axis=0))
    assert optimizer.ref_point is not None
    assert optimizer.ref_point.tolist() == pytest.approx(expected, rel=1e-14)
    run(optimizer)
    assert optimizer.ref_point.tolist() == pytest.approx(expected, rel=1e-14)


def test_the_problems_own_reference_point_comes_first():
    assert make({"ref_point": [3.0, 4.0]}).ref_point.tolist() == [3.0, 4.0]  # pyright: ignore


def test_failed_points_of_the_design_do_not_hold_the_reference_point_up():
    optimizer = make()
    design = optimizer.ask()
    tell_all(optimizer, design, fails=lambda e: e.id in (0, 3))
    Y = np.array([[fast(x), slow(x)] for x in points(design[4::2])])
    assert optimizer.ref_point is not None
    expected = Y.max(axis=0) + 0.1 * np.ptp(Y, axis=0)
    assert optimizer.ref_point.tolist() == pytest.approx(expected, rel=1e-14)


def test_incomplete_attached_points_do_not_hold_the_reference_point_up():
    optimizer = make()
    optimizer.attach(ATTACHED_X, fast=np.ones(20))
    run(optimizer)
    alone = make()
    run(alone)
    assert optimizer.ref_point is not None
    assert optimizer.ref_point.tolist() == alone.ref_point.tolist()  # pyright: ignore


# ------------------------------------------------------------------ construction

BAD_ARGUMENTS = [
    ({"problem": 3}, "problem must be a Problem, got 3 (int)"),
    ({"n_slow": 0}, "n_slow must be an integer >= 1, got 0 (int)"),
    ({"n_slow": 1.5}, "n_slow must be an integer >= 1, got 1.5 (float)"),
    ({"n_slow": "10"}, "n_slow must be an integer >= 1, got '10' (str)"),
    ({"n_slow": None}, "n_slow must be an integer >= 1, got None (NoneType)"),
    ({"n_slow": True}, "n_slow must be an integer >= 1, got True (bool)"),
    ({"n_init": 0}, "n_init must be an integer >= 1, got 0 (int)"),
    ({"n_init": 2.5}, "n_init must be an integer >= 1, got 2.5 (float)"),
    ({"n_init": 15}, "n_init must be at most n_slow = 14, got 15"),
    (
        {"strategy": "tcsaea"},
        "strategy must be one of brood-interleaving, fast-first, ",
    ),
    ({"strategy": TCSAEA}, "strategy must be a name or a configured strategy such as TCEHVI()"),
    ({"strategy": 5}, "strategy must be a name or a configured strategy such as TCEHVI(), got 5"),
    ({"seed": 1.5}, "seed must be an integer, got 1.5 (float)"),
    ({"seed": None}, "seed must be an integer, got None (NoneType)"),
    ({"seed": "a"}, "seed must be an integer, got 'a' (str)"),
    ({"device": "cuda:99"}, "device must name a device that is present here, got 'cuda:99': "),
    ({"dtype": torch.float16}, "dtype must be torch.float32 or torch.float64, got torch.float16"),
    ({"dtype": "float64"}, "dtype must be torch.float32 or torch.float64, got 'float64'"),
    ({"initial_data": {"X": [[0.0, NAN]]}}, "X must be finite, got nan in row 0, column 1"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARGUMENTS, ids=str)
@pytest.mark.usefixtures("unchecked")
def test_bad_arguments(changes, message):
    options = {"problem": problem(), "n_slow": 14, "n_init": 8, **changes}
    with refuses(InvalidInputError, message):
        Optimizer(**options)


def test_a_mistyped_strategy_gets_a_suggestion():
    with pytest.raises(InvalidInputError, match="got 'tcsaea'; did you mean 'tc-saea'"):
        make(strategy="tcsaea")


@pytest.mark.parametrize("data", [5, {"X": [[0, 0]], "y": [1]}, {"fast": [1]}], ids=str)
@pytest.mark.usefixtures("unchecked")
def test_bad_initial_data(data):
    with refuses(InvalidInputError, "initial_data"):
        make(initial_data=data)


def test_strategies_by_name_object_and_default():
    assert make(strategy="random").result().strategy == "random"
    assert make(strategy=RandomSearch(name="mine")).result().strategy == "mine"
    assert Optimizer(problem(), n_slow=5).result().strategy == "tc-ehvi"


def test_construction_calls_no_objective():
    def explode(x):
        raise AssertionError

    optimizer = make({"fast": explode, "slow": explode})
    assert len(optimizer.ask()) == 16
    optimizer.tell(0, 1.0)


# ------------------------------------------------------------------ threads


def test_the_strategy_is_never_asked_twice_at_a_time():
    depth, deepest = [], []

    class Watched:
        name = "watched"

        def init(self, run):
            return {}

        def propose(self, state, run):
            depth.append(1)
            deepest.append(len(depth))
            time.sleep(0.05)
            depth.pop()
            mask = torch.ones(1, 1 if int(run.left[0, 1]) else 0, 2, dtype=torch.bool)
            return Proposal(
                X=torch.full((1, len(mask[0]), run.d), 0.5).double(), evaluation_mask=mask
            ), {}

    optimizer = make({"tau": 3}, n_slow=1, n_init=1, strategy=Watched())
    tell_all(optimizer, optimizer.ask())
    threads = [threading.Thread(target=lambda: optimizer.is_done) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(deepest) == 1


def test_four_threads_lose_nothing():
    optimizer = make({"tau": 2}, n_slow=100, n_init=40)
    handed_out, errors, lock = [], [], threading.Lock()
    queue = []
    start = threading.Barrier(4)

    def work():
        try:
            start.wait()
            while not optimizer.is_done:
                evaluations = optimizer.ask()
                with lock:
                    handed_out.extend(e.id for e in evaluations)
                    queue.extend(evaluations)
                    mine = [queue.pop() for _ in range(min(5, len(queue)))]
                tell_all(optimizer, mine)
                optimizer.result()
                _ = optimizer.archive, optimizer.pending
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert errors == []
    assert sorted(handed_out) == list(range(200))
    assert optimizer.archive.complete.sum() == 100
    for record in optimizer.result().history:
        x = optimizer.result().all_X[record.point_id].numpy()
        assert record.value == (fast, slow)[record.objective.column](x)
