"""What the strategies of the paper with surrogates and delays have in common.

They start with a design and a single-objective search, and go on in periods: train
surrogates, search them by RVEA, choose new points by the adaptive acquisition function,
and additional points, for the fast objective only, around these. Line numbers are those
of Algorithm 1 of [Wang2022], see `tc_saea`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import torch

from tcsaea_torch.acquisition.adaptive import (
    AAFNormalizer,
    adaptive_acquisition,
    adaptive_weight,
)
from tcsaea_torch.evolution.reference_vectors import simplex_lattice
from tcsaea_torch.evolution.rvea import Population, RVEAConfig, rvea
from tcsaea_torch.evolution.selection import apd_select
from tcsaea_torch.evolution.variation import Draws, Variation
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, Trend
from tcsaea_torch.models.training_set import TrainingSet, limit, merge_duplicates
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, tensor_in
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.start import design_and_soea, next_period, start_state
from tcsaea_torch.transfer.instance_selection import Interval, half_width
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_bool,
    check_choice,
    check_instance,
    check_int,
    check_real,
    check_text,
    keep_checked,
)

_N_FOR_ONE = 4
"""Samples of the box for each point to be chosen, where failures are learned from."""


def dace(*, starts: tuple[float, ...], max_evaluations: int, value_tolerance: float) -> FitConfig:
    """Return DACE's scaling and box of theta, with a search of the given length."""
    options = BFGSOptions(max_evaluations=max_evaluations, value_tolerance=value_tolerance)
    return FitConfig(
        input_scaling="standardize", theta_range=(1e-5, 100.0), starts=starts, options=options
    )


