import pytest
import torch

from tcsaea_torch.archive import Archive
from tcsaea_torch.errors import InvalidInputError


def filled(b, n, d, value, m=2):
    """Make an archive whose entries tell where they come from."""
    return Archive(
        X=torch.full((b, n, d), value),
        Y=torch.full((b, n, m), -value),
        observed=torch.ones(b, n, m, dtype=torch.bool),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_empty(device, dtype):
    archive = Archive.empty(3, 4, dtype=dtype, device=device)
    assert len(archive) == 0
    assert archive.X.shape == (3, 0, 4)
    assert archive.Y.shape == archive.observed.shape == (3, 0, 2)
    assert archive.X.dtype == archive.Y.dtype == dtype
    assert archive.observed.dtype == torch.bool
    assert {t.device.type for t in (archive.X, archive.Y, archive.observed)} == {device.type}
    assert archive.complete.shape == (3, 0)
    assert Archive.empty(1, 2, 5).Y.shape == (1, 0, 5)


def test_the_default_is_float64_on_the_cpu():
    archive = Archive.empty(1, 2)
    assert archive.X.dtype == torch.float64
    assert archive.X.device.type == "cpu"


def test_adding_appends_rows_in_order():
    first, second = filled(2, 3, 4, 1.0), filled(2, 1, 4, 2.0)
    both = first + second
    assert len(both) == 4
    assert both.X[:, :, 0].tolist() == [[1.0, 1.0, 1.0, 2.0]] * 2
    assert both.Y[:, :, 1].tolist() == [[-1.0, -1.0, -1.0, -2.0]] * 2
    assert both.observed.shape == (2, 4, 2)
    assert len(first) == 3
    assert len(second) == 1


def test_adding_nothing_changes_nothing():
    archive = filled(2, 3, 4, 1.0)
    empty = Archive.empty(2, 4, dtype=torch.float32)
    for same in (archive + empty, empty + archive):
        for field in ("X", "Y", "observed"):
            assert torch.equal(getattr(same, field), getattr(archive, field))


def test_complete_rows_have_all_their_values():
    observed = torch.tensor([[[True, True], [True, False]], [[False, True], [False, False]]])
    archive = Archive(X=torch.zeros(2, 2, 3), Y=torch.zeros(2, 2, 2), observed=observed)
    assert archive.complete.tolist() == [[True, False], [False, False]]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("X", "Y", "observed"),
    [
        ((1, 3, 2), (1, 4, 2), (1, 4, 2)),
        ((1, 3, 2), (1, 3, 2), (1, 3, 1)),
        ((1, 3, 2), (1, 3, 2), (1, 2, 2)),
        ((2, 3, 2), (1, 3, 2), (1, 3, 2)),
        ((1, 3, 2), (1, 3, 2), (2, 3, 2)),
    ],
)
def test_shapes_must_fit_together(X, Y, observed):
    with pytest.raises(InvalidInputError, match="X, Y and observed must have shapes") as caught:
        Archive(X=torch.zeros(X), Y=torch.zeros(Y), observed=torch.zeros(observed) > 0)
    assert str(caught.value).endswith(f"got {X}, {Y} and {observed}")
