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

from tcsaea_torch.models.bundles import Indexed, map_tensors
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import LeaveOneOut, leave_one_out
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.transfer.instance_selection import is_believed
from tcsaea_torch.transfer.link_choice import (
    Rows,
    confirm,
    constant_trend,
    judge,
    nugget_variance,
)
from tcsaea_torch.transfer.links import Link, LinkConfig, Scales, slow_by_choice
from tcsaea_torch.types import Bool, Float, Int, Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedLink(Indexed):
    """What a fit learned of `b` runs: tensors alone, to which other rows can be given."""

    choice: Int[Tensor, "*batch"]
    """Index of each run's link; -1: none is used."""
    score: Float[Tensor, "*batch l"]
    """Mean of log |error| of each link minus that of the slow model; inf where it cannot be."""
    starts: Hyperparameters
    """Of all links' models, `b x l` of them: where a later fit starts."""
    hyperparameters: Hyperparameters
    """Of the chosen links' models; of runs without one those of the first link, not used."""
    scales: Scales
    factor: Float[Tensor, "*batch"]
    """By which variances are multiplied to cover the errors."""
    slow_factor: Float[Tensor, "*batch"]
    """The same for the slow model's own variances, which `believe` and `combine` compare."""
    slow_square: Float[Tensor, "*batch"]
    """Mean square of the slow model's errors."""
    floor: Float[Tensor, "*batch"]
    """Variance of rounding errors."""
    correlation: Float[Tensor, "*batch"]
    """Of the errors of the link and of the slow model, for `combine`."""

    def condition(
        self,
        config: LinkConfig,
        X: Float[Tensor, "b n d"],
        y_fast: Float[Tensor, "b n"],
        y_slow: Float[Tensor, "b n"],
        both: Bool[Tensor, "b n"],
    ) -> "SlowFromFast":
        """Give the chosen links' models rows; choice, scales and hyper-parameters stay.

        So a fit may use some of the rows, or be some time ago. A link that needs values above a
        bound is given up where one lies below.

        Args:
            config: With which the links were fitted.
            X: Points in the unit cube, without duplicates.
            y_fast: Fast values; anything where there is none.
            y_slow: Slow values, likewise.
            both: Rows that have both.
        """
        data, scales = Rows.of(X, y_fast, y_slow, both, torch.zeros_like(y_fast)), self.scales
        ways, runs = config.ways(), torch.arange(len(X), device=X.device)
        index = self.choice.clamp_min(0)
        can_be = torch.stack([_can_be(way, data, scales) for way in ways])[index, runs]
        targets = torch.stack([way.target(data.fast, data.slow, scales) for way in ways])
        uses_fast = torch.tensor([way.uses_fast for way in ways], device=X.device)[index]
        train = TrainingSet.from_mask(
            _inputs(data.X, data.fast, uses_fast, scales),
            torch.where(can_be.unsqueeze(-1), targets[index, runs], 0.0),
            data.live,
        )
        scaled, scaling = scale(
            train, trend=constant_trend(train), input_scaling=config.kriging.input_scaling
        )
        nugget = config.kriging.nugget_for(X.dtype)
        return SlowFromFast(
            ways=ways,
            learned=self,
            choice=torch.where(can_be, self.choice, -1),
            surrogate=condition(scaled, scaling, self.hyperparameters, nugget=nugget),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class SlowFromFast:
    """Models of slow values at points with a fast one, of `b` runs, each by a link of its own."""

    ways: tuple[Link, ...]
    learned: LearnedLink
    choice: Int[Tensor, " b"]
    """Index of each run's link; -1: none is used, or it was given up."""
    surrogate: Surrogate
    """The chosen links' models; of those without one the first link's, which is not used."""

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
        learned = self.learned
        t, v = self.surrogate.predict(_inputs(X, y_fast, uses_fast, learned.scales))
        v = v + nugget_variance(self.surrogate).unsqueeze(-1)
        mean, variance = slow_by_choice(self.ways, self.choice, t, v, y_fast, learned.scales)
        return mean, variance * learned.factor.unsqueeze(-1) + learned.floor.unsqueeze(-1)

    def refine(
        self,
        X: Float[Tensor, "b q d"],
        y_fast: Float[Tensor, "b q"],
        mean_s: Float[Tensor, "b q"],
        variance_s: Float[Tensor, "b q"],
        *,
        belief: float,
    ) -> tuple[Float[Tensor, "b q"], Float[Tensor, "b q"]]:
        """Return the slow model's predictions, with what the link knows better.

        Those of runs without a link stay as they are. In the others, variances grow by
        `slow_factor` first, also where the link says nothing or is not believed.

        Args:
            X: Points in the unit cube.
            y_fast: Their fast values.
            mean_s: The slow model's means.
            variance_s: Its variances.
            belief: See `believe`.
        """
        learned = self.learned
        variance = variance_s * learned.slow_factor.unsqueeze(-1)
        mean_l, variance_l = self.predict(X, y_fast)
        variance_l = believe(
            mean_s, variance, mean_l, variance_l, belief=belief, slow_square=learned.slow_square
        )
        has_link = (self.choice >= 0).unsqueeze(-1)
        found = combine(mean_s, variance, mean_l, variance_l, learned.correlation)
        return torch.where(has_link, found[0], mean_s), torch.where(has_link, found[1], variance_s)


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
) -> SlowFromFast:
    """Fit a model to each link, and choose one for each run, or none.

    Args:
        X: Points in the unit cube, without duplicates.
        y_fast: Fast values; anything where there is none.
        y_slow: Slow values, likewise.
        both: Rows that have both.
        slow_loo: Errors of the slow objective's own model at these rows; those of rows with
            both values count.
        config: Which links are tried, and when one is used.
        lower_bound: Below which no (fast, slow) value lies; None or -inf: 0, if no value is
            negative.
        init: `LearnedLink.starts` of an earlier call: a warm start.
    """
    data = Rows.of(X, y_fast, y_slow, both, slow_loo.error)
    ways, (b, n) = config.ways(), data.fast.shape
    scales = Scales.of(torch.stack([data.fast, data.slow], dim=-1), data.live, lower_bound)
    can_be = torch.stack([_can_be(way, data, scales) for way in ways])  # l x b
    uses_fast = torch.tensor([way.uses_fast for way in ways], device=X.device)
    targets = torch.stack([way.target(data.fast, data.slow, scales) for way in ways])
    targets = torch.where(data.live & can_be.unsqueeze(-1), targets, 0.0)
    inputs = [_inputs(data.X, data.fast, u, scales) for u in uses_fast]
    live = data.live.expand(len(ways), b, n)
    train = TrainingSet.from_mask(
        torch.stack(inputs).flatten(0, 1),
        targets.flatten(0, 1),
        live.flatten(0, 1),
    )
    if init is not None:
        init = map_tensors(init, lambda t: t.transpose(0, 1).flatten(0, 1))
    surrogates = fit(train, config.kriging, trend=constant_trend(train), init=init)
    loo = leave_one_out(surrogates)
    errors, variances = [], []
    for k, way in enumerate(ways):
        part = loo[k * b : (k + 1) * b]
        mean, variance = way.slow(targets[k] - part.error, part.variance, data.fast, scales)
        errors.append(data.slow - mean)
        variances.append(variance)
    errors, variances = torch.stack(errors), torch.stack(variances)
    score, is_used = judge(errors, variances < torch.inf, data.error, data, config)
    score = score.masked_fill(~can_be, torch.inf)
    best = score.masked_fill(~is_used, torch.inf).min(dim=0)
    choice = torch.where(best.values < torch.inf, best.indices, -1)
    index, runs = choice.clamp_min(0), torch.arange(b, device=X.device)
    chosen = torch.stack(inputs)[index, runs], targets[index, runs]
    largest = torch.where(data.live, data.slow.abs(), 0.0).amax(dim=-1)
    floor = (8.0 * torch.finfo(X.dtype).eps * largest).square()
    trust = confirm(chosen, ways, choice, data, scales, floor, config)
    surrogate = surrogates[index * b + runs]
    learned = LearnedLink(
        choice=torch.where(trust.is_confirmed, choice, -1),
        score=score.mT,
        starts=map_tensors(
            surrogates.hyperparameters, lambda t: t.unflatten(0, (-1, b)).transpose(0, 1)
        ),
        hyperparameters=surrogate.hyperparameters,
        scales=scales,
        factor=trust.factor,
        slow_factor=trust.slow_factor,
        slow_square=trust.slow_square,
        floor=floor,
        correlation=trust.correlation,
    )
    return SlowFromFast(ways=ways, learned=learned, choice=learned.choice, surrogate=surrogate)


