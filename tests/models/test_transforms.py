"""BoTorch's transforms in a Kriging model, against transforming by hand."""

import copy
import math
from typing import Any

import pytest
import torch
from botorch.acquisition import qKnowledgeGradient
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP
from botorch.models.transforms.input import InputPerturbation, Normalize, Round
from botorch.models.transforms.outcome import Log, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import Hyperparameters, KrigingGP, fit_kriging
from tests.models.models import draw, f64, same, saved_and_loaded, wavy


def sampler(n=16, seed=1):
    return SobolQMCNormalSampler(torch.Size([n]), seed=seed)


def in_users_units(batch=(), n=12):
    lower, width = f64([10.0, -3.0]), f64([5.0, 20.0])
    unit = draw(*batch, n, 2)
    return unit, lower + width * unit, 1e4 + 300.0 * wavy(unit), torch.stack([lower, lower + width])


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("noisy", [False, True])
def test_transforms_equal_transforming_by_hand(batch, noisy):
    unit, X, y, bounds = in_users_units(batch)
    noise = 500.0 * draw(*batch, 12, seed=3) if noisy else None
    gp = fit_kriging(
        X,
        y,
        noise,
        p=1.7,
        input_transform=Normalize(2, bounds=bounds),
        outcome_transform=Standardize(1, batch_shape=torch.Size(batch)),
    )
    mean, std = y.mean(dim=-1, keepdim=True), y.std(dim=-1, keepdim=True)
    by_hand = fit_kriging(unit, (y - mean) / std, None if noise is None else noise / std**2, p=1.7)
    mean, std = mean.unsqueeze(-1), std.unsqueeze(-1)
    same(gp.hyperparameters.theta, by_hand.hyperparameters.theta, 1e-4)

    def agree(mine, theirs, Xq, **options):
        found = mine.posterior(bounds[0] + Xq * (bounds[1] - bounds[0]), **options)
        expected = theirs.posterior(Xq, **options)
        same(found.mean, mean + std * expected.mean, 1e-7)
        same(found.variance, std**2 * expected.variance, 1e-5)

    Xq = draw(*batch, 4, 2, seed=5)
    agree(gp, by_hand, Xq)
    agree(gp, by_hand, Xq, observation_noise=True)
    new, Y = draw(*batch, 2, 2, seed=6), draw(*batch, 2, 1, seed=7)
    noise = 0.1 + draw(*batch, 2, 1, seed=8)
    scaled = bounds[0] + new * (bounds[1] - bounds[0])
    after = gp.condition_on_observations(scaled, mean + std * Y, noise)
    agree(after, by_hand.condition_on_observations(new, Y, noise), Xq)
    # The rows are in the user's units in training mode, in the model's in evaluation.
    same(after.train_inputs[0][..., -2:, :], new, 1e-12)
    same(after.train().train_inputs[0][..., -2:, :], scaled, 1e-12)
    same(after.train_targets[..., -2:], Y.squeeze(-1), 1e-10)
    agree(after, by_hand.condition_on_observations(new, Y, noise), Xq)
    fantasies = gp.fantasize(scaled, sampler(4))
    same(fantasies.posterior(scaled).mean.mean(dim=0), gp.posterior(scaled).mean, 0.05)


