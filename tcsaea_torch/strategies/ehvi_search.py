"""Where TC-EHVI looks for points: RVEA on the predicted means, then around the best.

RVEA finds the predicted front. Its members, their offspring, and offspring of those with the
largest expected hypervolume improvement are the pool of candidates. Some of the best have each
variable moved elsewhere, one at a time, half of them to faces of the cube, and some climb to the
nearest maximum of the expected improvement.
"""

from dataclasses import dataclass, replace

import torch

from tcsaea_torch.acquisition.batch import Front
from tcsaea_torch.acquisition.climb import climb
from tcsaea_torch.evolution.reference_vectors import simplex_lattice
from tcsaea_torch.evolution.rvea import Population, RVEAConfig, rvea
from tcsaea_torch.evolution.variation import Draws, vary
from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies.base import RunView
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_models import Models
from tcsaea_torch.strategies.ehvi_rows import distance_from_front, non_dominated_rows
from tcsaea_torch.types import Bool, Float, Int, Tensor

_N_START = 100
"""Rows of the archive, the nearest to the front, with which RVEA begins."""
_N_PARENTS = 40
"""Candidates of largest EHVI, from which more are bred."""
_N_ROUNDS = 3

_STRIDE = 10
"""Of the candidates of largest EHVI, one of so many is taken: the best are alike."""
_N_MOVED = 4
"""Candidates of large EHVI that are also tried with each variable elsewhere."""
_N_CLIMB_BEST = 8
"""Candidates of large EHVI that climb to its maximum."""
_N_CLIMB_FRONT = 16
"""Members of the predicted front that do."""
_CLIMB = BFGSOptions(max_evaluations=10, max_step=0.5, value_tolerance=1e-3)

_MARGIN = 0.1
"""How far the reference point lies beyond the front, in units of its extent."""
_SMALLEST_EXTENT = 0.01
"""Smallest extent of a front, relative to the span of all values."""
_LOWEST_BOUND = -1e3
"""A bound farther below the front says nothing, in units of the front's extent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    """What a search has found."""

    X: Float[Tensor, "b k d"]
    """Candidates."""
    score: Float[Tensor, "b k"]
    """Logarithms of their EHVI; -inf where there is none."""
    population: Population
    """The predicted front: RVEA's last population."""
    front: Front
    """What candidates have to improve upon."""


def non_dominated(population: Population) -> Bool[Tensor, "b k"]:
    """Return the members that no other one dominates; rows that are none do not count."""
    return is_non_dominated(torch.where(population.alive.unsqueeze(-1), population.F, torch.nan))


def measure_front(
    Y: Float[Tensor, "b n 2"],
    is_known: Bool[Tensor, "b n"],
    span: Float[Tensor, "b 1 2"],
    lower_bound: Float[Tensor, "b 2"] | None,
    ref_point: Float[Tensor, "b 2"] | None,
    predicted: Population | None = None,
) -> Front:
    """Return the non-dominated points, in units of their extent and that of the predicted front.

    A reference point that is not given has to see both: with that of the known front alone,
    parts of the front that are yet to be found would not count.

    Args:
        Y: Values.
        is_known: Points that count.
        span: Of all known values.
        lower_bound: What no value falls below, if that is known.
        ref_point: Beyond which nothing counts, if that is known.
        predicted: The predicted front.
    """
    rows, best = non_dominated_rows(Y, is_known)
    Y = take_rows(Y, rows)
    ends, count = Y, best
    if predicted is not None:
        ends = torch.cat([Y, predicted.F], dim=1)
        count = torch.cat([best, non_dominated(predicted)], dim=1)
    low = torch.where(count.unsqueeze(-1), ends, torch.inf).amin(dim=1, keepdim=True)
    high = torch.where(count.unsqueeze(-1), ends, -torch.inf).amax(dim=1, keepdim=True)
    is_there = low < torch.inf
    low, high = torch.where(is_there, low, 0.0), torch.where(is_there, high, 0.0)
    extent = torch.maximum(high - low, _SMALLEST_EXTENT * span)
    extent = torch.where(extent > 0, extent, 1.0)
    if lower_bound is not None:
        lower_bound = ((lower_bound.unsqueeze(1) - low) / extent).squeeze(1)
        lower_bound = lower_bound.clamp_min(_LOWEST_BOUND)
    ends = torch.full_like(low.squeeze(1), 1.0 + _MARGIN)
    if ref_point is not None:
        ends = (ref_point - low.squeeze(1)) / extent.squeeze(1)
    return Front(
        Y=(Y - low) / extent,
        alive=best,
        ref_point=ends,
        low=low,
        extent=extent,
        lower_bound=lower_bound,
    )


