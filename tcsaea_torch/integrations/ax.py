"""A node for generation strategies of Ax: `pip install 'tcsaea-torch[ax]'`."""
# pyright: reportMissingImports=false

import math
from collections.abc import Sequence
from typing import Any

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError, ProtocolError
from tcsaea_torch.integrations.space import Continuous, Levels, Params, Space, Stepped, Variable
from tcsaea_torch.integrations.trials import (
    Outcome,
    Trial,
    TrialRun,
    check_counts,
    checked_strategy,
)
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.validation import check_int, check_text

try:
    from ax.core.data import Data
    from ax.core.experiment import Experiment
    from ax.core.optimization_config import OptimizationConfig
    from ax.core.parameter import (
        ChoiceParameter,
        FixedParameter,
        Parameter,
        ParameterType,
        RangeParameter,
    )
    from ax.core.search_space import SearchSpace
    from ax.core.trial_status import TrialStatus
    from ax.core.types import TParameterization
    from ax.generation_strategy.external_generation_node import ExternalGenerationNode
    from ax.generation_strategy.transition_criterion import TransitionCriterion
except ImportError as error:
    raise MissingDependencyError(
        "tcsaea_torch.integrations.ax needs ax-platform: pip install 'tcsaea-torch[ax]'"
    ) from error

_ENDED = {
    TrialStatus.COMPLETED: Outcome.DONE,
    TrialStatus.EARLY_STOPPED: Outcome.DONE,
    TrialStatus.FAILED: Outcome.FAILED,
    TrialStatus.ABANDONED: Outcome.FAILED,
    TrialStatus.STALE: Outcome.FAILED,
}


class TCGenerationNode(ExternalGenerationNode):
    """Generates trials of experiments with two objectives by a strategy of this library.

    Both values of a trial are expected at its end, so tau is 1: an objective that is faster
    than the other is not run more often. `tcsaea_torch.Optimizer` does that. The first
    objective of the optimization config counts as the fast one.

    All trials of the experiment count, whoever generated them: completed and early stopped ones
    as data, candidates, staged and running ones as points that are on their way, failed and
    abandoned ones as failures, and so does a value that a completed trial lacks. Values count
    as exact, unless the strategy says otherwise; standard errors are not looked at.

    Range parameters, fixed ones and ordered choices are known; unordered choices of more than
    two values, logit scales, hierarchies, and constraints on parameters or outcomes are refused.
    Thresholds of both objectives, if they are not relative, are the reference point.

    Example:
        >>> from ax.generation_strategy.generation_strategy import GenerationStrategy
        >>> node = TCGenerationNode(n_trials=60, seed=0)
        >>> nodes = GenerationStrategy(name="TC", nodes=[node])  # client.set_generation_strategy

    Args:
        strategy: A configured strategy or its name; None means `TCEHVI(asynchronous=True)`,
            which chooses each trial with all that is known. Others choose several trials at a
            time, and random ones while they wait for those that run.
        n_trials: How many trials the experiment is to have. A strategy may plan with it; n_init
            follows from it. It is no limit: it is doubled when there are more.
        n_init: How many trials are the initial design; trials that exist count. None means
            min(100, max(d + 2, n_trials // 3)) for d parameters.
        seed: Decides all random numbers.
        name: The node's name.
        should_deduplicate: Whether Ax refuses what equals a known arm. Nothing does, unless a
            finite space is used up; Ax goes on with its own generator then.
        transition_criteria: When the next node takes over, if there are several.

    Raises:
        InvalidInputError: If an argument is wrong, or later, if an experiment is none of those
            described.
    """

    def __init__(
        self,
        strategy: Strategy | str | None = None,
        *,
        n_trials: int = 50,
        n_init: int | None = None,
        seed: int = 0,
        name: str = "TC",
        should_deduplicate: bool = True,
        transition_criteria: Sequence[TransitionCriterion] | None = None,
    ) -> None:
        self._strategy = checked_strategy(strategy)
        self._n_trials, self._n_init = check_counts(n_trials, n_init)
        self._seed = check_int("seed", seed)
        super().__init__(
            name=check_text("name", name),
            should_deduplicate=should_deduplicate,
            transition_criteria=transition_criteria,
        )
        self._made_for: tuple[Any, ...] | None = None
        self._run: TrialRun | None = None
        self._fixed: Params = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy makes its run anew, from the experiment.
        return {**vars(self), "_made_for": None, "_run": None}

    def update_generator_state(self, experiment: Experiment, data: Data) -> None:
        """Take in what has become of the experiment's trials."""
        space, fixed = _space(experiment.search_space)
        config = experiment.optimization_config
        metrics, directions = _objectives(config)
        ref_point = _ref_point(config, metrics)
        made_for = (space, metrics, directions, ref_point)
        if self._run is None or made_for != self._made_for:
            self._run = TrialRun(
                space,
                directions=directions,
                strategy=self._strategy,
                n_trials=self._n_trials,
                n_init=self._n_init,
                seed=self._seed,
                ref_point=ref_point,
            )
            self._made_for = made_for
        self._fixed = fixed
        self._run.sync(_trials(experiment, data, space, metrics))

    def get_next_candidate(self, pending_parameters: list[TParameterization]) -> TParameterization:
        """Return the parameters of a new trial.

        Args:
            pending_parameters: Not needed: they are of the experiment's trials, or came from
                here.
        """
        if self._run is None:
            raise ProtocolError("update_generator_state must come before get_next_candidate")
        return {**self._fixed, **self._run.next()}


