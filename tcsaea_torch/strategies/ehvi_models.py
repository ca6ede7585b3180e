"""The models of TC-EHVI at a moment: GP_f, GP_s, and the link between the objectives."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from tcsaea_torch.models.bundles import flatten, restore
from tcsaea_torch.models.chosen import Chosen
from tcsaea_torch.models.leave_one_out import LeaveOneOut
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies.base import FAST, SLOW, RunView, State
from tcsaea_torch.strategies.ehvi_rows import (
    Known,
    Samples,
    choose_rows,
    distance_from_front,
    non_dominated_rows,
)
from tcsaea_torch.strategies.ehvi_surrogates import KernelKind, Learner, ModelName, sources
from tcsaea_torch.transfer import LearnedLink, LinkConfig, SlowFromFast, believe, fit_links
from tcsaea_torch.types import Bool, Float, Int, Tensor

_LINK_GROWTH = 1.6
"""Links are fitted and chosen again when the rows with both values have grown by this factor."""


@runtime_checkable
class Model(Protocol):
    """What predicts one objective of each run."""

    def mean(self, Xq: Tensor) -> Tensor:
        """Predict means `b x q`."""
        ...

    def predict(self, Xq: Tensor) -> tuple[Tensor, Tensor]:
        """Predict means and variances."""
        ...

    def predict_joint(self, Xq: Tensor) -> tuple[Tensor, Tensor]:
        """Predict means and covariances `b x q x q`."""
        ...

    def extend(self, X: Tensor, y: Tensor, noise_var: Tensor) -> "Model":
        """Return the model with more rows."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Either:
    """One model for some runs of a batch, another one for the others."""

    first: Model
    second: Model
    is_first: Bool[Tensor, " b"]

    def mean(self, Xq: Tensor) -> Tensor:
        """Predict means."""
        first, second = self.first.mean(Xq), self.second.mean(Xq)
        return torch.where(self.is_first[:, None], first, second)

    def predict(self, Xq: Tensor) -> tuple[Tensor, Tensor]:
        """Predict means and variances."""
        pairs = zip(self.first.predict(Xq), self.second.predict(Xq), strict=True)
        mean, variance = (torch.where(self.is_first[:, None], a, b) for a, b in pairs)
        return mean, variance

    def predict_joint(self, Xq: Tensor) -> tuple[Tensor, Tensor]:
        """Predict means and covariances."""
        (m1, c1), (m2, c2) = self.first.predict_joint(Xq), self.second.predict_joint(Xq)
        is_first = self.is_first[:, None]
        return torch.where(is_first, m1, m2), torch.where(is_first.unsqueeze(-1), c1, c2)

    def extend(self, X: Tensor, y: Tensor, noise_var: Tensor) -> "Either":
        """Return both models with more rows."""
        first, second = (m.extend(X, y, noise_var) for m in (self.first, self.second))
        return Either(first=first, second=second, is_first=self.is_first)


def believe_rows(
    model: Model, X: Float[Tensor, "b n d"], y: Float[Tensor, "b n"], rows: Bool[Tensor, "b n"]
) -> Model:
    """Condition a model on values that are believed, as if they had been measured.

    Args:
        model: A model of each run.
        X: Points.
        y: Their values, as far as they are believed.
        rows: Which of them are.
    """
    n = int(rows.sum(dim=1).amax())
    if n == 0:
        return model
    index = (~rows).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
    noise_var = torch.zeros_like(y).masked_fill(~rows, torch.inf)
    return model.extend(take_rows(X, index), y.gather(1, index), noise_var.gather(1, index))


@dataclass(frozen=True, kw_only=True, eq=False)
class Synthetic:
    """What links say of the slow values of all rows."""

    y: Float[Tensor, "b n"]
    """Values."""
    variance: Float[Tensor, "b n"]
    """Their variances; inf where there is no link, or where it says nothing."""
    believed: Float[Tensor, "b n"]
    """The same; inf also where GP_s contradicts."""

    def combine(
        self, mean: Float[Tensor, "b n"], variance: Float[Tensor, "b n"]
    ) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
        """Return means and variances by a model that learned from these values, and by them.

        A model smooths what is rough in them, or was not told them. How far both differ says
        how wrong one of them is. So a believed value counts more than the model; and where
        none is believed the model is less certain, so that a measurement may tell who is right.

        Args:
            mean: The model's means.
            variance: Its variances.
        """
        gap = torch.where(self.variance < torch.inf, self.y - mean, 0.0)
        variance = variance + gap.square()
        weight = torch.where(variance > 0, variance / (variance + self.believed), 0.0)
        return mean + weight * gap, (1.0 - weight) * variance


