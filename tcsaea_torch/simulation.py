"""Two lanes in virtual time: a discrete-event simulation of workers and queues."""

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tcsaea_torch.executors import Lanes
from tcsaea_torch.timeline import Interval, Outcome
from tcsaea_torch.types import Objective
from tcsaea_torch.validation import as_scalar


@dataclass(kw_only=True, eq=False, slots=True)
class _Call:
    """A call in a queue or with a worker."""

    lane: Objective
    number: int
    """Place among all calls of its lane."""
    place: int
    """Place among all calls."""
    id: int
    function: Callable[[], Any]
    future: Future[Any]
    worker: int = -1
    start: float = math.nan
    n_begun: int = 0
    """How often it began: more than once if workers went away."""


@dataclass(kw_only=True, eq=False, slots=True)
class SimulatedLane:
    """Workers and the queue of one lane."""

    n_workers: int
    limit: float
    """What a call may take at most."""
    times: Callable[[int], float]
    """What the k-th call takes."""
    fails: Callable[[int], bool]
    """Whether the k-th call fails."""
    n_calls: int = 0
    queue: deque[_Call] = field(default_factory=deque)
    idle: list[int] = field(default_factory=list)
    """Workers without a call: a heap, so that the one with the lowest number comes first."""
    away: list[int] = field(default_factory=list)
    """Numbers of workers that went: a heap."""
    busy: dict[int, _Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.idle = list(range(self.n_workers))

    def take(self, n: int) -> list[_Call]:
        """Let n workers go, idle ones and high numbers first; return what is lost."""
        lost = []
        for _ in range(n):
            if self.idle:
                worker = max(self.idle)
                self.idle.remove(worker)
                heapq.heapify(self.idle)
            else:
                worker = max(self.busy)
                lost.append(self.busy.pop(worker))
            heapq.heappush(self.away, worker)
        return lost

    def add(self, n: int) -> None:
        """Let n workers come; they get the lowest numbers that are free."""
        for _ in range(n):
            n_known = len(self.idle) + len(self.busy)
            worker = heapq.heappop(self.away) if self.away else n_known
            heapq.heappush(self.idle, worker)


# Kinds of events, in their order at one time: a call that ends just then is not lost.
_END, _CHANGE = range(2)
# (time, kind, a number that makes it unique, ...): of an end the call and its n_begun, of a
# change the lane and how many workers come.
_Event = tuple[float, int, int, Any, int]


def _is_of_lost_call(event: _Event) -> bool:
    """Return whether an event is an end that will not be: the worker went before."""
    _, kind, _, call, n_begun = event
    return kind == _END and (call.worker < 0 or call.n_begun != n_begun)


class SimulatedLanes(Lanes):
    """The simulation of one run."""

    takes_groups = False

    def __init__(
        self,
        lanes: Mapping[Objective, SimulatedLane],
        schedule: Sequence[tuple[float, Objective, int]],
    ) -> None:
        self.timeline: list[Interval] = []
        self._now = 0.0
        self._lanes = lanes
        self._events: list[_Event] = [
            (time, _CHANGE, k, lane, change) for k, (time, lane, change) in enumerate(schedule)
        ]
        self._n_submitted = self._n_begun = 0

    def check_function(self, objective: Objective, function: Callable[..., Any]) -> None:
        """Take any function."""

    def n_free(self, objective: Objective) -> int:
        """Return how many workers have nothing to do."""
        lane = self._lanes[objective]
        return max(0, len(lane.idle) - len(lane.queue))

    def submit(
        self,
        objective: Objective,
        id: int,
        function: Callable[..., Any],
        /,
        *arguments: Any,
        **options: Any,
    ) -> Future[Any]:
        """Put a call into a lane; it begins at the present time if a worker is free."""
        lane = self._lanes[objective]
        call = _Call(
            lane=objective, number=lane.n_calls, place=self._n_submitted, id=id,
            function=partial(function, *arguments, **options), future=Future(),
        )  # fmt: skip
        lane.n_calls += 1
        self._n_submitted += 1
        lane.queue.append(call)
        return call.future

    def wait(self) -> tuple[list[Future[Any]], dict[Future[Any], str]]:
        """Go on to the next time at which calls end or workers come."""
        ended: list[_Call] = []
        have_come = False
        while not (ended or have_come):
            while self._events and _is_of_lost_call(self._events[0]):
                heapq.heappop(self._events)
            if not self._events or self._events[0][0] > self._now:
                self._begin_calls()
            if not self._events:
                self._give_up()
            self._now = self._events[0][0]
            while self._events and self._events[0][0] == self._now:
                event = heapq.heappop(self._events)
                _, kind, _, subject, n = event
                if kind == _CHANGE:
                    self._change(subject, n)
                    have_come = have_come or n > 0
                elif not _is_of_lost_call(event):
                    ended.append(subject)
                    self._free(subject)
        done, overdue = [], {}
        for call in sorted(ended, key=lambda call: call.place):
            if self._settle(call) is Outcome.TIMED_OUT:
                limit = self._lanes[call.lane].limit
                overdue[call.future] = f"timed out after {limit:g} units of virtual time"
            else:
                done.append(call.future)
        return done, overdue

    def _begin_calls(self) -> None:
        for lane in self._lanes.values():
            while lane.queue and lane.idle:
                call = lane.queue.popleft()
                call.worker, call.start = heapq.heappop(lane.idle), self._now
                call.n_begun += 1
                lane.busy[call.worker] = call
                end = self._now + min(lane.times(call.number), lane.limit)
                heapq.heappush(self._events, (end, _END, self._n_begun, call, call.n_begun))
                self._n_begun += 1

    def _change(self, objective: Objective, change: int) -> None:
        lane = self._lanes[objective]
        if change > 0:
            lane.add(change)
            return
        for call in sorted(lane.take(-change), key=lambda call: -call.place):
            self._note(call, Outcome.LOST)
            call.worker = -1
            lane.queue.appendleft(call)

    def _free(self, call: _Call) -> None:
        lane = self._lanes[call.lane]
        del lane.busy[call.worker]
        heapq.heappush(lane.idle, call.worker)

    def _settle(self, call: _Call) -> Outcome:
        """Find out how a call ended that has left its worker, and give its future the result."""
        lane = self._lanes[call.lane]
        if lane.times(call.number) > lane.limit:
            return self._note(call, Outcome.TIMED_OUT)  # its future stays without a result
        if lane.fails(call.number):
            call.future.set_exception(RuntimeError("simulated failure"))
            return self._note(call, Outcome.FAILED)
        try:
            result = call.function()
        except Exception as error:
            call.future.set_exception(error)
            return self._note(call, Outcome.FAILED)
        call.future.set_result(result)
        return self._note(call, Outcome.DONE if _is_usable(result) else Outcome.FAILED)

    def _note(self, call: _Call, outcome: Outcome) -> Outcome:
        self.timeline.append(
            Interval(
                lane=call.lane, worker=call.worker, evaluation_id=call.id,
                start=call.start, end=self._now, outcome=outcome,
            )
        )  # fmt: skip
        return outcome

    def _give_up(self) -> None:
        waiting = {o: len(lane.queue) for o, lane in self._lanes.items() if lane.queue}
        text = " and ".join(f"{n} {objective}" for objective, n in waiting.items())
        raise BrokenExecutor(f"no worker is left for {text} evaluations at time {self._now:g}")


def _is_usable(result: Any) -> bool:
    """Return whether an objective's value is a finite number; it may come in a list."""
    values = result if isinstance(result, list) else [result]
    numbers = [as_scalar(value) for value in values]
    return all(number is not None and math.isfinite(number) for number in numbers)
