"""Checks of what a user passes to a Kriging model."""

from typing import Any

import torch

from tcsaea_torch.correlations import KERNEL_NAMES
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.surrogate import Hyperparameters
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Tensor
from tcsaea_torch.validation import check_choice, check_instance, describe


def check_training_data(X: Any, y: Any, noise_var: Any) -> TrainingSet:
    """Check and bundle what a user passes as training data.

    Raises:
        InvalidInputError: Naming the argument, what was expected and what came.
    """
    if not isinstance(X, Tensor) or X.ndim < 2:
        raise InvalidInputError(f"X must be a tensor *batch x n x d of floats, got {describe(X)}")
    if X.dtype not in (torch.float32, torch.float64):
        raise InvalidInputError(f"X must be a tensor *batch x n x d of floats, got {describe(X)}")
    if X.shape[-2] == 0 or X.shape[-1] == 0:
        raise InvalidInputError(f"X must have at least one row and column, got {describe(X)}")
    if not isinstance(y, Tensor):
        raise InvalidInputError(f"y must be a tensor *batch x n, got {describe(y)}")
    if y.ndim == X.ndim and y.shape[-1] == 1:
        y = y.squeeze(-1)
    noise_var = torch.zeros_like(y) if noise_var is None else noise_var
    if not isinstance(noise_var, Tensor):
        raise InvalidInputError(f"noise_var must be a tensor *batch x n, got {describe(noise_var)}")
    if noise_var.ndim == X.ndim and noise_var.shape[-1] == 1:
        noise_var = noise_var.squeeze(-1)
    for name, value in (("y", y), ("noise_var", noise_var)):
        if value.shape != X.shape[:-1]:
            raise InvalidInputError(
                f"{name} must have shape {tuple(X.shape[:-1])} to go with X, got {describe(value)}"
            )
        if value.dtype != X.dtype or value.device != X.device:
            raise InvalidInputError(
                f"{name} must have X's dtype and device ({X.dtype}, {X.device}), "
                f"got {value.dtype}, {value.device}"
            )
    _check_noise("noise_var", noise_var)
    live = noise_var < torch.inf
    _check_finite("X", X, live.unsqueeze(-1))
    _check_finite("y", y, live)
    keep = live.unsqueeze(-1)
    return TrainingSet(
        X=torch.where(keep, X, 0.0).detach(),
        y=torch.where(live, y, 0.0).detach(),
        noise_var=noise_var.detach(),
    )


def check_hyperparameters(
    name: str, value: Hyperparameters, train: TrainingSet, *, needs_variance: bool = True
) -> None:
    """Check hyper-parameters against the training data that they are for.

    Args:
        name: Name of the argument, for the message.
        value: What was given.
        train: The training data.
        needs_variance: Whether noisy rows need a process variance.

    Raises:
        InvalidInputError: Naming the field, what was expected and what came.
    """
    check_instance(name, value, Hyperparameters)
    batch, d = tuple(train.y.shape[:-1]), train.X.shape[-1]
    expected = {
        "theta": (*batch, d), "p": (*batch, d), "variance": batch,
        "amplitudes": (*batch, d + 1), "nugget": batch,
    }  # fmt: skip
    for field, shape in expected.items():
        tensor = getattr(value, field)
        if tensor is None and field != "theta":
            continue
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
            raise InvalidInputError(
                f"{name}.{field} must be a tensor of shape {shape}, got {describe(tensor)}"
            )
        highest = 2.0 if field == "p" else torch.inf
        good = (tensor > 0) & (tensor <= highest) & tensor.isfinite()
        if not good.all():
            limit = " and <= 2" if field == "p" else " and finite"
            raise InvalidInputError(
                f"{name}.{field} must be > 0{limit}, got {tensor[~good][0].item()}"
            )
    check_choice(f"{name}.kernel", value.kernel, KERNEL_NAMES)
    if value.kernel == "matern-5/2" and value.p is not None:
        raise InvalidInputError(f"{name}.p must be None with kernel {value.kernel!r}, got a tensor")
    if value.kernel == "additive" and value.p is not None and value.p.unique().numel() > 1:
        raise InvalidInputError(
            f"{name}.p must be one number throughout with kernel 'additive', "
            f"got {value.p.unique().tolist()}"
        )
    if (value.kernel == "additive") != (value.amplitudes is not None):
        wanted = "given" if value.amplitudes is None else "None"
        raise InvalidInputError(
            f"{name}.amplitudes must be {wanted} with kernel {value.kernel!r}, "
            f"got {describe(value.amplitudes)}"
        )
    is_noisy = ((train.noise_var > 0) & train.live).any()
    if needs_variance and value.variance is None and bool(is_noisy):
        raise InvalidInputError(
            f"{name}.variance must be given with noisy rows: its closed form needs exact ones"
        )


