"""K-RVEA's choice of new points by clusters of reference vectors [Chugh2018].

HK-RVEA makes the same choice. Step numbers are those of `k_rvea`.

[Chugh2018] T. Chugh, Y. Jin, K. Miettinen, J. Hakanen, K. Sindhya. A surrogate-assisted
reference vector guided evolutionary algorithm for computationally expensive
many-objective optimization. IEEE Trans. Evol. Comput. 22(1), 2018.
"""

from dataclasses import dataclass, field

import torch

from tcsaea_torch.evolution.clustering import kmeans
from tcsaea_torch.evolution.reference_vectors import simplex_lattice
from tcsaea_torch.evolution.rvea import Population, RVEAConfig, rvea
from tcsaea_torch.evolution.selection import Niches, first_minima, penalised_distances
from tcsaea_torch.evolution.variation import Draws
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.assisted import dace, thetas, warm_start
from tcsaea_torch.strategies.base import RunView, State, tensor_in
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_instance,
    check_int,
    check_real,
    check_text,
    keep_checked,
)


@dataclass(frozen=True, kw_only=True)
class VectorSelection:
    """Configuration of what K-RVEA and HK-RVEA have in common.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_new: int = 3
    """u: new points in each period, and clusters of reference vectors."""
    n_ref_vectors: int = 100
    """N_V: reference vectors, and room in the surrogate population."""
    delta: float = 0.05
    """Uncertain points are chosen where the inactive vectors have become more than
    delta N_V more; otherwise those of the best angle-penalised distance."""
    search: RVEAConfig = field(default_factory=RVEAConfig)
    """RVEA on the surrogates; its `n_generations` is w_max."""
    kriging: FitConfig = field(
        default_factory=lambda: dace(starts=(2.0, 20.0), max_evaluations=60, value_tolerance=1e-7)
    )
    """How the Gaussian processes are fitted."""
    name: str
    """Name of this configuration."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_new", minimum=1)
        keep_checked(self, check_int, "n_ref_vectors", minimum=2)
        keep_checked(self, check_real, "delta", minimum=0.0, maximum=1.0)
        check_instance("search", self.search, RVEAConfig)
        check_instance("kriging", self.kriging, FitConfig)
        check_text("name", self.name)

    def _lattice(self, run: RunView) -> Float[Tensor, "r 2"]:
        """Return the fixed reference vectors, those before any adaptation."""
        return simplex_lattice(self.n_ref_vectors, dtype=run.dtype, device=run.device)

    def _train(
        self, fast: TrainingSet, slow: TrainingSet, state: State
    ) -> tuple[Surrogate, Surrogate, State]:
        """Fit GP_f and GP_s, from the last fits' parameters on, and keep these."""
        models = steps.fit_models(
            {"fast": fast, "slow": slow},
            {"fast": "constant", "slow": "constant"},
            self.kriging,
            {name: warm_start(state, name) for name in ("fast", "slow")},
        )
        return models["fast"], models["slow"], {**state, **thetas(models)}

    def _search(
        self,
        gp_f: Surrogate,
        gp_s: Surrogate,
        X: Float[Tensor, "b k d"],
        alive: Bool[Tensor, "b k"],
        run: RunView,
        period: int,
        *,
        F: Float[Tensor, "b k 2"] | None = None,
    ) -> tuple[Population, Float[Tensor, "b r 2"]]:
        """Run RVEA on the models' means from some points on, with their values or means."""

        def evaluate(X: Tensor) -> Tensor:
            return torch.stack([gp_f.mean(X), gp_s.mean(X)], dim=-1)

        n = self.search.n_generations
        draws = Draws.make(run.seeds, "rvea", period, n, self.n_ref_vectors, run.d, run.dtype)
        lattice = self._lattice(run)
        return rvea(evaluate, X, alive, lattice, draws, self.search, F=F, grid=run.grid)

    def _select(
        self,
        population: Population,
        vectors: Float[Tensor, "b r 2"],
        gp_f: Surrogate,
        gp_s: Surrogate,
        state: State,
        run: RunView,
        n_new: Int[Tensor, " b"],
    ) -> tuple[Float[Tensor, "b u d"], Bool[Tensor, "b u"], State]:
        """Choose the new points by clusters, and count the inactive vectors (3 to 6)."""
        period = int(state["period"])
        sd = [gp.predict(population.X)[1].sqrt() for gp in (gp_f, gp_s)]
        chosen, exists, n_inactive = representatives(
            population,
            (sd[0] + sd[1]) / 2.0,
            self._lattice(run),
            vectors,
            tensor_in(state, "n_inactive"),
            uniforms(run.seeds, "clusters", period, (self.n_ref_vectors,), dtype=run.dtype),
            n_clusters=self.n_new,
            tolerance=self.delta * self.n_ref_vectors,
            penalty=self.search.last_penalty,
        )
        X, is_new = new_points(population, chosen, exists, n_new, self.n_new, run, period)
        return X, is_new, {**state, "n_inactive": n_inactive}


