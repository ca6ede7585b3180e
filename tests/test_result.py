"""Results: the front among what was measured, in the user's signs, and its tables."""

import csv
import math
import sys

import numpy as np
import pytest
import torch

from tcsaea_torch import Optimizer, Problem, Result
from tcsaea_torch.errors import InvalidInputError, MissingDependencyError

NAN = math.nan

# Minimised, the first three rows are the front; the last two are no points with both values.
X = [[0.1, 1.0], [0.2, 2.0], [0.3, 3.0], [0.4, 4.0], [0.5, 5.0], [0.6, 6.0]]
Y = [[1.0, 3.0], [2.0, 1.0], [0.5, 3.5], [2.0, 3.0], [9.0, NAN], [NAN, NAN]]
DIRECTIONS = [(a, b) for a in ("minimize", "maximize") for b in ("minimize", "maximize")]


def problem(**changes):
    options = {"fast": abs, "slow": abs, "bounds": [[0.0, 0.0], [1.0, 9.0]], "tau": 2}
    return Problem(**{**options, **changes})


def make(directions=("minimize", "minimize"), **changes):
    """Make the result above, its values turned where they are maximised."""
    p = problem(directions=directions)
    options = {
        "problem": p,
        "strategy": "random",
        "seed": 3,
        "all_ids": torch.tensor([0, 1, 2, 4, 5, 7]),
        "all_X": torch.tensor(X, dtype=torch.float64),
        "all_Y": torch.tensor(Y, dtype=torch.float64) * p.signs,
        "n_fast": 6,
        "n_slow": 5,
        "status": "finished",
        "message": "",
        "history": (),
        "ref_point": torch.tensor([4.0, 4.0]).double() * p.signs,
    }
    return Result(**{**options, **changes})


def played(n_slow=6, reason='mesh, "broken"\nat line 2: ü → ∞', **changes):
    """Run a random search of which some values failed and some are still outstanding."""
    optimizer = Optimizer(problem(**changes), n_slow=n_slow, n_init=4, strategy="random", seed=2)
    for e in optimizer.ask():
        if e.id == 3:
            optimizer.fail(e.id, reason)
        elif e.id != 6:
            optimizer.tell(e.id, float(np.sin(e.x).sum()) / 3 + e.id)
    return optimizer


# ------------------------------------------------------------------ the front


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_the_front_is_the_best_of_the_complete_points_in_users_signs(directions):
    result = make(directions)
    signs = result.problem.signs.tolist()
    assert result.X.tolist() == X[:4]
    assert result.Y.tolist() == [[a * signs[0], b * signs[1]] for a, b in Y[:4]]
    assert result.pareto_X.tolist() == X[:3]
    assert result.pareto_Y.tolist() == result.Y[:3].tolist()


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_hypervolume_is_the_same_whatever_the_signs(directions):
    result = make(directions)
    # Below (4, 4): 0.5 high between 0.5 and 1, 1 between 1 and 2, 3 between 2 and 4.
    assert result.hypervolume() == pytest.approx(0.5 * 0.5 + 1.0 * 1.0 + 2.0 * 3.0, rel=1e-14)
    signs = result.problem.signs.tolist()
    point = [2.0 * signs[0], 4.0 * signs[1]]
    for given in (point, np.array(point), torch.tensor(point)):
        assert result.hypervolume(given) == pytest.approx(0.25 + 1.0, rel=1e-14)


def test_points_with_one_value_do_not_count():
    result = make(all_Y=torch.tensor([[0.0, NAN]] * 3 + [[NAN, 0.0]] * 3).double())
    assert result.X.shape == result.pareto_X.shape == (0, 2)
    assert result.hypervolume() == 0.0


def test_equal_points_are_on_the_front_once():
    result = make(all_Y=torch.tensor([[1.0, 1.0]] * 6).double())
    assert result.pareto_X.tolist() == [X[0]]


def test_a_reference_point_is_needed():
    message = "^ref_point must be given: this run's initial design is not complete"
    with pytest.raises(InvalidInputError, match=message):
        make(ref_point=None).hypervolume()
    assert make(ref_point=None).hypervolume([4, 4]) == make().hypervolume()


@pytest.mark.parametrize("point", [[1.0], [1.0, 2.0, 3.0], 5.0, "far"])
def test_bad_reference_points(point):
    with pytest.raises(InvalidInputError, match=r"^ref_point must "):
        make().hypervolume(point)


# ------------------------------------------------------------------ states of a run


def test_a_result_shows_how_far_a_run_is():
    optimizer = played()
    result = optimizer.result()
    assert result.status == "running"
    assert result.message == "running: 4 of 6 slow and 4 of 12 fast evaluations, 1 failed"
    assert (result.n_fast, result.n_slow) == (4, 4)
    assert (result.strategy, result.seed) == ("random", 2)
    assert result.all_ids.tolist() == [0, 1, 2, 3]
    assert result.all_Y.isnan().tolist() == [
        [False, False], [True, False], [False, False], [False, True],
    ]  # fmt: skip
    assert sum(r.status == "pending" for r in result.history) == 1
    assert result.history[3].status == "failed"


