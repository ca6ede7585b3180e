"""EHVI as a BoTorch acquisition function, against BoTorch's own and sixty digits."""

import warnings

import pytest
import torch
from botorch.acquisition.multi_objective.analytic import ExpectedHypervolumeImprovement
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.model import Model
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf
from botorch.posteriors import GPyTorchPosterior
from botorch.utils.multi_objective.box_decompositions import NondominatedPartitioning
from gpytorch.distributions import MultitaskMultivariateNormal

from tcsaea_torch.acquisition import BiObjectiveEHVI
from tcsaea_torch.acquisition.adaptive_botorch import predict
from tcsaea_torch.acquisition.hypervolume_botorch import training_values
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import fit_kriging
from tests.acquisition.test_adaptive_botorch import (
    MODELS,
    UNIT,
    data,
    gradient,
    kriging_list,
    single_task,
)
from tests.conftest import load_reference

NINES = torch.full((2,), 9.0).double()
CASES = [c for c in load_reference("ehvi2d")["cases"] if c["ehvi_60_digits"] > 1e-9]


class Independent(Model):
    """A model whose inputs are its two means, and `sign` times them; sd is given."""

    num_outputs = 2  # pyright: ignore[reportAssignmentType]
    batch_shape = torch.Size()  # pyright: ignore[reportAssignmentType]

    def __init__(self, sd, sign=1.0):
        super().__init__()
        self.sd, self.sign = sd, sign

    def posterior(self, X, *args, **kwargs):
        mean = self.sign * X.repeat_interleave(1, dim=-2)
        covariance = torch.diag_embed(self.sd.square().expand(mean.shape).flatten(-2))
        return GPyTorchPosterior(MultitaskMultivariateNormal(mean, covariance))


def two_outputs(X, Y):
    return SingleTaskGP(X, Y, outcome_transform=Standardize(2), input_transform=Normalize(2))


def values_of(model):
    values = training_values(model)
    assert values is not None
    return values


ALL = [*MODELS, two_outputs]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_values(case, tensor):
    F, ref_point = tensor(case["F"]), tensor(case["ref"])
    model = Independent(tensor(case["sigma"]))
    for log in (True, False):
        acqf = BiObjectiveEHVI(model, ref_point, F, log=log)
        acqf.s_floor.zero_()
        value = acqf(tensor([[case["mu"]]]))
        value = value.exp() if log else value
        assert float(value) == pytest.approx(case["ehvi_60_digits"], rel=1e-9)


