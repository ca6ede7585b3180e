"""How TC-EHVI finds the hyper-parameters of its models, keeps them, and chooses.

Each objective has several `Source`s of hyper-parameters: joint and additive kernels, fitted to
space-filling rows, or to rows of which many lie near the front. No source is the best
everywhere: fits to rows near the front know steep parts, and are misled in the rest of the
space. All are fitted now and then, beginning where a related fit has ended, and the one that
predicts left-out rows best is conditioned on all rows of each step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tcsaea_torch.models.bundles import flatten, restore
from tcsaea_torch.models.choice import Candidate, choose, condition_chosen, cross_validate
from tcsaea_torch.models.chosen import Chosen
from tcsaea_torch.models.fit_config import FitConfig, joint_theta_prior
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies.base import State, tensor_in
from tcsaea_torch.types import Bool, Int, Tensor

ModelName = Literal["fast", "slow", "joined"]
KernelKind = Literal["joint", "additive", "smooth", "cautious"]
KERNEL_KINDS: tuple[KernelKind, ...] = ("joint", "additive", "smooth", "cautious")

_COLD = BFGSOptions(max_evaluations=60)
_RELATED = BFGSOptions(max_evaluations=30)
"""From where another objective's, or another kernel's, fit has ended."""
_WARM = BFGSOptions(max_evaluations=20)
_JUDGED = BFGSOptions(max_evaluations=40)
"""In cross-validation. It does not begin where the fit to all rows has ended: that one knows
what is left out."""
_ROUGH = {"nugget": "fit", "nugget_range": (1e-8, 0.3), "nugget_prior": (1e-3, 2.0)}
"""What is too rough for a kernel passes for noise, so that the rest is not bent to explain it."""
_KERNELS: dict[KernelKind, FitConfig] = {
    "joint": FitConfig(
        theta_range=(1e-6, 1e3), nugget="fit", nugget_range=(1e-4, 0.1), nugget_prior=(5e-3, 1.0)
    ),
    "additive": FitConfig(kernel="additive", **_ROUGH),
    "smooth": FitConfig(
        kernel="additive",
        starts=(0.3, 5.0),
        theta_prior=(1.0, 2.0),
        amplitude_spread=1.0,
        **_ROUGH,
    ),
    "cautious": FitConfig(
        kernel="additive", starts=(5.0,), theta_prior=(20.0, 1.0), amplitude_spread=0.75
    ),
}
_NUGGET = 1e-8
"""Of values without noise: rows may lie near each other."""
_NOISE_RANGE = (1e-6, 1.0)

_SMALLEST_FACTOR = 0.01
"""Where rows lie near each other in a steep part, sigma^2 is far too large for the rest."""

_LARGEST_FACTOR = 100.0
"""Rows that are all the same but one leave fits without it that are sure of a constant."""

_MARGIN = 1.5
"""By how much, over the root of the number of rows, cross-validation must prefer a kernel."""

_GROWTH = 1.35
"""All sources are fitted again when there are more values by this factor."""
_SLOW_GROWTH, _FAST_GROWTH = 1.05, 1.1
"""Those that are chosen are: of GP_s, whose rows are few, and of other models."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A way to hyper-parameters."""

    kernel: KernelKind
    rows: Literal["space", "mixed"]
    starts_at: str | None = None
    """Name of the fit, of whatever model, where the first fit begins; None: from scratch."""

    @property
    def name(self) -> str:
        """A name that tells it from others of its model."""
        return f"{self.rows}-{self.kernel}"


