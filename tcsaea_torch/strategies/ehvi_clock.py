"""What TC-EHVI may know, and may ask for, at a moment on its clock.

On the strict clock u fast evaluations take 1 unit of time and u slow ones tau.
"""

from dataclasses import replace

import torch

from tcsaea_torch.strategies.base import FAST, SLOW, RunView
from tcsaea_torch.types import Bool, Int, Tensor


def yet_to_come(run: RunView, first: int, n_design: int, n_new: int) -> Bool[Tensor, "b n 2"]:
    """Return which values of the initial design a decision must not rest on.

    Its slow values come in the order of their rows, u with every u tau fast ones.

    Args:
        run: The runs, in the time of the design's slow evaluations.
        first: The design's first row.
        n_design: Its number of rows.
        n_new: u.
    """
    hidden = torch.zeros_like(run.archive.observed)
    lanes = n_new * run.tau
    n_known = n_new * torch.floor(run.used[:, FAST].double() / lanes + 1e-9).long()
    row = torch.arange(len(run.archive), device=run.device)
    hidden[..., SLOW] = (row >= first + n_known.unsqueeze(-1)) & (row < first + n_design)
    return hidden


def as_of_then(run: RunView, hidden: Bool[Tensor, "b n 2"]) -> RunView:
    """Return runs in which hidden values are still on their way, come what may of them."""
    archive = run.archive
    archive = replace(
        archive, Y=archive.Y.masked_fill(hidden, 0.0), observed=archive.observed & ~hidden
    )
    came = run.archive.observed | run.failed
    return replace(
        run,
        archive=archive,
        pending=run.pending | (came & hidden),
        failed=run.failed & ~hidden,
    )


def credit(run: RunView, n_slow: Int[Tensor, " b"] | int) -> Int[Tensor, " b"]:
    """Return the fast evaluations that slow ones have released, and n_slow more would."""
    released = torch.floor(run.tau * (run.used[:, SLOW] + n_slow).double() + 1e-9).long()
    return (torch.minimum(released, run.total[:, FAST]) - run.used[:, FAST]).clamp_min(0)
