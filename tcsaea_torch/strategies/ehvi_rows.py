"""What TC-EHVI may know of an archive at a moment, and which rows its models learn from."""

from dataclasses import dataclass

import torch

from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.transfer.links import lower_bounds
from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Which rows a model learns from, where there are too many."""

    n: int
    """How many, at most."""
    space: float
    """Share of them that fill the space."""
    near: float
    """Share of them that are the nearest to the front; the rest is drawn at random."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The rows of a model."""

    fit: Sample
    """Those whose likelihood is maximised."""
    condition: Sample
    """Those that predictions rest on."""

    @classmethod
    def of(cls, d: int, n: int) -> "Samples":
        """Return them for n points in d dimensions: with many of these, kernels cost more.

        Hyper-parameters hold everywhere. Predictions have to be good near the front, if there
        are rows enough to know of the rest as well. A small part of many rows would predict
        worse than all of few.
        """
        if d <= 13:
            return cls(
                fit=Sample(n=400, space=0.5, near=0.25),
                condition=Sample(n=min(max(700, n // 2), 1000), space=0.15, near=0.7),
            )
        return cls(
            fit=Sample(n=300, space=0.5, near=0.25), condition=Sample(n=400, space=0.3, near=0.5)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """The values that a decision may rest on."""

    X: Float[Tensor, "b n d"]
    """Points in the unit cube."""
    Y: Float[Tensor, "b n 2"]
    """Values; 0 where there is none."""
    observed: Bool[Tensor, "b n 2"]
    """Which values are known."""
    is_space: Bool[Tensor, "b n"]
    """Rows that fill the space, where others were chosen with a model."""

    @property
    def fast(self) -> Bool[Tensor, "b n"]:
        """Rows with a fast value."""
        return self.observed[..., FAST]

    @property
    def slow(self) -> Bool[Tensor, "b n"]:
        """Rows with a slow value."""
        return self.observed[..., SLOW]

    @property
    def both(self) -> Bool[Tensor, "b n"]:
        """Rows with both values."""
        return self.observed.all(dim=-1)

    @property
    def span(self) -> Float[Tensor, "b 1 2"]:
        """From the smallest to the largest known value of each objective."""
        high = torch.where(self.observed, self.Y, -torch.inf).amax(dim=1, keepdim=True)
        low = torch.where(self.observed, self.Y, torch.inf).amin(dim=1, keepdim=True)
        return (high - low).nan_to_num(posinf=0.0, neginf=0.0)

    def lower_bound(
        self, given: tuple[float | None, float | None], *, guesses: bool
    ) -> Float[Tensor, "b 2"]:
        """Return what no value falls below: as given, or 0 while none is negative, or -inf.

        Args:
            given: Of each objective; None: unknown.
            guesses: Whether an unknown bound may be 0.
        """
        low = lower_bounds(self.Y, self.observed, given)
        if guesses:
            has_negative = (self.observed & (self.Y < 0)).any(dim=1)
            low = low.masked_fill(low.isneginf() & ~has_negative, 0.0)
        return low

    def values(self, column: int) -> TrainingSet:
        """Return the known values of an objective."""
        return TrainingSet.from_mask(self.X, self.Y[..., column], self.observed[..., column])


def choose_rows(
    live: Bool[Tensor, "b n"],
    is_space: Bool[Tensor, "b n"],
    distance: Float[Tensor, "b n"],
    sample: Sample,
    u: Float[Tensor, "b n"],
    is_preferred: Bool[Tensor, "b n"] | None = None,
) -> Int[Tensor, "b k"]:
    """Return the rows of a sample: some that fill the space, some near the front, some others.

    A model that learned from the best rows alone would know nothing of where the search has
    not been. Of the others, preferred rows come first.

    Args:
        live: Rows to choose from; others are returned only where these are too few.
        is_space: Rows that fill the space.
        distance: From the front.
        sample: How many of each kind.
        u: Uniform numbers that decide.
        is_preferred: Rows that tell more than others; None: there are no such rows.
    """
    n = live.shape[1]
    if n <= sample.n:
        return torch.arange(n, device=live.device).expand(live.shape)
    spread = _first(u, live & is_space, int(sample.space * sample.n))
    near = _first(distance, live & ~spread, int(sample.near * sample.n))
    key = u if is_preferred is None else torch.where(is_preferred, u - 1.0, u)
    key = torch.where(spread | near, u - 2.0, key).masked_fill(~live, torch.inf)
    return key.argsort(dim=1, stable=True)[:, : sample.n]


def _first(key: Tensor, among: Tensor, n: int) -> Bool[Tensor, "b n"]:
    """Mark the n rows with the smallest keys."""
    order = key.masked_fill(~among, torch.inf).argsort(dim=1, stable=True)
    return among & (order.argsort(dim=1) < n)


def non_dominated_rows(
    Y: Float[Tensor, "b n 2"], is_known: Bool[Tensor, "b n"]
) -> tuple[Int[Tensor, "b t"], Bool[Tensor, "b t"]]:
    """Return the rows of each run's front, from the smallest fast value on.

    There are as many as the largest front has, at least one.

    Args:
        Y: Values.
        is_known: Points that count.

    Returns:
        The rows, and which of them are of the front.
    """
    best = is_non_dominated(torch.where(is_known.unsqueeze(-1), Y, torch.nan))
    n = max(1, int(best.sum(dim=1).amax()))
    rows = Y[..., FAST].masked_fill(~best, torch.inf).argsort(dim=1, stable=True)[:, :n]
    return rows, best.gather(1, rows)


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
