import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from tcsaea_torch.models.optimise import BFGSOptions, minimise_in_box

TIGHT = BFGSOptions(max_evaluations=400, gradient_tolerance=1e-9, value_tolerance=0.0)


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def f64(value):
    return torch.tensor(value, dtype=torch.float64)


def by_autograd(function):
    """Turn a function of (points, members) into one that returns its gradients too."""

    def objective(v, members):
        v = v.detach().requires_grad_()
        value = function(v, members)
        (gradient,) = torch.autograd.grad(value.sum(), v)
        return value.detach(), gradient

    return objective


def rosenbrock(v, members):
    a, b = v[:, :-1], v[:, 1:]
    return (100.0 * (b - a.square()).square() + (1.0 - a).square()).sum(dim=-1)


def quadratics(b, d, seed=0):
    """Members' own strictly convex quadratics with condition numbers of about 100."""
    A = draw(b, d, d, seed=seed) - 0.5
    H = A @ A.mT + 0.02 * torch.eye(d).double()
    centre = 3.0 * draw(b, d, seed=seed + 1) - 1.5

    def function(v, members):
        e = v - centre[members]
        return 0.5 * (e.unsqueeze(-2) @ H[members] @ e.unsqueeze(-1))[:, 0, 0]

    return function, H, centre


def scipy_minimum(function, member, start, lower, upper):
    def pair(v):
        value, gradient = by_autograd(function)(torch.from_numpy(v)[None], torch.tensor([member]))
        return value.item(), gradient[0].numpy()

    bounds = list(zip(lower.tolist(), upper.tolist(), strict=True))
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 1000, "maxfun": 5000}
    return minimize(
        pair, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )


def projected_gradient(function, v, lower, upper):
    members = torch.arange(len(v))
    _, g = by_autograd(function)(v, members)
    return (v - (v - g).clamp(lower, upper)).abs().amax(dim=-1)


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_quadratics_inside_of_the_box_are_solved(d, device):
    function, H, centre = quadratics(4, d)
    H, centre = H.to(device), centre.to(device)

    def objective(v, members):
        e = v - centre[members]
        g = (H[members] @ e.unsqueeze(-1)).squeeze(-1)
        return 0.5 * (e * g).sum(dim=-1), g

    bound = torch.full((d,), 5.0).double().to(device)
    start = (4.0 * draw(4, d, seed=7) - 2.0).to(device)
    v, value, n = minimise_in_box(objective, start, -bound, bound, TIGHT)
    torch.testing.assert_close(v, centre, rtol=0, atol=1e-6)
    assert (value < 1e-12).all()
    assert (n < 20 * d + 20).all()
    torch.testing.assert_close(function(v.cpu(), torch.arange(4)), value.cpu(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("d", [2, 5, 12])
def test_quadratics_cut_by_the_box_are_solved_as_by_scipy(d):
    function, _, centre = quadratics(6, d, seed=3)
    lower, upper = torch.full((d,), -0.5).double(), torch.full((d,), 0.7).double()
    outside = (centre < lower) | (centre > upper)
    assert outside.any(dim=-1).sum() >= 4
    start = lower + (upper - lower) * draw(6, d, seed=5)
    v, value, _ = minimise_in_box(by_autograd(function), start, lower, upper, TIGHT)
    assert bool(((v >= lower) & (v <= upper)).all())
    for i in range(6):
        expected = scipy_minimum(function, i, start[i], lower, upper)
        assert value[i].item() == pytest.approx(expected.fun, abs=1e-9)
        np.testing.assert_allclose(v[i], expected.x, rtol=0, atol=1e-5)


def test_a_separable_quadratic_ends_at_the_clamped_centre():
    centre = f64([[-2.0, 0.3, 2.0], [0.0, 5.0, 1.0]])
    weight = f64([1.0, 10.0, 100.0])

    def objective(v, members):
        e = v - centre[members]
        return (weight * e.square()).sum(dim=-1), 2.0 * weight * e

    lower, upper = torch.zeros(3).double(), torch.ones(3).double()
    for start in (torch.full((2, 3), 0.5).double(), lower.expand(2, 3), upper.expand(2, 3)):
        v, _, _ = minimise_in_box(objective, start, lower, upper, TIGHT)
        torch.testing.assert_close(v, centre.clamp(0.0, 1.0), rtol=0, atol=1e-9)


@pytest.mark.parametrize("d", [2, 4])
def test_rosenbrock_is_solved_from_many_starts(d):
    lower, upper = torch.full((d,), -2.0).double(), torch.full((d,), 2.0).double()
    start = lower + (upper - lower) * draw(12, d, seed=1)
    v, value, n = minimise_in_box(by_autograd(rosenbrock), start, lower, upper, TIGHT)
    solved = value < 1e-12
    torch.testing.assert_close(v[solved], torch.ones_like(v[solved]), rtol=0, atol=1e-5)
    assert (n < 400).all()
    assert projected_gradient(rosenbrock, v, lower, upper).max() < 1e-6
    # d = 4 has a local minimum near (-1, 1, 1, 1), and nothing else.
    assert solved.sum() >= (12 if d == 2 else 6)
    assert ((value[~solved] - 3.7014).abs() < 1e-3).all()


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ([-2.0, -2.0], [0.5, 2.0]),
        ([-2.0, 0.5], [0.6, 2.0]),
        ([1.2, -2.0], [3.0, 3.0]),
        ([-1.5, 1.5], [2.0, 3.0]),
    ],
)
def test_rosenbrock_on_the_faces_of_the_box_is_solved_as_by_scipy(lower, upper):
    lower, upper = f64(lower), f64(upper)
    start = lower + (upper - lower) * draw(8, 2, seed=2)
    v, value, _ = minimise_in_box(by_autograd(rosenbrock), start, lower, upper, TIGHT)
    assert bool(((v == lower) | (v == upper)).any(dim=-1).all())
    theirs = [scipy_minimum(rosenbrock, 0, start[i], lower, upper) for i in range(8)]
    # Some faces have two local minima, and starts may fall to either.
    for i in range(8):
        nearest = min(theirs, key=lambda result, i=i: float(abs(result.x - v[i].numpy()).max()))
        np.testing.assert_allclose(v[i], nearest.x, rtol=0, atol=1e-5)
        assert value[i].item() == pytest.approx(nearest.fun, abs=1e-8)
    assert value.min().item() == pytest.approx(min(t.fun for t in theirs), abs=1e-8)


