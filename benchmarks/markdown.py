"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a head."""
    return lines([head, ["---"] * len(head), *rows])


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of a table alone."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)
