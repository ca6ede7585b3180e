"""Random search: a Latin hypercube, then uniform points, all with both objectives."""

from dataclasses import dataclass

from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import Proposal, RunView, State, register
from tcsaea_torch.validation import check_text


@dataclass(frozen=True, kw_only=True)
class RandomSearch:
    """Configuration of random search; there is nothing to configure but its name.

    It spends the whole slow budget in two steps and waits for nothing; points that turn
    out to be known, in a finite space, are left out.
    """

    name: str = "random"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        check_text("name", self.name)

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        return {"step": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the initial design first, then all remaining points at once."""
        n = int(run.left.amin())
        n_design = min(n, run.n_init) if state["step"] == 0 else 0
        if n_design:
            X, is_new = steps.design(run, n_design)
        else:
            u = uniforms(run.seeds, "random", len(run.archive), (n, run.d), dtype=run.dtype)
            X, is_new = steps.distinct(snap(u, run.grid), run)
        mask = is_new.unsqueeze(-1).expand(*is_new.shape, 2)
        return Proposal(X=X, evaluation_mask=mask), {"step": int(state["step"]) + 1}


register("random", RandomSearch)