def test_variables_held_at_a_bound_do_not_slow_the_others():
    # The last variable is held at 1 by a slope that changes by 30 with the others.
    H = torch.diag(f64([1.0, 4.0, 25.0]))
    pull = f64([30.0, -20.0, 10.0])

    def objective(v, members):
        x, z = v[:, :3], v[:, 3]
        force = 100.0 + x @ pull
        value = 0.5 * (x @ H * x).sum(dim=-1) - (z - 1.0) * force
        return value, torch.cat([x @ H - (z - 1.0).unsqueeze(-1) * pull, -force.unsqueeze(-1)], -1)

    lower, upper = f64([-1.5] * 3 + [0.0]), f64([1.5] * 3 + [1.0])
    start = torch.cat([3.0 * draw(10, 3, seed=3) - 1.5, torch.ones(10, 1).double()], dim=-1)
    options = BFGSOptions(max_evaluations=400, gradient_tolerance=1e-6, value_tolerance=0.0)
    v, _, n = minimise_in_box(objective, start, lower, upper, options)
    torch.testing.assert_close(v, f64([0.0, 0.0, 0.0, 1.0]).expand(10, 4), rtol=0, atol=1e-5)
    assert n.max() <= 50


def test_batch_equals_loop():
    function, _, _ = quadratics(5, 3, seed=8)

    def bumpy(v, members):
        return function(v, members) + 0.3 * (3.0 * v).sin().sum(dim=-1)

    lower, upper = torch.full((3,), -1.0).double(), torch.full((3,), 1.0).double()
    start, options = 2.0 * draw(5, 3, seed=4) - 1.0, BFGSOptions()
    v, value, n = minimise_in_box(by_autograd(bumpy), start, lower, upper, options)
    assert len(set(n.tolist())) > 1  # members finish at different times
    for i in range(5):
        alone = minimise_in_box(
            by_autograd(lambda w, m, i=i: bumpy(w, m + i)), start[[i]], lower, upper, options
        )
        torch.testing.assert_close(alone[0][0], v[i], rtol=0, atol=1e-10)
        assert alone[1].item() == pytest.approx(value[i].item(), abs=1e-12)
        assert alone[2].item() == n[i].item()


