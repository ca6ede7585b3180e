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
# # How transfer works
#
# The slow objective gives few values, the fast one gives many. If the slow objective follows from
# the fast one, then many fast values tell much about the slow one. TC-SAEA makes use of this with
# a *co-surrogate*, a model of the difference between both. This notebook draws the idea in one
# dimension, like Figure 3 of the paper (Wang, Jin, Schmitt, Olhofer, 2022), counts where it helps
# and where it misleads, and shows what TC-EHVI does about that.

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd
import torch

from tcsaea_torch.models import fit_kriging, leave_one_out
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.transfer import (
    LinkConfig,
    believe,
    fit_links,
    half_width,
    is_believed,
    synthetic_values,
)

SMOKE = "SMOKE_TEST" in os.environ  # tests run this notebook with less of everything
N_DESIGNS = 3 if SMOKE else 100
BLUE, RED, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "0.45"
plt.rcParams["figure.constrained_layout.use"] = True
torch.set_num_threads(1)

# %% [markdown]
# ## Two objectives of one variable
#
# Both are rough, and both in the same way: their difference is a simple curve. Five points were
# evaluated with both objectives, and three more with the fast one alone, while the slow one ran.


# %%
def waves(x, pace=1.0):
    """Return a rough function."""
    return 0.5 * (14 * pace * x).sin() + 0.3 * (25 * pace * x + 1).sin()


def fast(x):
    """Return the fast objective."""
    return 1.5 + waves(x)


def slow(x):
    """Return the slow objective: the fast one plus a simple difference."""
    return fast(x) + 1.0 - 1.2 * x + 0.3 * (6 * x).sin()


def column(*values):
    """Return points of one dimension, n x 1."""
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)


X = column(0.10, 0.32, 0.46, 0.78, 0.98)  # both objectives are known here
X_fast = column(0.20, 0.62, 0.88)  # only the fast one is
grid = torch.linspace(0, 1, 201, dtype=torch.float64).unsqueeze(-1)
y_fast, y_slow = fast(X)[:, 0], slow(X)[:, 0]

# %% [markdown]
# Three Gaussian processes learn from these values: GP_f of the fast objective from all eight
# points, GP_s of the slow one from five points, and the co-surrogate GP_c of the difference *slow
# minus fast*, from the same five points.

# %%
all_X = torch.cat([X, X_fast])
gp_f = fit_kriging(all_X, fast(all_X)[:, 0])
gp_s = fit_kriging(X, y_slow)
gp_c = fit_kriging(X, y_slow - y_fast)


def predict(gp, X):
    """Return mean and standard deviation."""
    mean, variance = gp.surrogate.predict(X)
    return mean, variance.clamp_min(0).sqrt()


def draw_model(ax, gp, truth, title, X_known, y_known):
    """Draw a model with its confidence interval of one standard deviation."""
    mean, sd = predict(gp, grid)
    x = grid[:, 0]
    ax.fill_between(x, mean - sd, mean + sd, color=BLUE, alpha=0.2, linewidth=0, label="± one sd")
    ax.plot(x, mean, color=BLUE, label="mean")
    ax.plot(x, truth(grid)[:, 0], color=GREY, linestyle="--", label="truth")
    ax.plot(X_known[:, 0], y_known, "ko", label="measured")
    ax.set_title(title)
    ax.set_xlabel("x")


figure, axes = plt.subplots(1, 3, figsize=(12, 3.8))
draw_model(axes[0], gp_f, fast, "GP_f, fast", all_X, fast(all_X)[:, 0])
draw_model(axes[1], gp_s, slow, "GP_s, slow", X, y_slow)
draw_model(axes[2], gp_c, lambda x: slow(x) - fast(x), "GP_c, slow - fast", X, y_slow - y_fast)
axes[2].set_ylim(axes[2].get_ylim()[0] - 0.2, 1.6)
axes[2].legend(loc="upper right")
figure.align_labels()

