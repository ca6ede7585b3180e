"""How most strategies start: a Latin hypercube with both objectives, then an SOEA.

While the slow values of the initial design are on their way, a single-objective
evolutionary algorithm (SOEA) goes on with the fast objective (Algorithm 1, line 1). Its
population are rows of the archive, so its state is a few indices. Periods follow.
"""

from collections.abc import Callable

import torch

from tcsaea_torch.evolution.ga import tournament_survivors
from tcsaea_torch.evolution.variation import Draws, Variation, vary
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import FAST, SLOW, Proposal, RunView, State, tensor_in
from tcsaea_torch.types import Bool, Float, Int, Tensor


def start_state(run: RunView) -> State:
    """Return the entries of the state that the start needs."""
    nobody = torch.zeros(run.b, 0, dtype=torch.int64, device=run.device)
    return {"stage": "design", "n_design": 0, "generation": 0, **soea_state(nobody)}


def soea_state(population: Int[Tensor, "b n"]) -> State:
    """Return the entries of the state with which an SOEA begins from rows of the archive."""
    return {"population": population, "n_offspring": 0, "first_offspring": 0}


def sample_design(
    state: State, run: RunView, n: int | None = None, *, fast_only: bool = False
) -> tuple[Proposal, State]:
    """Sample the initial population X by LHS; the SOEA is next.

    The proposal is empty if attached points have taken the design's place.

    Args:
        state: The strategy's state.
        run: The runs.
        n: Number of points, if the budget lets it; None: what the run's initial design lacks.
        fast_only: Whether they get the fast objective alone, or both.
    """
    affordable = int((run.left[:, FAST] if fast_only else run.left).amin())
    n = min(run.n_init if n is None else n, affordable)
    X, is_new = steps.design(run, n)
    mask = is_new.unsqueeze(-1).repeat(1, 1, 2)
    mask[..., SLOW] &= not fast_only
    rows = len(run.archive) + torch.arange(n, device=run.device).expand(run.b, n)
    state = {**state, "stage": "soea", "n_design": n, **soea_state(rows)}
    return Proposal(X=X, evaluation_mask=mask), state


def design_and_soea(
    state: State,
    run: RunView,
    fast_target: Callable[[int], Int[Tensor, " b"]],
    variation: Variation,
    *,
    maximise: bool = False,
) -> tuple[Proposal | None, State]:
    """Return the next step of the start; None when that is over.

    Args:
        state: The strategy's state.
        run: The runs.
        fast_target: Returns, for the size of the design, the fast evaluations after which
            each run's start is over.
        variation: Crossover and mutation of the SOEA.
        maximise: Whether the SOEA keeps the larger fast value of each pair.
    """
    if state["stage"] == "design":
        proposal, state = sample_design(state, run)
        if state["n_design"]:
            return proposal, state
    if state["stage"] == "soea":
        target = fast_target(int(state["n_design"]))
        proposal, state = soea_generation(state, run, target, variation, maximise=maximise)
        if not proposal.is_empty or proposal.waits_for is not None:
            return proposal, state
        state = {**state, "stage": "periods"}
    return None, state


def next_period(
    period: Callable[[State, RunView, Int[Tensor, " b"]], tuple[Proposal, State]],
    n_new: int,
    state: State,
    run: RunView,
) -> tuple[Proposal, State]:
    """Return what a period proposes, when all values have come and while budget is left.

    Args:
        period: `period(state, run, n)` proposes n points with both objectives in each run.
        n_new: How many, at most.
        state: The strategy's state; its "period" counts.
        run: The runs.
    """
    if bool(run.pending.any()):
        return Proposal.nothing(run, run.pending), state
    n = run.left.amin(dim=-1).clamp_max(n_new)
    if not bool((n > 0).any()):
        return Proposal.nothing(run), state
    return period({**state, "period": int(state["period"]) + 1}, run, n)


