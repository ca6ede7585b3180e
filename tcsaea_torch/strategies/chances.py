"""Keep proposals away from where evaluations fail, as far as that has been learned."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tcsaea_torch.models.success import Success, learn_success
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.base import FAST, SLOW, RunView
from tcsaea_torch.types import Float, Tensor

_LOWEST = 1e-3
"""Probabilities are not taken to be lower: nothing is excluded for good."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Chances:
    """How likely evaluations succeed. By default nothing is known, and nothing changes."""

    fast: Success | None = None
    slow: Success | None = None

    @classmethod
    def learn(cls, run: RunView, period: int, n_max: int) -> "Chances":
        """Learn from the values and failures so far.

        Args:
            run: The runs.
            period: Counter for the random numbers.
            n_max: Rows to learn from, at most.
        """
        archive, models = run.archive, []
        for name, column in (("fast", FAST), ("slow", SLOW)):
            shape = archive.X.shape[1:2]
            u = uniforms(run.seeds, f"success/{name}", period, shape, dtype=run.dtype)
            done, failed = archive.observed[..., column], run.failed[..., column]
            models.append(learn_success(archive.X, done, failed, n_max, u))
        return cls(fast=models[0], slow=models[1])

    @property
    def are_known(self) -> bool:
        """Whether there is anything to keep away from."""
        return self.fast is not None or self.slow is not None

    def of(self, X: Float[Tensor, "b k d"], *, fast_only: bool = False) -> Float[Tensor, "b k"]:
        """Return how likely both evaluations at each point succeed, or the fast one."""
        p = torch.ones_like(X[..., 0])
        for model in (self.fast,) if fast_only else (self.fast, self.slow):
            p = p if model is None else p * model.probability(X)
        return p.clamp_min(_LOWEST)

    def worsen(
        self, predict: Callable[[Tensor], Tensor], run: RunView
    ) -> Callable[[Tensor], Tensor]:
        """Return predictions that are worse by the range of the values where all fails."""
        if not self.are_known:
            return predict
        is_known = run.archive.observed
        low = run.archive.Y.masked_fill(~is_known, torch.inf).amin(dim=1, keepdim=True)
        high = run.archive.Y.masked_fill(~is_known, -torch.inf).amax(dim=1, keepdim=True)
        spread = (high - low).nan_to_num(posinf=0.0, neginf=0.0)
        return lambda X: predict(X) + (1.0 - self.of(X)).unsqueeze(-1) * spread

    def lengthen(
        self, F: Float[Tensor, "b k m"], X: Float[Tensor, "b k d"], alive: Tensor
    ) -> Float[Tensor, "b k m"]:
        """Move values away from their ideal point by 1 over the probability of success."""
        if not self.are_known:
            return F
        ideal = F.masked_fill(~alive.unsqueeze(-1), torch.inf).amin(dim=1, keepdim=True)
        return ideal + (F - ideal) / self.of(X).unsqueeze(-1)

    def order(
        self, X: Float[Tensor, "b k d"], u: Float[Tensor, "b k"], *, fast_only: bool = False
    ) -> Float[Tensor, "b k"]:
        """Return keys that sort points at random; those likely to succeed tend to come first.

        Args:
            X: The points.
            u: Uniform numbers, which are the keys if nothing is known.
            fast_only: Whether only the fast objective is to be evaluated.
        """
        if not self.are_known:
            return u
        # The first of exponential times comes with a probability in proportion to its rate.
        return -torch.log1p(-u) / self.of(X, fast_only=fast_only)
