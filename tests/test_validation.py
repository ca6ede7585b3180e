"""What is refused, and whether the message says which argument, what was due and what came."""

import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch

from tcsaea_torch import validation as v
from tcsaea_torch.errors import InvalidInputError, TcsaeaError

NAN, INF = math.nan, math.inf


def refuses(*parts):
    """Expect an error whose message begins with the first part and holds the others in order."""
    return pytest.raises(InvalidInputError, match="^" + ".*".join(map(re.escape, parts)))


@pytest.fixture
def _every_warning():
    """Let torch repeat warnings that it gives once only."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def test_errors_are_value_errors_too():
    with pytest.raises(ValueError, match="n must be") as caught:
        v.check_int("n", "three")
    assert isinstance(caught.value, TcsaeaError)


# ------------------------------------------------------------------ scalars


@pytest.mark.parametrize(
    "value",
    [
        2,
        2.0,
        Fraction(2),
        np.float32(2.0),
        np.int8(2),
        np.array(2.0),
        np.array([[2]]),
        torch.tensor(2.0),
        torch.tensor([2]),
        torch.tensor(2.0, requires_grad=True),
        pd.Series([2.0]),
    ],
    ids=repr,
)
def test_every_real_scalar_is_accepted(value):
    for number in (v.as_scalar(value), v.check_real("a", value)):
        assert type(number) is float
        assert number == 2.0


NO_SCALARS = [
    None, True, False, "2", b"2", 2j, 2 + 0j, [2.0], (2.0,), {}, ..., np.bool_(True),
    np.array([]), np.array([True]), np.array([1.0, 2.0]), np.array([1j]), torch.tensor([]),
    torch.tensor(True), torch.tensor([1.0, 2.0]), torch.tensor(1j),
]  # fmt: skip


@pytest.mark.parametrize("value", NO_SCALARS, ids=repr)
def test_nothing_else_is_a_scalar(value):
    assert v.as_scalar(value) is None
    with refuses("alpha must be a finite real number, got "):
        v.check_real("alpha", value)
    with refuses("n must be an integer, got "):
        v.check_int("n", value)


@pytest.mark.parametrize(
    "value", [np.array("2"), np.array(["2"]), np.array([True], dtype=object)], ids=repr
)
def test_text_and_booleans_in_arrays_are_no_scalars(value):
    assert v.as_scalar(value) is None


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400, 3)], ids=type)
def test_numbers_beyond_double_precision_are_refused(value):
    with refuses("alpha must be a finite real number, got "):
        v.check_real("alpha", value)


@pytest.mark.parametrize("value", [NAN, INF, -INF, np.float32("nan"), torch.tensor(INF)], ids=repr)
def test_reals_are_finite(value):
    with refuses("alpha must be a finite real number, got ", type(value).__name__.lower()):
        v.check_real("alpha", value)
    with refuses("n must be an integer, got "):
        v.check_int("n", value)


@pytest.mark.parametrize(
    ("limits", "good", "bad", "expectation"),
    [
        ({"minimum": 1}, [1, 1.0, 1e300], [0.999, -1], "a finite real number >= 1"),
        ({"maximum": 1}, [1, -1e300], [1.0001], "a finite real number <= 1"),
        ({"minimum": 0, "exclusive": True}, [5e-324], [0, -0.0], "a finite real number > 0"),
        ({"minimum": 0, "maximum": 0.5}, [0, 0.5], [-0.1, 0.6], "number >= 0 and <= 0.5"),
        (
            {"minimum": 0, "maximum": 1, "exclusive": True},
            [1, 0.1],
            [0, 1.1],
            "number > 0 and <= 1",
        ),
    ],
)
def test_reals_within_limits(limits, good, bad, expectation):
    for value in good:
        assert v.check_real("alpha", value, **limits) == value
    for value in bad:
        with refuses("alpha must be", expectation, f"got {value!r}"):
            v.check_real("alpha", value, **limits)


@pytest.mark.parametrize(("value", "expected"), [(3, 3), (3.0, 3), (np.int64(-3), -3), (0, 0)])
def test_integers(value, expected):
    number = v.check_int("n", value)
    assert type(number) is int
    assert number == expected


@pytest.mark.parametrize(("value", "minimum"), [(0, 1), (-1, 0), (1.5, 1), ("2", 1)])
def test_integers_have_no_fraction_and_keep_their_minimum(value, minimum):
    with refuses(f"n must be an integer >= {minimum}, got {value!r} ({type(value).__name__})"):
        v.check_int("n", value, minimum=minimum)


@pytest.mark.parametrize("value", [2**53 + 1, -(2**62) - 1, np.int64(2**63 - 1)])
def test_integers_keep_all_their_digits(value):
    assert v.check_int("n", value) == int(value)


def test_booleans():
    assert v.check_bool("retry", True) is True
    assert v.check_bool("retry", False) is False
    for value in (1, 0, None, "yes", np.bool_(True)):
        with refuses("retry must be True or False, got ", type(value).__name__):
            v.check_bool("retry", value)


def test_callables():
    v.check_callable("fast", len)
    for value in (None, 3, "len"):
        with refuses("fast must be callable, got ", type(value).__name__):
            v.check_callable("fast", value)


# ------------------------------------------------------------------ names


def test_a_choice_is_returned():
    assert v.check_choice("strategy", "random", ["tc-saea", "random"]) == "random"


@pytest.mark.parametrize(
    ("value", "nearest"), [("randon", "random"), ("TC-SAEA", "tc-saea"), ("tcsaea", "tc-saea")]
)
def test_an_unknown_choice_suggests_the_nearest(value, nearest):
    with refuses(
        f"strategy must be one of random, tc-saea, got {value!r}; did you mean {nearest!r}?"
    ):
        v.check_choice("strategy", value, iter(["tc-saea", "random"]))


@pytest.mark.parametrize("value", ["zzz", None, 3, ["random"]])
def test_a_choice_like_none_of_them_suggests_nothing(value):
    with refuses("strategy must be one of alpha, beta, got ") as caught:
        v.check_choice("strategy", value, {"beta": 1, "alpha": 2})
    assert "did you mean" not in str(caught.value)


def test_names():
    assert v.check_names("names", None, length=3) == ("x0", "x1", "x2")
    assert v.check_names("names", ["a", "b"], length=2) == ("a", "b")


@pytest.mark.parametrize(
    "value", ["ab", ("a",), ("a", "b", "c"), ("a", ""), ("a", 1), 5, {"a": 1, "b": 2}], ids=repr
)
@pytest.mark.usefixtures("unchecked")
def test_names_are_as_many_strings_as_dimensions(value):
    with refuses("names must be a sequence of 2 distinct strings, got "):
        v.check_names("names", value, length=2)


def test_names_are_distinct():
    with refuses("names must be distinct, got 'b' twice"):
        v.check_names("names", ("a", "b", "b"), length=3)


@pytest.mark.parametrize("reserved", sorted(v.RESERVED_NAMES))
def test_names_of_other_columns_are_reserved(reserved):
    with refuses(f"names must not use {reserved!r}, a column of result tables"):
        v.check_names("names", ("a", reserved), length=2)


# ------------------------------------------------------------------ devices and types


def test_devices(device):
    assert v.check_device(None) == torch.device("cpu")
    assert v.check_device(device) == device
    assert v.check_device(str(device)) == device


@pytest.mark.parametrize("value", ["cuda:99", "mps:7", "quantum", "cpu:-2", 3.5, ["cpu"]], ids=repr)
def test_devices_that_do_not_exist(value):
    with refuses(f"device must name a device that is present here, got {value!r}: ") as caught:
        v.check_device(value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None


def test_the_meta_device_holds_no_numbers():
    with refuses("device must name a device that is present here, got 'meta'"):
        v.check_device("meta")


def test_dtypes():
    for dtype in (torch.float32, torch.float64):
        assert v.check_dtype(dtype) is dtype
    for value in (torch.float16, torch.int64, "float64", np.float64, np.dtype("float64"), None):
        with refuses(f"dtype must be torch.float32 or torch.float64, got {value!r}"):
            v.check_dtype(value)


# ------------------------------------------------------------------ arrays


@pytest.mark.parametrize(
    "value",
    [
        [[1, 2], [3, 4], [5, 6]],
        ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0)),
        np.array([[1, 2], [3, 4], [5, 6]], dtype=np.uint8),
        np.asfortranarray([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        torch.tensor([[1, 2], [3, 4], [5, 6]]),
        torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True),
        pd.DataFrame({"a": [1, 3, 5], "b": [2.0, 4.0, 6.0]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_matrices_of_every_kind(value):
    matrix = v.check_matrix("X", value, columns=2)
    assert matrix.dtype == torch.float64
    assert not matrix.requires_grad
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_matrices_are_copies():
    for original in (np.ones((2, 2)), torch.ones(2, 2, dtype=torch.float64)):
        v.check_matrix("X", original, columns=2).zero_()
        assert (original == 1).all()


def test_matrices_come_to_the_cpu(device):
    assert v.check_matrix("X", torch.ones(2, 2, device=device), columns=2).device.type == "cpu"


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        ([[1.0, 2.0, 3.0]], "(1, 3)"),
        ([1.0, 2.0], "(2,)"),
        (3.0, "()"),
        ([], "(0,)"),
        (np.ones((2, 2, 2)), "(2, 2, 2)"),
    ],
    ids=repr,
)
def test_matrices_of_another_shape(value, shape):
    with refuses(f"X must have shape (n, 2), got shape {shape}"):
        v.check_matrix("X", value, columns=2)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        [["a", "b"]],
        [["1", "2"]],
        [[1.0, 2.0], [3.0]],
        [[1j, 2.0]],
        [[None, 1.0]],
        [[...]],
        [[10**400, 1]],
        [[True, False]],
        np.ones((2, 2)) > 0,
        torch.ones(2, 2) > 0,
        {0: 1.0},
    ],
    ids=lambda value: repr(value)[:30],
)
def test_matrices_of_something_else(value):
    kind = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
    with refuses("X must be an array of real numbers, got ", kind):
        v.check_matrix("X", value, columns=2)


def test_complex_tensors():
    with refuses(
        "X must be an array of real numbers, got a tensor of shape (2, 2) and dtype torch.complex64"
    ):
        v.check_matrix("X", torch.ones(2, 2) * 1j, columns=2)


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_the_first_entry_that_is_not_finite_is_named(value):
    X = np.ones((4, 3))
    X[3, 0] = X[2, 1] = value
    with refuses(f"X must be finite, got {value} in row 2, column 1"):
        v.check_matrix("X", X, columns=3)
    assert v.check_matrix("X", X, columns=3, finite=False).isfinite().sum() == 10


ODD_ARRAYS = {
    "reversed": np.array([[3.0, 4.0], [1.0, 2.0]])[::-1],
    "big-endian": np.array([[1.0, 2.0], [3.0, 4.0]], dtype=">f8"),
    "long double": np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.longdouble),
    "reversed frame": pd.DataFrame({"a": [3.0, 1.0], "b": [4.0, 2.0]})[::-1],
    "list of tensors": [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])],
}


@pytest.mark.parametrize("kind", ODD_ARRAYS)
def test_unusual_arrays_of_real_numbers(kind):
    matrix = v.check_matrix("X", ODD_ARRAYS[kind], columns=2)
    assert matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.usefixtures("_every_warning")
def test_lists_of_arrays_come_without_warning():
    assert v.check_bounds([np.zeros(2), np.ones(2)]).tolist() == [[0.0, 0.0], [1.0, 1.0]]


@pytest.mark.usefixtures("_every_warning")
def test_complex_arrays_are_refused():
    with refuses("X must be"):
        v.check_matrix("X", np.ones((2, 2)) * 1j, columns=2)


def test_frames_of_text_are_refused():
    with refuses("X must be an array of real numbers, got DataFrame of shape (1, 2)"):
        v.check_matrix("X", pd.DataFrame({"a": ["p"], "b": ["q"]}), columns=2)


@pytest.mark.parametrize("value", [[1, NAN], np.array([[1.0], [NAN]]), pd.Series([1.0, None])])
def test_vectors(value):
    vector = v.check_vector("y", value, length=2)
    assert vector.shape == (2,)
    assert vector[0] == 1
    assert vector[1].isnan()


@pytest.mark.parametrize(
    ("value", "shape"), [([1.0], "(1,)"), ([[1.0, 2.0]], "(1, 2)"), (1.0, "()"), ([], "(0,)")]
)
def test_vectors_of_another_shape(value, shape):
    with refuses(f"y must have shape (2,), got shape {shape}"):
        v.check_vector("y", value, length=2)


@pytest.mark.parametrize(
    "value",
    [
        [1, None, NAN],
        (1.0, NAN, None),
        np.array([1.0, NAN, NAN]),
        np.array([[1.0], [NAN], [NAN]]),
        np.array([1, None, None], dtype=object),
        torch.tensor([1.0, NAN, NAN], requires_grad=True),
        pd.Series([1, None, None]),
        pd.Series([1, None, None], dtype="Int64"),
        pd.Series([1, None, None], dtype=object),
        pd.array([1.0, None, None], dtype="Float64"),
        pd.DataFrame({"mass": [1.0, None, None]}),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}",
)
def test_columns_in_which_nan_none_and_na_mean_not_measured(value):
    column = v.check_column("slow", value, length=3)
    assert column.dtype == torch.float64
    assert not column.requires_grad
    assert column[0] == 1.0
    assert column.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0], "slow must have shape (2,), got shape (1,)"),
        ([[1.0, 2.0]], "slow must have shape (2,), got shape (1, 2)"),
        (1.0, "slow must have shape (2,), got shape ()"),
        (pd.DataFrame({"a": [1, 2], "b": [3, 4]}), "slow must have shape (2,), got shape (2, 2)"),
        ("ab", "slow must be an array of real numbers, got 'ab' (str)"),
        (["a", "b"], "slow must be an array of real numbers, got ['a', 'b'] (list)"),
        (pd.Series(["a", "b"]), "slow must be an array of real numbers, got Series of shape (2,)"),
        ([1j, 2], "slow must be an array of real numbers, got [1j, 2] (list)"),
        ({0: 1.0, 1: 2.0}, "slow must be an array of real numbers, got {0: 1.0, 1: 2.0} (dict)"),
        ([1.0, -INF], "slow must not be infinite, got -inf at 1"),
        (np.array([INF, INF]), "slow must not be infinite, got inf at 0"),
    ],
    ids=lambda case: str(case)[:30],
)
def test_bad_columns(value, message):
    with refuses(message):
        v.check_column("slow", value, length=2)


# ------------------------------------------------------------------ bounds


def test_bounds():
    bounds = v.check_bounds(np.array([[0, -1, 5], [1, 1, 5]]))
    assert bounds.dtype == torch.float64
    assert bounds.tolist() == [[0.0, -1.0, 5.0], [1.0, 1.0, 5.0]]


def test_equal_bounds_are_allowed():
    assert v.check_bounds([[2.5], [2.5]]).tolist() == [[2.5], [2.5]]


@pytest.mark.parametrize(
    ("dimension", "low", "high", "what"),
    [
        (0, 1.0, 0.0, "have lower <= upper"),
        (2, 1.0, 1.0 - 1e-15, "have lower <= upper"),
        (1, NAN, 1.0, "be finite"),
        (2, 0.0, NAN, "be finite"),
        (0, -INF, 1.0, "be finite"),
        (1, 0.0, INF, "be finite"),
        (2, -1e308, 1e308, "be less than 1.8e308 apart"),
    ],
)
def test_bad_bounds_name_their_dimension(dimension, low, high, what):
    bounds = [[0.0] * 3, [1.0] * 3]
    bounds[0][dimension], bounds[1][dimension] = low, high
    with refuses(f"bounds must {what}, got ({low}, {high}) in dimension {dimension}"):
        v.check_bounds(bounds)


@pytest.mark.parametrize(
    "value", [[0.0, 1.0], [[0.0, 1.0]], [[0, 0], [1, 1], [2, 2]], np.ones((2, 0)), 3.0], ids=repr
)
def test_bounds_of_another_shape(value):
    shape = tuple(np.shape(value))
    with refuses("bounds must have shape (2, d): a row of lower ", f"got shape {shape}"):
        v.check_bounds(value)


# ------------------------------------------------------------------ descriptions


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3 (int)"),
        (None, "None (NoneType)"),
        ("x" * 100, "'" + "x" * 56 + "... (str)"),
        (np.ones((2, 3)), "ndarray of shape (2, 3)"),
        (torch.ones(2, 3), "a tensor of shape (2, 3) and dtype torch.float32"),
        (pd.DataFrame({"a": [1, 2]}), "DataFrame of shape (2, 1)"),
    ],
)
def test_descriptions_are_short(value, text):
    assert v.describe(value) == text