def test_values_and_gradients_are_those_of_botorch(tensor):
    generator = torch.Generator().manual_seed(0)
    F = torch.rand(8, 2, generator=generator, dtype=torch.float64)
    ref_point, sd = tensor([1.1, 0.9]), tensor([0.2, 0.3])
    points = torch.rand(40, 1, 2, generator=generator, dtype=torch.float64)
    theirs = ExpectedHypervolumeImprovement(
        Independent(sd, sign=-1.0), (-ref_point).tolist(), NondominatedPartitioning(-ref_point, -F)
    )
    ours = BiObjectiveEHVI(Independent(sd), ref_point, F, log=False)
    assert torch.allclose(ours(points), theirs(points), rtol=1e-8, atol=1e-10)
    assert torch.allclose(gradient(ours, points), gradient(theirs, points), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("make", ALL)
def test_front_and_units_are_the_users(make):
    X, Y = data()
    model = make(X, Y)
    values = values_of(model)
    expected = (Y - Y.mean(dim=0)) / Y.std(dim=0) if make is single_task else Y
    assert torch.allclose(values, expected, rtol=1e-12)
    model.posterior(X[:1])
    assert torch.equal(values_of(model), values)
    with_data = BiObjectiveEHVI(model, values.amax(dim=0))
    given = BiObjectiveEHVI(model, values.amax(dim=0), values)
    points = torch.rand(9, 1, 2, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(with_data(points), given(points))


def test_points_with_one_value_are_no_part_of_the_front():
    X, Y = data()
    absent = torch.zeros(12).double()
    absent[7:] = torch.inf
    model = ModelListGP(fit_kriging(X.flip(0), Y[:, 0].flip(0)), fit_kriging(X, Y[:, 1], absent))
    values = values_of(model)
    assert torch.equal(values, Y[:7].flip(0))
    apart = ModelListGP(fit_kriging(X[:6], Y[:6, 0]), fit_kriging(X[6:], Y[6:, 1]))
    with pytest.raises(InvalidInputError, match="Y must be given"):
        BiObjectiveEHVI(apart, NINES)
    with pytest.raises(InvalidInputError, match="Y must be given"):
        BiObjectiveEHVI(GenericDeterministicModel(lambda X: X, num_outputs=2), NINES)


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize("make", ALL)
def test_gradients(make, log):
    X, Y = data()
    model = make(X, Y)
    values = values_of(model)
    acqf = BiObjectiveEHVI(model, values.amax(dim=0), log=log)
    for points in (X, X + 1e-9, X + 1e-3, X + 50.0):
        assert acqf(points.unsqueeze(-2)).isfinite().all()
        assert gradient(acqf, points.unsqueeze(-2)).isfinite().all()
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(4, 1, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(acqf, points, eps=1e-7, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("is_bounded", [False, True])
@pytest.mark.parametrize("make", ALL)
def test_optimisation_beats_random_search(make, is_bounded):
    X, Y = data()
    model = make(X, Y)
    ref_point = values_of(model).amax(dim=0)
    low = values_of(model).amin(dim=0) - 0.1 if is_bounded else None
    acqf = BiObjectiveEHVI(model, ref_point, lower_bound=low)
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(0)
        warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
        options = {"num_restarts": 4, "raw_samples": 64, "options": {"seed": 0}}
        x, value = optimize_acqf(acqf, UNIT, q=1, **options)
        assert value > acqf(torch.rand(2000, 1, 2, dtype=torch.float64)).max()
        several, _ = optimize_acqf(acqf, UNIT, q=3, sequential=True, **options)
    assert torch.pdist(several).min() > 1e-3
    assert torch.allclose(several[0], x[0], atol=1e-4)
    assert acqf.X_pending is None
    assert acqf.model is model


@pytest.mark.parametrize("make", ALL)
def test_pending_points_are_believed(make):
    X, Y = data()
    model = make(X, Y)
    values = values_of(model)
    generator = torch.Generator().manual_seed(5)
    points = torch.rand(50, 1, 2, generator=generator, dtype=torch.float64)
    acqf = BiObjectiveEHVI(model, values.amax(dim=0), log=False)
    before = acqf(points)
    best = points[before.argmax()]
    acqf.set_X_pending(best)
    after = acqf(points)
    assert after.max() < before.max()
    assert acqf(best.unsqueeze(0)) < 0.5 * before.max()
    # The mean stays, so what was believed is in the front, and can hardly be improved on.
    means = [predict(m, points)[0] for m in (acqf.model, model)]
    assert torch.allclose(*means, rtol=1e-4, atol=1e-5)
    acqf.set_X_pending(best[:0])
    assert torch.equal(acqf(points), before)
    acqf.set_X_pending(None)
    assert torch.equal(acqf(points), before)


def test_exact_pending_values_equal_a_model_with_these_rows(tensor):
    X, Y = data()
    model = kriging_list(X, Y)
    x = tensor([[0.3, 0.6]])
    acqf = BiObjectiveEHVI(model, Y.amax(dim=0), X_pending=x)
    parts = [fit_kriging(X, Y[:, j]) for j in range(2)]
    believed = torch.stack([part.posterior(x).mean[:, 0] for part in parts], dim=-1)
    parts = [part.condition_on_observations(x, believed[:, [j]]) for j, part in enumerate(parts)]
    other = BiObjectiveEHVI(ModelListGP(*parts), Y.amax(dim=0), torch.cat([Y, believed]))
    points = torch.rand(20, 1, 2, generator=torch.Generator().manual_seed(2)).double()
    assert torch.allclose(acqf(points), other(points), atol=1e-8)


def test_pending_points_need_a_model_that_can_learn_them(tensor):
    model = Independent(tensor([0.1, 0.1]))
    acqf = BiObjectiveEHVI(model, tensor([1.0, 1.0]), tensor([[0.5, 0.5]]))
    with pytest.raises(InvalidInputError, match="can condition_on_observations, got Independent"):
        acqf.set_X_pending(tensor([[0.3, 0.3]]))


def test_bounds_are_kept(tensor):
    F, sd = tensor([[0.5, 0.5]]), tensor([0.3, 0.3])
    free, bound = (
        BiObjectiveEHVI(Independent(sd), tensor([1.0, 1.0]), F, lower_bound=low, log=False)
        for low in (None, tensor([0.0, 0.0]))
    )
    deep = tensor([[[-9.0, -9.0]]])
    assert float(bound(deep)) == pytest.approx(0.75)  # all that lies between 0 and the front
    assert free(deep) > 50
    far = tensor([[[0.9, 0.9]]])
    assert float(bound(far)) == pytest.approx(float(free(far)), rel=0.05)


def test_batches_of_any_shape_equal_single_points():
    X, Y = data()
    acqf = BiObjectiveEHVI(kriging_list(X, Y), Y.amax(dim=0))
    points = torch.rand(2, 3, 1, 2, generator=torch.Generator().manual_seed(4)).double()
    together = acqf(points)
    assert together.shape == (2, 3)
    for i in range(2):
        for k in range(3):
            assert acqf(points[i, k]).item() == pytest.approx(together[i, k].item(), rel=1e-10)
    with pytest.raises(AssertionError, match="q=1"):
        acqf(torch.zeros(4, 2, 2).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_the_models(dtype, device):
    X, Y = (value.to(device) for value in data(dtype=dtype))
    acqf = BiObjectiveEHVI(kriging_list(X, Y), Y.amax(dim=0))
    value = acqf(X.unsqueeze(-2))
    assert (value.dtype, value.device) == (dtype, X.device)
    assert value.isfinite().all()
    assert gradient(acqf, X.unsqueeze(-2)).isfinite().all()


@pytest.mark.parametrize("factor", [1e-7, 1e7])
def test_the_maximum_does_not_depend_on_the_scale_of_the_objectives(factor):
    X, Y = data()
    points = torch.rand(20, 1, 2, generator=torch.Generator().manual_seed(2)).double()
    plain, scaled = (
        BiObjectiveEHVI(kriging_list(X, Y * f), (Y * f).amax(dim=0))(points) for f in (1.0, factor)
    )
    shift = 2.0 * torch.tensor(factor).double().log()
    assert torch.allclose(plain, scaled - shift, atol=1e-4)
