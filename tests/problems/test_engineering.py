import pytest
import torch

from tcsaea_torch import problems


def test_the_ends_of_the_trusss_front():
    """Ideal and nadir point as its authors give them, after their corrections."""
    front = problems.get("re21").pareto_front(100)
    ideal, nadir = front.amin(dim=0).tolist(), front.amax(dim=0).tolist()
    assert ideal == pytest.approx([1237.8414230005742, 0.002761423749158419], rel=1e-9)
    assert nadir == pytest.approx([2886.3695604236013, 0.04], rel=1e-9)


@pytest.mark.parametrize("name", ["re21", "re24"])
def test_reference_points_are_a_tenth_of_the_range_behind_the_nadir(name):
    problem = problems.get(name)
    front = problem.pareto_front(400)
    ideal, nadir = front.amin(dim=0), front.amax(dim=0)
    scaled = (problem.ref_point - ideal) / (nadir - ideal)
    assert scaled.tolist() == pytest.approx([1.1, 1.1], abs=1e-6)


def test_the_lightest_cover_that_keeps_all_limits():
    """Shear asks for x2 >= 4, bending for x1 x2 >= 4500 / 700; the other limits have room."""
    X = torch.tensor([[4500 / 2800, 4.0], [1.6, 4.0], [1.7, 3.9]], dtype=torch.float64)
    violated = problems.get("re24").evaluate(X)[:, 1].tolist()
    assert violated[0] == pytest.approx(0.0, abs=1e-12)
    assert violated[1] == pytest.approx(4500 / 6.4 / 700 - 1)
    assert violated[2] == pytest.approx(1800 / 3.9 / 450 - 1)
