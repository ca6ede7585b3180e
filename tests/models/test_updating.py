"""Rows appended to a model, against factorising all rows again."""

import itertools
import math
import re
from typing import Any

import pytest
import torch
from botorch.sampling import SobolQMCNormalSampler
from torch.autograd import gradcheck

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import Hyperparameters, KrigingGP
from tcsaea_torch.models.likelihood import Standardised
from tcsaea_torch.models.surrogate import JITTERS, Surrogate, _is_exact, condition
from tcsaea_torch.models.updating import solve_lower
from tests.models.models import BATCHES, KINDS, TRENDS, draw, f64, model, noise_of, same, wavy


def refactorised(gp, X, y, noise):
    """`condition` on all rows, in the scaling of `gp`."""
    before, shape = gp.surrogate, X.shape[:-2]
    scaling, old = before.scaling, before.data
    live = noise < math.inf
    X = torch.where(live.unsqueeze(-1), scaling.inputs(X), 0.0)
    unit = scaling.y_scale.unsqueeze(-1)
    F = torch.cat([torch.ones_like(X[..., :1]), X * before.is_linear[..., None, None]], dim=-1)
    new = {
        "X": X,
        "y": torch.where(live, (y - scaling.y_shift.unsqueeze(-1)) / unit, 0.0),
        "F": F * live.unsqueeze(-1),
        "noise": torch.where(live, noise, 0.0) / unit.square(),
        "live": live,
    }
    rows = {}
    for name, value in new.items():
        k = 2 if name in "XF" else 1
        parent = getattr(old, name)
        rows[name] = torch.cat([parent.expand(shape + parent.shape[-k:]), value], dim=-k)
    data = Standardised(**rows, is_exact=_is_exact(rows["F"], rows["y"]))
    hyper = before.hyperparameters
    expand: Any = lambda t: None if t is None else t.expand(shape + t.shape[len(gp.batch_shape) :])  # noqa: E731
    hyper = Hyperparameters(
        theta=expand(hyper.theta), p=expand(hyper.p), variance=expand(hyper.variance)
    )
    scaling = type(scaling)(**{k: expand(v) for k, v in vars(scaling).items()})
    return condition(data, scaling, hyper, nugget=float(gp.nugget))


def predictions_agree(found, expected, Xq, tolerance=1e-10):
    for mine, theirs in zip(found.predict(Xq), expected.predict(Xq), strict=True):
        same(mine, theirs, tolerance)
    for mine, theirs in zip(found.predict_joint(Xq), expected.predict_joint(Xq), strict=True):
        same(mine, theirs, tolerance)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [1, 3])
def test_equals_factorising_all_rows_again(batch, trend, kind, q):
    gp = model(batch, trend=trend, kind=kind, p={"absent": 1.5}.get(kind))
    before = gp.posterior(draw(5, 2, seed=5)).mean
    X, noise = draw(*batch, q, 2, seed=8), noise_of(kind, *batch, q, seed=9)
    y = wavy(X) + draw(*batch, q, seed=7)
    after = gp.condition_on_observations(X, y.unsqueeze(-1), noise.unsqueeze(-1))
    expected = refactorised(gp, X, y, noise)
    assert after.batch_shape == torch.Size(batch)
    found = after.surrogate
    assert found.factors.L.shape == (*batch, 12 + q, 12 + q)
    for name in ("L", "CiF", "FCiF_chol", "beta", "a", "quadratic"):
        same(getattr(found.factors, name), getattr(expected.factors, name), 1e-9)
    predictions_agree(found, expected, draw(*batch, 5, 2, seed=5))
    assert torch.equal(found.is_linear, gp.surrogate.is_linear)
    assert float(found.jitter.abs().max()) == 0.0
    # The rows are known to GPyTorch too.
    rows = after.train_inputs
    assert torch.equal(rows[0][..., 12:, :], torch.where((noise < math.inf)[..., None], X, 0.0))
    assert after.known_noise.noise_var.shape == (*batch, 12 + q)
    assert torch.equal(gp.posterior(draw(5, 2, seed=5)).mean, before)


