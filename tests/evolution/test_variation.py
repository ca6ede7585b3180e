import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import Draws, Variation, polynomial_mutation, sbx, variation, vary
from tests.conftest import load_reference

OPERATORS = load_reference("operators")


@pytest.mark.parametrize("case", OPERATORS["P_generator"], ids=lambda case: case["name"])
def test_equals_the_generator_of_t_saea(case, tensor):
    low, high = tensor(case["lower"]), tensor(case["upper"])
    pool = (tensor(case["mating_pool"]) - low) / (high - low)
    pairs = case["pair_draws"]
    crossover = torch.stack(
        [
            tensor([p["miu"] for p in pairs]),
            # Our sign is negative below 1/2, theirs where the bit is set.
            0.75 - 0.5 * tensor([p["sign_bit"] for p in pairs]),
            tensor([p["cross_draw"] for p in pairs]),
        ]
    )
    n = case["max_offspring"]
    mutation = torch.stack([tensor(case["mutation_site_draw"]), tensor(case["mutation_miu"])])
    mating = torch.linspace(0.1, 0.9, len(pool), dtype=torch.float64)  # keeps their order
    offspring, lives = vary(
        pool, torch.ones(len(pool), dtype=torch.bool), mating[:n],
        crossover, mutation, Variation(), each_once=False,
    ) if n < len(pool) else vary(
        pool, torch.ones(len(pool), dtype=torch.bool), mating,
        crossover, mutation, Variation(), each_once=True,
    )  # fmt: skip
    if n < len(pool):  # parents are drawn differently here: compare the operators alone
        first, second = sbx(
            pool[0::2], pool[1::2], crossover[0], crossover[1] < 0.5, crossover[2] <= 0.8, 20.0
        )
        offspring = torch.stack([first, second], dim=1).flatten(0, 1)[:n]
        site = mutation[0] <= 1 / pool.shape[1]
        offspring = polynomial_mutation(offspring, mutation[1], site, 20.0).clamp(0, 1)
    assert lives.all()
    expected = tensor(case["offspring"])
    assert torch.allclose(offspring * (high - low) + low, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("case", OPERATORS["OperatorGA"], ids=lambda case: case["name"])
def test_equals_the_operator_of_platemo(case, tensor):
    low, high = tensor(case["lower"]), tensor(case["upper"])
    parents = (tensor(case["parents"]) - low) / (high - low)
    half, d = len(parents) // 2, parents.shape[1]
    is_crossed = (tensor(case["gene_draw"]) >= 0.5) & (
        tensor(case["pair_draw"]) <= case["proC"]
    ).unsqueeze(-1)
    is_negative = tensor(case["sign_bit"]) == 1
    children = sbx(
        parents[:half], parents[half : 2 * half], tensor(case["sbx_mu"]),
        is_negative, is_crossed, case["disC"],
    )  # fmt: skip
    offspring = torch.cat(children).clamp(0, 1)  # PlatEMO clips before mutation
    is_mutated = tensor(case["mutation_site_draw"]) < case["proM"] / d
    offspring = polynomial_mutation(
        offspring, tensor(case["mutation_mu"]), is_mutated, case["disM"]
    ).clamp(0, 1)
    expected = tensor(case["offspring"])
    assert torch.allclose(offspring * (high - low) + low, expected, rtol=0, atol=1e-14)


def test_sbx_keeps_the_parents_middle_and_spread():
    generator = torch.Generator().manual_seed(0)
    a, b, u = torch.rand(3, 200, 4, generator=generator, dtype=torch.float64)
    negative = torch.rand(200, 4, generator=generator) < 0.5
    crossed = torch.rand(200, 4, generator=generator) < 0.5
    x, y = sbx(a, b, u, negative, crossed, 20.0)
    assert torch.allclose(x + y, a + b)
    assert torch.equal(x[~crossed], a[~crossed])
    assert torch.equal(y[~crossed], b[~crossed])
    spread = ((x - y) / (a - b)).abs()[crossed]
    # The distribution of the spread: P(beta <= 1) = 1/2.
    assert 0.4 < float((spread <= 1).double().mean()) < 0.6


def naive_sbx(a, b, u, is_negative, is_crossed, index):
    """As published, one variable at a time."""
    x, y = a.clone(), b.clone()
    for i in range(len(a)):
        if is_crossed[i]:
            ratio = 2 * u[i] if u[i] <= 0.5 else 1 / (2 - 2 * u[i])
            beta = ratio ** (1 / (index + 1)) * (-1 if is_negative[i] else 1)
            x[i] = (a[i] + b[i]) / 2 + beta * (a[i] - b[i]) / 2
            y[i] = (a[i] + b[i]) / 2 - beta * (a[i] - b[i]) / 2
    return x, y


def naive_mutation(X, u, is_mutated, index):
    """As published, one variable at a time."""
    Z, e = X.clone(), index + 1
    for i in range(len(X)):
        if is_mutated[i] and u[i] < 0.5:
            base = 2 * u[i] + (1 - 2 * u[i]) * (1 - X[i]).clamp(min=0) ** e
            Z[i] = X[i] + base ** (1 / e) - 1
        elif is_mutated[i]:
            base = 2 * (1 - u[i]) + 2 * (u[i] - 0.5) * X[i].clamp(min=0) ** e
            Z[i] = X[i] + 1 - base ** (1 / e)
    return Z


@pytest.mark.parametrize("index", [0.0, 7.5, 20.0])
def test_operators_equal_naive_ones(index):
    generator = torch.Generator().manual_seed(2)
    a, b, u = torch.rand(3, 300, 1, generator=generator, dtype=torch.float64)
    negative, chosen = torch.rand(2, 300, 1, generator=generator) < 0.5
    u[:2], a[2], a[3] = 0.5, 0.0, 1.0
    expected = naive_sbx(a, b, u, negative, chosen, index)
    for child, naive in zip(sbx(a, b, u, negative, chosen, index), expected, strict=True):
        assert torch.allclose(child, naive, rtol=0, atol=1e-13 * float(naive.abs().max()))
    wide = 1.2 * a - 0.1  # some lie outside the box
    mutated = polynomial_mutation(wide, u, chosen, index)
    expected = naive_mutation(wide, u, chosen, index)
    assert torch.allclose(mutated, expected, rtol=0, atol=1e-14)
    assert torch.equal(mutated[~chosen], wide[~chosen])


@pytest.mark.parametrize("n", [8, 9])
@pytest.mark.parametrize("block", [1, 200, 10**6])
def test_recipes_of_many_generations_are_those_of_each(n, block, monkeypatch):
    monkeypatch.setattr(variation, "_BLOCK_ON_CPU", block)
    config = Variation(mutation_rate=2.0)
    draws = Draws.make(torch.arange(3), "test", 0, 7, n, 4, torch.float64)
    X = torch.rand(3, n, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alive = torch.ones(3, n, dtype=torch.bool)
    made = list(variation.recipes(draws, 6, config))
    assert len(made) == 6  # of 7
    for g, recipe in enumerate(made):
        offspring, lives = variation.breed(X, alive, recipe, config, each_once=False)
        expected, _ = vary(
            X, alive, draws.mating[:, g], draws.crossover[:, g], draws.mutation[:, g],
            config, each_once=False,
        )  # fmt: skip
        assert torch.allclose(offspring, expected, rtol=0, atol=1e-15)
        assert lives.all()


def test_mutation_stays_inside_and_is_as_likely_as_asked():
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(400, 10, generator=generator, dtype=torch.float64)
    seeds = torch.arange(1)
    draws = Draws.make(seeds, "test", 0, 1, 400, 10, torch.float64)
    alive = torch.ones(1, 400, dtype=torch.bool)
    config = Variation(crossover_probability=0.0, mutation_rate=2.0)
    offspring, lives = vary(
        X.unsqueeze(0), alive, draws.mating[:, 0], draws.crossover[:, 0], draws.mutation[:, 0],
        config, each_once=True,
    )  # fmt: skip
    assert lives.all()
    assert ((offspring >= 0) & (offspring <= 1)).all()
    # Uncrossed variables equal those of a parent up to rounding unless they mutated.
    order = draws.mating[0, 0].argsort()
    changed = (offspring[0] - X[order]).abs() > 1e-12
    assert float(changed.double().mean()) == pytest.approx(0.2, abs=0.02)


def test_each_living_parent_mates_once():
    X = torch.arange(7, dtype=torch.float64).reshape(1, 7, 1) / 7
    alive = torch.tensor([[True, False, True, True, False, True, True]])
    draws = Draws.make(torch.arange(1), "test", 0, 1, 7, 1, torch.float64)
    config = Variation(crossover_probability=0.0, mutation_rate=0.0)
    offspring, lives = vary(
        X, alive, draws.mating[:, 0], draws.crossover[:, 0], draws.mutation[:, 0],
        config, each_once=True,
    )  # fmt: skip
    assert lives.sum() == 5
    assert torch.allclose(offspring[lives].sort(dim=0).values, X[alive].sort(dim=0).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_random_parents_are_the_living_that_the_numbers_name(dtype):
    alive = torch.rand(20, 13, generator=torch.Generator().manual_seed(0)) < 0.4
    alive[:, 5], alive[0] = True, False
    alive[0, 12] = True
    X = torch.arange(13, dtype=dtype).expand(20, 13).unsqueeze(-1) / 13
    u = torch.rand(20, 9, generator=torch.Generator().manual_seed(1), dtype=dtype)
    u[:, 0], u[:, 1] = torch.finfo(dtype).tiny, 1 - torch.finfo(dtype).eps / 2
    draws = Draws.make(torch.arange(20), "test", 0, 1, 9, 1, dtype)
    config = Variation(crossover_probability=0.0, mutation_rate=0.0)
    offspring, _ = vary(
        X, alive, u, draws.crossover[:, 0], draws.mutation[:, 0], config, each_once=False
    )
    for x, mask, numbers in zip(offspring, alive, u, strict=True):
        living = mask.nonzero().squeeze(-1)
        expected = living[(numbers * len(living)).long()]
        assert torch.equal((x.squeeze(-1) * 13).round().long(), expected)


def test_random_parents_are_living_ones():
    X = torch.rand(3, 9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    alive = torch.zeros(3, 9, dtype=torch.bool)
    alive[0, 4], alive[1, :3], alive[2] = True, True, True
    draws = Draws.make(torch.arange(3), "test", 0, 1, 51, 2, torch.float64)
    config = Variation(crossover_probability=0.0, mutation_rate=0.0)
    offspring, lives = vary(
        X, alive, draws.mating[:, 0], draws.crossover[:, 0], draws.mutation[:, 0],
        config, each_once=False,
    )  # fmt: skip
    assert offspring.shape == (3, 51, 2)
    assert lives.all()
    for i in range(3):
        nearest = torch.cdist(offspring[i], X[i][alive[i]])
        assert nearest.amin(dim=1).max() < 1e-7
        assert (nearest.amin(dim=0) < 1e-7).all()  # with 51 draws every parent is met


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crossover_probability": 1.5}, "crossover_probability must be"),
        ({"crossover_index": -1}, "crossover_index must be"),
        ({"mutation_rate": float("nan")}, "mutation_rate must be"),
        ({"mutation_index": "20"}, "mutation_index must be"),
        ({"clip_before_mutation": 1}, "clip_before_mutation must be True or False"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked(options, message):
    with pytest.raises(InvalidInputError, match=message):
        Variation(**options)
