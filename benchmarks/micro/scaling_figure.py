"""The figure of `scaling.json`."""

from pathlib import Path
from typing import Any

from benchmarks.micro import peers

STYLES: dict[str, dict[str, Any]] = {
    "measured": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "limit": {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    "alone": {"color": "black", "linestyle": ":"},
}
"""Of each kind of curve: colours that all eyes tell apart, and shapes for print in grey."""


def figure(record: dict[str, Any]) -> Any:
    """Return matplotlib's figure of a record: a panel for each of its own.

    Raises:
        MissingPeerError: If matplotlib is not installed.
    """
    panels = record["panels"]
    picture = peers.load("matplotlib.figure").Figure(
        figsize=(3.9 * len(panels), 4.0), layout="constrained"
    )
    for ax, panel in zip(picture.subplots(1, len(panels)), panels, strict=True):
        _draw(ax, panel)
    picture.text(0.5, -0.02, _made_with(record), ha="center", va="top", fontsize=8)
    return picture


def save(record: dict[str, Any], path: Path) -> None:
    """Write the figure of a record.

    Raises:
        MissingPeerError: If matplotlib is not installed.
    """
    figure(record).savefig(path, dpi=200, bbox_inches="tight")


def _draw(ax: Any, panel: dict[str, Any]) -> None:
    sizes = panel["sizes"]
    for curve in panel["curves"]:
        low, median, high = ([p[k] for p in curve["points"]] for k in ("low", "median", "high"))
        ax.plot(sizes, median, label=curve["label"], **STYLES[curve["kind"]])
        if curve["kind"] != "alone":
            ax.fill_between(sizes, low, high, color=STYLES[curve["kind"]]["color"], alpha=0.2)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(sizes, labels=[str(size) for size in sizes])
    ax.set_xticks([], minor=True)
    ax.set_title(panel["title"])
    ax.set_xlabel(panel["x"])
    ax.set_ylabel(f"{panel['y']} [s]")
    ax.grid(visible=True, which="both", alpha=0.3)
    low, high = ax.get_ylim()
    ax.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend above all lines
    ax.legend(fontsize=8, loc="upper left" if panel["x"].startswith("rows") else "upper right")


def _made_with(record: dict[str, Any]) -> str:
    warning = "Tiny sizes (--quick): the numbers mean nothing. " if record["quick"] else ""
    rounds = max(len(one) for panel in record["panels"] for one in panel["raw"]["ours"])
    return (
        f"{warning}{record['machine']}; commit {record['commit']}; {record['made'][:10]}. "
        f"Median of at most {rounds} rounds, quartiles shaded."
    )