def test_an_interrupted_run_says_so():
    result = played().result(interrupted="the user")
    assert result.status == "interrupted"
    assert result.message.startswith("interrupted by the user: 4 of 6 slow and 4 of 12 fast ")


def test_results_do_not_change_when_the_run_goes_on():
    optimizer = played()
    result = optimizer.result()
    before = result.all_Y.clone(), result.history[6].status
    optimizer.tell(6, 1.0)
    assert torch.equal(result.all_Y.nan_to_num(-1), before[0].nan_to_num(-1))
    assert result.history[6].status == before[1] == "pending"


# ------------------------------------------------------------------ tables


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_to_dataframe(directions):
    pd = pytest.importorskip("pandas")
    result = make(directions)
    table = result.to_dataframe()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns) == ["point_id", "x0", "x1", "fast", "slow", "on_front"]
    assert table["point_id"].tolist() == [0, 1, 2, 4, 5, 7]
    assert table[["x0", "x1"]].to_numpy().tolist() == X
    np.testing.assert_array_equal(table[["fast", "slow"]].to_numpy(), result.all_Y.numpy())
    assert table["on_front"].tolist() == [True, True, True, False, False, False]


def test_tables_have_the_users_names():
    pytest.importorskip("pandas")
    result = make(problem=problem(names=["wall", "core"]))
    assert list(result.to_dataframe().columns)[1:3] == ["wall", "core"]


@pytest.mark.parametrize("table", ["frame", "csv"])
def test_no_parameter_can_have_the_name_of_another_column(table, tmp_path):
    result = played().result()
    if table == "frame":
        columns = list(result.to_dataframe().columns)
    else:
        result.write_csv(tmp_path / "a.csv")
        columns = list(read_csv(tmp_path / "a.csv")[0])
    for name in set(columns) - {"x0", "x1"}:
        with pytest.raises(InvalidInputError, match=rf"^names must not use '{name}', a column"):
            problem(names=["wall", name])


def test_a_dataframe_needs_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match=r"^to_dataframe needs pandas: pip install "):
        make().to_dataframe()


def test_missing_dependencies_are_import_errors():
    assert issubclass(MissingDependencyError, ImportError)


def read_csv(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("as_text", [True, False])
def test_csv_keeps_every_evaluation_with_all_digits(tmp_path, as_text):
    result = played(names=["wall", "core"], directions=("minimize", "maximize")).result()
    path = tmp_path / "evaluations.csv"
    result.write_csv(str(path) if as_text else path)
    lines = read_csv(path)
    assert list(lines[0]) == [
        "id", "point_id", "objective", "status", "value", "wall", "core", "reason",
    ]  # fmt: skip
    assert len(lines) == len(result.history) == 8
    for line, record in zip(lines, result.history, strict=True):
        assert int(line["id"]) == record.id
        assert int(line["point_id"]) == record.point_id
        assert line["objective"] == record.objective.value
        assert line["status"] == record.status.value
        assert line["reason"] == record.reason
        assert float(line["value"]) == record.value or math.isnan(record.value)
        x = result.all_X[result.all_ids.tolist().index(record.point_id)]
        assert [float(line["wall"]), float(line["core"])] == x.tolist()
    assert [line["value"] for line in lines].count("nan") == 2
    assert lines[3]["reason"].endswith("at line 2: ü → ∞")


def test_csv_of_a_run_with_retries_and_attached_data(tmp_path):
    optimizer = Optimizer(problem(), n_slow=6, n_init=4, strategy="random")
    optimizer.attach([[0.5, 0.5]], fast=[1.0])
    optimizer.ask()
    optimizer.fail(0, "first try", retry=True)
    optimizer.result().write_csv(tmp_path / "a.csv")
    lines = read_csv(tmp_path / "a.csv")
    assert len(lines) == 9  # attached data was not asked for
    assert (lines[8]["point_id"], lines[8]["status"]) == (lines[0]["point_id"], "pending")
    assert lines[8]["x0"] == lines[0]["x0"]


def test_csv_of_nothing(tmp_path):
    Optimizer(problem(), n_slow=6, strategy="random").result().write_csv(tmp_path / "a.csv")
    header = "id,point_id,objective,status,value,x0,x1,reason"
    assert (tmp_path / "a.csv").read_text().splitlines() == [header]


def test_plot_draws_on_the_given_axes():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.add_subplot()
    assert make().plot(axes) is axes
    assert axes.lines


def test_plot_has_kinds_with_options_of_their_own():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    axes = figure.add_subplot()
    result = played(n_slow=4, ref_point=[9.0, 9.0]).result()
    assert result.plot(axes, kind="convergence", x="time", label="mine") is axes
    assert axes.get_xlabel().startswith("time since the start")
    with pytest.raises(
        InvalidInputError, match=r"kind 'convergence' must be one of .*did you mean"
    ):
        result.plot(axes, kind="convergence", labels="mine")
    with pytest.raises(InvalidInputError, match=r"^kind must be one of co-surrogate-error, conv"):
        result.plot(axes, kind="pie")


def test_a_result_keeps_the_strategys_state():
    optimizer = played()
    assert optimizer.result().strategy_state
    assert "strategy_state" not in repr(optimizer.result())
