"""What problems share to describe their fronts: pieces, stored Pareto sets, reference points."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from tcsaea_torch.types import Float, Tensor

_STORED = Path(__file__).parent / "pareto_sets.json"


def spread(pieces: Sequence[tuple[float, float]], n: int) -> Float[Tensor, " n"]:
    """Return n points that are uniform over the union of ascending intervals."""
    length = sum(b - a for a, b in pieces)
    t = torch.linspace(0.0, length, n, dtype=torch.float64)
    x, passed = t.clone(), 0.0
    for a, b in pieces:
        x = torch.where(t > passed, a + (t - passed), x) if passed else a + t
        passed += b - a
    return x.clamp_max(pieces[-1][1])


def reference_point(ideal: Float[Tensor, "2"], nadir: Float[Tensor, "2"]) -> Float[Tensor, "2"]:
    """Return the point behind the nadir by a tenth of the front's range."""
    return nadir + 0.1 * (nadir - ideal)


@cache
def stored_set(name: str) -> Float[Tensor, "k d"]:
    """Return points close to the Pareto set, by the first objective; see the file's `made_by`."""
    sets = json.loads(_STORED.read_text())["sets"]
    return torch.tensor(sets[name], dtype=torch.float64)


def thin(Y: Float[Tensor, "k 2"], n: int) -> Float[Tensor, "m 2"]:
    """Return n of the rows, evenly chosen; all if there are no more."""
    if n >= len(Y):
        return Y
    return Y[torch.linspace(0, len(Y) - 1, n, dtype=torch.float64).round().long()]
