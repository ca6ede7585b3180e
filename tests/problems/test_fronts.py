import torch

from tcsaea_torch.problems.fronts import reference_point, spread, stored_set, thin


def test_spread_is_uniform_over_all_pieces():
    x = spread(((0.0, 1.0), (3.0, 4.0), (5.0, 7.0)), 9)
    expected = [0.0, 0.5, 1.0, 3.5, 4.0, 5.5, 6.0, 6.5, 7.0]
    assert x.tolist() == expected
    assert spread(((2.0, 3.0),), 1).tolist() == [2.0]


def test_a_reference_point_is_a_tenth_of_the_range_behind_the_nadir():
    found = reference_point(torch.tensor([-1.0, 2.0]), torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(found, torch.tensor([1.2, 3.1]))


def test_thin_keeps_both_ends():
    Y = torch.arange(20.0).reshape(10, 2)
    assert torch.equal(thin(Y, 4)[:, 0], torch.tensor([0.0, 6.0, 12.0, 18.0]))
    assert thin(Y, 10) is Y
    assert thin(Y, 11) is Y


def test_stored_sets_are_read_once():
    assert stored_set("gmm") is stored_set("gmm")
    assert stored_set("kursawe").shape[1] == 3
