"""What Dask's executors need beside those of `concurrent.futures`.

Dask itself is not imported: who passes one of its objects has done so.
"""

import sys
from concurrent.futures import BrokenExecutor, Future
from typing import Any


def as_executor(value: Any) -> Any:
    """Return the executor of a Dask client, and everything else as it is."""
    distributed = sys.modules.get("distributed")
    if distributed is not None and isinstance(value, distributed.Client):
        return value.get_executor()
    return value


def is_dask(executor: Any) -> bool:
    """Return whether an executor is that of a Dask client."""
    distributed = sys.modules.get("distributed.cfexecutor")
    return distributed is not None and isinstance(executor, distributed.ClientExecutor)


def submit(executor: Any, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
    """Submit a call to Dask, which by itself would make equal calls, such as retries, once.

    Raises:
        BrokenExecutor: If the connection to the cluster is lost.
    """
    try:
        return executor.submit(function, *arguments, pure=False, **options)
    except Exception as error:
        if is_lost(executor):
            raise BrokenExecutor(f"Dask's client is closed: {error}") from error
        raise


def is_lost(executor: Any) -> bool:
    """Return whether the connection to the cluster is lost, which cancels all calls."""
    return executor._client.status != "running"
