import pytest
import torch

from tcsaea_torch import metrics, problems
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import Draws, RVEAConfig, rvea, simplex_lattice
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
