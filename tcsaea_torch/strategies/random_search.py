"""Random search: a Latin hypercube, then uniform points, all with both objectives."""

from dataclasses import dataclass

import torch

from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import Proposal, RunView, State, register


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Configuration of random search; there is nothing to configure but its name.

    It spends the whole slow budget in two steps and waits for nothing.
    """

    name: str = "random"
    """Name of this configuration."""

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        return {"step": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the initial design first, then all remaining points at once."""
        step = int(state["step"])
        n = int(run.left.amin())
        if step == 0:
            X = steps.design(run, min(n, run.n_init), "design")
        else:
            shape = (n if step == 1 else 0, run.d)
            X = snap(uniforms(run.seeds, "random", step, shape, dtype=run.dtype), run.grid)
        mask = torch.ones(*X.shape[:2], 2, dtype=torch.bool, device=run.device)
        return Proposal(X=X, evaluation_mask=mask), {"step": step + 1}


register("random", RandomSearch)
