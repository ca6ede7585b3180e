"""Training data of the rows."""

from typing import Any

import torch

from tcsaea_torch import problems
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.types import Tensor

SEED = 100
"""No seed from here on was used while anything in the library was tuned."""


def design(n: int, d: int, device: str = "cpu", name: str = "micro") -> Tensor:
    """Return a Latin hypercube `n x d`."""
    seeds = torch.tensor([SEED], device=device)
    u, jitter = (uniforms(seeds, f"{name}/{part}", 0, (n, d)) for part in ("order", "place"))
    return latin_hypercube(u, jitter)[0]


def slow_values(problem: str, X: Tensor) -> Tensor:
    """Return the slow objective at points of the unit cube.

    DTLZ2's takes any number of dimensions.
    """
    options: dict[str, Any] = {"box": "unit"} if problem.startswith("uf") else {}
    return torch.as_tensor(problems.get(problem, **options).slow(X))
