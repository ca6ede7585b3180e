"""Evolutionary schemes for delayed objectives [Allmendinger2015], with RVEA as the MOEA.

- Waiting: every point gets both objectives before selection; fast calls are left unused.
- Fast-first: a genetic algorithm on the fast objective alone, then the slow objective of
  its best points.
- Brood interleaving: broods of tau N offspring get the fast objective, N of each brood
  the slow one.
- Speculative interleaving: the same, but a genetic algorithm on the fast objective makes
  the offspring.

None of them uses surrogates. They begin with a population of their own size, whatever
`n_init` is; attached points with both values are members of it.

[Allmendinger2015] R. Allmendinger, J. Handl, J. Knowles. Multiobjective optimization:
when objectives exhibit non-uniform latencies. European Journal of Operational Research
243(2), 2015. Only its abstract and the description in [Wang2022] were at hand; what these
leave open is a field of the configuration.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch

from tcsaea_torch.evolution.reference_vectors import adapt, simplex_lattice, span
from tcsaea_torch.evolution.selection import apd_select
from tcsaea_torch.evolution.variation import Variation
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import start
from tcsaea_torch.strategies.base import (
    FAST,
    SLOW,
    Proposal,
    RunView,
    State,
    register,
    tensor_in,
)
from tcsaea_torch.types import Bool, Float, Int, Tensor
from tcsaea_torch.validation import (
    check_choice,
    check_instance,
    check_int,
    check_real,
    check_text,
    keep_checked,
)


@dataclass(frozen=True, kw_only=True)
class LatencyScheme:
    """Configuration of what the schemes have in common.

    Raises:
        InvalidInputError: If a field is out of range.
    """

    n_population: int = 20
    """N: offspring of a generation, and reference vectors."""
    n_initial: int | None = None
    """Points of the first population; None: N."""
    variation: Variation = field(default_factory=Variation)
    """Crossover and mutation."""
    name: str
    """Name of this configuration."""

    def __post_init__(self) -> None:
        keep_checked(self, check_int, "n_population", minimum=2)
        if self.n_initial is not None:
            keep_checked(self, check_int, "n_initial", minimum=2)
        check_instance("variation", self.variation, Variation)
        check_text("name", self.name)


@dataclass(frozen=True, kw_only=True)
class Waiting(LatencyScheme):
    """Configuration of Waiting: ordinary RVEA."""

    alpha: float = 2.0
    """Exponent of RVEA's penalty (t / t_max)^alpha."""
    adaptation_frequency: float = 0.1
    """Reference vectors adapt every ceil(frequency * t_max) generations."""
    name: str = "waiting"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        keep_checked(self, check_real, "alpha", minimum=0.0)
        limits = {"minimum": 0.0, "maximum": 1.0, "exclusive": True}
        keep_checked(self, check_real, "adaptation_frequency", **limits)

    def init(self, run: RunView) -> State:
        """Return the state before the first population."""
        return {
            **start.start_state(run),
            "step": 0,
            "rows": torch.zeros(run.b, 0, dtype=torch.int64, device=run.device),
            "vectors": self._lattice(run).expand(run.b, -1, -1),
            "first_new": 0,
            "n_first": 0,
        }

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the first population, or a step of a generation."""
        if bool(run.pending.any()):
            return Proposal.nothing(run, run.pending), state
        if state["stage"] == "design":
            return self._begin(state, run)
        if not bool((run.left[:, SLOW] > 0).any()):
            return Proposal.nothing(run), state
        return self._generation(state, run)

    def _begin(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Sample the first population; attached points are members of it."""
        n = self.n_population if self.n_initial is None else self.n_initial
        n_attached = int(run.archive.complete.sum(dim=1).amin())
        proposal, state = start.sample_design(state, run, max(0, n - n_attached))
        state = {**state, "stage": "breed", "n_first": int(run.used[0, SLOW]) + proposal.X.shape[1]}
        return self.propose(state, run) if proposal.is_empty else (proposal, state)

    def _generation(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Select parents among all with both values, and breed as many offspring."""
        state = self._select(state, run)
        n_new = run.left.amin(dim=-1).clamp_max(self.n_population)
        X, is_new = self._breed(state, run, int(n_new.amax()))
        is_new = is_new & _first(n_new, X)
        return Proposal(X=X, evaluation_mask=is_new.unsqueeze(-1).repeat(1, 1, 2)), state

    def _breed(self, state: State, run: RunView, n: int) -> tuple[Tensor, Tensor]:
        """Breed n offspring of parents that are drawn without regard to their quality."""
        rows, generation = tensor_in(state, "rows"), int(state["step"])
        return start.breed_new(rows, n, run, "brood", generation, self.variation)

    def _select(self, state: State, run: RunView) -> State:
        """Select by RVEA among the population and the new points with both values.

        Slots without a winner repeat others, so that there are N parents.
        """
        step, device = int(state["step"]), run.device
        new = torch.arange(int(state["first_new"]), len(run.archive), device=device)
        rows = torch.cat([tensor_in(state, "rows"), new.expand(run.b, -1)], dim=1)
        F, alive = take_rows(run.archive.Y, rows), run.archive.complete.gather(1, rows)
        vectors = tensor_in(state, "vectors")
        winner, occupied = apd_select(F, alive, vectors, self._progress(state, run) ** self.alpha)
        if step > 0 and step % self._adaptation_interval(state, run) == 0:
            vectors = adapt(self._lattice(run), span(take_rows(F, winner), occupied))
        return {
            **state,
            "step": step + 1,
            "rows": _repeated(rows.gather(1, winner), occupied),
            "vectors": vectors,
            "first_new": len(run.archive),
        }

    def _progress(self, state: State, run: RunView) -> Float[Tensor, " b"]:
        """Return t / t_max, in slow evaluations since the first population."""
        n_first = int(state["n_first"])
        done = (run.used[:, SLOW] - n_first).clamp_min(0).to(run.dtype)
        return done / (run.total[:, SLOW] - n_first).clamp_min(1)

    def _adaptation_interval(self, state: State, run: RunView) -> int:
        n_left = int(run.total[:, SLOW].amax()) - int(state["n_first"])
        t_max = math.ceil(n_left / self.n_population)
        return max(1, math.ceil(self.adaptation_frequency * t_max))

    def _lattice(self, run: RunView) -> Float[Tensor, "r 2"]:
        return simplex_lattice(self.n_population, dtype=run.dtype, device=run.device)


@dataclass(frozen=True, kw_only=True)
class BroodInterleaving(Waiting):
    """Configuration of Brood interleaving: diversity by large broods."""

    choice: Literal["tournament", "best", "random"] = "tournament"
    """Who of a brood gets the slow objective: the winners of tournaments on the fast one,
    the best on it, or anyone."""
    name: str = "brood-interleaving"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("choice", self.choice, ("tournament", "best", "random"))

    def _generation(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Breed a brood for the fast objective; then choose N of it for the slow one.

        The slow evaluations of a generation pay for the fast ones of the next brood.
        """
        if state["stage"] == "breed":
            state = {**self._select(state, run), "stage": "choose"}
            credit = _fast_credit(run, self.n_population)
            X, is_new = self._breed(state, run, int(credit.amax()))
            mask = torch.zeros(*X.shape[:2], 2, dtype=torch.bool, device=run.device)
            mask[..., FAST] = is_new & _first(credit, X)
            return Proposal(X=X, evaluation_mask=mask), state
        chosen = _ask_slow(self._key(state, run), self.n_population, run)
        state = {**state, "stage": "breed"}
        return self._generation(state, run) if chosen.is_empty else (chosen, state)

    def _key(self, state: State, run: RunView) -> Float[Tensor, "b n"]:
        """Return numbers that order rows by preference, this brood before earlier ones."""
        n, step = len(run.archive), int(state["step"])
        in_brood = torch.arange(n, device=run.device) >= int(state["first_new"])
        y = run.archive.Y[..., FAST].masked_fill(~(_is_fast_only(run) & in_brood), torch.inf)
        u = uniforms(run.seeds, "choice", step, (n,), dtype=run.dtype)
        if self.choice == "best":
            key = y
        else:
            key = u if self.choice == "random" else tournament_key(y, u)
        key = key.argsort(dim=1).argsort(dim=1).to(y) + n * ~in_brood
        return key.masked_fill(~_is_fast_only(run), torch.inf)


@dataclass(frozen=True, kw_only=True)
class SpeculativeInterleaving(Waiting):
    """Configuration of Speculative interleaving: progress on the fast objective."""

    name: str = "speculative-interleaving"
    """Name of this configuration."""

    def _generation(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Run a genetic algorithm on the fast objective; its last N points get the slow one.

        The slow evaluations of a generation pay for the fast ones of the next.
        """
        is_start = state["stage"] == "breed"
        if is_start:
            credit = _fast_credit(run, self.n_population)
            state = self._select(state, run)
            state = {
                **state,
                "stage": "soea",
                "fast_target": run.used[:, FAST] + credit,
                "n_design": self.n_population,
                **start.soea_state(tensor_in(state, "rows")),
            }
        target = tensor_in(state, "fast_target")
        proposal, state = start.soea_generation(state, run, target, self.variation, maximise=False)
        if not proposal.is_empty:
            return proposal, state
        # The last population first, then the best of all other points with a fast value.
        y = run.archive.Y[..., FAST]
        last = start.survivors(state, run, maximise=False)
        is_last = torch.zeros_like(y, dtype=torch.bool).scatter(1, last, True)
        lowest = y.amin(dim=1, keepdim=True)
        key = torch.where(is_last, y, y - lowest + y.amax(dim=1, keepdim=True) + 1.0)
        key = key.masked_fill(~_is_fast_only(run), torch.inf)
        chosen, state = _ask_slow(key, self.n_population, run), {**state, "stage": "breed"}
        # Where all values failed, the next generation; where no point is left, nothing.
        return self._generation(state, run) if chosen.is_empty and not is_start else (chosen, state)


@dataclass(frozen=True, kw_only=True)
class FastFirst(LatencyScheme):
    """Configuration of Fast-first: the fast objective first, alone."""

    n_population: int = 100
    """N: points of the first population and offspring of a generation."""
    n_chosen: int | None = None
    """Points that get the slow objective, the best on the fast one; None: as many as the
    budget has. N is what a strict clock leaves time for."""
    name: str = "fast-first"
    """Name of this configuration."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_chosen is not None:
            keep_checked(self, check_int, "n_chosen", minimum=1)

    def init(self, run: RunView) -> State:
        """Return the state before the first population."""
        return start.start_state(run)

    def propose(self, state: State, run: RunView) -> tuple[Proposal, State]:
        """Return the next step: the first population, a generation, or the slow part."""
        if state["stage"] == "design":
            n = self.n_population if self.n_initial is None else self.n_initial
            proposal, state = start.sample_design(state, run, n, fast_only=True)
            if not proposal.is_empty:
                return proposal, state
        if state["stage"] == "soea":
            target = run.total[:, FAST]
            proposal, state = start.soea_generation(
                state, run, target, self.variation, maximise=False
            )
            if not proposal.is_empty or proposal.waits_for is not None:
                return proposal, state
            key = run.archive.Y[..., FAST].masked_fill(~_is_fast_only(run), torch.inf)
            n = int(run.left[:, SLOW].amax()) if self.n_chosen is None else self.n_chosen
            return _ask_slow(key, n, run), {**state, "stage": "done"}
        return Proposal.nothing(run, run.pending if bool(run.pending.any()) else None), state


for _scheme in (Waiting, FastFirst, BroodInterleaving, SpeculativeInterleaving):
    register(_scheme.name, _scheme)


# ------------------------------------------------------------------------ parts


def tournament_key(y: Float[Tensor, "b n"], u: Float[Tensor, "b n"]) -> Float[Tensor, "b n"]:
    """Order points by binary tournaments without replacement.

    Pairs are drawn at random; their winners come first, in the order in which the pairs
    were drawn, and the losers after them.

    Args:
        y: Values to minimise; inf for points that take no part.
        u: Uniform numbers that draw the pairs.

    Returns:
        A number for each point; the smallest is the first winner.
    """
    n = y.shape[1]
    order = u.masked_fill(y.isinf(), torch.inf).argsort(dim=1)  # those that take no part: last
    place = order.argsort(dim=1)
    partner = order.gather(1, (place ^ 1).clamp_max(n - 1))
    rival = y.gather(1, partner)
    is_first = (place & 1) == 0
    wins = (y < rival) | ((y == rival) & is_first)  # an odd one meets itself, or one without value
    return torch.where(wins, place, place + n).to(y)


def _fast_credit(run: RunView, n: int) -> Int[Tensor, " b"]:
    """Return fast calls that slow ones have paid for; at least one for each of n points."""
    paid = torch.floor(run.tau * run.used[:, SLOW].double() + 1e-9).long() - run.used[:, FAST]
    n_slow = run.left[:, SLOW].clamp_max(n)
    credit = torch.minimum(torch.maximum(paid, n_slow), run.left[:, FAST])
    return torch.where(n_slow > 0, credit, 0)


def _is_fast_only(run: RunView) -> Bool[Tensor, "b n"]:
    """Return which rows have a fast value and were never asked for the slow one."""
    touched = run.archive.observed | run.pending | run.failed
    return run.archive.observed[..., FAST] & ~touched[..., SLOW]


def _ask_slow(key: Float[Tensor, "b n"], n: int, run: RunView) -> Proposal:
    """Ask for the slow values of the n rows with the smallest keys, as far as calls are left."""
    place = key.argsort(dim=1).argsort(dim=1)
    n_slow = run.left[:, SLOW:].clamp_max(n)
    mask = torch.zeros_like(run.archive.observed)
    mask[..., SLOW] = (place < n_slow) & key.isfinite()
    return Proposal.of_rows(mask, run)


def _first(n: Int[Tensor, " b"], X: Tensor) -> Bool[Tensor, "b q"]:
    """Return which of the points are among the first n of their run."""
    return torch.arange(X.shape[1], device=X.device) < n.unsqueeze(-1)


def _repeated(rows: Int[Tensor, "b r"], alive: Bool[Tensor, "b r"]) -> Int[Tensor, "b r"]:
    """Fill the slots of the dead with the living, over and over."""
    order = (~alive).to(torch.int8).argsort(dim=1, stable=True)
    n_alive = alive.sum(dim=1, keepdim=True)
    n_alive = torch.where(n_alive > 0, n_alive, rows.shape[1])  # nobody lives: all as they are
    index = torch.arange(rows.shape[1], device=rows.device) % n_alive
    return rows.gather(1, order.gather(1, index))
