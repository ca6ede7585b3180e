"""One JSON document of all that was measured, and the same as Markdown."""

import json
import re
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from benchmarks import environment, markdown
from benchmarks.device.budget import Budget
from benchmarks.device.checks import Check
from benchmarks.device.measure import Timing
from benchmarks.device.verdict import Estimate, Verdict, paper_estimate, verdicts
from benchmarks.micro.stamp import stamp


def file_name(machine: str, *, quick: bool) -> str:
    """Return a name made of the machine and today's date."""
    model = machine.partition(",")[0].lower()
    slug = re.sub(r"[^a-z0-9]+", "-", model).strip("-")
    return f"{slug}-{datetime.now(UTC):%Y-%m-%d}{'-quick' * quick}.json"


@dataclass(kw_only=True)
class Record:
    """What is known so far; it grows, and is written again as it does."""

    path: Path
    device: str
    quick: bool
    budget: Budget
    n_planned: int
    made_with: dict[str, Any] = field(init=False)
    checks: dict[str, Check] = field(default_factory=dict)
    timings: list[Timing] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.made_with = {**stamp(self.device), "cpu": environment.machine("cpu")}

    @property
    def verdicts(self) -> list[Verdict]:
        """When the device pays."""
        return verdicts(self.timings, self.made_with["cores"])

    @property
    def estimate(self) -> Estimate | None:
        """How long the paper's runs would take."""
        return paper_estimate(self.timings)

    @property
    def has_failures(self) -> bool:
        """Whether a check or an item failed."""
        outcomes = [*self.checks.values(), *self.timings]
        return any(outcome.status == "failed" for outcome in outcomes)

    def write(self) -> None:
        """Write the document, in place of the earlier one."""
        estimate = self.estimate
        document = {
            **self.made_with,
            "quick": self.quick,
            "seconds_allowed": self.budget.seconds,
            "seconds_used": self.budget.used,
            "finished": len(self.timings) == self.n_planned,
            "checks": {name: asdict(check) for name, check in self.checks.items()},
            "timings": [asdict(timing) for timing in self.timings],
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "paper_runs": None if estimate is None else asdict(estimate),
        }
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(self.path)

    def markdown(self) -> str:
        """Return the tables."""
        sections = [
            _made_with(self.made_with, quick=self.quick),
            "\n".join(_check_line(name, check) for name, check in self.checks.items()),
            markdown.table(TIMING_HEAD, [_timing_cells(timing) for timing in self.timings]),
            "When the device pays, per item:",
            markdown.table(VERDICT_HEAD, chain.from_iterable(map(_verdict_cells, self.verdicts))),
            "\n".join(f"- {v.what}: {v.summary}" for v in self.verdicts),
            _estimate_line(self.estimate),
        ]
        return "\n\n".join(section for section in sections if section)


TIMING_HEAD = ("work", "batch", "device", "seconds (quartiles)", "per item", "repeats",
               "peak memory", "note")  # fmt: skip
VERDICT_HEAD = ("work", "batch", "CPU, one thread (batch)", "device", "CPU / device")


def _made_with(entries: dict[str, Any], *, quick: bool) -> str:
    warning = "Tiny sizes (--quick): the numbers mean nothing. " if quick else ""
    return (
        f"{warning}{entries['machine']}; CPU: {entries['cpu']}; "
        f"{entries['versions']}; commit {entries['commit']}; {entries['made']}"
    )


def _check_line(name: str, check: Check) -> str:
    return "\n  ".join([f"- {name}: {check.summary}", *check.failures])


def _timing_cells(timing: Timing) -> list[str]:
    shown = [timing.what, str(timing.b), timing.device]
    if timing.seconds is None or timing.per_item is None:
        return [*shown, timing.status, "", "", "", timing.note]
    spread = timing.seconds
    seconds = f"{spread.median:.3g}"
    if timing.repeats > 1:
        seconds += f" ({spread.low:.3g} to {spread.high:.3g})"
    peak = "" if timing.peak_bytes is None else f"{timing.peak_bytes / 2**20:.0f} MiB"
    return [*shown, seconds, _time(timing.per_item), str(timing.repeats), peak, timing.note]


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def _verdict_cells(verdict: Verdict) -> list[list[str]]:
    return [
        [verdict.what, str(one.b), f"{_time(one.cpu_per_item)} ({one.cpu_b})",
         _time(one.device_per_item), f"{one.ratio:.3g}"]
        for one in verdict.ratios
    ]  # fmt: skip


def _estimate_line(estimate: Estimate | None) -> str:
    if estimate is None:
        return "The paper's runs: not measured."
    reached = "within" if estimate.within_aim else "beyond"
    return (
        f"The paper's {estimate.runs} runs: {estimate.seconds:.0f} s, {reached} the aim of "
        f"{estimate.aim_seconds:.0f} s, from {estimate.measured_runs} run(s) in "
        f"{estimate.measured_seconds:.1f} s. This is {estimate.assumes}."
    )
