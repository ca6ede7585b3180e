"""A model's state: saved, loaded, copied, moved; and what it keeps."""

import copy
import gc
import pickle
import warnings
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import Hyperparameters, KrigingGP, fit_kriging
from tests.models.models import (
    BATCHES,
    KINDS,
    TRENDS,
    draw,
    f64,
    model,
    same,
    saved_and_loaded,
    sigma2_of,
    wavy,
)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("p", [None, 0.7])
@pytest.mark.parametrize("assign", [False, True])
def test_a_loaded_state_predicts_what_was_saved(batch, kind, p, assign):
    saved = model(batch, kind=kind, p=p, trend="linear", nugget=1e-5)
    other = model(batch, p=None if p is None else 1.3, seed=50)
    before = model(batch, p=None if p is None else 1.3, seed=50)
    held = other.surrogate
    result = other.load_state_dict(saved_and_loaded(saved.state_dict()), assign=assign)
    assert not result.missing_keys
    assert not result.unexpected_keys
    Xq = draw(*batch, 4, 2, seed=5)
    rows = (draw(2, 2, seed=6), draw(2, 1, seed=7))
    for found, expected in (
        (other, saved),
        (other.condition_on_observations(*rows), saved.condition_on_observations(*rows)),
    ):
        calls: Any = [m.likelihood(m(Xq)) for m in (found, expected)]
        assert torch.equal(calls[0].mean, calls[1].mean)
        assert torch.equal(calls[0].covariance_matrix, calls[1].covariance_matrix)
        assert all(
            torch.equal(a, b)
            for a, b in zip(found.train_inputs, expected.train_inputs, strict=True)
        )
        assert torch.equal(found.train_targets, expected.train_targets)
        assert torch.equal(found.covar_module(Xq).to_dense(), expected.covar_module(Xq).to_dense())
    # What was taken from the model earlier did not change under the hand that holds it.
    assert torch.equal(held.mean(Xq), before.surrogate.mean(Xq))
    assert torch.equal(saved.posterior(Xq).mean, other.posterior(Xq).mean)


def test_states_of_other_shapes_are_refused():
    gp = model()
    for other in (model(n=13), model((2,)), model(p=1.5), model(d=3)):
        with pytest.raises(RuntimeError, match="Error\\(s\\) in loading state_dict"):
            gp.load_state_dict(other.state_dict())


def test_the_state_of_a_list_of_models():
    models, other = ModelListGP(model(), model(seed=30)), ModelListGP(model(), model())
    other.load_state_dict(saved_and_loaded(models.state_dict()))
    Xq = draw(4, 2, seed=5)
    mine, theirs = (torch.as_tensor(m.posterior(Xq).mean) for m in (other, models))
    assert torch.equal(mine, theirs)


@pytest.mark.parametrize("batch", BATCHES)
def test_copies_predict_the_same(batch):
    gp = model(batch, kind="noisy").condition_on_observations(
        draw(2, 2, seed=6), draw(4, *batch, 2, 1)
    )
    Xq = draw(*batch, 4, 2, seed=5).requires_grad_()
    expected = gp.posterior(Xq)
    expected.variance.sum().backward()
    for other in (
        copy.deepcopy(gp),
        pickle.loads(pickle.dumps(gp)),
        gp.to(torch.float64),
        gp.eval(),
        gp.train().eval(),
        copy.deepcopy(gp).double(),
    ):
        found = other.posterior(Xq)
        assert torch.equal(found.mean, expected.mean)
        assert torch.equal(found.variance, expected.variance)
    single = copy.deepcopy(gp).float()
    assert {v.dtype for v in single.state_dict().values()} == {torch.float32, torch.bool}
    assert single.train_inputs[0].dtype == single.train_targets.dtype == torch.float32
    same(single.posterior(Xq.float()).mean.double(), expected.mean, 1e-3)
    # The first model did not follow its copy, nor a model made from it.
    prior = gp.covar_module(Xq).to_dense()
    gp.condition_on_observations(draw(2, 2, seed=6), draw(2, 1)).float()
    assert torch.equal(gp.covar_module(Xq).to_dense(), prior)
    assert torch.equal(gp.posterior(Xq).mean, expected.mean)


def test_in_training_mode_the_prior_is_returned():
    gp, Xq = model(), draw(4, 2, seed=5)
    expected = gp.posterior(Xq).mean
    gp.train()
    prior = gp(*gp.train_inputs)
    variance = sigma2_of(gp)
    same(prior.variance, torch.full((12,), variance, dtype=torch.float64), 1e-12)
    assert torch.equal(gp.posterior(Xq).mean, expected)
    assert not gp.training


def test_data_are_not_replaced():
    gp = model()
    with pytest.raises(InvalidInputError, match="the data of a KrigingGP are fixed"):
        gp.set_train_data(draw(12, 2), draw(12))


@pytest.mark.parametrize("trend", TRENDS)
def test_no_stored_tensor_has_a_history(trend):
    X, theta = draw(12, 2).requires_grad_(), f64([3.0, 2.0]).requires_grad_()
    sigma2, noise = f64(2.0).requires_grad_(), (0.1 * draw(12)).requires_grad_()
    gp = KrigingGP(X, wavy(X), Hyperparameters(theta=theta, variance=sigma2), noise, trend=trend)
    gp.posterior(draw(3, 2).requires_grad_()).mean.sum().backward()
    fitted = fit_kriging(X, wavy(X), trend=trend)
    for one in (gp, fitted, gp.condition_on_observations(draw(3, 2), draw(3, 1))):
        tensors = [*one.state_dict(keep_vars=True).values(), *one.train_inputs, one.train_targets]
        assert not any(t.requires_grad for t in tensors)
        copy.deepcopy(one)


def test_predictions_leave_nothing_behind():
    gp, Xq = model(), draw(4, 3, 2, seed=5).requires_grad_()

    def census():
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old names in torch
            return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

    def predict(times):
        for _ in range(times):
            posterior = gp.posterior(Xq)
            (posterior.mean.sum() + posterior.variance.sum()).backward()
            Xq.grad = None

    predict(3)
    before, size = census(), len(pickle.dumps(gp))
    predict(200)
    assert census() <= before
    assert len(pickle.dumps(gp)) == size
