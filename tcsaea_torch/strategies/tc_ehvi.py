"""TC-EHVI: transfer by a learned co-surrogate, and expected hypervolume improvement.

The strategy of this library's own. It keeps the parts of TC-SAEA [Wang2022], GP_s, GP_f, a
co-surrogate, belief by confidence and RVEA on the surrogates, and makes each stronger. With
f = f_f, s = f_s, D_f the points with a fast value and D_s those with a slow one:

1. Models. A Gaussian process for each objective, with a constant trend and one of several
   kernels: joint, r = exp(-sum_k theta_k d_k^2), or additive of second order [Duvenaud2011],

       r = (sum_k a_k z_k + w sum_{k<l} a_k a_l z_k z_l) / U0,   z_k = exp(-theta_k d_k^2).

   Most kinds fit a nugget, so that what is rough in a function does not bend the rest. GP_f's
   kernel is the one with the smallest leave-one-out errors, space-filling points and others
   having the same say. GP_s has few points, so that hyper-parameters can explain them whatever
   they are: they have priors, and its kernel is chosen by cross-validation. Variances are
   multiplied so that intervals hold the errors of points left out.

2. Co-surrogate. The paper models s - f. Here a link t(f, s) is learned over x, or s over
   (x, f); see `transfer.links`: difference, log ratio, angle, autoregression. Leave-one-out
   errors choose a link, cross-validation must confirm that it is clearly better than GP_s,
   and its errors widen its variance. Then a point with f known has a synthetic value

       s' = s(t(x), f(x)),   with variance v' = (ds/dt)^2 var t(x),

   believed if |s' - m_s(x)| <= c sqrt(v_s + v' + q), with q the mean square of GP_s' errors
   (Algorithm 1, line 17, with an honest interval). GP_s then learns from D_s with noise 0
   and from the believed points of D_f with noise v'; where these are too many, more of them
   than of D_s are left out.

3. Search. RVEA on the means finds the predicted front. With P the non-dominated points of
   D_s, r the user's reference point, or one beyond P and the predicted front, and strips
   [b_i, b_{i+1}) of height h_i between P and r, the expected hypervolume improvement of a
   point is

       EHVI(x) = sum_i (EI_f(b_{i+1}) - EI_f(b_i)) EI_s(h_i),   EI(b) = E (b - y)^+,

   in logarithms, of predictions cut off at known lower bounds (`acquisition.hypervolume`).
   Offspring of the predicted front and of the points of largest EHVI make up the pool, with
   some of these that have one variable elsewhere, or climb to the nearest maximum of EHVI.

4. Choice. Slow evaluations go to points of D_f and to new points, whichever have the larger
   EHVI. With f known, only s is left to chance: EHVI(x) = sum_i (b_{i+1} - max(b_i, f))^+
   EI_s(h_i). There the link is asked once more, since GP_s smooths what is rough. With V =
   v_s + (s' - m_s)^2, GP_s' variance and how far both differ, s has the mean
   (V s' + v' m_s) / (V + v') and the variance V v' / (V + v'). Where s' is not believed, they
   are m_s and V, so that a measurement may tell who is right. A new point gets both values at
   once. One after the other is chosen, each being believed to have its predicted value, and
   the covariances C of the others shrinking by C_{:,j} C_{j,:} / C_jj. Fast evaluations go to
   new points: a share of them far from P and from each other on the predicted front, some
   between neighbours in P, the rest by EHVI.

5. Time. u slow evaluations take as long as u tau fast ones. In a period, u points get their
   slow value while u tau new points get their fast one: both are chosen with what is
   known when the period begins. The initial design of N points gets both; in the time of its
   slow evaluations, N (tau - 1) more fast ones fill the space (a share of them) or are chosen
   as in a period, with those slow values that would have come by then.

[Wang2022] X. Wang, Y. Jin, S. Schmitt, M. Olhofer. Transfer learning based co-surrogate
assisted evolutionary bi-objective optimization for objectives with non-uniform
evaluation times. Evolutionary Computation 30(2), 2022.
[Duvenaud2011] D. Duvenaud, H. Nickisch, C. E. Rasmussen. Additive Gaussian processes.
Advances in Neural Information Processing Systems 24, 2011.
"""

from dataclasses import dataclass, field

import torch

from tcsaea_torch.evolution.rvea import RVEAConfig
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.asynchronous import fill
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, register, tensor_in
from tcsaea_torch.strategies.chances import Chances
from tcsaea_torch.strategies.ehvi_choice import Choice
from tcsaea_torch.strategies.ehvi_clock import as_of_then, credit, yet_to_come
from tcsaea_torch.strategies.ehvi_models import Modelling, Models, believe_rows
from tcsaea_torch.strategies.ehvi_rows import Known
from tcsaea_torch.strategies.ehvi_search import Search
from tcsaea_torch.strategies.ehvi_surrogates import KERNEL_KINDS, KernelKind
from tcsaea_torch.strategies.start import sample_design
from tcsaea_torch.transfer import LinkConfig
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_bool,
    check_choice,
    check_instance,
    check_int,
    check_optional_pair,
    check_real,
    check_sequence,
    check_text,
    keep_checked,
)