def soea_generation(
    state: State,
    run: RunView,
    fast_target: Int[Tensor, " b"],
    variation: Variation,
    *,
    maximise: bool,
) -> tuple[Proposal, State]:
    """Run one generation of an SOEA on f_f while the slow values are on their way.

    Args:
        state: The strategy's state.
        run: The runs.
        fast_target: Fast evaluations after which each run's start is over.
        variation: Crossover and mutation.
        maximise: Keep the larger fast value of each pair.

    Returns:
        A proposal: offspring for the fast objective; or none, with the values that are
        waited for; or none at all, when the budget or a finite space is used up.
    """
    if bool(run.pending[..., FAST].any()):
        waits_for = run.pending.clone()
        waits_for[..., SLOW] = False
        return Proposal.nothing(run, waits_for), state
    credit = fast_target - run.used[:, FAST]
    n_offspring = max(0, min(int(credit.amax()), int(state["n_design"])))
    if n_offspring == 0:
        return Proposal.nothing(run), state
    population = survivors(state, run, maximise=maximise)
    X, is_new = breed_new(population, n_offspring, run, "soea", int(state["generation"]), variation)
    affordable = torch.arange(n_offspring, device=run.device) < credit.unsqueeze(-1)
    mask = torch.zeros(run.b, n_offspring, 2, dtype=torch.bool, device=run.device)
    mask[..., FAST] = is_new & affordable
    state = {
        **state,
        "generation": int(state["generation"]) + 1,
        "first_offspring": len(run.archive),
        "n_offspring": n_offspring,
        "population": population,
    }
    return Proposal(X=X, evaluation_mask=mask), state


def survivors(state: State, run: RunView, *, maximise: bool) -> Int[Tensor, "b n"]:
    """Return the design, or the winners of tournaments among parents and offspring.

    Individuals are rows of the archive; those without a fast value lose.
    """
    population, n = tensor_in(state, "population"), int(state["n_offspring"])
    if n == 0:
        return population
    first = int(state["first_offspring"])
    offspring = torch.arange(first, first + n, device=run.device).expand(run.b, n)
    rows = torch.cat([population, offspring], dim=1)
    y = run.archive.Y[..., FAST].gather(1, rows)
    observed = run.archive.observed[..., FAST].gather(1, rows)
    cost = torch.where(observed, -y if maximise else y, torch.inf)
    generation = int(state["generation"])
    u = uniforms(run.seeds, "soea/tournament", generation, rows.shape[1:], dtype=run.dtype)
    return rows.gather(1, tournament_survivors(cost, u))


def breed_new(
    population: Int[Tensor, "b n"],
    n_offspring: int,
    run: RunView,
    name: str,
    generation: int,
    variation: Variation,
) -> tuple[Float[Tensor, "b k d"], Bool[Tensor, "b k"]]:
    """Return offspring, and which of them are new; only a finite space makes some known.

    As many offspring as parents come from each parent mating once; other numbers, from
    parents drawn at random. An offspring that is known already is replaced by a random
    point, so that no evaluation is spent twice.

    Args:
        population: Parents, as rows of the archive.
        n_offspring: k.
        run: The runs.
        name: Whose random numbers these are.
        generation: Counter for the random numbers.
        variation: Crossover and mutation.
    """
    n = max(n_offspring, 2)
    alive = run.archive.observed[..., FAST].gather(1, population)
    alive = alive | ~alive.any(dim=1, keepdim=True)  # all failed: breed from all
    draws = Draws.make(run.seeds, name, generation, 1, n, run.d, run.dtype)
    X, _ = vary(
        take_rows(run.archive.X, population),
        alive,
        draws.mating[:, 0],
        draws.crossover[:, 0],
        draws.mutation[:, 0],
        variation,
        each_once=population.shape[1] == n,
    )
    X = snap(X[:, :n_offspring], run.grid)
    shape = (n_offspring, run.d)
    random = uniforms(run.seeds, f"{name}/fallback", generation, shape, dtype=run.dtype)
    is_new = steps.first_of_equals(X, ~steps.is_known(X, run))
    X = torch.where(is_new.unsqueeze(-1), X, snap(random, run.grid))
    return X, steps.first_of_equals(X, ~steps.is_known(X, run))
