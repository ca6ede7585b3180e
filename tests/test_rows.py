import torch

from tcsaea_torch.rows import take_rows


def test_each_member_gets_the_rows_that_its_own_indices_name():
    X = torch.arange(24, dtype=torch.float64).reshape(2, 4, 3)
    index = torch.tensor([[3, 0], [1, 1]])
    expected = [[X[i, j].tolist() for j in row] for i, row in enumerate(index.tolist())]
    assert take_rows(X, index).tolist() == expected
    assert torch.equal(take_rows(X[0], index[0]), X[0][index[0]])
