import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.models import TrainingSet
from tcsaea_torch.transfer import (
    co_training_set,
    fit_quadratic,
    half_width,
    is_believed,
    synthetic_values,
)


def test_the_co_surrogate_learns_the_difference_where_both_values_are(tensor):
    X = torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    observed = torch.tensor([[[True, True], [True, False], [False, True], [True, True]]])
    Y = torch.where(observed, tensor([[[1, 4], [2, 9], [9, 3], [5, 2.5]]]), 0.0)
    train = co_training_set(Archive(X=X, Y=Y, observed=observed))
    assert train.live.tolist() == [[True, False, False, True]]
    assert train.y[train.live].tolist() == [3.0, -2.5]  # slow minus fast


def test_synthetic_values_add_the_predicted_difference(tensor):
    assert synthetic_values(tensor([1.0, 2.0]), tensor([0.5, -3.0])).tolist() == [1.5, -1.0]


def test_values_within_the_interval_are_believed(tensor):
    slow_mean = tensor([10.0, 10.0, 10.0, 10.0])
    variance = tensor([4.0, 4.0, 4.0, 0.0])
    synthetic = tensor([11.9, 12.0, 13.9, 10.0])  # the interval is open
    sd, var = half_width(variance, "sd"), half_width(variance, "variance")
    assert is_believed(synthetic, slow_mean, sd).tolist() == [True, False, False, False]
    assert is_believed(synthetic, slow_mean, var).tolist() == [True, True, True, False]


def coefficients_used(n, d=3):
    X = torch.rand(2, n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = X.prod(dim=-1)
    quadratic = fit_quadratic(TrainingSet.from_mask(X, y, torch.ones_like(y) > 0))
    return int((quadratic.coefficients != 0).any(dim=0).sum())


def test_the_quadratic_is_full_with_rows_enough():
    # Ten coefficients for d = 3, seven without mixed terms; 1.5 rows for each of the ten.
    assert coefficients_used(15) == 10
    assert coefficients_used(14) == 7


def test_a_quadratic_function_is_learnt(tensor):
    generator = torch.Generator().manual_seed(1)
    X = torch.rand(2, 40, 3, generator=generator, dtype=torch.float64)
    Xq = torch.rand(2, 9, 3, generator=generator, dtype=torch.float64)

    def f(X):
        return 1e3 + 3 * X[..., 0] - X[..., 1] * X[..., 2] + 2 * X[..., 2] ** 2

    y, live = f(X), torch.arange(40) < tensor([[40], [25]])
    train = TrainingSet.from_mask(X, y.masked_fill(~live, 9e9), live)
    quadratic = fit_quadratic(train)
    assert torch.allclose(quadratic.mean(Xq), f(Xq), rtol=0, atol=1e-4)
    alone = fit_quadratic(train.take(torch.arange(25).expand(2, 25)))
    assert torch.allclose(quadratic.mean(Xq)[1], alone.mean(Xq)[1], rtol=0, atol=1e-9)


def test_the_quadratic_is_the_least_squares_fit():
    generator = torch.Generator().manual_seed(2)
    X = torch.rand(1, 60, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(5 * X).sum(dim=-1)
    x, z = X[0].T
    features = torch.stack([torch.ones(60).double(), x, z, x**2, z**2, x * z], dim=-1)
    expected = features @ torch.linalg.lstsq(features, y[0]).solution
    train = TrainingSet.from_mask(X, y, torch.ones_like(y) > 0)
    assert torch.allclose(fit_quadratic(train).mean(X)[0], expected, rtol=0, atol=1e-6)
