"""Which points TC-EHVI evaluates next: slow values of known points first, then new points."""

from dataclasses import dataclass

import torch

from tcsaea_torch.acquisition.batch import Front, greedy_ehvi, spread
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.asynchronous import fill
from tcsaea_torch.strategies.base import FAST, SLOW, RunView
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_models import Models
from tcsaea_torch.strategies.ehvi_rows import Known
from tcsaea_torch.strategies.ehvi_search import Pool, non_dominated
from tcsaea_torch.types import Bool, Float, Int, Tensor

_N_SHORT = 150
"""Candidates of largest EHVI that are chosen from one after the other."""
_N_ROWS = 128
"""The same of the archive's rows."""

_Chosen = tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice:
    """Chooses by EHVI and by spread.

    A slow evaluation goes to a point whose fast value is known, as far as there are any: what
    is left to chance is then the slow value alone.
    """

    run: RunView
    known: Known
    models: Models
    pool: Pool
    chances: Chances
    noisy: bool
    clearance: float

    def slow_rows(self, n: Int[Tensor, " b"], front: Front) -> tuple[Bool[Tensor, "b n"], Front]:
        """Choose rows of the archive for slow evaluations.

        Args:
            n: How many each run takes, if it has as many.
            front: What is to be improved.

        Returns:
            The rows, and the front as it is believed to be with them.
        """
        run, known = self.run, self.known
        asked = (run.archive.observed | run.pending | run.failed)[..., SLOW]
        free, rows = known.fast & ~asked, torch.zeros_like(asked)
        n_slots = int(torch.minimum(n, free.sum(dim=1)).amax())
        if n_slots == 0:
            return rows, front
        X, y = known.X, known.Y[..., FAST]
        mean, variance = self.models.predict(X)
        if not self.noisy:
            mean = torch.stack([y, mean[..., SLOW]], dim=-1)
            variance = torch.stack([torch.zeros_like(y), variance[..., SLOW]], dim=-1)
        likely = self._likely(X)
        score = front.log_ehvi(front.scale(mean), variance / front.extent.square()) + likely
        score = score.clamp_min(torch.finfo(score.dtype).min / 4).masked_fill(~free, -torch.inf)
        best = score.argsort(dim=1, descending=True, stable=True)[:, :_N_ROWS]
        X, mean = take_rows(X, best), front.scale(take_rows(mean, best))
        _, covariance = self.models.predict_joint(X)
        covariance = covariance / front.extent.squeeze(1)[..., None, None].square()
        if not self.noisy:
            covariance[:, FAST] = 0.0
        picks, count = greedy_ehvi(
            mean, covariance, free.gather(1, best), front, n, n_slots, likely.gather(1, best)
        )
        # Picks that do not count may name a row twice.
        marks = count.to(torch.int64)
        rows = (
            torch.zeros_like(best[:, :1])
            .expand_as(asked)
            .scatter_add(1, best.gather(1, picks), marks)
        )
        return rows > 0, front.with_points(take_rows(mean, picks), count)

    def new_points(self, n: Int[Tensor, " b"], front: Front) -> tuple[Tensor, Tensor, Front]:
        """Choose new points for both objectives, where rows were too few.

        Args:
            n: How many each run takes.
            front: What is to be improved.

        Returns:
            Points, which of them count, and the front as it is believed to be with them.
        """
        X, count, values = self._by_ehvi(n, self.run.archive.X[:, :0], front)
        front = front.with_points(values, count)
        X, count = fill(X, count, n, self.run, self.clearance)
        return X, count, front

    def fast_points(
        self,
        n: Int[Tensor, " b"],
        n_spread: Int[Tensor, " b"],
        taken: Float[Tensor, "b t d"],
        front: Front,
    ) -> _Chosen:
        """Choose new points for the fast objective alone.

        Args:
            n: How many each run takes.
            n_spread: How many of these spread over the predicted front.
            taken: Points that were chosen for both objectives.
            front: What is to be improved.
        """
        X, count = self._spread(n_spread, taken, front)
        n_left = n - count.sum(dim=1)
        more, counts, _ = self._by_ehvi(n_left, torch.cat([taken, X], dim=1), front)
        X, count = torch.cat([X, more], dim=1), torch.cat([count, counts], dim=1)
        return fill(X, count, n, self.run, self.clearance)

    def _spread(self, n: Int[Tensor, " b"], taken: Tensor, front: Front) -> _Chosen:
        """Choose members of the predicted front, far from known points and from each other."""
        population, n_slots = self.pool.population, int(n.amax())
        if n_slots == 0:
            return population.X[:, :0], population.alive[:, :0]
        free = self._may_be_new(population.X, taken, non_dominated(population))
        picks, count = spread(front.scale(population.F), free, front.Y, front.alive, n, n_slots)
        return take_rows(population.X, picks), count

    def _by_ehvi(
        self, n: Int[Tensor, " b"], taken: Float[Tensor, "b t d"], front: Front
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Choose from the pool; return points, which of them count, and their believed values."""
        pool, n_slots = self.pool, int(n.amax())
        if n_slots <= 0:
            return pool.X[:, :0], pool.score[:, :0] > 0, pool.population.F[:, :0]
        best = pool.score.argsort(dim=1, descending=True, stable=True)[:, :_N_SHORT]
        X = take_rows(pool.X, best)
        free = self._may_be_new(X, taken, pool.score.gather(1, best) > -torch.inf)
        mean, covariance = self.models.predict_joint(X)
        mean = front.scale(mean)
        covariance = covariance / front.extent.squeeze(1)[..., None, None].square()
        picks, count = greedy_ehvi(mean, covariance, free, front, n, n_slots, self._likely(X))
        return take_rows(X, picks), count, take_rows(mean, picks)

    def _may_be_new(self, X: Tensor, taken: Tensor, keep: Tensor) -> Bool[Tensor, "b k"]:
        """Unmark points that are known, equal to others, or taken."""
        keep = keep & steps.may_be_new(X, self.run, self.clearance)
        both = torch.cat([taken, X], dim=1)
        marked = torch.cat([torch.ones_like(taken[..., 0], dtype=torch.bool), keep], dim=1)
        return steps.first_of_equals(both, marked, self.clearance)[:, taken.shape[1] :]

    def _likely(self, X: Float[Tensor, "b k d"]) -> Float[Tensor, "b k"]:
        """Return the logarithm of how likely evaluations succeed."""
        return self.chances.of(X).log() if self.chances.are_known else torch.zeros_like(X[..., 0])
