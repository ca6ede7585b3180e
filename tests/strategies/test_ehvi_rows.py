import pytest
import torch

from tcsaea_torch.rng import uniforms
from tcsaea_torch.strategies.ehvi_rows import Known, choose_rows, distance_from_front


def numbers(name, *shape):
    return uniforms(torch.tensor([3, 4]), name, 0, shape, dtype=torch.float64)


def sampled(n=60, n_max=20, n_space=30):
    live = numbers("live", n) < 0.8
    is_space = torch.arange(n).expand(2, n) < n_space
    distance = numbers("distance", n)
    return live, is_space, distance, choose_rows(live, is_space, distance, n_max, numbers("u", n))


def test_half_of_the_rows_fill_the_space_and_a_quarter_is_near_the_front():
    live, is_space, distance, rows = sampled()
    for i in range(2):
        chosen = set(rows[i].tolist())
        assert len(chosen) == 20
        assert live[i][rows[i]].all()
        space = {k for k in chosen if is_space[i, k]}
        assert len(space) >= 10
        # The five best of those that are not among the ten: so at least the five best but these.
        others = [k for k in range(60) if live[i, k] and not is_space[i, k]]
        best = sorted(others, key=lambda k: float(distance[i, k]))
        assert best[0] in chosen
        n_best = sum(
            k in chosen for k in sorted(range(60), key=lambda k: float(distance[i, k]))[:12]
        )
        assert n_best >= 5


def test_the_choice_does_not_depend_on_rows_that_do_not_exist():
    live, is_space, distance, rows = sampled()
    other = choose_rows(live, is_space, torch.where(live, distance, -9.0), 20, numbers("u", 60))
    assert torch.equal(rows.sort(dim=1).values, other.sort(dim=1).values)


def test_few_rows_are_all_taken():
    *_, rows = sampled(n=20)
    assert torch.equal(rows, torch.arange(20).expand(2, 20))


def test_others_are_returned_only_where_rows_are_too_few():
    live = torch.arange(40).expand(2, 40) % 8 == 0
    rows = choose_rows(live, ~live, numbers("d", 40), 12, numbers("u", 40))
    for i in range(2):
        assert live[i][rows[i, :5]].all()
        assert len(set(rows[i].tolist())) == 12


@pytest.mark.parametrize("n_front", [1, 7])
def test_the_distance_from_a_front_is_what_both_values_must_fall(n_front):
    Y, front = numbers("Y", 50, 2), numbers("front", n_front, 2)
    alive = numbers("alive", n_front) < 0.9
    alive[:, 0] = True
    found = distance_from_front(Y, front, alive)
    for i in range(2):
        for k in range(50):
            gaps = [
                min(float(Y[i, k, j] - front[i, t, j]) for j in range(2))
                for t in range(n_front)
                if alive[i, t]
            ]
            assert found[i, k].item() == pytest.approx(max(gaps), abs=1e-15)
            # Lowered by a little more than this, no point of the front is better in both.
            moved = Y[i, k] - found[i, k] - 1e-9
            assert not (front[i][alive[i]] < moved).all(dim=-1).any()


def test_what_is_known_of_an_archive():
    observed = torch.tensor([[[1, 1], [1, 0], [0, 1], [0, 0]]]).bool()
    Y = torch.tensor([[[1.0, 5.0], [4.0, 0.0], [0.0, 9.0], [0.0, 0.0]]]).double()
    known = Known(
        X=torch.zeros(1, 4, 3).double(),
        Y=Y,
        observed=observed,
        is_space=torch.ones(1, 4, dtype=torch.bool),
    )
    assert known.fast.tolist() == [[True, True, False, False]]
    assert known.slow.tolist() == [[True, False, True, False]]
    assert known.both.tolist() == [[True, False, False, False]]
    assert known.span.tolist() == [[[3.0, 4.0]]]
    D = known.values(1)
    assert D.live.tolist() == [[True, False, True, False]]
    nothing = Known(X=known.X, Y=Y, observed=observed & False, is_space=known.is_space)
    assert nothing.span.tolist() == [[[0.0, 0.0]]]
