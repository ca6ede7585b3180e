"""BoTorch's input and outcome transforms around a Kriging model."""

from dataclasses import replace

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform

from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rows import take_rows
from tcsaea_torch.validation import describe


def transform_rows(
    train: TrainingSet,
    input_transform: InputTransform | None,
    outcome_transform: OutcomeTransform | None,
) -> TrainingSet:
    """Bring rows from the user's units to the model's, and learn what transforms learn.

    Raises:
        InvalidInputError: If one is no transform, if it changes the number of rows, or an outcome
            transform would have to learn from rows that do not exist.
    """
    transforms = {"input_transform": input_transform, "outcome_transform": outcome_transform}
    for name, value in transforms.items():
        if value is not None and not isinstance(value, torch.nn.Module):
            raise InvalidInputError(f"{name} must be a transform of BoTorch, got {describe(value)}")
    live = train.live
    if input_transform is not None:
        # In place of missing rows a living one, from which nothing false is learnt.
        some_row = live.to(torch.int8).argmax(dim=-1, keepdim=True)
        with torch.no_grad():
            X = torch.where(live.unsqueeze(-1), train.X, take_rows(train.X, some_row))
            X = input_transform.to(train.X)(X)
        if X.shape[:-1] != live.shape:
            raise InvalidInputError(
                f"input_transform must keep the rows of X, got {tuple(X.shape)} from "
                f"{tuple(train.X.shape)}: set its transform_on_train to False"
            )
        train = replace(train, X=torch.where(live.unsqueeze(-1), X, 0.0))
    if outcome_transform is not None:
        if not bool(live.all()):
            raise InvalidInputError(
                "outcome_transform needs rows that all exist, got noise_var with inf; "
                "outputs are standardised over the living rows without it"
            )
        is_exact = not bool((train.noise_var > 0).any())
        with torch.no_grad():
            y, noise_var = outcome_transform.to(train.X).train()(
                Y=train.y.unsqueeze(-1),
                Yvar=None if is_exact else train.noise_var.unsqueeze(-1),
                X=train.X,
            )
        train = replace(
            train,
            y=y.squeeze(-1),
            noise_var=train.noise_var if noise_var is None else noise_var.squeeze(-1),
        )
    return train
