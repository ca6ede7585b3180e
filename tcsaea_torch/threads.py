"""Threads of our own, and functions that note when they begin: what time limits need."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

_ENDS_WITHIN_S = 1.0
"""How long an idle thread has to end."""


class OwnThreads(Executor):
    """Threads that make calls one after another; one can be left to a call that hangs.

    They end with the program, whatever they do then.

    Args:
        name: Of the threads.
        n: How many there are.
    """

    def __init__(self, name: str, n: int = 1) -> None:
        self._name, self._n = name, n
        self._lock = threading.Lock()
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._running: dict[Future[Any], threading.Thread] = {}
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Put a call into the queue."""
        with self._lock:
            if self._is_shut:
                raise RuntimeError("cannot submit a call after shutdown")
            future: Future[Any] = Future()
            self._calls.put((future, partial(fn, *args, **kwargs)))
            if len(self._threads) < self._n:
                self._start()
        return future

    def leave_behind(self, future: Future[Any]) -> None:
        """Go on with another thread, if one is busy with this call."""
        with self._lock:
            if future in self._running:
                self._threads.remove(self._running.pop(future))
                self._start()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and end the threads after those that came.

        Idle threads have ended on return, even where calls are not waited for: one that only begins
        to end when the interpreter does can take the whole process down with it.
        """
        with self._lock:
            self._is_shut, threads = True, self._threads.copy()
            busy = {thread for call, thread in self._running.items() if not call.done()}
            with suppress(Empty):
                while cancel_futures:
                    call = self._calls.get_nowait()
                    if call is not None:
                        call[0].cancel()
            for _ in threads:
                self._calls.put(None)
        # A call, or what is called when it is done, may ask for the end of its own thread.
        for thread in threads - {threading.current_thread()}:
            if wait:
                thread.join()
            elif thread not in busy:
                thread.join(_ENDS_WITHIN_S)  # it may just have taken a call

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._threads.add(thread)
        thread.start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if not future.set_running_or_notify_cancel():
                continue
            with self._lock:
                self._running[future] = threading.current_thread()
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            with self._lock:
                if self._running.pop(future, None) is None:
                    return  # left behind: another thread has taken over


class Timed:
    """A function that notes when it begins, even as a copy in another process.

    The copy touches a file, so that it needs a file system in common with the original.

    Args:
        function: What to call.
        mark: The file; None: no copy is made.
    """

    def __init__(self, function: Callable[..., Any], mark: Path | None) -> None:
        self.function, self.mark, self.is_copy = function, mark, False
        self.began: float | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the function."""
        self.began = time.time()
        if self.is_copy and self.mark is not None:
            with suppress(OSError):  # the run is over
                self.mark.touch()
        return self.function(*arguments, **options)

    def __getstate__(self) -> tuple[Callable[..., Any], Path | None]:
        return self.function, self.mark

    def __setstate__(self, state: tuple[Callable[..., Any], Path | None]) -> None:
        (self.function, self.mark), self.is_copy, self.began = state, True, None

    def started_at(self) -> float | None:
        """Return when it began, in seconds since the epoch, or None."""
        if self.began is None and self.mark is not None:
            with suppress(OSError):
                self.began = self.mark.stat().st_mtime
        return self.began