@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("input_scaling", ["unit", "standardize"])
def test_hyperparameters_and_scaling_stay(trend, input_scaling):
    gp = model(trend=trend, input_scaling=input_scaling)
    X = 5.0 * draw(4, 2, seed=8)
    after = gp.condition_on_observations(X, 100.0 * wavy(X).unsqueeze(-1))
    before, now = gp.surrogate, after.surrogate
    for name in ("theta", "variance"):
        assert torch.equal(
            getattr(before.hyperparameters, name), getattr(now.hyperparameters, name)
        )
    for name, value in vars(before.scaling).items():
        assert torch.equal(value, getattr(now.scaling, name))
    assert torch.equal(before.variance, now.variance)


@pytest.mark.parametrize("trend", TRENDS)
def test_one_by_one_equals_all_at_once(trend):
    gp = model(trend=trend, kind="noisy")
    X, noise = draw(4, 2, seed=8), 0.1 * draw(4, 1, seed=9)
    Y = wavy(X).unsqueeze(-1)
    at_once = gp.condition_on_observations(X, Y, noise)
    for i in range(4):
        gp = gp.condition_on_observations(X[i : i + 1], Y[i : i + 1], noise[i : i + 1])
    predictions_agree(gp.surrogate, at_once.surrogate, draw(6, 2, seed=5))


@pytest.mark.parametrize(
    ("members", "points", "values", "noises", "expected"),
    [
        ((), (5,), (5,), (), (5,)),
        ((), (), (4,), (), (4,)),
        ((), (5,), (4, 5), (5,), (4, 5)),
        ((), (5,), (4, 5), (4, 1), (4, 5)),
        ((), (3, 5), (4, 3, 5), (1,), (4, 3, 5)),
        ((5,), (), (5,), (), (5,)),
        ((5,), (5,), (4, 5), (5,), (4, 5)),
        ((5,), (3, 1), (4, 3, 5), (), (4, 3, 5)),
        ((2, 3), (3,), (4, 2, 3), (), (4, 2, 3)),
    ],
)
@pytest.mark.parametrize("trend", TRENDS)
def test_batches_broadcast(members, points, values, noises, expected, trend):
    gp = model(members, trend=trend)
    X, y = draw(*points, 2, 2, seed=8), draw(*values, 2, seed=7)
    noise = 0.1 * draw(*noises, 2, seed=9)
    after = gp.condition_on_observations(X, y.unsqueeze(-1), noise.unsqueeze(-1))
    assert after.batch_shape == torch.Size(expected)
    again = refactorised(
        gp, X.expand(*expected, 2, 2), y.expand(*expected, 2), noise.expand(*expected, 2)
    )
    predictions_agree(after.surrogate, again, draw(4, 2, seed=5))
    predictions_agree(after.surrogate, again, draw(*expected, 4, 2, seed=6))
    more = after.condition_on_observations(draw(1, 2, seed=3), draw(1, 1, seed=4))
    for index in itertools.product(*(range(k) for k in expected)):
        alone = refactorised_member(again, index, gp)
        mine = more.posterior(draw(4, 2, seed=5)).mean[index]
        same(mine, alone.posterior(draw(4, 2, seed=5)).mean, 1e-9)


def refactorised_member(surrogate, index, gp):
    """One member made from scratch, with the last row of the test above."""
    member = surrogate
    for i in index:
        member = Surrogate.__getitem__(member, i)
    scaling, data, hyper = member.scaling, member.data, member.hyperparameters
    X = data.X * scaling.x_scale + scaling.x_shift
    y = data.y * scaling.y_scale + scaling.y_shift
    noise = torch.cat([data.noise * scaling.y_scale.square(), f64([0.0])])
    return KrigingGP(
        torch.cat([X, draw(1, 2, seed=3)]),
        torch.cat([y, draw(1, seed=4)]),
        hyper,
        # None means the mean noise of the rows at hand.
        torch.cat([noise[:-1], noise[:-1].mean(dim=0, keepdim=True)]),
        trend="linear" if bool(member.is_linear) else "constant",
        nugget=float(gp.nugget),
    )


