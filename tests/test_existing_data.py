"""Data that existed before a run: which rows are one point, and in which forms they come."""

import itertools
import re

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import existing_data
from tcsaea_torch.errors import InvalidInputError, JournalError
from tcsaea_torch.events import Attached
from tcsaea_torch.study import Study
from tests.test_optimizer import FAST, NAN, SLOW, cheap, make, problem, tell_all
from tests.test_resume import Stopped, stop_at

GENERATOR = np.random.default_rng(1)
OLD = GENERATOR.random((20, 2))


def values(optimizer):
    """Return rows (x, fast, slow) with None where not observed."""
    archive = optimizer.archive
    Y = torch.where(archive.observed, archive.Y, torch.nan)[0].tolist()
    return [tuple(None if y != y else y for y in row) for row in Y]


def all_x(optimizer):
    return optimizer._state.X_user.numpy()


# ------------------------------------------------------------------ one point


def by_hand(known, X, tolerance):
    """Merge the points of the unit cube one by one."""
    known, merged = list(known), []
    for x in X:
        distances = [max(abs(x - other)) for other in known]
        if distances and min(distances) <= tolerance:
            merged.append(known[int(np.argmin(distances))])
        else:
            known.append(x)
            merged.append(x)
    return np.array(merged)


@pytest.mark.parametrize("chunk", [1, 3, 1024])
@pytest.mark.parametrize("tolerance", [1e-12, 0.01, 0.1])
@pytest.mark.parametrize("n_known", [0, 1, 12])
@pytest.mark.parametrize("seed", range(3))
def test_points_are_merged_as_by_hand(n_known, tolerance, chunk, seed, monkeypatch):
    monkeypatch.setattr(existing_data, "_CHUNK", chunk)
    random = np.random.default_rng(seed)
    known, X = random.random((n_known, 2)), random.random((40, 2))
    X[::7] = X[0]  # equal ones, and near ones
    X[3::5] = X[2] + random.uniform(-0.02, 0.02, (8, 2))
    event = existing_data.attached(
        problem(), torch.tensor(known), X.clip(0, 1), tolerance=tolerance
    )
    assert np.array_equal(event.X, by_hand(known, X.clip(0, 1), tolerance))


def test_thousands_of_rows_are_merged():
    known = GENERATOR.random((4000, 6))
    order = GENERATOR.permutation(4000)
    box = problem(bounds=[[0.0] * 6, [1.0] * 6])
    rows = known[order].round(6)
    event = existing_data.attached(box, torch.tensor(known), rows, tolerance=1e-5)
    assert np.array_equal(event.X, known[order])


@pytest.mark.parametrize("bounds", [[[0.0, 0.0], [1.0, 1.0]], [[-30.0, 200.0], [50.0, 700.0]]])
def test_values_that_went_through_a_file_meet_the_points_that_were_asked_for(bounds):
    """A file of six significant digits; in this phase only fast values were asked for."""
    optimizer = make({"bounds": bounds, "tau": 5}, strategy=cheap("tc-saea"))
    tell_all(optimizer, [e for e in optimizer.ask() if e.objective is FAST])
    asked = optimizer.ask()
    X = np.array([[float(f"{x:.6g}") for x in e.x] for e in asked])
    before, n = all_x(optimizer), len(optimizer.archive)
    assert not (X == np.stack([e.x for e in asked])).all(axis=1).any()
    optimizer.attach(X, slow=np.arange(len(X)) + 1.0, tolerance=1e-5)
    assert np.array_equal(all_x(optimizer), before)
    assert [y for _, y in values(optimizer)[n - len(X) :]] == list(np.arange(len(X)) + 1.0)
    tell_all(optimizer, asked)
    assert optimizer.archive.complete.sum() == len(X)


def test_a_value_that_is_on_its_way_is_measured_again():
    optimizer = make()
    e = optimizer.ask()[0]
    assert e.objective is SLOW
    n = len(optimizer.archive)
    optimizer.attach([e.x.round(6)], slow=[5.0], tolerance=1e-5)
    optimizer.tell(e.id, 6.0)
    assert [all_x(optimizer)[k].tolist() for k in (e.point_id, n)] == [e.x.tolist()] * 2
    assert [values(optimizer)[k] for k in (e.point_id, n)] == [(None, 6.0), (None, 5.0)]


