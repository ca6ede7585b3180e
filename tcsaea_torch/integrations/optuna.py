"""A sampler for Optuna: `pip install 'tcsaea-torch[optuna]'`."""
# pyright: reportMissingImports=false

import logging
import math
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from tcsaea_torch.errors import InvalidInputError, MissingDependencyError
from tcsaea_torch.integrations.space import Continuous, Levels, Params, Space, Stepped, Variable
from tcsaea_torch.integrations.trials import (
    Outcome,
    Trial,
    TrialRun,
    check_counts,
    checked_strategy,
)
from tcsaea_torch.strategies import Strategy
from tcsaea_torch.validation import check_instance, check_int

try:
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.search_space import intersection_search_space
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState
except ImportError as error:
    raise MissingDependencyError(
        "tcsaea_torch.integrations.optuna needs optuna: pip install 'tcsaea-torch[optuna]'"
    ) from error

_PARAMS = "tcsaea_torch:params"
"""System attribute of a trial: its parameters, before all of them have been suggested."""

_OUTCOMES = {
    TrialState.RUNNING: Outcome.RUNNING,
    TrialState.COMPLETE: Outcome.DONE,
    TrialState.PRUNED: Outcome.FAILED,
    TrialState.FAIL: Outcome.FAILED,
}

_logger = logging.getLogger(__name__)


