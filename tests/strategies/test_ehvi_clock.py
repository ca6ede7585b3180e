"""What TC-EHVI may know and ask for at a moment: all values by hand."""

from dataclasses import fields, replace

import pytest
import torch

from benchmarks.run_batch import initial_view
from tcsaea_torch.archive import Archive
from tcsaea_torch.strategies.base import FAST, SLOW
from tcsaea_torch.strategies.ehvi_clock import as_of_then, credit, yet_to_come
from tests.strategies.runs import Toy


def view(used, *, tau=5.0, n_slow=20, n=8):
    """Runs that have asked for so many (fast, slow) values, with n rows of both."""
    used = torch.tensor(used)
    b = len(used)
    run = initial_view(Toy(tau=tau), list(range(b)), n_slow=n_slow, n_init=4)
    X = torch.rand(b, n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    observed = torch.ones(b, n, 2, dtype=torch.bool)
    nothing = torch.zeros_like(observed)
    archive = Archive(X=X, Y=1.0 + X, observed=observed)
    return replace(run, archive=archive, pending=nothing, failed=nothing, used=used)


# ---------------------------------------------------------------- what has not come yet


@pytest.mark.parametrize(
    ("n_fast", "n_known"),
    [(0, 0), (14, 0), (15, 3), (29, 3), (30, 6), (31, 6), (45, 9), (90, 18)],
)
def test_slow_values_of_the_design_come_in_batches(n_fast, n_known):
    """With u = 3 and tau = 5, three come with every 15 fast ones."""
    run = view([[n_fast, 10]], n=16)
    hidden = yet_to_come(run, first=2, n_design=10, n_new=3)
    # Rows 2 to 11 are the design; others came before, or later.
    expected = [2 + n_known <= row < 12 for row in range(16)]
    assert hidden[0, :, SLOW].tolist() == expected
    assert not hidden[..., FAST].any()


def test_each_run_of_a_batch_has_its_own_clock():
    hidden = yet_to_come(view([[4, 4], [5, 4], [10, 4], [99, 4]]), 0, 4, 1)
    assert hidden[..., SLOW].sum(dim=1).tolist() == [4, 3, 2, 0]
    assert hidden[1, :, SLOW].nonzero()[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("tau", "u", "n_fast", "n_hidden"),
    [
        (2.5, 2, 4, 6), (2.5, 2, 5, 4), (2.5, 2, 9, 4), (2.5, 2, 10, 2),
        # Two come with every 2.2 fast ones: with the third, the fifth and the seventh.
        (1.1, 2, 2, 6), (1.1, 2, 3, 4), (1.1, 2, 4, 4), (1.1, 2, 5, 2), (1.1, 2, 7, 0),
        # 10 * 1.1 is a little more than 11 in binary; it counts as 11.
        (1.1, 1, 11, 0), (1.1, 5, 11, 0), (1.1, 10, 10, 6), (1.1, 10, 11, 0),
    ],
)  # fmt: skip
def test_any_tau_tells_when_values_come(tau, u, n_fast, n_hidden):
    hidden = yet_to_come(view([[n_fast, 6]], tau=tau), 0, 6, u)
    assert hidden[..., SLOW].sum() == n_hidden


# ---------------------------------------------------------------- as of then


def test_hidden_values_are_on_their_way_whatever_becomes_of_them():
    run = view([[4, 4]], n=4)
    # Row 1 has failed, row 2 is outstanding, row 3 was never asked for.
    run.archive.observed[0, 1:, SLOW] = False
    run.failed[0, 1, SLOW] = run.pending[0, 2, SLOW] = True
    hidden = torch.zeros(1, 4, 2, dtype=torch.bool)
    hidden[..., SLOW] = True
    before = {field.name: getattr(run, field.name) for field in fields(run)}
    kept = (run.archive.Y.clone(), run.archive.observed.clone(), run.pending.clone())
    then = as_of_then(run, hidden)
    assert then.archive.observed[0].tolist() == [[True, False]] * 4
    assert then.archive.Y[0, :, SLOW].tolist() == [0.0] * 4
    assert torch.equal(then.archive.Y[..., FAST], run.archive.Y[..., FAST])
    assert then.pending[0, :, SLOW].tolist() == [True, True, True, False]
    assert not then.failed.any()
    assert not then.pending[..., FAST].any()
    assert torch.equal(then.archive.X, run.archive.X)
    # Nothing else changes, and what was given does not.
    for name in before.keys() - {"archive", "pending", "failed"}:
        assert getattr(then, name) is before[name]
    now = (run.archive.Y, run.archive.observed, run.pending)
    assert all(map(torch.equal, now, kept))


def test_what_is_not_hidden_stays():
    run = view([[4, 4], [9, 4]], n=4)
    run.archive.observed[:, 0, SLOW] = run.archive.observed[:, 1, FAST] = False
    run.failed[:, 0, SLOW] = run.pending[:, 1, FAST] = True
    nothing = torch.zeros(2, 4, 2, dtype=torch.bool)
    then = as_of_then(run, nothing)
    assert torch.equal(then.archive.Y, run.archive.Y)
    assert torch.equal(then.archive.observed, run.archive.observed)
    assert torch.equal(then.pending, run.pending)
    assert torch.equal(then.failed, run.failed)
    # What a run hides is no other's concern.
    nothing[1, 3, SLOW] = True
    then = as_of_then(run, nothing)
    assert torch.equal(then.archive.observed[0], run.archive.observed[0])
    assert then.pending[1, 3].tolist() == [False, True]


# ---------------------------------------------------------------- credit


@pytest.mark.parametrize(
    ("used", "n_slow", "expected"),
    [
        ((0, 0), 0, 0), ((0, 4), 0, 20), ((4, 4), 0, 16), ((20, 4), 0, 0), ((20, 4), 3, 15),
        # Attached values may have spent more than was released.
        ((30, 4), 0, 0), ((30, 4), 3, 5),
        # There are floor(5 * 20) in all.
        ((90, 19), 3, 10), ((100, 20), 0, 0),
    ],
)  # fmt: skip
def test_slow_evaluations_release_tau_fast_ones_each(used, n_slow, expected):
    assert credit(view([used]), n_slow).tolist() == [expected]


def test_shares_of_fast_evaluations_add_up():
    # floor(2.5 k): 2, 5, 7, 10.
    found = [credit(view([[0, k]], tau=2.5), 0).item() for k in (1, 2, 3, 4)]
    assert found == [2, 5, 7, 10]
    assert credit(view([[0, 0]], tau=1.1), 10).tolist() == [11]
    # 4.35 * 100 is 434.99999999999994 in binary.
    assert 4.35 * 100 < 435
    assert credit(view([[0, 0]], tau=4.35, n_slow=200), 100).tolist() == [435]


def test_each_run_of_a_batch_has_its_own_credit():
    run = view([[0, 0], [10, 4], [95, 19]])
    assert credit(run, torch.tensor([1, 0, 1])).tolist() == [5, 10, 5]
    assert run.used.tolist() == [[0, 0], [10, 4], [95, 19]]
