"""Journals that tests look at, and what they look with."""

import math
from typing import Any

import torch

import tcsaea_torch as tc
from tcsaea_torch import codec
from tcsaea_torch.events import Asked
from tests.test_conventions import quick

NAN, INF = math.nan, math.inf


def problem(**changes):
    options = {
        "fast": lambda x: float((x**2).sum()),
        "slow": lambda x: float(((x - 1) ** 2).sum()),
        "bounds": [[0.0, 0.0], [1.0, 1.0]],
        "tau": 2,
    }
    return tc.Problem(**{**options, **changes})


def asked(**state):
    return Asked(
        X=torch.rand(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)),
        evaluation_mask=torch.tensor([[True, False], [True, True]]),
        strategy_state=state,
    )


def is_same(a, b):
    """Compare bit for bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype is b.dtype and a.shape == b.shape and codec._bytes(a) == codec._bytes(b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if type(a).__module__ == "tcsaea_torch.events":
        return type(a) is type(b) and is_same(vars(a), vars(b))
    return type(a) is type(b) and repr(a) == repr(b)


def is_same_list(a, b):
    return len(a) == len(b) and all(map(is_same, a, b))


def run(optimizer, n=10**9):
    """Run to the end, or until n values are told; every seventh evaluation fails."""
    while n and (evaluations := optimizer.ask()):
        for e in evaluations[:n]:
            if e.id % 7 == 3:
                optimizer.fail(e.id, "diverged", retry=e.id % 2 == 0)
            else:
                optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
        n -= min(n, len(evaluations))
    return optimizer


def opened(optimizer: Any) -> Any:
    """Return the journal of a run."""
    return optimizer._run._journal


def finished(path):
    """Return the bytes of a finished run with failures, attached data and many states."""
    with tc.Optimizer(
        problem(), n_slow=12, n_init=6, strategy=quick(), journal=path, seed=1,
        initial_data={"X": [[0.5, 0.5]], "fast": [0.5]},
    ) as optimizer:  # fmt: skip
        run(optimizer)
    return path.read_bytes()