class TCSampler(BaseSampler):
    """Samples studies with two objectives by a strategy of this library.

    Both values of a trial come at once, so tau is 1: an objective that is faster than the
    other is not run more often. `tcsaea_torch.Optimizer` does that.

    All trials of a study count, whoever chose their parameters: completed ones as data, running
    ones as points that are on their way, failed and pruned ones as failures. The sampler keeps
    nothing that is not in the study's storage, but for the state of its strategy, which begins
    anew in each process. Workers in threads or processes may share a study; processes should
    have different seeds.

    Floats and integers, with steps or on a logarithmic scale, and categories of two choices are
    chosen together. Categories of more choices, and parameters that not all trials have, are
    sampled by `independent_sampler`, and so is all of the first trial unless `search_space` is
    given. Constraints are not looked at. Values that are infinite count as failed.

    Example:
        >>> import optuna
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> def objective(trial):
        ...     x, y = trial.suggest_float("x", 0, 1), trial.suggest_float("y", 1e-3, 1, log=True)
        ...     return x + y, 1 - x * y
        >>> sampler = TCSampler("random", n_trials=6, seed=0)
        >>> study = optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)
        >>> study.optimize(objective, n_trials=6)
        >>> len(study.trials)
        6

    Args:
        strategy: A configured strategy or its name; None means `TCEHVI(asynchronous=True)`,
            which chooses each trial with all that is known. Others choose several trials at a
            time, and random ones while they wait for those that other workers run.
        n_trials: How many trials the study is to have. A strategy may plan with it; n_init
            follows from it. It is no limit: it is doubled when there are more.
        n_init: How many trials are the initial design; trials that exist count. None means
            min(100, max(d + 2, n_trials // 3)) for d parameters.
        seed: Decides all random numbers; None: a random one. The same seed gives the same
            trials if they run one after the other.
        search_space: Distributions by name, of parameters that all trials have. None: those
            that all completed trials have.
        independent_sampler: For other parameters; None means `RandomSampler`.

    Raises:
        InvalidInputError: If an argument is wrong, or later, if a study does not have two
            objectives.
    """

    def __init__(
        self,
        strategy: Strategy | str | None = None,
        *,
        n_trials: int = 50,
        n_init: int | None = None,
        seed: int | None = None,
        search_space: Mapping[str, BaseDistribution] | None = None,
        independent_sampler: BaseSampler | None = None,
    ) -> None:
        self._strategy = checked_strategy(strategy)
        self._n_trials, self._n_init = check_counts(n_trials, n_init)
        self._seed = secrets.randbits(31) if seed is None else check_int("seed", seed)
        self._search_space = None if search_space is None else _checked_space(search_space)
        if independent_sampler is None:
            independent_sampler = RandomSampler(seed=self._seed % 2**32)
        self._others = check_instance("independent_sampler", independent_sampler, BaseSampler)
        self._said: set[str] = set()
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._runs: WeakKeyDictionary[Study, TrialRun] = WeakKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_lock", "_runs")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._start()

    def reseed_rng(self) -> None:
        """Give the independent sampler another seed; workers share all else."""
        self._others.reseed_rng()

    # ------------------------------------------------------------------ protocol

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the distributions of the parameters that are chosen together."""
        if len(study.directions) != 2:
            raise InvalidInputError(
                f"TCSampler needs a study of two objectives, got {len(study.directions)}"
            )
        space = self._search_space
        if space is None:
            space = intersection_search_space(study.get_trials(deepcopy=False))
        return {n: d for n, d in space.items() if not d.single() and _variable(n, d) is not None}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> Params:
        """Return the trial's parameters in the search space."""
        fixed = trial.system_attrs.get("fixed_params", {})
        if not search_space.keys() - fixed.keys():
            return {}
        space = Space(tuple(v for n, d in search_space.items() if (v := _variable(n, d))))
        with self._lock:
            run = self._runs.get(study)
            if run is None or run.space != space:
                run = self._runs[study] = TrialRun(
                    space,
                    directions=[way.name.lower() for way in study.directions],
                    strategy=self._strategy,
                    n_trials=self._n_trials,
                    n_init=self._n_init,
                    seed=self._seed,
                )
            run.sync(_trials(study, space, trial))
            params = run.next(trial.number)
            # Other processes see it at once, as other samplers of Optuna do it.
            study._storage.set_trial_system_attr(trial._trial_id, _PARAMS, params)
        return params

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Return a value of a parameter that is not in the search space."""
        if _variable(param_name, param_distribution) is None and param_name not in self._said:
            self._said.add(param_name)
            _logger.warning(
                f"The categories of {param_name!r} have no order: TCSampler leaves them to "
                f"{self._others}."
            )
        return self._others.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Let the independent sampler prepare."""
        self._others.before_trial(study, trial)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Let the independent sampler know."""
        self._others.after_trial(study, trial, state, values)


def _checked_space(value: Any) -> dict[str, BaseDistribution]:
    is_dict = isinstance(value, Mapping)
    if not is_dict or not all(isinstance(d, BaseDistribution) for d in value.values()):
        raise InvalidInputError(
            f"search_space must be a dict of distributions of Optuna by name, got {value!r}"
        )
    return dict(value)


def _variable(name: str, distribution: BaseDistribution) -> Variable | None:
    """Return a parameter as a dimension of a box; None if it has no order."""
    match distribution:
        case FloatDistribution(low=low, high=high, step=None, log=log):
            return Continuous(name=name, low=low, high=high, log=log)
        case FloatDistribution(low=low, high=high, step=step) if step is not None:
            return Stepped(name=name, low=low, high=high, step=step)
        case IntDistribution(low=low, high=high, log=True):
            return Continuous(name=name, low=low, high=high, log=True, whole=True)
        case IntDistribution(low=low, high=high, step=step):
            return Stepped(name=name, low=low, high=high, step=step)
        case CategoricalDistribution(choices=choices) if len(choices) <= 2:
            return Levels(name=name, choices=tuple(choices))
    return None


def _trials(study: Study, space: Space, but: FrozenTrial) -> dict[Any, Trial]:
    """Return all trials of a study that have the space's parameters, but one."""
    found = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.number == but.number or trial.state not in _OUTCOMES:
            continue
        attributes = trial.system_attrs
        ahead = {**attributes.get(_PARAMS, {}), **attributes.get("fixed_params", {})}
        params = {**ahead, **trial.params}
        if not space.covers(params):
            continue
        fast, slow = trial.values if trial.state is TrialState.COMPLETE else (None, None)
        found[trial.number] = Trial(
            params={v.name: params[v.name] for v in space.variables},
            outcome=_OUTCOMES[trial.state],
            values=(_finite(fast), _finite(slow)),
        )
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
