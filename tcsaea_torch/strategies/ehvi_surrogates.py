"""How TC-EHVI finds the hyper-parameters of its models, keeps them, and chooses.

Each objective has several `Source`s of hyper-parameters: a joint ARD kernel, an additive one,
and an additive one for rough functions, fitted to space-filling rows, or to rows of which many
lie near the front. No source is the best everywhere: fits to rows near the front know steep
parts, and are misled in the rest of the space. All are fitted now and then, beginning where a
related fit has ended, and the one that predicts left-out rows best is conditioned on all rows
of each step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tcsaea_torch.models.bundles import flatten, restore
from tcsaea_torch.models.choice import Candidate, choose, condition_chosen
from tcsaea_torch.models.chosen import Chosen
from tcsaea_torch.models.fitting import FitConfig, Prior, fit
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies.base import State, tensor_in
from tcsaea_torch.types import Bool, Tensor

ModelName = Literal["fast", "slow", "joined"]
KernelKind = Literal["ard", "additive", "rough"]
KERNEL_KINDS: tuple[KernelKind, ...] = ("ard", "additive", "rough")

_COLD = BFGSOptions(max_evaluations=60)
_RELATED = BFGSOptions(max_evaluations=30)
"""From where another objective's, or another kernel's, fit has ended."""
_WARM = BFGSOptions(max_evaluations=20)
_KERNELS: dict[KernelKind, FitConfig] = {
    "ard": FitConfig(theta_range=(1e-6, 1e3)),
    "additive": FitConfig(kernel="additive"),
    "rough": FitConfig(kernel="additive", p=1.5),
}
_NUGGET = 1e-8
"""Of values without noise: rows may lie near each other."""
_NOISE_RANGE = (1e-6, 1.0)

_GROWTH = 1.4
"""A fit to space-filling rows is made again when their number has grown by this factor."""

_THETA_SPREAD, _AMPLITUDE_SPREAD, _WEIGHT_SPREAD = 1.0, 1.5, 2.0
"""Standard deviations of what one objective's hyper-parameters tell of the other's."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A way to hyper-parameters."""

    kernel: KernelKind
    rows: Literal["space", "mixed"]
    starts_at: str | None = None
    """Name of the fit, of whatever model, where the first fit begins; None: from scratch."""
    has_prior: bool = False
    """Whether the other objective's structure is expected here."""

    @property
    def name(self) -> str:
        """A name that tells it from others of its model."""
        return f"{self.rows}-{self.kernel}" + ("-expected" if self.has_prior else "")