def combine(
    mean_s: Float[Tensor, "*batch q"],
    variance_s: Float[Tensor, "*batch q"],
    mean_l: Float[Tensor, "*batch q"],
    variance_l: Float[Tensor, "*batch q"],
    correlation: Float[Tensor, "*batch"] | None = None,
) -> tuple[Float[Tensor, "*batch q"], Float[Tensor, "*batch q"]]:
    """Return the mean of two predictions that has the least variance, and this variance.

    Both models learn from the same slow values, so their errors depend on one another: taken
    as independent, they would promise too much. The correlation of the errors that
    cross-validation found tells how far.

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
        slow_square: `LearnedLink.slow_square`.
    """
    width = belief * (variance_s + variance_l + slow_square.unsqueeze(-1)).sqrt()
    return variance_l.masked_fill(~is_believed(mean_l, mean_s, width), torch.inf)


def _inputs(X: Tensor, y_fast: Tensor, uses_fast: Tensor, scales: Scales) -> Tensor:
    """Append the fast value, or 0 where it is no input, so that all models have one shape."""
    last = torch.where(uses_fast.unsqueeze(-1), scales.input(y_fast), 0.0)
    return torch.cat([X, last.unsqueeze(-1)], dim=-1)


def _can_be(way: Link, data: Rows, scales: Scales) -> Bool[Tensor, " b"]:
    if not way.needs_bound:
        return torch.ones_like(data.live[:, 0])
    low = scales.low.unsqueeze(-1)
    is_below = (data.fast < low[:, 0]) | (data.slow < low[:, 1])
    return ~(is_below & data.live).any(dim=-1)
