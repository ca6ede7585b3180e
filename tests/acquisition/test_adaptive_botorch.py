import math
import warnings

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.deterministic import GenericDeterministicModel
from botorch.models.transforms import Normalize, Standardize
from botorch.optim.optimize import optimize_acqf, optimize_acqf_list
from botorch.utils.sampling import draw_sobol_samples

import tcsaea_torch as tc
from tcsaea_torch.acquisition import (
    AAFNormalizer,
    AdaptiveAcquisition,
    adaptive_weight,
    normalizer_from_model,
)
from tcsaea_torch.acquisition.adaptive_botorch import SMOOTHING, training_points
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.evolution import apd_select, simplex_lattice
from tcsaea_torch.models import fit_kriging

VECTORS = simplex_lattice(10)
UNIT = torch.stack([torch.zeros(2), torch.ones(2)]).double()


def identity_model():
    """Return a model that knows f(x) = x exactly."""
    return GenericDeterministicModel(lambda X: X, num_outputs=2)


def normalizer(
    ideal=(0.0, 0.0), max_mean=(1.0, 1.0), max_s=(1.0, 1.0), vectors: torch.Tensor | None = VECTORS
):
    as_tensor = lambda value: torch.tensor(value, dtype=torch.float64)  # noqa: E731
    return AAFNormalizer(
        ideal=as_tensor(ideal),
        shift=torch.zeros(2).double(),
        max_mean=as_tensor(max_mean),
        max_s=as_tensor(max_s),
        ref_vectors=vectors,
    )


THREE = AAFNormalizer.from_population(torch.ones(4, 3), torch.ones(4, 3))


def data(n=12, d=2, seed=0, dtype=torch.float64):
    X = draw_sobol_samples(torch.stack([torch.zeros(d), torch.ones(d)]), n, 1, seed=seed)
    X = X.squeeze(1).to(dtype)
    Y = torch.stack([X.square().sum(-1), (X - 1.0).square().sum(-1)], dim=-1)
    return X, Y + 0.3 * torch.sin(9.0 * X).flip(-1)[..., :2]


def kriging_list(X, Y):
    return ModelListGP(*(fit_kriging(X, Y[:, j]) for j in range(2)))


def single_task(X, Y):
    return SingleTaskGP(X, (Y - Y.mean(dim=0)) / Y.std(dim=0), outcome_transform=None)


def transformed(X, Y):
    return ModelListGP(
        *(
            SingleTaskGP(
                X, Y[:, [j]], input_transform=Normalize(2), outcome_transform=Standardize(1)
            )
            for j in range(2)
        )
    )


def same_rows(found, expected):
    return found is not None and torch.equal(found, expected)


MODELS = [kriging_list, single_task, transformed]


def acquisition(model, X, vector=VECTORS[4], **options):
    options = {"alpha": 0.3, "theta": 0.5, **options}
    population = draw_sobol_samples(UNIT, 64, 1, seed=9).squeeze(1).to(X)
    scales = normalizer_from_model(model, population, VECTORS)
    return AdaptiveAcquisition(model, vector, scales, **options)


def gradient(function, X):
    X = X.clone().requires_grad_(True)
    return torch.autograd.grad(function(X).sum(), X)[0]


@pytest.mark.parametrize("sign", [-1, 1])
def test_value_follows_its_formula(sign, tensor):
    scales = normalizer(ideal=(0.2, 0.1), max_mean=(2.0, 3.0), max_s=(0.5, 0.25))
    vector, alpha, theta = VECTORS[6], 0.4, 0.7
    acqf = AdaptiveAcquisition(
        identity_model(), vector, scales, alpha=alpha, theta=theta, uncertainty_sign=sign
    )
    mean, s = tensor([[0.9, 0.4], [0.3, 2.5], [1.7, 1.7]]), tensor([[0.1, 0.2], [0.4, 0.3], [1, 1]])
    found = acqf.value(mean, s.square())
    cosines = [float(v @ vector / v.norm() / vector.norm()) for v in VECTORS]
    angles = [math.acos(min(cosine, 1.0)) for cosine in cosines]
    gamma = min(angle for angle in angles if angle > 1e-6)
    for k in range(3):
        F = []
        for j in range(2):
            exploit = (float(mean[k, j]) - float(scales.ideal[j])) / float(scales.max_mean[j])
            explore = float(s[k, j]) / float(scales.max_s[j])
            F.append((1 - alpha) * exploit + alpha * (explore if sign > 0 else 1 - explore))
        inside = [max(f, 0.0) for f in F]
        length = math.hypot(*inside)
        cosine = sum(f * float(v) for f, v in zip(inside, vector, strict=True))
        angle = math.acos(min(cosine / length / float(vector.norm()), 1.0))
        angle = math.hypot(angle, SMOOTHING * gamma) - SMOOTHING * gamma
        expected = -(1 + 2 * theta * angle / gamma) * length + sum(max(-f, 0.0) for f in F)
        assert float(found[k]) == pytest.approx(expected, rel=1e-9)


