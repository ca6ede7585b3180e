"""One likelihood with its gradient, against the operations that it cannot avoid."""

from collections.abc import Callable

import torch

from benchmarks.micro import data
from benchmarks.micro.rows import OURS, Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from tcsaea_torch.models.likelihood import Standardised, evaluate, prepare
from tcsaea_torch.models.surrogate import scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Tensor


def standardised(problem: str, n: int, d: int, device: str) -> Standardised:
    """Return data as a fit holds it: a batch of one."""
    X = data.design(n, d, device).unsqueeze(0)
    y = data.slow_values(problem, X[0]).unsqueeze(0)
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    constant = torch.zeros(1, dtype=torch.bool, device=device)
    return scale(train, trend=constant, input_scaling="unit")[0]


def typical_log_theta(training: Standardised) -> Tensor:
    """Return an isotropic ln theta at which points correlate moderately."""
    d = training.X.shape[-1]
    return torch.full_like(training.X[:, 0], 6.0 / d).log()


def bare(X: Tensor) -> Callable[[], Tensor]:
    """Return the bare operations: nothing is scaled, checked or allocated that need not be."""
    n, d = X.shape
    scaled = X * (6.0 / d) ** 0.5
    norms, ones = scaled.square().sum(dim=1, keepdim=True), X.new_ones(n, 1)
    # So one GEMM gives the negative squared distances.
    left = torch.cat([scaled * 2.0, -norms, -ones], dim=1)
    right = torch.cat([scaled, ones, norms], dim=1).T.contiguous()
    R, W, GX, a = X.new_empty(n, n), X.new_empty(n, n), torch.empty_like(X), X[:, 0].clone()

    def work() -> Tensor:
        torch.mm(left, right, out=R)
        R.exp_()
        R.diagonal().add_(1e-6)
        L, _ = torch.linalg.cholesky_ex(R)
        torch.cholesky_inverse(L, out=W)
        W.addr_(a, a, alpha=-1.0).mul_(R)
        return torch.mm(W, X, out=GX)

    return work


def measure(setting: Setting, problem: str, n: int, d: int) -> Measured:
    """Time a likelihood of n rows in d dimensions, p = 2."""
    training = standardised(problem, n, d, setting.device)
    log_theta = typical_log_theta(training)
    prepared = prepare(training, 1e-10, p=None)
    rounds = paired(
        {
            OURS: lambda: evaluate(prepared, log_theta, None, None),
            "bare": bare(training.X[0]),
        },
        setting.repeats,
        min_seconds=setting.pick(0.2, 0.01),
        synchronise=synchroniser(setting.device),
    )
    return Measured(
        raw=rounds.seconds, sizes={"n": n, "d": d, "p": 2.0}, seeds=(data.SEED,),
    )  # fmt: skip


def _row(problem: str, n: int, d: int) -> Row:
    return Row(
        name=f"likelihood-{n}-{d}",
        what=f"likelihood with gradient, n = {n}, d = {d}, p = 2",
        lines=(
            Line(against="its GEMMs, exponentials, Cholesky factor, inverse and products alone",
                 kind="overhead", target=2.5, rivals=("bare",)),
        ),
        measure=lambda setting: measure(setting, problem, setting.pick(n, 20), d),
    )  # fmt: skip


ROWS = (_row("dtlz2", 145, 11), _row("uf1", 354, 30))