def test_a_failed_value_is_replaced():
    optimizer = make()
    e = optimizer.ask()[0]
    optimizer.fail(e.id)
    optimizer.attach([e.x.round(6)], slow=[5.0], tolerance=1e-5)
    assert values(optimizer)[e.point_id] == (None, 5.0)
    assert len(optimizer.archive) == 8


@pytest.mark.parametrize(
    ("tolerance", "n"), [({}, 1), ({"tolerance": 1e-12}, 2), ({"tolerance": 0}, 2)], ids=str
)
def test_the_tolerance_is_small_unless_another_is_given(tolerance, n):
    optimizer = make()
    optimizer.attach([[0.25, 0.5]], fast=[1.0])
    optimizer.attach([[0.25, 0.5 + 1e-10]], slow=[2.0], **tolerance)
    assert values(optimizer) == [[(1.0, 2.0)], [(1.0, None), (None, 2.0)]][n - 1]
    assert len(make().archive) == 0


def test_exactly_equal_points_meet_without_tolerance():
    optimizer = make()
    optimizer.attach([[0.25, 0.5], [0.25, 0.5]], fast=[1.0, NAN], slow=[NAN, 2.0], tolerance=0)
    assert values(optimizer) == [(1.0, 2.0)]


def test_the_nearest_point_wins_and_the_first_of_equally_near_ones():
    optimizer = make()
    optimizer.attach([[0.5, 0.5], [0.5, 0.5625], [0.5, 0.625]])
    optimizer.attach([[0.5, 0.5625 + 0.01], [0.5, 0.59375]], fast=[1.0, 2.0], tolerance=0.0625)
    assert values(optimizer) == [(None, None), (1.0, None), (None, None), (2.0, None)]
    assert all_x(optimizer)[3].tolist() == [0.5, 0.5625]  # which has a value already


def test_another_value_is_a_repeated_measurement_at_the_same_point():
    optimizer = make()
    optimizer.attach([[0.1, 0.2], [0.1, 0.2000001]], fast=[1.0, 1.5], tolerance=1e-5)
    optimizer.attach([[0.1000001, 0.2]] * 2, fast=[1.0, NAN], slow=[3.0, 3.0], tolerance=1e-5)
    assert values(optimizer) == [(1.0, 3.0), (1.5, None)]
    assert all_x(optimizer).tolist() == [[0.1, 0.2]] * 2


def test_chains_do_not_grow():
    optimizer = make()
    optimizer.attach([[0.5 + k * 0.008, 0.5] for k in range(4)], tolerance=0.01)
    assert all_x(optimizer).tolist() == [[0.5, 0.5], [0.516, 0.5]]


@pytest.mark.parametrize("origin", [0.0, 1e6])
def test_the_distance_is_the_largest_difference_in_parts_of_the_box(origin):
    optimizer = make({"bounds": [[origin, origin], [origin + 1, origin + 1000]]})
    x = np.array([origin + 0.5, origin + 500])
    steps = [[0.01, 0], [0, 10], [0.01, 10], [0.02, 0], [0, 20]]
    optimizer.attach([x, *(x + np.array(steps))], tolerance=0.015)
    assert len(optimizer.archive) == 3


def test_integers_are_compared_in_steps_and_fixed_parameters_in_parts_of_themselves():
    bounds = [[0, 2 / 3, 0, 0], [10**6, 2 / 3, 0, 1]]
    optimizer = make({"bounds": bounds, "integers": [0]})
    optimizer.attach([[500, 2 / 3, 0, 0.5], [500, 0.666667, 0, 0.5]], tolerance=1e-5)
    assert len(optimizer.archive) == 1
    with pytest.warns(UserWarning, match="1 of 2 attached points"):
        optimizer.attach([[501, 2 / 3, 0, 0.5], [500, 0.67, 0, 0.5]], tolerance=1e-5)
    assert len(optimizer.archive) == 3


def test_a_rounded_point_of_the_boundary_is_not_outside():
    optimizer = make({"bounds": [[0, 0], [2 / 3, 1]]})
    optimizer.attach([[2 / 3, 0.5]], fast=[1.0])
    optimizer.attach([[0.666667, 0.5]], slow=[1.0], tolerance=1e-5)
    assert values(optimizer) == [(1.0, 1.0)]
    with pytest.warns(UserWarning, match="1 of 1 attached points lie outside the bounds"):
        optimizer.attach([[0.666667, 0.25]], slow=[1.0], tolerance=1e-5)


