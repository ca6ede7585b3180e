"""The learned co-surrogate: the slow objective where only the fast one is known.

The paper's co-surrogate is a model of the difference of both objectives. Whether this, their
ratio, their angle or a model over (x, f) tells more depends on the problem, so each link (see
`links`) gets a model, and errors decide which of them is used, if any: where the slow
objective does not follow from the fast one, its own model stays alone.

Leave-one-out errors are quick, but hyper-parameters have seen all rows: with few rows in many
dimensions they promise far too much. So they choose a link, and errors of cross-validation,
with hyper-parameters of each fold's own, must confirm it; these also tell how far variances
are to be trusted.
"""

from dataclasses import dataclass

import torch

from tcsaea_torch.models.fitting import FitConfig, fit
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rows import take_rows
from tcsaea_torch.transfer.instance_selection import is_believed
from tcsaea_torch.transfer.leave_one_out import LeaveOneOut, leave_one_out
from tcsaea_torch.transfer.links import (
    LINK_NAMES,
    Angle,
    Autoregressive,
    Difference,
    Link,
    LinkName,
    LogRatio,
    Scales,
)
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_real,
    check_sequence,
)

_LARGEST_CORRELATION = 0.95

_CHI_SQUARE = {0.68: 0.98895, 0.95: 3.84146}
"""Quantiles of the square of a standard normal variable."""


