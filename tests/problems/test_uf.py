import pytest
import torch

from tcsaea_torch import metrics, problems
from tcsaea_torch.errors import InvalidInputError
from tests.conftest import load_reference

CASES = [c for c in load_reference("problems")["problems"] if c["name"].startswith("UF")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_values_box_and_front_are_those_of_t_saea(case, tensor):
    problem = problems.get(case["name"].lower())
    assert torch.equal(problem.bounds, torch.stack([tensor(case["lower"]), tensor(case["upper"])]))
    F = tensor(case["F"])
    error = (problem.evaluate(tensor(case["X"])) - F).abs() / F.abs().clamp_min(1.0)
    assert error.max() < 1e-12
    front = tensor(case["front_samples_T_SAEA"])
    assert torch.allclose(problem.pareto_front(11), front, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7"])
def test_batches_devices_types_and_boxes(name, device):
    problem = problems.get(name, box="unit", tau=7)
    assert problem.tau == 7
    assert problem.bounds.tolist() == [[0.0] * 30, [1.0] * 30]
    X = torch.rand(2, 5, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Y = problem.evaluate(X.to(device))
    assert Y.device == X.to(device).device
    alone = torch.stack([problem.evaluate(x) for x in X])
    assert torch.allclose(Y.cpu(), alone, rtol=0, atol=1e-12)
    rough = problem.evaluate(X.float())
    assert rough.dtype == torch.float32
    # Where the released code's box is used, the objectives are the same functions.
    assert torch.equal(alone, problems.get(name).evaluate(X))


@pytest.mark.parametrize("name", ["uf1", "uf2", "uf3", "uf4", "uf5", "uf6", "uf7"])
def test_fronts_are_non_dominated_and_large(name):
    front = problems.get(name).pareto_front(1000)
    assert metrics.is_non_dominated(front).all()
    expected = {"uf5": 21, "uf6": 501}.get(name, 1000)
    assert abs(len(front) - expected) <= 1


def test_points_of_the_pareto_set_lie_on_the_front():
    x1 = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
    j = torch.arange(2, 31)
    xj = torch.sin(6 * torch.pi * x1 + j * torch.pi / 30)
    problem = problems.get("uf1")
    Y = problem.evaluate(torch.cat([x1, xj], dim=-1))
    assert torch.allclose(Y[:, 1], 1 - Y[:, 0].sqrt(), atol=1e-12)
    assert metrics.igd(Y, problem.pareto_front(1000)) < 5e-3


@pytest.mark.usefixtures("unchecked")
def test_wrong_names_are_refused():
    with pytest.raises(InvalidInputError, match="box must be one of true, unit, got 'units'"):
        problems.get("uf1", box="units")
    with pytest.raises(InvalidInputError, match="did you mean 'uf"):
        problems.get("uf")