def sources(
    model: ModelName,
    kernels: Sequence[KernelKind],
    *,
    shares_structure: bool,
) -> tuple[Source, ...]:
    """Return the sources of a model's hyper-parameters.

    Args:
        model: "fast" (GP_f), "slow" (GP_s of measured values), or "joined" (GP_s of measured
            and synthetic values), which is like GP_f where the objectives are linked.
        kernels: Which kernels are tried.
        shares_structure: Whether GP_f's structure is expected in GP_s, as one of the sources.
    """
    if model == "slow":
        # Few rows, all of them used; too few to tell a rough function by.
        smooth: list[KernelKind] = [kernel for kernel in kernels if kernel != "rough"]
        found = [Source(kernel=kernel, rows="mixed") for kernel in smooth or kernels]
        if shares_structure and "additive" in kernels:
            found.append(Source(kernel="additive", rows="mixed", has_prior=True))
        return tuple(found)
    found = []
    for kernel in kernels:
        start = None
        if model == "joined":
            start = f"fast/space-{kernel}"
        elif kernel == "rough" and "additive" in kernels:
            start = "fast/space-additive"
        found.append(Source(kernel=kernel, rows="space", starts_at=start))
    for kernel in kernels:
        if kernel != "ard":
            start = f"{model}/space-{kernel}"
            found.append(Source(kernel=kernel, rows="mixed", starts_at=start))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Fits the sources of a model when it is time, and chooses among them."""

    model: ModelName
    sources: tuple[Source, ...]
    refit_after: float
    """Evaluations between fits to mixed rows."""
    noisy: bool
    """Whether the noise is fitted."""
    calibrated: bool
    """Whether variances are widened to agree with leave-one-out errors."""

    def fit(
        self, state: State, train: TrainingSet, kind: Literal["space", "mixed"], clock: int
    ) -> State:
        """Return the state with fits of the sources that learn from such rows and are due.

        Args:
            state: The strategy's state.
            train: Rows to be fitted, `b x n`.
            kind: Whether they fill the space, or are of all kinds.
            clock: Evaluations so far.
        """
        trend, n = _constant(train), train.X.shape[1]
        for source in self.sources:
            key = f"{self.model}/{source.name}"
            if source.rows != kind or not self._is_due(state, key, kind, n, clock):
                continue
            config, init, prior = self._start(state, source)
            model = fit(train, config, trend=trend, init=init, prior=prior)
            found = flatten(model.hyperparameters, key)
            times = {f"{key}/n": n, f"{key}/clock": clock, f"{self.model}/clock": clock}
            state = {**state, **found, **times}
        return state

    def choose(
        self, state: State, train: TrainingSet, is_space: Bool[Tensor, "b n"], clock: int
    ) -> tuple[Chosen, State]:
        """Condition models on the rows given, by the best source of each run.

        That is found anew only after fits.

        Args:
            state: The strategy's state after `fit`.
            train: Rows, `b x n`.
            is_space: Which of them fill the space.
            clock: Evaluations so far.
        """
        trend = _constant(train)
        candidates = [
            Candidate(config=self._config(source), hyperparameters=self._found(state, source))
            for source in self.sources
        ]
        choice, factor = f"{self.model}/choice", f"{self.model}/factor"
        if choice in state and state[f"{self.model}/clock"] != clock:
            models = condition_chosen(train, candidates, tensor_in(state, choice), trend=trend)
        else:
            models = choose(train, candidates, trend=trend, is_space=is_space, score="error")
            state = {**state, choice: models.choice, factor: models.variance_factor()}
        return models.widened(tensor_in(state, factor)) if self.calibrated else models, state

    def _is_due(self, state: State, key: str, kind: str, n: int, clock: int) -> bool:
        n_before, last = state.get(f"{key}/n"), state.get(f"{key}/clock")
        if not isinstance(n_before, int) or not isinstance(last, int):
            return True
        return n >= _GROWTH * n_before if kind == "space" else clock >= last + self.refit_after

    def _start(
        self, state: State, source: Source
    ) -> tuple[FitConfig, Hyperparameters | None, Prior | None]:
        """Return how a fit is made: as long as it takes from where it begins."""
        config, prior = self._config(source), None
        if source.has_prior:
            prior = expected_structure(restore(Hyperparameters, state, "fast/space-additive"))
        if f"{self.model}/{source.name}/n" in state:
            return replace(config, options=_WARM), self._found(state, source), prior
        if prior is not None:
            init = Hyperparameters(
                theta=prior.log_theta.exp(),
                kernel="additive",
                amplitudes=prior.log_amplitudes.exp(),
            )
            return replace(config, options=_COLD), init, prior
        if source.starts_at is not None and f"{source.starts_at}.theta" in state:
            init = restore(Hyperparameters, state, source.starts_at)
            return replace(config, options=_RELATED), replace(init, p=None, variance=None), None
        return replace(config, options=_COLD), None, None

    def _config(self, source: Source) -> FitConfig:
        config = _KERNELS[source.kernel]
        if self.noisy:
            return replace(config, nugget="fit", nugget_range=_NOISE_RANGE)
        return replace(config, nugget=_NUGGET)

    def _found(self, state: State, source: Source) -> Hyperparameters:
        return restore(Hyperparameters, state, f"{self.model}/{source.name}")


def _constant(train: TrainingSet) -> Bool[Tensor, " b"]:
    return torch.zeros(len(train.X), dtype=torch.bool, device=train.X.device)


def expected_structure(other: Hyperparameters) -> Prior:
    """Return what the additive hyper-parameters of one objective tell of the other's.

    A variable that matters there (d a_k near 1 or above) is expected to matter here as much
    and to vary as fast; of the others it is only expected that they vary like those.

    Args:
        other: Of the other objective, `b` models.
    """
    assert other.amplitudes is not None
    a, w = other.amplitudes[..., :-1], other.amplitudes[..., -1:]
    d, log_theta = a.shape[-1], other.theta.log()
    relevance = (d * a).clamp_max(1.0)
    typical = (relevance * log_theta).sum(dim=-1, keepdim=True)
    typical = typical / relevance.sum(dim=-1, keepdim=True)
    log_a = relevance * a.log() - (1.0 - relevance) * math.log(d)
    return Prior(
        log_theta=torch.lerp(typical.expand_as(log_theta), log_theta, relevance),
        theta_spread=torch.full_like(log_theta, _THETA_SPREAD),
        log_amplitudes=torch.cat([log_a, w.log()], dim=-1),
        amplitude_spread=torch.cat(
            [torch.full_like(a, _AMPLITUDE_SPREAD), torch.full_like(w, _WEIGHT_SPREAD)], dim=-1
        ),
    )
