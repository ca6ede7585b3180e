import numpy as np
import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.rng import uniforms
from tcsaea_torch.transfer.parameter_transfer import (
    SwarmConfig,
    _Cost,
    blend,
    distance_correlation,
    select_variables,
)


def textbook(X, Y):
    """Distance correlation as defined by Szekely, Rizzo and Bakirov, by plain loops."""
    n = len(X)

    def centred(Z):
        a = np.array([[np.sqrt(np.sum((Z[k] - Z[m]) ** 2)) for m in range(n)] for k in range(n)])
        return np.array(
            [[a[k, m] - a[k].mean() - a[:, m].mean() + a.mean() for m in range(n)]
             for k in range(n)]
        )  # fmt: skip

    A, B = centred(X), centred(Y)
    covariance, variances = (A * B).sum() / n**2, (A * A).sum() * (B * B).sum() / n**4
    return 0.0 if variances == 0 else np.sqrt(max(covariance, 0.0) / np.sqrt(variances))


def samples(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def alive(X):
    return torch.ones(X.shape[:-1], dtype=torch.bool)


def test_is_the_textbook_definition():
    X, Y = samples(3, 23, 4), samples(3, 23, 2, seed=1)
    Y[..., 0] += X[..., 1].square()
    found = distance_correlation(X, Y, alive(X))
    for k in range(3):
        assert float(found[k]) == pytest.approx(textbook(X[k].numpy(), Y[k].numpy()), abs=1e-12)


def test_dead_rows_have_no_influence():
    X, Y = samples(2, 20, 3), samples(2, 20, 2, seed=1)
    live = torch.arange(20) < torch.tensor([[20], [13]])
    X[1, 13:], Y[1, 13:] = 1e9, torch.nan
    both = distance_correlation(X, Y, live)
    alone = distance_correlation(X[1, :13], Y[1, :13], live[1, :13])
    assert float(both[1] - alone) == pytest.approx(0.0, abs=1e-14)
    assert float(both[1]) == pytest.approx(
        textbook(X[1, :13].numpy(), Y[1, :13].numpy()), abs=1e-12
    )


def test_is_small_for_independent_samples_and_1_for_a_linear_map():
    X, Y = samples(1, 400, 1), samples(1, 400, 1, seed=1)
    assert float(distance_correlation(X, Y, alive(X))) < 0.1
    assert float(distance_correlation(X, 3.0 - 7.0 * X, alive(X))) == pytest.approx(1.0)
    X = samples(1, 50, 2)
    turned = X @ torch.tensor([[0.6, 0.8], [-0.8, 0.6]]).double() * 5.0 + 1.0
    assert float(distance_correlation(X, turned, alive(X))) == pytest.approx(1.0)
    # Dependence without correlation is seen.
    square = (X[..., :1] - 0.5).square()
    assert float(distance_correlation(X[..., :1], square, alive(X))) > 0.4


@pytest.mark.parametrize("factor", [1e-200, 1e-3, 1e200])
def test_units_do_not_matter(factor):
    X, Y = samples(1, 30, 2), samples(1, 30, 2, seed=1)
    expected = distance_correlation(X, Y, alive(X))
    found = distance_correlation(X, factor * Y, alive(X))
    assert torch.allclose(found, expected, rtol=1e-12, atol=0)
    assert torch.allclose(distance_correlation(Y, X, alive(X)), expected, rtol=1e-12, atol=0)


def test_constants_and_too_few_rows_are_unrelated(tensor):
    X = samples(1, 9, 2)
    assert distance_correlation(X, torch.ones_like(X) * 0.3, alive(X)).tolist() == [0.0]
    for n in (0, 1):
        assert distance_correlation(X, X, torch.arange(9)[None] < n).tolist() == [0.0]


def naive_cost(X, Y, subset, weight=0.2):
    chosen = [k for k in range(X.shape[1]) if subset[k]]
    if not chosen:
        return 100.0
    pairs = [(k, m) for k in chosen for m in chosen if k < m]
    redundancy = [textbook(X[:, [k]], X[:, [m]]) for k, m in pairs]
    relevance = textbook(X[:, chosen], Y)
    return -(1 - weight) * relevance + weight * (np.mean(redundancy) if pairs else 0.0)


@pytest.mark.parametrize("n", [5, 17, 24])
def test_costs_of_subsets_are_those_of_their_definition(n):
    """Blocks of rows, padding and moments give what plain loops give."""
    X, Y = samples(2, n, 4), samples(2, n, 2, seed=1)
    X[..., 3] = X[..., 0] ** 2
    Y[..., 0] += 3 * X[..., 0]
    live = torch.arange(n) < torch.tensor([[n], [n - 2]])
    X[1, n - 2 :], Y[1, n - 2 :] = 0.7, 1e5
    subsets = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]])
    found = _Cost.of(X, Y, live, SwarmConfig(n_particles=5))(subsets.bool().expand(2, 5, 4))
    for k, rows in enumerate((n, n - 2)):
        expected = [naive_cost(X[k, :rows].numpy(), Y[k, :rows].numpy(), s) for s in subsets]
        assert found[k].tolist() == pytest.approx(expected, abs=1e-5)


def costs(X, Y, subsets):
    return _Cost.of(X, Y, alive(X), SwarmConfig(n_particles=subsets.shape[1]))(subsets)


def draws(seeds, config, d, name="swarm"):
    return uniforms(torch.tensor(seeds), name, 1, (config.n_draws, config.n_particles, d))


