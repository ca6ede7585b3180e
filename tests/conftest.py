"""Shared fixtures. Importing this first puts shape and type checks on the whole package."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch

from tests import typecheck

typecheck.install("tcsaea_torch")

REFERENCE = Path(__file__).parent / "reference"
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _first_calls_are_checked() -> None:
    typecheck.n_calls.clear()


@pytest.fixture(autouse=True)
def _global_state_is_untouched() -> Iterator[None]:
    """No test, and so nothing in the library, may change torch's global state."""
    dtype, rng = torch.get_default_dtype(), torch.get_rng_state()
    yield
    assert torch.get_default_dtype() == dtype
    assert torch.equal(torch.get_rng_state(), rng)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device that this machine has."""
    return torch.device(request.param)


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Let wrong types through to the library's own checks, as they are for users."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def load_reference(name: str) -> Any:
    """Return the content of a reference file."""
    return json.loads((REFERENCE / f"{name}.json").read_text())


@pytest.fixture
def tensor() -> Callable[[Any], torch.Tensor]:
    """Turn nested lists into float64 tensors."""
    return lambda value: torch.tensor(value, dtype=torch.float64)


@pytest.fixture(scope="session")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The journal of a finished run."""
    from tests.journals import finished

    return finished(tmp_path_factory.mktemp("finished") / "study.db")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a study may lie."""
    return tmp_path / "study.db"


@pytest.fixture
def study(path: Path, finished_study: bytes) -> Path:
    """A file of one's own with a finished run."""
    path.write_bytes(finished_study)
    return path