# %% [markdown]
# GP_s cannot know the waves from five points. But GP_c needs no waves, only the simple curve
# between them.
#
# ## Synthetic values
#
# At the three other points the fast value is known. Adding what GP_c says of the difference gives
# a *synthetic* slow value. Should GP_s learn from it? The paper's rule: only if it lies within the
# confidence interval of GP_s, its mean ± one standard deviation.

# %%
co_mean, _ = predict(gp_c, X_fast)
synthetic = synthetic_values(fast(X_fast)[:, 0], co_mean)
mean, variance = gp_s.surrogate.predict(X_fast)
width = half_width(variance, "sd")
accepted = is_believed(synthetic, mean, width)


def legend_beside(ax):
    """Put the legend to the right of the axes."""
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def draw_values(ax, X, y, accepted, label="synthetic"):
    """Draw synthetic values: full where accepted, hollow where refused."""
    style = {"color": RED, "linestyle": "none", "marker": "D", "markersize": 8}
    ax.plot(X[accepted, 0], y[accepted], **style, label=f"{label}, accepted")
    ax.plot(X[~accepted, 0], y[~accepted], **style, fillstyle="none", label=f"{label}, refused")


figure, ax = plt.subplots(figsize=(8, 4.5))
draw_model(ax, gp_s, slow, "Synthetic values and the confidence interval of GP_s", X, y_slow)
ax.vlines(X_fast[:, 0], mean - width, mean + width, color=RED, linewidth=5, alpha=0.5,
          label="interval there")  # fmt: skip
draw_values(ax, X_fast, synthetic, accepted)
ax.set_ylabel("slow objective")
legend_beside(ax)

pd.DataFrame(
    {
        "x": X_fast[:, 0],
        "fast value": fast(X_fast)[:, 0],
        "synthetic": synthetic,
        "lowest": mean - width,
        "highest": mean + width,
        "accepted": accepted,
        "true slow value": slow(X_fast)[:, 0],
    }
).round(2)

# %% [markdown]
# Accepted values become training data of GP_s, as if they had been measured:

# %%
after = fit_kriging(torch.cat([X, X_fast[accepted]]), torch.cat([y_slow, synthetic[accepted]]))


def error(gp, truth=slow):
    """Return the root mean square error over the box."""
    return float((predict(gp, grid)[0] - truth(grid)[:, 0]).square().mean().sqrt())


figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
for ax, gp, title in zip(axes, (gp_s, after), ("before", "after"), strict=True):
    draw_model(ax, gp, slow, f"GP_s {title}: error {error(gp):.3f}", X, y_slow)
draw_values(axes[1], X_fast, synthetic, accepted)
axes[0].set_ylabel("slow objective")
legend_beside(axes[1])

right = (synthetic - slow(X_fast)[:, 0]).abs() < (mean - slow(X_fast)[:, 0]).abs()
print(f"accepted: {int(accepted.sum())} of {len(accepted)}")
print(f"nearer to the truth than the mean of GP_s: {int(right.sum())} of {len(right)}")
print(f"of those refused: {int((right & ~accepted).sum())} of {int((~accepted).sum())}")

# %% [markdown]
# The refused values show the weak side of this rule. It asks GP_s, which knows least: where its
# interval is too narrow, it refuses values that are right. The intervals of a model with few
# points are often too narrow.
#
# ## An unrelated pair
#
# The same with a slow objective that has nothing to do with the fast one:


# %%
def unrelated(x):
    """Return a slow objective that does not follow from the fast one."""
    return 1.5 + (9 * x**1.5 + 1).cos()


y_other = unrelated(X)[:, 0]
gp_s = fit_kriging(X, y_other)
gp_c = fit_kriging(X, y_other - y_fast)
X_fast = torch.linspace(0.02, 0.98, 13, dtype=torch.float64).unsqueeze(-1)
synthetic = synthetic_values(fast(X_fast)[:, 0], predict(gp_c, X_fast)[0])
mean, width = predict(gp_s, X_fast)
accepted = is_believed(synthetic, mean, width)
after = fit_kriging(torch.cat([X, X_fast[accepted]]), torch.cat([y_other, synthetic[accepted]]))

