"""K-RVEA: Kriging-assisted RVEA for objectives of equal cost [Chugh2018].

Both objectives of a point are evaluated together, so the fast one gains nothing from
being fast. Step numbers:

 1. Fit a Gaussian process for each objective on the training archive A1.
 2. Search their means by RVEA, from the points of A1 on.
 3. Count the fixed reference vectors that are inactive: no solution is nearest to them.
 4. Divide the adapted vectors that are active into u clusters.
 5. Take one solution of each cluster: that of the least angle-penalised distance, or of
    the largest uncertainty if there are more inactive vectors than at the last update.
 6. Evaluate both objectives of these.
 7. Keep at most N_I points in A1: all new ones, and others spread over the objective space.

[Chugh2018] T. Chugh, Y. Jin, K. Miettinen, J. Hakanen, K. Sindhya. A surrogate-assisted
reference vector guided evolutionary algorithm for computationally expensive
many-objective optimization. IEEE Trans. Evol. Comput. 22(1), 2018.
"""

from dataclasses import dataclass
from typing import Any

import torch

from tcsaea_torch.evolution.clustering import kmeans
from tcsaea_torch.evolution.selection import Niches, first_minima
from tcsaea_torch.models.training_set import TrainingSet, first_equal_row
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.assisted import dace
from tcsaea_torch.strategies.base import (
    FAST,
    SLOW,
    Proposal,
    RunView,
    State,
    register,
    tensor_in,
)
from tcsaea_torch.strategies.start import next_period
from tcsaea_torch.strategies.vector_selection import VectorSelection, occupied
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import check_bool, check_int, keep_checked


