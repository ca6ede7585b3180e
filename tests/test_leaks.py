"""Work of a fixed size, done 200 times, leaves nothing behind.

A run's periods are in `tests.test_journal`, tensors and graphs in `tests.test_conventions`.
"""

import gc
import os
import statistics
from pathlib import Path

import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import journal
from tcsaea_torch.errors import JournalError
from tcsaea_torch.evolution import Draws, RVEAConfig, rvea, simplex_lattice
from tcsaea_torch.models import FitConfig, fit_kriging
from tcsaea_torch.models.optimise import BFGSOptions
from tests.test_conventions import D, fast, points, slow
from tests.test_journal import resident
from tests.test_optimizer import make, problem, tell_all

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks into /proc")


def test_memory_is_flat_over_200_fits_searches_and_predictions():
    """One matrix of a model has 50 kB, so a lost one would show."""
    X = torch.tensor(points(80))
    vectors, alive = simplex_lattice(20), torch.ones(1, 80, dtype=torch.bool)
    fit = FitConfig(starts=(2.0,), options=BFGSOptions(max_evaluations=1))
    sizes = []
    for i in range(200):
        models = [fit_kriging(X, f(X), config=fit) for f in (fast, slow)]

        def evaluate(Z, models=models):
            return torch.stack([gp.posterior(Z).mean.squeeze(-1) for gp in models], dim=-1)

        draws = Draws.make(torch.zeros(1, dtype=torch.int64), "leak", i, 1, 20, D, X.dtype)
        rvea(evaluate, X.unsqueeze(0), alive, vectors, draws, RVEAConfig(n_generations=1))
        assert (models[0].posterior(X).variance >= 0).all()
        if i % 10 == 9:
            gc.collect()
        sizes.append(resident())
    grown = statistics.median(sizes[150:]) - statistics.median(sizes[50:100])
    assert grown / 100 < 20e3  # bytes in each round


def test_file_handles_are_flat_over_200_times_resuming_and_closing(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "SYNCHRONOUS", "OFF")
    path = tmp_path / "study.db"
    with make(journal=path) as optimizer:
        tell_all(optimizer, optimizer.ask()[:7])
    handles = []
    for k in range(200):
        tc.Optimizer.resume(path, problem()).close()
        if k % 10 == 0:
            with pytest.raises(JournalError, match="tau"):
                tc.Optimizer.resume(path, problem(tau=3))
        handles.append(len(os.listdir("/proc/self/fd")))
    assert max(handles) == handles[0]
