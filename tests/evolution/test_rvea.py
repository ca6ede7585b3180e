from dataclasses import replace

import pytest
import torch

from tcsaea_torch import metrics, problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import (
    Draws,
    RVEAConfig,
    adapt,
    apd_select,
    rvea,
    simplex_lattice,
    vary,
)
from tcsaea_torch.rng import uniforms


def search(evaluate, d, *, seeds=(0,), r=50, config=None, n=50, X=None, alive=None, **options):
    seeds = torch.tensor(seeds)
    config = RVEAConfig(n_generations=60, each_once=False) if config is None else config
    X = uniforms(seeds, "start", 0, (n, d)) if X is None else X
    alive = torch.ones(X.shape[:2], dtype=torch.bool, device=X.device) if alive is None else alive
    draws = Draws.make(seeds.to(X.device), "test", 0, config.n_generations, r, d, X.dtype)
    vectors = simplex_lattice(r, dtype=X.dtype, device=X.device)
    return rvea(evaluate, X, alive, vectors, draws, config, **options)


def test_finds_the_front_of_dtlz2():
    problem = problems.get("dtlz2")
    population, _ = search(problem.evaluate, problem.d, seeds=(0, 1, 2), r=100, n=100)
    front = problem.pareto_front(1000)
    for F, alive in zip(population.F, population.alive, strict=True):
        # 100 perfectly placed points have .004, 100 random points about .36.
        assert metrics.igd(F[alive], front) < 0.02
    assert (population.alive.sum(dim=1) >= 95).all()


def naive_rvea(evaluate, X, alive, initial, draws, config):
    """Search one problem by its operators, keeping the living alone."""
    X, V, n = X[alive], initial, len(initial)
    for t in range(config.n_generations + 1):
        if t > 0:
            mating, crossover, mutation = (
                numbers[0, t - 1] for numbers in (draws.mating, draws.crossover, draws.mutation)
            )
            slots = torch.full((n, X.shape[1]), 0.5, dtype=X.dtype)
            slots[slot], living = X, torch.zeros(n, dtype=torch.bool)
            living[slot] = True
            offspring, lives = vary(
                slots, living, mating, crossover, mutation, config.variation,
                each_once=config.each_once,
            )  # fmt: skip
            X = torch.cat([X, offspring[lives]])
        F = evaluate(X)
        everyone = torch.ones(len(X), dtype=torch.bool)
        winner, slot = apd_select(F, everyone, V, (t / config.t_max) ** config.alpha)
        X, F = X[winner[slot]], F[winner[slot]]
        if t > 0 and t % config.adaptation_interval == 0:
            V = adapt(initial, F.amax(dim=0) - F.amin(dim=0))
    return X, F, slot, V


