"""Training data of a surrogate: which rows exist, which are believed, and how many.

A row's `noise_var` says how far it is believed: 0 for a measured value, the variance
of its error for an uncertain one, inf for a row that does not exist (padding, or a
value that was rejected). So ragged sets of many runs live in one tensor.
"""

from dataclasses import dataclass, replace

import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.rng import mix64
from tcsaea_torch.rows import take_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingSet(Indexed):
    """Inputs, outputs and noise variances of `*batch` surrogates.

    Raises:
        InvalidInputError: If the shapes do not fit together.
    """

    X: Float[Tensor, "*batch n d"]
    """Points in the unit cube."""
    y: Float[Tensor, "*batch n"]
    """Values, in the objective's units; anything finite where the row does not exist."""
    noise_var: Float[Tensor, "*batch n"]
    """Variance of each value, squared objective units; inf where there is no row."""

    def __post_init__(self) -> None:
        shapes = tuple(self.X.shape[:-1]), tuple(self.y.shape), tuple(self.noise_var.shape)
        if len(set(shapes)) != 1:
            raise InvalidInputError(
                "X, y and noise_var must have shapes (*batch, n, d), (*batch, n) and "
                f"(*batch, n), got {tuple(self.X.shape)}, {shapes[1]} and {shapes[2]}"
            )

    @classmethod
    def from_mask(
        cls, X: Float[Tensor, "*batch n d"], y: Float[Tensor, "*batch n"], live: Bool[Tensor, "..."]
    ) -> "TrainingSet":
        """Make a set of exact values from the rows marked in `live`."""
        noise_var = torch.zeros_like(y).masked_fill(~live, torch.inf)
        return cls(X=X, y=y.masked_fill(~live, 0.0), noise_var=noise_var)

    @property
    def live(self) -> Bool[Tensor, "*batch n"]:
        """Rows that exist."""
        return self.noise_var < torch.inf

    @property
    def n_live(self) -> Int[Tensor, "*batch"]:
        """How many rows exist."""
        return self.live.sum(dim=-1)

    def take(self, index: Int[Tensor, "*batch k"]) -> "TrainingSet":
        """Return the rows with these indices."""
        return TrainingSet(
            X=take_rows(self.X, index),
            y=self.y.gather(-1, index),
            noise_var=self.noise_var.gather(-1, index),
        )

    def compact(self, n: int | None = None) -> "TrainingSet":
        """Move living rows to the front, in order, and cut or pad to n rows.

        Args:
            n: Number of rows to return, at least the largest number of living ones;
                None means exactly that number. Then the host waits for the device once.
        """
        n = max(1, int(self.n_live.max())) if n is None else n
        front = (~self.live).to(torch.int8).argsort(dim=-1, stable=True)
        result = self.take(front[..., :n])
        short = n - result.X.shape[-2]
        if short <= 0:
            return result
        return TrainingSet(
            X=torch.nn.functional.pad(result.X, (0, 0, 0, short)),
            y=torch.nn.functional.pad(result.y, (0, short)),
            noise_var=torch.nn.functional.pad(result.noise_var, (0, short), value=torch.inf),
        )


def stack(sets: list[TrainingSet]) -> TrainingSet:
    """Stack sets of equal shape along a new leading batch dimension."""
    return TrainingSet(
        X=torch.stack([s.X for s in sets]),
        y=torch.stack([s.y for s in sets]),
        noise_var=torch.stack([s.noise_var for s in sets]),
    )


def first_equal_row(
    X: Float[Tensor, "*batch n d"], live: Bool[Tensor, "*batch n"]
) -> Int[Tensor, "*batch n"]:
    """Return, for each row, the index of the first living row exactly equal to it.

    Rows that do not live are given their own index. Rows are compared by a 64-bit
    hash of their bits, so n = 10^5 costs a sort and no n x n table.
    """
    n = X.shape[-2]
    index = torch.arange(n, device=X.device).expand(live.shape)
    bits = (X + 0.0).view(torch.int64 if X.dtype == torch.float64 else torch.int32).long()
    key = torch.zeros_like(index)
    for column in bits.unbind(dim=-1):
        key = mix64(key ^ column) + 1
    # Dead rows hash their own position, far from every living row's hash.
    key = torch.where(live, key, mix64(~index))
    order = key.argsort(dim=-1, stable=True)
    ordered = key.gather(-1, order)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    position = torch.where(starts, index, 0).cummax(dim=-1).values
    return torch.empty_like(order).scatter(-1, order, order.gather(-1, position))


def merge_duplicates(train: TrainingSet) -> TrainingSet:
    """Merge exactly equal points into the first of them.

    Its value is the precision-weighted mean; among exact values (noise 0) their plain
    mean, and uncertain values at the same point are then dropped.
    """
    first = first_equal_row(train.X, train.live)
    exact = train.noise_var == 0.0
    has_exact = _group_sum(exact.to(train.y), first).gather(-1, first) > 0
    precision = torch.where(exact, 1.0, torch.where(has_exact, 0.0, 1.0 / train.noise_var))
    total = _group_sum(precision, first)
    mean = _group_sum(precision * train.y, first) / total.clamp_min(torch.finfo(total.dtype).tiny)
    is_first = first == torch.arange(first.shape[-1], device=first.device)
    kept = is_first & train.live
    noise_var = torch.where(has_exact, 0.0, 1.0 / total)
    # A row alone in its group keeps its bits: (w * y) / w would round.
    alone = _group_sum(torch.ones_like(train.y), first) == 1.0
    return replace(
        train,
        y=torch.where(kept & ~alone, mean, train.y),
        noise_var=torch.where(kept, torch.where(alone, train.noise_var, noise_var), torch.inf),
    )


def _group_sum(values: Tensor, first: Tensor) -> Tensor:
    return torch.zeros_like(values).scatter_add(-1, first, values)


def limit(train: TrainingSet, n_max: int, u: Float[Tensor, "*batch n"]) -> TrainingSet:
    """Keep at most `n_max` rows of each set, after ParEGO [Knowles2006].

    The half with the smallest values, and a uniform sample of the others. Sets that
    are small enough keep all their rows.

    [Knowles2006] J. Knowles. ParEGO: a hybrid algorithm with on-line landscape
    approximation for expensive multiobjective optimization problems. IEEE Trans.
    Evol. Comput. 10(1), 2006.

    Args:
        train: Rows without duplicates.
        n_max: Largest number of rows, >= 2.
        u: Uniform numbers that decide the sample.

    Returns:
        A set with at most `n_max` rows.
    """
    if train.X.shape[-2] <= n_max:
        return train
    n_best = n_max // 2
    rank = train.y.masked_fill(~train.live, torch.inf).argsort(dim=-1).argsort(dim=-1)
    key = torch.where(rank < n_best, -1.0, u).masked_fill(~train.live, torch.inf)
    return train.take(key.argsort(dim=-1)[..., :n_max])


def drop_superseded(train: TrainingSet, measured: Bool[Tensor, "*batch n"]) -> TrainingSet:
    """Drop synthetic rows at points that also have a measured row.

    Args:
        train: Rows with measured and synthetic values.
        measured: Which rows are measured.
    """
    first = first_equal_row(train.X, train.live)
    has_measured = _group_sum((measured & train.live).to(train.y), first).gather(-1, first) > 0
    gone = has_measured & ~measured
    return replace(train, noise_var=train.noise_var.masked_fill(gone, torch.inf))
