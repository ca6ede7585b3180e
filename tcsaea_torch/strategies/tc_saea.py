"""TC-SAEA: transfer learning with a co-surrogate [Wang2022], Algorithm 1.

Line numbers are those of the paper's Algorithm 1. The defaults are the algorithm as its
text has it, its inconsistencies resolved; `RELEASED` are the choices of the authors'
released code, from which the published numbers come.

[Wang2022] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning based co-surrogate
assisted evolutionary bi-objective optimization for objectives with non-uniform
evaluation times. Evolutionary Computation 30(2), 2022.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

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
from tcsaea_torch.models.fitting import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, Trend
from tcsaea_torch.models.training_set import (
    TrainingSet,
    drop_superseded,
    limit,
    merge_duplicates,
)
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import (
    FAST,
    SLOW,
    Proposal,
    RunView,
    State,
    register,
    tensor_in,
)
from tcsaea_torch.strategies.start import sample_design, soea_generation, start_state
from tcsaea_torch.transfer.co_surrogate import co_training_set, synthetic_values
from tcsaea_torch.transfer.instance_selection import Interval, half_width, is_believed
from tcsaea_torch.transfer.polynomial import Quadratic, fit_quadratic
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

_MODELS = ("fast", "slow", "co")


def _dace(*, starts: tuple[float, ...], max_evaluations: int, value_tolerance: float) -> FitConfig:
    """Return DACE's scaling and box of theta, with a search of the given length."""
    options = BFGSOptions(max_evaluations=max_evaluations, value_tolerance=value_tolerance)
    return FitConfig(
        input_scaling="standardize", theta_range=(1e-5, 100.0), starts=starts, options=options
    )


