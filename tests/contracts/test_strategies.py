"""What every strategy must do. A strategy that is not in this suite fails the last test."""

from dataclasses import replace

import pytest
import torch

from benchmarks.run_batch import initial_view, run_batch, tell_all
from tcsaea_torch import strategies
from tests.strategies.runs import Toy, steps_of

NAMES = ["random", "nt-saea", "ns-saea", "tc-saea", "tc-saea-p", "tc-saea-released"]
N_SLOW, N_INIT = 17, 8


@pytest.fixture(params=NAMES)
def strategy(request):
    return strategies.get(request.param)


@pytest.mark.parametrize("tau", [1, 2, 2.5, 5, 10])
@pytest.mark.parametrize("n_slow", [8, 17])
def test_budgets_are_exact(strategy, tau, n_slow):
    problem = Toy(tau=tau)
    result = run_batch(problem, strategy, [0, 1], n_slow=n_slow, n_init=N_INIT)
    n_fast, n_all_slow = result.used.T
    assert n_all_slow.tolist() == [n_slow, n_slow]
    assert (n_fast <= int(tau * n_slow)).all()
    assert (n_fast >= n_slow).all()  # each slow value has its fast one
    assert len(result.points(0)) == n_slow
    # Algorithm 1 leaves no fast evaluation unused.
    if strategy.name not in ("random", "tc-saea-released"):
        assert (n_fast == int(tau * n_slow)).all()


def test_slow_and_fast_calls_keep_their_ratio_at_all_times(strategy):
    problem = Toy(tau=5)
    for run, proposal, _ in steps_of(problem, strategy, [3], n_slow=N_SLOW, n_init=N_INIT):
        used = run.used + proposal.evaluation_mask.sum(dim=1)
        assert (used[:, 0] <= 5 * used[:, 1]).all()
        assert (used <= run.total).all()


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
    problem = Toy(d=4)
    options = {"n_slow": 40, "n_init": 20, "n_steps": 6, "device": str(device)}
    together = run_batch(problem, strategy, range(8), **options)
    for seed in range(8):
        alone = run_batch(problem, strategy, [seed], **options)
        n = alone.archive.X.shape[1]
        difference = alone.archive.X[0] - together.archive.X[seed, :n]
        assert difference.abs().max() < 1e-8
        assert torch.equal(alone.used[0], together.used[seed])


def test_state_is_flat_and_survives_a_copy(strategy):
    """A resumed run, from copied state, goes on bit for bit."""
    problem = Toy(d=3)
    run = initial_view(problem, [5], n_slow=N_SLOW, n_init=N_INIT)
    state = strategy.init(run)
    while True:
        for value in state.values():
            assert isinstance(value, torch.Tensor | int | float | str)
        copied = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
        proposal, after = strategy.propose(state, run)
        again, after_again = strategy.propose(copied, run)
        assert torch.equal(proposal.X, again.X)
        assert torch.equal(proposal.evaluation_mask, again.evaluation_mask)
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
        if not proposal.evaluation_mask.any():
            break
        state, run = after, tell_all(problem, run, proposal.X, proposal.evaluation_mask)


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
    run = initial_view(problem, [0], n_slow=20, n_init=9)
    state = strategy.init(run)
    failed = torch.zeros(1, 0, 2, dtype=torch.bool)
    proposed = []
    while True:
        proposal, state = strategy.propose(state, run)
        mask = proposal.evaluation_mask
        if not mask.any():
            break
        assert proposal.X.isfinite().all()
        proposed.append(proposal.X[0][mask[0].all(dim=-1)])
        run = tell_all(problem, run, proposal.X, mask)
        lost = mask & (torch.arange(mask.shape[1]) % 3 == 0)[None, :, None]
        lost[..., 0] = False
        failed = torch.cat([failed, lost], dim=1)
        seen = run.archive.observed & ~failed
        archive = replace(run.archive, observed=seen, Y=torch.where(seen, run.archive.Y, 0.0))
        run = replace(run, archive=archive, failed=failed, pending=torch.zeros_like(failed))
    X = torch.cat(proposed)
    assert len(X) == 20
    assert len(X.unique(dim=0)) == 20


def test_float32(strategy):
    result = run_batch(Toy(d=3), strategy, [0], n_slow=N_SLOW, n_init=N_INIT, dtype=torch.float32)
    assert result.archive.X.dtype == torch.float32
    assert result.used[0, 1] == N_SLOW


def test_every_registered_strategy_is_in_this_suite():
    assert sorted(NAMES) == list(strategies.names())
