import torch

from tcsaea_torch.evolution.ga import tournament_survivors
from tcsaea_torch.rng import uniforms


def test_the_better_of_each_pair_survives():
    y = torch.tensor([[3.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    u = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)  # pairs (0, 2) and (1, 3)
    assert tournament_survivors(y, u).tolist() == [[2, 3]]


def test_the_best_always_survives_and_the_worst_never_does():
    u = uniforms(torch.arange(50), "test", 0, (21,))
    y = torch.arange(21, dtype=torch.float64).expand(50, 21).clone()
    y[:, 7] = torch.inf
    survivors = tournament_survivors(y, u)
    assert survivors.shape == (50, 10)
    assert not (survivors == 7).any()
    for row, numbers in zip(survivors, u, strict=True):
        assert len(row.unique()) == 10
        left_out = int(numbers.argsort()[-1])  # the odd one meets nobody
        assert left_out == 0 or 0 in row.tolist()
