"""Samplers of Optuna, with both objectives at every point: TPE and Gaussian processes.

Both begin with the design of the other strategies, given as queued trials. All else is
Optuna's default; the Gaussian process is told that nothing is noisy.

[Akiba2019] T. Akiba, S. Sano, T. Yanase, T. Ohta, M. Koyama. Optuna: a next-generation
hyperparameter optimization framework. KDD 2019.
"""

from typing import Any

import torch

from benchmarks.micro.peers import load
from benchmarks.peers.base import Evaluations


def search_tpe(evaluations: Evaluations, n_init: int) -> None:
    """Spend all slow evaluations with the tree-structured Parzen estimator."""
    kind = load("optuna").samplers.TPESampler
    _search(evaluations, n_init, kind(seed=evaluations.seed, n_startup_trials=n_init))


def search_gp(evaluations: Evaluations, n_init: int) -> None:
    """Spend all slow evaluations with Optuna's own Gaussian processes."""
    kind = load("optuna").samplers.GPSampler
    sampler = kind(seed=evaluations.seed, n_startup_trials=n_init, deterministic_objective=True)
    _search(evaluations, n_init, sampler)


def _search(evaluations: Evaluations, n_init: int, sampler: Any) -> None:
    optuna = load("optuna")
    names = [f"x{i}" for i in range(evaluations.d)]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        for x in evaluations.design(min(n_init, evaluations.left[1])).tolist():
            study.enqueue_trial(dict(zip(names, x, strict=True)))
        while evaluations.left[1] and evaluations.has_time():
            trial = study.ask()
            x = [trial.suggest_float(name, 0.0, 1.0) for name in names]
            Y = evaluations.evaluate(torch.tensor([x], dtype=torch.float64))
            study.tell(trial, Y[0].tolist())
    finally:
        optuna.logging.set_verbosity(verbosity)