@dataclass(frozen=True, kw_only=True)
class Search:
    """How candidates are sought; see the fields of `TCEHVI`."""

    rvea: RVEAConfig
    n_ref_vectors: int
    moves_variables: bool
    climbs: bool

    def run(
        self,
        run: RunView,
        models: Models,
        Y: Float[Tensor, "b n 2"],
        is_judged: Bool[Tensor, "b n"],
        is_start: Bool[Tensor, "b n"],
        span: Float[Tensor, "b 1 2"],
        lower_bound: Float[Tensor, "b 2"] | None,
        ref_point: Float[Tensor, "b 2"] | None,
        chances: Chances,
        step: int,
    ) -> Pool:
        """Search the models.

        Args:
            run: The runs.
            models: Of both objectives.
            Y: Values of the archive's rows, known or predicted.
            is_judged: Rows that make up the front to be improved.
            is_start: Rows with which the search may begin.
            span: Of all known values.
            lower_bound: What no value falls below, if that is known.
            ref_point: Beyond which nothing counts, if that is known.
            chances: How likely evaluations succeed.
            step: Counter for the random numbers.
        """
        front = measure_front(Y, is_judged, span, lower_bound, ref_point)
        distance = distance_from_front(front.scale(Y), front.Y, front.alive)
        order = distance.masked_fill(~is_start, torch.inf).argsort(dim=1, stable=True)
        order = order[:, :_N_START]
        X, alive = take_rows(run.archive.X, order), is_start.gather(1, order)
        # Reference vectors compare the objectives, so these need units of one size from the
        # first generation on: else few vectors, or one, would have all points.
        unit = torch.where(span > 0, span, 1.0)
        predict = chances.worsen(models.mean, run)
        r = self.n_ref_vectors
        population, _ = rvea(
            lambda X: predict(X) / unit,
            X,
            alive,
            simplex_lattice(r, dtype=run.dtype, device=run.device),
            Draws.make(run.seeds, "rvea", step, self.rvea.n_generations, r, run.d, run.dtype),
            self.rvea,
            grid=run.grid,
        )
        population = replace(population, F=population.F * unit)
        front = measure_front(Y, is_judged, span, lower_bound, ref_point, population)

        def score_of(X: Tensor) -> Tensor:
            mean, variance = models.predict(X)
            score = front.log_ehvi(front.scale(mean), variance / front.extent.square())
            return score + chances.of(X).log() if chances.are_known else score

        X = population.X
        score = score_of(X).masked_fill(~population.alive, -torch.inf)
        parents, lives = population.X, population.alive
        for i in range(_N_ROUNDS + 1):
            new = self._offspring(parents, lives, run, f"pool/{i}", step)
            X, score = torch.cat([X, new], dim=1), torch.cat([score, score_of(new)], dim=1)
            best = score.argsort(dim=1, descending=True, stable=True)[:, :_N_PARENTS]
            parents, lives = take_rows(X, best), score.gather(1, best) > -torch.inf
            # There is always somebody to breed from.
            lives = lives | ~lives.any(dim=1, keepdim=True)
        if self.moves_variables:
            moved = _one_moved(take_rows(X, _spaced(score, _N_MOVED)), run, step)
            X, score = torch.cat([X, moved], dim=1), torch.cat([score, score_of(moved)], dim=1)
        if self.climbs:
            best = snap(climb(score_of, _starts(X, score, population), _CLIMB), run.grid)
            X, score = torch.cat([X, best], dim=1), torch.cat([score, score_of(best)], dim=1)
        return Pool(X=X, score=score, population=population, front=front)

    def _offspring(
        self, parents: Tensor, lives: Tensor, run: RunView, name: str, step: int
    ) -> Float[Tensor, "b k d"]:
        """Breed as many offspring as there are vectors."""
        draws = Draws.make(run.seeds, name, step, 1, self.n_ref_vectors, run.d, run.dtype)
        X, _ = vary(
            parents,
            lives,
            draws.mating[:, 0],
            draws.crossover[:, 0],
            draws.mutation[:, 0],
            self.rvea.variation,
            each_once=False,
        )
        return snap(X, run.grid)


def _spaced(score: Float[Tensor, "b k"], n: int) -> Int[Tensor, "b n"]:
    """Return n of the candidates of largest scores, one of so many: the best are alike."""
    best = score.argsort(dim=1, descending=True, stable=True)
    return best[:, : n * _STRIDE : _STRIDE]


def _one_moved(X: Float[Tensor, "b k d"], run: RunView, step: int) -> Float[Tensor, "b j d"]:
    """Return candidates with each variable elsewhere, one at a time, half of them on faces.

    Where the models are wrong about one variable, all other candidates have it at the same
    wrong place, and nothing would ever be learned.
    """
    b, k, d = X.shape
    u = uniforms(run.seeds, "moved", step, (k, d, 1), dtype=run.dtype)
    where = (2.0 * u - 0.5).clamp(0.0, 1.0)
    is_moved = torch.eye(d, dtype=torch.bool, device=X.device)
    return snap(torch.where(is_moved, where, X.unsqueeze(2)).reshape(b, k * d, d), run.grid)


def _starts(
    X: Float[Tensor, "b k d"], score: Float[Tensor, "b k"], population: Population
) -> Float[Tensor, "b s d"]:
    """Return where candidates start to climb: some of the best, some along the front."""
    best = _spaced(score, _N_CLIMB_BEST)
    F, alive = population.F[..., 0], population.alive
    order = F.masked_fill(~alive, torch.inf).argsort(dim=1, stable=True)
    share = torch.arange(_N_CLIMB_FRONT, device=F.device) / _N_CLIMB_FRONT
    along = (share * alive.sum(dim=1, keepdim=True)).long()
    return torch.cat([take_rows(X, best), take_rows(population.X, order.gather(1, along))], dim=1)
