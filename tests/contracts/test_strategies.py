"""What every strategy must do. A strategy that is not in this suite fails the last test."""

import copy
import random
from dataclasses import FrozenInstanceError, replace
from pickle import dumps, loads
from typing import Any

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import Optimizer, problems, strategies
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies.base import budget
from tests.strategies.runs import Toy, steps_of

NAMES = [
    "random", "nt-saea", "ns-saea", "tc-saea", "tc-saea-p", "tc-saea-released",
    "waiting", "fast-first", "brood-interleaving", "speculative-interleaving",
    "k-rvea", "hk-rvea", "t-saea", "tr-saea", "undelayed", "tc-ehvi",
]  # fmt: skip
SIMPLE = ("random", "waiting", "fast-first", "brood-interleaving", "speculative-interleaving")
"""Strategies without surrogates."""
FAST_AHEAD = ("fast-first", "brood-interleaving", "speculative-interleaving")
"""Strategies that choose points for the slow objective among those with a fast value."""
SPENDS_ALL = (
    "nt-saea", "ns-saea", "tc-saea", "tc-saea-p", "t-saea", "tr-saea", "hk-rvea", "undelayed",
    "fast-first",
)  # fmt: skip
"""Strategies that leave no fast evaluation unused."""
N_SLOW, N_INIT = 17, 8


SHORTER: dict[str, dict[str, Any]] = {
    "undelayed": {"search": RVEAConfig(n_generations=5)},
    "tc-ehvi": {
        "search": RVEAConfig(n_generations=5),
        "n_ref_vectors": 30,
        "kernels": ("joint", "additive"),
    },
}
"""Settings of the slowest strategies; what they do by default has tests of its own."""


@pytest.fixture(params=NAMES)
def strategy(request):
    return strategies.get(request.param, **SHORTER.get(request.param, {}))


@pytest.mark.parametrize("tau", [1, 2, 2.5, 5, 10])
@pytest.mark.parametrize("n_slow", [8, 17])
def test_budgets_are_exact(strategy, tau, n_slow):
    problem = Toy(tau=tau)
    result = run_batch(problem, strategy, [0, 1], n_slow=n_slow, n_init=N_INIT)
    n_fast, n_all_slow = result.used.T
    max_fast, max_slow = budget(strategy, problem, n_slow)
    assert max_fast == int(tau * n_slow)
    assert n_all_slow.tolist() == [max_slow, max_slow]
    assert (n_fast <= max_fast).all()
    assert (n_fast >= max_slow).all()  # each slow value has its fast one
    assert len(result.points(0)) == max_slow
    if strategy.name in SPENDS_ALL:
        assert (n_fast == max_fast).all()


def test_slow_and_fast_calls_keep_their_ratio_at_all_times(strategy):
    problem = Toy(tau=5)
    for run, proposal, _ in steps_of(problem, strategy, [3], n_slow=N_SLOW, n_init=N_INIT):
        used = run.used + proposal.n_asked
        assert (used <= run.total).all()
        if strategy.name != "fast-first":
            assert (used[:, 0] <= 5 * used[:, 1]).all()


@pytest.mark.parametrize("d", [2, 30])
def test_proposals_are_new_and_inside_the_box(strategy, d):
    problem = Toy(d=d)
    seen = torch.zeros(0, d, dtype=torch.float64)
    for _, proposal, _ in steps_of(problem, strategy, [0], n_slow=14, n_init=N_INIT):
        X = proposal.X[0][proposal.evaluation_mask[0].any(dim=-1)]
        assert ((X >= 0) & (X <= 1)).all()
        both = proposal.X[0][proposal.evaluation_mask[0].all(dim=-1)]
        near = (both.unsqueeze(1) - seen).abs().amax(dim=-1) < 1e-12
        assert not near.any()
        seen = torch.cat([seen, X])
    assert len(seen.unique(dim=0)) >= 14


def test_same_seed_same_run_bit_for_bit(strategy):
    problem = Toy(d=3)
    first, second = (
        run_batch(problem, strategy, [7], n_slow=N_SLOW, n_init=N_INIT) for _ in range(2)
    )
    assert torch.equal(first.archive.X, second.archive.X)
    other = run_batch(problem, strategy, [8], n_slow=N_SLOW, n_init=N_INIT)
    assert not torch.equal(first.archive.X, other.archive.X)


def test_first_period_of_a_batch_is_that_of_each_run_alone(strategy, device):
    # Not the paraboloids: their likelihood rises until rounding decides where a fit ends.
    problem = problems.get("dtlz2")
    # A design, four generations of the single-objective search if there are any, a period.
    # TC-EHVI's fourth step is the first with models; later ones magnify the last digits.
    n_steps = {"k-rvea": 2, "undelayed": 2, "tc-ehvi": 4}.get(strategy.name, 6)
    n_runs = 4 if strategy.name == "tc-ehvi" else 8
    if strategy.name == "tc-ehvi":
        strategy = strategies.get("tc-ehvi")
    options = {"n_slow": 40, "n_init": 20, "n_steps": n_steps, "device": str(device)}
    together = run_batch(problem, strategy, range(n_runs), **options)
    for seed in range(n_runs):
        alone = run_batch(problem, strategy, [seed], **options)
        n = alone.archive.X.shape[1]
        difference = alone.archive.X[0] - together.archive.X[seed, :n]
        assert difference.abs().max() < 1e-8
        assert torch.equal(alone.used[0], together.used[seed])


