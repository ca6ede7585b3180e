import math

import torch

from tcsaea_torch import problems


def by_hand(problem, x):
    """Evaluate the module's formulas at one point, without batches."""
    z = [
        0.5
        + sum(
            float(r) * (float(v) - float(c)) for r, v, c in zip(row, x, problem.centre, strict=True)
        )
        for row in problem.rotation
    ]
    p = min(max(z[0], 0.0), 1.0)
    g = sum((value - 0.5) ** 2 for value in z[1:]) + (z[0] - p) ** 2
    a = math.pi * p / 2
    return [(1 + g) * math.cos(a) - 0.6, (1 + g) * math.sin(a) - 1.5]


def test_values_are_those_of_the_formulas():
    problem = problems.RotatedDTLZ2(seed=4)
    X = torch.rand(30, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.tensor([by_hand(problem, x) for x in X], dtype=torch.float64)
    torch.testing.assert_close(problem.evaluate(X), expected)
    assert (problem.evaluate(X) < 0).any(dim=0).all()
    assert (problem.evaluate(X) > 0).any(dim=0).all()


def test_the_rotation_keeps_lengths_and_the_pareto_set_lies_inside():
    for seed in range(30):
        problem = problems.RotatedDTLZ2(seed=seed)
        R = problem.rotation
        torch.testing.assert_close(R @ R.T, torch.eye(8).double(), rtol=0, atol=1e-12)
        ends = problem.centre + 0.5 * torch.stack([R[0], -R[0]])
        assert ((ends >= 0) & (ends <= 1)).all()


def test_the_seed_decides():
    a, b, c = (problems.RotatedDTLZ2(seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.rotation, b.rotation)
    assert not torch.equal(a.rotation, c.rotation)
    assert not torch.equal(a.centre, c.centre)
    torch.testing.assert_close(a.ref_point, torch.tensor([0.5, -0.4]).double())
