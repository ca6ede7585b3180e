"""Search the Pareto sets that have no closed form, for `tcsaea_torch/problems/pareto_sets.json`.

    python -m benchmarks.pareto_sets

Uniform points of the whole box first, then ever smaller steps from those that are not dominated,
which are thinned to even distances along the front. A problem's search takes seconds.
"""

import json
from pathlib import Path

import torch

import tcsaea_torch
from tcsaea_torch import problems
from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.types import Float, Tensor

PATH = Path(tcsaea_torch.__file__).parent / "problems" / "pareto_sets.json"
NAMES = ("branin-currin", "gmm", "kursawe", "re24")
N_UNIFORM, N_ROUNDS, N_STEPS, N_KEPT, N_STORED = 400_000, 120, 20_000, 2000, 400
WIDEST, NARROWEST = 0.1, 1e-7
DIGITS = 10


def _spread(Y: Float[Tensor, "n 2"], n: int) -> Tensor:
    """Return which n rows of a front, sorted by f1, lie at the most even distances along it."""
    if len(Y) <= n:
        return torch.arange(len(Y))
    scaled = (Y - Y.amin(dim=0)) / (Y.amax(dim=0) - Y.amin(dim=0))
    # Jumps between pieces count as nothing: no point lies there.
    steps = scaled.diff(dim=0).norm(dim=-1)
    steps = torch.where(steps > 0.02, 0.0, steps)
    length = torch.cat([steps.new_zeros(1), steps.cumsum(dim=0)])
    wanted = torch.linspace(0.0, float(length[-1]), n, dtype=length.dtype)
    chosen = torch.searchsorted(length, wanted).clamp_max(len(Y) - 1)
    return torch.cat([chosen, torch.tensor([0, len(Y) - 1])]).unique()


def _best(problem: problems.TestProblem, U: Tensor, n: int) -> Tensor:
    """Return n of those points that are not dominated, by f1."""
    Y = problem.evaluate(problem.from_unit(U))
    order = Y[:, 0].argsort()
    U, Y = U[order], Y[order]
    lowest = Y[:, 1].cummin(dim=0).values
    is_lower = Y[1:, 1] < lowest[:-1]  # than all with a lower f1
    keep = torch.cat([torch.ones(1, dtype=torch.bool), is_lower])
    return U[keep][_spread(Y[keep], n)]


def search(name: str, seed: int = 0) -> Float[Tensor, "k d"]:
    """Return points close to the Pareto set, in the problem's units, sorted by f1."""
    problem, generator = problems.get(name), torch.Generator().manual_seed(seed)
    U = torch.rand(N_UNIFORM, problem.d, generator=generator, dtype=torch.float64)
    corners = torch.tensor([[0.0], [1.0]], dtype=U.dtype).expand(2, problem.d)
    middle = torch.full_like(corners[:1], 0.5)
    U = _best(problem, torch.cat([U, corners, middle]), N_KEPT)
    for i in range(N_ROUNDS):
        size = WIDEST * (NARROWEST / WIDEST) ** (i / (N_ROUNDS - 1))
        parents = U[torch.randint(len(U), (N_STEPS,), generator=generator)]
        steps = torch.randn(parents.shape, generator=generator, dtype=U.dtype)
        kept = torch.rand(parents.shape, generator=generator) < 0.7  # some variables stay
        U = _best(problem, torch.cat([U, (parents + size * steps * kept).clamp(0, 1)]), N_KEPT)
    X = problem.from_unit(_best(problem, U, N_STORED))
    X = X.new_tensor([[float(f"{value:.{DIGITS}g}") for value in x] for x in X.tolist()])
    return X[is_non_dominated(problem.evaluate(X))]  # rounding may have spoilt some


def main() -> None:
    """Write the file."""
    sets = {name: search(name).tolist() for name in NAMES}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(X)}" for name, X in sets.items())
    made_by = json.dumps("python -m benchmarks.pareto_sets: points in the problem's units, by f1")
    PATH.write_text(f'{{"made_by": {made_by},\n "sets": {{\n{lines}\n}}}}\n')
    print(", ".join(f"{name}: {len(X)} points" for name, X in sets.items()))


if __name__ == "__main__":
    main()