def test_the_best_of_a_niche_is_the_one_that_rvea_selects():
    generator = torch.Generator().manual_seed(3)
    mean = torch.rand(200, 2, generator=generator, dtype=torch.float64)
    nothing = torch.zeros_like(mean)
    scales = AAFNormalizer.from_population(mean, nothing, ref_vectors=VECTORS)
    F = mean / scales.max_mean
    alive = torch.ones(200, dtype=torch.bool)
    winners, has_winner = apd_select(F, alive, VECTORS, 0.6)
    assert has_winner.all()
    directions = torch.nn.functional.normalize(F - F.amin(dim=0), dim=-1)
    niches = (torch.nn.functional.normalize(VECTORS, dim=-1) @ directions.mT).argmax(dim=0)
    for j, vector in enumerate(VECTORS):
        acqf = AdaptiveAcquisition(identity_model(), vector, scales, alpha=0.0, theta=0.6)
        acqf.smoothing.zero_()
        value = torch.where(niches == j, acqf.value(mean, nothing), -torch.inf)
        assert int(value.argmax()) == int(winners[j])


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("make", MODELS)
def test_gradients_are_finite_at_training_points(make, alpha, sign):
    X, Y = data()
    model = make(X, Y)
    acqf = acquisition(model, X, alpha=alpha, uncertainty_sign=sign)
    for points in (X, X + 1e-9, X + 1e-3):
        found = gradient(acqf, points.unsqueeze(-2))
        assert found.isfinite().all()


@pytest.mark.parametrize("theta", [0.0, 1.0])
@pytest.mark.parametrize("j", [0, 4, 9])
def test_gradients_are_finite_on_the_vector_and_around_the_ideal(theta, j, tensor):
    vector = VECTORS[j]
    acqf = AdaptiveAcquisition(identity_model(), vector, normalizer(), alpha=0.0, theta=theta)
    on = torch.stack([vector * length for length in (0.0, 1e-300, 1e-30, 1e-12, 1e-3, 1.0)])
    axes = tensor([[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.5, -1e-17]])
    for points in (on, -on, axes):
        assert acqf(points.unsqueeze(-2)).isfinite().all()
        assert gradient(acqf, points.unsqueeze(-2)).isfinite().all()


