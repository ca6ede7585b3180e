"""Rows as a store holds them."""

from typing import Any

from benchmarks.definitions import Definition
from benchmarks.store import Row, identity


def row(definition: Definition, seed: int, **values: Any) -> Row:
    """Return a row of a run that nobody made."""
    return {
        **identity(definition), "device": "cpu", "code": "old", "seed": seed,
        "n_slow": definition.n_slow, "n_fast": 1000, "igd": 0.5, "hv": 0.25, "volume": None,
        "seconds": 2.0, "n_together": 5, "suite": "some",
        "made": "2026-01-01T00:00:00+00:00", "commit": "abc",
        "versions": "python 3", "machine": "machine", **values,
    }  # fmt: skip
