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
# # Machine learning: small and accurate
#
# A random forest shall read handwritten digits on a small controller. It must be accurate, and it
# must fit into the memory: at most 4000 nodes in all trees together, and fewer are better.
#
# - *Fast objective*: the number of nodes. It takes one fit.
# - *Slow objective*: the error in cross-validation with five folds. It takes five fits, so `tau=5`.
#
# The data are 1797 images that ship with scikit-learn. A quarter of them is set aside for the end.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split

import tcsaea_torch as tc

SMOKE = "SMOKE_TEST" in os.environ  # tests run this notebook with a smaller budget
N_SLOW, SEEDS, N_TRAIN = (7, (0,), 200) if SMOKE else (40, (0, 1, 2), None)

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=0)
X, y = X[:N_TRAIN], y[:N_TRAIN]
print(f"{len(X)} images to learn from, {len(X_test)} to test with, {X.shape[1]} pixels each")

# %% [markdown]
# ## Variables
#
# Five numbers make a forest. Two are integers; `integers=` below says so. Two are scales, where
# from 4 to 8 is as far as from 128 to 256. For these the variable is the logarithm, and the
# function takes the power: in the library's eyes equal steps mean as much everywhere.

# %%
VARIABLES = {
    "trees": (1, 40),
    "log2_leaves": (2, 8),  # at most so many leaves in a tree, 4 to 256
    "min_images": (1, 10),  # in a leaf
    "log10_pixels": (-1.5, 0),  # share of the pixels that a split may look at
    "sample": (0.1, 1),  # share of the images that a tree learns from
}


def forest(x):
    """Return a forest that is not fitted yet."""
    trees, log2_leaves, min_images, log10_pixels, sample = x
    return RandomForestClassifier(
        n_estimators=int(trees),
        max_leaf_nodes=round(2**log2_leaves),
        min_samples_leaf=int(min_images),
        max_features=10**log10_pixels,
        max_samples=sample,
        random_state=0,
    )


# %% [markdown]
# ## Objectives
#
# The number of nodes spans three orders of magnitude, so its logarithm is what we minimise. Seeds
# and folds are fixed: the same forest has the same values each time. The size is counted, not
# timed, and does not depend on what else the computer does.


# %%
def size(x):
    """Return the logarithm of the number of nodes."""
    trees = forest(x).fit(X, y).estimators_
    return np.log10(sum(tree.tree_.node_count for tree in trees))


FOLDS = StratifiedKFold(5, shuffle=True, random_state=0)


def error(x):
    """Return the error in cross-validation, in percent."""
    return 100 * (1 - cross_val_score(forest(x), X, y, cv=FOLDS).mean())


problem = tc.Problem(
    fast=size,
    slow=error,
    bounds=np.array(list(VARIABLES.values())).T,
    tau=5,
    names=list(VARIABLES),
    integers=(0, 2),
    objective_names=("log10 of the number of nodes", "error in cross-validation [%]"),
    ref_point=(np.log10(4000), 30),  # larger or worse ones are of no interest
)

# %% [markdown]
# ## A fair comparison
#
# Random search has the same slow budget, the same start and the same seeds. One seed proves
# nothing, so there are several.
#
# `tc.minimize` would call both objectives at the same time, in threads. Fits of scikit-learn in
# threads of one process disturb each other: they change the warning filters, which are the whole
# process's. So this is ask and tell, one after the other. Where a fit takes minutes, put the
# functions into a file of their own and use `tc.minimize` with `executor=ProcessPoolExecutor(2)`.


# %%
def run(strategy, seed):
    """Return the result of a run, made one evaluation after the other."""
    optimizer = tc.Optimizer(problem, n_slow=N_SLOW, strategy=strategy, seed=seed)
    while evaluations := optimizer.ask():
        for e in evaluations:
            optimizer.tell(e.id, problem.function_of(e.objective)(e.x))
    return optimizer.result()


runs = {
    (strategy, seed): run(strategy, seed) for strategy in ("tc-ehvi", "random") for seed in SEEDS
}
result = runs["tc-ehvi", 0]
print(result.message)

# %% [markdown]
# The hypervolume is the area between the front and the reference point; more is better.

# %%
table = pd.Series({run: runs[run].hypervolume() for run in runs}).unstack(0).rename_axis("seed")
table.loc["mean"] = table.mean()
table.round(2)

# %%
gain = table["tc-ehvi"] - table["random"]
print(f"tc-ehvi has the larger hypervolume with {(gain[:-1] > 0).sum()} of {len(SEEDS)} seeds,")
print(f"on average by {gain['mean'] / table['random']['mean']:.0%}")

# %%
size_of_figure = (4.2 * len(SEEDS), 3.6)
fig, axes = plt.subplots(
    1, len(SEEDS), figsize=size_of_figure, sharey=True, squeeze=False, layout="constrained"
)
for ax, seed in zip(axes[0], SEEDS, strict=True):
    for strategy in ("tc-ehvi", "random"):
        runs[strategy, seed].plot(ax, kind="convergence")
    ax.set_title(f"seed {seed}")
    ax.label_outer()

# %% [markdown]
# Runs with the same seed begin with the same random designs, so their curves part later. A few
# seeds on one problem are an example, not a proof; `benchmarks/README.md` has many problems. The
# fronts of the first seed:

# %%
ax = tc.plotting.plot_front(result, compare=runs["random", 0])

# %% [markdown]
# ## Which one to take
#
# The table has the forests on the front, in your units. Integers are integers.

# %%
front = result.to_dataframe().query("on_front").sort_values("fast")
front.insert(0, "nodes", (10 ** front["fast"]).round().astype(int))
front = front.drop(columns=["point_id", "fast", "on_front"]).rename(columns={"slow": "error"})
front.reset_index(drop=True).round(2)

# %% [markdown]
# Say the controller has room for 1000 nodes. The error in cross-validation was used to choose, so
# it flatters. The images that were set aside give the answer:

# %%
chosen = front.query("nodes <= 1000").iloc[-1]
fitted = forest(chosen[list(VARIABLES)]).fit(X, y)
print(f"nodes:                      {chosen['nodes']:.0f}")
print(f"error in cross-validation:  {chosen['error']:.1f} %")
print(f"error on images set aside:  {100 * (1 - fitted.score(X_test, y_test)):.1f} %")
