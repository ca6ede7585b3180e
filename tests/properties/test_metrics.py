"""Laws of dominance and hypervolume."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tcsaea_torch.metrics import hypervolume, igd, is_non_dominated

# Few levels make equal values, where mistakes hide.
levels = st.integers(0, 6)
many = settings(max_examples=150, deadline=None, derandomize=True)


def fronts(m, min_size=1):
    return st.lists(st.lists(levels, min_size=m, max_size=m), min_size=min_size, max_size=12)


anything = st.one_of(fronts(2), fronts(3))


def rows(Y):
    return torch.tensor(Y, dtype=torch.float64)


def dominates(a, b):
    """Ask the library: among two different rows, only a dominating one is left."""
    marked = is_non_dominated(torch.stack([a, b])).tolist()
    return marked == [True, False] and not torch.equal(a, b)


@many
@given(st.lists(st.lists(levels, min_size=2, max_size=2), min_size=3, max_size=3))
def test_dominance_is_a_strict_order(Y):
    a, b, c = rows(Y)
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    if dominates(a, b) and dominates(b, c):
        assert dominates(a, c)
    assert dominates(a, b) == (bool((a <= b).all()) and not torch.equal(a, b))


@many
@given(anything)
def test_what_is_left_dominates_the_rest_and_nothing_of_itself(Y):
    Y = rows(Y)
    left = is_non_dominated(Y)
    best = Y[left]
    assert left.any()
    assert is_non_dominated(best).all()
    # Each row has one of the best at or below it.
    assert (best <= Y.unsqueeze(1)).all(dim=-1).any(dim=-1).all()


@many
@given(anything, st.randoms(use_true_random=False))
def test_the_set_of_non_dominated_rows_does_not_depend_on_the_order(Y, random):
    shuffled = list(Y)
    random.shuffle(shuffled)
    fronts = [sorted(rows(Z)[is_non_dominated(rows(Z))].tolist()) for Z in (Y, shuffled)]
    assert fronts[0] == fronts[1]


@many
@given(anything, st.integers(0, 7))
def test_hypervolume_counts_the_cells_below(Y, corner):
    Y = rows(Y)
    m = Y.shape[1]
    # The values are integers, and so the volume is a number of unit cells.
    cells = torch.cartesian_prod(*[torch.arange(corner)] * m).reshape(-1, m).double()
    covered = (Y.unsqueeze(1) <= cells).all(dim=-1).any(dim=0)
    volume = hypervolume(Y, torch.full((m,), float(corner)).double())
    assert volume == pytest.approx(int(covered.sum()), abs=1e-9)


@many
@given(fronts(2), st.lists(levels, min_size=2, max_size=2), st.integers(0, 8))
def test_hypervolume_grows_with_points_and_with_the_reference_point(Y, extra, corner):
    point = torch.full((2,), float(corner)).double()
    before = hypervolume(rows(Y), point)
    assert hypervolume(rows([*Y, extra]), point) >= before
    assert hypervolume(rows(Y), point + 1) >= before
    assert 0.0 <= before <= corner**2


@many
@given(fronts(2))
def test_dominated_and_equal_points_add_nothing(Y):
    point = rows([7, 7])
    best = rows(Y)[is_non_dominated(rows(Y))]
    assert hypervolume(rows(Y), point) == hypervolume(best, point)
    assert hypervolume(torch.cat([rows(Y), best]), point) == hypervolume(best, point)


@many
@given(fronts(2), fronts(2), st.lists(levels, min_size=2, max_size=2))
def test_igd_falls_with_more_points_and_is_0_on_the_front_only(Y, front, extra):
    distance = igd(rows(Y), rows(front))
    assert igd(rows([*Y, extra]), rows(front)) <= distance
    assert (distance == 0.0) == all(point in Y for point in front)
