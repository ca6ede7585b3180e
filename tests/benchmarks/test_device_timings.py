import pytest
import torch

from benchmarks.device import measure
from benchmarks.device.budget import Budget, predict
from benchmarks.device.items import PROBLEM, STRATEGY, Item, Watched, Work, in_order, works
from benchmarks.micro.timing import Spread
from benchmarks.run_batch import run_batch


class Clock:
    """Time that passes only while work is done."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def work_of(clock, seconds, *, calls=None, **changes):
    """Return a work that takes `seconds[b]`, or raises what stands there instead."""

    def make(b, device, budget):
        def call():
            if calls is not None:
                calls.append(b)
            if isinstance(seconds[b], Exception):
                raise seconds[b]
            clock.now += seconds[b]
            return f"note of {b}"

        return call

    sizes = tuple(seconds)
    return Work(**{"what": "work", "make": make, "cpu": sizes, "device": sizes, **changes})


def items_of(work, device="cpu"):
    return [Item(work=work, b=b, device=device) for b in work.cpu]


# --- how long something takes ---


@pytest.mark.parametrize(
    ("measured", "device", "seconds"),
    [
        ({1: 2.0}, "cpu", 2.0 * 16),
        ({1: 2.0, 4: 3.0}, "cpu", 3.0 * 4),  # on the CPU in proportion, whatever came before
        ({1: 2.0}, "cuda", 2.0 * 4),  # 16 ** 0.5
        ({1: 1.0, 4: 2.0}, "cuda", 2.0 * 2),  # as b ** 0.5
        ({1: 1.0, 2: 8.0, 4: 32.0}, "cuda", 32.0 * 4),  # never more than in proportion
        ({1: 9.0, 2: 1.0, 4: 1.0}, "cuda", 2**0.5),  # never for nothing
    ],
)
def test_predictions(measured, device, seconds):
    assert predict(measured, 16, device=device) == pytest.approx(seconds)


def test_budgets():
    clock = Clock()
    clock.now = 100.0
    budget = Budget(10.0, clock)
    clock.now = 103.0
    assert (budget.used, budget.left) == (3.0, 7.0)
    clock.now = 200.0
    assert budget.left == 0.0


# --- what is timed, and what is skipped ---


def test_the_first_call_is_not_timed():
    clock, calls = Clock(), []
    timing, *_ = measure.measure(items_of(work_of(clock, {1: 0.25}, calls=calls)), Budget(9, clock))
    assert calls == [1] * (1 + 5)
    assert timing.seconds == Spread(median=0.25, low=0.25, high=0.25)
    assert (timing.status, timing.repeats, timing.note) == ("measured", 5, "note of 1")
    assert (timing.per_item, timing.peak_bytes) == (0.25, None)


@pytest.mark.parametrize(("seconds", "repeats"), [(0.7, 5), (1.5, 3), (2.5, 2), (5.0, 1)])
def test_what_takes_long_is_repeated_less(seconds, repeats):
    clock = Clock()
    timing, *_ = measure.measure(items_of(work_of(clock, {1: seconds})), Budget(99, clock))
    assert timing.repeats == repeats


def test_repeats_end_with_the_time():
    clock = Clock()
    timing, *_ = measure.measure(items_of(work_of(clock, {1: 1.0})), Budget(2.5, clock))
    assert timing.repeats == 2


@pytest.mark.parametrize(
    ("left", "statuses", "note"),
    [
        (99.0, ["measured", "measured", "measured"], "note of 20"),
        # 6 calls of 1 take 3 s, 2 of 2 would take 2 s, and 20 would take 10 s.
        (6.0, ["measured", "measured", "skipped"], "would take about 10 s, 0 s left"),
        (4.0, ["measured", "skipped", "skipped"], "would take about 10 s, 1 s left"),
        (0.0, ["skipped", "skipped", "skipped"], "no smaller batch was measured"),
    ],
)
def test_what_there_is_no_time_for_is_skipped(left, statuses, note):
    clock = Clock()
    items = items_of(work_of(clock, {1: 0.5, 2: 1.0, 20: 10.0}))
    timings = list(measure.measure(items, Budget(left, clock)))
    assert [timing.status for timing in timings] == statuses
    assert timings[-1].note == note
    assert all((timing.seconds is None) == (timing.status != "measured") for timing in timings)


def test_without_time_nothing_is_called():
    clock, calls = Clock(), []
    timings = list(
        measure.measure(items_of(work_of(clock, {1: 1.0}, calls=calls)), Budget(0, clock))
    )
    assert not calls
    assert timings[0].note == "0 s left"


def test_a_failure_costs_only_its_own_work():
    clock = Clock()
    broken = work_of(clock, {1: 1.0, 2: RuntimeError("out of memory\nand more"), 4: 1.0})
    other = work_of(clock, {1: 1.0}, what="other")
    timings = list(measure.measure(items_of(broken) + items_of(other), Budget(99, clock)))
    assert [timing.status for timing in timings] == ["measured", "failed", "measured", "measured"]
    assert timings[1].note == "RuntimeError: out of memory"


def test_runs_are_timed_once_after_a_small_one(monkeypatch):
    clock, calls = Clock(), []
    monkeypatch.setattr(measure, "small_run", lambda device: calls.append(device))
    work = work_of(clock, {1: 1.0, 2: 1.0}, calls=calls, is_run=True)
    timings = list(measure.measure(items_of(work), Budget(99, clock)))
    assert calls == ["cpu", 1, 2]
    assert [timing.repeats for timing in timings] == [1, 1]


def test_a_run_is_cut_when_the_time_is_over():
    clock = Clock()
    budget = Budget(2.5, clock)

    def make(b, device, budget):
        watched = Watched(strategy=Slowly(clock), budget=budget)
        return lambda: str(run_batch(PROBLEM, watched, range(b), n_slow=16, n_init=9))

    item = Item(work=work_of(clock, {1: 0}, make=make), b=1, device="cpu")
    timing, *_ = measure.measure([item], budget)
    assert timing.status == "cut"
    assert timing.note == "out of time at 9 of 16 slow evaluations a run, 3 s"
    assert (timing.seconds, timing.per_item) == (None, None)


class Slowly:
    """The strategy of runs; each step takes a second."""

    def __init__(self, clock):
        self.clock, self.name, self.init = clock, STRATEGY.name, STRATEGY.init

    def propose(self, state, run):
        self.clock.now += 1.0
        return STRATEGY.propose(state, run)


def test_a_watched_strategy_changes_nothing():
    watched = Watched(strategy=STRATEGY, budget=Budget(1e9))
    ours, plain = (
        run_batch(PROBLEM, one, [3, 4], n_slow=14, n_init=9) for one in (watched, STRATEGY)
    )
    assert torch.equal(ours.archive.X, plain.archive.X)
    assert watched.name == STRATEGY.name


def test_the_device_is_waited_for_and_its_peak_is_of_the_timed_calls(monkeypatch):
    clock, events = Clock(), []

    def note(name, value=None):
        return lambda *_: events.append(name) or value

    monkeypatch.setattr(measure, "synchroniser", lambda device: note("wait"))
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, note(name))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", note("peak", 2**30))
    work = work_of(clock, {1: 9.0}, calls=events)
    timing, *_ = measure.measure(items_of(work, "cuda"), Budget(99, clock))
    assert events == ["empty_cache", 1, "reset_peak_memory_stats", "wait", 1, "wait", "peak"]
    assert timing.peak_bytes == 2**30


def sizes_of(items):
    return [(item.work.what[:4], item.b, item.device) for item in items]


def test_the_items_of_a_machine_with_a_device():
    items = sizes_of(in_order(works(quick=False), "cuda"))
    assert len(items) == len(set(in_order(works(quick=False), "cuda"))) == 14 + 10
    on_device = [(what, b) for what, b, device in items if device == "cuda"]
    assert on_device == [
        *[("fit,", 1), ("fit,", 20), ("fit,", 320)] * 2, ("fit,", 1), ("fit,", 20),
        ("RVEA", 1), ("RVEA", 64), ("RVEA", 1024), ("run ", 1), ("run ", 20), ("run ", 320),
    ]  # fmt: skip
    # To compare with, each work is done on the CPU before the runs take the time.
    runs = items.index(("run ", 1, "cuda"))
    assert [(what, b) for what, b, device in items[:runs] if device == "cpu"] == [
        ("fit,", 1), ("fit,", 1), ("fit,", 1), ("RVEA", 1), ("run ", 1),
    ]  # fmt: skip
    assert [(b, device) for _, b, device in items[-5:]] == [
        (20, "cpu"), (20, "cpu"), (20, "cpu"), (64, "cpu"), (20, "cpu"),
    ]  # fmt: skip


def test_without_a_device_the_cpu_does_its_part():
    items = in_order(works(quick=False), "cpu")
    assert {item.device for item in items} == {"cpu"}
    assert max(item.b for item in items) == 64
    assert len(items) == 10
