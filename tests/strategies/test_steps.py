import torch

from benchmarks.run_batch import initial_view
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies import steps
from tests.strategies.runs import Toy, with_rows


def view(X, observed=None, d=2, **options):
    run = initial_view(Toy(d=d, **options), [0], n_slow=20, n_init=5)
    return with_rows(run, X, torch.zeros(len(X), 2).double(), observed)


def test_the_design_is_a_latin_hypercube():
    run = initial_view(Toy(d=3), [0, 1], n_slow=20, n_init=9)
    X, is_new = steps.design(run, 9)
    assert is_new.all()
    slices = (X * 9).floor().sort(dim=1).values
    assert torch.equal(slices, torch.arange(9).double().reshape(1, 9, 1).expand(2, 9, 3))
    assert not torch.equal(X[0], X[1])


def test_known_points_are_recognised_whatever_became_of_them(tensor):
    X = tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]])
    observed = torch.tensor([[True, True], [True, False], [False, False]])
    run = view(X, observed)
    query = tensor([[[0.1, 0.2], [0.3, 0.4 + 1e-12], [0.5, 0.6], [0.1, 0.21]]])
    # The third row does not exist for anybody: padding.
    assert steps.is_known(query, run).tolist() == [[True, True, False, False]]


def test_first_of_equals(tensor):
    X = tensor([[[0.1], [0.1], [0.2], [0.1], [0.2]]])
    keep = torch.tensor([[False, True, True, True, True]])
    assert steps.first_of_equals(X, keep).tolist() == [[False, True, True, False, False]]


def test_new_points_are_chosen_among_candidates_that_are_unknown(tensor):
    X = torch.rand(1, 20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    run = view(X[0, :5])
    candidates = torch.ones(1, 20, dtype=torch.bool)
    candidates[0, 10:] = False
    points, chosen = steps.choose_new(X, candidates, torch.tensor([3]), 4, run, period=1)
    assert chosen.tolist() == [[True, True, True, False]]
    rows = [int((X[0] == p).all(dim=-1).nonzero()) for p in points[0][chosen[0]]]
    assert len(set(rows)) == 3
    assert all(5 <= row < 10 for row in rows)


def test_fewer_new_points_if_there_are_no_more(tensor):
    X = tensor([[[0.1, 0.1], [0.2, 0.2], [0.2, 0.2]]])
    candidates = torch.ones(1, 3, dtype=torch.bool)
    run = view(X[0, :1])
    _, chosen = steps.choose_new(X, candidates, torch.tensor([3]), 3, run, period=1)
    assert chosen.sum() == 1


def test_more_new_points_wanted_than_there_are_candidates(tensor):
    """As where more workers are free than there are reference vectors."""
    X = tensor([[[0.1, 0.1], [0.2, 0.2], [0.2, 0.2]]])
    run = view(tensor([[0.5, 0.5]]))
    candidates = torch.ones(1, 3, dtype=torch.bool)
    points, chosen = steps.choose_new(X, candidates, torch.tensor([50]), 50, run, period=1)
    assert sorted(points[0][chosen[0]].tolist()) == [[0.1, 0.1], [0.2, 0.2]]


def test_random_points_where_a_search_found_nothing_new(tensor):
    X = tensor([[[0.1, 0.1]]])
    run = view(X[0])
    candidates = torch.ones(1, 1, dtype=torch.bool)
    points, chosen = steps.choose_new(X, candidates, torch.tensor([2]), 3, run, period=1)
    assert chosen.sum() == 2
    assert ((points > 0) & (points < 1)).all()


def test_nothing_where_a_finite_space_is_exhausted(tensor):
    X = tensor([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
    run = view(X[0], bounds=[[0, 0], [1, 1]], integers=(0, 1))
    candidates = torch.ones(1, 4, dtype=torch.bool)
    _, chosen = steps.choose_new(X, candidates, torch.tensor([2]), 3, run, period=1)
    assert not chosen.any()


def test_samples_around_points_fill_their_box(tensor):
    X = tensor([[[0.2, 0.5], [0.4, 0.5], [0.9, 0.9]]])
    chosen = torch.tensor([[True, True, False]])
    run = view(X[0])
    samples, exist = steps.around(X, chosen, torch.tensor([8]), 10, run, 1, margin=0.05)
    assert exist.sum() == 8
    inside = samples[0][exist[0]]
    assert ((inside[:, 0] - 0.2) / 0.2 * 8).floor().sort().values.tolist() == list(range(8))
    assert ((inside[:, 1] - 0.45) / 0.1 * 8).floor().sort().values.tolist() == list(range(8))


def test_models_of_unlike_sizes_are_those_fitted_alone():
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(2, 40, 3, generator=generator, dtype=torch.float64)
    y = torch.stack([torch.sin(3 * X).sum(dim=-1), X.prod(dim=-1)])
    everything, few = torch.ones(2, 40, dtype=torch.bool), torch.arange(40) < 15
    sets = {
        "a": TrainingSet.from_mask(X, y[0], everything),
        "b": TrainingSet.from_mask(X, y[1], everything & few),
        "c": TrainingSet.from_mask(X, y[0] - y[1], everything & (torch.arange(40) < 37)),
    }
    trends, config = {"a": "linear", "b": "constant", "c": "constant"}, FitConfig()
    nothing = dict.fromkeys(sets)
    together = steps.fit_models(sets, trends, config, nothing)
    Xq = torch.rand(2, 30, 3, generator=generator, dtype=torch.float64)
    for name in sets:
        alone = steps.fit_models({name: sets[name]}, trends, config, {name: None})[name]
        assert torch.allclose(together[name].mean(Xq), alone.mean(Xq), atol=1e-4)
        assert together[name].is_linear.all() == (name == "a")
    warm = steps.fit_models(
        sets, trends, config, {name: m.hyperparameters for name, m in together.items()}
    )
    for name in sets:
        assert torch.allclose(warm[name].mean(Xq), together[name].mean(Xq), atol=1e-3)
