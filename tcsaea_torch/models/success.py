"""How likely an evaluation succeeds, learned from those that did and those that failed.

Successes are labelled 1 and failures 0; a Kriging model of the labels, with noise, is a
classifier by least squares [Rasmussen2006, section 6.5]. Its prediction as a normal
distribution gives the probability that the label lies above one half.

[Rasmussen2006] C. E. Rasmussen, C. K. I. Williams. Gaussian Processes for Machine Learning.
MIT Press, 2006.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.types import Bool, Float, Tensor

N_FAILURES = 3
"""Failures from which on they are learned from."""

_LABEL_NOISE = 0.05
"""Variance of a label: neighbours may differ by chance."""

_FIT = FitConfig(
    theta_range=(1e-2, 1e3), starts=(2.0, 20.0), options=BFGSOptions(max_evaluations=30)
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Success:
    """What is known of the success of one objective's evaluations, for b runs."""

    model: Surrogate
    """Of the labels."""
    is_learned: Bool[Tensor, " b"]
    """Runs with enough failures; in others everything is taken to succeed."""

    def probability(self, X: Float[Tensor, "b k d"]) -> Float[Tensor, "b k"]:
        """Return how likely an evaluation at each point succeeds."""
        mean, variance = self.model.predict(X)
        z = (mean - 0.5) / (variance + _LABEL_NOISE).sqrt()
        return torch.where(self.is_learned.unsqueeze(-1), torch.special.ndtr(z), 1.0)


def learn_success(
    X: Float[Tensor, "b n d"],
    succeeded: Bool[Tensor, "b n"],
    failed: Bool[Tensor, "b n"],
    n_max: int,
    u: Float[Tensor, "b n"],
) -> Success | None:
    """Learn from evaluations of one objective; None if no run has enough failures.

    Args:
        X: Points in the unit cube.
        succeeded: Where there is a value.
        failed: Where the evaluation failed for good.
        n_max: Rows to learn from, at most; see `_limit`.
        u: Uniform numbers that decide which.
    """
    is_learned = failed.sum(dim=1) >= N_FAILURES
    if not bool(is_learned.any()):
        return None
    labels = TrainingSet.from_mask(X, succeeded.to(X.dtype), succeeded | failed)
    labels = _limit(merge_duplicates(labels), n_max, u).compact()
    noise = torch.where(labels.live, _LABEL_NOISE, torch.inf)
    labels = TrainingSet(X=labels.X, y=labels.y, noise_var=noise)
    constant = torch.zeros_like(is_learned)
    return Success(model=fit(labels, _FIT, trend=constant), is_learned=is_learned)


def _limit(labels: TrainingSet, n_max: int, u: Float[Tensor, "b n"]) -> TrainingSet:
    """Keep at most n_max rows: up to half of them failures, and of all others a uniform sample."""
    if labels.X.shape[1] <= n_max:
        return labels
    failed = labels.live & (labels.y < 0.5)
    rank = u.masked_fill(~failed, torch.inf).argsort(dim=1).argsort(dim=1)
    key = torch.where(failed & (rank < n_max // 2), u - 1.0, u).masked_fill(~labels.live, torch.inf)
    return labels.take(key.argsort(dim=1)[:, :n_max])
