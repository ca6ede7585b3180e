"""qLogNEHVI of BoTorch, in batches of 3, with both objectives at every point.

[Ament2023] S. Ament, S. Daulton, D. Eriksson, M. Balandat, E. Bakshy. Unexpected improvements
to expected improvement for Bayesian optimization. NeurIPS 2023.
"""

import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.sampling import SobolQMCNormalSampler

from benchmarks.peers.base import Evaluations
from benchmarks.peers.botorch_models import fit, maximise, reference_point

Q = 3
"""Points of a batch."""

N_SAMPLES = 128
N_RESTARTS, N_RAW_SAMPLES = 10, 512
OPTIONS = {"batch_limit": 5, "maxiter": 200}
"""As in BoTorch's tutorials on several objectives."""


def search(evaluations: Evaluations, n_init: int) -> None:
    """Spend all slow evaluations: the design first, then batches that the models propose."""
    evaluations.evaluate(evaluations.design(min(n_init, evaluations.left[1])))
    while evaluations.left[1] and evaluations.has_time():
        acquisition = qLogNoisyExpectedHypervolumeImprovement(
            model=fit(evaluations),
            ref_point=reference_point(evaluations.problem),
            X_baseline=evaluations.X,
            sampler=SobolQMCNormalSampler(torch.Size([N_SAMPLES]), seed=evaluations.seed),
            prune_baseline=True,
            cache_root=True,
        )
        X, _ = maximise(
            acquisition,
            evaluations.d,
            q=min(Q, evaluations.left[1]),
            num_restarts=N_RESTARTS,
            raw_samples=N_RAW_SAMPLES,
            options=OPTIONS,
            sequential=True,
        )
        evaluations.evaluate(X)
