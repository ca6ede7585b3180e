# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A BoTorch loop of your own
#
# `tc.minimize` is one way to use this library. The other is to take parts of it: kernel, models and
# acquisition functions are ordinary BoTorch parts. This notebook writes a plain BoTorch loop,
# changes one part at a time, and ends with what is special here: a model that learns the slow
# objective from fast values.

# %%
import os
import warnings

import matplotlib.pyplot as plt
import pandas as pd
import torch
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from botorch.test_functions.multi_objective import DTLZ2
from gpytorch.kernels import ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, SumMarginalLogLikelihood

import tcsaea_torch as tc
from tcsaea_torch.acquisition import (
    AdaptiveAcquisition,
    BiObjectiveEHVI,
    normalizer_from_model,
)
from tcsaea_torch.botorch_models import CoSurrogateModel
from tcsaea_torch.evolution import simplex_lattice
from tcsaea_torch.kernels import PowerExponentialKernel
from tcsaea_torch.metrics import hypervolume
from tcsaea_torch.models import fit_kriging

SMOKE = "SMOKE_TEST" in os.environ  # tests run this notebook with less of everything
N_INIT, N_SLOW, SEEDS = (10, 12, [0]) if SMOKE else (12, 24, [0, 1])
SEARCH = {"num_restarts": 1, "raw_samples": 4} if SMOKE else {"num_restarts": 4, "raw_samples": 64}
SEARCH["options"] = {"maxiter": 3 if SMOKE else 40}
torch.set_num_threads(1)
warnings.filterwarnings("ignore", message="Optimization failed")  # BoTorch then tries again
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## Problems come and go
#
# A test problem of BoTorch becomes a problem with a fast and a slow objective, five fast
# evaluations in the time of a slow one. Any problem goes the other way, too: `to_botorch` gives a
# test problem for other people's loops, with `negate=True` one to be maximised.

# %%
problem = tc.Problem.from_botorch(DTLZ2(dim=4, num_objectives=2), slow=1, tau=5)
theirs = problem.to_botorch(negate=True)
print("fast and slow are minimised:", problem.directions)
print("reference point:", problem.ref_point.tolist(), "and, negated,", theirs.ref_point.tolist())
print("hypervolume of the whole front:", round(problem.max_hv, 4))

# %% [markdown]
# Some points have both values; at others only the fast one is known, since there was time for it.
# NaN means not measured.


# %%
def sobol(n, seed):
    """Return n points of the box, which is the unit cube here."""
    return torch.quasirandom.SobolEngine(problem.d, scramble=True, seed=seed).draw(n).double()


def evaluate(X, slow=True):
    """Return (fast, slow) values n x 2; without the slow ones if they are not wanted."""
    y_slow = problem.slow(X) if slow else torch.full((len(X),), torch.nan)
    return torch.stack([problem.fast(X), y_slow], dim=-1)


def start(seed):
    """Return points and values: N_INIT with both, and what the fast one can do meanwhile."""
    n_alone = round((problem.tau - 1) * N_INIT)
    X = sobol(N_INIT + n_alone, seed)
    return X, torch.cat([evaluate(X[:N_INIT]), evaluate(X[N_INIT:], slow=False)])


X, Y = start(seed=0)
both = Y.isfinite().all(dim=-1)
print(f"{int(both.sum())} points with both values, {int((~both).sum())} with the fast one alone")

# %% [markdown]
# ## The kernel
#
# `PowerExponentialKernel` is a GPyTorch kernel, so it fits into a `SingleTaskGP`. `fit_kriging`
# fits the same kind of model by its own batched optimiser with exact gradients, and returns a
# BoTorch model as well. Root mean square errors of the slow objective at 500 other points:

# %%
X_test = sobol(500, seed=99)
Y_test = problem.evaluate(X_test)


def fit_with(kernel):
    """Fit BoTorch's model of the slow objective."""
    gp = SingleTaskGP(X[both], Y[both, 1:], covar_module=kernel)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
    return gp


def error(model, column=-1):
    """Return the root mean square error of an output."""
    with torch.no_grad():
        mean = model.posterior(X_test.unsqueeze(1)).mean[:, 0, column]
    return float((mean - Y_test[:, 1]).square().mean().sqrt())


models = {
    "SingleTaskGP": fit_with(None),
    "SingleTaskGP with PowerExponentialKernel": fit_with(
        ScaleKernel(PowerExponentialKernel(ard_num_dims=problem.d))
    ),
    "fit_kriging": fit_kriging(X[both], Y[both, 1]),
}
pd.Series({name: error(gp) for name, gp in models.items()}, name="error").round(3)

# %% [markdown]
# Kernels alone do not change much: twelve points are few in four dimensions.
#
# ## The model with the transfer inside
#
# `CoSurrogateModel` is a `ModelListGP` of both objectives. Its slow part also learns from points of
# which only the fast value is known, if it finds a *link* between the objectives that predicts
# left-out slow values clearly better than a model of the slow objective alone.

