"""The decoupled hypervolume knowledge gradient of BoTorch: one objective of one point at a time.

Each decision takes the objective whose evaluation promises the most hypervolume of the models'
own front for its cost: 1 the fast one, tau the slow one. Few points get both values. So a run
is judged by those and, at no charge, by the true values of the front of the models' means, as
its authors judge it; that favours it over all others here.

[Daulton2023] S. Daulton, M. Balandat, E. Bakshy. Hypervolume knowledge gradient: a lookahead
approach for multi-objective Bayesian optimization with partial information. ICML 2023.
"""

from typing import Any

import torch
from botorch.acquisition.cost_aware import InverseCostWeightedUtility
from botorch.acquisition.multi_objective.hypervolume_knowledge_gradient import (
    _get_hv_value_function,
    qHypervolumeKnowledgeGradient,
)
from botorch.models import ModelListGP
from botorch.models.cost import FixedCostModel

from benchmarks.micro.peers import load
from benchmarks.peers.base import Evaluations
from benchmarks.peers.botorch_models import fit, maximise, reference_point
from tcsaea_torch.types import Float, Tensor

N_FANTASIES = 8
N_PARETO = 10
N_RESTARTS = 1
N_RAW_SAMPLES = 512
"""As in the authors' tutorial."""

N_INNER_RESTARTS = 5
N_INNER_RAW_SAMPLES = 256
"""A quarter of the tutorial's: the hypervolume of the models' means is found all the same."""

BATCH_LIMIT = 5
POPULATION, N_GENERATIONS = 250, 100
"""NSGA-II, which finds the front of the models' means, as in the tutorial."""


def search(evaluations: Evaluations, n_init: int) -> Float[Tensor, "k d"]:
    """Spend both budgets, one evaluation a decision, and return the front of the last models."""
    nsga2 = _NSGA2()  # first of all, lest a package be found missing at the end
    evaluations.evaluate(evaluations.design(min(n_init, evaluations.left[1])))
    while any(evaluations.left) and evaluations.has_time():
        decision = _decide(evaluations)
        if not evaluations.has_time():  # the decision itself was cut short
            break
        evaluations.evaluate(*decision)
    return nsga2.front(fit(evaluations), evaluations)


def _decide(evaluations: Evaluations) -> tuple[Tensor, tuple[bool, bool]]:
    """Return the point and the objective with the most value for its cost."""
    model = fit(evaluations)
    ref_point = reference_point(evaluations.problem)
    costs = torch.tensor([1.0, evaluations.problem.tau], dtype=torch.float64)
    _, current_value = maximise(
        _get_hv_value_function(model=model, ref_point=ref_point, use_posterior_mean=True),
        evaluations.d,
        q=N_PARETO,
        num_restarts=N_INNER_RESTARTS,
        raw_samples=N_INNER_RAW_SAMPLES,
        options={"batch_limit": BATCH_LIMIT},
        timeout_sec=evaluations.seconds_left,
    )
    acquisition = qHypervolumeKnowledgeGradient(
        model=model,
        ref_point=ref_point,
        num_fantasies=N_FANTASIES,
        num_pareto=N_PARETO,
        current_value=current_value,
        cost_aware_utility=InverseCostWeightedUtility(cost_model=FixedCostModel(costs)),
    )
    candidates = []
    for which in ((True, False), (False, True)):
        if not evaluations.left[which.index(True)]:
            continue
        acquisition.X_evaluation_mask = torch.tensor([which])  # type: ignore[assignment]
        X, value = maximise(
            acquisition,
            evaluations.d,
            q=1,
            num_restarts=N_RESTARTS,
            raw_samples=N_RAW_SAMPLES,
            options={
                "batch_limit": BATCH_LIMIT,
                "num_inner_restarts": N_INNER_RESTARTS,
                "raw_inner_samples": N_INNER_RAW_SAMPLES,
            },
            timeout_sec=evaluations.seconds_left,
        )
        candidates.append((float(value), X, which))
    _, X, which = max(candidates, key=lambda candidate: candidate[0])
    return X, which


class _NSGA2:
    """NSGA-II of pymoo on the means of models."""

    def __init__(self) -> None:
        algorithms, problems, optimize = (
            load(f"pymoo.{name}") for name in ("algorithms.moo.nsga2", "core.problem", "optimize")
        )
        self._algorithm, self._minimize = algorithms.NSGA2, optimize.minimize
        self._problem = problems.Problem

    def front(self, model: ModelListGP, evaluations: Evaluations) -> Float[Tensor, "k d"]:
        """Return points whose means are not dominated."""

        class Means(self._problem):
            def _evaluate(self, x: Any, out: dict[str, Any], *_: Any, **__: Any) -> None:
                with torch.no_grad():
                    out["F"] = -model.posterior(torch.from_numpy(x)).mean.numpy()

        found = self._minimize(
            Means(n_var=evaluations.d, n_obj=2, xl=0.0, xu=1.0),
            self._algorithm(pop_size=POPULATION),
            ("n_gen", N_GENERATIONS),
            seed=evaluations.seed,
        )
        return torch.as_tensor(found.X).reshape(-1, evaluations.d)
