"""`KrigingGP` under what BoTorch and GPyTorch ask of a model."""

import re
import warnings
from typing import Any
from unittest import TestCase

import pytest
import torch
from botorch.acquisition import (
    LogExpectedImprovement,
    UpperConfidenceBound,
    qKnowledgeGradient,
    qLogExpectedImprovement,
)
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from botorch.sampling import ListSampler, SobolQMCNormalSampler
from botorch.utils.testing import BotorchTestCase
from gpytorch.likelihoods.gaussian_likelihood import _GaussianLikelihoodBase
from gpytorch.test.base_likelihood_test_case import BaseLikelihoodTestCase
from gpytorch.test.base_test_case import BaseTestCase
from gpytorch.test.model_test_case import BaseModelTestCase

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import Hyperparameters, KrigingGP, fit_kriging
from tcsaea_torch.models.parts import KnownNoise
from tests.models.models import BATCHES, KINDS, TRENDS, draw, f64, model, same, sigma2_of, wavy

BOX = f64([[0, 0], [1, 1]])
# Raised by BoTorch's initialisers: too few restarts, flat starts.
ignore_their_warnings = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.warnings.BotorchWarning"
)


def sampler(n=16, seed=1):
    return SobolQMCNormalSampler(torch.Size([n]), seed=seed)


def maximise(acquisition, q=1, **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return optimize_acqf(
            acquisition, BOX, q=q, **{"num_restarts": 2, "raw_samples": 8, **options}
        )


# --- the posterior ---


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("trend", TRENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_posterior_of_many_batches(batch, trend, kind):
    gp = model(batch, kind=kind, trend=trend)
    assert isinstance(gp, Model)
    assert (gp.batch_shape, gp.num_outputs) == (torch.Size(batch), 1)
    X = draw(4, *(batch or [5]), 3, 2, seed=5)
    posterior = gp.posterior(X)
    assert posterior.mean.shape == posterior.variance.shape == (*X.shape[:-1], 1)
    samples = posterior.rsample(torch.Size([6]))
    assert samples.shape == (6, *X.shape[:-1], 1)
    mean, covariance = gp.surrogate.predict_joint(X)
    same(posterior.mean.squeeze(-1), mean, 1e-12)
    # One by one; relative to the process variance.
    sigma2 = sigma2_of(gp)
    for i in range(3):
        alone = gp.posterior(X[..., i : i + 1, :])
        same(alone.mean[..., 0, 0], mean[..., i], 1e-12)
        difference = alone.variance[..., 0, 0] - covariance[..., i, i]
        assert float(difference.abs().max()) < 1e-12 * sigma2
        _, variance = gp.surrogate.predict(X[..., i : i + 1, :])
        difference = variance[..., 0] - covariance[..., i, i]
        assert float(difference.abs().max()) < 1e-12 * sigma2


@pytest.mark.parametrize("batch", BATCHES)
def test_samples_are_functions_of_base_samples(batch):
    gp, X = model(batch), draw(*batch, 3, 2, seed=5).requires_grad_()
    posterior = gp.posterior(X)
    base = torch.randn(8, *batch, 3, generator=torch.Generator().manual_seed(0)).double()
    samples = posterior.rsample_from_base_samples(torch.Size([8]), base)
    root = torch.linalg.cholesky(gp(X).covariance_matrix)
    same(samples, posterior.mean + root @ base.unsqueeze(-1), 1e-9)
    (gradient,) = torch.autograd.grad(samples.square().sum(), X)
    assert gradient.isfinite().all()
    assert float(gradient.abs().min()) > 0


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("p", [1.5, 2.0])
def test_samples_at_training_points_do_not_depend_on_the_outputs_units(scale, p):
    X = draw(40, 2)
    config = Hyperparameters(theta=f64([3.0, 2.0]), p=None if p == 2.0 else f64([p, p]))
    gp = KrigingGP(X, scale * wavy(X), config, nugget=0.0 if p == 1.5 else None)
    at = torch.cat([X, X[:5], draw(3, 2, seed=5)])
    samples = sampler(4)(gp.posterior(at)).squeeze(-1) / scale
    torch.testing.assert_close(samples[:, :40], wavy(X).expand(4, 40), rtol=0, atol=1e-3)
    torch.testing.assert_close(samples[:, 40:45], samples[:, :5], rtol=0, atol=1e-3)
    assert float(samples[:, 45:].std(dim=0).min()) > 1e-5


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("shape", [(3, 1), (1, 1), (2, 3, 1), (2, 1, 1)])
def test_observation_noise_may_be_given(batch, shape):
    gp, X = model(batch), draw(2, 3, 2, seed=5)
    noise = 0.1 + draw(*shape, seed=6)
    latent, observed = gp.posterior(X), gp.posterior(X, observation_noise=noise)
    same(observed.mean, latent.mean, 1e-14)
    same(observed.variance - latent.variance, noise.expand(2, 3, 1), 1e-12)
    if batch:  # fewer dimensions than the model's
        observed = gp.posterior(X[0], observation_noise=noise)
        assert observed.variance.shape == (2, 3, 1)


def test_posteriors_are_transformed():
    gp, X = model(), draw(3, 2, seed=5)
    transform = ScalarizedPosteriorTransform(weights=f64([-2.0]), offset=1.0)
    plain, found = gp.posterior(X), gp.posterior(X, posterior_transform=transform)
    same(found.mean, 1.0 - 2.0 * plain.mean, 1e-12)
    same(found.variance, 4.0 * plain.variance, 1e-12)


def test_there_is_one_output(unchecked):
    gp, X = model(), draw(3, 2, seed=5)
    for indices in ([0], [-1]):
        assert torch.equal(gp.posterior(X, output_indices=indices).mean, gp.posterior(X).mean)
        assert torch.equal(gp.subset_output(indices).posterior(X).mean, gp.posterior(X).mean)
    for wrong in ([1], [0, 0], []):
        with pytest.raises(InvalidInputError, match=r"output_indices must be \[0\]"):
            gp.posterior(X, output_indices=wrong)
        with pytest.raises(InvalidInputError, match=r"idcs must be \[0\]"):
            gp.subset_output(wrong)
    noises: list[Any] = [draw(3), draw(2, 1), -draw(3, 1), "yes"]
    for noise in noises:
        with pytest.raises(InvalidInputError, match="observation_noise must"):
            gp.posterior(X, observation_noise=noise)
    with pytest.raises(InvalidInputError, match=re.escape("X must have shape (*batch, q, 2)")):
        gp.posterior(draw(3, 3))
    with pytest.raises(InvalidInputError, match=re.escape("X must have shape (*batch, q, 2)")):
        gp(X.numpy())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(1, 1), (5000, 1)])