def test_state_is_flat_and_survives_a_copy(strategy):
    """A resumed run, from copied state, goes on bit for bit."""
    problem = Toy(d=3)
    run = initial_view(problem, [5], n_slow=N_SLOW, n_init=N_INIT, strategy=strategy)
    state = strategy.init(run)
    while True:
        for value in state.values():
            assert isinstance(value, torch.Tensor | int | float | str)
        copied = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
        proposal, after = strategy.propose(state, run)
        again, after_again = strategy.propose(copied, run)
        assert torch.equal(proposal.X, again.X)
        for name in ("evaluation_mask", "archive_mask"):
            first, second = getattr(proposal, name), getattr(again, name)
            assert second is None if first is None else torch.equal(first, second)
        assert after.keys() == after_again.keys()
        for key, value in after.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, after_again[key])
            else:
                assert value == after_again[key]
        # The state that went in was not changed.
        assert all(
            torch.equal(state[k], v) if isinstance(v, torch.Tensor) else state[k] == v
            for k, v in copied.items()
        )
        if proposal.is_empty:
            break
        state, run = after, tell_all(problem, run, proposal)


def test_integers_and_fixed_dimensions(strategy):
    problem = Toy(bounds=[[0, -3, 5.0], [1, 4, 5.0]], integers=(1,))
    result = run_batch(problem, strategy, [0], n_slow=N_SLOW, n_init=N_INIT)
    X = problem.from_unit(result.archive.X[0][result.archive.complete[0]])
    assert torch.equal(X[:, 1], X[:, 1].round())
    assert (X[:, 2] == 5.0).all()
    assert len(X.unique(dim=0)) == len(X)


def test_failed_values_are_neither_learnt_nor_proposed_again(strategy):
    """A third of the slow values fail; the run goes on with finite, new points."""
    problem = Toy(d=2)
    run = initial_view(problem, [0], n_slow=20, n_init=9, strategy=strategy)
    state = strategy.init(run)
    failed = torch.zeros(1, 0, 2, dtype=torch.bool)
    while True:
        proposal, state = strategy.propose(state, run)
        if proposal.is_empty:
            break
        assert proposal.X.isfinite().all()
        asked = asked_by(proposal, run)
        assert not (asked[:, : len(run.archive)] & failed).any()
        run = tell_all(problem, run, proposal)
        lost = asked & (torch.arange(asked.shape[1]) % 3 == 0)[None, :, None]
        lost[..., 0] = False
        failed = pad_rows(failed, asked.shape[1]) | lost
        seen = run.archive.observed & ~failed
        archive = replace(run.archive, observed=seen, Y=torch.where(seen, run.archive.Y, 0.0))
        run = replace(run, archive=archive, failed=failed, pending=torch.zeros_like(failed))
    assert failed.any()
    X = run.archive.X[0][(run.archive.observed | failed)[0, :, 1]]
    assert len(X) == budget(strategy, problem, 20)[1]
    assert len(X.unique(dim=0)) == len(X)


def pad_rows(mask, n):
    """Return a mask `b x n x 2` with False in the rows that it lacks."""
    return torch.nn.functional.pad(mask, (0, 0, 0, n - mask.shape[1]))


def asked_by(proposal, run):
    """Return the values that are asked for, of the archive's rows and of new ones."""
    old = proposal.archive_mask
    if old is None:
        old = torch.zeros_like(run.archive.observed)
    return torch.cat([old, proposal.evaluation_mask], dim=1)


def test_float32(strategy):
    result = run_batch(Toy(d=3), strategy, [0], n_slow=N_SLOW, n_init=N_INIT, dtype=torch.float32)
    assert result.archive.X.dtype == torch.float32
    assert result.used[0, 1] == budget(strategy, Toy(d=3), N_SLOW)[1]


@pytest.fixture(params=NAMES)
def quick(request):
    """A strategy whose search is short, for tests of the protocol."""
    if request.param in SIMPLE:
        return strategies.get(request.param)
    search = RVEAConfig(n_generations=2)
    if request.param == "tc-ehvi":
        return strategies.get("tc-ehvi", search=search, n_ref_vectors=12, kernels=("additive",))
    fit = FitConfig(
        input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=4)
    )
    return strategies.get(request.param, search=search, n_ref_vectors=12, kriging=fit)


def test_a_configuration_is_frozen_named_and_can_be_copied():
    for name in NAMES:
        strategy: Any = strategies.get(name)
        assert strategy.name == name
        assert isinstance(strategies.get(name), strategies.Strategy)
        with pytest.raises(FrozenInstanceError):
            strategy.name = "other"
        for other in (strategies.get(name), copy.deepcopy(strategy), loads(dumps(strategy))):
            assert other == strategy