def sources(model: ModelName, kernels: Sequence[KernelKind]) -> tuple[Source, ...]:
    """Return the sources of a model's hyper-parameters.

    Args:
        model: "fast" (GP_f), "slow" (GP_s of measured values), or "joined" (GP_s of measured
            and synthetic values), which is like GP_f where the objectives are linked.
        kernels: Which kernels are tried.
    """
    if model == "slow":  # few rows, all of them used
        return tuple(Source(kernel=kernel, rows="mixed") for kernel in kernels)
    bold: Sequence[KernelKind] = [k for k in kernels if k not in ("smooth", "cautious")]
    bold = bold or kernels
    space = [
        Source(
            kernel=kernel,
            rows="space",
            starts_at=f"fast/space-{kernel}" if model == "joined" else None,
        )
        for kernel in bold
    ]
    mixed = [
        Source(kernel=kernel, rows="mixed", starts_at=f"{model}/space-{kernel}") for kernel in bold
    ]
    return (*space, *mixed)


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Fits the sources of a model when it is time, and chooses among them."""

    model: ModelName
    sources: tuple[Source, ...]
    noisy: bool
    """Whether the noise is fitted."""
    calibrated: bool
    """Whether variances are widened to agree with leave-one-out errors."""

    def fit(
        self, state: State, train: TrainingSet, kind: Literal["space", "mixed"], clock: int
    ) -> State:
        """Return the state with fits of the sources that learn from such rows and are due.

        All are due when values have become many more; then the choice is a new one. Of those
        that learn from rows of all kinds, the one that each run has chosen is due more often.

        Args:
            state: The strategy's state.
            train: Rows to be fitted, `b x n`.
            kind: Whether they fill the space, or are of all kinds.
            clock: Evaluations so far.
        """
        last, last_chosen = f"{self.model}/{kind}/all", f"{self.model}/chosen"
        fitted, judged = f"{self.model}/fitted", f"{self.model}/judged"
        # Rows of all kinds are soon as many as a fit may have, but they become other ones.
        n_values = train.X.shape[1] if kind == "space" or self.model == "slow" else clock
        every_run = torch.arange(len(train.X), device=train.X.device)
        if _has_grown(state.get(last), n_values, _GROWTH):
            for source in self.sources:
                if source.rows == kind:
                    state = self._fit(state, source, train, every_run)
            state = {**state, last: n_values, fitted: clock, judged: clock}
            if kind == "mixed":
                state[last_chosen] = n_values
            return self._judge(state, train) if self.model == "slow" else state
        growth = _SLOW_GROWTH if self.model == "slow" else _FAST_GROWTH
        if kind == "space" or not _has_grown(state.get(last_chosen), n_values, growth):
            return state
        choice = tensor_in(state, f"{self.model}/choice")
        for i, source in enumerate(self.sources):
            if source.rows == kind:
                state = self._fit(state, source, train, every_run[choice == i])
        return {**state, last_chosen: n_values, fitted: clock}

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
        trend, choice, factor = _constant(train), f"{self.model}/choice", f"{self.model}/factor"
        candidates = [
            Candidate(
                config=self._config(source, train),
                hyperparameters=self._found(state, source),
            )
            for source in self.sources
        ]
        # GP_s has been judged by cross-validation.
        is_new = self.model != "slow" and state[f"{self.model}/fitted"] == clock
        if is_new and (choice not in state or state[f"{self.model}/judged"] == clock):
            models = choose(train, candidates, trend=trend, is_space=is_space, score="error")
        else:
            models = condition_chosen(train, candidates, tensor_in(state, choice), trend=trend)
        if is_new:
            widening = models.leave_one_out().variance_factor(_SMALLEST_FACTOR)
            widening = widening.clamp_max(_LARGEST_FACTOR)
            state = {**state, choice: models.choice, factor: widening}
        return models.widened(tensor_in(state, factor)) if self.calibrated else models, state

    def _judge(self, state: State, train: TrainingSet) -> State:
        """Return the state with a choice of GP_s' kernel by cross-validation.

        With few rows in many dimensions, leave-one-out errors with the hyper-parameters of all
        rows promise far too much.
        """
        errors = []
        for source in self.sources:
            config = replace(self._config(source, train), options=_JUDGED)
            errors.append(cross_validate(train, config, trend=_constant(train)))
        scores = torch.stack([found.calibrated_density() for found in errors], dim=-1)
        # The others must be clearly better than the first: scores of few rows are uncertain.
        scores[:, 0] += _MARGIN / train.n_live.clamp_min(1).sqrt()
        choice = scores.argmax(dim=-1)
        factors = torch.stack([found.variance_factor() for found in errors], dim=-1)
        factor = factors.gather(-1, choice.unsqueeze(-1)).squeeze(-1).clamp_max(_LARGEST_FACTOR)
        return {**state, "slow/choice": choice, "slow/factor": factor}

    def _fit(
        self, state: State, source: Source, train: TrainingSet, members: Int[Tensor, " k"]
    ) -> State:
        """Return the state with new fits of some runs."""
        if not len(members):
            return state
        is_all = len(members) == len(train.X)
        rows = train if is_all else train[members]
        trend, key = _constant(rows), f"{self.model}/{source.name}"
        config, init = self._start(state, source, train)
        if init is not None:
            init = init[members]
        found = flatten(fit(rows, config, trend=trend, init=init).hyperparameters, key)
        if not is_all:
            for name, value in found.items():
                if isinstance(value, Tensor):
                    found[name] = tensor_in(state, name).index_copy(0, members, value)
        return {**state, **found}

    def _start(
        self, state: State, source: Source, train: TrainingSet
    ) -> tuple[FitConfig, Hyperparameters | None]:
        """Return how a fit is made: as long as it takes from where it begins."""
        config = self._config(source, train)
        if f"{self.model}/{source.name}.theta" in state:
            return replace(config, options=_WARM), self._found(state, source)
        if source.starts_at is not None and f"{source.starts_at}.theta" in state:
            init = restore(Hyperparameters, state, source.starts_at)
            return replace(config, options=_RELATED), replace(init, p=None, variance=None)
        return replace(config, options=_COLD), None

    def _config(self, source: Source, train: TrainingSet) -> FitConfig:
        config = _KERNELS[source.kernel]
        if config.kernel == "power-exponential":
            config = replace(config, theta_prior=joint_theta_prior(train.X.shape[-1]))
        if self.noisy:
            return replace(config, nugget="fit", nugget_range=_NOISE_RANGE, nugget_prior=None)
        if config.nugget == "fit":
            return config
        return replace(config, nugget=max(_NUGGET, config.nugget_for(train.X.dtype)))

    def _found(self, state: State, source: Source) -> Hyperparameters:
        return restore(Hyperparameters, state, f"{self.model}/{source.name}")


def _has_grown(before: object, n: int, factor: float) -> bool:
    return not isinstance(before, int) or n >= factor * before


def _constant(train: TrainingSet) -> Bool[Tensor, " b"]:
    return torch.zeros(len(train.X), dtype=torch.bool, device=train.X.device)
