"""What TC-EHVI makes of a reference point that the user gives."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch
from tcsaea_torch import TCEHVI, Optimizer, RandomSearch, problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.strategies.base import FAST
from tests.strategies.runs import Toy

QUICK: dict[str, Any] = {
    "search": RVEAConfig(n_generations=3),
    "n_ref_vectors": 20,
    "kernels": ("additive",),
}
BUDGET: dict[str, Any] = {"n_slow": 20, "n_init": 10}


@dataclass(frozen=True, kw_only=True)
class Spy(RandomSearch):
    """Notes which reference points it is told."""

    told: list = field(default_factory=list)

    def propose(self, state, run):
        self.told.append(run.ref_point)
        return super().propose(state, run)


def told_by_optimizer(**options):
    spy = Spy()
    Optimizer(Toy(**options), n_slow=9, n_init=4, strategy=spy).ask()
    assert spy.told
    return spy.told[0]


@pytest.mark.parametrize(
    ("directions", "expected"),
    [
        (("minimize", "minimize"), [[2.0, -3.0]]),
        (("maximize", "minimize"), [[-2.0, -3.0]]),
        (("minimize", "maximize"), [[2.0, 3.0]]),
        (("maximize", "maximize"), [[-2.0, 3.0]]),
    ],
)
def test_strategies_are_told_the_reference_point_minimised(directions, expected):
    found = told_by_optimizer(ref_point=[2.0, -3.0], directions=directions)
    assert found.tolist() == expected
    problem = Toy(ref_point=[2.0, -3.0], directions=directions)
    view = initial_view(problem, [0, 1], n_slow=9, n_init=4)
    assert view.ref_point is not None
    assert view.ref_point.tolist() == expected * 2


def test_strategies_are_told_where_there_is_none():
    assert told_by_optimizer() is None
    assert initial_view(Toy(), [0, 1], n_slow=9, n_init=4).ref_point is None


def test_each_run_of_a_batch_has_its_own_or_none_has():
    pair = [Toy(ref_point=[1.0, 2.0]), Toy(ref_point=[3.0, 4.0])]
    view = initial_view(pair, [0, 1], n_slow=9, n_init=4, dtype=torch.float32)
    assert view.ref_point is not None
    assert view.ref_point.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert view.ref_point.dtype == torch.float32
    with pytest.raises(InvalidInputError, match="must have a ref_point, or none"):
        initial_view([Toy(ref_point=[1.0, 2.0]), Toy()], [0, 1], n_slow=9, n_init=4)


def test_a_reference_point_that_is_not_used_changes_nothing():
    with_point = Toy(ref_point=[0.2, 0.6])
    strategy = TCEHVI(**QUICK, uses_ref_point=False)
    budget = {**BUDGET, "n_steps": 7}  # two periods
    found = run_batch(with_point, strategy, [3], **budget).archive
    expected = run_batch(Toy(), strategy, [3], **budget).archive
    assert torch.equal(found.X, expected.X)
    assert torch.equal(found.observed, expected.observed)
    default = run_batch(Toy(), replace(strategy, uses_ref_point=True), [3], **budget).archive
    assert torch.equal(default.X, expected.X)
    used = run_batch(with_point, replace(strategy, uses_ref_point=True), [3], **budget).archive
    assert not torch.equal(used.X, expected.X)


def test_a_reference_point_in_other_units_is_the_same():
    """Powers of 2 leave all digits as they are."""
    strategy = TCEHVI(**QUICK, link=None)
    expected = run_batch(Toy(ref_point=[0.2, 0.6]), strategy, [3], **BUDGET).archive
    scaled = Toy(ref_point=[0.2 * 2.0**10, -0.6 * 2.0**-10], directions=["minimize", "maximize"])
    fast, slow = scaled.fast, scaled.slow
    object.__setattr__(scaled, "fast", lambda X: 2.0**10 * fast(X))
    object.__setattr__(scaled, "slow", lambda X: -(2.0**-10) * slow(X))
    found = run_batch(scaled, strategy, [3], **BUDGET).archive
    # Where candidates climb, rounding of the last digit adds up.
    torch.testing.assert_close(found.X[:, :60], expected.X[:, :60], rtol=0, atol=1e-6)


def test_slow_evaluations_go_to_where_values_are_of_interest():
    """Only fast values below 0.3 are: of ZDT1's front, that is less than a third."""
    problem, shares = problems.get("zdt1", d=5), []
    object.__setattr__(problem, "ref_point", torch.tensor([0.3, 6.0]).double())
    strategy = TCEHVI(**QUICK)
    for uses_ref_point in (True, False):
        seeds = range(4)
        result = run_batch(problem, replace(strategy, uses_ref_point=uses_ref_point), seeds,
                           n_slow=26, n_init=14)  # fmt: skip
        # The first rows are the design.
        fast = torch.cat([result.points(i)[14:, FAST] for i in seeds])
        shares.append((fast <= 0.3).double().mean().item())
    assert len(fast) == 4 * 12
    assert shares[0] > 0.85
    assert shares[0] > shares[1] + 0.2