@dataclass(frozen=True, kw_only=True)
class SurrogateAssisted(ABC):
    """Configuration of what they have in common; `_period` is what sets them apart.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_new: int = 3
    """u: new points with both objectives in each period."""
    n_ref_vectors: int = 100
    """Reference vectors, and room in the surrogate population."""
    n_train_max: int | None = None
    """N_max: rows of a training set, at most; None: 11 d + 24."""
    search: RVEAConfig = field(default_factory=RVEAConfig)
    """RVEA on the surrogates; its `n_generations` is w_max."""
    reset_vectors: bool = True
    """Whether RVEA begins each period with unadapted vectors."""
    kriging: FitConfig = field(
        default_factory=lambda: dace(starts=(2.0, 20.0), max_evaluations=60, value_tolerance=1e-7)
    )
    """How the Gaussian processes are fitted."""
    trend_fast: Trend = "constant"
    """Trend of GP_f."""
    trend_slow: Trend = "constant"
    """Trend of GP_s."""
    soea_maximises: bool = False
    """Whether the start's single-objective search keeps the larger fast value of each
    pair: a slip of the released code that spreads its data to the front's other end."""
    variation: Variation = field(default_factory=Variation)
    """Crossover and mutation of the single-objective search."""
    late_fast_credit: bool = False
    """When the fast budget is spent. False: N (tau - 1) extra calls at the start, then
    u (tau - 1) in each period. True: N (tau - 2) at the start, then u tau."""
    box_margin: float = 0.025
    """Sides of the box round the new points are at least twice this, in the unit cube."""
    uncertainty: Interval = "sd"
    """s in the acquisition function."""
    uncertainty_sign: float = 1.0
    """+1 prefers certain points, as released; -1 is a lower confidence bound."""
    infill_penalty_scale: float = 1.0
    """The APD of the infill has penalty (FE_s / (scale B_s))^2."""
    failure_model: bool = False
    """Whether the probability of success is learned, from three failures of an objective
    on, and proposals keep away from where it is low."""
    name: str
    """Name of this configuration."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_new", minimum=1)
        keep_checked(self, check_int, "n_ref_vectors", minimum=2)
        if self.n_train_max is not None:
            keep_checked(self, check_int, "n_train_max", minimum=2)
        check_instance("search", self.search, RVEAConfig)
        check_instance("kriging", self.kriging, FitConfig)
        check_instance("variation", self.variation, Variation)
        for trend in ("trend_fast", "trend_slow"):
            check_choice(trend, getattr(self, trend), ("constant", "linear"))
        for switch in ("reset_vectors", "soea_maximises", "late_fast_credit", "failure_model"):
            check_bool(switch, getattr(self, switch))
        keep_checked(self, check_real, "box_margin", minimum=0.0, maximum=0.5)
        check_choice("uncertainty", self.uncertainty, ("sd", "variance"))
        keep_checked(self, check_real, "uncertainty_sign", minimum=-1.0, maximum=1.0)
        keep_checked(self, check_real, "infill_penalty_scale", minimum=0.0, exclusive=True)
        check_text("name", self.name)

    # ------------------------------------------------------------------ protocol

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        return {**start_state(run), "period": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the initial design, a generation of the SOEA, or a period."""

        def fast_target(n_design: int) -> Tensor:
            return self._fast_target(run.used[:, SLOW], n_design, run)

        proposal, state = design_and_soea(  # line 1
            state, run, fast_target, self.variation, maximise=self.soea_maximises
        )
        if proposal is not None:
            return proposal, state
        return next_period(self._period, self.n_new, state, run)

    @abstractmethod
    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Fit, search, select: one pass of the main loop (lines 2 to 24)."""

    def _fast_target(self, n_slow: Tensor, n_design: int, run: RunView) -> Tensor:
        """Return how many fast calls there may be once `n_slow` slow ones are asked for."""
        credit = torch.floor(run.tau * n_slow.double() + 1e-9).long()
        if self.late_fast_credit:
            start = max(n_design, int(n_design * (run.tau - 1.0) + 1e-9))
            later = (n_slow - n_design).clamp_min(0)
            target = start + later + torch.floor(run.tau * later.double() + 1e-9).long()
            credit = torch.minimum(credit, target)
        return torch.minimum(credit, run.total[:, FAST])

    def _credit(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"] | int
    ) -> Int[Tensor, " b"]:
        """Return the fast calls that slow ones have released, once n_new points have both."""
        target = self._fast_target(run.used[:, SLOW] + n_new, int(state["n_design"]), run)
        return (target - run.used[:, FAST] - n_new).clamp_min(0)

    # ------------------------------------------------------------------ parts of a period

    def _limited(self, train: TrainingSet, name: str, run: RunView, period: int) -> TrainingSet:
        """Merge equal points and keep at most N_max rows, before each fit."""
        u = uniforms(run.seeds, f"limit/{name}", period, train.y.shape[1:], dtype=run.dtype)
        return limit(merge_duplicates(train), self._n_max(run), u)

    def _n_max(self, run: RunView) -> int:
        return 11 * run.d + 24 if self.n_train_max is None else self.n_train_max

    def _chances(self, state: State, run: RunView) -> Chances:
        """Learn where evaluations succeed, if it is wanted and there are failures."""
        if not self.failure_model:
            return Chances()
        return Chances.learn(run, int(state["period"]), self._n_max(run))

    @property
    def _clearance(self) -> float:
        """How far new points keep away from outstanding ones and from each other."""
        return steps.SAME_POINT

    def _search(
        self,
        state: State,
        run: RunView,
        gp_f: Surrogate,
        gp_s: Surrogate,
        chances: Chances,
        start: TrainingSet | None = None,
    ) -> tuple[Population, Tensor]:
        """Run RVEA on the surrogates' means (lines 6 to 10).

        It starts from the points of `start`; None: from all fast-evaluated points.
        """

        def evaluate(X: Tensor) -> Tensor:
            return torch.stack([gp_f.mean(X), gp_s.mean(X)], dim=-1)

        r, period = self.n_ref_vectors, int(state["period"])
        draws = Draws.make(
            run.seeds, "rvea", period, self.search.n_generations, r, run.d, run.dtype
        )
        return rvea(
            chances.worsen(evaluate, run),
            run.archive.X if start is None else start.X,
            run.archive.observed[..., FAST] if start is None else start.live,
            self._lattice(run),
            draws,
            self.search,
            vectors=None if self.reset_vectors else state.get("vectors"),  # pyright: ignore
            grid=run.grid,
        )

    def _lattice(self, run: RunView) -> Float[Tensor, "r 2"]:
        """Return the reference vectors before any adaptation."""
        return simplex_lattice(self.n_ref_vectors, dtype=run.dtype, device=run.device)

    def _acquire(
        self,
        run: RunView,
        population: Population,
        gp_f: Surrogate,
        gp_s: Surrogate,
        chances: Chances,
    ) -> tuple[Float[Tensor, "b r d"], Bool[Tensor, "b r"]]:
        """Select by the adaptive acquisition function and the APD (lines 11 and 12).

        Returns:
            One candidate for each reference vector, and which of them exist.
        """
        (mean_f, var_f), (mean_s, var_s) = gp_f.predict(population.X), gp_s.predict(population.X)
        mean = torch.stack([mean_f, mean_s], dim=-1)
        s = half_width(torch.stack([var_f, var_s], dim=-1), self.uncertainty)
        used, total = run.used[:, SLOW].to(run.dtype), run.total[:, SLOW].to(run.dtype)
        normalizer = AAFNormalizer.from_population(mean, s, population.alive)
        weight = adaptive_weight(used, total)
        aaf = adaptive_acquisition(mean, s, normalizer, weight, sign=self.uncertainty_sign)
        penalty = (used / (self.infill_penalty_scale * total)) ** 2
        aaf = chances.lengthen(aaf, population.X, population.alive)
        winner, occupied = apd_select(aaf, population.alive, self._lattice(run), penalty)
        # Two values of each objective are the least to learn from: random points until then.
        occupied = occupied & (run.archive.observed.sum(dim=1) >= 2).all(dim=-1, keepdim=True)
        return take_rows(population.X, winner), occupied

    def _with_additional(
        self,
        state: State,
        run: RunView,
        X_new: Float[Tensor, "b u d"],
        is_new: Bool[Tensor, "b u"],
        chances: Chances,
    ) -> Proposal:
        """Add points around X_new, for the fast objective only (line 13)."""
        X_a, is_additional = self._around(state, run, X_new, is_new, chances)
        X = torch.cat([X_new, X_a], dim=1)
        is_additional = is_additional & steps.may_be_new(X_a, run, self._clearance)
        keep = torch.cat([is_new, is_additional], dim=1)
        keep = steps.first_of_equals(X, keep, self._clearance)
        is_slow = keep & (torch.arange(X.shape[1], device=X.device) < X_new.shape[1])
        return Proposal(X=X, evaluation_mask=torch.stack([keep, is_slow], dim=-1))

    def _around(
        self,
        state: State,
        run: RunView,
        X_new: Float[Tensor, "b u d"],
        is_new: Bool[Tensor, "b u"],
        chances: Chances,
    ) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
        """Sample the box round X_new, as many points as the fast budget allows with X_new."""
        credit = self._credit(state, run, is_new.sum(dim=1))
        n_slots, period = int(X_new.shape[1] * run.tau) + 1, int(state["period"])
        if run.wanted is not None:  # for the workers that are left
            credit = torch.minimum(credit, (run.wanted[:, FAST] - is_new.sum(dim=1)).clamp_min(0))
            n_slots = min(n_slots, int(credit.amax()))
        n = credit.clamp_max(n_slots)
        X, exists = self._sample_box(X_new, is_new, n, n_slots, run, period, chances)
        return X, exists & is_new.any(dim=1, keepdim=True)

    def _sample_box(
        self,
        X_new: Float[Tensor, "b u d"],
        is_new: Bool[Tensor, "b u"],
        n: Int[Tensor, " b"],
        n_slots: int,
        run: RunView,
        step: int,
        chances: Chances,
        name: str = "additional",
    ) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
        """Sample n points of the box round X_new, of more where some are likely to fail."""
        n_for_one = 1 if chances.fast is None else _N_FOR_ONE
        k = n_for_one * n_slots
        X, exists = steps.around(
            X_new, is_new, n_for_one * n, k, run, step, margin=self.box_margin, name=name
        )
        if n_for_one == 1:
            return X, exists
        u = uniforms(run.seeds, f"{name}/likely", step, (k,), dtype=run.dtype)
        key = chances.order(X, u, fast_only=True).masked_fill(~exists, torch.inf)
        chosen = take_rows(X, key.argsort(dim=1)[:, :n_slots])
        return chosen, torch.arange(n_slots, device=X.device) < n.unsqueeze(-1)


def thetas(models: dict[str, Surrogate]) -> State:
    """Return the entries of the state that keep what fits have found."""
    state: State = {}
    for name, model in models.items():
        state[f"theta_{name}"] = model.hyperparameters.theta
        if model.hyperparameters.p is not None:
            state[f"p_{name}"] = model.hyperparameters.p
    return state


def warm_start(state: State, name: str) -> Hyperparameters | None:
    """Return what the last fit of this model found; None before the first."""
    if f"theta_{name}" not in state:
        return None
    p = tensor_in(state, f"p_{name}") if f"p_{name}" in state else None
    return Hyperparameters(theta=tensor_in(state, f"theta_{name}"), p=p)