figure, axes = plt.subplots(1, 2, figsize=(11, 4), sharey=True)
for ax, gp, title in zip(axes, (gp_s, after), ("before", "after"), strict=True):
    draw_model(ax, gp, unrelated, f"GP_s {title}: error {error(gp, unrelated):.3f}", X, y_other)
    draw_values(ax, X_fast, synthetic, accepted)
axes[0].set_ylabel("slow objective")
legend_beside(axes[1])

# %% [markdown]
# Now the synthetic values carry the waves of the fast objective over to a slow objective that has
# others. Some lie within the interval by chance, and the model believes them without any doubt.
#
# ## Counted
#
# One picture proves nothing. So here are five pairs, each with many random designs: twelve points
# with both values, twenty with the fast one alone. All designs are fitted at once, as one batch.
#
# | pair | the slow objective |
# | --- | --- |
# | difference | the fast one plus a simple curve, as above |
# | angle | both are sides of a triangle: its size is rough, its angle simple, as in DTLZ2 |
# | partly | the fast one, half as rough, plus waves of its own |
# | half | follows from the fast one in the left half of the box only |
# | unrelated | does not follow |


# %%
def angle(x):
    """Return a simple angle."""
    return 0.15 + x + 0.15 * (6 * x).sin()


def bend(x):
    """Return a simple difference."""
    return 1.0 - 1.2 * x + 0.3 * (6 * x).sin()


def other(x):
    """Return waves of their own."""
    return (18 * x**1.5 + 1).cos()


PAIRS = {
    "difference": (lambda x: 1.5 + waves(x, 2), lambda x: 1.5 + waves(x, 2) + bend(x)),
    "angle": (
        lambda x: (1.2 + waves(x, 2)) * angle(x).cos(),
        lambda x: (1.2 + waves(x, 2)) * angle(x).sin(),
    ),
    "partly": (lambda x: 1.5 + waves(x, 2), lambda x: 1.5 + 0.5 * waves(x, 2) + 0.5 * other(x)),
    "half": (
        lambda x: 1.5 + waves(x, 2),
        lambda x: 1.5 + bend(x) + torch.where(x < 0.5, waves(x, 2), other(x)),
    ),
    "unrelated": (lambda x: 1.5 + waves(x, 2), lambda x: 1.5 + other(x)),
}


def designs(n, name):
    """Return Latin hypercubes, one for each run of the batch."""
    u, jitter = uniforms(torch.arange(N_DESIGNS), name, 0, (2, n, 1)).unbind(dim=1)
    return latin_hypercube(u, jitter)


X, X_fast = designs(12, "both"), designs(20, "fast alone")

# %% [markdown]
# ## What TC-EHVI does instead
#
# TC-EHVI does not take for granted that the difference is what is simple, nor that anything is:
#
# - It fits several *links*: a model of the difference, of the ratio, of the angle of both values,
#   and one of the slow value over x and the fast value.
# - A link is used only if it predicts left-out slow values clearly better than GP_s does:
#   leave-one-out errors choose one, cross-validation has to confirm it. Otherwise GP_s stays alone.
# - A synthetic value comes with a variance, which the errors of cross-validation have scaled. For
#   GP_s it is a noisy value. It is refused only if it is more than four standard deviations off,
#   and the known errors of GP_s count in these.
#
# It starts to look for a link once ten points have both values.

# %%
config = LinkConfig()
print("links:", ", ".join(config.links))
print("points with both values that it takes:", config.min_rows)
print("standard deviations until a value is refused:", config.belief)