def test_points_far_outside_do_not_disturb_the_others():
    huge = [1.7e308, -1.7e308]
    optimizer = make({"bounds": [[-10.0, -10.0], [10.0, 10.0]]})
    for _ in range(2):
        with pytest.warns(UserWarning, match="2 of 4 attached points"):
            optimizer.attach([huge, [1, 2], huge, [1 + 1e-9, 2]], fast=[1.0, 2.0, 1.0, 2.0])
    assert values(optimizer) == [(1.0, None), (2.0, None)]


def test_no_rows():
    optimizer = make()
    optimizer.attach(np.empty((0, 2)), fast=[], tolerance=1e-5)
    optimizer.attach(OLD[:1])
    optimizer.attach(np.empty((0, 2)), tolerance=1e-5)
    assert len(optimizer.archive) == 1


def test_a_resumed_run_has_merged_the_same_points(tmp_path):
    path = tmp_path / "study.db"
    with make(journal=path, initial_data={"X": OLD, "fast": OLD[:, 0]}) as optimizer:
        asked = optimizer.ask()
        tell_all(optimizer, asked)
        optimizer.attach(OLD[::-1].round(6).copy(), slow=OLD[::-1, 1].copy(), tolerance=1e-5)
        optimizer.attach([e.x.round(6) for e in asked], fast=np.ones(len(asked)), tolerance=1e-5)
        before = optimizer.result()
        assert len(before.Y) == 28
    with tc.Optimizer.resume(path, problem()) as resumed:
        after = resumed.result()
    for result in (after, Study.read(path).result()):
        assert torch.equal(result.all_X, before.all_X)
        assert result.all_Y.numpy().tobytes() == before.all_Y.numpy().tobytes()


# ------------------------------------------------------------------ several tables

TABLES = [
    {"X": OLD, "fast": OLD[:, 0]},
    {"X": OLD[[7, 3, 11]].round(6), "slow": [1.0, 2.0, 3.0], "tolerance": 1e-5},
    {"X": [[0.5, 0.5]], "slow": [4.0]},
]


@pytest.mark.parametrize("kind", [list, tuple])
def test_several_tables_are_attached_in_order(kind):
    one_by_one, at_once = make(), make(initial_data=kind(TABLES))
    for table in TABLES:
        one_by_one.attach(**table)
    assert len(at_once.events) == 3
    assert values(at_once) == values(one_by_one)
    assert np.array_equal(all_x(at_once), all_x(one_by_one))
    assert at_once.result().Y.tolist() == [[OLD[3, 0], 2.0], [OLD[7, 0], 1.0], [OLD[11, 0], 3.0]]


def test_no_tables():
    assert len(make(initial_data=[]).events) == 0


def test_a_bad_table_leaves_no_file(tmp_path):
    path = tmp_path / "study.db"
    message = re.escape("initial_data[1]: fast must have shape (1,), got shape (2,)")
    with pytest.raises(InvalidInputError, match=message):
        make(initial_data=[TABLES[0], {"X": OLD[:1], "fast": [1.0, 2.0]}], journal=path)
    assert not path.exists()


def solve(path, tables, **options):
    return tc.minimize(
        problem(), n_slow=14, n_init=8, strategy="random", progress=False,
        journal=path, initial_data=tables, **options,
    )  # fmt: skip


def test_minimize_goes_on_with_the_same_tables_only(tmp_path):
    path = tmp_path / "study.db"
    with pytest.raises(Stopped):
        solve(path, TABLES[:2], callbacks=[stop_at(3)])
    other = {**TABLES[1], "slow": [1.0, 2.0, NAN]}
    for tables in (TABLES, [TABLES[0], other], TABLES[1::-1], [TABLES[0], TABLES[2]], [other]):
        with pytest.raises(JournalError, match="has other initial_data"):
            solve(path, tables)
    assert [isinstance(event, Attached) for event in Study.read(path).events[:3]] == [1, 1, 0]
    result = solve(path, TABLES[:2])
    assert result.status == "finished"
    assert len(result.Y) == 3 + 14


# ------------------------------------------------------------------ forms