@dataclass(frozen=True, kw_only=True, eq=False)
class Models:
    """GP_f and GP_s of each run."""

    fast: Model
    slow: Model
    synthetic: Synthetic | None = None
    """Of the rows that are known; None: no run has a link."""

    def mean(self, X: Float[Tensor, "b k d"]) -> Float[Tensor, "b k 2"]:
        """Predict both objectives."""
        return torch.stack([self.fast.mean(X), self.slow.mean(X)], dim=-1)

    def predict(
        self, X: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b k 2"], Float[Tensor, "b k 2"]]:
        """Predict means and variances of both objectives."""
        parts = zip(self.fast.predict(X), self.slow.predict(X), strict=True)
        mean, variance = (torch.stack(pair, dim=-1) for pair in parts)
        return mean, variance

    def predict_joint(
        self, X: Float[Tensor, "b k d"]
    ) -> tuple[Float[Tensor, "b k 2"], Float[Tensor, "b 2 k k"]]:
        """Predict means, and covariances between the points."""
        (mean_f, cov_f), (mean_s, cov_s) = self.fast.predict_joint(X), self.slow.predict_joint(X)
        return torch.stack([mean_f, mean_s], dim=-1), torch.stack([cov_f, cov_s], dim=1)

    def slow_of_rows(
        self, X: Float[Tensor, "b n d"]
    ) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
        """Predict means and variances of the slow values of all rows, f being known exactly.

        Args:
            X: The points of the rows.
        """
        predicted = self.slow.predict(X)
        return predicted if self.synthetic is None else self.synthetic.combine(*predicted)


@dataclass(frozen=True, kw_only=True)
class Modelling:
    """How the models of a step are learned; see the fields of `TCEHVI`."""

    kernels: tuple[KernelKind, ...]
    link: LinkConfig | None
    noisy: bool
    calibrated: bool

    def learn(
        self,
        state: State,
        run: RunView,
        known: Known,
        lower_bound: Float[Tensor, "b 2"],
    ) -> tuple[Models, Float[Tensor, "b n 2"], State]:
        """Learn from all that is known.

        Args:
            state: What earlier steps found.
            run: The runs.
            known: What may be known.
            lower_bound: What no value falls below.

        Returns:
            The models; the values of all rows, predicted where they are not known; and the
            state with what was found.
        """
        clock, n = int(run.used.sum(dim=1).amax()), known.X.shape[1]
        samples = Samples.of(run.d, n)

        def u(name: str) -> Tensor:
            return uniforms(run.seeds, f"rows/{name}", n, (n,), dtype=run.dtype)

        def learn(
            model: ModelName, D: TrainingSet, Y: Tensor, state: State
        ) -> tuple[Chosen, Tensor, State]:
            learner, distance, keys = self._learner(model), _distance(known, Y), u(model)
            # Measured values say more than synthetic ones.
            first = known.slow if model == "joined" else None
            rows = choose_rows(D.live, known.is_space, distance, samples.fit, keys, first)
            state = learner.fit(state, D.take(rows).compact(), "mixed", clock)
            rows = choose_rows(D.live, known.is_space, distance, samples.condition, keys, first)
            rows = _living(rows, D.live)
            is_space = known.is_space.gather(1, rows)
            models, state = learner.choose(state, D.take(rows), is_space, clock)
            return models, rows, state

        # GP_f's structure is known before GP_s is fitted, if that is to begin with it.
        D_f = merge_duplicates(known.values(FAST))
        space = _space(D_f, known.is_space, samples.fit.n, u("fast/space"))
        state = self._learner("fast").fit(state, space, "space", clock)
        D_s = merge_duplicates(known.values(SLOW))
        own, rows, state = learn("slow", D_s, known.Y, state)
        slow: Model = own
        synthetic = None
        link, state = self._link(state, known, own, rows, lower_bound)
        if self.link is not None and link is not None:
            has_link = link.learned.choice >= 0
            mean, variance = own.predict(known.X)
            synthetic = _synthesise(known, link, mean, variance, self.link.belief)
            D = _joined(known, synthetic)
            space = _space(D, known.is_space, samples.fit.n, u("joined/space"))
            state = self._learner("joined").fit(state, space, "space", clock)
            Y = torch.stack([known.Y[..., FAST], torch.where(D.live, D.y, mean)], dim=-1)
            joined, _, state = learn("joined", D, Y, state)
            slow = joined
            if not bool(has_link.all()):
                slow = Either(first=joined, second=own, is_first=has_link)
        y_fast = known.Y[..., FAST]
        y_slow = torch.where(known.slow, known.Y[..., SLOW], slow.mean(known.X))
        fast, _, state = learn("fast", D_f, torch.stack([y_fast, y_slow], dim=-1), state)
        if not bool(known.fast.all()):
            y_fast = torch.where(known.fast, y_fast, fast.mean(known.X))
        models = Models(fast=fast, slow=slow, synthetic=synthetic)
        return models, torch.stack([y_fast, y_slow], dim=-1), state

    def _learner(self, model: ModelName) -> Learner:
        return Learner(
            model=model,
            sources=sources(model, self.kernels),
            noisy=self.noisy,
            calibrated=self.calibrated,
        )

    def _link(
        self,
        state: State,
        known: Known,
        own: Chosen,
        rows: Int[Tensor, "b k"],
        lower_bound: Float[Tensor, "b 2"],
    ) -> tuple[SlowFromFast | None, State]:
        """Return the link of those runs that have one, learned anew when rows have grown."""
        if self.link is None:
            return None, state
        values = known.X, known.Y[..., FAST], known.Y[..., SLOW], known.both
        n, n_before = int(known.both.sum(dim=1).amax()), state.get("link/n")
        if not isinstance(n_before, int) or n >= _LINK_GROWTH * n_before:
            loo = own.leave_one_out()
            error = torch.zeros_like(values[1]).scatter(1, rows, loo.error)
            variance = torch.full_like(error, torch.inf).scatter(1, rows, loo.variance)
            is_judged = known.both & (variance < torch.inf)
            loo = LeaveOneOut(error=error, variance=variance)
            link = fit_links(*values[:3], is_judged, loo, self.link, lower_bound=lower_bound)
            # Other synthetic values: what was fitted to the old ones, or to none while only
            # others of the batch had a link, is forgotten.
            state = {k: v for k, v in state.items() if not k.startswith("joined/")}
            state = {**state, **flatten(link.learned, "link"), "link/n": n}
        learned = restore(LearnedLink, state, "link")
        if not bool((learned.choice >= 0).any()):
            return None, state
        return learned.condition(self.link, *values), state


def _synthesise(
    known: Known,
    link: SlowFromFast,
    mean: Float[Tensor, "b n"],
    variance: Float[Tensor, "b n"],
    belief: float,
) -> Synthetic:
    """Return what links say of all rows, and which of it GP_s does not contradict.

    Args:
        known: What may be known.
        link: From the fast to the slow objective.
        mean: What GP_s predicts of each row.
        variance: How certain it is.
        belief: See `LinkConfig`.
    """
    y, var = link.predict(known.X, known.Y[..., FAST])
    var = var.masked_fill(~known.fast, torch.inf)
    square = link.learned.slow_square
    believed = believe(mean, variance, y, var, belief=belief, slow_square=square)
    return Synthetic(y=y, variance=var, believed=believed)


def _joined(known: Known, synthetic: Synthetic) -> TrainingSet:
    """Return measured slow values, and believed ones where only the fast one is known."""
    noise_var = synthetic.believed.masked_fill(known.slow, 0.0)
    y = torch.where(known.slow, known.Y[..., SLOW], synthetic.y)
    y = torch.where(noise_var < torch.inf, y, 0.0)
    return merge_duplicates(TrainingSet(X=known.X, y=y, noise_var=noise_var))


def _living(rows: Int[Tensor, "b k"], live: Bool[Tensor, "b n"]) -> Int[Tensor, "b j"]:
    """Return as many of the rows as any run has living ones, these first, in order."""
    alive = live.gather(1, rows)
    n = max(1, int(alive.sum(dim=1).amax()))
    return rows.gather(1, (~alive).to(torch.int8).argsort(dim=1, stable=True)[:, :n])


def _space(
    D: TrainingSet, is_space: Bool[Tensor, "b n"], n_max: int, u: Float[Tensor, "b n"]
) -> TrainingSet:
    """Return a sample of the space-filling rows."""
    noise_var = D.noise_var.masked_fill(~is_space, torch.inf)
    D = TrainingSet(X=D.X, y=D.y, noise_var=noise_var)
    key = u.masked_fill(~D.live, torch.inf)
    return D.take(key.argsort(dim=1, stable=True)[:, :n_max]).compact()


def _distance(known: Known, Y: Float[Tensor, "b n 2"]) -> Float[Tensor, "b n"]:
    """Return how far values are from the front of those that are known, in units of spans."""
    unit = torch.where(known.span > 0, known.span, 1.0)
    rows, exists = non_dominated_rows(known.Y, known.both)
    return distance_from_front(Y / unit, take_rows(known.Y, rows) / unit, exists)
