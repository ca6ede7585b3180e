"""How often the tests check types and shapes."""

import importlib
import inspect
from typing import Any

import jaxtyping
import pytest

from tcsaea_torch import metrics
from tests import typecheck
from tests.typecheck import FIRST, LATER


def of_text(value: str) -> str:
    return value


def test_first_calls_and_some_later_ones_are_checked():
    call: Any = jaxtyping.jaxtyped(of_text, typechecker=typecheck.checked)
    refused = []
    n = FIRST + 3 * LATER
    for k in range(1, n + 1):
        try:
            call(k)
        except jaxtyping.TypeCheckError:
            refused.append(k)
    later = [k for k in range(FIRST + 1, n + 1) if k % LATER == 0]
    assert refused == [*range(1, FIRST + 1), *later]
    typecheck.n_calls.clear()  # as before each test
    with pytest.raises(jaxtyping.TypeCheckError):
        call(1)


def test_functions_within_functions_are_left_as_they_are():
    def within(value: str) -> str:
        return value

    assert jaxtyping.jaxtyped(within, typechecker=typecheck.checked) is within


@pytest.mark.parametrize("module", ["metrics", "models.likelihood", "strategies.tc_ehvi"])
def test_the_packages_own_functions_are_checked(module):
    found = importlib.import_module(f"tcsaea_torch.{module}")
    own = [f for f in vars(found).values() if getattr(f, "__module__", "") == found.__name__]
    functions = [f for f in own if inspect.isfunction(f)]
    assert functions
    assert all(hasattr(f, "__wrapped__") for f in functions)


def test_wrong_shapes_are_seen(tensor):
    with pytest.raises(jaxtyping.TypeCheckError):
        metrics.is_non_dominated(tensor(1.0))