def test_variances_at_training_points_are_not_negative(dtype, batch):
    X = draw(40, 2).to(dtype)
    gp = fit_kriging(X, wavy(X))
    at = X[torch.arange(batch[0]) % 40].unsqueeze(1)
    posterior = gp.posterior(at)
    for variance in (posterior.variance, gp(at).variance, gp.surrogate.predict(at)[1]):
        assert bool((variance >= 0).all())
        # float32: the nugget is 1e-5.
        limit = 1e-3 if dtype == torch.float32 else 1e-9
        assert float(variance.max()) <= limit * sigma2_of(gp)


# --- acquisition functions ---


def two_objectives(kind="exact", p=None):
    """Two models, their values to be maximised, and the points of their rows."""
    first = model(kind=kind, p=p, n=14)
    X = first.train_inputs[0]
    hyper = Hyperparameters(theta=f64([3.0, 2.0]))
    second = KrigingGP(X, -(X - 0.7).square().sum(dim=-1), hyper, nugget=1e-6)
    return ModelListGP(first, second), X


@pytest.mark.parametrize("kind", ["exact", "noisy"])
@pytest.mark.parametrize("p", [None, 1.5])
def test_cached_factors_do_not_change_hypervolume_improvement(kind, p):
    models, X = two_objectives(kind, p)
    Xq, values = draw(6, 2, 2, seed=5).requires_grad_(), []
    for cache_root in (True, False):
        torch.manual_seed(0)  # of the samples by which the baseline is pruned
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            models,
            ref_point=[-0.5, -1.0],
            X_baseline=X,
            sampler=sampler(32),
            prune_baseline=True,
            cache_root=cache_root,
            X_pending=draw(1, 2, seed=6),
        )
        assert acquisition._cache_root == cache_root
        value = acquisition(Xq)
        (gradient,) = torch.autograd.grad(value.sum(), Xq)
        values.append((value.detach(), gradient))
    for cached, plain in zip(*values, strict=True):
        same(cached, plain, 1e-8)
        assert float(plain.abs().max()) > 1e-3


@ignore_their_warnings
@pytest.mark.parametrize(("q", "sequential"), [(1, False), (2, True), (2, False)])
def test_hypervolume_improvement_is_optimised(q, sequential):
    models, X = two_objectives()
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        models,
        ref_point=[-0.5, -1.0],
        X_baseline=X,
        sampler=sampler(),
        prune_baseline=True,
        X_pending=draw(1, 2, seed=6),
    )
    found, value = maximise(acquisition, q, sequential=sequential)
    assert found.shape == (q, 2)
    assert bool(((found >= 0) & (found <= 1)).all())
    assert value is not None
    acquisition.set_X_pending(draw(1, 2, seed=6))
    random = acquisition(draw(50, q, 2, seed=7)).max()
    assert float(acquisition(found)) > float(random) - 0.1


@ignore_their_warnings
@pytest.mark.parametrize("make", [
    lambda gp: LogExpectedImprovement(gp, best_f=1.5),
    lambda gp: UpperConfidenceBound(gp, beta=4.0),
    lambda gp: qLogExpectedImprovement(gp, best_f=1.5, sampler=sampler()),
])  # fmt: skip
def test_single_objective_acquisitions_are_optimised(make):
    acquisition = make(model())
    found, value = maximise(acquisition, num_restarts=4, raw_samples=16)
    assert value is not None
    assert float(value) >= float(acquisition(draw(200, 1, 2, seed=7)).max()) - 1e-3
    assert float(wavy(found)) > 0.5