def test_fantasies_at_the_same_points_share_one_factor():
    gp = model(n=30)
    X, Y = draw(5, 2, 2, seed=8), draw(16, 5, 2, 1, seed=7)
    after = gp.condition_on_observations(X, Y)
    L = after.surrogate.factors.L
    assert L.shape == (16, 5, 32, 32)
    assert L.untyped_storage().nbytes() == 5 * 32 * 32 * 8
    assert after.surrogate.L.shape == (5, 32, 32)
    assert after.condition_on_observations(X, Y).surrogate.L.shape == (16, 5, 34, 34)


@pytest.mark.parametrize("trend", TRENDS)
def test_absent_new_rows_are_absent_exactly(trend):
    gp = model(trend=trend)
    X, Y = draw(3, 2, seed=8), draw(3, 1, seed=7)
    noise = torch.zeros(3, 1).double()
    padded = X.clone(), Y.clone(), noise.clone()
    expected = gp.condition_on_observations(X[:2], Y[:2], noise[:2])
    for value, garbage in zip(padded, (math.nan, math.inf, math.inf), strict=True):
        value[2] = garbage
    found = gp.condition_on_observations(*padded)
    predictions_agree(found.surrogate, expected.surrogate, draw(5, 2, seed=5), 1e-11)


def test_no_new_rows_change_nothing():
    gp = model((2,), trend="linear")
    after = gp.condition_on_observations(draw(2, 0, 2), draw(4, 2, 0, 1))
    assert after.batch_shape == (4, 2)
    Xq = draw(3, 2, seed=5)
    same(after.posterior(Xq).mean, gp.posterior(Xq).mean.expand(4, 2, 3, 1), 1e-12)


@pytest.mark.parametrize("kind", ["exact", "noisy"])
def test_unknown_noise_is_the_mean_of_the_rows(kind):
    gp = model(kind=kind)
    X, Y = draw(2, 2, seed=8), draw(2, 1, seed=7)
    mean = gp.known_noise.noise_var.mean().expand(2, 1)
    assert (float(mean[0]) > 0) == (kind == "noisy")
    found, expected = gp.condition_on_observations(X, Y), gp.condition_on_observations(X, Y, mean)
    predictions_agree(found.surrogate, expected.surrogate, draw(5, 2, seed=5), 1e-14)


@pytest.mark.parametrize("trend", TRENDS)
def test_a_trend_that_explained_all_rows_meets_one_that_it_does_not(trend):
    X = draw(8, 2)
    y = 1.0 + X.sum(dim=-1) if trend == "linear" else torch.full((8,), 3.0).double()
    hyper = Hyperparameters(theta=f64([3.0, 3.0]))
    gp = KrigingGP(X, y, hyper, trend=trend, nugget=1e-6)
    assert bool(gp.surrogate.data.is_exact)
    new = draw(1, 2, seed=8)
    mean = gp.posterior(new).mean
    on_trend = gp.condition_on_observations(new, mean)
    assert bool(on_trend.surrogate.data.is_exact)
    same(on_trend.posterior(draw(5, 2, seed=5)).mean, gp.posterior(draw(5, 2, seed=5)).mean)
    off_trend = gp.condition_on_observations(new, mean + 2.0)
    assert not bool(off_trend.surrogate.data.is_exact)
    same(off_trend.posterior(new).mean, mean + 2.0, 1e-4)


# --- repeated rows ---


