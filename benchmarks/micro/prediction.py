"""Means and variances, against their GEMMs and their triangular solve."""

from collections.abc import Callable

import torch

from benchmarks.micro import data
from benchmarks.micro.likelihood import standardised, typical_log_theta
from benchmarks.micro.rows import OURS, Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from tcsaea_torch.models.surrogate import Hyperparameters, condition, scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Tensor


def bare(X: Tensor, Xq: Tensor, L: Tensor, a: Tensor) -> Callable[[], Tensor]:
    """Return the bare operations on scaled points and a factor."""

    def work() -> Tensor:
        k = Xq @ X.T
        v = torch.linalg.solve_triangular(L, k.T, upper=False)
        return k @ a + v.square().sum(dim=0)

    return work


def measure(setting: Setting) -> Measured:
    """Time a prediction."""
    n, q, d = setting.pick((300, 200, 11), (20, 5, 3))
    X = data.design(n, d, setting.device).unsqueeze(0)
    Xq = data.design(q, d, setting.device, name="micro/query").unsqueeze(0)
    y = data.slow_values("dtlz2", X)
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    constant = torch.zeros(1, dtype=torch.bool, device=setting.device)
    theta = typical_log_theta(standardised("dtlz2", n, d, setting.device)).exp()
    training, scaling = scale(train, trend=constant, input_scaling="unit")
    surrogate = condition(training, scaling, Hyperparameters(theta=theta), nugget=1e-10)
    factors = surrogate.factors
    rounds = paired(
        {
            OURS: lambda: surrogate.predict(Xq),
            "bare": bare(training.X[0], Xq[0], factors.L[0], factors.a[0]),
        },
        setting.repeats,
        min_seconds=setting.pick(0.2, 0.01),
        synchronise=synchroniser(setting.device),
    )
    return Measured(
        raw=rounds.seconds, sizes={"n": n, "q": q, "d": d}, seeds=(data.SEED,),
    )  # fmt: skip


ROWS = (
    Row(
        name="predict",
        what="means and variances of 200 points, n = 300, d = 11",
        lines=(
            Line(against="its GEMMs and triangular solve alone", kind="overhead", target=2.0,
                 rivals=("bare",)),
        ),
        measure=measure,
    ),
)  # fmt: skip
