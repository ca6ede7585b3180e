"""A kind of Kriging for each model: of several, keep the one that predicts best.

No kernel is the best for all functions: an additive one learns a sum of one-dimensional waves
from few points, and is misled where many variables act together. Each model of a batch takes
the kind that its own data speak for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from tcsaea_torch.errors import FitError, InvalidInputError
from tcsaea_torch.models.checks import check_hyperparameters
from tcsaea_torch.models.chosen import Chosen, Group
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import (
    LeaveOneOut,
    log_evidence,
    log_predictive_density,
    mean_log_error,
)
from tcsaea_torch.models.likelihood import closed_form_variance, count
from tcsaea_torch.models.surrogate import Hyperparameters, Surrogate, scale, try_condition
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Bool, Int, Tensor
from tcsaea_torch.validation import check_choice, check_instance, check_sequence

Criterion = Literal["leave-one-out", "cross-validation", "evidence"]
CRITERIA: tuple[Criterion, ...] = ("leave-one-out", "cross-validation", "evidence")
_N_FOLDS = 5

Score = Literal["density", "error"]
_SCORES = {"density": log_predictive_density, "error": mean_log_error}


def fit_best(
    train: TrainingSet,
    configs: Sequence[FitConfig],
    *,
    trend: Bool[Tensor, " b"],
    init: Sequence[Hyperparameters | None] | None = None,
    criterion: Criterion = "leave-one-out",
) -> Chosen:
    """Fit each model of a flat batch `b` with each configuration, and keep the best.

    Args:
        train: Training sets without duplicates, `b x n`.
        configs: What to choose from; the first of equals is taken.
        trend: Where a linear trend is wanted.
        init: A warm start of each configuration, or None for those that have none.
        criterion: "leave-one-out", the density of each row's value as predicted without the
            row, with the hyper-parameters of all; "cross-validation", the density of each
            fifth of the rows as predicted by a fit to the others, for which each
            configuration is fitted five times more, but which also sees through
            hyper-parameters that are too many for the rows; or "evidence", the likelihood
            of the fit.

    Raises:
        InvalidInputError: If an argument is wrong.
        FitError: If a correlation matrix cannot be factorised.
    """
    check_sequence("configs", configs)
    for config in configs:
        check_instance("configs", config, FitConfig)
    check_choice("criterion", criterion, CRITERIA)
    init = [None] * len(configs) if init is None else init
    if len(init) != len(configs):
        raise InvalidInputError(
            f"init must have one entry for each of the {len(configs)} configs, got {len(init)}"
        )
    models = [
        fit(train, config, trend=trend, init=start)
        for config, start in zip(configs, init, strict=True)
    ]
    if criterion == "cross-validation":
        scores = [
            cross_validate(train, config, trend=trend).log_density(model.scaling.y_scale)
            for config, model in zip(configs, models, strict=True)
        ]
    else:
        score = log_predictive_density if criterion == "leave-one-out" else log_evidence
        scores = [score(model) for model in models]
    candidates = [
        Candidate(config=config, hyperparameters=model.hyperparameters)
        for config, model in zip(configs, models, strict=True)
    ]
    return _keep_best(candidates, models, torch.stack(scores, dim=-1), trend)


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """Hyper-parameters that exist already, from which `choose` may take those of a model.

    Raises:
        InvalidInputError: If a value is of another type.
    """

    config: FitConfig
    """With which they were found; its scaling of inputs and its nugget are used."""
    hyperparameters: Hyperparameters
    """Of all b models of the batch."""

    def __post_init__(self) -> None:
        check_instance("config", self.config, FitConfig)
        check_instance("hyperparameters", self.hyperparameters, Hyperparameters)


def choose(
    train: TrainingSet,
    candidates: Sequence[Candidate],
    *,
    trend: Bool[Tensor, " b"],
    is_space: Bool[Tensor, "b n"] | None = None,
    score: Score = "density",
) -> Chosen:
    """Condition each model of a flat batch `b` on each candidate, and keep the best: no fit.

    The criterion are leave-one-out predictions. sigma^2 is that of the candidate where rows
    are noisy, else its closed form. A candidate with which a model cannot be factorised has
    the score -inf there.

    Args:
        train: Training sets without duplicates, `b x n`.
        candidates: What to choose from; the first of equals is taken.
        trend: Where a linear trend is wanted.
        is_space: Rows that fill the space: these and the others get half of the say each. None:
            each row gets the same.
        score: "density" of the values, see `log_predictive_density`, or "error", see
            `mean_log_error`.

    Raises:
        InvalidInputError: If an argument is wrong.
        FitError: If a model cannot be factorised with any candidate.
    """
    _check_candidates(candidates, train)
    score_of = _SCORES[check_choice("score", score, _SCORES)]
    models = [_conditioned(train, candidate, trend) for candidate in candidates]
    scores = torch.stack([score_of(model, is_space) for model in models], dim=-1)
    failed = torch.stack([model.factors.failed for model in models], dim=-1)
    if bool(failed.all(dim=-1).any()):
        raise FitError(
            f"none of the {len(candidates)} candidates makes a correlation matrix that is "
            "positive definite"
        )
    return _keep_best(candidates, models, scores.masked_fill(failed, -torch.inf), trend)


def condition_chosen(
    train: TrainingSet,
    candidates: Sequence[Candidate],
    choice: Int[Tensor, " b"],
    *,
    trend: Bool[Tensor, " b"],
) -> Chosen:
    """Condition models of a flat batch `b` on the candidates that an earlier choice made.

    Args:
        train: Training sets without duplicates, `b x n`.
        candidates: What there was to choose from.
        choice: Index of each model's candidate.
        trend: Where a linear trend is wanted.

    Raises:
        InvalidInputError: If an argument is wrong.
        FitError: If a model cannot be factorised.
    """
    _check_candidates(candidates, train)
    c, b = len(candidates), len(train.y)
    if choice.shape != (b,) or not bool(((choice >= 0) & (choice < c)).all()):
        raise InvalidInputError(
            f"choice must be {b} integers from 0 to {c - 1}, got {choice.tolist()}"
        )
    groups = []
    for i, candidate in enumerate(candidates):
        members = (choice == i).nonzero().squeeze(-1)
        if len(members) == 0:
            continue
        rows, mine = train, candidate
        if len(members) < b:
            rows = train[members]
            mine = replace(candidate, hyperparameters=candidate.hyperparameters[members])
        model = _conditioned(rows, mine, trend[members])
        if bool(model.factors.failed.any()):
            raise FitError("the correlation matrix of the chosen model is not positive definite")
        groups.append(Group(config=candidate.config, members=members, surrogate=model))
    return Chosen(
        choice=choice,
        scores=train.y.new_full((b, c), torch.nan),
        hyperparameters=tuple(candidate.hyperparameters for candidate in candidates),
        groups=tuple(groups),
        trend=trend,
    )


def _check_candidates(candidates: Sequence[Candidate], train: TrainingSet) -> None:
    check_sequence("candidates", candidates)
    for candidate in candidates:
        check_instance("candidates", candidate, Candidate)
        check_hyperparameters("candidates", candidate.hyperparameters, train)


def _conditioned(train: TrainingSet, candidate: Candidate, trend: Tensor) -> Surrogate:
    config = candidate.config
    data, scaling = scale(train, trend=trend, input_scaling=config.input_scaling)
    nugget = config.nugget_for(train.X.dtype)
    model = try_condition(data, scaling, candidate.hyperparameters, nugget=nugget)
    is_noisy = (data.noise > 0).any(dim=-1)
    free = closed_form_variance(model.factors.quadratic, count(data))
    variance = torch.where(is_noisy, model.variance, free)
    known = replace(model.hyperparameters, variance=variance * scaling.y_scale.square())
    return replace(model, variance=variance, hyperparameters=known)


def _keep_best(
    candidates: Sequence[Candidate], models: Sequence[Surrogate], scores: Tensor, trend: Tensor
) -> Chosen:
    choice = scores.nan_to_num(nan=-torch.inf, neginf=-torch.inf).argmax(dim=-1)
    counts = torch.bincount(choice, minlength=len(candidates)).tolist()
    groups = []
    for i, (candidate, model) in enumerate(zip(candidates, models, strict=True)):
        if counts[i]:
            members = (choice == i).nonzero().squeeze(-1)
            mine = model if counts[i] == len(choice) else model[members]
            groups.append(Group(config=candidate.config, members=members, surrogate=mine))
    return Chosen(
        choice=choice,
        scores=scores,
        hyperparameters=tuple(candidate.hyperparameters for candidate in candidates),
        groups=tuple(groups),
        trend=trend,
    )


def cross_validate(
    train: TrainingSet, config: FitConfig, *, trend: Bool[Tensor, " b"]
) -> LeaveOneOut:
    """Return the errors of each fifth of the rows, by a fit to the others.

    Unlike those of `leave_one_out` they also see through hyper-parameters that are too many
    for the rows.

    Args:
        train: Training sets without duplicates, `b x n`.
        config: How to fit.
        trend: Where a linear trend is wanted.
    """
    live = train.live
    fold = torch.arange(_N_FOLDS, device=live.device)[:, None, None]
    # Every fifth of the living rows; all fits are one batch.
    is_out = live & ((live.cumsum(dim=-1) - 1) % _N_FOLDS == fold)
    X, y, noise_var = (t.repeat(_N_FOLDS, *(1,) * (t.ndim - 1)) for t in vars(train).values())
    kept = TrainingSet(X=X, y=y, noise_var=noise_var.masked_fill(is_out.flatten(0, 1), torch.inf))
    model = fit(kept.compact(), config, trend=trend.repeat(_N_FOLDS))
    mean, variance = model.predict(X)
    hyper, nugget = model.hyperparameters, config.nugget_for(y.dtype)
    assert hyper.variance is not None
    own = hyper.variance * (nugget if hyper.nugget is None else hyper.nugget)
    variance = variance + noise_var + own.unsqueeze(-1)
    out = is_out.flatten(0, 1)
    error = torch.where(out, y - mean, 0.0).unflatten(0, (_N_FOLDS, -1)).sum(dim=0)
    variance = torch.where(out, variance, 0.0).unflatten(0, (_N_FOLDS, -1)).sum(dim=0)
    return LeaveOneOut(error=error, variance=variance.masked_fill(~live, torch.inf))
