"""HK-RVEA: K-RVEA for objectives with different evaluation times [Chugh2018b].

While slow values are on their way, a genetic algorithm goes on with the fast objective,
so its surrogate learns from more points. Step numbers:

 1. P, the design at first, is evaluated with the slow objective.
 2. Meanwhile fast values of P and, at first, of a single-objective search from P; later
    of |P| (tau - 1) offspring of P.
 3. P, with both values, joins the archive A.
 4. Fit GP_s to all slow values, and GP_f to all fast ones, or to some spread over them.
 5. Search the models' means by RVEA, from A with its measured values on.
 6. Choose the next P as K-RVEA does, see `vector_selection`; points of A are dropped.

[Chugh2018b] T. Chugh, R. Allmendinger, V. Ojalehto, K. Miettinen. Surrogate-assisted
evolutionary biobjective optimization for objectives with non-uniform latencies.
GECCO 2018.
"""

from dataclasses import dataclass, field, replace

import torch

from tcsaea_torch.evolution.clustering import kmeans
from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.evolution.selection import first_minima
from tcsaea_torch.evolution.variation import Draws, Variation, vary
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.training_set import TrainingSet, merge_duplicates
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.assisted import dace
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, register
from tcsaea_torch.strategies.start import design_and_soea, next_period, start_state
from tcsaea_torch.strategies.vector_selection import VectorSelection, occupied
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_instance, check_int, keep_checked


@dataclass(frozen=True, kw_only=True)
class HKRVEA(VectorSelection):
    """Configuration of HK-RVEA.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_train_max: int = 500
    """Rows of a training set, at most: of more, a random one of each of so many clusters."""
    search: RVEAConfig = field(
        default_factory=lambda: RVEAConfig(
            alpha=0.5, penalty_factor=0.5, adaptation_frequency=0.3, each_once=False
        )
    )
    """RVEA on the surrogates. Its APD has no factor for the number of objectives."""
    kriging: FitConfig = field(
        default_factory=lambda: dace(starts=(2.0, 20.0), max_evaluations=12, value_tolerance=1e-4)
    )
    """How the Gaussian processes are fitted: shortly, for GP_f has many rows."""
    variation: Variation = field(default_factory=Variation)
    """Crossover and mutation of the offspring for the fast objective."""
    name: str = "hk-rvea"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_checked(self, check_int, "n_train_max", minimum=2)
        check_instance("variation", self.variation, Variation)

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        return {**start_state(run), "period": 0, "n_inactive": torch.zeros_like(run.seeds)}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the initial design, a generation of the SOEA, or a period."""
        proposal, state = design_and_soea(  # (1) to (3), at first
            state, run, lambda _: self._fast_target(run.used[:, SLOW], run), self.variation
        )
        if proposal is not None:
            return proposal, state
        return next_period(self._period, self.n_new, state, run)

    def _fast_target(self, n_slow: Int[Tensor, " b"], run: RunView) -> Int[Tensor, " b"]:
        """Return how many fast calls there may be once `n_slow` slow ones are asked for."""
        credit = torch.floor(run.tau * n_slow.double() + 1e-9).long()
        return torch.minimum(credit, run.total[:, FAST])

    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Train, search, select, breed: one pass of the main loop."""
        archive, period = run.archive, int(state["period"])
        gp_f, gp_s, state = self._train(  # (4)
            self._training_set("fast", FAST, run, period),
            self._training_set("slow", SLOW, run, period),
            state,
        )
        n_rows = max(1, int(archive.complete.sum(dim=1).amax()))
        rows = (~archive.complete).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_rows]
        population, vectors = self._search(  # (5)
            gp_f,
            gp_s,
            take_rows(archive.X, rows),
            archive.complete.gather(1, rows),
            run,
            period,
            F=take_rows(archive.Y, rows),
        )
        P, is_new, state = self._select(  # (6)
            population, vectors, gp_f, gp_s, state, run, n_new
        )
        # (1) to (3): both values of P, and the fast ones of its offspring.
        offspring, lives = self._offspring(P, is_new, run, period)
        keep = torch.cat([is_new, lives], dim=1)
        is_slow = torch.cat([is_new, torch.zeros_like(lives)], dim=1)
        mask = torch.stack([keep, is_slow], dim=-1)
        return Proposal(X=torch.cat([P, offspring], dim=1), evaluation_mask=mask), state

    def _training_set(self, name: str, column: int, run: RunView, period: int) -> TrainingSet:
        """Return all values of an objective, or of n_train_max rows spread over them."""
        archive, n_max = run.archive, self.n_train_max
        observed = archive.observed[..., column]
        train = TrainingSet.from_mask(archive.X, archive.Y[..., column], observed)
        train = merge_duplicates(train).compact()
        n = train.y.shape[-1]
        if n <= n_max:
            return train

        def numbers(use: str) -> Tensor:
            return uniforms(run.seeds, f"training/{name}/{use}", period, (n,), dtype=run.dtype)

        k = torch.full_like(train.n_live, n_max)
        label, _ = kmeans(train.X, train.live, k, n_max, numbers("points"), n_iterations=2)
        key = numbers("choice").masked_fill(~train.live, torch.inf)
        is_kept = occupied(*first_minima(key, label, n_max), n)
        return replace(train, noise_var=train.noise_var.masked_fill(~is_kept, torch.inf))

    def _offspring(
        self, P: Float[Tensor, "b u d"], is_new: Bool[Tensor, "b u"], run: RunView, period: int
    ) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
        """Breed |P| (tau - 1) new points from P (2)."""
        n_new = is_new.sum(dim=1)
        target = self._fast_target(run.used[:, SLOW] + n_new, run)
        credit = (target - run.used[:, FAST] - n_new).masked_fill(n_new == 0, 0)
        n_slots = int(self.n_new * run.tau) + 1
        # Some offspring equal their parents, so there are spare ones, and random points.
        n = 2 * n_slots
        draws = Draws.make(run.seeds, "offspring", period, 1, n, run.d, run.dtype)
        X, _ = vary(
            P,
            is_new | (n_new == 0).unsqueeze(-1),
            draws.mating[:, 0],
            draws.crossover[:, 0],
            draws.mutation[:, 0],
            self.variation,
            each_once=False,
        )
        shape = (n_slots, run.d)
        random = uniforms(run.seeds, "offspring/spare", period, shape, dtype=run.dtype)
        X = snap(torch.cat([X, random], dim=1), run.grid)
        marked = torch.cat([is_new, ~steps.is_known(X, run)], dim=1)
        is_fresh = steps.first_of_equals(torch.cat([P, X], dim=1), marked)[:, P.shape[1] :]
        order = (~is_fresh).to(torch.uint8).argsort(dim=1, stable=True)[:, :n_slots]
        affordable = torch.arange(n_slots, device=X.device) < credit.unsqueeze(-1)
        return take_rows(X, order), is_fresh.gather(1, order) & affordable


register("hk-rvea", HKRVEA)
