"""The BoTorch model with the transfer inside."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.acquisition.multi_objective.logei import (
    qLogExpectedHypervolumeImprovement,
    qLogNoisyExpectedHypervolumeImprovement,
)
from botorch.acquisition.multi_objective.parego import qLogNParEGO
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling import ListSampler, SobolQMCNormalSampler
from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning

from tcsaea_torch.acquisition import BiObjectiveEHVI
from tcsaea_torch.acquisition.hypervolume_botorch import training_values
from tcsaea_torch.botorch_models import CoSurrogateModel
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.transfer import LinkConfig

NAN, D, N_FAST, N_SLOW = torch.nan, 5, 100, 20
BOX = torch.tensor([[-1.0] * D, [3.0] * D]).double()
QUICK = (FitConfig(theta_prior=(2.0, 3.0), nugget=1e-8, options=BFGSOptions(max_evaluations=30)),)
"""Other kernels would take longer, and do the same."""
ignore_their_warnings = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.warnings.BotorchWarning"
)


def points(n, seed, d=D):
    u, jitter = uniforms(torch.tensor([seed]), "points", 0, (2, n, d))[0]
    return BOX[0, :d] + (BOX[1] - BOX[0])[:d] * latin_hypercube(u, jitter)


def dtlz2(X):
    """Return two objectives of one angle."""
    U = (X - BOX[0]) / (BOX[1] - BOX[0])
    radius, angle = 1 + (U[..., 1:] - 0.5).square().sum(dim=-1), 0.5 * torch.pi * U[..., 0]
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=-1)


def unlinked(X):
    """Return objectives that have nothing to do with each other."""
    return torch.stack([X[..., 0].sin() + X[..., 1], (2 * X[..., 3]).cos() * X[..., 4]], dim=-1)


def data(function, n_fast=N_FAST, n_slow=N_SLOW):
    """Return points and values to be maximised, the slow ones of the first points only."""
    X = points(n_fast, 1)
    Y = -function(X)
    Y[n_slow:, 1] = NAN
    return X, Y


@pytest.fixture(scope="module")
def default():
    return CoSurrogateModel.fit(*data(dtlz2), BOX)


@pytest.fixture(scope="module")
def linked():
    return CoSurrogateModel.fit(*data(dtlz2), BOX, kriging=QUICK)


@pytest.fixture(scope="module")
def plain():
    return CoSurrogateModel.fit(*data(dtlz2), BOX, link=None, kriging=QUICK)


def errors(model, function=dtlz2, dtype=torch.float64):
    X = points(300, 2)
    with torch.no_grad():
        posterior = model.posterior(X.to(dtype).unsqueeze(1))
    error = posterior.mean.squeeze(1) + function(X)
    return error.square().mean(dim=0).sqrt(), error.abs() / posterior.variance.squeeze(1).sqrt()


def parts(model: Any) -> list[Any]:
    return list(model.models)


def sampler(n=16, seed=1):
    return SobolQMCNormalSampler(torch.Size([n]), seed=seed)


# ---------------------------------------------------------------- the transfer


@pytest.mark.parametrize("kind", ["default", "linked"])
def test_the_slow_model_profits_from_the_fast_one(request, plain, kind):
    model = request.getfixturevalue(kind)
    assert isinstance(model, Model)
    assert model.link == "angle"
    (fast, slow), distance = errors(model)
    (fast_alone, slow_alone), _ = errors(plain)
    assert slow < 0.05 * slow_alone
    if kind == "linked":
        assert fast == fast_alone
    assert float((distance < 2).double().mean()) > 0.9


def test_synthetic_values_can_be_looked_at(linked, plain):
    found, X = linked.synthetic, data(dtlz2)[0]
    assert torch.equal(found.X, X[N_SLOW:])
    assert int(found.is_believed.sum()) > 70
    error = (found.y + dtlz2(found.X)[:, 1])[found.is_believed]
    assert float(error.abs().median()) < 0.002
    assert float((error.abs() / found.noise_var[found.is_believed].sqrt()).max()) < 6
    assert bool((found.noise_var > 0).all())
    assert len(parts(linked)[1].train_targets) == N_SLOW + int(found.is_believed.sum())
    U = (X[N_SLOW:] - BOX[0]) / (BOX[1] - BOX[0])
    mean, _ = linked.slow_from_fast.predict(U[None], dtlz2(X[N_SLOW:])[None, :, 0])
    torch.testing.assert_close(-mean[0], found.y)
    assert plain.link is plain.synthetic is plain.slow_from_fast is None


def test_without_a_link_nothing_changes():
    X, Y = data(unlinked)
    with_links = CoSurrogateModel.fit(X, Y, BOX, kriging=QUICK)
    without = CoSurrogateModel.fit(X, Y, BOX, link=None, kriging=QUICK)
    assert with_links.link is None
    Xq = points(50, 3)
    for moment in ("mean", "variance"):
        a, b = (getattr(m.posterior(Xq), moment) for m in (with_links, without))
        assert torch.equal(a, b)


def test_without_a_point_of_the_fast_objective_alone_nothing_is_linked(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("links cost time")

    monkeypatch.setattr("tcsaea_torch.botorch_models.fitting.fit_links", never)
    X, Y = data(dtlz2)
    Y[N_SLOW:, 0] = NAN  # neither value: left out
    model = CoSurrogateModel.fit(X, Y, BOX, kriging=QUICK)
    assert model.link is None
    assert [len(m.train_targets) for m in parts(model)] == [N_SLOW, N_SLOW]
    model = CoSurrogateModel.fit(*data(dtlz2, 30, 5), BOX, kriging=QUICK)  # too few with both
    assert model.link is None


def test_float32_works(linked):
    X, Y = (t.float() for t in data(dtlz2))
    model = CoSurrogateModel.fit(X, Y, BOX, kriging=QUICK)
    posterior = model.posterior(X[:3])
    assert posterior.mean.dtype == posterior.variance.dtype == torch.float32
    assert model.link == "angle"
    assert float(errors(model, dtype=torch.float32)[0][1]) < 0.02


def test_signs_are_the_users(linked):
    X, Y = data(dtlz2)
    other = CoSurrogateModel.fit(X, -Y, BOX, maximize=False, kriging=QUICK)
    assert other.link == "angle"
    Xq = points(20, 3)
    a, b = linked.posterior(Xq), other.posterior(Xq)
    torch.testing.assert_close(a.mean, -b.mean)
    torch.testing.assert_close(a.variance, b.variance)
    assert other.synthetic is not None
    torch.testing.assert_close(linked.synthetic.y, -other.synthetic.y)
    # Links that need values >= 0 cannot be where these are taken for negative ones.
    wrong = CoSurrogateModel.fit(X, Y, BOX, maximize=False, kriging=QUICK)
    assert wrong.link not in ("angle", "ratio")


def test_lower_bounds_make_links_possible():
    X, Y = data(dtlz2)
    Y = Y + torch.tensor([3.0, 2.0])  # minimised values from -3 and -2 on
    bounded = CoSurrogateModel.fit(X, Y, BOX, kriging=QUICK, objective_lower_bounds=(-3, -2))
    assert bounded.link == "angle"
    assert CoSurrogateModel.fit(X, Y, BOX, kriging=QUICK).link != "angle"


def test_values_of_a_point_may_come_in_several_rows(linked):
    X, Y = data(dtlz2)
    fast, slow = Y.clone(), Y.clone()
    fast[:, 1], slow[:, 0] = NAN, NAN
    model = CoSurrogateModel.fit(torch.cat([X, X]), torch.cat([fast, slow]), BOX, kriging=QUICK)
    Xq = points(20, 3)
    assert torch.equal(model.posterior(Xq).mean, linked.posterior(Xq).mean)


def test_the_unit_cube_is_the_default_and_parameters_may_be_fixed():
    X, Y = data(dtlz2, 30, 12)
    U = (X - BOX[0]) / (BOX[1] - BOX[0])
    options: Any = {"kriging": QUICK, "link": None}
    a = CoSurrogateModel.fit(U, Y, **options).posterior(U[:4]).mean
    b = CoSurrogateModel.fit(X, Y, BOX, **options).posterior(X[:4]).mean
    torch.testing.assert_close(a, b)
    wide = torch.cat([X, torch.full((30, 1), 7.0).double()], dim=-1)
    box = torch.cat([BOX, torch.full((2, 1), 7.0).double()], dim=-1)
    found = CoSurrogateModel.fit(wide, Y, box, **options).posterior(wide[:4]).mean
    torch.testing.assert_close(found, a, rtol=0, atol=0.1)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_values_are_enough(n):
    model = CoSurrogateModel.fit(*data(dtlz2, 12, n), BOX)
    assert bool(model.posterior(points(5, 3)).mean.isfinite().all())
    assert model.link is None


# ---------------------------------------------------------------- a BoTorch model


def test_shapes_and_parts(linked):
    assert linked.num_outputs == 2
    assert linked.batch_shape == torch.Size([])
    X = points(12, 3).unflatten(0, (2, 2, 3))
    posterior = linked.posterior(X)
    assert posterior.mean.shape == posterior.variance.shape == (2, 2, 3, 2)
    with torch.random.fork_rng():
        assert posterior.rsample(torch.Size([4])).shape == (4, 2, 2, 3, 2)
    for i in range(2):
        alone: Any = linked.subset_output([i])
        assert torch.equal(alone.posterior(X).mean[..., 0], posterior.mean[..., i])
        same = linked.posterior(X, output_indices=[i]).mean[..., 0]
        assert torch.equal(same, posterior.mean[..., i])
    swapped = linked.subset_output([1, 0])
    assert type(swapped) is ModelListGP
    assert torch.equal(swapped.posterior(X).mean, posterior.mean.flip(-1))
    assert linked.subset_output([0, 1]) is linked
    weights = torch.tensor([2.0, -1.0]).double()
    scalar = linked.posterior(X, posterior_transform=ScalarizedPosteriorTransform(weights))
    torch.testing.assert_close(scalar.mean[..., 0], posterior.mean @ weights)
    assert torch.equal(linked.posterior(X, observation_noise=True).variance, posterior.variance)
    noisy = linked.posterior(X, observation_noise=torch.full((3, 2), 0.5).double())
    torch.testing.assert_close(noisy.variance, posterior.variance + 0.5)


def test_joint_posteriors_have_exact_gradients(linked):
    X, base = points(6, 4).unflatten(0, (2, 3)), torch.linspace(-1, 1, 12).double()

    def value(X):
        posterior = linked.posterior(X)
        mvn = posterior.distribution
        samples = posterior.rsample_from_base_samples(
            torch.Size([1]), base.reshape(1, 2, 6).reshape(1, *mvn.batch_shape, *mvn.event_shape)
        )
        return samples.sin().sum() + posterior.variance.sqrt().sum()

    Xg = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(Xg), Xg)
    step = 1e-4
    for place in ((0, 0, 0), (1, 2, 3), (0, 1, 4)):
        ends = []
        for sign in (1, -1):
            moved = X.clone()
            moved[place] += sign * step
            with torch.no_grad():
                ends.append(float(value(moved)))
        slope = (ends[0] - ends[1]) / (2 * step)
        assert float(gradient[place]) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_new_values_are_exact_and_synthetic_ones_are_not(linked):
    X, known = points(3, 5), torch.tensor([[True, True], [True, False], [False, True]])
    before = linked.posterior(X)
    sd = before.variance.sqrt().detach()
    Y = torch.where(known, before.mean.detach() + 3 * sd, NAN)
    after = linked.condition_on_observations(X, Y)
    assert type(after) is CoSurrogateModel
    assert (after.link, after.synthetic) == (linked.link, linked.synthetic)
    assert bool((((after.posterior(X).mean - Y) / sd).abs()[known] < 0.5).all())
    far = after.posterior(points(4, 6))
    assert bool((far.mean - linked.posterior(points(4, 6)).mean).abs().max() > 0)
    # A fast value alone tells the slow model nothing.
    alone = linked.condition_on_observations(X[1:2], Y[1:2])
    torch.testing.assert_close(alone.posterior(X).mean[..., 1], before.mean[..., 1])
    noisy = linked.condition_on_observations(X, Y, noise=torch.full((3, 2), 1e3).double())
    torch.testing.assert_close(noisy.posterior(X).mean, before.mean, atol=1e-3, rtol=0)


def test_fantasies_are_of_measured_values(linked):
    X = points(6, 5).unflatten(0, (3, 2))
    fantasies = linked.fantasize(X, sampler(4))
    assert type(fantasies) is CoSurrogateModel
    posterior = fantasies.posterior(X)
    assert posterior.mean.shape == (4, 3, 2, 2)
    drawn = sampler(4)(linked.subset_output([1]).posterior(X))
    torch.testing.assert_close(posterior.mean[..., 1:], drawn, rtol=0, atol=1e-2)
    mask = torch.tensor([[True, False], [False, True]])
    decoupled = linked.fantasize(X, ListSampler(sampler(4), sampler(4)), evaluation_mask=mask)
    n = [len(m.train_targets[0, 0]) for m in parts(decoupled)]
    assert n == [len(m.train_targets) + 1 for m in parts(linked)]


def test_synthetic_values_are_nothing_to_be_improved_on(linked):
    _, Y = data(dtlz2)
    both = Y[Y.isfinite().all(dim=-1)]
    found = training_values(linked)
    assert found is not None
    torch.testing.assert_close(found[found[:, 0].argsort()], both[both[:, 0].argsort()])
    new = torch.tensor([[-0.5, -0.6]]).double()
    more = linked.condition_on_observations(points(1, 9), new, noise=torch.full_like(new, 0.01))
    after = training_values(more)
    assert after is not None
    torch.testing.assert_close(after, torch.cat([found, new]))
    with torch.no_grad():
        X = points(5, 11).unsqueeze(1)
        values = [BiObjectiveEHVI(linked, torch.zeros(2).double(), Y=Y)(X) for Y in (None, both)]
    torch.testing.assert_close(*values)


@ignore_their_warnings
def test_hypervolume_improvement_is_optimised(linked):
    X, Y = data(dtlz2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            linked,
            ref_point=[-1.6, -1.6],
            X_baseline=X[Y.isfinite().all(dim=-1)],
            sampler=sampler(),
            prune_baseline=True,
            X_pending=points(1, 8),
        )
        found, value = optimize_acqf(
            acquisition, BOX, q=2, num_restarts=2, raw_samples=16, sequential=True,
            options={"maxiter": 10},
        )  # fmt: skip
    assert found.shape == (2, D)
    assert bool(((found >= BOX[0]) & (found <= BOX[1])).all())
    assert value is not None
    acquisition.set_X_pending(points(1, 8))
    with torch.no_grad():
        random = acquisition(points(20, 7).unflatten(0, (10, 2)))
    assert float(acquisition(found)) > float(random.max())


@ignore_their_warnings
def test_other_acquisitions_take_it(linked):
    X, Y = data(dtlz2)
    both, weights = Y.isfinite().all(dim=-1), torch.tensor([0.4, 0.6]).double()
    ref_point = torch.tensor([-1.6, -1.6]).double()
    improvement = qLogExpectedHypervolumeImprovement(
        linked,
        ref_point=ref_point,
        partitioning=NondominatedPartitioning(ref_point, Y[both]),
        sampler=sampler(),
    )
    scalarised = qLogNParEGO(linked, X[both], scalarization_weights=weights, sampler=sampler())
    for acquisition in (improvement, scalarised):
        Xq = points(3, 8).unsqueeze(1).requires_grad_()
        value = acquisition(Xq)
        assert value.shape == (3,)
        (gradient,) = torch.autograd.grad(value.sum(), Xq)
        assert bool(gradient.isfinite().all())


# ---------------------------------------------------------------- refusals


@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be_fitted_is_refused():
    X, Y = data(dtlz2, 10, 10)

    def refuses(text, *given: Any, **options: Any):
        with pytest.raises(InvalidInputError, match=re.escape(text)):
            CoSurrogateModel.fit(*given, **options)

    nothing = Y.clone()
    nothing[:, 1] = NAN
    refuses("train_Y must hold at least one slow value, got none", X, nothing, BOX)
    refuses("train_Y must hold at least one fast value, got none", X, nothing.flip(-1), BOX)
    refuses("train_Y must have train_X's dtype and device", X, Y.float(), BOX)
    refuses("train_X must be a tensor n x d of float32 or float64", X.half(), Y, BOX)
    refuses("bounds must have shape (2, 5) to go with train_X, got (2, 4)", X, Y, BOX[:, :4])
    refuses("kriging must be a FitConfig", X, Y, BOX, kriging=("ard",))


def test_links_can_be_chosen():
    X, Y = data(dtlz2)
    config = LinkConfig(links=("autoregressive",), kriging=replace(LinkConfig().kriging, p=2.0))
    assert CoSurrogateModel.fit(X, Y, BOX, link=config, kriging=QUICK).link in (
        "autoregressive",
        None,
    )


@pytest.mark.usefixtures("unchecked")
def test_it_consists_of_two_models(linked):
    with pytest.raises(InvalidInputError, match="gp_models must be a BoTorch Model of the fast"):
        CoSurrogateModel(parts(linked)[0])
    with pytest.raises(InvalidInputError, match=re.escape("Y must have shape (*batch, q, 2)")):
        linked.condition_on_observations(points(2, 3), torch.zeros(2, 1).double())
