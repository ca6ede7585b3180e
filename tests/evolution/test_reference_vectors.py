import math

import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import simplex_lattice
from tests.conftest import load_reference

LATTICES = load_reference("apd_selection")["uniform_points"]


@pytest.mark.parametrize("case", LATTICES, ids=lambda case: f"{case['N']}x{len(case['W'][0])}")
def test_equals_platemo(case, tensor):
    W = tensor(case["W"])
    assert torch.equal(simplex_lattice(case["N"], W.shape[1]), W)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("n", [5, 20, 57])
def test_is_the_largest_lattice_of_at_most_n_points(n, m):
    W = simplex_lattice(n, m)
    sizes = [math.comb(h + m - 1, m - 1) for h in range(1, 60)]
    assert len(W) == max(s for s in sizes if s <= n or s == m)
    assert torch.allclose(W.sum(dim=-1), torch.ones(len(W)).double(), atol=1e-5)
    assert (W > 0).all()
    assert len(torch.unique(W, dim=0)) == len(W)


@pytest.mark.parametrize(("n", "m"), [(1, 2), (10, 1), (2.5, 2), (True, 2)])
@pytest.mark.usefixtures("unchecked")
def test_refuses_what_is_no_lattice(n, m):
    with pytest.raises(InvalidInputError, match="must be an integer >= 2"):
        simplex_lattice(n, m)
