"""NSGA-II and RVEA of pymoo, with both objectives at every point.

They are evolutionary algorithms: their population is their initial design, and `n_init` does
not apply. It has 20 members, so that 200 evaluations are 10 generations of it; it begins as a
random Latin hypercube. All else is pymoo's default.

[Blank2020] J. Blank, K. Deb. pymoo: multi-objective optimization in Python. IEEE Access 8, 2020.
"""

import math
from typing import Any

import numpy as np
import torch

from benchmarks.micro.peers import load
from benchmarks.peers.base import Evaluations

POPULATION = 20


def search_nsga2(evaluations: Evaluations, n_init: int) -> None:
    """Spend all slow evaluations with NSGA-II."""
    kind = load("pymoo.algorithms.moo.nsga2").NSGA2
    _search(evaluations, kind(pop_size=POPULATION, sampling=_start(evaluations)))


def search_rvea(evaluations: Evaluations, n_init: int) -> None:
    """Spend all slow evaluations with RVEA, with a reference vector for each member."""
    kind = load("pymoo.algorithms.moo.rvea").RVEA
    directions = load("pymoo.util.ref_dirs").get_reference_directions
    vectors = directions("das-dennis", 2, n_partitions=POPULATION - 1)
    _search(evaluations, kind(vectors, sampling=_start(evaluations)))


def _start(evaluations: Evaluations) -> np.ndarray:
    return evaluations.design(POPULATION).numpy()


def _search(evaluations: Evaluations, algorithm: Any) -> None:
    problem = load("pymoo.core.problem").Problem(n_var=evaluations.d, n_obj=2, xl=0.0, xu=1.0)
    n_generations = math.ceil(evaluations.left[1] / POPULATION)
    algorithm.setup(problem, termination=("n_gen", n_generations), seed=evaluations.seed)
    while evaluations.left[1] and evaluations.has_time():
        members = algorithm.ask()
        X = torch.as_tensor(members.get("X"), dtype=torch.float64)
        # The last generation may be more than what is left.
        Y = evaluations.evaluate(X[: evaluations.left[1]])
        if evaluations.left[1]:
            static = load("pymoo.problems.static").StaticProblem(problem, F=Y.numpy())
            load("pymoo.core.evaluator").Evaluator().eval(static, members)
            algorithm.tell(infills=members)
