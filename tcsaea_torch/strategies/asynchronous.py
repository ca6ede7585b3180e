"""What an asynchronous strategy needs: work for free workers while results are outstanding.

A synchronous period waits for all its values. Here a step may begin at any time: new points
get both objectives as soon as a worker for the slow one is free, and further points the fast
one alone, within the fast budget that the slow evaluations asked for so far have released.
Outstanding values are believed to be what the models predict, with that prediction's
variance; new points keep away from outstanding ones.
"""

import torch

from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.updating import SharedSurrogate, extend
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.base import FAST, SLOW, RunView
from tcsaea_torch.types import Bool, Float, Int, Tensor

_N_SPARE = 256
"""Random points tried where a step has too few points that are new."""


def believe(
    model: Surrogate,
    run: RunView,
    column: int,
    mean: Float[Tensor, "b n"],
    variance: Float[Tensor, "b n"],
    *,
    nugget: float,
) -> Surrogate:
    """Condition a model on outstanding values, as far as they are believed.

    Hyper-parameters stay as they are, since nothing was measured.

    Args:
        model: A model of each run.
        run: The runs.
        column: Which objective is outstanding.
        mean: What each row of the archive is believed to have; only outstanding rows count.
        variance: How uncertain that is.
        nugget: The nugget that the model was conditioned with.
    """
    outstanding = run.pending[..., column]
    n = int(outstanding.sum(dim=1).amax())
    if n == 0:
        return model
    rows = (~outstanding).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
    exists = outstanding.gather(1, rows)
    return extend(
        SharedSurrogate.of(model),
        take_rows(run.archive.X, rows),
        mean.gather(1, rows),
        variance.gather(1, rows).masked_fill(~exists, torch.inf),
        nugget=run.archive.X.new_tensor(nugget),
    )


def latest_new(run: RunView, n: int) -> tuple[Float[Tensor, "b k d"], Bool[Tensor, "b k"]]:
    """Return the last n points for which the slow objective was asked for, and which exist."""
    is_slow = (run.archive.observed | run.pending | run.failed)[..., SLOW]
    rows = (~is_slow.flip(1)).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
    rows = is_slow.shape[1] - 1 - rows
    return take_rows(run.archive.X, rows), is_slow.gather(1, rows)


def best_fast(run: RunView, n: int, *, maximise: bool) -> Int[Tensor, "b k"]:
    """Return the rows of the n best fast values; rows without one come last."""
    y, is_known = run.archive.Y[..., FAST], run.archive.observed[..., FAST]
    cost = (-y if maximise else y).masked_fill(~is_known, torch.inf)
    return cost.argsort(dim=1, stable=True)[:, :n]


def fill(
    X: Float[Tensor, "b k d"],
    keep: Bool[Tensor, "b k"],
    n: Int[Tensor, " b"],
    run: RunView,
    clearance: float,
) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
    """Return n new points: the first of those to keep, and random ones where they lack.

    Args:
        X: Points.
        keep: Which of them may be used, if they are new.
        n: How many points each run takes.
        run: The runs.
        clearance: How far they keep away from each other and from outstanding points.
    """
    n_slots = int(n.amax())
    step, shape = len(run.archive), (_N_SPARE, run.d)
    spare = snap(uniforms(run.seeds, "further", step, shape, dtype=run.dtype), run.grid)
    X = torch.cat([X, spare], dim=1)
    keep = torch.cat([keep, torch.ones_like(spare[..., 0], dtype=torch.bool)], dim=1)
    keep = keep & steps.may_be_new(X, run, clearance)
    keep = steps.first_of_equals(X, keep, clearance)
    order = (~keep).to(torch.int8).argsort(dim=1, stable=True)[:, :n_slots]
    wanted = torch.arange(n_slots, device=X.device) < n.unsqueeze(-1)
    return take_rows(X, order), keep.gather(1, order) & wanted
