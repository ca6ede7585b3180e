from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from benchmarks.run_batch import initial_view
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.models import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.success import Success
from tcsaea_torch.strategies.chances import Chances
from tests.strategies.runs import Toy, with_rows


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Known(Success):
    """A success model with probabilities that are known."""

    function: Callable[[torch.Tensor], torch.Tensor]

    def __init__(self, function):
        object.__setattr__(self, "function", function)

    def probability(self, X):
        return self.function(X)


SLOW = Chances(slow=Known(lambda X: X[..., 0]))
BOTH = Chances(fast=Known(lambda X: X[..., 1]), slow=Known(lambda X: X[..., 0]))


def view(n=6, d=2):
    """A run with values of which some are missing."""
    run = initial_view(Toy(d=d), [0], n_slow=20, n_init=5)
    Y = draw(n, 2, seed=3) * torch.tensor([10.0, 1.0])
    observed = torch.ones(n, 2, dtype=torch.bool)
    observed[2, 1] = observed[4, 0] = False
    return with_rows(run, draw(n, d, seed=4), Y, observed)


# ---------------------------------------------------------------- by hand


def test_nothing_is_known_and_nothing_changes():
    run, X, u = view(), draw(1, 7, 2), draw(1, 7)
    F, alive = draw(1, 7, 2, seed=5), torch.ones(1, 7, dtype=torch.bool)
    chances = Chances()
    assert not chances.are_known
    assert (chances.of(X) == 1).all()

    def predict(X):
        return X

    assert chances.worsen(predict, run) is predict
    assert chances.lengthen(F, X, alive) is F
    assert chances.order(X, u) is u


def test_the_chance_of_a_point_is_that_of_both_evaluations():
    X = draw(1, 9, 2)
    x = X.numpy()
    np.testing.assert_allclose(BOTH.of(X), np.maximum(x[..., 0] * x[..., 1], 1e-3), rtol=1e-15)
    np.testing.assert_allclose(BOTH.of(X, fast_only=True), np.maximum(x[..., 1], 1e-3), rtol=1e-15)
    assert (SLOW.of(X, fast_only=True) == 1).all()
    assert SLOW.of(torch.zeros(1, 1, 2).double()).item() == 1e-3  # never excluded for good


def test_predictions_are_worse_by_the_range_of_the_values():
    run, X = view(), draw(1, 9, 2)
    Y, seen = run.archive.Y[0].numpy(), run.archive.observed[0].numpy()
    spread = [np.ptp(Y[seen[:, j], j]) for j in range(2)]
    worse = SLOW.worsen(lambda X: 3.0 * X, run)(X).numpy()[0]
    for x, found in zip(X[0].numpy(), worse, strict=True):
        for j in range(2):
            assert found[j] == pytest.approx(3.0 * x[j] + (1.0 - max(x[0], 1e-3)) * spread[j])


def test_without_values_predictions_stay_as_they_are():
    run = view()
    nothing = torch.zeros_like(run.archive.observed)
    run = replace(run, archive=replace(run.archive, observed=nothing))
    X = draw(1, 9, 2)
    assert torch.equal(SLOW.worsen(lambda X: 3.0 * X, run)(X), 3.0 * X)


def test_values_move_away_from_their_ideal_point():
    F, X = draw(2, 5, 2, seed=1), draw(2, 5, 2, seed=2)
    alive = torch.ones(2, 5, dtype=torch.bool)
    alive[0, 3] = False
    F[0, 3] = -7.0  # does not count
    found = SLOW.lengthen(F, X, alive).numpy()
    for i in range(2):
        ideal = F[i].numpy()[alive[i].numpy()].min(axis=0)
        for k in range(5):
            expected = ideal + (F[i, k].numpy() - ideal) / max(float(X[i, k, 0]), 1e-3)
            np.testing.assert_allclose(found[i, k], expected, rtol=1e-12)


def test_points_are_drawn_in_proportion_to_their_chances():
    n = 100_000
    X = torch.tensor([0.1, 0.3, 0.6]).double().reshape(1, 3, 1).repeat(n, 1, 2)
    u = draw(n, 3)
    keys = SLOW.order(X, u)
    np.testing.assert_allclose(keys, -np.log1p(-u.numpy()) / X[..., 0].numpy(), rtol=1e-12)
    shares = torch.bincount(keys.argmin(dim=1), minlength=3) / n
    np.testing.assert_allclose(shares, [0.1, 0.3, 0.6], atol=0.01)
    # Where the fast evaluation alone is made, the slow one's chances do not matter.
    alike = torch.bincount(SLOW.order(X, u, fast_only=True).argmin(dim=1), minlength=3) / n
    np.testing.assert_allclose(alike, [1 / 3] * 3, atol=0.01)


# ---------------------------------------------------------------- whole runs


def run(seed, *, fails, **options):
    """Return a finished run in which the slow objective fails where `fails` says so."""
    fit = FitConfig(
        input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=10)
    )
    search = RVEAConfig(n_generations=5)
    strategy = tc.TCSAEA(kriging=fit, search=search, n_ref_vectors=30, **options)
    problem = Toy(d=3, tau=3)
    optimizer = tc.Optimizer(problem, n_slow=42, n_init=12, strategy=strategy, seed=seed)
    while evaluations := optimizer.ask():
        for e in evaluations:
            if e.objective == "slow" and fails(e.x):
                optimizer.fail(e.id, "diverged")
            else:
                f = optimizer.problem.function_of(e.objective)
                optimizer.tell(e.id, float(f(torch.from_numpy(e.x).unsqueeze(0))))
    return optimizer.result()


def n_failed(result):
    """How many slow evaluations failed after the design."""
    slow = [record for record in result.history if record.objective == "slow"]
    assert len(slow) == 42
    return sum(record.status == "failed" for record in slow[12:])


@pytest.mark.parametrize("asynchronous", [False, True])
def test_fewer_evaluations_fail_where_failures_are_learned_from(asynchronous):
    def sums(seeds, **options):
        return sum(
            n_failed(run(seed, fails=lambda x: x[0] > 0.6, asynchronous=asynchronous, **options))
            for seed in seeds
        )

    seeds = range(2 if asynchronous else 5)
    assert sums(seeds, failure_model=True) < 0.5 * sums(seeds)


def test_without_failures_runs_are_the_same():
    results = [run(0, fails=lambda x: False, failure_model=on) for on in (False, True)]
    assert torch.equal(results[0].all_X, results[1].all_X)
    assert torch.equal(results[0].all_Y.nan_to_num(-1), results[1].all_Y.nan_to_num(-1))