def relevant_case(b, n=100, d=10, seed=0):
    """Two variables decide both objectives."""
    X = samples(b, n, d, seed=seed)
    first, second = X[..., 2], X[..., 5]
    Y = torch.stack([first + second, first - second + 0.05 * X[..., 1]], dim=-1)
    return X, Y


def test_the_swarm_finds_the_variables_that_matter():
    config, b = SwarmConfig(), 20
    X, Y = relevant_case(b)
    selected = select_variables(X, Y, alive(X), draws(list(range(b)), config, 10), config)
    wanted = torch.zeros(10, dtype=torch.bool)
    wanted[[2, 5]] = True
    # Thirty moves of at most 0.1 do not always reach the best subset.
    assert int((selected == wanted).all(dim=-1).sum()) >= 12
    assert int((selected != wanted).sum()) <= 12


def test_the_swarm_comes_near_the_best_of_all_subsets():
    config = SwarmConfig()
    X, Y = relevant_case(6, n=40, d=7, seed=1)
    Y = Y + samples(6, 40, 2, seed=2)
    every = torch.cartesian_prod(*[torch.tensor([False, True])] * 7).expand(6, -1, 7)
    lowest = costs(X, Y, every).amin(dim=1)
    selected = select_variables(X, Y, alive(X), draws(list(range(6)), config, 7), config)
    gap = costs(X, Y, selected.unsqueeze(1)).squeeze(1) - lowest
    assert (gap < 1e-5).sum() >= 4
    assert gap.max() < 0.03


def test_a_repeated_variable_is_left_out():
    config = SwarmConfig(redundancy_weight=0.5)
    X, Y = relevant_case(4, d=5 + 3)
    X[..., 4] = X[..., 2]
    selected = select_variables(X, Y, alive(X), draws([0, 1, 2, 3], config, 8), config)
    assert not (selected[:, 2] & selected[:, 4]).any()


def test_each_run_of_a_batch_is_that_of_the_run_alone_whatever_its_padding():
    config = SwarmConfig(n_iterations=15)
    X, Y = relevant_case(3, n=60)
    live = torch.arange(60) < torch.tensor([[60], [41], [9]])
    u = draws([5, 6, 7], config, 10)
    together = select_variables(X, Y, live, u, config)
    for k, n in enumerate((60, 41, 9)):
        alone = select_variables(
            X[k : k + 1, :n], Y[k : k + 1, :n], live[k : k + 1, :n], u[k : k + 1], config
        )
        assert torch.equal(together[k], alone[0])


def swarm_by_hand(cost, u, config):
    """One run's swarm, particle by particle, with the costs in a dictionary."""
    seen = {}

    def of(place):
        key = tuple((place > config.threshold).tolist())
        if key not in seen:
            seen[key] = cost(key)
        return seen[key]

    place, velocity = u[0].copy(), np.zeros_like(u[0])
    best_place, best = place.copy(), np.array([of(x) for x in place])
    leader, lowest = best_place[best.argmin()].copy(), best.min()
    for t in range(config.n_iterations):
        for k in range(len(place)):
            pull = u[1 + 2 * t, k] * (best_place[k] - place[k])
            pull = pull + u[2 + 2 * t, k] * (leader - place[k])
            velocity[k] = np.clip(
                config.inertia * velocity[k] + config.attraction * pull,
                -config.max_speed, config.max_speed,
            )  # fmt: skip
        place = np.clip(place + velocity, 0.0, 1.0)
        for k in range(len(place)):
            if of(place[k]) < best[k]:
                best_place[k], best[k] = place[k], of(place[k])
        if best.min() < lowest:
            leader, lowest = best_place[best.argmin()].copy(), best.min()
    return (leader > config.threshold).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_swarm_moves_as_particle_swarms_do(seed):
    config = SwarmConfig(n_particles=6, n_iterations=12)
    X, Y = relevant_case(1, n=12, d=6, seed=seed)
    u = draws([seed], config, 6)
    selected = select_variables(X, Y, alive(X), u, config)

    def cost(subset):
        return naive_cost(X[0].numpy(), Y[0].numpy(), subset)

    assert selected[0].tolist() == swarm_by_hand(cost, u[0].numpy(), config)


def test_single_precision_and_rows_too_few_to_tell():
    config = SwarmConfig(n_iterations=3)
    X, Y = (t.float() for t in relevant_case(2, n=30))
    u = draws([0, 1], config, 10).float()
    assert select_variables(X, Y, alive(X), u, config).shape == (2, 10)
    for n in (0, 1):
        live = torch.arange(30)[None].expand(2, 30) < n
        assert select_variables(X, Y, live, u, config).shape == (2, 10)


def test_theta_is_blended_for_the_selected_variables_alone(tensor):
    slow, fast = tensor([[1.0, 2.0, 3.0]] * 2), tensor([[10.0, 20.0, 30.0]] * 2)
    selected = torch.tensor([[True, False, True], [False, False, True]])
    blended = blend(slow, fast, selected, tensor([0.75, 1.0]))
    assert blended.tolist() == [[3.25, 2.0, 9.75], [1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_particles": 0}, "n_particles must be an integer >= 1"),
        ({"n_iterations": -1}, "n_iterations must be an integer >= 0"),
        ({"inertia": "1"}, "inertia must be"),
        ({"attraction": -1.0}, "attraction must be"),
        ({"max_speed": 2.0}, "max_speed must be"),
        ({"threshold": 1.5}, "threshold must be"),
        ({"redundancy_weight": 1.5}, "redundancy_weight must be"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_configuration_is_checked(options, message):
    with pytest.raises(InvalidInputError, match=message):
        SwarmConfig(**options)