@dataclass(frozen=True, kw_only=True)
class LinkConfig:
    """Which links are tried, and when one is used.

    Raises:
        InvalidInputError: If a value is out of range.
    """

    links: tuple[LinkName, ...] = LINK_NAMES
    """Those that are tried."""
    ratio_offsets: tuple[float, ...] = (1e-3,)
    """What is added to both objectives, in units of their means, before a ratio is taken; each
    makes a link of its own."""
    kriging: FitConfig = FitConfig(kernel="additive", nugget="fit")
    """How their models are fitted."""
    margin: float = 0.2
    """By how much the mean of log |error| must be below that of the slow model."""
    confidence: float = 2.0
    """By how many standard errors it must lie below this margin."""
    largest_square: float = 1.0
    """Largest trimmed mean square of the errors, relative to that of the slow model."""
    trimmed: float = 0.05
    """Share of the largest errors that this leaves out."""
    n_folds: int = 4
    """Of the cross-validation that confirms a choice."""
    min_rows: int = 10
    """With fewer rows that have both values, none is used."""
    belief: float = 4.0
    """How far a link may be away from the slow model, in standard deviations; see `believe`."""

    def __post_init__(self) -> None:
        for name in check_sequence("links", self.links):
            check_choice("links", name, LINK_NAMES)
        for offset in check_sequence("ratio_offsets", self.ratio_offsets):
            check_real("ratio_offsets", offset, minimum=0.0, exclusive=True)
        check_instance("kriging", self.kriging, FitConfig)
        check_real("margin", self.margin, minimum=0.0)
        check_real("confidence", self.confidence, minimum=0.0)
        check_real("largest_square", self.largest_square, minimum=0.0, exclusive=True)
        check_real("trimmed", self.trimmed, minimum=0.0, maximum=0.5)
        check_int("n_folds", self.n_folds, minimum=2)
        check_int("min_rows", self.min_rows, minimum=2)
        check_real("belief", self.belief, minimum=0.0, exclusive=True)

    def ways(self) -> tuple[Link, ...]:
        """Return the links that are tried."""
        found: list[Link] = []
        for name in self.links:
            match name:
                case "difference":
                    found.append(Difference())
                case "ratio":
                    found.extend(LogRatio(offset) for offset in self.ratio_offsets)
                case "angle":
                    found.append(Angle())
                case "autoregressive":
                    found.append(Autoregressive())
        return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowFromFast:
    """Models of slow values at points with a fast one, of `b` runs, each by a link of its own."""

    ways: tuple[Link, ...]
    choice: Int[Tensor, " b"]
    """Index of each run's link; -1: none is used."""
    score: Float[Tensor, "b l"]
    """Mean of log |error| of each link minus that of the slow model; inf where it cannot be."""
    hyperparameters: Hyperparameters
    """Of all links' models, `l b` of them: where a later fit starts."""
    surrogate: Surrogate
    """The chosen links' models; of those without one the first link's, which is not used."""
    scales: Scales
    factor: Float[Tensor, " b"]
    """By which variances are multiplied to cover the errors."""
    slow_factor: Float[Tensor, " b"]
    """The same for the slow model's own variances, which `believe` and `combine` compare."""
    slow_square: Float[Tensor, " b"]
    """Mean square of the slow model's errors."""
    floor: Float[Tensor, " b"]
    """Variance of rounding errors."""
    correlation: Float[Tensor, " b"]
    """Of the errors of the link and of the slow model, for `combine`."""

    def predict(
        self, X: Float[Tensor, "b q d"], y_fast: Float[Tensor, "b q"]
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q"]]:
        """Predict slow values.

        Args:
            X: Points in the unit cube.
            y_fast: Their fast values.

        Returns:
            Means, and variances: inf where no link is used, or where it says nothing.
        """
        uses_fast = torch.tensor([way.uses_fast for way in self.ways], device=X.device)
        uses_fast = uses_fast[self.choice.clamp_min(0)]
        t, v = self.surrogate.predict(_inputs(X, y_fast, uses_fast, self.scales))
        v = v + nugget_variance(self.surrogate).unsqueeze(-1)
        mean, variance = _slow(self.ways, self.choice, t, v, y_fast, self.scales)
        return mean, variance * self.factor.unsqueeze(-1) + self.floor.unsqueeze(-1)


def fit_links(
    X: Float[Tensor, "b n d"],
    y_fast: Float[Tensor, "b n"],
    y_slow: Float[Tensor, "b n"],
    both: Bool[Tensor, "b n"],
    slow_loo: LeaveOneOut,
    config: LinkConfig,
    *,
    lower_bound: Float[Tensor, "*#b 2"] | None = None,
    init: Hyperparameters | None = None,
    refit: bool = True,
) -> SlowFromFast:
    """Fit a model to each link, and choose one for each run, or none.

    Args:
        X: Points in the unit cube, without duplicates.
        y_fast: Fast values; anything where there is none.
        y_slow: Slow values, likewise.
        both: Rows that have both.
        slow_loo: What the slow objective's own model predicts of each row without it.
        config: Which links are tried, and when one is used.
        lower_bound: Below which no (fast, slow) value lies; None: 0, if no value is negative.
        init: Hyper-parameters of an earlier call.
        refit: Whether to fit; False conditions on the data with the `init` that is given.
    """
    data = _Rows.of(X, y_fast, y_slow, both, slow_loo)
    ways, (b, n) = config.ways(), data.fast.shape
    scales = Scales.of(torch.stack([data.fast, data.slow], dim=-1), data.live, lower_bound)
    can_be = torch.stack([_can_be(way, data, scales) for way in ways])  # l x b
    uses_fast = torch.tensor([way.uses_fast for way in ways], device=X.device)
    targets = torch.stack([way.target(data.fast, data.slow, scales) for way in ways])
    inputs = [_inputs(data.X, data.fast, u, scales) for u in uses_fast]
    live = data.live.expand(len(ways), b, n)
    train = TrainingSet.from_mask(
        torch.stack(inputs).flatten(0, 1),
        torch.where(live & can_be.unsqueeze(-1), targets, 0.0).flatten(0, 1),
        live.flatten(0, 1),
    )
    surrogates = _models(train, config.kriging, init, refit=refit)
    loo = leave_one_out(surrogates)
    errors, variances = [], []
    for k, way in enumerate(ways):
        part = loo[k * b : (k + 1) * b]
        mean, variance = way.slow(part.mean, part.variance, data.fast, scales)
        errors.append(data.slow - mean)
        variances.append(variance)
    errors, variances = torch.stack(errors), torch.stack(variances)
    score, is_used = _judge(errors, variances < torch.inf, data.error, data, config)
    score = score.masked_fill(~can_be, torch.inf)
    best = score.masked_fill(~is_used, torch.inf).min(dim=0)
    choice = torch.where(best.values < torch.inf, best.indices, -1)
    index, runs = choice.clamp_min(0), torch.arange(b, device=X.device)
    chosen = torch.stack(inputs)[index, runs], targets[index, runs]
    e, v = _cross_validate(chosen, ways, index, data, scales, config)
    _, is_confirmed = _judge(e[:1], v[:1] < torch.inf, e[1], data, config)
    choice = torch.where(is_confirmed[0], choice, -1)
    largest = torch.where(data.live, data.slow.abs(), 0.0).amax(dim=-1)
    floor = (8.0 * torch.finfo(X.dtype).eps * largest).square()
    v, says = v + floor.unsqueeze(-1), data.live & (v < torch.inf)
    factor = _inflation(e.square() / v, says)
    square = torch.where(data.live, e[1], 0.0).square().sum(dim=-1) / data.live.sum(dim=-1).clamp_min(1)
    return SlowFromFast(
        ways=ways,
        choice=choice,
        score=score.mT,
        hyperparameters=surrogates.hyperparameters,
        surrogate=surrogates[index * b + runs],
        scales=scales,
        factor=factor[0],
        slow_factor=factor[1],
        slow_square=square,
        floor=floor,
        correlation=_correlation(*(e / v.sqrt()), says[0]),
    )


def combine(
    mean_s: Float[Tensor, "*batch q"],
    variance_s: Float[Tensor, "*batch q"],
    mean_l: Float[Tensor, "*batch q"],
    variance_l: Float[Tensor, "*batch q"],
    correlation: Float[Tensor, "*batch"] | None = None,
) -> tuple[Float[Tensor, "*batch q"], Float[Tensor, "*batch q"]]:
    """Return the mean of two predictions that has the least variance, and this variance.

    Both models learn from the same slow values, so their errors depend on one another: taken
    as independent, they would promise too much. The correlation of the leave-one-out errors
    tells how far.

    Args:
        mean_s: The slow model's means.
        variance_s: Its variances.
        mean_l: The link's means.
        variance_l: Its variances; inf where it says nothing.
        correlation: Of both errors, from 0 to less than 1; None: they are independent, and
            the weights the precisions.
    """
    says = variance_l < torch.inf
    v_l = torch.where(says, variance_l, variance_s)
    shared = torch.zeros_like(variance_s)
    if correlation is not None:
        shared = correlation.unsqueeze(-1) * variance_s.sqrt() * v_l.sqrt()
    total = variance_s + v_l - 2.0 * shared
    weight = torch.where(total > 0, (variance_s - shared) / total, 0.5).clamp(0.0, 1.0)
    weight = torch.where(says, weight, 0.0)
    mean = torch.where(says, mean_s + weight * (mean_l - mean_s), mean_s)
    rest = 1.0 - weight
    variance = rest.square() * variance_s + weight.square() * v_l + 2.0 * rest * weight * shared
    return mean, variance


def believe(
    mean_s: Float[Tensor, "*batch q"],
    variance_s: Float[Tensor, "*batch q"],
    mean_l: Float[Tensor, "*batch q"],
    variance_l: Float[Tensor, "*batch q"],
    *,
    belief: float,
    slow_square: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch q"]:
    """Return the link's variances, inf where the slow model contradicts it.

    The paper's rule (Algorithm 1, line 17): a synthetic value counts where it lies within the
    slow model's confidence interval. Here the interval is that of the difference. It also
    holds the slow model's known errors: where few rows are known, its own variances say far
    too little, and would refuse a link that is right.

    Args:
        mean_s: The slow model's means.
        variance_s: Its variances.
        mean_l: The link's means.
        variance_l: Its variances.
        belief: Half the width of the interval, in standard deviations.
        slow_square: `SlowFromFast.slow_square`.
    """
    width = belief * (variance_s + variance_l + slow_square.unsqueeze(-1)).sqrt()
    return variance_l.masked_fill(~is_believed(mean_l, mean_s, width), torch.inf)


def nugget_variance(surrogate: Surrogate) -> Float[Tensor, "*batch"]:
    """Return the part of a value's variance that its own nugget holds; 0 for a fixed one."""
    nugget, variance = surrogate.hyperparameters.nugget, surrogate.hyperparameters.variance
    assert variance is not None
    return torch.zeros_like(variance) if nugget is None else nugget * variance


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    """The rows with both values, moved to the front."""

    X: Float[Tensor, "b n d"]
    fast: Float[Tensor, "b n"]
    slow: Float[Tensor, "b n"]
    live: Bool[Tensor, "b n"]
    error: Float[Tensor, "b n"]
    """Of the slow model, leave-one-out."""

    @classmethod
    def of(
        cls, X: Tensor, y_fast: Tensor, y_slow: Tensor, both: Tensor, loo: LeaveOneOut
    ) -> "_Rows":
        n = max(1, int(both.sum(dim=-1).max()))
        order = (~both).to(torch.int8).argsort(dim=-1, stable=True)[..., :n]
        live = both.gather(-1, order)
        columns = (y_fast, y_slow, loo.mean)
        fast, slow, mean = (
            torch.where(live, column.gather(-1, order), 0.0) for column in columns
        )
        return cls(X=take_rows(X, order), fast=fast, slow=slow, live=live, error=slow - mean)

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


def _inputs(X: Tensor, y_fast: Tensor, uses_fast: Tensor, scales: Scales) -> Tensor:
    """Append the fast value, or 0 where it is no input, so that all models have one shape."""
    last = torch.where(uses_fast.unsqueeze(-1), scales.input(y_fast), 0.0)
    return torch.cat([X, last.unsqueeze(-1)], dim=-1)


def _can_be(way: Link, data: _Rows, scales: Scales) -> Bool[Tensor, " b"]:
    if not way.needs_bound:
        return torch.ones_like(data.live[:, 0])
    low = scales.low.unsqueeze(-1)
    is_below = (data.fast < low[:, 0]) | (data.slow < low[:, 1])
    return ~(is_below & data.live).any(dim=-1)


def _models(
    train: TrainingSet, config: FitConfig, init: Hyperparameters | None, *, refit: bool
) -> Surrogate:
    trend = torch.zeros(len(train.X), dtype=torch.bool, device=train.X.device)
    if refit or init is None:
        return fit(train, config, trend=trend, init=init)
    data, scaling = scale(train, trend=trend, input_scaling=config.input_scaling)
    return condition(data, scaling, init, nugget=config.nugget_for(train.X.dtype))


def _judge(
    errors: Float[Tensor, "l b n"],
    says: Bool[Tensor, "l b n"],
    own: Float[Tensor, "b n"],
    data: _Rows,
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


def _cross_validate(
    chosen: tuple[Float[Tensor, "b n k"], Float[Tensor, "b n"]],
    ways: tuple[Link, ...],
    index: Int[Tensor, " b"],
    data: _Rows,
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
    models = _models(train, config.kriging, None, refit=True)
    t, v = models.predict(X)
    v = v + nugget_variance(models).unsqueeze(-1)
    t, v = (
        torch.where(is_left_out, x.unflatten(0, live.shape[:3]), 0.0).sum(dim=0) for x in (t, v)
    )
    mean, variance = _slow(ways, index, t[0], v[0], data.fast, scales)
    return (
        torch.stack([data.slow - mean, data.slow - t[1]]),
        torch.stack([variance, v[1]]),
    )


def _slow(
    ways: tuple[Link, ...], choice: Tensor, t: Tensor, v: Tensor, y_fast: Tensor, scales: Scales
) -> tuple[Tensor, Tensor]:
    """Return slow values and variances by each run's own link; 0 and inf where there is none."""
    mean, variance = torch.zeros_like(t), torch.full_like(t, torch.inf)
    for k, way in enumerate(ways):
        is_chosen = (choice == k).unsqueeze(-1)
        new_mean, new_variance = way.slow(t, v, y_fast, scales)
        mean = torch.where(is_chosen, new_mean, mean)
        variance = torch.where(is_chosen, new_variance, variance)
    return mean, variance


def _trimmed_square(
    errors: Float[Tensor, "*batch n"], live: Bool[Tensor, "*#batch n"], trimmed: float
) -> Float[Tensor, "*batch"]:
    squares = errors.square().masked_fill(~live, torch.inf).sort(dim=-1).values
    kept = (live.sum(dim=-1) * (1.0 - trimmed)).ceil().clamp_min(1.0)
    index = torch.arange(squares.shape[-1], device=squares.device)
    return torch.where(index < kept.unsqueeze(-1), squares, 0.0).sum(dim=-1) / kept


def _inflation(
    squares: Float[Tensor, "*batch n"], says: Bool[Tensor, "*batch n"]
) -> Float[Tensor, "*batch"]:
    """Return the factor with which intervals of 68 % and 95 % cover that many rows; >= 1."""
    ordered = squares.masked_fill(~says, torch.inf).sort(dim=-1).values
    n = says.sum(dim=-1, keepdim=True)
    factor = torch.ones_like(squares[..., :1])
    for share, quantile in _CHI_SQUARE.items():
        place = (share * n).ceil().long().clamp_min(1) - 1
        factor = torch.maximum(factor, ordered.gather(-1, place) / quantile)
    return torch.where(n > 0, factor, 1.0).squeeze(-1)


def _correlation(a: Tensor, b: Tensor, says: Tensor) -> Float[Tensor, " b"]:
    """Return how far errors in standard deviations go together, from 0 to less than 1."""
    a, b = (torch.where(says, e, 0.0) for e in (a, b))
    product = (a * b).sum(dim=-1)
    size = (a.square().sum(dim=-1) * b.square().sum(dim=-1)).sqrt()
    found = torch.where(size > 0, product / torch.where(size > 0, size, 1.0), 0.0)
    return found.clamp(0.0, _LARGEST_CORRELATION)