@pytest.mark.parametrize("nugget", [0.0, None, 1e-4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [None, 1.0])
def test_repeated_rows_are_predicted_by_their_mean(nugget, dtype, p):
    X, hyper = draw(10, 2).to(dtype), torch.full((2,), 6.0, dtype=dtype)
    y = wavy(X)
    powers = None if p is None else torch.full_like(hyper, p)
    gp = KrigingGP(X, y, Hyperparameters(theta=hyper, p=powers), nugget=nugget)
    new, Y = X[[4, 4]], (y[[4, 4]] + y.new_tensor([0.3, 0.6])).unsqueeze(-1)
    after = gp.condition_on_observations(new, Y)
    jitter = float(after.surrogate.jitter)
    assert (jitter > 0.0) == (nugget == 0.0)
    assert jitter == 0.0 or min(abs(jitter - size) for size in JITTERS) < 1e-3 * jitter
    mean, variance = after.surrogate.predict(X)
    assert bool((variance >= 0).all())
    if nugget == 0.0:  # the jitter is in the new rows only
        assert abs(float(mean[4] - y[4])) < 0.02
    else:
        assert abs(float(mean[4] - y[4]) - 0.3) < 0.03
    others = torch.arange(10) != 4
    torch.testing.assert_close(mean[others], y[others], rtol=0, atol=0.02)


def test_new_rows_get_the_jitter_of_the_old_ones():
    base = draw(8, 1)
    X = torch.cat([base, base + 1e-14])
    hyper = Hyperparameters(theta=f64([3.0]), p=f64([1.5]))
    gp = KrigingGP(X, wavy(torch.cat([base, base])), hyper, nugget=0.0)
    jitter = gp.surrogate.jitter
    assert float(jitter) in JITTERS
    new = draw(2, 1, seed=8)
    after = gp.condition_on_observations(new, draw(2, 1, seed=7)).surrogate
    assert torch.equal(after.jitter, jitter)
    L = after.factors.L
    same((L @ L.mT).diagonal() - 1.0, jitter.expand(18), 1e-3)


def test_gradients_at_a_repeated_row_are_finite():
    for p in (None, 1.0, 1.5):
        gp = model(p=p, nugget=1e-10)
        rows = gp.train_inputs
        X = torch.cat([rows[0][:2], draw(1, 2, seed=8)]).requires_grad_()
        Y = wavy(X).detach().unsqueeze(-1).requires_grad_()
        posterior = gp.condition_on_observations(X, Y).posterior(draw(3, 2, seed=5))
        total = posterior.mean.sum() + posterior.variance.sum()
        for gradient in torch.autograd.grad(total, (X, Y)):
            assert gradient.isfinite().all()
            assert gradient[-1].abs().min() > 0


# --- gradients ---


@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("p", [None, 1.5])
def test_look_ahead_is_differentiable_in_points_values_and_noise(trend, p):
    gp = model(n=6, trend=trend, p=p)
    Xq = draw(2, 2, seed=5)

    def look_ahead(X, Y, noise):
        normal = gp.condition_on_observations(X, Y, noise)(Xq)
        return normal.mean, normal.covariance_matrix

    rows = draw(2, 2, 2, seed=8), draw(3, 2, 2, 1, seed=7), 0.1 + draw(2, 1, seed=9)
    assert gradcheck(look_ahead, [t.requires_grad_() for t in rows])


# --- fantasies ---


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", ["exact", "noisy"])
def test_fantasies_are_rows_drawn_from_the_posterior(batch, kind):
    gp = model(batch, kind=kind, trend="linear")
    X = draw(*batch, 2, 2, seed=8)
    fantasies = gp.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1))
    assert isinstance(fantasies, KrigingGP)
    assert fantasies.batch_shape == (4, *batch)
    drawn = SobolQMCNormalSampler(torch.Size([4]), seed=1)(gp.posterior(X, observation_noise=True))
    noise = gp.known_noise.mean[..., None].expand(*batch, 2)
    for i in range(4):
        again = refactorised(gp, X, drawn[i, ..., 0], noise)
        same(fantasies.posterior(X).mean[i, ..., 0], again.mean(X))
    # Averaged over fantasies, means are those of the model, and variances do not differ.
    many = gp.fantasize(X, SobolQMCNormalSampler(torch.Size([256]), seed=1))
    Xq = draw(*batch, 3, 2, seed=5)
    spread = gp.posterior(Xq).mean.std()
    assert (many.posterior(Xq).mean.mean(dim=0) - gp.posterior(Xq).mean).abs().max() < 0.1 * spread
    variance = many.posterior(Xq).variance
    same(variance[0], variance[-1], 1e-12)
    assert (variance[0] < gp.posterior(Xq).variance).all()


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (5, 2, 1)])
def test_fantasies_with_a_given_noise(shape):
    gp, X = model(), draw(5, 2, 2, seed=8)
    noise = 0.1 + draw(*shape, seed=9)
    fantasies = gp.fantasize(X, SobolQMCNormalSampler(torch.Size([4]), seed=1), noise)
    noise_var = fantasies.known_noise.noise_var
    assert torch.equal(noise_var[..., 12:], noise.expand(4, 5, 2, 1).squeeze(-1))


