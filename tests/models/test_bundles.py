"""Dataclasses of tensors, in a flat dict and back."""

from dataclasses import dataclass

import pytest
import torch

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models import Hyperparameters
from tcsaea_torch.models.bundles import flatten, restore
from tcsaea_torch.types import Float, Tensor
from tests.models.models import draw, f64


@dataclass(frozen=True, kw_only=True, eq=False)
class Inner:
    values: Float[Tensor, " n"]
    more: Tensor | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Outer:
    name: str
    index: Tensor
    inner: Inner
    other: Inner | None
    word: str | None = None


def make():
    odd = torch.arange(12).view(3, 4).mT[:, 1]
    inner = Inner(values=f64([0.1, float("inf"), -0.0]), more=torch.tensor([True]))
    return Outer(name="a name", index=odd, inner=inner, other=None)


def same_bits(a, b):
    assert a.keys() == b.keys()
    for key, value in a.items():
        if isinstance(value, str):
            assert value == b[key]
        else:
            assert value.dtype == b[key].dtype
            assert torch.equal(value, b[key])


def test_names_tell_where_a_value_was():
    flat = flatten(make(), "some")
    assert flat.keys() == {"some.name", "some.index", "some.inner.values", "some.inner.more"}
    assert flat["some.name"] == "a name"


def test_a_round_trip_returns_the_same():
    bundle = make()
    # Other entries of the state do not matter, nor do prefixes that begin alike.
    state = {**flatten(bundle, "some"), **flatten(bundle, "some.other2"), "period": 3}
    found = restore(Outer, state, "some")
    assert isinstance(found.inner, Inner)
    assert found.other is None
    assert found.word is None
    same_bits(flatten(found, "some"), flatten(bundle, "some"))


@pytest.mark.parametrize("p", [None, 1.0 + draw(2, 3)])
def test_hyperparameters_make_the_round_trip(p):
    hyper = Hyperparameters(theta=draw(2, 3), p=p, variance=draw(2), kernel="power-exponential")
    found = restore(Hyperparameters, flatten(hyper, "fast"), "fast")
    assert found.kernel == "power-exponential"
    assert (found.p is None) == (p is None)
    assert found.amplitudes is None
    same_bits(flatten(found, "x"), flatten(hyper, "x"))


@pytest.mark.parametrize("key", ["some.index", "some.inner.values", "some.name"])
def test_a_missing_entry_is_named(key):
    state = flatten(make(), "some")
    del state[key]
    with pytest.raises(InvalidInputError, match=f"must have '{key}'"):
        restore(Outer, state, "some")
    assert restore(Outer, flatten(make(), "some"), "some").name == "a name"