def tensors_of(value):
    """Return all tensors of a view, by name, the archive's too."""
    found = {k: v for k, v in vars(value).items() if isinstance(v, torch.Tensor)}
    return found | {f"archive.{k}": v for k, v in vars(value.archive).items()}


def test_what_it_is_shown_is_not_changed(quick):
    for run, _, _ in steps_of(Toy(d=3), quick, [0, 1], n_slow=14, n_init=N_INIT):
        shown = {k: v.clone() for k, v in tensors_of(run).items()}
        state = quick.init(run)
        quick.propose(state, run)
        after = tensors_of(run)
        assert all(torch.equal(after[k], v) for k, v in shown.items())


def test_asked_before_values_came_it_names_them_or_needs_none(quick):
    """After each step all its values are outstanding: nothing is proposed that needs them."""
    problem = Toy(tau=5)
    for run, proposal, after in steps_of(problem, quick, [0], n_slow=14, n_init=N_INIT):
        told, new = tell_all(problem, run, proposal), asked_by(proposal, run)
        archive = replace(
            told.archive,
            observed=told.archive.observed & ~new,
            Y=torch.where(new, 0.0, told.archive.Y),
        )
        waiting = replace(told, archive=archive, pending=new)
        early, _ = quick.propose(after, waiting)
        if early.waits_for is None:  # no need of values, or nothing left to do
            assert quick.name == "random" or early.is_empty
            continue
        assert early.is_empty
        assert early.waits_for.any()
        assert not (early.waits_for & ~new).any()


@pytest.mark.parametrize(("d", "tau"), [(1, 2.5), (2, 1), (30, 2.5)])
def test_runs_through_the_optimizer_with_failures(quick, d, tau):
    """Every fourth value fails: budgets are exact, points new, inside and known by both ids."""
    problem = Toy(d=d, tau=tau)
    optimizer = Optimizer(problem, n_slow=13, n_init=6, strategy=quick, seed=-3)
    while evaluations := optimizer.ask():
        for e in evaluations:
            assert ((e.x >= 0) & (e.x <= 1)).all()
            if e.id % 4 == 3:
                optimizer.fail(e.id, "diverged")
            else:
                f = problem.function_of(e.objective)
                optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))
    assert optimizer.is_done
    n_fast, n_slow = optimizer.n_used
    max_fast, max_slow = optimizer.n_total
    # Where fast values fail, there may be too few to choose from.
    assert n_slow == max_slow or (quick.name in FAST_AHEAD and n_slow >= 9)
    assert n_slow <= n_fast <= max_fast
    X = optimizer.result().all_X
    assert len(X.unique(dim=0)) == len(X)


def key_of(evaluation):
    """Return what tells evaluations apart, and the point, bit for bit."""
    return evaluation.id, evaluation.point_id, str(evaluation.objective), evaluation.x.tobytes()


@pytest.mark.parametrize("tau", [1, 2.5])
def test_asked_one_by_one_it_has_the_same_evaluations(quick, tau):
    """Each step is asked for in some random order of the objectives, then told as a whole."""
    problem, rng, found = Toy(tau=tau), random.Random(quick.name), []
    runs = [Optimizer(problem, n_slow=13, n_init=6, strategy=quick, seed=3) for _ in "ab"]
    for optimizer, is_one_by_one in zip(runs, (False, True), strict=True):
        found.append([])
        while (action := optimizer.next_action()).kind == "ask":
            if not is_one_by_one:
                step = optimizer.ask()
                assert len(step) == action.n_fast + action.n_slow
            else:
                wanted = ["n_fast"] * action.n_fast + ["n_slow"] * action.n_slow
                rng.shuffle(wanted)
                step = [optimizer.ask(**{name: 1})[0] for name in wanted]
                assert [f"n_{e.objective}" for e in step] == wanted
            ids = {e.id for e in step}
            assert ids == {e.id for e in optimizer.pending}
            if quick.name != "random":  # which needs no values
                assert optimizer.ask(n_fast=2, n_slow=1) == []
                assert optimizer.waits_for
                assert set(optimizer.waits_for) <= ids
                assert optimizer.next_action().kind == "wait"
            for e in sorted(step, key=lambda e: e.id):
                f = problem.function_of(e.objective)
                optimizer.tell(e.id, f(torch.from_numpy(e.x).unsqueeze(0)))
            found[-1] += step
        assert optimizer.is_done
    plain, one_by_one = (sorted(map(key_of, steps)) for steps in found)
    assert plain == one_by_one
    first, second = (run.result().all_Y.nan_to_num(nan=-1.0) for run in runs)
    assert torch.equal(first, second)


@pytest.mark.parametrize(("n_slow", "n_init"), [(1, 1), (2, 1), (2, 2), (4, 3)])
def test_the_smallest_budgets(quick, n_slow, n_init):
    problem = Toy(tau=5)
    result = run_batch(problem, quick, [0], n_slow=n_slow, n_init=n_init)
    max_fast, max_slow = budget(quick, problem, n_slow)
    assert result.used[0, 1] == max_slow
    assert max_slow <= result.used[0, 0] <= max_fast
    assert result.archive.X.isfinite().all()


def test_every_registered_strategy_is_in_this_suite():
    assert sorted(NAMES) == list(strategies.names())
