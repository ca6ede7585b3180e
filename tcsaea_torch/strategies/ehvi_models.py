"""The surrogates of TC-EHVI, and which rows of an archive they learn from."""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.fitting import FitConfig, maximise_likelihood
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.base import FAST, SLOW, RunView, State, tensor_in
from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many rows a model learns from."""

    fit: int
    """Rows whose likelihood is maximised."""
    condition: int
    """Rows that predictions rest on."""

    @classmethod
    def of(cls, d: int) -> "Sizes":
        """Return the sizes for d dimensions."""
        return cls(fit=400, condition=700) if d <= 13 else cls(fit=300, condition=400)


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """What may be known of b runs at this moment."""

    X: Float[Tensor, "b n d"]
    Y: Float[Tensor, "b n 2"]
    observed: Bool[Tensor, "b n 2"]
    is_space: Bool[Tensor, "b n"]
    """Rows that fill the space, where others were chosen by a model."""

    @property
    def fast(self) -> Bool[Tensor, "b n"]:
        return self.observed[..., FAST]

    @property
    def slow(self) -> Bool[Tensor, "b n"]:
        return self.observed[..., SLOW]

    @property
    def both(self) -> Bool[Tensor, "b n"]:
        return self.observed.all(dim=-1)

    def training_set(self, column: int) -> TrainingSet:
        """Return the values of an objective."""
        return TrainingSet.from_mask(self.X, self.Y[..., column], self.observed[..., column])


@dataclass(frozen=True, kw_only=True, eq=False)
class Models:
    """GP_f and GP_s of each run."""

    fast: Surrogate
    slow: Surrogate

    def mean(self, X: Float[Tensor, "b k d"]) -> Float[Tensor, "b k 2"]:
        """Predict both objectives."""
        return torch.stack([self.fast.mean(X), self.slow.mean(X)], dim=-1)

    def predict(
        self, X: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b k 2"], Float[Tensor, "b k 2"]]:
        """Predict means and variances of both objectives."""
        (mean_f, var_f), (mean_s, var_s) = self.fast.predict(X), self.slow.predict(X)
        return torch.stack([mean_f, mean_s], dim=-1), torch.stack([var_f, var_s], dim=-1)

    def predict_joint(
        self, X: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b k 2"], Float[Tensor, "b 2 k k"]]:
        """Predict means, and covariances between the points."""
        (mean_f, cov_f), (mean_s, cov_s) = self.fast.predict_joint(X), self.slow.predict_joint(X)
        return torch.stack([mean_f, mean_s], dim=-1), torch.stack([cov_f, cov_s], dim=1)


def choose_rows(
    known: Bool[Tensor, "b n"],
    is_space: Bool[Tensor, "b n"],
    distance: Float[Tensor, "b n"],
    n_max: int,
    u: Float[Tensor, "b n"],
) -> Int[Tensor, "b k"]:
    """Return at most n_max rows: half of them space-filling, a quarter near the front.

    The rest is drawn at random. A sample of the best alone would know nothing of where the
    search has not been.

    Args:
        known: Rows to choose from.
        is_space: Rows that fill the space.
        distance: From the front; the smallest are near.
        n_max: How many.
        u: Uniform numbers that decide.
    """
    n = known.shape[1]
    if n <= n_max:
        return torch.arange(n, device=known.device).expand(known.shape)
    group = _mark_first(u, known & is_space, n_max // 2)
    near = _mark_first(distance, known & ~group, n_max // 4)
    key = torch.where(group | near, u - 1.0, u).masked_fill(~known, torch.inf)
    return key.argsort(dim=1)[:, :n_max]


def _mark_first(key: Tensor, among: Tensor, n: int) -> Tensor:
    """Mark the n rows of smallest keys."""
    rank = key.masked_fill(~among, torch.inf).argsort(dim=1, stable=True).argsort(dim=1)
    return among & (rank < n)


def distance_from_front(
    Y: Float[Tensor, "b n 2"], front: Float[Tensor, "b t 2"], alive: Bool[Tensor, "b t"]
) -> Float[Tensor, "b n"]:
    """Return by how much both values must fall, at least, for a point not to be dominated.

    Args:
        Y: Points, in units in which the objectives compare.
        front: Points of the front.
        alive: Which of them exist.
    """
    gap = (Y.unsqueeze(2) - front.unsqueeze(1)).amin(dim=-1)
    return gap.masked_fill(~alive.unsqueeze(1), -torch.inf).amax(dim=-1)
