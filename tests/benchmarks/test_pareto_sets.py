import pytest
import torch

from benchmarks import pareto_sets
from tcsaea_torch import problems
from tcsaea_torch.metrics import hypervolume
from tcsaea_torch.problems.fronts import stored_set


@pytest.mark.parametrize("name", ["gmm", "kursawe"])
def test_a_short_search_comes_close_to_what_is_stored(monkeypatch, name):
    for constant, value in (("N_UNIFORM", 5000), ("N_ROUNDS", 20), ("N_STEPS", 2000)):
        monkeypatch.setattr(pareto_sets, constant, value)
    problem = problems.get(name)
    X = pareto_sets.search(name, seed=1)
    assert ((X >= problem.bounds[0]) & (X <= problem.bounds[1])).all()
    found, stored = (
        hypervolume(problem.evaluate(points), problem.ref_point) for points in (X, stored_set(name))
    )
    assert 0.99 * stored < found < 1.002 * stored


@pytest.mark.parametrize("name", pareto_sets.NAMES)
def test_stored_sets_go_by_the_first_objective(name):
    Y = problems.get(name).evaluate(stored_set(name))
    assert (Y.diff(dim=0) * torch.tensor([1.0, -1.0]) > 0).all()


def test_the_ends_of_fronts_that_are_known_are_stored():
    kursawe = problems.get("kursawe").pareto_front(400)
    assert kursawe[0].tolist() == pytest.approx([-20.0, 0.0], abs=1e-3)
    assert kursawe[-1].tolist() == pytest.approx([-14.435463549, -11.627286837], abs=1e-4)
    hatch = problems.get("re24").pareto_front(400)
    assert float(hatch[0, 0]) == 60.5
    assert hatch[-1].tolist() == pytest.approx([4500 / 2800 + 480, 0.0], abs=1e-3)
    # An earlier search by NSGA-II, as told in BoTorch, came to a hypervolume of 59.360.
    front = problems.get("branin-currin").pareto_front(400)
    assert hypervolume(front, torch.tensor([18.0, 6.0])) == pytest.approx(59.360, abs=0.3)