@dataclass(frozen=True, kw_only=True)
class TCSAEA:
    """Configuration of TC-SAEA.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_new: int = 3
    """u: new points with both objectives in each period."""
    n_ref_vectors: int = 100
    """Reference vectors, and room in the surrogate population."""
    n_train_max: int | None = None
    """N_max: rows of a training set, at most; None: 11 d + 24."""
    limit_first_fast: bool = True
    """Whether N_max holds for GP_f's very first fit too."""
    search: RVEAConfig = field(default_factory=RVEAConfig)
    """RVEA on the surrogates; its `n_generations` is w_max."""
    reset_vectors: bool = True
    """Whether RVEA begins each period with unadapted vectors."""
    kriging: FitConfig = field(
        default_factory=lambda: _dace(starts=(2.0, 20.0), max_evaluations=60, value_tolerance=1e-7)
    )
    """How the Gaussian processes are fitted."""
    trend_fast: Trend = "constant"
    """Trend of GP_f."""
    trend_slow: Trend = "constant"
    """Trend of GP_s."""
    trend_co: Trend = "constant"
    """Trend of GP_c."""
    co_surrogate: Literal["kriging", "quadratic"] = "kriging"
    """Model of the difference: GP_c, or a quadratic regression (the paper's TC-SAEAp)."""
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
    transfer: Literal["interval", "all", "none"] = "interval"
    """Which synthetic values GP_s learns from: those within its confidence interval,
    all (the paper's NS-SAEA), or none (NT-SAEA)."""
    interval: Interval = "sd"
    """Half-width of the confidence interval: "sd" (the text) or "variance"."""
    accumulate: bool = True
    """Whether D_t keeps the synthetic values of all periods, or of the last one only."""
    pure_at_fit: bool = False
    """Whether the period in which GP_s is fitted to D_s alone is each tau-th itself, or
    the one after it."""
    last_transfer_period: int | None = None
    """Period after which no synthetic values are used; None: never."""
    uncertainty: Interval = "sd"
    """s in the acquisition function."""
    uncertainty_sign: float = 1.0
    """+1 prefers certain points, as released; -1 is a lower confidence bound."""
    infill_penalty_scale: float = 1.0
    """The APD of the infill has penalty (FE_s / (scale B_s))^2."""
    name: str = "tc-saea"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_new", minimum=1)
        keep_checked(self, check_int, "n_ref_vectors", minimum=2)
        if self.n_train_max is not None:
            keep_checked(self, check_int, "n_train_max", minimum=2)
        check_instance("search", self.search, RVEAConfig)
        check_instance("kriging", self.kriging, FitConfig)
        check_instance("variation", self.variation, Variation)
        for trend in ("trend_fast", "trend_slow", "trend_co"):
            check_choice(trend, getattr(self, trend), ("constant", "linear"))
        check_choice("co_surrogate", self.co_surrogate, ("kriging", "quadratic"))
        for switch in (
            "limit_first_fast", "reset_vectors", "soea_maximises", "late_fast_credit",
            "accumulate", "pure_at_fit",
        ):  # fmt: skip
            check_bool(switch, getattr(self, switch))
        keep_checked(self, check_real, "box_margin", minimum=0.0, maximum=0.5)
        check_choice("transfer", self.transfer, ("interval", "all", "none"))
        check_choice("interval", self.interval, ("sd", "variance"))
        check_choice("uncertainty", self.uncertainty, ("sd", "variance"))
        if self.last_transfer_period is not None:
            keep_checked(self, check_int, "last_transfer_period", minimum=0)
        keep_checked(self, check_real, "uncertainty_sign", minimum=-1.0, maximum=1.0)
        keep_checked(self, check_real, "infill_penalty_scale", minimum=0.0, exclusive=True)
        check_text("name", self.name)

    # ------------------------------------------------------------------ protocol

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        zeros = torch.zeros_like(run.archive.X[..., 0])
        return {
            **start_state(run),
            "period": 0,
            "born": torch.zeros_like(zeros, dtype=torch.int64),
            "co_mean": zeros,
            "slow_mean": zeros,
            "width": zeros,
        }

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the initial design, a generation of the SOEA, or a period."""
        state = _aligned(state, run)
        if state["stage"] == "design":  # line 1
            proposal, state = sample_design(state, run)
            if state["n_design"]:
                return proposal, state
        if state["stage"] == "soea":  # line 1
            proposal, state = soea_generation(
                state,
                run,
                self._fast_target(run.used[:, SLOW], int(state["n_design"]), run),
                self.variation,
                maximise=self.soea_maximises,
            )
            if bool(proposal.evaluation_mask.any()) or proposal.waits_for is not None:
                return proposal, state
            state = {**state, "stage": "periods"}
        if bool(run.pending.any()):
            return Proposal.nothing(run, run.pending), state
        n_new = run.left.amin(dim=-1).clamp_max(self.n_new)
        if not bool((n_new > 0).any()):
            return Proposal.nothing(run), state
        return self._period(state, run, n_new)

    def _fast_target(self, n_slow: Tensor, n_design: int, run: RunView) -> Tensor:
        """Return how many fast calls there may be once `n_slow` slow ones are asked for."""
        credit = torch.floor(run.tau * n_slow.double() + 1e-9).long()
        if self.late_fast_credit:
            start = max(n_design, int(n_design * (run.tau - 1.0) + 1e-9))
            later = (n_slow - n_design).clamp_min(0)
            target = start + later + torch.floor(run.tau * later.double() + 1e-9).long()
            credit = torch.minimum(credit, target)
        return torch.minimum(credit, run.total[:, FAST])

    # ------------------------------------------------------------------ lines 2 to 24

    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Fit, search, select: one pass of the main loop."""
        period = int(state["period"]) + 1
        gp_f, gp_s, gp_c = self._train(state, run, period)  # lines 3 to 5, 20 to 24
        population, vectors = self._search(state, run, period, gp_f, gp_s)  # lines 6 to 10
        X_new, is_new = self._select(run, period, population, gp_f, gp_s, n_new)  # 11, 12

        # Line 13: additional points around X_new, for the fast objective only.
        n_slow = run.used[:, SLOW] + is_new.sum(dim=1)
        credit = self._fast_target(n_slow, int(state["n_design"]), run)
        credit = (credit - run.used[:, FAST] - is_new.sum(dim=1)).clamp_min(0)
        n_slots = int(self.n_new * run.tau) + 1
        X_a, is_additional = steps.around(
            X_new, is_new, credit.clamp_max(n_slots), n_slots, run, period, margin=self.box_margin
        )
        is_additional = is_additional & is_new.any(dim=1, keepdim=True)
        X = torch.cat([X_new, X_a], dim=1)
        keep = torch.cat([is_new, is_additional & ~steps.is_known(X_a, run)], dim=1)
        keep = steps.first_of_equals(X, keep)
        is_slow = keep & (torch.arange(X.shape[1], device=X.device) < self.n_new)

        # Lines 15 and 16, with the models of this period; line 17 when y_f is known.
        co_mean, (slow_mean, slow_variance) = gp_c.mean(X), gp_s.predict(X)
        state = {
            **state,
            **_thetas({"fast": gp_f, "slow": gp_s, "co": gp_c}),
            "period": period,
            "vectors": vectors,
            "born": _appended(state, "born", (keep & ~is_slow) * period),
            "co_mean": _appended(state, "co_mean", co_mean),
            "slow_mean": _appended(state, "slow_mean", slow_mean),
            "width": _appended(state, "width", half_width(slow_variance, self.interval)),
        }
        return Proposal(X=X, evaluation_mask=torch.stack([keep, is_slow], dim=-1)), state

    def _train(
        self, state: State, run: RunView, period: int
    ) -> tuple[Surrogate, Surrogate, Surrogate | Quadratic]:
        """Limit the training sets and train GP_f, GP_s and GP_c (lines 3 to 5, 20 to 24)."""
        archive = run.archive
        observed = archive.observed
        D_f = TrainingSet.from_mask(archive.X, archive.Y[..., FAST], observed[..., FAST])
        synthetic, in_D_t = self._transferable(state, run, period)
        is_measured = observed[..., SLOW]
        y_slow = torch.where(is_measured, archive.Y[..., SLOW], synthetic)
        D_s = TrainingSet.from_mask(archive.X, y_slow, is_measured | in_D_t)
        D_s = drop_superseded(D_s, is_measured)
        D_c = co_training_set(archive)

        n_max = 11 * run.d + 24 if self.n_train_max is None else self.n_train_max
        sets = {}
        for name, train in zip(_MODELS, (D_f, D_s, D_c), strict=True):
            u = uniforms(run.seeds, f"limit/{name}", period, (len(archive),), dtype=run.dtype)
            train = merge_duplicates(train)
            unlimited = name == "fast" and period == 1 and not self.limit_first_fast
            sets[name] = train if unlimited else limit(train, n_max, u)
        quadratic = fit_quadratic(sets.pop("co")) if self.co_surrogate == "quadratic" else None
        trends = {"fast": self.trend_fast, "slow": self.trend_slow, "co": self.trend_co}
        models = steps.fit_models(
            sets, trends, self.kriging, {name: _warm_start(state, name) for name in sets}
        )
        return models["fast"], models["slow"], quadratic or models["co"]

    def _transferable(
        self, state: State, run: RunView, period: int
    ) -> tuple[Float[Tensor, "b n"], Bool[Tensor, "b n"]]:
        """Return synthetic slow values and which of them are in D_t (lines 15 to 19)."""
        born = tensor_in(state, "born")
        y_fast, is_fast = run.archive.Y[..., FAST], run.archive.observed[..., FAST]
        synthetic = synthetic_values(y_fast, tensor_in(state, "co_mean"))
        in_D_t = (born > 0) & is_fast
        if self.transfer == "interval":
            slow_mean, width = tensor_in(state, "slow_mean"), tensor_in(state, "width")
            in_D_t = in_D_t & is_believed(synthetic, slow_mean, width)
        if not self.accumulate:
            in_D_t = in_D_t & (born == period - 1)
        if self.transfer == "none" or self._is_pure(period, run.tau):
            in_D_t = torch.zeros_like(in_D_t)
        return synthetic, in_D_t

    def _is_pure(self, period: int, tau: float) -> bool:
        """Return whether GP_s learns from measured values alone in this period (line 20)."""
        if self.last_transfer_period is not None and period > self.last_transfer_period:
            return True
        turn = period if self.pure_at_fit else period - 1
        return turn % max(1, round(tau)) == 0

    def _search(
        self, state: State, run: RunView, period: int, gp_f: Surrogate, gp_s: Surrogate
    ) -> tuple[Population, Tensor]:
        """Run RVEA on the surrogates' means (lines 6 to 10).

        It starts from all fast-evaluated points.
        """

        def evaluate(X: Tensor) -> Tensor:
            return torch.stack([gp_f.mean(X), gp_s.mean(X)], dim=-1)

        r = self.n_ref_vectors
        draws = Draws.make(
            run.seeds, "rvea", period, self.search.n_generations, r, run.d, run.dtype
        )
        return rvea(
            evaluate,
            run.archive.X,
            run.archive.observed[..., FAST],
            self._lattice(run),
            draws,
            self.search,
            vectors=None if self.reset_vectors else state.get("vectors"),  # pyright: ignore
            grid=run.grid,
        )

    def _lattice(self, run: RunView) -> Float[Tensor, "r 2"]:
        """Return the reference vectors before any adaptation."""
        return simplex_lattice(self.n_ref_vectors, dtype=run.dtype, device=run.device)

    def _select(
        self,
        run: RunView,
        period: int,
        population: Population,
        gp_f: Surrogate,
        gp_s: Surrogate,
        n_new: Int[Tensor, " b"],
    ) -> tuple[Tensor, Tensor]:
        """Choose X_new by the adaptive acquisition function and the APD (lines 11 and 12)."""
        (mean_f, var_f), (mean_s, var_s) = gp_f.predict(population.X), gp_s.predict(population.X)
        mean = torch.stack([mean_f, mean_s], dim=-1)
        s = half_width(torch.stack([var_f, var_s], dim=-1), self.uncertainty)
        used, total = run.used[:, SLOW].to(run.dtype), run.total[:, SLOW].to(run.dtype)
        normalizer = AAFNormalizer.from_population(mean, s, population.alive)
        weight = adaptive_weight(used, total)
        aaf = adaptive_acquisition(mean, s, normalizer, weight, sign=self.uncertainty_sign)
        penalty = (used / (self.infill_penalty_scale * total)) ** 2
        winner, occupied = apd_select(aaf, population.alive, self._lattice(run), penalty)
        # Two values of each objective are the least to learn from: random points until then.
        occupied = occupied & (run.archive.observed.sum(dim=1) >= 2).all(dim=-1, keepdim=True)
        X = take_rows(population.X, winner)
        return steps.choose_new(X, occupied, n_new, self.n_new, run, period)