_N_FOR_CHANCES = 200
"""Rows from which it is learned where evaluations succeed, at most."""


@dataclass(frozen=True, kw_only=True)
class TCEHVI:
    """Configuration of TC-EHVI.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_new: int = 3
    """u: slow evaluations of each period, and what a clock's lanes run at a time."""
    strict_clock: bool = True
    """Whether each decision rests only on what is known by then on a clock on which u slow
    evaluations take tau units and u fast ones take 1. False counts evaluations only: the slow
    values of the initial design are known before fast ones are chosen with their help, and
    those of a period before the next fast ones."""
    asynchronous: bool = False
    """Whether it proposes at any time, for free workers; then values count when they come."""
    kernels: tuple[KernelKind, ...] = KERNEL_KINDS
    """Kernels to choose from by how well they predict rows that are left out: "joint" and
    "additive"; and for GP_s, which has few rows, "smooth" and "cautious", which are additive
    with a prior on theta. Of GP_s' kernels the first is used unless another one is clearly
    better."""
    link: LinkConfig | None = field(default_factory=LinkConfig)
    """How the slow objective may follow from the fast one; None: no synthetic values."""
    calibrated: bool = True
    """Whether GP_s' variances are widened to agree with its leave-one-out errors."""
    search: RVEAConfig = field(default_factory=lambda: RVEAConfig(n_generations=15))
    """RVEA on the surrogates' means."""
    n_ref_vectors: int = 100
    """Reference vectors, and room in the surrogate population."""
    moves_variables: bool = True
    """Whether the best candidates are also tried with each variable elsewhere, one at a time."""
    climbs: bool = True
    """Whether candidates also climb to the nearest maximum of EHVI."""
    uses_ref_point: bool = True
    """Whether the problem's reference point, if it has one, is that of EHVI: nothing beyond it
    is sought."""
    space_share: float = 0.5
    """Share of the start's additional fast evaluations that fill the space."""
    spread_share: float = 0.4
    """Share of the later fast evaluations that spread over the predicted front."""
    between_share: float = 0.2
    """Share of them that lie between neighbours of the known front, whatever the models say."""
    objective_lower_bounds: tuple[float | None, float | None] = (None, None)
    """What no (fast, slow) value falls below, minimised, in the user's units; None: unknown.
    An objective to be maximised counts with its sign changed."""
    guesses_bounds: bool = True
    """Whether an unknown bound is taken to be 0 while no value is negative."""
    noisy: bool = False
    """Whether values have noise, which is then inferred."""
    failure_model: bool = True
    """Whether the probability of success is learned, from three failures of an objective on."""
    clearance: float = 1e-3
    """How far asynchronous proposals keep away from outstanding points and from each other:
    the largest difference of a coordinate in the unit cube."""
    name: str = "tc-ehvi"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_new", minimum=1)
        keep_checked(self, check_int, "n_ref_vectors", minimum=2)
        for switch in (
            "strict_clock", "asynchronous", "calibrated", "moves_variables",
            "climbs", "uses_ref_point", "guesses_bounds", "noisy", "failure_model",
        ):  # fmt: skip
            check_bool(switch, getattr(self, switch))
        keep_checked(self, check_sequence, "kernels")
        for kernel in self.kernels:
            check_choice("kernels", kernel, KERNEL_KINDS)
        if self.link is not None:
            check_instance("link", self.link, LinkConfig)
        check_instance("search", self.search, RVEAConfig)
        shares = ("space_share", "spread_share", "between_share")
        keep_checked(self, check_real, *shares, minimum=0.0, maximum=1.0)
        keep_checked(self, check_optional_pair, "objective_lower_bounds")
        keep_checked(self, check_real, "clearance", minimum=0.0, maximum=0.5)
        check_text("name", self.name)

    # ------------------------------------------------------------------ protocol

    def init(self, run: RunView) -> State:
        """Return the state before the initial design."""
        nothing = torch.zeros(0, dtype=torch.int64, device=run.device)
        return {"stage": "design", "first": 0, "n_design": 0, "space": nothing, "step": 0}

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the design, fast values of the start, or a period."""
        if state["stage"] == "design":
            proposal, begun = sample_design(state, run)
            first, n = len(run.archive), int(begun["n_design"])
            state = {**state, "stage": "start", "first": first, "n_design": n}
            if n:
                return proposal, state
        if self.asynchronous:
            return self._propose_now(state, run)
        hidden = torch.zeros_like(run.archive.observed)
        if self.strict_clock and state["stage"] == "start":
            hidden = yet_to_come(run, int(state["first"]), int(state["n_design"]), self.n_new)
        waits_for = run.pending & ~hidden
        if bool(waits_for.any()):
            return Proposal.nothing(run, waits_for), state
        n_fast = credit(run, 0)
        if state["stage"] == "start":
            if bool((n_fast > 0).any()):
                n_fast = n_fast.clamp_max(max(1, int(state["n_design"])))
                proposal, after = self._start(state, as_of_then(run, hidden), n_fast)
                if not proposal.is_empty:  # as it is where a finite space has no more points
                    return proposal, after
            state = {**state, "stage": "periods"}
            return self.propose(state, run)
        n_slow = run.left[:, SLOW].clamp_max(self.n_new)
        if self.strict_clock:
            n_fast = credit(run, n_slow)
        elif bool(((n_fast > 0) & (n_slow > 0)).any()):
            nothing = torch.zeros_like(n_slow)
            proposal, after = self._period(state, run, nothing, torch.where(n_slow > 0, n_fast, 0))
            if not proposal.is_empty:
                return proposal, after
            n_fast = nothing
        # Nobody would use fast values after the last slow ones.
        n_fast = torch.where(run.left[:, SLOW] > n_slow, n_fast, 0)
        if not bool((n_slow + n_fast > 0).any()):
            return Proposal.nothing(run), state
        return self._period(state, run, n_slow, n_fast)

    def offers(self, state: State, run: RunView) -> Int[Tensor, "b 2"]:
        """Return how many evaluations of (fast, slow) an asynchronous run could have now."""
        n_slow = run.left.amin(dim=-1)
        if state["stage"] == "design" and run.n_init:
            n_design = n_slow.clamp_max(run.n_init)
            return torch.stack([n_design, n_design], dim=-1)
        return torch.stack([credit(run, 0), run.left[:, SLOW]], dim=-1)

    def _propose_now(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return work for free workers, whatever is outstanding."""
        n_fast, n_slow = self.offers(state, run).unbind(dim=-1)
        if run.wanted is not None:
            n_fast = torch.minimum(n_fast, run.wanted[:, FAST])
            n_slow = torch.minimum(n_slow, run.wanted[:, SLOW])
        else:
            n_fast, n_slow = n_fast.clamp_max(self.n_new), n_slow.clamp_max(self.n_new)
        if not bool((n_slow + n_fast > 0).any()):
            return Proposal.nothing(run, run.pending), state
        if state["stage"] == "start" and not bool((n_slow > 0).any()):
            return self._start(state, run, n_fast)
        return self._period(state, run, n_slow, n_fast)

    def _known(self, state: State, run: RunView) -> Known:
        """Return what a decision may rest on."""
        archive = run.archive
        row = torch.arange(len(archive), device=run.device)
        is_space = row < int(state["first"]) + int(state["n_design"])
        # Where workers are free, others may come between those of the start.
        is_space = is_space | torch.isin(row, tensor_in(state, "space"))
        return Known(
            X=archive.X,
            Y=archive.Y,
            observed=archive.observed,
            is_space=is_space.expand(run.b, -1),
        )

    # ------------------------------------------------------------------ steps

    def _start(self, state: State, run: RunView, n: Int[Tensor, " b"]) -> tuple[Proposal, State]:
        """Propose fast evaluations while the slow ones of the design are on their way.

        Some fill the space, so that GP_f knows all of it; the others are chosen by the models.
        """
        done = tensor_in(state, "space")
        n_done = len(done)
        n_space = int(self.space_share * (run.tau - 1.0) * int(state["n_design"]))
        if n_done >= n_space:
            return self._period(state, run, torch.zeros_like(n), n)
        n = n.clamp_max(n_space - n_done)
        # One sample for all of them, however few are proposed at a time.
        shape = (2, n_space, run.d)
        u, jitter = uniforms(run.seeds, "space", 0, shape, dtype=run.dtype).unbind(dim=1)
        X = snap(latin_hypercube(u, jitter), run.grid)[:, n_done : n_done + int(n.amax())]
        X, is_new = fill(X, torch.ones_like(X[..., 0], dtype=torch.bool), n, run, self._clearance)
        rows = len(run.archive) + torch.arange(X.shape[1], device=run.device)
        return _fast_only(X, is_new), {**state, "space": torch.cat([done, rows])}

    def _period(
        self, state: State, run: RunView, n_slow: Int[Tensor, " b"], n_fast: Int[Tensor, " b"]
    ) -> tuple[Proposal, State]:
        """Learn, search, and choose points for slow and for fast evaluations."""
        state = {**state, "step": int(state["step"]) + 1}
        known = self._known(state, run)
        if not bool((known.observed.sum(dim=1) >= 2).all()):
            return self._at_random(run, n_slow, n_fast), state
        step = int(state["step"])
        chances = Chances.learn(run, step, _N_FOR_CHANCES) if self.failure_model else Chances()
        low = known.lower_bound(self.objective_lower_bounds, guesses=self.guesses_bounds)
        models, Y, state = self._modelling.learn(state, run, known, low)
        models, Y, is_judged = self._with_outstanding(run, known, models, Y)
        ref_point = run.ref_point if self.uses_ref_point else None
        pool = self._search.run(
            run, models, Y, is_judged, known.fast, known.span, low, ref_point, chances, step
        )
        choice = Choice(
            run=run,
            known=known,
            models=models,
            pool=pool,
            chances=chances,
            noisy=self.noisy,
            clearance=self._clearance,
            step=step,
        )
        # Free workers are asked for no more fast values than they can begin with.
        n_both = n_fast if self.asynchronous else run.left[:, FAST]
        rows, X_both, is_both, front = choice.slow_points(n_slow, n_both, pool.front)
        n_fast = (n_fast - is_both.sum(dim=1)).clamp_min(0)
        n_spread = torch.floor(self.spread_share * n_fast.double() + 0.5).long()
        n_between = _share_of(self.between_share, n_fast, run, "n between", step)
        X_fast, is_fast = choice.fast_points(n_fast, n_spread, n_between, X_both, front)
        X, is_asked = torch.cat([X_both, X_fast], dim=1), torch.cat([is_both, is_fast], dim=1)
        is_slow = torch.cat([is_both, torch.zeros_like(is_fast)], dim=1)
        archive_mask = torch.zeros_like(run.archive.observed)
        archive_mask[..., SLOW] = rows
        mask = torch.stack([is_asked, is_slow], dim=-1)
        return Proposal(X=X, evaluation_mask=mask, archive_mask=archive_mask), state

    def _at_random(
        self, run: RunView, n_slow: Int[Tensor, " b"], n_fast: Int[Tensor, " b"]
    ) -> Proposal:
        """Propose random points while there are too few values to learn from."""
        n = torch.maximum(n_slow, n_fast)
        nothing = run.archive.X[:, :0]
        X, is_new = fill(nothing, run.exists[:, :0], n, run, self._clearance)
        is_slow = is_new & (torch.arange(X.shape[1], device=run.device) < n_slow.unsqueeze(-1))
        return Proposal(X=X, evaluation_mask=torch.stack([is_new, is_slow], dim=-1))

    # ------------------------------------------------------------------ parts

    @property
    def _clearance(self) -> float:
        return self.clearance if self.asynchronous else steps.SAME_POINT

    @property
    def _search(self) -> Search:
        return Search(
            rvea=self.search,
            n_ref_vectors=self.n_ref_vectors,
            moves_variables=self.moves_variables,
            climbs=self.climbs,
        )

    @property
    def _modelling(self) -> Modelling:
        return Modelling(
            kernels=self.kernels,
            link=self.link,
            noisy=self.noisy,
            calibrated=self.calibrated,
        )

    def _with_outstanding(
        self, run: RunView, known: Known, models: Models, Y: Float[Tensor, "b n 2"]
    ) -> tuple[Models, Float[Tensor, "b n 2"], Bool[Tensor, "b n"]]:
        """Believe that outstanding values will be as predicted, and say which rows count.

        Returns:
            The models, without the uncertainty at outstanding points; the values of all rows;
            and the rows that make up the front.
        """
        is_judged = known.both
        if self.noisy:
            Y = models.mean(known.X)
        pending = run.pending
        if not bool(pending.any()):
            return models, Y, is_judged
        models = Models(
            fast=believe_rows(models.fast, known.X, Y[..., FAST], pending[..., FAST]),
            slow=believe_rows(models.slow, known.X, Y[..., SLOW], pending[..., SLOW]),
            synthetic=models.synthetic,
        )
        return models, Y, is_judged | (pending[..., SLOW] & (known.fast | pending[..., FAST]))


def _share_of(
    share: float, n: Int[Tensor, " b"], run: RunView, name: str, step: int
) -> Int[Tensor, " b"]:
    """Return a share of n that is right in the mean, rounded at random."""
    u = uniforms(run.seeds, name, step, (1,), dtype=torch.float64).squeeze(-1)
    return torch.floor(share * n.double() + u).long()


def _fast_only(X: Float[Tensor, "b k d"], is_asked: Bool[Tensor, "b k"]) -> Proposal:
    mask = torch.stack([is_asked, torch.zeros_like(is_asked)], dim=-1)
    return Proposal(X=X, evaluation_mask=mask)


register("tc-ehvi", TCEHVI)
