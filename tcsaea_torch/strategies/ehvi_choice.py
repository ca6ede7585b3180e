"""Which points TC-EHVI evaluates next: slow ones first, of known and new points; then fast ones."""

from dataclasses import dataclass

import torch

from tcsaea_torch.acquisition.batch import Front, greedy_ehvi, spread
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.asynchronous import fill
from tcsaea_torch.strategies.base import FAST, SLOW, RunView
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_models import Models
from tcsaea_torch.strategies.ehvi_rows import Known, non_dominated_rows
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

    A slow evaluation goes to where EHVI is largest. Of points with a known fast value, the slow
    value alone is left to chance; a new point needs a fast evaluation, too.
    """

    run: RunView
    known: Known
    models: Models
    pool: Pool
    chances: Chances
    noisy: bool
    clearance: float
    step: int

    def slow_points(
        self,
        n: Int[Tensor, " b"],
        n_fast: Int[Tensor, " b"],
        front: Front,
    ) -> tuple[Bool[Tensor, "b n"], Float[Tensor, "b s d"], Bool[Tensor, "b s"], Front]:
        """Choose points for slow evaluations: rows of the archive, or new points.

        Args:
            n: How many each run takes.
            n_fast: How many fast evaluations new points may cost. Where rows are too few, it
                is the budget that counts.
            front: What is to be improved.

        Returns:
            The rows; new points, for both objectives, and which of them count; and the front
            as it is believed to be with all of them.
        """
        known, pool, n_slots = self.known, self.pool, int(n.amax())
        asked = (self.run.archive.observed | self.run.pending | self.run.failed)[..., SLOW]
        if n_slots <= 0:
            return torch.zeros_like(asked), pool.X[:, :0], pool.score[:, :0] > 0, front
        free = known.fast & ~asked
        told = self._predict_rows()
        score = self._score_of_rows(*told, front).masked_fill(~free, -torch.inf)
        best = score.argsort(dim=1, descending=True, stable=True)[:, :_N_ROWS]
        k = best.shape[1]
        X_new, is_new = self._short_list(known.X[:, :0])
        # Failures may have spent the fast budget before the slow one.
        n_left = self.run.left[:, FAST]
        n_fast = torch.where(free.sum(dim=1) < n, n_left, torch.minimum(n_fast, n_left))
        is_new = is_new & (n_fast >= n).unsqueeze(-1)
        X = torch.cat([take_rows(known.X, best), X_new], dim=1)
        mean, covariance = self.models.predict_joint(X)
        mean[:, :k], variance = (take_rows(t, best) for t in told)
        # Correlations are those of the models.
        own = covariance.diagonal(dim1=-2, dim2=-1)[..., :k]
        unit = (variance.mT / torch.where(own > 0, own, torch.inf)).sqrt()
        covariance[:, :, :k] *= unit.unsqueeze(-1)
        covariance[..., :k] *= unit.unsqueeze(-2)
        mean = front.scale(mean)
        covariance = covariance / front.extent.squeeze(1)[..., None, None].square()
        may = torch.cat([free.gather(1, best), is_new], dim=1)
        picks, count = greedy_ehvi(mean, covariance, may, front, n, n_slots, self._likely(X))
        is_row = count & (picks < k)
        rows = _marked(asked, best.gather(1, picks.clamp_max(k - 1)), is_row)
        front = front.with_points(take_rows(mean, picks), count)
        n_new = torch.minimum(n - is_row.sum(dim=1), n_left)
        chosen, is_chosen = take_rows(X, picks), count & ~is_row
        chosen, is_chosen = fill(chosen, is_chosen, n_new, self.run, self.clearance)
        return rows, chosen, is_chosen, front

    def _predict_rows(self) -> tuple[Float[Tensor, "b n 2"], Float[Tensor, "b n 2"]]:
        """Return means and variances of the values of all rows with a fast one."""
        X, y = self.known.X, self.known.Y[..., FAST]
        if self.noisy:
            return self.models.predict(X)
        mean, variance = self.models.slow_of_rows(X)
        mean = torch.stack([y, mean], dim=-1)
        return mean, torch.stack([torch.zeros_like(y), variance], dim=-1)

    def _score_of_rows(
        self, mean: Float[Tensor, "b n 2"], variance: Float[Tensor, "b n 2"], front: Front
    ) -> Float[Tensor, "b n"]:
        """Return the logarithms of the EHVI of a slow evaluation of each row."""
        score = front.log_ehvi(front.scale(mean), variance / front.extent.square())
        score = score + self._likely(self.known.X)
        return score.clamp_min(torch.finfo(score.dtype).min / 4)

    def fast_points(
        self,
        n: Int[Tensor, " b"],
        n_spread: Int[Tensor, " b"],
        n_between: Int[Tensor, " b"],
        taken: Float[Tensor, "b t d"],
        front: Front,
    ) -> _Chosen:
        """Choose new points for the fast objective alone.

        Args:
            n: How many each run takes.
            n_spread: How many of these spread over the predicted front.
            n_between: How many lie between neighbours of the known front.
            taken: Points that were chosen for both objectives.
            front: What is to be improved.
        """
        X, count = taken[:, :0], taken[:, :0, 0] > 0
        ways = (self._between, n_between), (self._spread, n_spread), (self._by_ehvi, n)
        for choose, n_wanted in ways:
            n_left = torch.minimum(n_wanted, n - count.sum(dim=1))
            more, counts = choose(n_left, torch.cat([taken, X], dim=1), front)
            X, count = torch.cat([X, more], dim=1), torch.cat([count, counts], dim=1)
        return fill(X, count, n, self.run, self.clearance)

    def _between(self, n: Int[Tensor, " b"], taken: Tensor, front: Front) -> _Chosen:
        """Choose points between neighbours of the known front, where their values are far apart.

        No model is asked: where all are sure, and wrong, this is how they learn of it.
        """
        known, run, n_slots = self.known, self.run, int(n.amax())
        rows, alive = non_dominated_rows(known.Y, known.both)
        t = rows.shape[1]
        if n_slots == 0 or t < 2:
            return taken[:, :0], alive[:, :0]
        X, F = take_rows(known.X, rows), take_rows(known.Y, rows)
        gap = front.scale(F).diff(dim=1).norm(dim=-1).masked_fill(~alive[:, 1:], 0.0)
        u = uniforms(run.seeds, "between", self.step, (n_slots, 2), dtype=run.dtype)
        limit = gap.cumsum(dim=1)
        place = torch.searchsorted(limit, u[..., 0] * limit[:, -1:]).clamp_max(t - 2)
        share = 0.25 + 0.5 * u[..., 1:]
        X = snap(torch.lerp(take_rows(X, place), take_rows(X, place + 1), share), run.grid)
        count = torch.arange(n_slots, device=n.device) < n.unsqueeze(-1)
        count = count & (limit[:, -1:] > 0)
        return X, self._may_be_new(X, taken, count)

    def _spread(self, n: Int[Tensor, " b"], taken: Tensor, front: Front) -> _Chosen:
        """Choose members of the predicted front, far from known points and from each other."""
        population, n_slots = self.pool.population, int(n.amax())
        if n_slots == 0:
            return population.X[:, :0], population.alive[:, :0]
        free = self._may_be_new(population.X, taken, non_dominated(population))
        # Where nothing reaches the reference point yet, all of it shows the way.
        F = front.scale(population.F)
        reaches = free & (F <= front.ref_point.unsqueeze(1)).all(dim=-1)
        free = torch.where(reaches.any(dim=1, keepdim=True), reaches, free)
        picks, count = spread(F, free, front.Y, front.alive, n, n_slots)
        return take_rows(population.X, picks), count

    def _by_ehvi(
        self, n: Int[Tensor, " b"], taken: Float[Tensor, "b t d"], front: Front
    ) -> _Chosen:
        """Choose from the pool."""
        pool, n_slots = self.pool, int(n.amax())
        if n_slots <= 0:
            return pool.X[:, :0], pool.score[:, :0] > 0
        X, free = self._short_list(taken)
        mean, covariance = self.models.predict_joint(X)
        covariance = covariance / front.extent.squeeze(1)[..., None, None].square()
        likely = self._likely(X)
        picks, count = greedy_ehvi(front.scale(mean), covariance, free, front, n, n_slots, likely)
        return take_rows(X, picks), count

    def _short_list(self, taken: Float[Tensor, "b t d"]) -> _Chosen:
        """Return the best of the pool, and which of them may be chosen."""
        best = self.pool.score.argsort(dim=1, descending=True, stable=True)[:, :_N_SHORT]
        X = take_rows(self.pool.X, best)
        return X, self._may_be_new(X, taken, self.pool.score.gather(1, best) > -torch.inf)

    def _may_be_new(self, X: Tensor, taken: Tensor, keep: Tensor) -> Bool[Tensor, "b k"]:
        """Unmark points that are known, equal to others, or taken."""
        keep = keep & steps.may_be_new(X, self.run, self.clearance)
        both = torch.cat([taken, X], dim=1)
        marked = torch.cat([torch.ones_like(taken[..., 0], dtype=torch.bool), keep], dim=1)
        return steps.first_of_equals(both, marked, self.clearance)[:, taken.shape[1] :]

    def _likely(self, X: Float[Tensor, "b k d"]) -> Float[Tensor, "b k"]:
        """Return the logarithm of how likely evaluations succeed."""
        return self.chances.of(X).log() if self.chances.are_known else torch.zeros_like(X[..., 0])


def _marked(
    like: Bool[Tensor, "b n"], places: Int[Tensor, "b s"], count: Bool[Tensor, "b s"]
) -> Bool[Tensor, "b n"]:
    """Mark the places that count; others may name a row twice."""
    return torch.zeros_like(like, dtype=torch.int64).scatter_add(1, places, count.long()) > 0