# %%
model = CoSurrogateModel.fit(X, Y, problem.bounds, maximize=False)
alone = CoSurrogateModel.fit(X, Y, problem.bounds, maximize=False, link=None)
print("link:", model.link)
believed = model.synthetic.is_believed
print(f"synthetic slow values that it learned from: {int(believed.sum())} of {len(believed)}")
print(f"error of the slow objective without them: {error(alone):.3f}")
print(f"error with them: {error(model):.3f}")

# %%
y = problem.slow(model.synthetic.X[believed])
told, sd = model.synthetic.y[believed], model.synthetic.noise_var[believed].sqrt()
figure, ax = plt.subplots(figsize=(5.5, 5), layout="constrained")
ax.axline((0, 0), slope=1, color="0.6", linestyle="--", zorder=0)
ax.errorbar(y, told, yerr=2 * sd, fmt="o", color="#0072B2", markersize=4, elinewidth=1)
ax.set_xlabel("true slow value, which nobody has measured")
ax.set_ylabel("synthetic slow value ± two sd")
within = ((told - y).abs() <= 2 * sd).double().mean()
ax.set_title(f"{float(within):.0%} of the values lie within two sd")
ax.set_aspect("equal")

# %% [markdown]
# DTLZ2 has a simple link: the angle of both values. On problems without one `link` is None, and
# the model is the same as without transfer. The notebook `5_how_transfer_works` shows why.
#
# ## The loop
#
# An ordinary loop: fit a model, optimise an acquisition function, evaluate. While the slow
# evaluation runs, there is time for tau - 1 more fast ones. Those go to random points, half of them
# near the best ones.


# %%
def fast_alone(X, Y, n, seed):
    """Return n points for the fast objective alone."""
    known = Y.isfinite().all(dim=-1)
    front = X[known][tc.metrics.is_non_dominated(Y[known])]
    u = sobol(n, seed)
    near = front[torch.arange(n) % len(front)] + 0.2 * (u - 0.5)
    return torch.where((torch.arange(n) % 2 == 0).unsqueeze(-1), u, near).clamp(0, 1)


def search(propose, uses_fast_alone, seed):
    """Return the hypervolume after each slow evaluation from the initial ones on."""
    torch.manual_seed(seed)  # for BoTorch's own random numbers
    X, Y = start(seed)
    if not uses_fast_alone:
        X, Y = X[:N_INIT], Y[:N_INIT]
    history = [hypervolume(Y[:N_INIT], problem.ref_point)]
    for step in range(N_SLOW - N_INIT):
        x = propose(X, Y, step)
        X, Y = torch.cat([X, x]), torch.cat([Y, evaluate(x)])
        if uses_fast_alone:
            more = fast_alone(X, Y, round(problem.tau) - 1, seed=1000 * seed + step)
            X, Y = torch.cat([X, more]), torch.cat([Y, evaluate(more, slow=False)])
        known = Y.isfinite().all(dim=-1)
        history.append(hypervolume(Y[known], problem.ref_point))
    return history


# %% [markdown]
# ### BoTorch's own
#
# `SingleTaskGP` and qLogNEHVI, the default choice there. It knows nothing of fast values alone.


# %%
def qlognehvi(model, X, step):
    """Return the best point of BoTorch's acquisition function; it maximises."""
    acquisition = qLogNoisyExpectedHypervolumeImprovement(
        model,
        ref_point=theirs.ref_point,
        X_baseline=X,
        sampler=SobolQMCNormalSampler(torch.Size([32]), seed=step),
        prune_baseline=True,
    )
    return optimize_acqf(acquisition, theirs.bounds, q=1, **SEARCH)[0]


def with_botorch(X, Y, step):
    """Propose with BoTorch's models."""
    model = ModelListGP(*(SingleTaskGP(X, -Y[:, i : i + 1]) for i in range(2)))
    fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
    return qlognehvi(model, X, step)


# %% [markdown]
# ### Our acquisition functions
#
# `AdaptiveAcquisition` is that of the paper: it looks in one direction between the objectives at a
# time, and weighs what the models say (1 - alpha) and how uncertain they are (alpha).
# `BiObjectiveEHVI` is the expected hypervolume improvement of two objectives, exact and without
# samples. For both, models are of minimised values, as everywhere in this library.

# %%
vectors = simplex_lattice(7)  # directions between the objectives


def with_adaptive(X, Y, step):
    """Propose with Kriging and the paper's acquisition function."""
    model = ModelListGP(*(fit_kriging(X, Y[:, i]) for i in range(2)))
    scales = normalizer_from_model(model, torch.cat([sobol(256, step), X]), vectors)
    vector = vectors[3 * step % len(vectors)]
    acquisition = AdaptiveAcquisition(model, vector, scales, alpha=0.1, theta=0.5)
    return optimize_acqf(acquisition, problem.bounds, q=1, **SEARCH)[0]