# %%
def learn(pair):
    """Return (model, synthetic values, their variances) by way, and the links."""
    fast, slow = PAIRS[pair]
    y_fast, y_slow, y_alone = fast(X)[..., 0], slow(X)[..., 0], fast(X_fast)[..., 0]
    gp_s, gp_c = fit_kriging(X, y_slow), fit_kriging(X, y_slow - y_fast)
    mean, variance = gp_s.surrogate.predict(X_fast)

    def with_values(values, noise_var):
        noise = torch.cat([torch.zeros_like(y_slow), noise_var], dim=-1)  # inf: not a row
        return fit_kriging(torch.cat([X, X_fast], dim=-2), torch.cat([y_slow, values], -1), noise)

    # The paper: differences, and values within the interval count as measured.
    synthetic = synthetic_values(y_alone, gp_c.surrogate.predict(X_fast)[0])
    exact = torch.zeros_like(synthetic)
    is_inside = is_believed(synthetic, mean, half_width(variance, "sd"))
    # TC-EHVI: a learned link, or none.
    both = torch.ones_like(y_fast, dtype=torch.bool)
    link = fit_links(X, y_fast, y_slow, both, leave_one_out(gp_s.surrogate), config)
    told, noise_var = link.predict(X_fast, y_alone)
    noise_var = believe(
        mean,
        variance * link.learned.slow_factor.unsqueeze(-1),
        told,
        noise_var,
        belief=config.belief,
        slow_square=link.learned.slow_square,
    )
    inside = exact.masked_fill(~is_inside, torch.inf)
    models = {
        "GP_s alone": (gp_s, synthetic, torch.full_like(exact, torch.inf)),
        "all differences believed": (with_values(synthetic, exact), synthetic, exact),
        "the paper's rule": (with_values(synthetic, inside), synthetic, inside),
        "learned link": (with_values(told, noise_var), told, noise_var),
    }
    return models, link


learned = {pair: learn(pair) for pair in PAIRS}

# %% [markdown]
# The median error over the box, and below it the share of designs, in per cent, in which it became
# clearly larger (by a tenth) than that of GP_s alone:


# %%
def rows():
    """Yield a row for each pair and way."""
    X_test = grid.expand(N_DESIGNS, -1, -1)
    for pair, (models, _) in learned.items():
        truth = PAIRS[pair][1](X_test)[..., 0]
        for way, (gp, _, _) in models.items():
            mean, variance = gp.surrogate.predict(X_test)
            distance, sd = (mean - truth).abs(), variance.clamp_min(0).sqrt()
            yield {
                "pair": pair,
                "way": way,
                "error": distance.square().mean(dim=-1).sqrt(),
                "within 68 %": float((distance <= 0.994 * sd).double().mean()),
                "within 95 %": float((distance <= 1.960 * sd).double().mean()),
            }


scores = pd.DataFrame(rows()).set_index(["pair", "way"])
alone = {pair: scores.loc[(pair, "GP_s alone"), "error"] for pair in PAIRS}
scores["median error"] = [float(e.median()) for e in scores["error"]]
scores["% worse"] = [
    100 * float((e > 1.1 * alone[pair]).double().mean()) for (pair, _), e in scores["error"].items()
]
ways = list(learned["angle"][0])
scores["median error"].unstack("way").loc[list(PAIRS), ways].round(4)

# %%
scores["% worse"].unstack("way").loc[list(PAIRS), ways[1:]].round(0).astype(int)

# %% [markdown]
# Where the difference is the simple part, it is best to believe all of it, and the paper's rule
# gives away most of the gain: it keeps few values, and those that agree with GP_s anyway. Where
# little or nothing follows, the rule keeps wrong values. The learned link takes what suits each
# pair, and nothing of the unrelated one. Where a part follows, it gains nothing either: it takes
# a link only if that is clearly better.

# %%
names = ["none", *config.links]
chosen = pd.DataFrame(
    {
        pair: torch.bincount(link.choice + 1, minlength=len(names)).tolist()
        for pair, (_, link) in learned.items()
    },
    index=names,
).T
chosen.index.name = f"links of {N_DESIGNS} designs"
chosen

