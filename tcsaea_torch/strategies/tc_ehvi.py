"""TC-EHVI (draft)."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tcsaea_torch.acquisition.batch import Front, greedy_ehvi, spread
from tcsaea_torch.evolution.reference_vectors import simplex_lattice
from tcsaea_torch.evolution.rvea import Population, RVEAConfig, rvea
from tcsaea_torch.evolution.variation import Draws, Variation, vary
from tcsaea_torch.metrics import is_non_dominated
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, register, tensor_in
from tcsaea_torch.strategies.ehvi_models import Known, Models, distance_from_front
from tcsaea_torch.strategies.ehvi_fit import learn
from tcsaea_torch.strategies.start import sample_design
from tcsaea_torch.types import Bool, Float, Int, Tensor

_N_START = 100
_N_BEST = 40
_N_SHORT = 150
_N_ROWS = 128


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool:
    X: Tensor
    score: Tensor
    front: Front
    population: Population


@dataclass(frozen=True, kw_only=True)
class TCEHVI:
    n_new: int = 3
    n_ref_vectors: int = 100
    strict_clock: bool = True
    search: RVEAConfig = field(default_factory=lambda: RVEAConfig(n_generations=15))
    space_share: float = 0.5
    spread_share: float = 1.0
    slow_from_new: bool = False
    guess_bounds: bool = True
    snap_faces: bool = True
    n_rounds: int = 3
    kinds: str = "ard,add,a15"
    kinds_slow: str = "ard,add,pri"
    prior_theta: float = 1.0
    score: str = "abs"
    calibrate: int = 1
    prior_amp: float = 1.5
    refit_every: int = 6
    smallest_extent: float = 0.01
    link: bool = True
    nugget_min: float = 1e-6
    link_growth: float = 1.6
    criterion: str = "leave-one-out"
    link_noise: float = 1.0
    max_evaluations: int = 60
    warm_evaluations: int = 20
    nugget: float | str | None = 1e-8
    name: str = "tc-ehvi"

    def init(self, run: RunView) -> State:
        return {"stage": "design", "n_design": 0, "first": 0, "n_space": 0, "step": 0, "period": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        if state["stage"] == "design":
            first = len(run.archive)
            proposal, state = sample_design({**state, "first": first}, run)
            state = {**state, "stage": "start"}
            state.pop("population", None), state.pop("n_offspring", None)
            state.pop("first_offspring", None)
            if state["n_design"]:
                return proposal, state
        known = self._known(state, run)
        if bool(run.pending.any()):
            return Proposal.nothing(run, run.pending), state
        if state["stage"] == "start":
            n = (self._credit(run, 0)).clamp_max(int(state["n_design"]))
            if bool((n > 0).any()):
                return self._start(state, run, known, n)
            state = {**state, "stage": "periods"}
        n_slow = run.left[:, SLOW].clamp_max(self.n_new)
        n_fast = self._credit(run, 0)
        if self.strict_clock:
            n_fast = self._credit(run, n_slow)
        elif bool((n_fast > 0).any()):
            n_slow = torch.zeros_like(n_slow)
        if not bool((n_slow + n_fast > 0).any()) or not bool((run.left[:, SLOW] > 0).any()):
            return Proposal.nothing(run), state
        if bool((run.left[:, SLOW] <= n_slow).all()):
            n_fast = torch.zeros_like(n_fast)  # nobody would use them
        period = int(state["period"]) + bool((n_slow > 0).any())
        return self._period({**state, "period": period}, run, known, n_slow, n_fast)

    def _known(self, state: State, run: RunView) -> Known:
        observed = run.archive.observed
        n = len(run.archive)
        row = torch.arange(n, device=run.device)
        first, n_design = int(state["first"]), int(state["n_design"])
        if self.strict_clock and state["stage"] == "start":
            u = self.n_new
            n_known = u * torch.floor(run.used[:, FAST] / (u * run.tau) + 1e-9).long()
            hidden = (row >= first + n_known.unsqueeze(-1)) & (row < first + n_design)
            observed = observed.clone()
            observed[..., SLOW] &= ~hidden
        is_space = (row < first + int(state["n_space"]) + n_design).expand(run.b, n)
        return Known(X=run.archive.X, Y=run.archive.Y, observed=observed, is_space=is_space)

    def _credit(self, run: RunView, n_slow: Any) -> Tensor:
        credit = torch.floor(run.tau * (run.used[:, SLOW] + n_slow).double() + 1e-9).long()
        return (torch.minimum(credit, run.total[:, FAST]) - run.used[:, FAST]).clamp_min(0)

    def _start(self, state, run, known, n):
        """More fast values while the slow ones of the design are on their way."""
        n_design, k = int(state["n_design"]), int(n.amax())
        n_space = int(self.space_share * (run.tau - 1.0) * n_design)
        left = n_space - int(state["n_space"])
        if left > 0:
            k = min(k, left)
            n = n.clamp_max(k)
            u, jitter = uniforms(
                run.seeds, "space", int(state["n_space"]), (2, k, run.d), dtype=run.dtype
            ).unbind(dim=1)
            X, is_new = steps.distinct(snap(latin_hypercube(u, jitter), run.grid), run)
            mask = torch.zeros(run.b, k, 2, dtype=torch.bool, device=run.device)
            mask[..., FAST] = is_new & (torch.arange(k, device=run.device) < n.unsqueeze(-1))
            return Proposal(X=X, evaluation_mask=mask), {**state, "n_space": int(state["n_space"]) + k}
        return self._period(state, run, known, torch.zeros_like(n), n)

    def _period(self, state, run, known, n_slow, n_fast):
        state = {**state, "step": int(state["step"]) + 1}
        models, state, slow_mean = learn(self, state, run, known)
        self.watch(state, run, models)
        pool = self._search(state, run, known, models, slow_mean)
        X_short, keep, row_mask, X_new, is_new = self._choose(
            state, run, known, models, pool, n_slow, n_fast
        )
        return self._proposal(run, row_mask, X_new, is_new), state

    def watch(self, *a):
        pass

    def _search(self, state, run, known, models, slow_mean):
        step, r = int(state["step"]), self.n_ref_vectors
        complete = known.both
        Y_hat = torch.stack([known.Y[..., FAST], slow_mean], dim=-1)
        Y_hat = torch.where(complete.unsqueeze(-1), known.Y, Y_hat)
        front = self._front(known, known.Y[:, :1], complete[:, :1] & False)
        distance = distance_from_front(front.scale(Y_hat), front.Y, front.alive)
        order = distance.masked_fill(~known.fast, torch.inf).argsort(dim=1)[:, : _N_START]
        X0, alive0 = take_rows(known.X, order), known.fast.gather(1, order)
        if self.snap_faces:
            X0 = torch.cat([X0, self._to_faces(X0, run, "faces/start", step)], dim=1)
            alive0 = torch.cat([alive0, alive0], dim=1)
        draws = Draws.make(run.seeds, "rvea", step, self.search.n_generations, r, run.d, run.dtype)
        lattice = simplex_lattice(r, dtype=run.dtype, device=run.device)
        low = self._low(known)

        def evaluate(X):
            F = models.mean(X)
            return F

        population, _ = rvea(evaluate, X0, alive0, lattice, draws, self.search, grid=run.grid)
        front = self._front(known, population.F, population.alive)
        X = population.X
        alive = population.alive

        def score_of(X):
            mean, variance = models.predict(X)
            return front.log_ehvi(front.scale(mean), variance / front.extent.square())

        score = score_of(X).masked_fill(~alive, -torch.inf)
        for i in range(self.n_rounds + 1):
            if i == 0:
                parents, lives = population.X, population.alive
            else:
                top = score.argsort(dim=1, descending=True)[:, : _N_BEST]
                parents, lives = take_rows(X, top), score.gather(1, top) > -torch.inf
            d = Draws.make(run.seeds, f"pool/{i}", step, 1, r, run.d, run.dtype)
            new, _ = vary(
                parents, lives, d.mating[:, 0], d.crossover[:, 0], d.mutation[:, 0],
                self.search.variation, each_once=False,
            )
            if self.snap_faces:
                faces = self._to_faces(take_rows(new, torch.arange(r // 4, device=run.device).expand(run.b, -1)), run, f"faces/{i}", step)
                new = torch.cat([new, faces], dim=1)
            new = snap(new, run.grid)
            X = torch.cat([X, new], dim=1)
            score = torch.cat([score, score_of(new)], dim=1)
        score = torch.where(steps.is_known(X, run), -torch.inf, score)
        return Pool(X=X, score=score, front=front, population=population)

    def _to_faces(self, X, run, name, step):
        u = uniforms(run.seeds, name, step, (X.shape[1], run.d + 1), dtype=run.dtype)
        return snap(torch.where(u[..., :-1] < u[..., -1:], X.round(), X), run.grid)

    def _low(self, known) -> Tensor | None:
        if not self.guess_bounds:
            return None
        Y = torch.where(known.observed, known.Y, torch.inf).amin(dim=1)
        return torch.where(Y >= 0, 0.0, -torch.inf)

    def _front(self, known: Known, F, alive) -> Front:
        Y = torch.where(known.both.unsqueeze(-1), known.Y, torch.nan)
        best = is_non_dominated(Y)
        n = max(1, int(best.sum(dim=1).amax()))
        rows = (~best).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
        Y, best = take_rows(known.Y, rows), best.gather(1, rows)
        G = torch.cat([Y, F], dim=1)
        ok = torch.cat([best, alive & is_non_dominated(F)], dim=1).unsqueeze(-1)
        low = torch.where(ok, G, torch.inf).amin(dim=1, keepdim=True)
        high = torch.where(ok, G, -torch.inf).amax(dim=1, keepdim=True)
        all_ok = known.observed
        span = torch.where(all_ok, known.Y, -torch.inf).amax(dim=1, keepdim=True) - torch.where(all_ok, known.Y, torch.inf).amin(dim=1, keepdim=True)
        extent = torch.maximum(high - low, self.smallest_extent * span)
        extent = torch.where(extent > 0, extent, 1.0)
        bound = self._low(known)
        scaled = None if bound is None else (bound - low.squeeze(1)) / extent.squeeze(1)
        if scaled is not None:
            scaled = scaled.clamp_min(-1e3)
        return Front(
            Y=(Y - low) / extent, alive=best, ref_point=torch.full_like(low.squeeze(1), 1.1),
            low=low, extent=extent, lower_bound=scaled,
        )

    def _choose(self, state, run, known, models, pool, n_slow, n_fast):
        front, b = pool.front, run.b
        members = torch.arange(b, device=run.device)
        row_mask = torch.zeros_like(known.fast)
        is_new_slow = None
        # --- slow: among fast-only rows
        X = known.X
        if bool((n_slow > 0).any()):
            free = known.fast & ~run.archive.observed[..., SLOW] & ~run.pending[..., SLOW] & ~run.failed[..., SLOW]
            mean_s, var_s = models.slow.predict(X)
            mean = torch.stack([known.Y[..., FAST], mean_s], dim=-1)
            var = torch.stack([torch.zeros_like(var_s), var_s], dim=-1)
            score = front.log_ehvi(front.scale(mean), var / front.extent.square())
            score = score.masked_fill(~free, -torch.inf)
            rows = score.argsort(dim=1, descending=True)[:, :_N_ROWS]
            Xr, fr = take_rows(X, rows), free.gather(1, rows)
            m, cov_s = models.slow.predict_joint(Xr)
            k = rows.shape[1]
            mean = front.scale(torch.stack([known.Y[..., FAST].gather(1, rows), m], dim=-1))
            cov = torch.stack([torch.zeros_like(cov_s), cov_s / front.extent[..., 1:].square()], dim=1)
            picks, counts = greedy_ehvi(mean, cov, fr, front, n_slow, int(n_slow.amax()))
            chosen = rows.gather(1, picks)
            row_mask = row_mask.scatter(1, chosen, counts) if counts.any() else row_mask
            front = front.with_points(take_rows(mean, picks), counts)
        # --- fast
        n_slots = int(n_fast.amax())
        if n_slots == 0:
            return None, None, row_mask, run.archive.X[:, :0], torch.zeros(b, 0, dtype=torch.bool)
        pop = pool.population
        fresh = pop.alive & is_non_dominated(pop.F) & steps.may_be_new(pop.X, run, steps.SAME_POINT)
        n_spread = torch.floor(self.spread_share * n_fast.double() + 0.5).long()
        taken, is_taken = front.Y, front.alive
        spare = snap(uniforms(run.seeds, "spare", int(state["step"]), (n_slots + 20, run.d), dtype=run.dtype), run.grid)
        a, a_ok = spread(front.scale(pop.F), fresh, taken, is_taken, n_spread, max(1, int(n_spread.amax())))
        X_a = take_rows(pop.X, a)
        # the rest by EHVI
        top = pool.score.argsort(dim=1, descending=True)[:, :_N_SHORT]
        Xs, free = take_rows(pool.X, top), pool.score.gather(1, top) > -torch.inf
        X_all = torch.cat([X_a, Xs, spare], dim=1)
        free_all = steps.first_of_equals(X_all, torch.cat([a_ok, free, steps.may_be_new(spare, run, steps.SAME_POINT)], dim=1))
        free = free_all[:, X_a.shape[1]:X_a.shape[1]+Xs.shape[1]]
        n_greedy = n_fast - a_ok.sum(dim=1)
        m, cov = models.predict_joint(Xs)
        cov = cov / front.extent.squeeze(1)[..., None, None].square()
        picks, counts = greedy_ehvi(front.scale(m), cov, free, front, n_greedy, max(1, int(n_greedy.amax())))
        X_new = torch.cat([X_a, take_rows(Xs, picks), spare], dim=1)
        is_new = torch.cat([a_ok, counts, free_all[:, -spare.shape[1]:]], dim=1)
        order = (~is_new).to(torch.int8).argsort(dim=1, stable=True)[:, :n_slots]
        X_new, is_new = take_rows(X_new, order), is_new.gather(1, order)
        is_new = is_new & (torch.arange(order.shape[1]) < n_fast.unsqueeze(-1))
        return None, None, row_mask, X_new, is_new

    def _proposal(self, run, row_mask, X_new, is_new):
        mask = torch.zeros(*is_new.shape, 2, dtype=torch.bool, device=run.device)
        mask[..., FAST] = is_new
        archive_mask = torch.zeros_like(run.archive.observed)
        archive_mask[..., SLOW] = row_mask
        return Proposal(X=X_new, evaluation_mask=mask, archive_mask=archive_mask)


register("tc-ehvi", TCEHVI)