def representatives(
    population: Population,
    uncertainty: Float[Tensor, "b n"],
    fixed_vectors: Float[Tensor, "r m"],
    vectors: Float[Tensor, "b r m"],
    n_inactive_before: Int[Tensor, " b"],
    u: Float[Tensor, "b r"],
    *,
    n_clusters: int,
    tolerance: float,
    penalty: float,
) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"], Int[Tensor, " b"]]:
    """Choose a member of the population for each cluster of active vectors (3 to 5).

    Args:
        population: What the search has found.
        uncertainty: Of each member: its standard deviation, averaged over objectives.
        fixed_vectors: Reference vectors before any adaptation.
        vectors: Those as last adapted.
        n_inactive_before: Inactive fixed vectors at the previous update.
        u: Uniform numbers that start the clusters.
        n_clusters: Clusters of adapted vectors, at most.
        tolerance: Inactive vectors by which the number may rise before uncertainty counts.
        penalty: Penalty of the APD.

    Returns:
        The k = n_clusters members' indices (any valid one where there is none), which of
        them exist, and the number of inactive fixed vectors now.
    """
    F, alive = population.F, population.alive
    # (3) Fixed vectors without a member.
    fixed = Niches.of(fixed_vectors.expand_as(vectors))
    _, fixed_niche = penalised_distances(F, alive, fixed, 0.0)
    r = vectors.shape[-2]
    n_inactive = r - occupied(fixed_niche, alive, r).sum(dim=-1)
    # (4) Clusters of the adapted vectors with members.
    apd, niche = penalised_distances(F, alive, Niches.of(vectors), penalty)
    active = occupied(niche, alive, r)
    k = torch.full_like(n_inactive, n_clusters)
    label, _ = kmeans(vectors, active, k, n_clusters, u)
    # (5) Convergence while vectors stay active, else the models' uncertainty.
    converges = (n_inactive - n_inactive_before <= tolerance).unsqueeze(-1)
    cost = torch.where(converges, apd, -uncertainty).masked_fill(~alive, torch.inf)
    chosen, exists = first_minima(cost, label.gather(-1, niche), n_clusters)
    return chosen, exists, n_inactive


def new_points(
    population: Population,
    chosen: Int[Tensor, "b k"],
    exists: Bool[Tensor, "b k"],
    n_new: Int[Tensor, " b"],
    n_slots: int,
    run: RunView,
    period: int,
) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
    """Return those chosen members that are new, or else one other that is (6)."""
    # Two values are the least to learn from: random points until then.
    has_learnt = run.archive.complete.sum(dim=1) >= 2
    X, candidates = take_rows(population.X, chosen), exists & has_learnt.unsqueeze(-1)
    lacks = has_learnt & ~(candidates & ~steps.is_known(X, run)).any(dim=-1)
    if bool(lacks.any()):
        X = torch.cat([X, population.X], dim=1)
        others = population.alive & lacks.unsqueeze(-1)
        candidates = torch.cat([candidates & ~lacks.unsqueeze(-1), others], dim=1)
        n_new = torch.where(lacks, n_new.clamp_max(1), n_new)
    return steps.choose_new(X, candidates, n_new, n_slots, run, period)


def occupied(niche: Int[Tensor, "b n"], alive: Bool[Tensor, "b n"], r: int) -> Bool[Tensor, "b r"]:
    """Return which of r niches have a living member."""
    n_members = niche.new_zeros(niche.shape[0], r).scatter_add_(-1, niche, alive.long())
    return n_members > 0