KINDS = {
    "nested": np.ndarray.tolist,
    "tuples": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist()),
    "rows": list,
    "objects": lambda a: a.astype(object),
    "fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1][::-1],
    "bfloat16": lambda a: torch.tensor(a).bfloat16(),
    "gradient": lambda a: torch.tensor(a, requires_grad=True),
    "tensors": lambda a: [torch.tensor(row, requires_grad=True) for row in a],
    "masked": np.ma.masked_array,
    **{t: lambda a, t=t: a.astype(t) for t in ("f2", "f4", "f8", ">f8", "longdouble")},
}


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_every_kind(kind, device):
    X = np.array([[0.25, 0.5], [0.75, 1.0], [0.0, 0.125]])
    optimizer, make_kind = make(device=device), KINDS[kind]
    optimizer.attach(make_kind(X), fast=make_kind(X[:, 0]), slow=make_kind(X[:, 1]))
    assert all_x(optimizer).tolist() == X.tolist()
    assert values(optimizer) == [tuple(x) for x in X.tolist()]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "u8", "int64"])
def test_integers_of_every_kind(dtype):
    X = np.array([[1, 0], [0, 1]], dtype=dtype)
    optimizer = make()
    optimizer.attach(X, fast=X[:, 0], slow=torch.tensor(X.astype("i8"))[:, 1])
    assert values(optimizer) == [(1.0, 0.0), (0.0, 1.0)]


def test_masked_entries_are_not_measured():
    column = np.ma.masked_array([1.0, -99.0], mask=[False, True])
    optimizer = make()
    optimizer.attach(OLD[:2], fast=column, slow=np.ma.masked_array([3, -99], mask=[True, False]))
    assert values(optimizer) == [(1.0, None), (None, -99.0)]


def test_tables_of_every_kind():
    pd = pytest.importorskip("pandas")
    X = OLD[:4]
    columns = [
        pd.Series([1.0, NAN, 3.0, NAN], index=list("abcd")),
        pd.Series([1, None, 3, pd.NA], dtype="Int64"),
        pd.Series([1, None, 3, NAN], dtype=object),
        pd.DataFrame({"mass": [1.0, None, 3.0, NAN]}),
        pd.array([1, None, 3, pd.NA], dtype="Float32"),
        [1, pd.NA, 3.0, None],
        np.array([1, pd.NA, 3, NAN], dtype=object),
        pd.DataFrame({"mass": [1, pd.NA, 3, None]}, dtype=object),
    ]
    frames = [
        pd.DataFrame(X, index=[7, 7, 1, 0]),
        pd.DataFrame(X, columns=["length", "width"]).convert_dtypes(),
        pd.DataFrame(X).astype(object),
        pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])),
    ]
    for column, frame in itertools.product(columns, frames):
        optimizer = make()
        optimizer.attach(frame, fast=column)
        assert np.array_equal(all_x(optimizer), X)
        assert values(optimizer) == [(1.0, None), (None, None), (3.0, None), (None, None)]


@pytest.mark.parametrize(
    ("columns", "is_moved"),
    [
        (["width", "length"], True),
        (["length", "width"], False),
        (["width", "height"], False),  # not the problem's names: the order given counts
        (["Width", "length"], False),
        ([1, 0], False),
    ],
    ids=str,
)
def test_the_columns_of_a_table_go_by_name_if_they_are_the_problems(columns, is_moved):
    pd = pytest.importorskip("pandas")
    optimizer = make({"names": ["length", "width"]})
    optimizer.attach(pd.DataFrame(OLD, columns=columns), fast=OLD[:, 0])
    assert np.array_equal(all_x(optimizer), OLD[:, ::-1] if is_moved else OLD)


def test_a_table_with_other_columns_too_is_refused():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(np.ones((2, 3)), columns=["x0", "x1", "mass"])
    with pytest.raises(InvalidInputError, match=re.escape("X must have shape (n, 2)")):
        make().attach(table)


@pytest.mark.parametrize("missing", ["nan", "None", "NA", "Float64"])
def test_a_gap_in_x_is_named_by_row_and_column(missing):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(OLD[:3])
    if missing == "Float64":
        X = X.astype("Float64")
    else:
        X = X.astype(object)
    X.iloc[2, 1] = {"nan": NAN, "None": None}.get(missing, pd.NA)
    optimizer = make()
    for table in (X, X.to_numpy(), X.to_numpy().tolist()):
        with pytest.raises(InvalidInputError, match=r"X must .*(at \[2, 1\]|in row 2, column 1)$"):
            optimizer.attach(table, fast=[1.0, 2.0, 3.0])
    assert len(optimizer.events) == 0
