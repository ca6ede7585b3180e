"""T-SAEA: hyper-parameters of the fast surrogate help the slow one [Wang2020b].

A baseline of TC-SAEA. It differs from it in how the slow surrogate learns: from measured
values alone, and between its fits the theta of those variables that matter to both
objectives move towards the fast surrogate's. The rest is as in `assisted`, whose line
numbers are used here too.

[Wang2020b] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning for Gaussian process
assisted evolutionary bi-objective optimization for objectives with different evaluation
times. GECCO 2020.
"""

from dataclasses import dataclass, field, replace

import torch

from tcsaea_torch.acquisition.adaptive import adaptive_weight
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.models.surrogate import Surrogate, condition, scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.assisted import SurrogateAssisted, thetas, warm_start
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, register
from tcsaea_torch.transfer.parameter_transfer import SwarmConfig, blend, select_variables
from tcsaea_torch.types import Bool, Int, Tensor
from tcsaea_torch.validation import check_instance


def _in_the_cube() -> FitConfig:
    """Return DACE's box of theta in units of the cube, where a variance is 1/12."""
    options = BFGSOptions(max_evaluations=60, value_tolerance=1e-7)
    return FitConfig(theta_range=(12e-5, 1200.0), starts=(2.0, 20.0), options=options)


@dataclass(frozen=True, kw_only=True)
class TSAEA(SurrogateAssisted):
    """Configuration of T-SAEA.

    A theta means the same in both surrogates only if their inputs are scaled alike, so
    here inputs stay in the unit cube. With standardised inputs, as in DACE, GP_f's theta
    are brought to the units of GP_s before they are mixed.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_train_max: int | None = 200
    """N_max: rows of a training set, at most; None: 11 d + 24."""
    kriging: FitConfig = field(default_factory=_in_the_cube)
    """How the Gaussian processes are fitted."""
    swarm: SwarmConfig = field(default_factory=SwarmConfig)
    """How the variables are chosen whose theta are transferred."""
    name: str = "t-saea"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instance("swarm", self.swarm, SwarmConfig)

    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Fit or transfer, search, select: one pass of the main loop."""
        period = int(state["period"])
        gp_f, gp_s = self._train(state, run, period)
        chances = self._chances(state, run)
        population, vectors = self._search(state, run, gp_f, gp_s, chances)  # lines 6 to 10
        X, occupied = self._acquire(run, population, gp_f, gp_s, chances)  # lines 11 and 12
        X_new, is_new = steps.choose_new(
            X, occupied, n_new, self.n_new, run, period, order=chances.order
        )
        proposal = self._with_additional(state, run, X_new, is_new, chances)  # line 13
        return proposal, {**state, **thetas({"fast": gp_f, "slow": gp_s}), "vectors": vectors}

    def _train(self, state: State, run: RunView, period: int) -> tuple[Surrogate, Surrogate]:
        """Train GP_f, and fit GP_s in every tau-th period; else transfer to it."""
        archive = run.archive
        sets = {}
        for name, column in (("fast", FAST), ("slow", SLOW)):
            train = TrainingSet.from_mask(
                archive.X, archive.Y[..., column], archive.observed[..., column]
            )
            sets[name] = self._limited(train, name, run, period)
        is_fitted = period == 1 or period % max(1, round(run.tau)) == 0
        D_s = sets["slow"] if is_fitted else sets.pop("slow")
        trends = {"fast": self.trend_fast, "slow": self.trend_slow}
        models = steps.fit_models(
            sets, trends, self.kriging, {name: warm_start(state, name) for name in sets}
        )
        gp_f = models["fast"]
        return gp_f, models["slow"] if is_fitted else self._transfer(state, run, D_s, gp_f)

    def _transfer(self, state: State, run: RunView, D_s: TrainingSet, gp_f: Surrogate) -> Surrogate:
        """Return GP_s on the data of today, its theta moved towards those of GP_f."""
        last = warm_start(state, "slow")
        assert last is not None
        is_linear = torch.full_like(D_s.n_live, self.trend_slow == "linear", dtype=torch.bool)
        data, scaling = scale(
            D_s.compact(), trend=is_linear, input_scaling=self.kriging.input_scaling
        )
        fast = gp_f.hyperparameters
        in_units_of_s = scaling.x_scale / gp_f.scaling.x_scale
        theta_f = fast.theta * in_units_of_s ** (2.0 if fast.p is None else fast.p)
        used, total = run.used[:, SLOW].to(run.dtype), run.total[:, SLOW].to(run.dtype)
        theta = blend(last.theta, theta_f, self._common(state, run), adaptive_weight(used, total))
        hyperparameters = replace(fast, theta=theta, p=last.p, variance=None)
        nugget = self.kriging.nugget_for(run.dtype)
        return condition(data, scaling, hyperparameters, nugget=nugget)

    def _common(self, state: State, run: RunView) -> Bool[Tensor, "b d"]:
        """Return the variables that matter to both objectives, by the points with both."""
        archive, period = run.archive, int(state["period"])
        # At most as many rows as GP_s may have, a random part of a larger archive.
        n = min(self._n_max(run), max(1, int(archive.complete.sum(dim=1).max())))
        u = uniforms(run.seeds, "relevance", period, archive.complete.shape[1:], dtype=run.dtype)
        rows = u.masked_fill(~archive.complete, torch.inf).argsort(dim=1)[:, :n]
        shape = (self.swarm.n_draws, self.swarm.n_particles, run.d)
        return select_variables(
            take_rows(archive.X, rows),
            take_rows(archive.Y, rows),
            archive.complete.gather(1, rows),
            uniforms(run.seeds, "swarm", period, shape, dtype=run.dtype),
            self.swarm,
        )


register("t-saea", TSAEA)
