"""Dominance, distance to the front and hypervolume, against what other programs compute."""

import math

import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.metrics import hypervolume, igd, is_non_dominated, normalized_hypervolume
from tests.conftest import load_reference

REFERENCE = load_reference("metrics")
NAN, INF = math.nan, math.inf


def name_of(case):
    return case["name"]


def exactly(expected):
    return pytest.approx(expected, rel=1e-12, abs=1e-300)


def rows(n, m=2, seed=0, levels=None):
    """Make random rows; with `levels`, values on a coarse grid, so that many are equal."""
    Y = torch.rand(n, m, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Y if levels is None else (Y * levels).round()


def naive(Y):
    """Compare each row with each other, as the definition says."""
    Y = Y.tolist()
    dominates = lambda a, b: all(x <= y for x, y in zip(a, b, strict=True)) and a != b  # noqa: E731
    return [
        not any(dominates(other, row) for other in Y) and row not in Y[:i]
        for i, row in enumerate(Y)
    ]


# ------------------------------------------------------------------ reference values


@pytest.mark.parametrize("case", REFERENCE["fronts"], ids=name_of)
def test_agrees_with_platemo_and_the_authors_code(case, tensor):
    Y, front = tensor(case["F"]), tensor(case["PF"])
    assert igd(Y, front) == exactly(case["IGD"])
    assert normalized_hypervolume(Y, front) == exactly(case["HV_platemo"])
    assert hypervolume(Y, 1.1 * front.amax(dim=0)) == exactly(case["HV_tsaea"])


@pytest.mark.parametrize("case", REFERENCE["raw_hypervolumes"], ids=name_of)
def test_hypervolume_agrees_with_moocore(case, tensor):
    value = hypervolume(tensor(case["F"]), tensor(case["ref"]))
    assert value == exactly(case["hv_moocore"])
    assert value == exactly(case["hv_pymoo"])


@pytest.mark.parametrize("case", REFERENCE["raw_hypervolumes"], ids=name_of)
def test_the_same_on_every_device_and_nearly_in_float32(case, tensor, device):
    Y, point = tensor(case["F"]).to(device), tensor(case["ref"])
    front = torch.rand(9, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert hypervolume(Y, point) == exactly(case["hv_moocore"])
    assert igd(Y, front) == exactly(igd(Y.cpu(), front))
    assert hypervolume(Y.float(), point.float()) == pytest.approx(case["hv_moocore"], rel=1e-5)


# ------------------------------------------------------------------ dominance


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize(("n", "levels"), [(1, None), (60, None), (60, 3), (60, 10), (1100, 30)])
def test_non_dominated_rows_equal_a_naive_loop(n, m, levels):
    Y = rows(n, m, seed=n + m, levels=levels)
    assert is_non_dominated(Y).tolist() == naive(Y)


def test_of_equal_rows_the_first_is_marked(tensor):
    Y = tensor([[2, 2], [1, 3], [1, 3], [3, 1], [1, 3], [2, 2], [2, 3]])
    assert is_non_dominated(Y).tolist() == [True, True, False, True, False, False, False]


def test_infinite_values_are_ordered_like_others(tensor):
    Y = tensor([[INF, 0], [1, 1], [-INF, 5], [2, INF], [INF, INF]])
    assert is_non_dominated(Y).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("n", [5, 1500])
def test_rows_with_nan_are_dominated_and_dominate_nothing(n):
    Y = rows(n, seed=n)
    Y[0, 0], Y[0, 1] = NAN, -1.0
    Y[3, 1] = Y[4, 0] = Y[4, 1] = NAN
    measured = ~Y.isnan().any(dim=-1)
    marked = is_non_dominated(Y)
    assert not marked[~measured].any()
    assert torch.equal(marked[measured], is_non_dominated(Y[measured]))
    assert not is_non_dominated(Y[[0, 3, 4]]).any()


def test_batch_equals_loop():
    Y = torch.stack([rows(40, seed=k, levels=8) for k in range(6)]).reshape(2, 3, 40, 2)
    together = is_non_dominated(Y)
    assert together.shape == (2, 3, 40)
    for i in range(2):
        for j in range(3):
            assert torch.equal(together[i, j], is_non_dominated(Y[i, j]))


def test_no_rows():
    nothing = torch.zeros(0, 2).double()
    front = torch.ones(3, 2).double()
    assert is_non_dominated(nothing).shape == (0,)
    assert hypervolume(nothing, torch.ones(2).double()) == 0.0
    assert normalized_hypervolume(nothing, front) == 0.0
    assert igd(nothing, front) == INF


# ------------------------------------------------------------------ closed forms


def test_igd_is_a_mean_of_distances_in_the_objectives_units(tensor):
    front = tensor([[0, 0], [10, 0]])
    assert igd(tensor([[3, 4]]), front) == exactly((5 + math.sqrt(65)) / 2)
    assert igd(tensor([[3, 4], [10, 1], [99, 99]]), front) == exactly(3.0)
    assert igd(front, front) == 0.0


def test_rows_with_nan_do_not_count(tensor):
    Y, front = tensor([[0.0, 2.0], [2.0, 0.0]]), tensor([[0.0, 1.0], [1.0, 0.0]])
    gaps = torch.cat([tensor([[NAN, 0.0]]), Y, tensor([[NAN, NAN], [-1.0, NAN]])])
    for score in (igd, normalized_hypervolume):
        assert score(gaps, front) == score(Y, front)
    assert hypervolume(gaps, front.amax(dim=0) * 3) == hypervolume(Y, front.amax(dim=0) * 3)
    assert igd(gaps[:1], front) == INF
    assert normalized_hypervolume(gaps[:1], front) == 0.0


def test_igd_keeps_its_digits_far_from_the_origin(tensor):
    # The usual short cut |a|^2 - 2ab + |b|^2 would lose these distances altogether.
    front = tensor([[1e8, 1e8], [1e8 + 1, 1e8]])
    assert igd(front + tensor([0.0, 1e-3]), front) == pytest.approx(1e-3, rel=1e-4)


@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_hypervolume_of_points_on_a_segment(n, tensor):
    t = torch.linspace(0, 1, n + 1, dtype=torch.float64)[1:]
    Y = torch.stack([t, 1 - t], dim=-1)
    # Between reference point (1, 1) and the steps below it: n (n - 1) / 2 cells of n^2.
    assert hypervolume(Y, tensor([1, 1])) == pytest.approx((n - 1) / (2 * n), abs=1e-12)


def test_hypervolume_of_a_staircase_in_three_dimensions(tensor):
    Y = tensor([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    assert hypervolume(Y, tensor([2, 2, 2])) == exactly(3 * 2 - 3 + 1)


def test_rows_at_or_beyond_the_reference_point_do_not_count(tensor):
    point = tensor([1, 1])
    for row in ([1, 0], [0, 1], [2, -9], [-9, 2], [INF, 0], [NAN, 0]):
        assert hypervolume(tensor([row]), point) == 0.0
        assert hypervolume(tensor([row, [0.5, 0.5]]), point) == exactly(0.25)


def test_normalized_hypervolume_has_platemos_scale(tensor):
    front = tensor([[0, 2], [4, 0]])
    # The reference point is 1.1 times the front's maximum: (4.4, 2.2).
    assert normalized_hypervolume(tensor([[0, 0]]), front) == exactly(1.0)
    assert normalized_hypervolume(tensor([[2.2, 1.1]]), front) == exactly(0.25)
    assert normalized_hypervolume(tensor([[4.4, 0]]), front) == 0.0
    # A negative value shifts the box: from (-4, 0) to 1.1 times the range above it.
    assert normalized_hypervolume(tensor([[-4, 0]]), front) == exactly(1.0)
    scaled = normalized_hypervolume(tensor([[2.2, 1.1]]) * 1e6, front * 1e6)
    assert scaled == exactly(0.25)


# ------------------------------------------------------------------ errors


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("columns", [1, 3])
def test_columns_must_agree(columns, tensor):
    Y, other = tensor([[1, 2]]), torch.ones(1, columns).double()
    shapes = rf"got shapes \(1, {columns}\) and \(1, 2\)"
    with pytest.raises(InvalidInputError, match="front must have as many columns as Y, " + shapes):
        igd(Y, other)
    with pytest.raises(InvalidInputError, match="front must have as many columns as Y, " + shapes):
        normalized_hypervolume(Y, other)
    with pytest.raises(InvalidInputError, match="ref_point must have as many columns as Y, "):
        hypervolume(Y, other[0])


def test_a_front_has_points(tensor):
    with pytest.raises(InvalidInputError, match="front must have at least one row, got none"):
        igd(tensor([[1, 2]]), torch.zeros(0, 2).double())
