"""`Recorder`: the state of a run and its events, kept in memory or in a journal too."""

from collections.abc import Callable

import torch

from tcsaea_torch.events import Event, Failed, RunState, Status, apply
from tcsaea_torch.journal import Journal
from tcsaea_torch.study import replay
from tcsaea_torch.types import Tensor

INTERRUPTED = "the run was interrupted"
"""Why evaluations failed that were pending when a run was resumed with on_pending="fail"."""


class Recorder:
    """Takes events into account, after they are stored.

    Args:
        state: The state before the first event.
        device: Where the strategy's state belongs.
    """

    def __init__(self, state: RunState, device: torch.device) -> None:
        self._device = device
        self._journal: Journal | None = None
        self._is_in_doubt = False
        self.state = state
        self.events: list[Event] = []

    def start(self, events: tuple[Event, ...], journal: Journal | None) -> None:
        """Take the first events into account; a journal has them already."""
        self._journal = journal
        self._count(events)

    def resume(self, journal: Journal, on_pending: str) -> None:
        """Rebuild the run in a journal, from the state before its first event.

        Args:
            journal: The journal, open for writing.
            on_pending: "wait", "rerun" or "fail".
        """
        self._journal = journal
        self._rebuild(self.state)
        state = self.state
        pending = [r for r in state.records if r.status is Status.PENDING]
        if on_pending == "rerun":
            # What a retry was for may have come late.
            wanted = [r for r in pending if state.pending[r.point_id, r.objective.column]]
            state.to_hand_out = {r.id: None for r in wanted}
        under_way = [r for r in pending if r.id not in state.to_hand_out]
        if on_pending == "fail" and under_way:
            self.record(*(Failed(id=r.id, reason=INTERRUPTED) for r in under_way))

    def record(self, *events: Event) -> None:
        """Store events, all or none, and take them into account.

        Raises:
            JournalError: If they could not be stored; nothing has changed then.
        """
        if self._journal is None or not events:
            self._count(events)
            return
        # An error, or Ctrl-C anywhere in here, leaves open what was stored and counted.
        self._is_in_doubt = True
        self._journal.append(*events)
        self._count(events)
        self._is_in_doubt = False

    def settle(self, make_state: Callable[[], RunState]) -> None:
        """Make sure that the state is what is stored, before anything is decided on it.

        Args:
            make_state: Returns the state before the first event.
        """
        if not self._is_in_doubt:
            return
        n_before, waiting = len(self.state.records), set(self.state.to_hand_out)
        self._rebuild(make_state())
        # What an interrupted `ask` handed out has not arrived; nothing else is given twice.
        self.state.to_hand_out = {
            r.id: None
            for r in self.state.records
            if r.status is Status.PENDING and (r.id >= n_before or r.id in waiting)
        }

    def close(self) -> None:
        """Give up the journal."""
        if self._journal is not None:
            self._journal.close()

    def _count(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self.events.append(event)
            apply(self.state, event)

    def _rebuild(self, first: RunState) -> None:
        """Make the state again from the journal."""
        assert self._journal is not None
        events = self._journal.events()
        state = replay(first, events)
        state.strategy_state = {
            key: value.to(self._device) if isinstance(value, Tensor) else value
            for key, value in state.strategy_state.items()
        }
        self.state, self.events = state, events
        self._is_in_doubt = False
