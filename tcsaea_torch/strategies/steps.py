"""Steps that several strategies share."""

import math
from collections.abc import Callable

import torch

from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate
from tcsaea_torch.models.training_set import TrainingSet, first_equal_row, stack
from tcsaea_torch.problem import snap
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.rows import take_rows
from tcsaea_torch.strategies.base import RunView
from tcsaea_torch.types import Bool, Float, Int, Tensor

SAME_POINT = 1e-9
"""Points nearer than this in every dimension of the unit cube are one point."""

_N_FALLBACK = 256
"""Random points tried where a search found nothing new."""

_SIZE_RATIO = 1.3
"""Training sets are fitted in one batch while padding makes none larger than this factor."""


def design(run: RunView, n: int) -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Return a random Latin hypercube of n points, and which of them are to be evaluated.

    In a finite space, points may fall together; others take their place while there are.
    """
    u, jitter = uniforms(run.seeds, "design", 0, (2, n, run.d), dtype=run.dtype).unbind(dim=1)
    return distinct(snap(latin_hypercube(u, jitter), run.grid), run)


def distinct(
    X: Float[Tensor, "b n d"], run: RunView
) -> tuple[Float[Tensor, "b n d"], Bool[Tensor, "b n"]]:
    """Replace points that are known or equal to earlier ones by random new points.

    Returns:
        n points, and which of them are new: all, unless a finite space has no more.
    """
    n, n_known = X.shape[1], len(run.archive)

    def are_new(X: Tensor) -> Tensor:
        rows = torch.cat([run.archive.X, X], dim=1)
        live = torch.cat([run.exists, torch.ones_like(X[..., 0], dtype=torch.bool)], dim=1)
        first = first_equal_row(rows, live)[:, n_known:]
        return first == torch.arange(n_known, rows.shape[1], device=X.device)

    is_new = are_new(X)
    if bool(is_new.all()):
        return X, is_new
    random = uniforms(run.seeds, "spare", n_known, (n + _N_FALLBACK, run.d), dtype=run.dtype)
    X = torch.cat([X, snap(random, run.grid)], dim=1)
    is_new = are_new(X)
    order = (~is_new).to(torch.int8).argsort(dim=1, stable=True)[:, :n]
    return take_rows(X, order), is_new.gather(1, order)


def is_known(X: Float[Tensor, "b k d"], run: RunView) -> Bool[Tensor, "b k"]:
    """Return which points stand in the archive already, pending and failed ones too."""
    near = _are_near(X, run.archive.X)
    return (near & run.exists.unsqueeze(1)).any(dim=-1)


def is_clear(X: Float[Tensor, "b k d"], run: RunView, radius: float) -> Bool[Tensor, "b k"]:
    """Return which points keep away from all points with a value on its way.

    Args:
        X: Points in the unit cube.
        run: The runs.
        radius: How far, in the largest difference of a coordinate.
    """
    near = _are_near(X, run.archive.X, radius)
    return ~(near & run.pending.any(dim=-1).unsqueeze(1)).any(dim=-1)


def may_be_new(X: Float[Tensor, "b k d"], run: RunView, clearance: float) -> Bool[Tensor, "b k"]:
    """Return which points are not known yet and keep away from pending ones."""
    fresh = ~is_known(X, run)  # pending points are known too
    return fresh & is_clear(X, run, clearance) if clearance > SAME_POINT else fresh


def first_of_equals(
    X: Float[Tensor, "b k d"], keep: Bool[Tensor, "b k"], radius: float = SAME_POINT
) -> Bool[Tensor, "b k"]:
    """Unmark points that equal an earlier marked one, or lie nearer to it than `radius`."""
    near = _are_near(X, X, radius)
    earlier = torch.ones_like(near[0]).tril(-1) & near & keep.unsqueeze(1)
    return keep & ~earlier.any(dim=-1)


def _are_near(
    A: Float[Tensor, "b k d"], B: Float[Tensor, "b n d"], radius: float = SAME_POINT
) -> Bool[Tensor, "b k n"]:
    # cdist makes no table of b x k x n x d differences.
    return torch.cdist(A, B, p=math.inf) < radius


def around(
    X: Float[Tensor, "b k d"],
    chosen: Bool[Tensor, "b k"],
    n: Int[Tensor, " b"],
    n_slots: int,
    run: RunView,
    period: int,
    *,
    margin: float,
    name: str = "additional",
) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
    """Sample the bounding box of the chosen points by a Latin hypercube.

    Args:
        X: Points, of which `chosen` count.
        chosen: Which points span the box.
        n: How many samples each run takes.
        n_slots: Room for samples, at least the largest n.
        run: The runs.
        period: Counter for the random numbers.
        margin: Sides shorter than twice this are widened to it, within the cube.
        name: Whose random numbers these are.

    Returns:
        The samples, and which of them exist.
    """
    mask = chosen.unsqueeze(-1)
    low = torch.where(mask, X, torch.inf).amin(dim=1)
    high = torch.where(mask, X, -torch.inf).amax(dim=1)
    middle, half = (low + high) / 2.0, ((high - low) / 2.0).clamp_min(margin)
    low, high = (middle - half).clamp(0.0, 1.0), (middle + half).clamp(0.0, 1.0)
    shape = (2, n_slots, run.d)
    u, jitter = uniforms(run.seeds, name, period, shape, dtype=run.dtype).unbind(dim=1)
    alive = torch.arange(n_slots, device=X.device) < n.unsqueeze(-1)
    cube = latin_hypercube(u, jitter, alive)
    samples = low.unsqueeze(1) + (high - low).unsqueeze(1) * cube
    samples = torch.where(alive.unsqueeze(-1), samples, 0.5).clamp(0.0, 1.0)
    return snap(samples, run.grid), alive


def choose_new(
    X: Float[Tensor, "b k d"],
    candidates: Bool[Tensor, "b k"],
    n: Int[Tensor, " b"],
    n_slots: int,
    run: RunView,
    period: int,
    *,
    clearance: float = SAME_POINT,
    order: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Float[Tensor, "b s d"], Bool[Tensor, "b s"]]:
    """Draw at most n new points at random from the candidates.

    A run whose candidates are all known gets random new points of the cube instead, so
    that it goes on; it gets none if those are known too (a finite space is exhausted).

    Args:
        X: Points.
        candidates: Which of them may be chosen.
        n: How many points each run takes.
        n_slots: Room for points, at least the largest n; no more than there are candidates.
        run: The runs.
        period: Counter for the random numbers.
        clearance: How far new points keep away from each other and from pending ones.
        order: `order(X, u)` makes keys, of which the smallest are drawn, from uniform
            numbers; None: these are the keys.
    """
    fresh = candidates & may_be_new(X, run, clearance)
    if bool(fresh.any(dim=1).all()):
        marked = first_of_equals(X, fresh, clearance)
    else:
        random = uniforms(run.seeds, "fallback", period, (_N_FALLBACK, run.d), dtype=run.dtype)
        random = snap(random, run.grid)
        spare = may_be_new(random, run, clearance) & ~fresh.any(dim=1, keepdim=True)
        X = torch.cat([X, random], dim=1)
        marked = first_of_equals(X, torch.cat([fresh, spare], dim=1), clearance)
    u = uniforms(run.seeds, "choice", period, X.shape[1:2], dtype=run.dtype)
    key = u if order is None else order(X, u)
    rows = key.masked_fill(~marked, torch.inf).argsort(dim=1)[:, :n_slots]
    points = take_rows(X, rows)
    wanted = torch.arange(rows.shape[1], device=X.device) < n.unsqueeze(-1)
    return points, marked.gather(1, rows) & wanted


def fit_models(
    sets: dict[str, TrainingSet],
    trends: dict[str, str],
    config: FitConfig,
    init: dict[str, Hyperparameters | None],
) -> dict[str, Surrogate]:
    """Fit several models for each of b runs, in as few batches as their sizes allow.

    Args:
        sets: Training sets `b x n` by name.
        trends: "constant" or "linear" by name.
        config: How to fit.
        init: Warm starts by name; None for a cold start.
    """
    compact = {name: train.compact() for name, train in sets.items()}
    by_size = sorted(compact, key=lambda name: (init[name] is None, compact[name].X.shape[1]))
    groups: list[list[str]] = []
    for name in by_size:
        first = groups[-1][0] if groups else None
        if (
            first is not None
            and (init[first] is None) == (init[name] is None)
            and (compact[name].X.shape[1] <= _SIZE_RATIO * compact[first].X.shape[1])
        ):
            groups[-1].append(name)
        else:
            groups.append([name])
    return {
        name: model
        for group in groups
        for name, model in _fit_group(group, compact, trends, config, init).items()
    }


def _fit_group(
    group: list[str],
    sets: dict[str, TrainingSet],
    trends: dict[str, str],
    config: FitConfig,
    init: dict[str, Hyperparameters | None],
) -> dict[str, Surrogate]:
    """Fit the models of one group as a batch `k b x n`."""
    n = max(sets[name].X.shape[1] for name in group)
    train = stack([sets[name].compact(n) for name in group])
    b = train.X.shape[1]
    flat = TrainingSet(
        X=train.X.flatten(0, 1), y=train.y.flatten(0, 1), noise_var=train.noise_var.flatten(0, 1)
    )
    is_linear = [[trends[name] == "linear"] * b for name in group]
    trend = torch.tensor(is_linear, device=flat.X.device).flatten()
    warm = [init[name] for name in group]
    start = None
    if all(w is not None for w in warm):
        theta = torch.cat([w.theta for w in warm if w is not None])
        powers = [w.p for w in warm if w is not None and w.p is not None]
        start = Hyperparameters(theta=theta, p=torch.cat(powers) if powers else None)
    model = fit(flat, config, trend=trend, init=start)
    return {name: model[slice(i * b, (i + 1) * b)] for i, name in enumerate(group)}
