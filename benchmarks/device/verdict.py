"""When a device pays, and how long the paper's runs would take: from measured rows alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.device.measure import Timing

PAPER_RUNS = 640
"""The columns of TC-SAEA in the paper: 16 problems, 2 ratios tau, 20 seeds."""

AIM_SECONDS = 600.0
"""In how long they shall be done."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """How much faster the device does one item of a batch than one thread of the CPU."""

    b: int
    cpu_b: int
    """The CPU's batch: the largest measured one that is not larger than b."""
    cpu_per_item: float
    device_per_item: float
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """When the device pays for one kind of work."""

    what: str
    ratios: tuple[Ratio, ...]
    pays_from: int | None
    """The smallest measured batch from which on the device wins against one thread."""
    pays_from_all_cores: int | None
    """The same against all cores, if each did the work of one thread alone."""
    summary: str


def verdicts(timings: Sequence[Timing], cores: int) -> list[Verdict]:
    """Return a verdict for each kind of work, in the order of the timings."""
    return [_verdict(what, timings, cores) for what in dict.fromkeys(t.what for t in timings)]


def _verdict(what: str, timings: Sequence[Timing], cores: int) -> Verdict:
    of_work = [t for t in timings if t.what == what and t.per_item is not None]
    cpu = {t.b: t.per_item for t in of_work if t.device == "cpu" and t.per_item}
    device = {t.b: t.per_item for t in of_work if t.device != "cpu" and t.per_item}
    ratios = []
    for b in sorted(device):
        if smaller := [size for size in cpu if size <= b]:
            nearest = max(smaller)
            ratios.append(
                Ratio(b=b, cpu_b=nearest, cpu_per_item=cpu[nearest], device_per_item=device[b],
                      ratio=cpu[nearest] / device[b])
            )  # fmt: skip
    one, every = _pays_from(ratios, 1.0), _pays_from(ratios, float(cores))
    return Verdict(
        what=what, ratios=tuple(ratios), pays_from=one, pays_from_all_cores=every,
        summary=_summary(ratios, one, every, cores),
    )  # fmt: skip


def _pays_from(ratios: Sequence[Ratio], threshold: float) -> int | None:
    """Return the batch from which on all ratios are above a threshold; they are in order of b."""
    first = None
    for one in reversed(ratios):
        if one.ratio <= threshold:
            break
        first = one.b
    return first


def _summary(ratios: Sequence[Ratio], one: int | None, every: int | None, cores: int) -> str:
    if not ratios:
        return "not measured"
    largest = ratios[-1].b
    never = f"not in batches of up to {largest}"
    against_one = never if one is None else f"from a batch of {one}"
    against_all = never if every is None else f"from a batch of {every}"
    return f"{against_one} against one thread; {against_all} against all {cores} cores"


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """How long the paper's runs would take on the device."""

    runs: int
    seconds: float
    aim_seconds: float
    within_aim: bool
    measured_runs: int
    measured_seconds: float
    assumes: str


def paper_estimate(timings: Sequence[Timing]) -> Estimate | None:
    """Return the estimate from the largest batch of runs on the device; None without one."""
    runs = [t for t in timings if t.is_run and t.device != "cpu" and t.seconds is not None]
    if not runs:
        return None
    largest = max(runs, key=lambda t: t.b)
    assert largest.seconds is not None
    measured = largest.seconds.median
    seconds = measured * PAPER_RUNS / largest.b
    return Estimate(
        runs=PAPER_RUNS, seconds=seconds, aim_seconds=AIM_SECONDS,
        within_aim=seconds <= AIM_SECONDS, measured_runs=largest.b, measured_seconds=measured,
        assumes=f"an estimate: as if each of the {PAPER_RUNS} runs took as long as one of "
        f"{largest.b} in this batch ({largest.what}). Runs with tau = 10 or in 30 dimensions "
        "take longer, and batches of another size take another time per run",
    )  # fmt: skip
