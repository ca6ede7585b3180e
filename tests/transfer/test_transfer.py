import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.transfer import co_training_set, half_width, is_believed, synthetic_values


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