def test_fantasies_of_fantasies():
    gp = model(trend="linear")
    sampler = SobolQMCNormalSampler(torch.Size([3]), seed=1)
    once = gp.fantasize(draw(5, 1, 2, seed=8), sampler)
    twice = once.fantasize(draw(3, 5, 2, 2, seed=9), SobolQMCNormalSampler(torch.Size([2]), seed=2))
    assert twice.batch_shape == (2, 3, 5)
    rows, values = twice.train_inputs, twice.train_targets
    again = refactorised(
        gp, rows[0][..., 12:, :], values[..., 12:], torch.zeros(2, 3, 5, 3).double()
    )
    predictions_agree(twice.surrogate, again, draw(5, 4, 2, seed=5))


def test_gpytorchs_way_has_no_output_dimension():
    gp, X, y = model(), draw(3, 2, seed=8), draw(3, seed=7)
    noise = 0.1 * draw(3, seed=9)
    expected = gp.condition_on_observations(X, y.unsqueeze(-1), noise.unsqueeze(-1))
    for inputs in (X, [X]):
        found = gp.get_fantasy_model(inputs, y, noise=noise)
        predictions_agree(found.surrogate, expected.surrogate, draw(5, 2, seed=5), 0.0)


# --- solving with shared factors ---


@pytest.mark.parametrize(
    ("factors", "columns"),
    [
        ((), ()),
        ((), (4, 3)),
        ((3,), (4, 3)),
        ((4, 1), (4, 3)),
        ((1, 3), (4, 3)),
        ((2, 1, 3), (4, 1)),
    ],
)
@pytest.mark.parametrize("adjoint", [False, True])
def test_solving_equals_solving_with_copies(factors, columns, adjoint):
    L = draw(*factors, 5, 5).tril() + torch.eye(5).double()
    B = draw(*columns, 5, 2, seed=1)
    matrix = L.mT if adjoint else L
    expected = torch.linalg.solve(matrix, B)
    found = solve_lower(L, B, adjoint=adjoint)
    same(found, expected, 1e-12)


# --- what is refused ---

X0, Y0 = draw(3, 2, seed=8), draw(3, 1, seed=7)
BAD = Y0.clone()
BAD[1] = math.nan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Y": Y0[:, 0]}, "Y must have shape (*batch, q, 1), got a tensor of shape (3,)"),
        ({"Y": Y0.expand(3, 2)}, "Y must have shape (*batch, q, 1)"),
        ({"Y": Y0[:2]}, "Y must have 3 rows to go with X, got a tensor of shape (2,)"),
        ({"X": draw(3, 3)}, "X must have shape (*batch, q, 2), got a tensor of shape (3, 3)"),
        ({"X": X0.float()}, "X must have the model's dtype and device (torch.float64, cpu)"),
        ({"Y": Y0.float()}, "Y must have the model's dtype and device"),
        ({"X": X0 * math.inf}, "X must be finite"),
        ({"Y": BAD}, "Y must be finite"),
        ({"noise": Y0 - 2.0}, "noise must be >= 0"),
        ({"noise": BAD}, "noise must be >= 0"),
        ({"noise": Y0[:, 0]}, "noise must have shape (*batch, q, 1)"),
        ({"noise": Y0[:2]}, "noise must have 3 rows to go with X"),
        (
            {"X": X0.expand(2, 3, 2), "Y": Y0.expand(3, 3, 1)},
            "the batch shapes of the model, X, Y and noise must broadcast, got (), (2,), (3,)",
        ),
        ({"Y": [[1.0]]}, "Y must have shape (*batch, q, 1), got [[1.0]] (list)"),
        ({"Y": None}, "Y must have shape (*batch, q, 1), got None"),
        ({"X": X0.tolist()}, "X must be a tensor, got [["),
        ({"noise": 0.1}, "noise must have shape (*batch, q, 1), got 0.1 (float)"),
        ({"lr": 1}, "condition_on_observations does not know ['lr']"),
    ],
)
def test_wrong_rows_are_refused(changes, message, unchecked):
    with pytest.raises(InvalidInputError, match=re.escape(message)):
        model().condition_on_observations(**{"X": X0, "Y": Y0, **changes})