@dataclass(frozen=True, kw_only=True)
class KRVEA(VectorSelection):
    """Configuration of K-RVEA.

    It makes as many fast evaluations as slow ones, whatever tau is.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_train_max: int | None = None
    """N_I: points of the training archive, at most, beside new ones; None:
    max(100, 11 d - 1)."""
    spread_training: bool = True
    """Whether the clusters that limit the training archive start far from each other, as is
    usual for k-means. Then points are dropped where they are dense: near the front, if
    other values are far larger. False starts them at random points, which drops few of
    those."""
    ignores_delay: bool = False
    """Whether a slow evaluation costs no more than a fast one, so that floor(tau n_slow)
    points are evaluated. This is the paper's undelayed K-RVEA, a reference for
    comparisons: no real problem with a slow objective can be run so."""
    name: str = "k-rvea"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_train_max is not None:
            keep_checked(self, check_int, "n_train_max", minimum=2)
        check_bool("spread_training", self.spread_training)
        check_bool("ignores_delay", self.ignores_delay)

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        none = torch.zeros_like(run.archive.X[..., 0], dtype=torch.bool)
        return {
            "stage": "design",
            "period": 0,
            "in_training": ~none,
            "is_new": none,
            "n_inactive": torch.zeros_like(run.seeds),
            "vectors": self._lattice(run).repeat(run.b, 1, 1),
        }

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the initial design, or a period."""
        state = _aligned(state, run)
        if state["stage"] == "design":
            state = {**state, "stage": "periods"}
            n = min(run.n_init, int(run.left.amin()))
            if n > 0:
                X, is_new = steps.design(run, n)
                return Proposal(X=X, evaluation_mask=_both(is_new)), state
        return next_period(self._period, self.n_new, state, run)

    def _period(
        self, state: State, run: RunView, n_new: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Train, search, select: one pass of the main loop."""
        period = int(state["period"])
        X, Y, in_A1, state = self._training_archive(state, run)  # (7), of the last points
        gp_f, gp_s, state = self._train(  # (1)
            TrainingSet.from_mask(X, Y[..., FAST], in_A1),
            TrainingSet.from_mask(X, Y[..., SLOW], in_A1),
            state,
        )
        population, vectors = self._search(gp_f, gp_s, X, in_A1, run, period)  # (2)
        X_new, is_new, state = self._select(  # (3) to (5)
            population, vectors, gp_f, gp_s, state, run, n_new
        )
        state = {
            **state,
            "vectors": vectors,
            "in_training": torch.cat([tensor_in(state, "in_training"), is_new], dim=1),
            "is_new": torch.cat([torch.zeros_like(tensor_in(state, "is_new")), is_new], dim=1),
        }
        return Proposal(X=X_new, evaluation_mask=_both(is_new)), state  # (6)

    def _training_archive(
        self, state: State, run: RunView
    ) -> tuple[Float[Tensor, "b k d"], Float[Tensor, "b k 2"], Bool[Tensor, "b k"], State]:
        """Limit A1, and return its points, their values and which of them exist."""
        archive = run.archive
        n_max = max(100, 11 * run.d - 1) if self.n_train_max is None else self.n_train_max
        period, in_training = int(state["period"]), tensor_in(state, "in_training")
        candidate = in_training & archive.complete
        k = max(1, int(candidate.sum(dim=1).amax()))
        rows = (~candidate).to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
        X, Y = take_rows(archive.X, rows), take_rows(archive.Y, rows)
        exists = candidate.gather(1, rows)
        exists = exists & (first_equal_row(X, exists) == torch.arange(k, device=run.device))

        def numbers(name: str, n: int) -> Tensor:
            return uniforms(run.seeds, f"training/{name}", period, (n,), dtype=run.dtype)

        kept = limited(
            Y,
            exists,
            tensor_in(state, "is_new").gather(1, rows),
            n_max,
            tensor_in(state, "vectors"),
            u_vectors=numbers("vectors", self.n_ref_vectors),
            u_points=numbers("points", k),
            u_choice=numbers("choice", k),
            spread=self.spread_training,
        )
        # Points without a value are candidates again when it comes.
        stays = (~candidate).scatter(1, rows, kept | ~candidate.gather(1, rows))
        return X, Y, kept, {**state, "in_training": in_training & stays}


def limited(
    Y: Float[Tensor, "b n m"],
    alive: Bool[Tensor, "b n"],
    is_new: Bool[Tensor, "b n"],
    n_max: int,
    vectors: Float[Tensor, "b r m"],
    *,
    u_vectors: Float[Tensor, "b r"],
    u_points: Float[Tensor, "b n"],
    u_choice: Float[Tensor, "b n"],
    spread: bool,
) -> Bool[Tensor, "b n"]:
    """Return which points stay in a training archive of at most n_max points (7).

    All new points stay. The old ones are divided into as many clusters as there is room
    for, and a random one of each stays: by clusters of the vectors nearest to them, of
    those that are nearest to no new point; or by clusters of their values, if they occupy
    too few vectors.

    Args:
        Y: Objective values.
        alive: Points of the archive.
        is_new: Which of them are new.
        n_max: Points that may stay, beside more new ones.
        vectors: Reference vectors, of any length.
        u_vectors: Uniform numbers that start clusters of vectors.
        u_points: Uniform numbers that start clusters of points.
        u_choice: Uniform numbers; the smallest one of a cluster chooses its point.
        spread: Whether clusters start far from each other, see `kmeans`.
    """
    is_new, is_old = alive & is_new, alive & ~is_new
    n_clusters = (n_max - is_new.sum(dim=-1)).clamp_min(0)
    r = vectors.shape[-2]
    low = torch.where(alive.unsqueeze(-1), Y, torch.inf).amin(dim=-2, keepdim=True)
    translated = torch.where(alive.unsqueeze(-1), Y - low, 0.0)
    projection = translated @ Niches.of(vectors).axes
    taken = occupied(projection.argmax(dim=-1), is_new, r)
    niche = projection.masked_fill(taken.unsqueeze(-2), -torch.inf).argmax(dim=-1)
    active = occupied(niche, is_old, r) & ~taken
    by_vector, _ = kmeans(
        vectors, active, n_clusters, n_max, u_vectors, spread=spread, n_iterations=3
    )
    by_value, _ = kmeans(
        translated, is_old, n_clusters, n_max, u_points, spread=spread, n_iterations=3
    )
    has_enough = active.sum(dim=-1) >= n_clusters
    label = torch.where(has_enough.unsqueeze(-1), by_vector.gather(-1, niche), by_value)
    key = u_choice.masked_fill(~is_old, torch.inf)
    chosen, exists = first_minima(key, label, n_max)
    exists = exists & (torch.arange(n_max, device=Y.device) < n_clusters.unsqueeze(-1))
    kept = occupied(chosen, exists, alive.shape[-1])
    is_over = alive.sum(dim=-1, keepdim=True) > n_max
    return torch.where(is_over, kept | is_new, alive)


def _aligned(state: State, run: RunView) -> State:
    """Make room for rows that came from elsewhere: attached ones, and the design."""
    missing = len(run.archive) - tensor_in(state, "is_new").shape[1]
    pad = torch.nn.functional.pad
    return {
        **state,
        "in_training": pad(tensor_in(state, "in_training"), (0, missing), value=True),
        "is_new": pad(tensor_in(state, "is_new"), (0, missing)),
    }


def _both(is_new: Tensor) -> Tensor:
    """Return the mask that asks for both objectives of some points."""
    return is_new.unsqueeze(-1).expand(*is_new.shape, 2)


def _undelayed(**options: Any) -> KRVEA:
    """Return K-RVEA without delay, with short fits: each of hundreds goes on from the last."""
    kriging = dace(starts=(2.0, 20.0), max_evaluations=8, value_tolerance=1e-4)
    return KRVEA(**{"name": "undelayed", "ignores_delay": True, "kriging": kriging, **options})


register("k-rvea", KRVEA)
register("undelayed", _undelayed)
