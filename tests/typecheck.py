"""Types and shapes of the package's functions, checked at run time while tests run.

To check every call takes longer than the tests themselves, so that a function's first calls in
each test are checked, and some of the later ones. Functions within functions are not: they would
be decorated anew each time.
"""

import functools
import inspect
from collections import Counter
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

FIRST, LATER = 20, 20
"""How many first calls are checked, and of later ones one in so many."""

n_calls: Counter[Any] = Counter()
"""Of each function, in this test."""

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
"""The type checker; an int is a float, as PEP 484 has it."""

_jaxtyped = jaxtyping.jaxtyped


def _sometimes(function=None, *, typechecker=None):
    """Stand in for `jaxtyping.jaxtyped`."""
    if function is None:
        return functools.partial(_sometimes, typechecker=typechecker)
    if not inspect.isfunction(function):
        return _jaxtyped(function, typechecker=typechecker)
    if "<locals>" in function.__qualname__:
        return function
    with_checks = _jaxtyped(function, typechecker=typechecker)

    @functools.wraps(function)
    def call(*args, **kwargs):
        n_calls[function] += 1
        n = n_calls[function]
        return (with_checks if n <= FIRST or n % LATER == 0 else function)(*args, **kwargs)

    return call


def install(package):
    """Check the functions of a package's modules that are imported from now on."""
    jaxtyping.jaxtyped = _sometimes  # which the hook looks up whenever it decorates
    jaxtyping.install_import_hook(package, f"{__name__}.checked")
