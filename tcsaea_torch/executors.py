"""Where objectives run: one lane for the fast objective and one for the slow one."""

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import describe


@dataclass(frozen=True, kw_only=True)
class Lanes:
    """An executor for each objective; use it in a `with` block.

    By default each objective has a thread of its own, so that the fast one goes on
    while the slow one runs, and neither is ever called twice at a time. Executors that
    the user passed in are left open.
    """

    fast: Executor
    slow: Executor
    owned: tuple[Executor, ...] = ()

    @classmethod
    def make(cls, executor: Executor | None) -> "Lanes":
        """Use the given executor for both objectives; None makes two threads.

        Raises:
            InvalidInputError: If it has no `submit`.
        """
        if executor is None:
            fast = ThreadPoolExecutor(1, thread_name_prefix="fast")
            slow = ThreadPoolExecutor(1, thread_name_prefix="slow")
            return cls(fast=fast, slow=slow, owned=(fast, slow))
        if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
            raise InvalidInputError(
                f"executor must be a concurrent.futures.Executor, got {describe(executor)}"
            )
        return cls(fast=executor, slow=executor)

    def of(self, objective: Objective) -> Executor:
        """Return the executor of an objective."""
        return self.fast if objective is Objective.FAST else self.slow

    def __enter__(self) -> "Lanes":
        """Return the lanes themselves."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drop what has not started, and do not wait for what runs."""
        for executor in self.owned:
            executor.shutdown(wait=False, cancel_futures=True)