def test_members_are_named_by_their_indices_and_evaluations_counted():
    counts = torch.zeros(6, dtype=torch.int64)

    def objective(v, members):
        assert len(set(members.tolist())) == len(members) == len(v)
        counts[members] += 1
        target = members.double().unsqueeze(-1) / 10
        # The third has no minimum in reach of its steps; it uses all its evaluations.
        curved = (members == 2).unsqueeze(-1)
        e = v - target
        value = torch.where(curved, -(1e-3 * v), e.square()).sum(dim=-1)
        return value, torch.where(curved, -1e-3, 2.0 * e)

    bound = torch.full((2,), 1e6).double()
    options = BFGSOptions(max_evaluations=23)
    v, value, n = minimise_in_box(objective, torch.ones(6, 2).double(), -bound, bound, options)
    assert torch.equal(n, counts)
    assert n.max() == n[2] == 23
    keep = [0, 1, 3, 4, 5]
    assert n[keep].max() < 23
    torch.testing.assert_close(
        v[keep], (f64(keep) / 10).unsqueeze(-1).expand(-1, 2), rtol=0, atol=1e-5
    )
    assert value[2].item() == pytest.approx(-1e-3 * float(v[2].sum()))
    assert 1.0 < v[2].min() <= 1.0 + 3.0 * 22  # a step changes no variable by more than 3


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
@pytest.mark.parametrize("check_every", [1, 4])
def test_no_member_is_evaluated_more_often_than_allowed(limit, check_every):
    counts = torch.zeros(3, dtype=torch.int64)

    def objective(v, members):
        counts[members] += 1
        return by_autograd(rosenbrock)(v, members)

    lower, upper = torch.full((2,), -2.0).double(), torch.full((2,), 2.0).double()
    start = f64([[-1.2, 1.0], [0.0, 0.0], [1.0, 1.0]])
    before = rosenbrock(start, torch.arange(3))
    options = BFGSOptions(max_evaluations=limit, check_every=check_every)
    _, value, n = minimise_in_box(objective, start, lower, upper, options)
    assert counts.max() <= limit
    assert torch.equal(n, counts)
    assert (value <= before).all()
    assert value[2] == 0.0


def test_value_never_rises_and_is_that_of_the_point_returned():
    lower, upper = torch.full((2,), -2.0).double(), torch.full((2,), 2.0).double()
    start = lower + 4.0 * draw(20, 2, seed=6)
    values = [rosenbrock(start, torch.arange(20))]
    for limit in (2, 5, 10, 20, 40):
        options = BFGSOptions(max_evaluations=limit)
        v, value, _ = minimise_in_box(by_autograd(rosenbrock), start, lower, upper, options)
        assert torch.equal(value, rosenbrock(v, torch.arange(20)))
        assert (value <= values[-1]).all()
        values.append(value)
    assert (values[-1] < 0.2 * values[0]).all()


def test_starts_outside_of_the_box_are_moved_into_it():
    seen = []

    def objective(v, members):
        seen.append(v.clone())
        return v.square().sum(dim=-1), 2.0 * v

    lower, upper = f64([1.0, -1.0]), f64([2.0, 1.0])
    v, value, _ = minimise_in_box(objective, f64([[9.0, -9.0]]), lower, upper, BFGSOptions())
    assert seen[0].tolist() == [[2.0, -1.0]]
    assert all(bool(((x >= lower) & (x <= upper)).all()) for x in seen)
    assert v.tolist() == [pytest.approx([1.0, 0.0], abs=1e-6)]
    assert value.item() == pytest.approx(1.0)


def test_a_member_that_starts_undefined_returns_infinity_and_disturbs_nobody():
    def objective(v, members):
        undefined = members == 1
        value = torch.where(undefined, math.inf, (v - 0.5).square().sum(dim=-1))
        return value, torch.where(undefined.unsqueeze(-1), 0.0, 2.0 * (v - 0.5))

    lower, upper = torch.zeros(3).double(), torch.ones(3).double()
    start = draw(3, 3)
    v, value, _ = minimise_in_box(objective, start, lower, upper, BFGSOptions())
    assert value.isinf().tolist() == [False, True, False]
    assert torch.equal(v[1], start[1])
    torch.testing.assert_close(v[[0, 2]], torch.full((2, 3), 0.5).double(), rtol=0, atol=1e-5)


def test_an_objective_that_is_undefined_in_part_of_the_box_is_handled():
    # ln x is undefined where the first steps from the right end.
    def objective(v, members):
        x = v[:, 0]
        value = torch.where(x > 0.0, 0.05 * x - x.clamp_min(1e-300).log(), math.inf)
        gradient = torch.where(x > 0.0, 0.05 - 1.0 / x, 0.0)
        return value, gradient.unsqueeze(-1)

    lower, upper = f64([-100.0]), f64([100.0])
    start = f64([[1e-3], [0.5], [60.0], [99.0]])
    v, value, _ = minimise_in_box(objective, start, lower, upper, TIGHT)
    assert v.flatten().tolist() == pytest.approx([20.0] * 4, abs=1e-4)
    assert value.tolist() == pytest.approx([1.0 - math.log(20.0)] * 4, abs=1e-9)