def test_knowledge_gradient_equals_conditioning_by_hand():
    gp, X = model(trend="linear"), draw(3, 6, 2, seed=5)
    gradient = qKnowledgeGradient(gp, num_fantasies=4, sampler=sampler(4))
    found = gradient(X)
    actual, best = X[:, :2], X[:, 2:]
    drawn = sampler(4)(gp.posterior(actual))
    rows = gp.train_inputs
    for i in range(3):
        means = []
        for j in range(4):
            again = KrigingGP(
                torch.cat([rows[0], actual[i]]),
                torch.cat([gp.train_targets, drawn[j, i, :, 0]]),
                gp.hyperparameters,
                trend="linear",
                nugget=1e-6,
            )
            means.append(float(again.posterior(best[i, j : j + 1]).mean))
        assert float(found[i]) == pytest.approx(sum(means) / 4, abs=1e-8)


@ignore_their_warnings
@pytest.mark.parametrize("q", [1, 2])
def test_knowledge_gradient_is_optimised(q):
    gp = model()
    gradient = qKnowledgeGradient(gp, num_fantasies=4, sampler=sampler(4))
    X = draw(2, q + 4, 2, seed=5).requires_grad_()
    (slope,) = torch.autograd.grad(gradient(X).sum(), X)
    assert slope.isfinite().all()
    assert float(slope[:, :q].abs().min()) > 0
    found, value = maximise(gradient, q, options={"maxiter": 30})
    assert found.shape == (q, 2)
    assert value is not None
    assert float(value) > float(gradient(X).detach().max())


def parts(models: Any) -> list[KrigingGP]:
    return list(models.models)


def test_lists_of_models_fantasise_each_objective_by_itself():
    models, _ = two_objectives("noisy")
    X = draw(3, 2, 2, seed=5)
    fantasies: Any = models.fantasize(X, sampler(4))
    mean = fantasies.posterior(draw(5, 2, seed=6)).mean
    assert mean.shape == (4, 3, 5, 2)
    # At one point only the first objective, at the other only the second one.
    decoupled = models.fantasize(
        X, ListSampler(sampler(4), sampler(4, seed=2)), evaluation_mask=torch.eye(2).bool()
    )
    assert [len(m.train_inputs[0][0, 0]) for m in parts(decoupled)] == [15, 15]
    nothing = models.fantasize(
        X,
        ListSampler(sampler(4), sampler(4, seed=2)),
        evaluation_mask=torch.tensor([[True, False], [True, False]]),
    )
    assert parts(nothing)[0].train_inputs[0].shape == (4, 3, 16, 2)
    same(
        parts(nothing)[1].posterior(X[0]).mean[3, 2],
        parts(models)[1].posterior(X[0]).mean,
        1e-12,
    )
    Y = draw(3, 2, 2, seed=7)
    both = models.condition_on_observations([X, X], Y, noise=0.1 + draw(3, 2, 2, seed=8))
    expected = parts(models)[1].condition_on_observations(
        X, Y[..., 1:], 0.1 + draw(3, 2, 2, seed=8)[..., 1:]
    )
    Xq = draw(4, 2, seed=6)
    same(both.posterior(Xq).mean[..., 1:], expected.posterior(Xq).mean, 1e-12)


# --- the test cases of GPyTorch and BoTorch ---


@pytest.fixture(autouse=True)
def _their_random_numbers():
    """Their test cases draw from the global generator."""
    with torch.random.fork_rng():
        yield


class TestOurModelInGPyTorchsTestCase(BaseTestCase, BaseModelTestCase, TestCase):
    seed = 0

    def create_model(self, train_x, train_y, likelihood):
        hyper = Hyperparameters(theta=torch.ones(train_x.shape[:-2] + train_x.shape[-1:]))
        return KrigingGP(train_x, train_y, hyper)

    def create_test_data(self):
        return torch.randn(50, 1)

    def create_likelihood_and_labels(self):
        return None, torch.randn(50) + 2

    def create_batch_test_data(self, batch_shape=torch.Size([3])):  # noqa: B008
        return torch.randn(*batch_shape, 50, 1)

    def create_batch_likelihood_and_labels(self, batch_shape=torch.Size([3])):  # noqa: B008
        return None, torch.randn(*batch_shape, 50) + 2


class TestOurNoiseInGPyTorchsTestCase(BaseLikelihoodTestCase, TestCase):
    seed = 0

    def create_likelihood(self, **kwargs):
        return _GaussianLikelihoodBase(KnownNoise(0.1 + torch.rand(5)))


class TestOurModelInBoTorchsTestCase(BotorchTestCase):
    def test_posterior(self):
        with warnings.catch_warnings():
            gp, X = model((2,)), draw(2, 3, 2, seed=5)
            posterior = gp.posterior(X)
            self.assertAllClose(posterior.mean, gp.surrogate.mean(X).unsqueeze(-1))