def with_ehvi(X, Y, step):
    """Propose with Kriging and exact EHVI."""
    model = ModelListGP(*(fit_kriging(X, Y[:, i]) for i in range(2)))
    acquisition = BiObjectiveEHVI(model, problem.ref_point)
    return optimize_acqf(acquisition, problem.bounds, q=1, **SEARCH)[0]


# %% [markdown]
# ### Our model
#
# The same acquisition functions on `CoSurrogateModel`, which makes use of fast values alone. What
# was not measured is no point of the front: `BiObjectiveEHVI` gets the measured values as `Y`, and
# qLogNEHVI the points with both values as its baseline.


# %%
def with_transfer(X, Y, step):
    """Propose with qLogNEHVI on our model."""
    known = Y.isfinite().all(dim=-1)
    return qlognehvi(CoSurrogateModel.fit(X, -Y, theirs.bounds), X[known], step)


def without_link(X, Y, step):
    """Propose with the same model, without the transfer."""
    known = Y.isfinite().all(dim=-1)
    return qlognehvi(CoSurrogateModel.fit(X, -Y, theirs.bounds, link=None), X[known], step)


def with_transfer_and_ehvi(X, Y, step):
    """Propose with exact EHVI on our model."""
    known = Y.isfinite().all(dim=-1)
    model = CoSurrogateModel.fit(X, Y, problem.bounds, maximize=False)
    acquisition = BiObjectiveEHVI(model, problem.ref_point, Y=Y[known], lower_bound=torch.zeros(2))
    return optimize_acqf(acquisition, problem.bounds, q=1, **SEARCH)[0]


# %% [markdown]
# ## What comes out
#
# Means of the seeds; all loops of a seed begin with the same points:

# %%
LOOPS = {
    "SingleTaskGP, qLogNEHVI": (with_botorch, False),
    "Kriging, adaptive": (with_adaptive, False),
    "Kriging, EHVI": (with_ehvi, False),
    "CoSurrogateModel without link, qLogNEHVI": (without_link, True),
    "CoSurrogateModel, qLogNEHVI": (with_transfer, True),
    "CoSurrogateModel, EHVI": (with_transfer_and_ehvi, True),
}
histories = {
    name: torch.tensor([search(propose, uses, seed) for seed in SEEDS])
    for name, (propose, uses) in LOOPS.items()
}

# %%
figure, ax = plt.subplots(figsize=(9, 4.8), layout="constrained")
colors = ["#000000", "#E69F00", "#56B4E9", "#999999", "#0072B2", "#D55E00"]
for (name, history), color, marker in zip(histories.items(), colors, "sv^DoP", strict=True):
    share = 100 * history.mean(dim=0) / problem.max_hv
    ax.plot(range(N_INIT, N_SLOW + 1), share, color=color, marker=marker, markevery=4,
            linestyle="-" if LOOPS[name][1] else "--", label=name)  # fmt: skip
ax.set_xlabel("slow evaluations")
ax.set_ylabel("hypervolume [% of the front's]")
ax.grid(visible=True, alpha=0.3)
legend = ax.legend(
    title="solid: with fast values alone", loc="center left", bbox_to_anchor=(1.0, 0.5)
)

# %%
pd.DataFrame(
    {name: (100 * history[:, -1] / problem.max_hv).tolist() for name, history in histories.items()},
    index=[f"% of the front, seed {seed}" for seed in SEEDS],
).T.round(2)

# %% [markdown]
# A problem that follows such a simple link, a few evaluations and few seeds: this shows how
# the parts fit together, and is no benchmark. `python -m benchmarks.co_surrogate_model` measures
# the same on more problems, and `python -m benchmarks run peers` other libraries beside ours.
#
# ## Several points at once
#
# Ours take one point at a time. For a batch let `optimize_acqf` go on from one to the next: those
# that it has chosen are pending, and count as if they had given what the model foresees.

# %%
X, Y = start(seed=0)
known = Y.isfinite().all(dim=-1)
model = CoSurrogateModel.fit(X, Y, problem.bounds, maximize=False)
acquisition = BiObjectiveEHVI(model, problem.ref_point, Y=Y[known], lower_bound=torch.zeros(2))
batch, _ = optimize_acqf(acquisition, problem.bounds, q=3, sequential=True, **SEARCH)
with torch.no_grad():
    mean = model.posterior(batch.unsqueeze(1)).mean.squeeze(1)
pd.DataFrame(
    torch.cat([mean, problem.evaluate(batch)], dim=-1),
    columns=["fast, foreseen", "slow, foreseen", "fast", "slow"],
).round(3)

# %% [markdown]
# The loop above is short, and it is all yours. What it does not have is what `tc.minimize` does
# around it: workers that go on while others run, evaluations that fail, a journal, and the choice
# of which points are worth a slow evaluation at all.
