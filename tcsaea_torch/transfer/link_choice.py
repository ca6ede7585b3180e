"""Which link is used: errors against those of the slow objective's own model."""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.bundles import Indexed
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import LeaveOneOut
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rows import take_rows
from tcsaea_torch.transfer.links import Link, LinkConfig, Scales, slow_by_choice
from tcsaea_torch.types import Bool, Float, Int, Tensor

_LARGEST_CORRELATION = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows(Indexed):
    """The rows with both values, moved to the front."""

    X: Float[Tensor, "b n d"]
    fast: Float[Tensor, "b n"]
    slow: Float[Tensor, "b n"]
    live: Bool[Tensor, "b n"]
    error: Float[Tensor, "b n"]
    """Of the slow model, leave-one-out."""

    @classmethod
    def of(cls, X: Tensor, y_fast: Tensor, y_slow: Tensor, both: Tensor, error: Tensor) -> "Rows":
        """Take them from all rows; the host waits for the device once."""
        n = max(1, int(both.sum(dim=-1).max()))
        order = (~both).to(torch.int8).argsort(dim=-1, stable=True)[..., :n]
        live = both.gather(-1, order)
        columns = (y_fast, y_slow, error)
        fast, slow, error = (torch.where(live, column.gather(-1, order), 0.0) for column in columns)
        return cls(X=take_rows(X, order), fast=fast, slow=slow, live=live, error=error)

    @property
    def better(self) -> Bool[Tensor, "b n"]:
        """The half with the smaller sums of the ranks in both objectives."""
        ranks = [
            y.masked_fill(~self.live, torch.inf).argsort(dim=-1, stable=True).argsort(dim=-1)
            for y in (self.fast, self.slow)
        ]
        total = (ranks[0] + ranks[1]).masked_fill(~self.live, 2 * self.live.shape[-1])
        place = total.argsort(dim=-1, stable=True).argsort(dim=-1)
        half = (self.live.sum(dim=-1, keepdim=True) + 1) // 2
        return self.live & (place < half)


def nugget_variance(surrogate: Surrogate) -> Float[Tensor, "*batch"]:
    """Return the part of a value's variance that its own nugget holds; 0 for a fixed one."""
    nugget, variance = surrogate.hyperparameters.nugget, surrogate.hyperparameters.variance
    assert variance is not None
    return torch.zeros_like(variance) if nugget is None else nugget * variance


