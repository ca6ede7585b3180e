"""Speed of the numeric core against what users would otherwise use: `python -m benchmarks micro`.

A row is a frozen definition: what is measured, against what, and the target. Rivals take
turns in one process, on one CPU thread. Peers are optional: without one its lines say so,
and the others are measured. `pip install -c constraints.txt -e '.[bench]'` installs them all;
pymoo and EvoX are enough for all targets (smt is the one that brings many packages).
"""

from benchmarks.micro import fits, growth, likelihood, prediction, runs, search
from benchmarks.micro.report import run
from benchmarks.micro.rows import Row, Setting
from tcsaea_torch.validation import check_choice

__all__ = ["ROWS", "Row", "Setting", "get", "run"]

ROWS: dict[str, Row] = {
    row.name: row
    for module in (fits, likelihood, prediction, search, runs, growth)
    for row in module.ROWS
}


def get(name: str) -> Row:
    """Return the row of this name.

    Raises:
        InvalidInputError: If the name is unknown; the nearest one is suggested.
    """
    return ROWS[check_choice("row", name, ROWS)]