RELEASED: dict[str, Any] = {
    "limit_first_fast": False,
    "search": RVEAConfig(n_generations=8, first_generation=1, penalty_generations=20),
    "reset_vectors": False,
    # DACE makes at most four sweeps of pattern search: the published behaviour rests on
    # fits cruder than ours could be. Its start, theta = 5, would leave a gradient no slope.
    "kriging": _dace(starts=(12.0,), max_evaluations=15, value_tolerance=1e-5),
    "trend_fast": "linear",
    "trend_co": "linear",
    "soea_maximises": True,
    "late_fast_credit": True,
    "box_margin": 0.0,
    "interval": "variance",
    "pure_at_fit": True,
    "last_transfer_period": 24,
    "uncertainty": "variance",
    "infill_penalty_scale": 1.5,
    "name": "tc-saea-released",
}
"""What the authors' released code does, where it differs from Algorithm 1."""


def _variant(**changes: Any) -> Callable[..., TCSAEA]:
    """Return a factory of a configuration that differs from Algorithm 1 in a few fields."""
    return lambda **options: TCSAEA(**{**changes, **options})


register("tc-saea", TCSAEA)
# The paper's ablations: no transfer, no selection, a polynomial co-surrogate.
register("nt-saea", _variant(name="nt-saea", transfer="none"))
register("ns-saea", _variant(name="ns-saea", transfer="all"))
register("tc-saea-p", _variant(name="tc-saea-p", co_surrogate="quadratic"))
register("tc-saea-released", _variant(**RELEASED))


# -------------------------------------------------------------------------- state


_ROWS = ("born", "co_mean", "slow_mean", "width")


def _aligned(state: State, run: RunView) -> State:
    """Make room for rows without a synthetic value: the start's and attached ones."""
    missing = len(run.archive) - tensor_in(state, "born").shape[1]
    pad = torch.nn.functional.pad
    return {**state, **{key: pad(tensor_in(state, key), (0, missing)) for key in _ROWS}}


def _appended(state: State, key: str, values: Tensor) -> Tensor:
    return torch.cat([tensor_in(state, key), values], dim=1)


def _thetas(models: dict[str, Surrogate | Quadratic]) -> State:
    state: State = {}
    for name, model in models.items():
        if isinstance(model, Quadratic):
            continue
        state[f"theta_{name}"] = model.hyperparameters.theta
        if model.hyperparameters.p is not None:
            state[f"p_{name}"] = model.hyperparameters.p
    return state


def _warm_start(state: State, name: str) -> Hyperparameters | None:
    if f"theta_{name}" not in state:
        return None
    p = tensor_in(state, f"p_{name}") if f"p_{name}" in state else None
    return Hyperparameters(theta=tensor_in(state, f"theta_{name}"), p=p)
