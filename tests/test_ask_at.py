"""Evaluations at points of one's own."""

from typing import Any

import numpy as np
import pytest

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError, ProtocolError

PROBLEM = tc.Problem(
    fast=lambda x: float(x.sum()),
    slow=lambda x: float(-x.sum()),
    bounds=[[-1.0, 0.0], [1.0, 9.0]],
    tau=2,
    integers=[1],
)
X = [[0.1, 3], [-1.0, 9], [1.0, 0]]


def made(strategy: Any = "random", n_slow=8, **options):
    return tc.Optimizer(PROBLEM, n_slow=n_slow, n_init=4, strategy=strategy, **options)


def test_they_are_pending_until_they_are_told():
    optimizer = made()
    evaluations = optimizer.ask_at(X)
    assert [e.objective for e in evaluations] == ["slow", "fast"] * 3
    assert [e.point_id for e in evaluations] == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose([e.x for e in evaluations[::2]], X, atol=1e-15)
    assert [e.id for e in optimizer.pending] == [e.id for e in evaluations]
    assert optimizer.n_used == (3, 3)
    for e in evaluations[:-1]:
        optimizer.tell(e.id, PROBLEM.function_of(e.objective)(e.x))
    optimizer.fail(evaluations[-1].id, "diverged")
    archive = optimizer.archive
    assert archive.observed[0].tolist() == [[True, True], [True, True], [False, True]]
    assert archive.Y[0, :2].tolist() == pytest.approx(np.array([[3.1, -3.1], [8, -8]]))
    more = optimizer.ask()
    assert len({tuple(e.x) for e in more} & {tuple(e.x) for e in evaluations}) == 0


def test_an_asynchronous_strategy_keeps_away_from_them():
    def chosen(points):
        strategy = tc.TCEHVI(
            asynchronous=True, kernels=("joint",), link=None, n_ref_vectors=10, clearance=0.1
        )
        optimizer = made(strategy)
        optimizer.attach([[0, 1], [0.5, 5], [-0.5, 8], [0.2, 2]], fast=range(4), slow=[3, 1, 2, 0])
        if points:
            optimizer.ask_at(points)
        return optimizer.ask(n_slow=1)[0].x

    x = chosen([])
    other = chosen([x])
    assert max(abs(x[0] - other[0]) / 2, abs(x[1] - other[1]) / 9) >= 0.1


def test_they_cost_budget():
    optimizer = made(n_slow=4)
    with pytest.raises(ProtocolError, match=r"5 points are more than is left .* \(8, 4\)"):
        optimizer.ask_at([*X, *X[:2]])
    assert optimizer.ask_at(np.zeros((0, 2))) == []
    assert optimizer.n_used == (0, 0)
    optimizer.ask_at([*X, X[0]])  # a point may be evaluated again
    assert optimizer.n_used == (4, 4)
    assert optimizer.ask() == []


@pytest.mark.parametrize(
    ("x", "place"),
    [([1.5, 3], "1.5 in row 1, column 0"), ([0, 9.5], "9.5 in row 1, column 1"),
     ([0, 2.5], "2.5 in row 1, column 1"), ([-1.1, 20], "-1.1 in row 1, column 0")],
)  # fmt: skip
def test_points_must_be_of_the_box(x, place):
    optimizer = made()
    with pytest.raises(InvalidInputError, match=f"X must lie within the bounds, .* got {place}"):
        optimizer.ask_at([X[0], x])
    assert not optimizer.events


def test_a_durable_run_goes_on_with_them(tmp_path):
    path = tmp_path / "study.db"
    with made(journal=path) as optimizer:
        asked = optimizer.ask_at(X)
        optimizer.tell(asked[0].id, 1.0)
        wanted = [(e.id, tuple(e.x)) for e in optimizer.pending]
        state = optimizer._state.strategy_state
    with tc.Optimizer.resume(path, PROBLEM) as optimizer:
        assert [(e.id, tuple(e.x)) for e in optimizer.pending] == wanted
        assert optimizer._state.strategy_state == state
        assert len(optimizer.ask()) == 2 * 4  # its own design