# %% [markdown]
# ## Does a model know how far it can be trusted?
#
# An acquisition function lives on intervals, so an error with a wide interval does less harm than
# a smaller one that the model does not know of. This counts how many true values lie within the
# intervals of 68 % and 95 % of GP_s, over the whole box and all designs:

# %%
shares = scores[["within 68 %", "within 95 %"]].unstack("way").swaplevel(axis=1)
(100 * shares.loc[list(PAIRS), ways]).round(0).astype(int)

# %% [markdown]
# With differences believed as if they had been measured, intervals promise far too much on each
# pair but the first. With the learned link they hold about what they promise where it is used, and
# are those of GP_s where it is not.
#
# The same of the synthetic values themselves, with the intervals that the link gives them:


# %%
def held():
    """Yield how many true values lie within the links' intervals."""
    for pair, (models, link) in learned.items():
        _, told, noise_var = models["learned link"]
        is_told = noise_var < torch.inf
        distance = (told - PAIRS[pair][1](X_fast)[..., 0]).abs() / noise_var.sqrt()
        yield {
            "pair": pair,
            "designs with a link": int((link.choice >= 0).sum()),
            "values": int(is_told.sum()),
            "within 68 %": float((distance <= 0.994)[is_told].double().mean()),
            "within 95 %": float((distance <= 1.960)[is_told].double().mean()),
        }


pd.DataFrame(held()).set_index("pair").round(2)

# %% [markdown]
# And two of these pairs, the angle and the unrelated one, each in the design in which the paper's
# rule has its median error. Bars are two standard deviations of a synthetic value; most are too
# short to be seen:

# %%
figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, sharey="row")
for line, pair in zip(axes, ("angle", "unrelated"), strict=True):
    models, _ = learned[pair]
    slow = PAIRS[pair][1]
    errors = scores.loc[(pair, "the paper's rule"), "error"]
    i = int(errors.argsort()[len(errors) // 2])
    for ax, way in zip(line, ("the paper's rule", "learned link"), strict=True):
        gp, values, noise_var = models[way]
        mean, variance = gp.surrogate.predict(grid.expand(N_DESIGNS, -1, -1))
        mean, sd, x = mean[i], variance[i].clamp_min(0).sqrt(), grid[:, 0]
        ax.fill_between(x, mean - 2 * sd, mean + 2 * sd, color=BLUE, alpha=0.2, linewidth=0,
                        label="± two sd")  # fmt: skip
        ax.plot(x, mean, color=BLUE, label="GP_s, mean")
        ax.plot(x, slow(grid)[:, 0], color=GREY, linestyle="--", label="truth")
        ax.plot(X[i, :, 0], slow(X[i])[:, 0], "ko", label="measured")
        rows_told = noise_var[i] < torch.inf
        ax.errorbar(X_fast[i, rows_told, 0], values[i, rows_told],
                    2 * noise_var[i, rows_told].sqrt(), color=RED, fmt="D", markersize=5,
                    capsize=3, label="synthetic, accepted")  # fmt: skip
        found = float(scores.loc[(pair, way), "error"][i])
        ax.set_title(f"{pair}, {way}: error {found:.3f}")
    line[0].set_ylabel("slow objective")
axes[1, 0].set_xlabel("x")
axes[1, 1].set_xlabel("x")
legend_beside(axes[0, 1])

# %% [markdown]
# ## In practice
#
# - `tc.TCEHVI()`, the default of `tc.minimize`, does all this; `tc.TCEHVI(link=None)` switches it
#   off. `tc.TCSAEA()` follows the paper.
# - `tcsaea_torch.botorch_models.CoSurrogateModel` has the link inside for loops of your own: see
#   the notebook on BoTorch.
# - `tcsaea_torch.plotting.plot_transfer(result)` draws synthetic values of a run of `tc.TCSAEA()`
#   against the intervals of its GP_s, with what was measured there afterwards.
