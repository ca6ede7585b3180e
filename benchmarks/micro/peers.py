"""Optional peers: found at run time, so that nothing here needs them."""

import importlib
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PEERS = ("pymoo", "evox", "smt", "scipy", "threadpoolctl")
"""Packages whose version belongs to the record, where they are installed."""


class MissingPeerError(Exception):
    """A peer is not installed here, or does not load."""


def load(module: str) -> Any:
    """Import a module of a peer.

    Raises:
        MissingPeerError: If it cannot be imported.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".", 1)[0]
        raise MissingPeerError(f"{package} does not load here ({error})") from error


def quietly(work: Callable[[], Any]) -> Callable[[], Any]:
    """Return the same work without its warnings, which are the peer's own affair."""

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return work()

    return run


def add(
    works: dict[str, Callable[[], Any]],
    notes: dict[str, str],
    name: str,
    make: Callable[[], Callable[[], Any]],
) -> None:
    """Make a peer's work and add it; without the peer, add a note that says so.

    Args:
        works: Where it is added.
        notes: Where the reason goes.
        name: Name of the rival.
        make: Loads the peer and returns what is to be timed.
    """
    try:
        works[name] = quietly(make())
    except MissingPeerError as error:
        notes[name] = str(error)


def versions() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for name in PEERS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
