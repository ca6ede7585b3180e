import math

import pytest
import torch
from botorch.test_functions import multi_objective

from tcsaea_torch import problems
from tcsaea_torch.metrics import hypervolume


@pytest.mark.parametrize("name", ["zdt1", "zdt2", "zdt3"])
def test_values_and_fronts_are_those_of_botorch(name):
    theirs = getattr(multi_objective, name.upper())(dim=7)
    problem = problems.get(name, d=7)
    X = torch.rand(3, 50, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = theirs.evaluate_true(X)
    if name == "zdt3":  # where the published f2 has a factor g that BoTorch leaves out
        g = 1 + 9 * X[..., 1:].mean(dim=-1)
        expected = torch.stack([expected[..., 0], expected[..., 1] * g], dim=-1)
    torch.testing.assert_close(problem.evaluate(X), expected, rtol=1e-12, atol=1e-12)
    found = hypervolume(problem.pareto_front(2000), torch.tensor([11.0, 11.0]))
    assert found == pytest.approx(theirs._max_hv, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # To the published intervals, and nadir and range by hand.
        ("zdt1", (1.1, 1.1)),
        ("zdt2", (1.1, 1.1)),
        ("zdt3", (1.1 * 0.8518328654, 1 + 0.1 * 1.7733690)),
        ("zdt4", (1.1, 1.1)),
        ("zdt6", (1.0 + 0.1 * (1 - 0.2807753191), 1.1 * (1 - 0.2807753191**2))),
    ],
)
def test_reference_points(name, expected):
    assert problems.get(name).ref_point.tolist() == pytest.approx(expected, abs=1e-6)


def test_local_fronts_of_zdt4():
    """Each further variable at a local optimum near .5 adds a quarter to g."""
    X = torch.zeros(1, 10, dtype=torch.float64)
    X[0, 3] = 0.5
    f2 = problems.get("zdt4").evaluate(X)[0, 1]
    assert float(f2) == pytest.approx(1.25, rel=1e-12)
    assert problems.get("zdt4").bounds[:, :2].tolist() == [[0.0, -5.0], [1.0, 5.0]]


def test_pieces_of_zdt3_have_no_gap_in_f2():
    """Each piece of the front begins as high as the one before ends."""
    front = problems.get("zdt3").pareto_front(20_001)
    jump = front[1:, 0] - front[:-1, 0] > 0.01
    assert int(jump.sum()) == 4
    steps = (front[:-1, 1] - front[1:, 1])[jump]
    assert (steps > 0).all()
    assert (steps < 1e-3).all()
    h = 1 - front[:, 0].sqrt() - front[:, 0] * torch.sin(10 * math.pi * front[:, 0])
    torch.testing.assert_close(front[:, 1], h)