def judge(
    errors: Float[Tensor, "l b n"],
    says: Bool[Tensor, "l b n"],
    own: Float[Tensor, "b n"],
    data: Rows,
    config: LinkConfig,
) -> tuple[Float[Tensor, "l b"], Bool[Tensor, "l b"]]:
    """Return each link's score, and whether it is clearly better than the slow model's `own`."""
    # Where a link says nothing, the slow model is used.
    errors = torch.where(says, errors, own)
    span = torch.where(data.live, data.slow, -torch.inf).amax(dim=-1, keepdim=True)
    span = span - torch.where(data.live, data.slow, torch.inf).amin(dim=-1, keepdim=True)
    # An error of rounding is as good as one of a tenth of it.
    small = torch.where(span > 0, span, 1.0).nan_to_num(posinf=1.0, neginf=1.0)
    small = small * 64.0 * torch.finfo(errors.dtype).eps
    gain = (torch.maximum(errors.abs(), small) / torch.maximum(own.abs(), small)).log()
    better, n = data.better, data.better.sum(dim=-1)
    gain = torch.where(better, gain, 0.0)
    score = gain.sum(dim=-1) / n.clamp_min(1)
    spread = torch.where(better, gain - score.unsqueeze(-1), 0.0).square().sum(dim=-1)
    standard_error = (spread / ((n - 1).clamp_min(1) * n.clamp_min(1))).sqrt()
    is_used = score + config.confidence * standard_error < -config.margin
    limit = config.largest_square * _trimmed_square(own, data.live, config.trimmed)
    is_used &= _trimmed_square(errors, data.live, config.trimmed) < limit
    return score, is_used & (data.live.sum(dim=-1) >= config.min_rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trust(Indexed):
    """What cross-validation says of the chosen links of `b` runs."""

    is_confirmed: Bool[Tensor, "*batch"]
    factor: Float[Tensor, "*batch"]
    """By which the link's variances are multiplied to cover its errors."""
    slow_factor: Float[Tensor, "*batch"]
    """The same for the slow model's."""
    slow_square: Float[Tensor, "*batch"]
    """Mean square of the slow model's errors."""
    correlation: Float[Tensor, "*batch"]
    """Of the errors of both."""


def confirm(
    chosen: tuple[Float[Tensor, "b n k"], Float[Tensor, "b n"]],
    ways: tuple[Link, ...],
    choice: Int[Tensor, " b"],
    data: Rows,
    scales: Scales,
    floor: Float[Tensor, " b"],
    config: LinkConfig,
) -> Trust:
    """Cross-validate the chosen links; runs without one cost nothing, and are not confirmed.

    Args:
        chosen: Inputs and targets of the chosen links.
        ways: All links.
        choice: Which of them is chosen; -1: none.
        data: Rows with both values.
        scales: Their scales.
        floor: Variance of rounding errors.
        config: How to fit, and how many folds.
    """
    one, zero = torch.ones_like(floor), torch.zeros_like(floor)
    trust = Trust(
        is_confirmed=choice >= len(ways),
        factor=one,
        slow_factor=one,
        slow_square=zero,
        correlation=zero,
    )
    k = (choice >= 0).nonzero().squeeze(-1)
    if not len(k):
        return trust
    X, targets = chosen
    data, floor = data[k], floor[k]
    e, v = cross_validate((X[k], targets[k]), ways, choice[k], data, scales[k], config)
    _, is_confirmed = judge(e[:1], v[:1] < torch.inf, e[1], data, config)
    v, says = v + floor.unsqueeze(-1), data.live & (v < torch.inf)
    scaled = e / v.sqrt()
    errors = LeaveOneOut(error=e, variance=v.masked_fill(~says, torch.inf))
    factor = errors.variance_factor()
    square = torch.where(data.live, e[1], 0.0).square().sum(dim=-1)
    found = Trust(
        is_confirmed=is_confirmed[0],
        factor=factor[0],
        slow_factor=factor[1],
        slow_square=square / data.live.sum(dim=-1).clamp_min(1),
        correlation=error_correlation(scaled[0], scaled[1], says[0]),
    )
    return Trust(**{f: t.index_copy(0, k, getattr(found, f)) for f, t in vars(trust).items()})


def cross_validate(
    chosen: tuple[Float[Tensor, "b n k"], Float[Tensor, "b n"]],
    ways: tuple[Link, ...],
    index: Int[Tensor, " b"],
    data: Rows,
    scales: Scales,
    config: LinkConfig,
) -> tuple[Float[Tensor, "2 b n"], Float[Tensor, "2 b n"]]:
    """Return errors and variances of the chosen links and of slow models, without a row's fold.

    Args:
        chosen: Inputs and targets of the chosen links.
        ways: All links.
        index: Which of them is chosen.
        data: Rows with both values.
        scales: Their scales.
        config: How to fit, and how many folds.
    """
    b, n = data.fast.shape
    alone = torch.cat([data.X, torch.zeros_like(data.X[..., :1])], dim=-1)
    inputs, targets = torch.stack([chosen[0], alone]), torch.stack([chosen[1], data.slow])
    fold = torch.arange(n, device=index.device) % config.n_folds
    folds = torch.arange(config.n_folds, device=index.device)
    is_left_out = (fold == folds.unsqueeze(-1))[:, None, None]  # k x 1 x 1 x n
    live = (data.live & ~is_left_out).expand(-1, 2, b, n)
    X = inputs.expand(config.n_folds, *inputs.shape).flatten(0, 2)
    train = TrainingSet.from_mask(X, targets.expand_as(live).flatten(0, 2), live.flatten(0, 2))
    # Not from hyper-parameters that a fit to all rows found: even where these fits go on to an
    # optimum, it is one that suits the rows left out, and errors come out far too small.
    models = fit(train.compact(), config.kriging, trend=constant_trend(train))
    t, v = models.predict(X)
    v = v + nugget_variance(models).unsqueeze(-1)
    t, v = (
        torch.where(is_left_out, x.unflatten(0, live.shape[:3]), 0.0).sum(dim=0) for x in (t, v)
    )
    mean, variance = slow_by_choice(ways, index, t[0], v[0], data.fast, scales)
    return (
        torch.stack([data.slow - mean, data.slow - t[1]]),
        torch.stack([variance, v[1]]),
    )


def _trimmed_square(
    errors: Float[Tensor, "*batch n"], live: Bool[Tensor, "*#batch n"], trimmed: float
) -> Float[Tensor, "*batch"]:
    squares = errors.square().masked_fill(~live, torch.inf).sort(dim=-1).values
    kept = (live.sum(dim=-1) * (1.0 - trimmed)).ceil().clamp_min(1.0)
    index = torch.arange(squares.shape[-1], device=squares.device)
    return torch.where(index < kept.unsqueeze(-1), squares, 0.0).sum(dim=-1) / kept


def error_correlation(a: Tensor, b: Tensor, says: Tensor) -> Float[Tensor, " b"]:
    """Return how far errors in standard deviations go together, from 0 to less than 1."""
    a, b = (torch.where(says, e, 0.0) for e in (a, b))
    product = (a * b).sum(dim=-1)
    size = (a.square().sum(dim=-1) * b.square().sum(dim=-1)).sqrt()
    found = torch.where(size > 0, product / torch.where(size > 0, size, 1.0), 0.0)
    return found.clamp(0.0, _LARGEST_CORRELATION)


def constant_trend(train: TrainingSet) -> Bool[Tensor, " b"]:
    """Say that no model of a batch has a linear trend."""
    return torch.zeros(len(train.X), dtype=torch.bool, device=train.X.device)