def test_learnt_transforms_are_learnt_once_and_saved():
    _, X, y, _ = in_users_units()
    transforms = lambda: {"input_transform": Normalize(2), "outcome_transform": Standardize(1)}  # noqa: E731
    gp, Xq = fit_kriging(X, y, **transforms()), X[:3] + 0.1
    expected = gp.posterior(Xq).mean
    assert torch.equal(gp.train().eval().posterior(Xq).mean, expected)
    prior = gp.train()(*gp.train_inputs)
    gp.transform_inputs(X * 2.0)
    gp.outcome_transform(y.unsqueeze(-1) * 2.0)
    assert torch.equal(gp.posterior(Xq).mean, expected)
    same(prior.covariance_matrix, gp.covar_module(gp.transform_inputs(X)).to_dense(), 1e-12)
    other = fit_kriging(X * 2.0, y - 7.0, **transforms())
    other.load_state_dict(saved_and_loaded(gp.state_dict()))
    assert torch.equal(other.posterior(Xq).mean, expected)
    assert torch.equal(other.train_inputs[0], gp.eval().train_inputs[0])
    moved = copy.deepcopy(gp).float()
    for rows in (moved.train_inputs[0], moved._original_train_inputs):
        assert torch.as_tensor(rows).dtype == torch.float32
    same(moved.posterior(Xq.float()).mean.double(), expected, 1e-4)
    Y = y[:3].unsqueeze(-1) + 1.0
    by_gpytorch = gp.get_fantasy_model(
        gp.transform_inputs(Xq), gp.outcome_transform(Y)[0].squeeze(-1)
    )
    same(
        by_gpytorch.posterior(X).mean, gp.condition_on_observations(Xq, Y).posterior(X).mean, 1e-10
    )


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::botorch.exceptions.warnings.BotorchWarning"
)
def test_acquisitions_see_the_users_units():
    _, X, y, bounds = in_users_units()
    gp = fit_kriging(
        X, y, input_transform=Normalize(2, bounds=bounds), outcome_transform=Standardize(1)
    )
    models = ModelListGP(gp, fit_kriging(X, -y, input_transform=Normalize(2, bounds=bounds)))
    values = [
        qLogNoisyExpectedHypervolumeImprovement(
            models,
            ref_point=[9000.0, -12000.0],
            X_baseline=X,
            sampler=sampler(),
            cache_root=cache_root,
        )(X[:4].unsqueeze(1) + 0.3)
        for cache_root in (True, False)
    ]
    same(values[0], values[1], 1e-6)
    gradient = qKnowledgeGradient(gp, num_fantasies=4, sampler=sampler(4))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found, _ = optimize_acqf(
            gradient, bounds, q=1, num_restarts=1, raw_samples=4, options={"maxiter": 5}
        )
    assert bool(((found >= bounds[0]) & (found <= bounds[1])).all())


def test_missing_rows_teach_transforms_nothing():
    _, X, y, _ = in_users_units()
    noise = torch.zeros(14).double()
    noise[12:] = math.inf
    padded = torch.cat([X, X.new_full((2, 2), 1e9)]), torch.cat([y, y[:2] * math.nan])
    hyper = Hyperparameters(theta=f64([3.0, 2.0]))
    gp = KrigingGP(*padded, hyper, noise, input_transform=Normalize(2))
    expected = KrigingGP(X, y, hyper, input_transform=Normalize(2))
    same(gp.posterior(X + 0.1).mean, expected.posterior(X + 0.1).mean, 1e-9)
    with pytest.raises(InvalidInputError, match="outcome_transform needs rows that all exist"):
        KrigingGP(*padded, hyper, noise, outcome_transform=Standardize(1))


def test_what_is_no_transform_is_refused(unchecked):
    hyper, X = Hyperparameters(theta=f64([3.0, 2.0])), draw(12, 2)
    for name in ("input_transform", "outcome_transform"):
        wrong: dict[str, Any] = {name: "Normalize"}
        with pytest.raises(InvalidInputError, match=f"{name} must be a transform of BoTorch"):
            KrigingGP(X, wavy(X), hyper, **wrong)


def test_other_transforms():
    X, hyper = 4.0 * draw(12, 2), Hyperparameters(theta=f64([0.3, 0.2]))
    y = wavy(X) + 20.0
    rounded = KrigingGP(X, y, hyper, input_transform=Round(integer_indices=[0]))
    assert torch.equal(
        rounded.posterior(f64([[1.2, 3.0]])).mean, rounded.posterior(f64([[0.8, 3.0]])).mean
    )
    logarithmic = KrigingGP(X, y, hyper, outcome_transform=Log())
    by_hand = KrigingGP(X, y.log(), hyper)
    Xq = draw(3, 2, seed=5)
    same(sampler()(logarithmic.posterior(Xq)), sampler()(by_hand.posterior(Xq)).exp(), 1e-12)
    perturbed = InputPerturbation(0.1 * draw(3, 2), transform_on_train=False)
    gp = KrigingGP(X, y, hyper, input_transform=perturbed)
    assert gp.posterior(Xq).mean.shape == (9, 1)
    same(
        gp.posterior(Xq[:1]).mean,
        KrigingGP(X, y, hyper).posterior(Xq[0] + 0.1 * draw(3, 2)).mean,
        1e-12,
    )
    with pytest.raises(InvalidInputError, match="input_transform must keep the rows of X"):
        KrigingGP(
            X,
            y,
            hyper,
            input_transform=InputPerturbation(draw(3, 2), transform_on_train=True).train(),
        )