def _space(space: SearchSpace) -> tuple[Space, Params]:
    """Return the parameters to be chosen, and the values of the others."""
    if space.is_hierarchical or space.parameter_constraints:
        raise InvalidInputError(
            "TCGenerationNode needs a search space that is a box, without hierarchies and "
            f"constraints, got {space}"
        )
    fixed = {p.name: p.value for p in space.parameters.values() if isinstance(p, FixedParameter)}
    free = [p for name, p in space.parameters.items() if name not in fixed]
    if not free:
        raise InvalidInputError("TCGenerationNode needs a parameter that is not fixed, got none")
    return Space(tuple(_variable(p) for p in free)), fixed


def _variable(parameter: Parameter) -> Variable:
    """Return a parameter as a dimension of a box."""
    name = parameter.name
    match parameter:
        case RangeParameter(logit_scale=False, parameter_type=kind, log_scale=log):
            low, high = parameter.lower, parameter.upper
            if kind is ParameterType.INT and not log:
                return Stepped(name=name, low=int(low), high=int(high), step=1)
            whole = kind is ParameterType.INT
            digits = parameter.digits
            return Continuous(
                name=name, low=low, high=high, log=bool(log), whole=whole, digits=digits
            )
        case ChoiceParameter(is_ordered=True, is_task=False, values=values):
            return Levels(name=name, choices=tuple(values))
    raise InvalidInputError(
        "TCGenerationNode needs range parameters without logit scale, ordered choices or fixed "
        f"parameters, got {parameter}"
    )


def _objectives(config: OptimizationConfig | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the signatures of both metrics, and their directions."""
    objective = None if config is None else config.objective
    is_pair = objective is not None and objective.is_multi_objective
    weights = objective.metric_weights if objective is not None and is_pair else []
    if len(weights) != 2:
        raise InvalidInputError(
            "TCGenerationNode needs an optimization config of two objectives with a metric each, "
            f"such as '-fast, -slow', got {objective}"
        )
    metrics, factors = zip(*weights, strict=True)
    return metrics, tuple("minimize" if factor < 0 else "maximize" for factor in factors)


def _ref_point(
    config: OptimizationConfig | None, metrics: tuple[str, ...]
) -> tuple[float, ...] | None:
    """Return the thresholds of both objectives; None if there are not both."""
    constraints = [] if config is None else config.all_constraints
    bounds = {}
    for c in constraints:
        names = c.metric_signatures
        if len(names) != 1 or names[0] not in metrics:
            raise InvalidInputError(
                "TCGenerationNode knows no outcome constraints but thresholds of objectives, "
                f"got {c}"
            )
        if not c.relative:
            bounds[names[0]] = float(c.bound)
    return tuple(bounds[m] for m in metrics) if len(bounds) == 2 else None


def _trials(
    experiment: Experiment, data: Data, space: Space, metrics: tuple[str, ...]
) -> dict[Any, Trial]:
    """Return the arms of all trials that have the space's parameters."""
    df = data.df
    rows = zip(df["trial_index"], df["arm_name"], df["metric_signature"], df["mean"], strict=True)
    means = {(i, arm, m): float(y) for i, arm, m, y in rows if math.isfinite(y)}
    found = {}
    for i, trial in experiment.trials.items():
        outcome = _ENDED.get(trial.status, Outcome.RUNNING)
        for arm in trial.arms:
            if not space.covers(arm.parameters):
                continue
            fast, slow = (means.get((i, arm.name, m)) for m in metrics)
            found[i, arm.name] = Trial(
                params={v.name: arm.parameters[v.name] for v in space.variables},
                outcome=outcome,
                values=(fast, slow) if outcome is Outcome.DONE else (None, None),
            )
    return found
