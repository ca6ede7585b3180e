"""What a row of the table is, and what becomes of its measurements."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from benchmarks.micro.timing import Spread

_T = TypeVar("_T")

OURS = "ours"
"""Name of our own work among the rivals."""

TOLERANCE = 1e-3
"""How much worse, in nats a point, our likelihood may be and still count as equal."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How rows are measured."""

    repeats: int
    quick: bool
    """Whether sizes are tiny: to see that everything works, not to learn about speed."""
    device: str

    def pick(self, full: _T, quick: _T) -> _T:
        """Return the size for this setting."""
        return quick if self.quick else full


@dataclass(frozen=True, kw_only=True)
class Line:
    """One comparison: what is asked of the numbers of a row."""

    against: str
    """What the rivals are, in words."""
    kind: Literal["speed-up", "overhead", "value"]
    """speed-up: their seconds over ours, at least `target`. overhead: our seconds over theirs,
    at most `target`. value: our number itself, at most `target`."""
    target: float | None = None
    """None: only reported."""
    rivals: tuple[str, ...] = ()
    pick: Literal["slowest", "fastest"] = "fastest"
    """Which of several rivals counts, round by round."""
    ours: str = OURS
    """Name of our numbers."""
    unit: str = "s"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The numbers of a row."""

    raw: dict[str, tuple[float, ...]]
    """Seconds, or whatever the unit of a line is, of each round."""
    sizes: dict[str, Any]
    seeds: tuple[int, ...] = ()
    scores: dict[str, float] = field(default_factory=dict)
    """Negative log-likelihood a point of each fit, all by one function; lower is better."""
    notes: dict[str, str] = field(default_factory=dict)
    """What must be known about a rival, such as why it is missing."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Other numbers that belong to the record."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Something whose speed is measured."""

    name: str
    what: str
    lines: tuple[Line, ...]
    measure: Callable[[Setting], Measured]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A line with its numbers."""

    line: Line
    ours: Spread
    theirs: Spread | None = None
    ratio: Spread | None = None
    reached: bool | None = None
    """None: there is no target, or a rival is missing."""
    note: str = ""


def judge(line: Line, measured: Measured) -> Outcome:
    """Compare round by round, and with the target."""
    ours = measured.raw[line.ours]
    if line.kind == "value":
        spread = Spread.of(ours)
        reached = None if line.target is None else spread.median <= line.target
        return Outcome(line=line, ours=spread, reached=reached)
    missing = [name for name in line.rivals if name not in measured.raw]
    if missing:
        reasons = "; ".join(f"{name}: {measured.notes.get(name, 'missing')}" for name in missing)
        return Outcome(line=line, ours=Spread.of(ours), note=f"skipped, {reasons}")
    choose = max if line.pick == "slowest" else min
    theirs = [choose(pair) for pair in zip(*(measured.raw[n] for n in line.rivals), strict=True)]
    pairs = list(zip(ours, theirs, strict=True))
    ratio = Spread.of([b / a if line.kind == "speed-up" else a / b for a, b in pairs])
    notes = [measured.notes[name] for name in line.rivals if name in measured.notes]
    reached = None
    if line.target is not None:
        enough = ratio.median >= line.target
        reached = enough if line.kind == "speed-up" else ratio.median <= line.target
    if measured.scores:
        best = min(measured.scores[name] for name in line.rivals)
        if measured.scores[OURS] > best + TOLERANCE:
            reached = None if reached is None else False
            notes.append("our likelihood is worse")
        # A peer that stopped at a poor optimum was quick for a reason: say so.
        for name in line.rivals:
            behind = measured.scores[name] - measured.scores[OURS]
            if behind > TOLERANCE:
                notes.append(f"{name}'s likelihood is worse by {behind:.2g} a point")
    return Outcome(
        line=line,
        ours=Spread.of(ours),
        theirs=Spread.of(theirs),
        ratio=ratio,
        reached=reached,
        note="; ".join(notes),
    )
