import pytest
import torch
from botorch.test_functions.multi_objective import GMM, BraninCurrin

from tcsaea_torch import problems


@pytest.mark.parametrize(("name", "kind"), [("branin-currin", BraninCurrin), ("gmm", GMM)])
def test_values_and_reference_points_are_those_of_botorch(name, kind):
    problem, theirs = problems.get(name), kind()
    X = torch.rand(3, 50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # GMM's constants are in single precision there.
    tolerance = 1e-6 if name == "gmm" else 1e-12
    torch.testing.assert_close(
        problem.evaluate(X), theirs.evaluate_true(X).double(), rtol=tolerance, atol=tolerance
    )
    assert problem.ref_point.tolist() == theirs._ref_point


def test_kursawe_at_its_ends():
    problem = problems.get("kursawe")
    assert problem.evaluate(torch.zeros(1, 3).double()).tolist() == [[-20.0, 0.0]]
    best = torch.full((1, 3), -1.152740847545, dtype=torch.float64)
    Y = problem.evaluate(best)[0]
    assert Y.tolist() == pytest.approx([-14.435463549, -11.627286837], abs=1e-8)
    # A tenth of the range behind the nadir.
    expected = [-14.435463549 + 0.5564536451, 1.1627286837]
    assert problem.ref_point.tolist() == pytest.approx(expected, abs=1e-8)


def test_fronts_are_thinned():
    front = problems.get("gmm").pareto_front(400)
    few = problems.get("gmm").pareto_front(5)
    assert len(few) == 5
    assert torch.equal(few[[0, -1]], front[[0, -1]])
