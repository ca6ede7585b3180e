import pytest
import torch

from tcsaea_torch import problems
from tcsaea_torch.metrics import hypervolume, is_non_dominated


@pytest.mark.parametrize("name", ["wfg2", "wfg4", "wfg9"])
def test_box_dimensions_and_reference_point(name):
    problem = problems.get(name, k=3, l=6)
    assert problem.bounds[0].tolist() == [0.0] * 9
    assert problem.bounds[1].tolist() == [2.0 * i for i in range(1, 10)]
    assert problem.ref_point.tolist() == pytest.approx([2.2, 4.4])


def test_wfg2_has_the_optima_of_its_shape():
    """All positions of the shape, of which the front holds those that are not dominated."""
    x = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    f1 = 2 * (1 - torch.cos(x * torch.pi / 2))
    f2 = 4 * (1 - x * torch.cos(5 * torch.pi * x) ** 2)
    shape = torch.stack([f1, f2], dim=-1)
    lowest = torch.cat([f2[:1] + 1, f2.cummin(dim=0).values[:-1]])
    expected = shape[f2 < lowest]  # f1 rises with x
    front = problems.get("wfg2").pareto_front(50_000)
    assert is_non_dominated(front[::25]).all()
    ref_point = torch.tensor([2.2, 4.4])
    found, best = (hypervolume(Y[::25], ref_point) for Y in (front, expected))
    assert found == pytest.approx(best, rel=1e-3)
    pieces = int((front[:, 0].diff() > 0.03).sum()) + 1
    assert pieces == int((expected[:, 0].diff() > 0.03).sum()) + 1 == 6


@pytest.mark.parametrize("name", ["wfg4", "wfg9"])
def test_fronts_are_quarters_of_ellipses(name):
    front = problems.get(name).pareto_front(50)
    radii = (front / torch.tensor([2.0, 4.0])).norm(dim=-1)
    torch.testing.assert_close(radii, torch.ones_like(radii))
