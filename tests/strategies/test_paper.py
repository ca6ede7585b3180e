"""What must hold of the paper's algorithms whatever its tables say."""

import pytest
import torch

from benchmarks.run_batch import run_batch
from tcsaea_torch import metrics, problems, strategies
from tcsaea_torch.strategies.base import budget

SURROGATES = ("tc-saea", "nt-saea", "t-saea", "tr-saea", "k-rvea", "hk-rvea")


def mean_igd(problem, strategy, n_slow=200, n_init=100, n_seeds=1):
    front = problem.pareto_front(10_000)
    strategy = strategies.get(strategy)
    result = run_batch(problem, strategy, range(n_seeds), n_slow=n_slow, n_init=n_init)
    max_fast, max_slow = budget(strategy, problem, n_slow)
    assert result.used[:, 1].tolist() == [max_slow] * n_seeds
    assert (result.used[:, 0] <= max_fast).all()
    sets = [result.points(i) for i in range(n_seeds)]
    return sum(metrics.igd(Y[metrics.is_non_dominated(Y)], front) for Y in sets) / n_seeds


@pytest.mark.parametrize("strategy", SURROGATES)
def test_surrogates_solve_the_linear_problem(strategy):
    """cm-OneMax with correlation 1: both objectives are the sum of the variables."""
    problem = problems.get("cm-onemax", tau=5, corr=1.0, seed=0)
    assert mean_igd(problem, strategy, n_slow=110, n_init=60) < 0.005


def test_so_does_the_released_variant_with_the_papers_budget():
    problem = problems.get("cm-onemax", tau=5, corr=1.0, seed=0)
    assert mean_igd(problem, "tc-saea-released") < 0.005


@pytest.mark.parametrize("strategy", ["waiting", "k-rvea"])
def test_who_makes_no_use_of_the_fast_objective_does_not_depend_on_tau(strategy):
    X = [
        run_batch(problems.get("dtlz2", tau=tau), strategies.get(strategy), [0], n_slow=112)
        for tau in (5, 10)
    ]
    assert torch.equal(X[0].archive.X, X[1].archive.X)
    assert torch.equal(X[0].archive.Y, X[1].archive.Y)


def test_dtlz5_is_dtlz2():
    for strategy in ("brood-interleaving", "tc-saea-released"):
        X = [
            run_batch(problems.get(name), strategies.get(strategy), [0], n_slow=110).archive.X
            for name in ("dtlz2", "dtlz5")
        ]
        assert torch.equal(*X)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "order"),
    [
        ("dtlz2", ("tc-saea-released", "k-rvea", "waiting", "fast-first")),
        ("dtlz2", ("tc-saea-released", "nt-saea")),
        ("dtlz3a", ("tc-saea-released", "k-rvea", "waiting", "fast-first")),
        ("dtlz3a", ("tc-saea-released", "nt-saea")),
        ("dtlz7", ("tc-saea-released", "waiting", "fast-first")),
    ],
)
def test_orderings_of_the_paper(problem, order):
    """Means of five runs, tau = 5. NT is Algorithm 1 without transfer."""
    problem = problems.get(problem, tau=5)
    values = [mean_igd(problem, strategy, n_seeds=5) for strategy in order]
    assert values == sorted(values)
