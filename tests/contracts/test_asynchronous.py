"""What a strategy that proposes at any time must do, whatever is outstanding."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tcsaea_torch import TCEHVI, TCSAEA, Optimizer
from tcsaea_torch.events import Asked
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tests.crashes import decisions, is_same, same_value
from tests.strategies.runs import Toy

SEARCH: dict[str, Any] = {"search": RVEAConfig(n_generations=2), "n_ref_vectors": 12}
FIT = FitConfig(input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=4))
QUICK: dict[type, dict[str, Any]] = {
    TCSAEA: {**SEARCH, "kriging": FIT, "asynchronous": True},
    TCEHVI: {
        **SEARCH,
        "kernels": ("joint", "smooth"),
        "moves_variables": False,
        "climbs": False,
        "asynchronous": True,
    },
}
"""Short searches, for tests of the protocol."""
BUDGET: dict[str, Any] = {"n_slow": 13, "n_init": 6}


class Workers:
    """Some workers for each objective, whose calls end in a random order.

    Args:
        optimizer: The run.
        seed: Decides the order.
        n_fast: Workers for the fast objective.
        n_slow: Workers for the slow one.
        fails: Whether every fourth call fails.
    """

    def __init__(self, optimizer, seed, *, n_fast=3, n_slow=2, fails=False):
        self.optimizer, self.rng, self.fails = optimizer, random.Random(seed), fails
        self.n = {"fast": n_fast, "slow": n_slow}
        self.busy = []

    def n_busy(self, objective):
        return sum(e.objective == objective for e in self.busy)

    def ask(self):
        """Ask for those that are free; return whether anybody is busy then."""
        free = {o: max(0, n - self.n_busy(o)) for o, n in self.n.items()}
        found = self.optimizer.ask(n_fast=free["fast"], n_slow=free["slow"])
        for o, n in free.items():
            assert sum(e.objective == o for e in found) <= n
        self.busy += found
        return bool(self.busy)

    def end(self):
        """Let one call end."""
        e = self.busy.pop(self.rng.randrange(len(self.busy)))
        if self.fails and e.id % 4 == 3:
            self.optimizer.fail(e.id, "diverged")
        else:
            f = self.optimizer.problem.function_of(e.objective)
            self.optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))

    def step(self):
        """Ask, and let one call end; return whether there was one."""
        is_busy = self.ask()
        if is_busy:
            self.end()
        return is_busy

    def to_end(self):
        while self.step():
            pass
        assert self.optimizer.is_done
        return self.optimizer


@pytest.fixture(params=QUICK, ids=lambda kind: kind.__name__)
def quick(request):
    """Makes a strategy whose search is short."""
    return lambda **options: request.param(**QUICK[request.param], **options)


FEW = "ignore:there (is|are) only:UserWarning"  # while those of the design are outstanding


@pytest.mark.filterwarnings(FEW)
@pytest.mark.parametrize(
    ("tau", "n_fast", "n_slow"),
    [(2, 1, 1), (2, 1, 8), (2.5, 4, 3), (2.5, 30, 1), (5, 4, 2), (5, 1, 8)],
)
def test_budgets_are_exact_and_no_fast_call_comes_before_it_is_released(tau, n_fast, n_slow, quick):
    optimizer = Optimizer(Toy(tau=tau), **BUDGET, strategy=quick())
    workers = Workers(optimizer, 0, n_fast=n_fast, n_slow=n_slow)
    while workers.step():
        used_fast, used_slow = optimizer.n_used
        assert used_fast <= int(tau * used_slow)
        assert used_slow <= used_fast  # each slow value has its fast one
    assert optimizer.n_used == optimizer.n_total == (int(13 * tau), 13)
    result = optimizer.result()
    assert result.status == "finished"
    assert len(result.Y) == 13
    assert len(result.all_X.unique(dim=0)) == len(result.all_X) == int(13 * tau)


def test_no_worker_waits_while_the_budget_lasts(quick):
    optimizer = Optimizer(Toy(tau=5), **BUDGET, strategy=quick())
    workers = Workers(optimizer, 1, n_fast=3, n_slow=2)
    while workers.ask():
        used_fast, used_slow = optimizer.n_used
        has_queue = bool(optimizer._state.to_hand_out)  # what a period has beyond its workers
        assert workers.n_busy("slow") == 2 or (used_slow == 13 and not has_queue)
        assert workers.n_busy("fast") == 3 or used_fast == min(65, 5 * used_slow)
        workers.end()


@pytest.mark.parametrize("failure_model", [False, True])
def test_same_seed_and_order_same_run_bit_for_bit(failure_model, quick):
    strategy = quick(failure_model=failure_model)

    def run(seed, order):
        optimizer = Optimizer(Toy(d=3, tau=2.5), **BUDGET, strategy=strategy, seed=seed)
        return Workers(optimizer, order, fails=True).to_end().events

    first = run(7, 0)
    assert is_same(first, run(7, 0))
    if not failure_model:
        assert not is_same(first, run(8, 0))
        assert not is_same(first, run(7, 1))


class Twice:
    """Propose from the state and from a copy of it, and compare."""

    def propose(self, state, run):
        assert all(isinstance(v, torch.Tensor | int | float | str) for v in state.values())
        copied = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
        parent: Any = super()
        proposal, after = parent.propose(state, run)
        again, after_again = parent.propose(copied, run)
        assert torch.equal(proposal.X, again.X)
        assert torch.equal(proposal.evaluation_mask, again.evaluation_mask)
        masks = proposal.archive_mask, again.archive_mask
        assert masks == (None, None) or torch.equal(*masks)
        assert same_value(after, after_again)
        assert same_value(state, copied)  # what went in was not changed
        return proposal, after


@dataclass(frozen=True, kw_only=True)
class TCSAEATwice(Twice, TCSAEA):
    pass


@dataclass(frozen=True, kw_only=True)
class TCEHVITwice(Twice, TCEHVI):
    pass


@pytest.mark.parametrize("kind", [TCSAEATwice, TCEHVITwice])
def test_state_is_flat_and_survives_a_copy(kind):
    strategy = kind(**QUICK[kind.__mro__[2]])
    Workers(Optimizer(Toy(d=3), **BUDGET, strategy=strategy), 3).to_end()


def test_a_run_that_is_resumed_goes_on_bit_for_bit(tmp_path, quick):
    """Resumed after every third value."""
    strategy, path = quick(), tmp_path / "a.db"
    expected = Workers(Optimizer(Toy(), **BUDGET, strategy=strategy), 5).to_end()
    workers = Workers(Optimizer(Toy(), **BUDGET, strategy=strategy, journal=path), 5)
    n = 0
    while workers.step():
        n += 1
        if n % 3 == 0:
            workers.optimizer.close()
            workers.optimizer = Optimizer.resume(path, Toy())
            busy = {e.id: e for e in workers.optimizer.pending}
            assert busy.keys() == {e.id for e in workers.busy}
            workers.busy = [busy[e.id] for e in workers.busy]
    assert workers.optimizer.is_done
    assert is_same(workers.optimizer.events, expected.events)
    workers.optimizer.close()


def test_after_a_crash_what_was_under_way_comes_first(tmp_path, quick):
    path = tmp_path / "a.db"
    workers = Workers(Optimizer(Toy(), **BUDGET, strategy=quick(), journal=path), 6)
    for _ in range(20):
        workers.step()
    lost = sorted(e.id for e in workers.busy)
    assert lost
    workers.optimizer.close()
    optimizer = Optimizer.resume(path, Toy(), on_pending="rerun")
    n_asked = len([e for e in decisions(optimizer.events) if isinstance(e, Asked)])
    n_slow = sum(e.objective == "slow" for e in workers.busy)
    again = optimizer.ask(n_fast=len(lost) - n_slow, n_slow=n_slow)
    assert [e.id for e in again] == lost
    assert len([e for e in decisions(optimizer.events) if isinstance(e, Asked)]) == n_asked
    workers = Workers(optimizer, 7)
    workers.busy = again
    assert workers.to_end().n_used == optimizer.n_total
    optimizer.close()


def test_integers_and_fixed_dimensions(quick):
    problem = Toy(bounds=[[0, -3, 5.0], [1, 4, 5.0]], integers=(1,), tau=2.5)
    optimizer = Optimizer(problem, **BUDGET, strategy=quick())
    X = Workers(optimizer, 0).to_end().result().all_X
    assert torch.equal(X[:, 1], X[:, 1].round())
    assert (X[:, 2] == 5.0).all()
    assert len(X.unique(dim=0)) == len(X) == int(13 * 2.5)


@pytest.mark.filterwarnings(FEW)
def test_a_finite_space_is_searched_to_the_last_point(quick):
    problem = Toy(bounds=[[0, 0], [2, 2]], integers=(0, 1), tau=2)
    optimizer = Optimizer(problem, n_slow=20, n_init=4, strategy=quick())
    result = Workers(optimizer, 0, n_fast=1, n_slow=2).to_end().result()
    assert result.status == "exhausted"
    assert result.n_fast == 9
    assert len(result.all_X.unique(dim=0)) == len(result.all_X)


@pytest.mark.parametrize(("d", "dtype"), [(1, torch.float64), (2, torch.float32), (30, None)])
@pytest.mark.parametrize("failure_model", [False, True])
def test_runs_with_failures(d, dtype, failure_model, quick):
    """Every fourth value fails: budgets are exact, points new and inside."""
    optimizer = Optimizer(
        Toy(d=d, tau=2.5), **BUDGET, dtype=dtype or torch.float64, seed=-3,
        strategy=quick(failure_model=failure_model),
    )  # fmt: skip
    Workers(optimizer, 2, fails=True).to_end()
    assert optimizer.n_used == optimizer.n_total
    X = optimizer.archive.X[0]
    assert ((X >= 0) & (X <= 1)).all()
    exists = optimizer._state.exists
    assert len(X[exists].unique(dim=0)) == int(exists.sum())


def test_new_points_keep_away_from_outstanding_ones(quick):
    clearance = 0.02
    strategy = quick(clearance=clearance)
    optimizer = Optimizer(Toy(tau=5), **BUDGET, strategy=strategy)
    workers, n_seen, nearest = Workers(optimizer, 4, n_fast=8, n_slow=3), 0, []
    while True:
        outstanding, n_rows = optimizer._state.pending.any(dim=-1), optimizer._state.n_rows
        if not workers.step():
            break
        new = [event for event in optimizer.events[n_seen:] if isinstance(event, Asked)]
        n_seen = len(optimizer.events)
        if not n_rows or not new:
            continue
        X = optimizer._state.X
        asked = optimizer._state.exists.clone()
        asked[:n_rows] = False
        if not asked.any():  # other values of known points
            continue
        others = torch.cat([X[:n_rows][outstanding], X[asked]])
        distance = torch.cdist(X[asked], others, p=torch.inf)
        distance[distance == 0] = torch.inf  # each from itself
        nearest.append(float(distance.amin()))
    assert len(nearest) > 5
    assert min(nearest) >= clearance * (1 - 1e-9)


def test_what_may_be_asked_for_is_said_before(quick):
    optimizer = Optimizer(Toy(tau=2.5), **BUDGET, strategy=quick())
    workers, kinds = Workers(optimizer, 8), set()
    while True:
        action = optimizer.next_action()
        kinds.add(action.kind)
        n_before = len(optimizer.events)
        # Too few for all that there is, at most times.
        n_fast, n_slow = min(2, action.n_fast), min(1, action.n_slow)
        found = optimizer.ask(n_fast=n_fast, n_slow=n_slow)
        assert sum(e.objective == "fast" for e in found) == n_fast
        assert len(found) == n_fast + n_slow
        assert bool(found) == (action.kind == "ask")
        if not found:
            assert optimizer.ask(n_fast=9, n_slow=9) == []
            assert len(optimizer.events) == n_before
        workers.busy += found
        if action.kind == "stop":
            break
        for _ in range(min(2, len(workers.busy))):
            workers.end()
    assert kinds == {"ask", "wait", "stop"}
    assert not workers.busy
