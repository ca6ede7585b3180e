"""Cold fits of Kriging, against GPyTorch, BoTorch and smt.

GPyTorch gets the same kernel with the least noise that it takes, 1e-6 of the standardised
variance: our nugget of 1e-10 is below that. BoTorch's `SingleTaskGP` and smt's `KRG` are
taken as they come. The hyper-parameters that each finds are scored by one function, our
likelihood, with one nugget for all.
"""

from collections.abc import Callable
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim.fit import fit_gpytorch_mll_scipy
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.micro import data, peers
from benchmarks.micro.rows import OURS, Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from tcsaea_torch.kernels import PowerExponentialKernel, PowerMode
from tcsaea_torch.models import KrigingGP, fit_kriging
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.likelihood import negative_log_likelihood
from tcsaea_torch.models.surrogate import scale
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.types import Tensor

NOISE_FLOOR = 1e-6
"""The least noise that GPyTorch takes, in units of the standardised variance."""


def score(X: Tensor, y: Tensor, theta: Tensor, p: Tensor | None, nugget: float) -> float:
    """Return the negative log-likelihood a point, with the trend and sigma^2 at their best.

    Args:
        X: `n x d` points in the unit cube.
        y: `n` values.
        theta: `d` factors of |d|^p in the units of X.
        p: `d` powers; None means 2.
        nugget: Noise variance relative to sigma^2.
    """
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    constant = torch.zeros((), dtype=torch.bool, device=X.device)
    standardised, _ = scale(train, trend=constant, input_scaling="unit")
    return float(negative_log_likelihood(standardised, theta.log(), p, None, nugget).value)


def hyperparameters(model: Any) -> tuple[Tensor, Tensor | None]:
    """Return theta and p of a fitted model of ours or a peer's, in the units of its inputs."""
    if isinstance(model, KrigingGP):
        return model.hyperparameters.theta, model.hyperparameters.p
    if not isinstance(model, SingleTaskGP):  # smt standardises its inputs
        theta = torch.as_tensor(model.optimal_theta) / torch.as_tensor(model.X_scale).square()
        return theta, None
    kernel: Any = model.covar_module
    kernel = kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel
    if isinstance(kernel, PowerExponentialKernel):
        p = None if kernel.fixed_p == 2.0 else kernel.p.detach().squeeze(-2)
        return kernel.theta.detach().squeeze(-2), p
    # RBF: exp(-d^2 / (2 l^2))
    return 0.5 / kernel.lengthscale.detach().squeeze(-2).square(), None


def fit_gpytorch(
    X: Tensor, y: Tensor, p: PowerMode, *, max_seconds: float | None = None
) -> SingleTaskGP:
    """Fit the same kernel by GPyTorch, with the least noise it takes.

    Args:
        X: `n x d` points in the unit cube.
        y: `n` values.
        p: Power of the kernel.
        max_seconds: When to stop, and what was found by then is taken; None: never, and
            BoTorch tries again if it is not content.
    """
    kernel = ScaleKernel(PowerExponentialKernel(ard_num_dims=X.shape[-1], p=p))
    noise = torch.full_like(y, NOISE_FLOOR) * y.var()
    model = SingleTaskGP(X, y.unsqueeze(-1), noise.unsqueeze(-1), covar_module=kernel.to(X))
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    if max_seconds is None:
        fit_gpytorch_mll(mll)
    else:
        fit_gpytorch_mll_scipy(mll.train(), timeout_sec=max_seconds)
    return model.eval()


def fit_botorch(X: Tensor, y: Tensor) -> SingleTaskGP:
    """Fit BoTorch's default model."""
    model = SingleTaskGP(X, y.unsqueeze(-1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


def _smt(X: Tensor, y: Tensor) -> Callable[[], Any]:
    module = peers.load("smt.surrogate_models")

    def work() -> Any:
        model = module.KRG(print_global=False)
        model.set_training_values(X.cpu().numpy(), y.cpu().numpy())
        model.train()
        return model

    return work


def _with_smt(n: int, p: PowerMode) -> bool:
    """Whether smt takes part: it does not fit p, and at larger n it takes many minutes."""
    return p == 2.0 and n <= 145


def _limit(n: int, p: PowerMode) -> float | None:
    """Return when GPyTorch is stopped: with free powers at larger n it goes on for many minutes."""
    return None if p == 2.0 or n <= 145 else 60.0


def measure(setting: Setting, problem: str, n: int, d: int, p: PowerMode) -> Measured:
    """Time and score fits of n rows in d dimensions."""
    X = data.design(n, d, setting.device)
    y = data.slow_values(problem, X)
    works: dict[str, Callable[[], Any]] = {OURS: lambda: fit_kriging(X, y, p=p)}
    notes: dict[str, str] = {}
    limit = _limit(n, p)
    peers.add(works, notes, "gpytorch", lambda: lambda: fit_gpytorch(X, y, p, max_seconds=limit))
    if limit is not None:
        notes["gpytorch"] = f"gpytorch is stopped after {limit:g} s"
    peers.add(works, notes, "botorch", lambda: lambda: fit_botorch(X, y))
    if _with_smt(n, p):
        peers.add(works, notes, "smt", lambda: _smt(X, y))
    # Fits are deterministic, so the last results stand for all.
    rounds = paired(
        works,
        setting.repeats,
        optional=[name for name in works if name != OURS],
        synchronise=synchroniser(setting.device),
    )
    found = {name: hyperparameters(model) for name, model in rounds.results.items()}
    nugget = FitConfig().nugget_for(X.dtype)
    scores, at_floor = (
        {
            name: score(X, y, theta.to(X), None if p is None else p.to(X), value)
            for name, (theta, p) in found.items()
        }
        for value in (nugget, NOISE_FLOOR)
    )
    return Measured(
        raw=rounds.seconds,
        sizes={"n": n, "d": d, "p": p, "problem": problem},
        seeds=(data.SEED,),
        scores=scores,
        notes=notes | rounds.failures,
        facts={"nugget": nugget, "scores at the noise floor of GPyTorch": at_floor},
    )


def _row(problem: str, n: int, d: int, p: PowerMode, slowest: float, fastest: float) -> Row:
    both = ("gpytorch", "botorch")
    lines = [
        Line(against="the slower of GPyTorch with our kernel and BoTorch's SingleTaskGP",
             kind="speed-up", target=slowest, rivals=both, pick="slowest"),
        Line(against="the faster of the two",
             kind="speed-up", target=fastest, rivals=both, pick="fastest"),
    ]  # fmt: skip
    if _with_smt(n, p):
        lines.append(Line(against="smt's KRG", kind="speed-up", rivals=("smt",)))
    power = "p = 2" if p == 2.0 else "a free p for each dimension"
    return Row(
        name=f"fit-{n}-{d}-{'p2' if p == 2.0 else p}",
        what=f"fit, n = {n}, d = {d}, {power}",
        lines=tuple(lines),
        measure=lambda setting: measure(setting, problem, setting.pick(n, 16), d, p),
    )


ROWS = (
    _row("dtlz2", 145, 11, 2.0, 100.0, 40.0),
    _row("dtlz2", 145, 11, "ard", 30.0, 12.0),
    _row("uf1", 354, 30, 2.0, 30.0, 15.0),
    _row("uf1", 354, 30, "ard", 10.0, 5.0),
)
