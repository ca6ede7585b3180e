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
# # Quickstart
#
# You have a design with two objectives. One takes minutes to compute, the other hours. Waiting
# for the slow one wastes the fast one. `tcsaea_torch` plans both: it decides which designs get the
# slow evaluation, which only the fast one, and in which order.
#
# Here the design is a steel tube, clamped at one end, with a load at the other end. It shall be
# light, and it shall bend little. Both have formulas, so this notebook takes seconds; think of the
# bending as a simulation that takes ten times as long as the rest.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

import tcsaea_torch as tc

SMOKE = "SMOKE_TEST" in os.environ  # tests run this notebook with a smaller budget
N_SLOW = 6 if SMOKE else 30


# %%
def mass(x):
    """Return the mass of one metre of tube in kg."""
    diameter, wall, taper = x  # mm, mm, and the diameter at the tip over that at the clamp
    return 7850 * np.pi * (0.5 * (1 + taper) * diameter - wall) * wall * 1e-6


def deflection(x):
    """Return how far 500 N at the tip bend the tube, in mm."""
    diameter, wall, taper = x
    z = (np.arange(200) + 0.5) / 200  # from the clamp to the tip, in m
    outer = diameter * (1 - (1 - taper) * z) * 1e-3
    inertia = np.pi / 64 * (outer**4 - (outer - 2e-3 * wall) ** 4)
    return 1e3 * np.mean(500 * (1 - z) ** 2 / (210e9 * inertia))


# %% [markdown]
# ## Ten lines
#
# Two functions, bounds, and `tau`: how many fast evaluations take the time of one slow one.
# Everything else has a default. `progress=False` leaves out the progress bar, which would only
# clutter a stored notebook.

# %%
problem = tc.Problem(
    fast=mass,
    slow=deflection,
    bounds=[[50, 1, 0.4], [90, 4, 1]],
    tau=10,
    names=("diameter", "wall", "taper"),
    objective_names=("mass [kg]", "deflection [mm]"),
    ref_point=(5, 25),  # nothing heavier or softer is of interest
)
result = tc.minimize(problem, n_slow=N_SLOW, seed=0, progress=False)
ax = result.plot()

# %% [markdown]
# Full dots are designs that no other one beats in both objectives; the line is the edge of what
# they dominate. Ticks at the bottom are designs of which only the mass was computed, while the slow
# evaluations ran: they teach the surrogate of the mass, and tell what of the slow objective follows
# from it.
#
# ## What a budget means

# %%
print(result.message)

# %% [markdown]
# `n_slow` is exact: it counts every slow evaluation, those of the first random designs included,
# and those that failed. Meanwhile there is time for at most `tau * n_slow` fast ones. A run may
# leave some of them out if they have nothing to tell.
#
# All points are in one table, in your own units. NaN means not measured.

# %%
table = result.to_dataframe()
table.query("on_front").sort_values("fast").round(2).head(8)

# %%
print(f"points with both values: {table['slow'].notna().sum()}")
print(f"only the fast one:       {table['slow'].isna().sum()}")
print(f"on the front:            {table['on_front'].sum()}")

# %% [markdown]
# ## Did it pay?
#
# The hypervolume is the area between the front and the reference point: the more the better. Random
# search with the same budget is a fair yardstick.

# %%
by_chance = tc.minimize(problem, n_slow=N_SLOW, strategy="random", seed=0, progress=False)
ax = result.plot(kind="convergence")
ax = by_chance.plot(ax, kind="convergence")

# %%
pd.Series({r.strategy: r.hypervolume() for r in (result, by_chance)}, name="hypervolume").round(1)

# %% [markdown]
# ## Who works when?
#
# A virtual clock shows what the same run would be like if evaluations took hours. It calls the
# objectives, but it does not wait: give it the times and the number of workers.

# %%
clock = tc.VirtualExecutor(time_fast=1, time_slow=10)
tc.minimize(problem, n_slow=N_SLOW, seed=0, executor=clock, progress=False)
fig, ax = plt.subplots(figsize=(9, 2.4), layout="constrained")
ax = tc.plotting.plot_timeline(clock.timeline, ax=ax, unit="hours")

# %%
print(f"one fast and one slow worker are done after {clock.makespan:.0f} hours")
print(f"the slow one is idle for {clock.idle_share['slow']:.0%} of that time")

# %% [markdown]
# ## Ask and tell
#
# `minimize` calls your functions. If they run elsewhere, in a queue or in a laboratory, ask for
# evaluations and tell what came out, in any order and at any time:

# %%
optimizer = tc.Optimizer(problem, n_slow=N_SLOW, seed=0)
while evaluations := optimizer.ask():
    for e in evaluations:  # e.objective is "fast" or "slow"
        value = mass(e.x) if e.objective == "fast" else deflection(e.x)
        optimizer.tell(e.id, value)

# %% [markdown]
# The seed decides all random numbers. Told in the order of asking, the run is the same again:

# %%
told = optimizer.result()
print(told.message)
print(f"the same designs on the front: {torch.equal(told.pareto_X, result.pareto_X)}")

# %% [markdown]
# ## Where to go from here
#
# - `2_crash_beam`: many workers, evaluations that fail, a run that is killed and goes on.
# - `3_machine_learning`: integer variables, and a fair comparison on real data.
# - `4_botorch_loop`: the parts of the library in a loop of your own.
# - `5_how_transfer_works`: what the fast objective tells about the slow one.
# - `6_paper`: the tables and figures of the paper, from stored results.
