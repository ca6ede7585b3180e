"""Executors for jobs that can only be asked whether they are done, such as submitit's."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.validation import check_real, describe


class JobExecutor(Executor):
    """Makes a `concurrent.futures` executor of one whose `submit` returns jobs.

    A job has `done()` and `result()`, and may have `cancel()`. One thread asks all jobs in turn
    whether they are done; it ends with the last of them, and with the program. A job that was
    killed or lost is one whose `result()` raises.

    To cancel a future cancels its job, even if that runs. At the end of a `with` block all jobs
    are waited for; `shutdown(wait=False, cancel_futures=True)` cancels them.

    Example:
        >>> class Job:
        ...     def __init__(self, value):
        ...         self.value = value
        ...
        ...     def done(self):
        ...         return True
        ...
        ...     def result(self):
        ...         return self.value
        >>> class Cluster:
        ...     def submit(self, fn, *arguments):
        ...         return Job(fn(*arguments))
        >>> with JobExecutor(Cluster(), poll_s=0.01) as executor:
        ...     executor.submit(abs, -3).result()
        3

    Args:
        executor: An object with `submit(fn, *args, **kwargs)`, such as submitit's executors.
        poll_s: Seconds between two times that a job is asked.

    Raises:
        InvalidInputError: If an argument is not as described.
    """

    def __init__(self, executor: Any, *, poll_s: float = 1.0) -> None:
        if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
            raise InvalidInputError(
                f"executor must be an object with submit(fn, *args), got {describe(executor)}"
            )
        self._executor = executor
        self._poll_s = check_real("poll_s", poll_s, minimum=0, exclusive=True)
        self._jobs: dict[Future[Any], Any] = {}  # those that have not ended
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._polls = False  # the thread: it ends with the last job
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a job, and return a future of its result.

        Raises:
            InvalidInputError: If `submit` returns no job.
        """
        with self._change:
            if self._is_shut:
                raise RuntimeError("cannot submit a job after shutdown")
            job = self._executor.submit(fn, *args, **kwargs)
            for method in ("done", "result"):
                if not callable(getattr(job, method, None)):
                    raise InvalidInputError(
                        f"executor must return jobs with done() and result() from submit, "
                        f"got {describe(job)}"
                    )
            future: Future[Any] = Future()
            self._jobs[future] = job
            if not self._polls:
                self._polls = True
                self._thread = threading.Thread(target=self._poll, name="jobs", daemon=True)
                self._thread.start()
        future.add_done_callback(partial(self._forget, job))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more jobs.

        Args:
            wait: Whether to wait for the jobs.
            cancel_futures: Whether to cancel them.
        """
        with self._change:
            self._is_shut, thread = True, self._thread
            futures = list(self._jobs) if cancel_futures else []
        for future in futures:
            future.cancel()
        if wait and thread is not None:
            thread.join()

    def _forget(self, job: Any, future: Future[Any]) -> None:
        """Cancel the job of a future that was cancelled."""
        if future.cancelled() and self._begin_to_end(future) is None:
            cancel = getattr(job, "cancel", None)
            if callable(cancel):
                cancel()

    def _begin_to_end(self, future: Future[Any]) -> bool | None:
        """Take a future out of the list, once, and return whether it may have a result.

        None: it was cancelled, and who waits for it knows now. False: it was out before.
        """
        with self._change:
            if self._jobs.pop(future, None) is None:
                return False
            self._change.notify()
            return future.set_running_or_notify_cancel() or None

    def _pass_on(self, job: Any, future: Future[Any]) -> None:
        """Give a future what its job returned or raised, if it is done."""
        try:
            if not job.done():
                return
            result = job.result()
        except BaseException as error:  # whatever a job may raise, it is the future's
            if self._begin_to_end(future):
                future.set_exception(error)
        else:
            if self._begin_to_end(future):
                future.set_result(result)

    def _poll(self) -> None:
        while True:
            with self._change:
                jobs = list(self._jobs.items())
            for future, job in jobs:
                self._pass_on(job, future)
            with self._change:
                # News is only that all were cancelled; new jobs have time.
                self._change.wait_for(lambda: not self._jobs, self._poll_s)
                if not self._jobs:
                    self._polls = False
                    return
