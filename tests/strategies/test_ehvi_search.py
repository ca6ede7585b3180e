import pytest
import torch

from benchmarks.run_batch import initial_view
from tcsaea_torch import metrics
from tcsaea_torch.evolution import Population, RVEAConfig
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies import TCEHVI
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_models import Models
from tcsaea_torch.strategies.ehvi_search import Search, _one_moved, measure_front
from tests.strategies.runs import Exact, Toy, with_rows

SEEDS = torch.tensor([0])


def numbers(name, *shape):
    return uniforms(SEEDS, name, 0, shape, dtype=torch.float64)


# ---------------------------------------------------------------- the front


def test_the_front_holds_the_known_points_that_are_not_dominated():
    Y, known = numbers("Y", 40, 2) * 8.0 - 3.0, numbers("known", 40) < 0.7
    front = measure_front(Y, known, torch.ones(1, 1, 2).double(), None, None)
    kept = front.Y[0][front.alive[0]] * front.extent[0] + front.low[0]
    points = Y[0][known[0]]
    expected = points[metrics.is_non_dominated(points)]
    assert kept.shape == expected.shape
    assert torch.allclose(kept.sort(dim=0).values, expected.sort(dim=0).values)
    # In its own units it goes from 0 to 1, and the reference point lies a tenth beyond.
    assert front.Y[front.alive].amin(dim=0).tolist() == pytest.approx([0.0, 0.0])
    assert front.Y[front.alive].amax(dim=0).tolist() == pytest.approx([1.0, 1.0])
    assert front.ref_point.tolist() == [pytest.approx([1.1, 1.1])]


def test_the_reference_point_sees_the_predicted_front_too():
    Y = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]]).double()
    F = torch.tensor([[[-1.0, 3.0], [0.5, 0.5], [5.0, 5.0], [-9.0, -9.0]]]).double()
    alive = torch.tensor([[True, True, True, False]])
    predicted = Population(X=F, F=F, alive=alive)
    known, span = torch.ones(1, 2, dtype=torch.bool), torch.ones(1, 1, 2).double()
    low = torch.tensor([[-2.0, -torch.inf]]).double()
    front = measure_front(Y, known, span, low, None, predicted)
    assert front.low.tolist() == [[[-1.0, 0.0]]]
    assert front.extent.tolist() == [[[2.0, 3.0]]]
    assert front.lower_bound is not None
    assert front.lower_bound.tolist() == [[-0.5, -1e3]]
    assert len(front.Y[0]) == 2  # what is to be improved is measured


def test_beyond_a_reference_point_that_is_given_nothing_counts():
    Y = torch.tensor([[[0.0, 4.0], [2.0, 0.0]], [[1.0, 1.0], [9.0, 9.0]]]).double()
    known, span = torch.ones(2, 2, dtype=torch.bool), torch.full((2, 1, 2), 8.0).double()
    point = torch.tensor([[3.0, 6.0], [2.0, -1.0]]).double()
    front = measure_front(Y, known, span, None, point)
    torch.testing.assert_close(front.scale(point[:, None]).squeeze(1), front.ref_point)
    assert front.ref_point[0].tolist() == pytest.approx([1.5, 1.5])
    # Those just beyond it, in one objective, gain nothing; those within it do.
    sure = torch.full((2, 1, 2), 1e-12).double()
    for shift, gains in (((0.1, -1.0), False), ((-1.0, 0.1), False), ((-0.1, -0.1), True)):
        mean = front.scale(point.unsqueeze(1) + torch.tensor(shift).double())
        found = front.log_ehvi(mean, sure).exp()[:, 0]
        assert bool((found > 1e-9).any()) == gains
    # By hand: the box between the first run's front and its reference point.
    best = front.log_ehvi(front.scale(torch.tensor([[[1.0, 1.0]]] * 2).double()), sure).exp()
    area = (2.0 - 1.0) * (4.0 - 1.0) + (3.0 - 2.0) * 0.0
    assert best[0].item() == pytest.approx(area / (2.0 * 4.0), rel=1e-4)


@pytest.mark.parametrize(("span", "extent"), [(4.0, 0.04), (0.0, 1.0)])
def test_a_front_of_one_point_has_an_extent_still(span, extent):
    Y, known = torch.full((1, 3, 2), 7.0).double(), torch.ones(1, 3, dtype=torch.bool)
    front = measure_front(Y, known, torch.full((1, 1, 2), span).double(), None, None)
    assert front.extent.tolist() == [[[pytest.approx(extent)] * 2]]
    assert front.scale(Y)[0, 0].tolist() == [0.0, 0.0]


def test_without_known_points_all_improves():
    Y, nothing = numbers("Y", 4, 2), torch.zeros(1, 4, dtype=torch.bool)
    front = measure_front(Y, nothing, torch.ones(1, 1, 2).double(), None, None)
    assert not front.alive.any()
    assert front.log_ehvi(
        torch.zeros(1, 1, 2).double(), torch.full((1, 1, 2), 0.1).double()
    ).isfinite()


# ---------------------------------------------------------------- the search


def exact(problem, unit=1.0):
    return Models(fast=Exact(problem, 0, sd=1e-3 * unit), slow=Exact(problem, 1))


def search(
    problem, *, moves=True, climbs=True, X=None, n_generations=12, span=None, ref_point=None,
    unit=1.0,
):  # fmt: skip
    strategy = TCEHVI(search=RVEAConfig(n_generations=n_generations), n_ref_vectors=30)
    run = initial_view(problem, [0], n_slow=20, n_init=10)
    X = numbers("start", 12, problem.d)[0] if X is None else X
    Y = problem.evaluate(problem.from_unit(X))
    run = with_rows(run, X, Y)
    is_known = torch.ones(1, len(X), dtype=torch.bool)
    span = Y.amax(dim=0) - Y.amin(dim=0) if span is None else span
    how = Search(
        rvea=strategy.search,
        n_ref_vectors=30,
        moves_variables=moves,
        climbs=climbs,
    )
    return run, how.run(
        run, exact(problem, unit), Y[None], is_known, is_known, span[None, None], None, ref_point,
        Chances(), 1,
    )  # fmt: skip