@pytest.mark.parametrize("each_once", [True, False])
def test_equals_a_naive_search(each_once):
    evaluate, d, r = problems.get("dtlz2").evaluate, 11, 21
    config = RVEAConfig(n_generations=12, each_once=each_once)
    start = uniforms(torch.tensor([7]), "start", 0, (30, d))
    alive = uniforms(torch.tensor([7]), "alive", 0, (30,)) < 0.8
    population, vectors = search(evaluate, d, r=r, X=start, alive=alive, config=config)
    draws = Draws.make(torch.tensor([0]), "test", 0, 12, r, d, torch.float64)
    X, F, slot, V = naive_rvea(evaluate, start[0], alive[0], simplex_lattice(r), draws, config)
    assert torch.equal(population.alive[0], slot)
    assert torch.allclose(population.X[0][slot], X, rtol=0, atol=1e-12)
    assert torch.allclose(population.F[0][slot], F, rtol=0, atol=1e-12)
    assert torch.allclose(vectors[0], V, rtol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("each_once", [True, False])
def test_a_cuda_graph_captures_a_search(each_once):
    problem, r, device = problems.get("dtlz7"), 31, torch.device("cuda")
    config = RVEAConfig(n_generations=12, each_once=each_once)
    seeds = torch.arange(4, device=device)
    start = uniforms(seeds, "start", 0, (40, problem.d))
    alive = torch.ones(4, 40, dtype=torch.bool, device=device)
    draws = Draws.make(seeds, "test", 0, 12, r, problem.d, torch.float64)
    vectors = simplex_lattice(r, device=device)

    def work():
        return rvea(problem.evaluate, start, alive, vectors, draws, config)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what libraries set up on first use is no part of a graph
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, adapted = work()
    start.copy_(uniforms(seeds, "another start", 0, (40, problem.d)))
    graph.replay()
    expected, expected_vectors = work()
    assert torch.equal(captured.alive, expected.alive)
    assert torch.equal(captured.X, expected.X)
    assert torch.equal(captured.F, expected.F)
    assert torch.equal(adapted, expected_vectors)


def test_each_run_of_a_batch_is_the_run_alone(device):
    problem = problems.get("dtlz7")
    config = RVEAConfig(n_generations=15)
    seeds = (3, 4, 5, 6)
    start = uniforms(torch.tensor(seeds), "start", 0, (40, problem.d)).to(device)
    together, vectors = search(problem.evaluate, problem.d, seeds=seeds, X=start, config=config)
    for i, seed in enumerate(seeds):
        alone, alone_vectors = search(
            problem.evaluate, problem.d, seeds=(seed,), X=start[i : i + 1], config=config
        )
        assert torch.equal(together.alive[i], alone.alive[0])
        mask = alone.alive[0]
        assert torch.allclose(together.X[i][mask], alone.X[0][mask], rtol=0, atol=1e-12)
        assert torch.allclose(vectors[i], alone_vectors[0], rtol=0, atol=1e-12)


def test_one_collapsed_run_leaves_the_others_alone():
    problem = problems.get("dtlz2")
    start = uniforms(torch.tensor((0, 1)), "start", 0, (30, problem.d))
    start[1] = start[1, :1]  # all individuals identical
    config = RVEAConfig(n_generations=10)
    together, _ = search(problem.evaluate, problem.d, seeds=(0, 1), X=start, config=config)
    alone, _ = search(problem.evaluate, problem.d, seeds=(0,), X=start[:1], config=config)
    assert torch.equal(together.alive[0], alone.alive[0])
    assert together.alive[1].any()
    assert together.F.isfinite().all()


@pytest.mark.parametrize(
    "evaluate",
    [
        lambda X: torch.zeros_like(X[..., :2]),
        lambda X: torch.stack([X[..., 0], torch.ones_like(X[..., 0])], dim=-1),
        lambda X: X[..., :1].expand(*X.shape[:-1], 2) * 1e-12,
    ],
    ids=["constant", "one constant", "no conflict"],
)
def test_degenerate_objectives_stay_finite(evaluate):
    population, vectors = search(evaluate, 3, r=2, n=5)
    assert population.alive.any()
    assert population.X.isfinite().all()
    assert vectors.isfinite().all()
    assert ((population.X >= 0) & (population.X <= 1)).all()


def test_without_conflict_the_best_point_wins():
    population, _ = search(lambda X: X[..., :1].expand(*X.shape[:-1], 2), 2, r=10, n=20)
    assert float(population.F[population.alive].min()) < 1e-3


def test_one_survivor_breeds():
    problem = problems.get("dtlz2")
    start = uniforms(torch.tensor((0,)), "start", 0, (10, problem.d))
    alive = torch.zeros(1, 10, dtype=torch.bool)
    alive[0, 3] = True
    population, _ = search(
        problem.evaluate, problem.d, X=start, alive=alive, config=RVEAConfig(n_generations=5)
    )
    assert population.alive.sum() >= 1


def test_no_generation_is_a_selection_of_the_start():
    problem = problems.get("dtlz2")
    start = uniforms(torch.tensor((0,)), "start", 0, (40, problem.d))
    population, _ = search(problem.evaluate, problem.d, X=start, config=RVEAConfig(n_generations=0))
    for x in population.X[0][population.alive[0]]:
        assert (x == start[0]).all(dim=-1).any()


def test_integers_are_evaluated_as_integers():
    seen = []

    def evaluate(X):
        seen.append(X)
        return torch.stack([X.sum(dim=-1), (1 - X).sum(dim=-1)], dim=-1)

    grid = torch.tensor([4.0, torch.inf, 0.0], dtype=torch.float64)
    start = torch.full((1, 6, 3), 0.5, dtype=torch.float64)
    start[..., 2] = 0.0
    search(evaluate, 3, X=start, config=RVEAConfig(n_generations=8), grid=grid)
    X = torch.cat(seen, dim=1)
    assert torch.equal(X[..., 0] * 4, (X[..., 0] * 4).round())
    assert (X[..., 2] == 0).all()
    assert len(X[..., 1].unique()) > 10


def test_generation_counts_penalty_and_adaptation():
    config = RVEAConfig(n_generations=8, first_generation=1, penalty_generations=20)
    assert (config.t_max, config.adaptation_interval) == (20, 2)
    assert RVEAConfig(n_generations=20).t_max == 20
    assert RVEAConfig(n_generations=100).adaptation_interval == 10
    assert RVEAConfig(n_generations=0).t_max == 1


def test_works_in_float32():
    problem = problems.get("dtlz2")
    start = uniforms(torch.tensor((0,)), "start", 0, (30, problem.d), dtype=torch.float32)
    population, _ = search(problem.evaluate, problem.d, X=start)
    assert population.F.dtype == torch.float32
    assert metrics.igd(population.F[population.alive], problem.pareto_front(500)) < 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_generations": -1}, "n_generations must be an integer >= 0"),
        ({"first_generation": 0.5}, "first_generation must be an integer"),
        ({"penalty_generations": 0}, "penalty_generations must be an integer >= 1"),
        ({"alpha": -2}, "alpha must be"),
        ({"adaptation_frequency": 0}, "adaptation_frequency must be"),
        ({"each_once": "yes"}, "each_once must be True or False"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked(options, message):
    with pytest.raises(InvalidInputError, match=message):
        RVEAConfig(**options)


def test_measured_values_of_the_start_take_the_place_of_evaluated_ones():
    start = uniforms(torch.tensor([7]), "start", 0, (30, 11))
    evaluate, config = problems.get("dtlz2").evaluate, RVEAConfig(n_generations=5)
    n_evaluated = []

    def counted(X):
        n_evaluated.append(X.shape[1])
        return evaluate(X)

    first, _ = search(counted, 11, r=21, X=start, config=config)
    second, _ = search(counted, 11, r=21, X=start, config=config, F=evaluate(start))
    assert n_evaluated == [30, *[21] * 5, *[21] * 5]
    assert torch.equal(first.X, second.X)
    # Without a generation, the survivors have the values that were given.
    config = RVEAConfig(n_generations=0)
    F = uniforms(torch.tensor([8]), "values", 0, (30, 2))
    population, _ = search(evaluate, 11, r=21, X=start, config=config, F=F)
    winner, slot = apd_select(F, torch.ones(1, 30, dtype=torch.bool), simplex_lattice(21), 0.0)
    assert torch.equal(population.alive, slot)
    assert torch.equal(population.F[slot], F[0, winner[0]][slot[0]])


def test_the_penalty_grows_to_its_factor():
    config = RVEAConfig(n_generations=20, alpha=0.5, penalty_factor=0.5)
    assert [config.penalty_at(t) for t in (0, 5, 20)] == [0.0, 0.25, 0.5]
    assert config.last_penalty == 0.5
    late = RVEAConfig(n_generations=8, first_generation=1, penalty_generations=20)
    assert late.last_penalty == pytest.approx((9 / 20) ** 2)
    # A factor of 0 is a search by length alone, as is an exponent that keeps the penalty at 0.
    start = uniforms(torch.tensor([7]), "start", 0, (30, 11))
    evaluate = problems.get("dtlz2").evaluate
    none = RVEAConfig(n_generations=6, adaptation_frequency=1.0, penalty_factor=0.0)
    steep = replace(none, penalty_factor=1.0, penalty_generations=10**6, alpha=60.0)
    first, _ = search(evaluate, 11, r=21, X=start, config=none)
    second, _ = search(evaluate, 11, r=21, X=start, config=steep)
    assert torch.equal(first.X, second.X)