def check_new_rows(
    X: Any, y: Any, noise_var: Any, *, like: Tensor, batch_shape: torch.Size
) -> tuple[Tensor, Tensor, Tensor]:
    """Check rows that are to be appended to a model's data.

    Args:
        X: `*batch x q x d` points.
        y: `*batch x q` values.
        noise_var: `*batch x q` variances, or `*batch x 1` for all rows.
        like: The model's training points.
        batch_shape: The model's; all batch shapes must broadcast.

    Returns:
        X, y and noise_var, the latter with q columns; y is 0 where there is no row.

    Raises:
        InvalidInputError: Naming the argument, what was expected and what came.
    """
    d = like.shape[-1]
    for name, value in (("X", X), ("Y", y), ("noise", noise_var)):
        if not isinstance(value, Tensor):
            raise InvalidInputError(f"{name} must be a tensor, got {describe(value)}")
        if value.dtype != like.dtype or value.device != like.device:
            raise InvalidInputError(
                f"{name} must have the model's dtype and device ({like.dtype}, {like.device}), "
                f"got {value.dtype}, {value.device}"
            )
    if X.ndim < 2 or X.shape[-1] != d:
        raise InvalidInputError(f"X must have shape (*batch, q, {d}), got {describe(X)}")
    q = X.shape[-2]
    if y.ndim < 1 or y.shape[-1] != q:
        raise InvalidInputError(f"Y must have {q} rows to go with X, got {describe(y)}")
    if noise_var.ndim < 1 or noise_var.shape[-1] not in (1, q):
        raise InvalidInputError(f"noise must have {q} rows to go with X, got {describe(noise_var)}")
    shapes = [tuple(batch_shape), *(tuple(s) for s in (X.shape[:-2], y.shape[:-1]))]
    try:
        torch.broadcast_shapes(*shapes, noise_var.shape[:-1])
    except RuntimeError as error:
        raise InvalidInputError(
            "the batch shapes of the model, X, Y and noise must broadcast, got "
            f"{', '.join(map(str, shapes))} and {tuple(noise_var.shape[:-1])}"
        ) from error
    noise_var = noise_var.expand(*noise_var.shape[:-1], q)
    _check_noise("noise", noise_var)
    live = noise_var < torch.inf
    _check_finite("X", X, live.unsqueeze(-1))
    _check_finite("Y", y, live)
    return torch.where(live.unsqueeze(-1), X, 0.0), torch.where(live, y, 0.0), noise_var


def check_observation_noise(noise: Tensor, shape: torch.Size) -> Tensor:
    """Return noise `*#batch x (q or 1) x 1` in the shape `*batch x q` of a prediction.

    Raises:
        InvalidInputError: If it has another shape, or is not >= 0.
    """
    try:
        if noise.shape[-1] != 1:
            raise RuntimeError("no column")
        result = noise.squeeze(-1).expand(shape)
    except (RuntimeError, IndexError) as error:
        raise InvalidInputError(
            f"observation_noise must have shape {(*shape, 1)} or one that broadcasts to it, "
            f"got {describe(noise)}"
        ) from error
    _refuse_first("observation_noise", ">= 0", noise, ~(noise >= 0))
    return result


def _check_noise(name: str, noise_var: Tensor) -> None:
    _refuse_first(name, ">= 0 (inf for rows that do not exist)", noise_var, ~(noise_var >= 0))


def _check_finite(name: str, value: Tensor, live: Tensor) -> None:
    """Refuse values that are not finite in rows that exist."""
    _refuse_first(name, "finite", value, ~value.isfinite() & live)


def _refuse_first(name: str, expected: str, value: Tensor, bad: Tensor) -> None:
    """Refuse the first bad entry, if there is one, and say where it is."""
    value, bad = torch.broadcast_tensors(value, bad)
    places = bad.nonzero()
    if len(places):
        place = tuple(int(i) for i in places[0])
        raise InvalidInputError(
            f"{name} must be {expected}, got {value[place].item()} at index {place}"
        )


def check_outputs(name: str, indices: Any) -> None:
    """Refuse output indices of a model with one output, unless None, [0] or [-1]."""
    if indices is not None and list(indices) not in ([0], [-1]):
        raise InvalidInputError(f"{name} must be [0]: the model has one output, got {indices!r}")