def test_gradients_agree_with_differences():
    X, Y = data()
    acqf = acquisition(kriging_list(X, Y), X)
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(6, 1, 2, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(acqf, points, eps=1e-7, atol=1e-5, rtol=1e-5)


def test_points_below_the_ideal_are_rewarded():
    acqf = AdaptiveAcquisition(identity_model(), VECTORS[4], normalizer(), alpha=0.0, theta=1.0)
    steps = torch.linspace(0.0, -1.0, 11).double()
    for direction in ([1.0, 1.0], [1.0, 0.0], [0.0, 1.0]):
        path = steps.unsqueeze(-1) * torch.tensor(direction).double()
        values = acqf(path.unsqueeze(-2))
        assert (values.diff() > 0).all()
    population = acqf(torch.rand(100, 1, 2, generator=torch.Generator().manual_seed(0)).double())
    below = acqf(torch.tensor([[[-1e-3, -1e-3]]]).double())
    assert below > population.max()


@pytest.mark.parametrize("factor", [1e-7, 1e7])
@pytest.mark.parametrize("make", [kriging_list, transformed])
def test_values_do_not_depend_on_the_scale_of_the_objectives(make, factor):
    X, Y = data()
    points = torch.rand(20, 1, 2, generator=torch.Generator().manual_seed(2)).double()
    plain, scaled = (acquisition(make(X, Y * f), X)(points) for f in (1.0, factor))
    assert torch.allclose(plain, scaled, rtol=1e-5, atol=1e-7)


def test_uncertain_points_are_sought_or_shunned():
    X, Y = data()
    mean, low, high = Y[:1], torch.full((1, 2), 0.01).double(), torch.full((1, 2), 0.02).double()
    for sign in (-1, 1):
        acqf = acquisition(kriging_list(X, Y), X, uncertainty_sign=sign, theta=0.0)
        assert (acqf.value(mean, high) > acqf.value(mean, low)) == (sign < 0)


def test_evaluated_and_pending_points_repel():
    X, Y = data()
    acqf = acquisition(kriging_list(X, Y), X)
    near = X[:3] + 0.5e-3 / math.sqrt(2)
    far = X[:3] + 3e-3 / math.sqrt(2)
    top = math.sqrt(2) * (1 + float(acqf.angle_weight) * math.pi / 2)
    assert acqf.barrier(X[:3]).tolist() == pytest.approx([top] * 3)
    assert (acqf.barrier(near) > 0.5 * top).all()
    assert acqf.barrier(far).tolist() == [0.0, 0.0, 0.0]
    acqf.set_X_pending(far)
    assert (acqf.barrier(far) >= top).all()
    acqf.set_X_pending(None)
    assert acqf.barrier(far).tolist() == [0.0, 0.0, 0.0]
    assert acquisition(kriging_list(X, Y), X, exclusion_radius=0.0).barrier(X).sum() == 0


def optimum(acqf, **options):
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(0)
        # Line searches end early at the barrier, which is steep.
        warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
        options = {"q": 1, "num_restarts": 4, "raw_samples": 64, **options}
        return optimize_acqf(acqf, UNIT, options={"seed": 0}, **options)[0]


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_certain_points_are_not_the_training_points(alpha):
    X, Y = data()
    acqf = acquisition(kriging_list(X, Y), X, alpha=alpha, uncertainty_sign=1, theta=0.0)
    found = optimum(acqf)
    assert torch.cdist(found, X).min() > 1e-3


@pytest.mark.parametrize("make", MODELS)
def test_pending_points_are_avoided(make):
    X, Y = data()
    model = make(X, Y)
    first = optimum(acquisition(model, X))
    second = optimum(acquisition(model, X, X_pending=first))
    assert torch.dist(first, second) > 1e-3


def test_several_points_one_after_the_other():
    X, Y = data()
    acqf = acquisition(kriging_list(X, Y), X)
    found = optimum(acqf, q=3, sequential=True)
    assert found.shape == (3, 2)
    assert torch.pdist(found).min() > 1e-3
    assert acqf.X_pending is None


def test_one_vector_for_each_point():
    X, Y = data()
    model = kriging_list(X, Y)
    vectors = VECTORS[[0, 4, 9]]
    functions: list[AcquisitionFunction] = [
        acquisition(model, X, vector=v, theta=1.0) for v in vectors
    ]
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(0)
        warnings.filterwarnings("ignore", message="Optimization failed", category=RuntimeWarning)
        found, values = optimize_acqf_list(
            functions, UNIT, num_restarts=4, raw_samples=64, options={"seed": 0}
        )
    assert values is not None
    assert values.shape == (3,)
    predicted = model.posterior(found).mean
    # The first vector wants the second objective low, the last the first objective.
    assert (predicted[:, 0].argsort() == predicted[:, 1].argsort(descending=True)).all()
    order = (vectors[:, 0] / vectors.sum(dim=-1)).argsort()
    assert predicted[order, 0].diff().gt(0).all()


def test_batches_of_any_shape_equal_single_points():
    X, Y = data()
    acqf = acquisition(kriging_list(X, Y), X)
    points = torch.rand(2, 3, 1, 2, generator=torch.Generator().manual_seed(4)).double()
    together = acqf(points)
    assert together.shape == (2, 3)
    for i in range(2):
        for k in range(3):
            assert acqf(points[i, k]).item() == pytest.approx(together[i, k].item(), rel=1e-12)
    with pytest.raises(AssertionError, match="q=1"):
        acqf(torch.zeros(4, 2, 2).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_and_device_are_the_models(dtype, device):
    X, Y = (value.to(device) for value in data(dtype=dtype))
    acqf = acquisition(kriging_list(X, Y), X)
    value = acqf(X.unsqueeze(-2))
    assert (value.dtype, value.device) == (dtype, X.device)
    assert gradient(acqf, X.unsqueeze(-2)).isfinite().all()


@pytest.mark.parametrize("make", MODELS)
def test_training_points_are_those_of_the_user(make):
    X, Y = data()
    model = make(X, Y)
    assert same_rows(training_points(model), torch.unique(X, dim=0))
    model.posterior(X)
    assert same_rows(training_points(model), torch.unique(X, dim=0))


def test_training_points_of_both_objectives_without_absent_rows():
    X, Y = data()
    absent = torch.zeros(12).double()
    absent[5:] = torch.inf
    slow = fit_kriging(X, Y[:, 1], absent)
    assert same_rows(training_points(slow), torch.unique(X[:5], dim=0))
    both = ModelListGP(fit_kriging(X[3:], Y[3:, 0]), slow)
    assert same_rows(training_points(both), torch.unique(X, dim=0))
    assert training_points(identity_model()) is None


def improved_hypervolume(name, seed, **options):
    """Return the hypervolumes of a plain BoTorch loop and of random search."""
    problem = tc.problems.get(name, **options)
    bounds = torch.stack([torch.zeros(problem.d), torch.ones(problem.d)]).double()
    evaluate = lambda X: problem.evaluate(problem.from_unit(X))  # noqa: E731
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        X = torch.rand(15, problem.d, dtype=torch.float64)
        population = torch.rand(200, problem.d, dtype=torch.float64)
        others = torch.rand(15, problem.d, dtype=torch.float64)
        random = evaluate(torch.cat([X, others]))
        Y = evaluate(X)
        for i in range(15):
            model = ModelListGP(*(fit_kriging(X, Y[:, j]) for j in range(2)))
            scales = normalizer_from_model(model, torch.cat([population, X]), VECTORS)
            acqf = AdaptiveAcquisition(model, VECTORS[3 * i % 10], scales, alpha=0.1, theta=0.5)
            x, _ = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=32)
            X, Y = torch.cat([X, x]), torch.cat([Y, evaluate(x)])
    worst = torch.cat([Y, random]).amax(dim=0)
    return tc.metrics.hypervolume(Y, worst), tc.metrics.hypervolume(random, worst)


@pytest.mark.filterwarnings("ignore:Optimization failed:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "options", "seed"),
    [
        ("dtlz1a", {}, 0),
        pytest.param("dtlz1a", {}, 1, marks=pytest.mark.slow),
        pytest.param("dtlz7", {}, 0, marks=pytest.mark.slow),
        pytest.param("dtlz7", {}, 1, marks=pytest.mark.slow),
        pytest.param("cm-onemax", {"corr": -0.5}, 0, marks=pytest.mark.slow),
        pytest.param("cm-onemax", {"corr": -0.5}, 1, marks=pytest.mark.slow),
    ],
)
def test_a_plain_botorch_loop_beats_random_search(name, options, seed):
    ours, random = improved_hypervolume(name, seed, **options)
    assert ours > random


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "gp"}, "model must be a BoTorch model, got 'gp'"),
        ({"ref_vector": [0.5]}, r"ref_vector must have shape \(2,\), got shape \(1,\)"),
        (
            {"ref_vector": [-0.5, 1.0]},
            r"ref_vector must have finite entries >= 0.*got \[-0.5",
        ),
        ({"ref_vector": [0.0, 0.0]}, "ref_vector must have finite entries >= 0, not all 0"),
        ({"ref_vector": [math.nan, 1.0]}, "ref_vector must have finite entries >= 0"),
        ({"ref_vector": "up"}, "ref_vector must be"),
        ({"normalizer": None}, "normalizer must be an AAFNormalizer, got None"),
        ({"normalizer": THREE}, r"normalizer.ideal must have shape \(2,\)"),
        ({"normalizer": normalizer(ideal=(0.0, math.inf))}, "normalizer.ideal must be finite"),
        ({"alpha": 1.5}, "alpha must be"),
        ({"alpha": math.nan}, "alpha must be"),
        ({"alpha": "much"}, "alpha must be"),
        ({"theta": -1.0}, "theta must be"),
        ({"theta": None}, "theta must be"),
        ({"uncertainty_sign": 0}, "uncertainty_sign must be -1 or 1, got 0"),
        ({"uncertainty_sign": "+"}, "uncertainty_sign must be"),
        ({"exclusion_radius": -1e-3}, "exclusion_radius must be"),
        ({"X_pending": torch.zeros(2)}, "X_pending must be a tensor n x 2, got"),
        ({"X_pending": torch.zeros(1, 3)}, "X_pending must be a tensor n x 2, got"),
        ({"X_pending": [[0.0, 0.0]]}, "X_pending must be a tensor n x 2, got"),
        ({"X_pending": torch.full((1, 2), math.nan)}, "X_pending must be finite"),
    ],
)
def test_wrong_arguments_are_refused(changes, message, unchecked):
    X, Y = data()
    options = {
        "model": kriging_list(X, Y), "ref_vector": VECTORS[0], "normalizer": normalizer(),
        "alpha": 0.5, "theta": 0.5,
    }  # fmt: skip
    with pytest.raises(InvalidInputError, match=message):
        AdaptiveAcquisition(**{**options, **changes})


def test_gamma_is_the_angle_to_the_nearest_other_vector():
    scales = normalizer()
    angle = lambda a, b: math.acos(float(a @ b / a.norm() / b.norm()))  # noqa: E731
    expected = min(angle(VECTORS[4], VECTORS[k]) for k in (3, 5))
    assert float(scales.gamma(VECTORS[4])) == pytest.approx(expected, rel=1e-12)
    assert float(scales.gamma(2.0 * VECTORS[4])) == pytest.approx(expected, rel=1e-12)
    assert float(normalizer(vectors=None).gamma(VECTORS[4])) == pytest.approx(math.pi / 2)


def test_weight_of_a_run_can_be_passed(tensor):
    X, Y = data()
    alpha = float(adaptive_weight(tensor(50.0), tensor(200.0)))
    assert acquisition(kriging_list(X, Y), X, alpha=alpha).alpha == alpha