def test_a_wall_of_infinity_is_approached():
    # The best of the defined half lies at its edge, where every longer step is refused.
    def objective(v, members):
        value = torch.where(v[:, 0] < 0.25, math.inf, v.square().sum(dim=-1))
        return value, 2.0 * v

    lower, upper = torch.full((2,), -1.0).double(), torch.ones(2).double()
    options = BFGSOptions(max_evaluations=300)
    v, value, _ = minimise_in_box(objective, f64([[0.9, 0.8]]), lower, upper, options)
    assert value.isfinite().all()
    assert 0.25 <= v[0, 0].item() < 0.4
    assert v[0, 1].abs().item() < 0.5


def test_a_stationary_start_ends_at_once():
    lower, upper = torch.zeros(2).double(), torch.ones(2).double()
    for start in (f64([[0.0, 0.0]]), f64([[1.0, 1.0]])):
        sign = 1.0 if start[0, 0] == 0.0 else -1.0
        v, value, n = minimise_in_box(
            lambda v, m, sign=sign: (sign * v.sum(dim=-1), sign * torch.ones_like(v)),
            start,
            lower,
            upper,
            BFGSOptions(),
        )
        assert torch.equal(v, start)
        assert value.item() == sign * float(start.sum())
        assert n.item() <= 4


def test_loose_tolerances_stop_sooner():
    lower, upper = torch.full((2,), -2.0).double(), torch.full((2,), 2.0).double()
    start = f64([[-1.2, 1.0]])
    used = [
        minimise_in_box(by_autograd(rosenbrock), start, lower, upper, options)[2].item()
        for options in (
            BFGSOptions(value_tolerance=1e-1),
            BFGSOptions(gradient_tolerance=1.0, value_tolerance=0.0),
            TIGHT,
        )
    ]
    assert max(used[:2]) < used[2]


def test_float32_is_kept_and_works():
    lower, upper = torch.full((3,), -1.0), torch.full((3,), 1.0)
    centre = torch.tensor([0.25, 2.0, -0.5])

    def objective(v, members):
        return (v - centre).square().sum(dim=-1), 2.0 * (v - centre)

    v, value, _ = minimise_in_box(objective, torch.zeros(1, 3), lower, upper, BFGSOptions())
    assert v.dtype == value.dtype == torch.float32
    assert v.tolist() == [pytest.approx([0.25, 1.0, -0.5], abs=1e-5)]


def two_valleys(v, members):
    """A shallow valley that bends towards 1, where it is 0.5 high, and a steep one at -1, of 0."""
    x, y = v[:, 0], v[:, 1]
    bent = 20.0 * (y - x.square()).square() + 0.05 * (x - 1.0).square() + 0.5
    steep = 10.0 * (x + 1.0).square() + 10.0 * (y + 1.0).square()
    return torch.where(y > -0.5, bent, steep)


def test_rivals_without_hope_stop_when_another_has_ended():
    lower, upper = torch.full((2,), -2.0).double(), torch.full((2,), 2.0).double()
    start = f64([[-1.2, 1.4], [-0.9, -1.2], [-1.2, 1.4], [-1.1, 1.3]])
    objective, options = by_autograd(two_valleys), BFGSOptions()
    alone = minimise_in_box(objective, start, lower, upper, options)
    together = minimise_in_box(objective, start, lower, upper, options, n_rivals=2)
    # The second ends soon in the deep valley: the first gives up. The others are no rivals of it.
    assert together.value[1].item() == pytest.approx(0.0, abs=1e-9)
    assert together.n_evaluations[0] < 0.8 * alone.n_evaluations[0]
    assert together.value[0] > 0.5
    for i in (1, 2, 3):
        torch.testing.assert_close(together.x[i], alone.x[i], rtol=0, atol=1e-6)
    best = alone.value.reshape(2, 2).amin(dim=-1)
    torch.testing.assert_close(together.value.reshape(2, 2).amin(dim=-1), best, rtol=0, atol=1e-9)


def test_rivals_lose_no_minimum():
    function, _, _ = quadratics(5, 3, seed=8)

    def bumpy(v, members):
        return function(v, members // 4) + 0.5 * (4.0 * v).sin().sum(dim=-1)

    lower, upper = torch.full((3,), -2.0).double(), torch.full((3,), 2.0).double()
    start = 4.0 * draw(20, 3, seed=4) - 2.0
    objective = by_autograd(bumpy)
    alone, together = (
        minimise_in_box(objective, start, lower, upper, BFGSOptions(), n_rivals=n) for n in (1, 4)
    )
    best = [found.value.reshape(5, 4).amin(dim=-1) for found in (alone, together)]
    torch.testing.assert_close(best[1], best[0], rtol=0, atol=1e-8)
    assert together.n_evaluations.sum() < alone.n_evaluations.sum()