@pytest.mark.parametrize("climbs", [False, True])
def test_the_pool_holds_the_predicted_front_and_scores_that_are_its_ehvi(climbs):
    problem = Toy(d=3)
    _, pool = search(problem, climbs=climbs)
    # The population; four rounds of offspring; four candidates with each of three variables
    # elsewhere; and those that climbed.
    n = 30 + 4 * 30 + 4 * 3 + climbs * 24
    assert pool.X.shape == (1, n, 3)
    assert ((pool.X >= 0) & (pool.X <= 1)).all()
    X, front = pool.X, pool.front
    mean, variance = exact(problem).predict(X)
    expected = front.log_ehvi(front.scale(mean), variance / front.extent.square())
    is_there = pool.score > -torch.inf
    assert torch.allclose(pool.score[is_there], expected[is_there], rtol=1e-12)
    # The population lies on the front: between the minima.
    alive = pool.population.X[0][pool.population.alive[0]]
    assert (alive.std(dim=-1) < 0.25).all()
    assert torch.allclose(pool.population.F, problem.evaluate(pool.population.X))
    # The offspring of good candidates are better than the first ones.
    assert pool.score[0, 30:].amax() >= pool.score[0, :30].amax() - 0.7


def test_candidates_that_climb_are_better():
    problem = Toy(d=3)
    pools = [search(problem, climbs=climbs, n_generations=2)[1] for climbs in (False, True)]
    n = pools[0].X.shape[1]
    assert torch.equal(pools[1].X[:, :n], pools[0].X)
    assert torch.equal(pools[1].score[:, :n], pools[0].score)
    climbed = pools[1].score[:, n:]
    assert climbed.amax() > pools[0].score.amax()
    # Even those from along the predicted front come near it.
    assert climbed.median() > pools[0].score.sort().values[0, n - n // 10]


def test_an_objective_in_other_units_is_searched_the_same():
    scaled = Toy(d=3)
    fast = scaled.fast
    object.__setattr__(scaled, "fast", lambda X: 2.0**20 * fast(X))
    plain, other = search(Toy(d=3))[1], search(scaled, unit=2.0**20)[1]
    assert torch.equal(plain.X, other.X)
    assert plain.population.alive.sum() > 10


def test_climbing_finds_corners():
    """The minimum of both objectives lies in a corner; the search begins some way from it."""
    problem = Toy(d=8)
    object.__setattr__(problem, "fast", lambda X: X.sum(dim=-1))
    object.__setattr__(problem, "slow", lambda X: X.square().sum(dim=-1))
    X, n = 0.2 * numbers("start", 12, 8)[0], []
    for climbs in (True, False):
        _, pool = search(problem, moves=False, climbs=climbs, X=X, n_generations=2)
        n.append(int((pool.X == 0).all(dim=-1).sum()))
    assert n[0] > 0
    assert n[1] == 0


def test_a_variable_that_is_wrong_in_all_candidates_is_moved():
    """Both objectives have valleys at 0; all points lie on the plain, far away from them."""
    problem = Toy(d=6)

    def plain(X):
        return X.sum(dim=-1) - 4.0 * (X[..., 1:] < 0.2).sum(dim=-1)

    object.__setattr__(problem, "fast", plain)
    object.__setattr__(problem, "slow", lambda X: plain(X) + X[..., 0].square())
    X = numbers("start", 12, 6)[0]
    X[:, 1:] = 1.0
    best = []
    for moves in (True, False):
        _, pool = search(problem, moves=moves, climbs=False, X=X, n_generations=1)
        best.append(pool.X[0, pool.score[0].argmax()])
    assert (best[0][1:] < 0.2).any()
    assert (best[1][1:] > 0.2).all()


def test_one_variable_is_moved_at_a_time_half_of_them_to_faces():
    problem = Toy(bounds=[[0.0] * 5, [4.0] + [1.0] * 4], integers=(0,))
    run = initial_view(problem, range(40), n_slow=20, n_init=10)
    X = snap(numbers("moved", 40 * 3, 5).reshape(40, 3, 5), run.grid)
    moved = _one_moved(X, run, step=7).unflatten(1, (3, 5))
    differs = moved != X.unsqueeze(2)
    assert not (differs & ~torch.eye(5, dtype=torch.bool)).any()
    elsewhere = moved.diagonal(dim1=-2, dim2=-1)
    assert torch.equal(elsewhere[..., 0], elsewhere[..., 0].mul(4).round() / 4)
    on_faces = [(elsewhere[..., 1:] == face).double().mean().item() for face in (0.0, 1.0)]
    assert on_faces == pytest.approx([0.25, 0.25], abs=0.06)  # 480 draws
    alone = initial_view(problem, [3], n_slow=20, n_init=10)
    assert torch.equal(_one_moved(X[3:4], alone, step=7), moved[3:4].flatten(1, 2))


def test_integers_are_snapped_in_the_pool():
    problem = Toy(bounds=[[0.0, 0.0], [4.0, 1.0]], integers=(0,))
    X = numbers("start", 12, 2)[0]
    X[:, 0] = (X[:, 0] * 4).round() / 4
    _, pool = search(problem, X=X)
    assert torch.allclose(pool.X[..., 0] * 4, (pool.X[..., 0] * 4).round())
