"""Tr-SAEA: instances of the slow objective by domain adaptation and co-training [Wang2021].

A baseline of TC-SAEA. Two Gaussian processes learn the slow objective, GP_a with a
squared-exponential and GP_b with a Matern-5/2 correlation, each from the measured values
D_s and a pool of its own. After each period, fast values of additional points become
points X_TL of the slow objective (see `transfer.domain_adaptation`), and each of the two
labels those of X^a and X_TL, of which it is most certain, for the other's pool. GP_a steers
the search. The rest is as in `assisted`.

[Wang2021] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning based surrogate
assisted evolutionary bi-objective optimization for objectives with different evaluation
times. Knowledge-Based Systems 227, 2021.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from tcsaea_torch.evolution.rvea import Population
from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet, drop_superseded, merge_duplicates
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.assisted import SurrogateAssisted, dace, thetas, warm_start
from tcsaea_torch.strategies.base import (
    FAST,
    SLOW,
    Proposal,
    RunView,
    State,
    register,
    tensor_in,
)
from tcsaea_torch.transfer.domain_adaptation import TCA, coral_factor, find_points, most_certain
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_real,
    keep_checked,
)

_SLOW_MODELS = ("a", "b")


@dataclass(frozen=True, kw_only=True)
class TrSAEA(SurrogateAssisted):
    """Configuration of Tr-SAEA.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_train_max: int | None = 500
    """N_max: rows of a training set, at most; None: 11 d + 24. The newest are always kept."""
    kriging: FitConfig = field(
        default_factory=lambda: dace(starts=(2.0, 20.0), max_evaluations=15, value_tolerance=1e-4)
    )
    """How the Gaussian processes are fitted; GP_b has the Matern-5/2 kernel in any case."""
    n_labelled: int = 15
    """k: points that each slow model labels in a period, at most as many as X^a has."""
    n_components: int = 20
    """Transfer components, at most."""
    domain_weight: float = 0.5
    """mu of the transfer component analysis."""
    coral: Literal["both", "source"] = "both"
    """What CORAL's factor scales: both domains (released code), or the source alone."""
    inversion: BFGSOptions = BFGSOptions(max_evaluations=30, value_tolerance=1e-7, max_step=0.5)
    """How points are sought whose slow mean is mapped to where a fast value was."""
    name: str = "tr-saea"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_checked(self, check_int, "n_labelled", "n_components", minimum=1)
        keep_checked(self, check_real, "domain_weight", minimum=0.0)
        check_choice("coral", self.coral, ("both", "source"))
        check_instance("inversion", self.inversion, BFGSOptions)

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        nothing = run.archive.X[:, :0]
        state: State = {**super().init(run), "n_trained": 0, "n_before": 0, "n_proposed": 0}
        for name in _SLOW_MODELS:
            state[f"pool_X_{name}"] = nothing
            state[f"pool_y_{name}"] = nothing[..., 0]
            state[f"in_pool_{name}"] = torch.zeros_like(nothing[..., 0], dtype=torch.bool)
        return state

    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Transfer what the last period measured, then fit, search and select."""
        period, n = int(state["period"]), len(run.archive)
        if period > 1:
            state = self._transfer(state, run)
        # At the start, no rows are newer than others.
        state = {**state, "n_trained": n, "n_before": state["n_trained"] if period > 1 else n}
        models, start = self._train(state, run)
        gp_f, gp_a = models["fast"], models["a"]
        chances = self._chances(state, run)
        population, vectors = self._search(state, run, gp_f, gp_a, chances, start)
        X, occupied = self._acquire(run, population, gp_f, gp_a, chances)
        # X_new: at random from those survivors that are non-dominated in predicted values.
        F = torch.stack([gp_f.mean(X), gp_a.mean(X)], dim=-1)
        best = is_non_dominated(F.masked_fill(~occupied.unsqueeze(-1), torch.inf)) & occupied
        X_new, is_new = steps.choose_new(
            X, best, n_new, self.n_new, run, period, order=chances.order
        )
        X_box, in_box = self._around(state, run, X_new, is_new, chances)
        proposal = self._with_survivors(
            state, run, X_new, is_new, X, occupied, population, X_box, in_box
        )
        n_proposed = proposal.X.shape[1]
        return proposal, {**state, **thetas(models), "vectors": vectors, "n_proposed": n_proposed}

    # ------------------------------------------------------------------ training

    def _train(self, state: State, run: RunView) -> tuple[dict[str, Surrogate], TrainingSet]:
        """Train GP_f, GP_a and GP_b; return them and the training set of GP_a."""
        archive, period = run.archive, int(state["period"])
        D_f = TrainingSet.from_mask(archive.X, archive.Y[..., FAST], archive.observed[..., FAST])
        is_newest = torch.arange(len(archive), device=run.device) >= int(state["n_before"])
        D_f = self._with_newest(D_f, is_newest, "fast", run, period)
        D_a, D_b = (self._slow_set(name, state, run, period) for name in _SLOW_MODELS)
        trends = {"fast": self.trend_fast, "a": self.trend_slow, "b": self.trend_slow}
        warm = {name: warm_start(state, name) for name in trends}
        models = steps.fit_models({"fast": D_f, "a": D_a}, trends, self.kriging, warm)
        models |= steps.fit_models({"b": D_b}, trends, self._kriging_b, warm)
        return models, D_a

    @property
    def _kriging_b(self) -> FitConfig:
        return replace(self.kriging, p=2.0, kernel="matern-5/2")

    def _slow_set(self, name: str, state: State, run: RunView, period: int) -> TrainingSet:
        """Return the training set of GP_a or GP_b in this period: D_s and its pool."""
        archive, n = run.archive, int(state["n_trained"])
        in_pool = tensor_in(state, f"in_pool_{name}")
        # In each tau-th period, the models learn from measured values alone.
        if period % max(1, round(run.tau)) == 0:
            in_pool = torch.zeros_like(in_pool)
        is_measured = archive.observed[:, :n, SLOW]
        train = TrainingSet.from_mask(
            torch.cat([archive.X[:, :n], tensor_in(state, f"pool_X_{name}")], dim=1),
            torch.cat([archive.Y[:, :n, SLOW], tensor_in(state, f"pool_y_{name}")], dim=1),
            torch.cat([is_measured, in_pool], dim=1),
        )
        is_measured = torch.cat([is_measured, torch.zeros_like(in_pool)], dim=1)
        train = drop_superseded(train, is_measured)
        # The last period's rows, of the archive and of the pool.
        rows, n_before = torch.arange(train.X.shape[1], device=run.device), int(state["n_before"])
        first = torch.where(rows < n, n_before, len(rows) - self.n_labelled)
        is_newest = rows >= first
        return self._with_newest(train, is_newest, name, run, period).compact()

    def _with_newest(
        self,
        train: TrainingSet,
        is_newest: Bool[Tensor, " n"],
        name: str,
        run: RunView,
        period: int,
    ) -> TrainingSet:
        """Keep at most N_max rows: the newest, half of the rest by value, half at random."""
        n_max, train = self._n_max(run), merge_duplicates(train)
        if train.X.shape[1] <= n_max:
            return train
        u = uniforms(run.seeds, f"limit/{name}", period, train.y.shape[1:], dtype=run.dtype)
        is_newest = is_newest & train.live
        is_old = train.live & ~is_newest
        n_best = (n_max - is_newest.sum(dim=1, keepdim=True)).clamp_min(0) // 2
        rank = train.y.masked_fill(~is_old, torch.inf).argsort(dim=1).argsort(dim=1)
        key = torch.where(is_newest, -2.0, torch.where(rank < n_best, -1.0, u))
        key = key.masked_fill(~train.live, torch.inf)
        return train.take(key.argsort(dim=1, stable=True)[:, :n_max])

    # ------------------------------------------------------------------ infill

    def _with_survivors(
        self,
        state: State,
        run: RunView,
        X_new: Float[Tensor, "b u d"],
        is_new: Bool[Tensor, "b u"],
        X: Float[Tensor, "b r d"],
        occupied: Bool[Tensor, "b r"],
        population: Population,
        X_box: Float[Tensor, "b s d"],
        in_box: Bool[Tensor, "b s"],
    ) -> Proposal:
        """Add X^a for the fast objective: other survivors of the selection, at random.

        Where they are too few, others of the population follow, then X_box, around X_new.
        """
        n_slots, wanted = X_box.shape[1], in_box.sum(dim=1, keepdim=True)
        rows = torch.cat([X_new, X, population.X, X_box], dim=1)
        exists = torch.cat([occupied, population.alive, in_box], dim=1)
        keep = torch.cat([is_new, exists & ~steps.is_known(rows[:, self.n_new :], run)], dim=1)
        keep = steps.first_of_equals(rows, keep)
        # Whole numbers order the sources, random numbers the points of each.
        sources = [
            torch.full_like(part[0, :, 0], i) for i, part in enumerate((X, population.X, X_box))
        ]
        u = uniforms(run.seeds, "further", int(state["period"]), exists.shape[1:], dtype=run.dtype)
        key = (torch.cat(sources) + u).masked_fill(~keep[:, self.n_new :], torch.inf)
        order = key.argsort(dim=1)[:, :n_slots]
        is_further = keep[:, self.n_new :].gather(1, order)
        is_further = is_further & (torch.arange(n_slots, device=X.device) < wanted)
        chosen = torch.cat([X_new, take_rows(rows[:, self.n_new :], order)], dim=1)
        mask = torch.cat([is_new, is_further], dim=1)
        is_slow = mask & (torch.arange(mask.shape[1], device=X.device) < self.n_new)
        return Proposal(X=chosen, evaluation_mask=torch.stack([mask, is_slow], dim=-1))

    # ------------------------------------------------------------------ transfer

    def _transfer(self, state: State, run: RunView) -> State:
        """Adapt the domains and co-train, with the models of the last period."""
        archive, n, period = run.archive, int(state["n_trained"]), int(state["period"])
        gp_a, gp_b = (self._last_model(name, state, run) for name in _SLOW_MODELS)
        rows = slice(n + self.n_new, n + int(state["n_proposed"]))
        X_a, y_f = archive.X[:, rows], archive.Y[:, rows, FAST]
        lives = archive.observed[:, rows, FAST]
        shape = X_a.shape[1:]
        start = uniforms(run.seeds, "inversion", period, shape, dtype=run.dtype)
        X_tl = snap(self._instances(y_f, start, gp_a, run), run.grid)

        X, lives = torch.cat([X_a, X_tl], dim=1), torch.cat([lives, lives], dim=1)
        k = (lives.sum(dim=1) // 2).clamp_max(self.n_labelled)
        state = dict(state)
        for name, teacher in (("a", gp_b), ("b", gp_a)):
            mean, variance = teacher.predict(X)
            chosen = most_certain(variance, lives, k)
            new = TrainingSet.from_mask(X, mean, chosen).compact(self.n_labelled)
            parts = (("pool_X", new.X), ("pool_y", new.y), ("in_pool", new.live))
            for key, values in parts:
                old = tensor_in(state, f"{key}_{name}")
                state[f"{key}_{name}"] = torch.cat([old, values], dim=1)
        return state

    def _instances(
        self,
        y_f: Float[Tensor, "b q"],
        start: Float[Tensor, "b q d"],
        gp_a: Surrogate,
        run: RunView,
    ) -> Float[Tensor, "b q d"]:
        """Return X_TL: points whose slow mean corresponds to these fast values."""
        complete = run.archive.complete
        n = max(1, int(complete.sum(dim=1).max()))
        rows = (~complete).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
        lives = complete.gather(1, rows)
        source, target = take_rows(run.archive.Y, rows).unbind(dim=-1)
        c = coral_factor(source, target, lives)
        c_target = c if self.coral == "both" else torch.ones_like(c)
        tca = TCA.of(
            c.unsqueeze(-1) * source,
            c_target.unsqueeze(-1) * target,
            lives,
            lives,
            n_components=self.n_components,
            mu=self.domain_weight,
        )
        z = tca.map(c.unsqueeze(-1) * y_f)
        return find_points(gp_a.mean, tca, c_target, z, start, self.inversion)

    def _last_model(self, name: str, state: State, run: RunView) -> Surrogate:
        """Condition GP_a or GP_b as it was fitted in the last period."""
        config = self.kriging if name == "a" else self._kriging_b
        train = self._slow_set(name, state, run, int(state["period"]) - 1)
        is_linear = torch.full_like(train.n_live, self.trend_slow == "linear", dtype=torch.bool)
        data, scaling = scale(train, trend=is_linear, input_scaling=config.input_scaling)
        found = warm_start(state, name)
        assert found is not None
        found = replace(found, kernel=config.kernel)
        return condition(data, scaling, found, nugget=config.nugget_for(run.dtype))


register("tr-saea", TrSAEA)
