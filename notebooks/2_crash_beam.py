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
# # A crash box: many workers, failures, a kill
#
# A crash box is the steel tube behind the bumper of a car. In a crash it folds, and the softer it
# slows the car down, the better. It shall also be light. The mass has a formula and is the fast
# objective. The peak deceleration comes from a simulation of the crash and is the slow one.
#
# Real simulations need a licence, and there are only a few. Some of them diverge. Some never end.
# And after two days somebody restarts the computer. This notebook has all of that, in a minute.

# %%
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from tcsaea_torch import cli

SMOKE = "SMOKE_TEST" in os.environ  # tests run this notebook with a smaller budget
N_SLOW, SECONDS, N_LINES = (16, 0.05, 40) if SMOKE else (45, 1.6, 110)

home, folder = Path.cwd(), tempfile.TemporaryDirectory()  # for the files of this notebook
os.chdir(folder.name)

# %% [markdown]
# ## The study, a file of its own
#
# The built-in problem `crash-beam` has a tube of six segments, each with a thickness and a yield
# strength: twelve variables. Its simulation takes a tenth of a second, so this file makes it slower
# and less reliable:
#
# - Each evaluation sleeps for a while, a slow one five times as long as a fast one.
# - Of some designs the simulation diverges, always. Here these are the ones whose last segment is
#   far thicker than the first.
# - Now and then all licences are taken. The next try works.
# - Now and then a simulation hangs.
#
# At the end of the file is the call of `minimize`, with three threads for each objective.
# `asynchronous=True` gives a free worker something to do at once, whatever is still under way.
# `failure_model=True` learns where evaluations fail. The paper's strategy TC-SAEA decides within
# hundredths of a second, which suits evaluations of a second; where they take minutes, the default
# `tc.TCEHVI(asynchronous=True)` makes more of them.

# %%
STUDY = """
import logging
import time
import zlib
from collections import Counter

import tcsaea_torch as tc

logging.getLogger("tcsaea_torch").setLevel(logging.ERROR)  # each failure would be a warning
BOX = tc.problems.get("crash-beam", tau=5)
tries = Counter()


def mass(x):
    time.sleep(SECONDS / 5)
    return BOX.fast(x)


def deceleration(x):
    tries[x.tobytes()] += 1
    is_first_try = tries[x.tobytes()] == 1
    luck = zlib.crc32(x.tobytes(), 19) % 25  # like dice, but the same in every run
    if is_first_try and luck < 2:
        raise ConnectionError("no licence is free")
    if is_first_try and luck == 2:
        time.sleep(3600)
    time.sleep(SECONDS)
    if x[5] > 1.5 * x[0]:
        raise ArithmeticError("the simulation diverged")
    return BOX.slow(x)


problem = tc.Problem(
    fast=mass,
    slow=deceleration,
    bounds=BOX.bounds,
    tau=5,
    names=BOX.names,
    objective_names=BOX.objective_names,
    ref_point=BOX.ref_point,
)


def run(callbacks=()):
    return tc.minimize(
        problem,
        n_slow=N_SLOW,
        strategy=tc.TCSAEA(asynchronous=True, failure_model=True),
        workers={"fast": 3, "slow": 3},
        timeout_s={"slow": max(3 * SECONDS, 2)},
        retries={"slow": 1},
        journal="study.db",
        callbacks=callbacks,
        progress=False,
    )


def say(optimizer, event):
    record = optimizer.record(event.id)
    if record.status == "done":
        print(record.id, record.objective, record.value, flush=True)


if __name__ == "__main__":
    run(callbacks=[say])
"""
_ = Path("study.py").write_text(f"N_SLOW, SECONDS = {N_SLOW}, {SECONDS}\n{STUDY}")

# %% [markdown]
# ## It begins, and is killed
#
# The study runs in a process of its own and prints a line for each value. In the middle of it we
# kill it, without a chance to tidy up.

# %%
with subprocess.Popen([sys.executable, "study.py"], stdout=subprocess.PIPE, text=True) as process:
    said = [next(process.stdout) for _ in range(N_LINES)]
    process.kill()
    died_at = time.time()
    said += process.stdout  # what was printed at the last moment
print(f"{len(said)} values were there when it died, such as")
print(*said[-3:], sep="", end="")

# %% [markdown]
# All that happened is in the journal, `study.db`. Every value is on the disk before it counts. In a
# terminal, `tcsaea status study.db` says how the study stands, also while it runs:


# %%
def status():
    """Print what `tcsaea status study.db` does, but for the last line, which names the machine."""
    with redirect_stdout(StringIO()) as printed:
        cli.main(["status", "study.db"])
    print(*printed.getvalue().splitlines()[:-1], sep="\n")


status()

# %% [markdown]
# *Pending* are evaluations that were under way. They died with the process.
#
# ## The same call again
#
# To go on, start the same script again; here this notebook makes the same call. It finds the
# journal, makes what was pending again, with the same ids, and goes on to the end.

# %%
sys.path.append(folder.name)
import study

result = study.run()
print(result.message)

# %% [markdown]
# Nothing was lost, and nothing was counted twice:

# %%
values = {record.id: record.value for record in result.history}
kept = sum(values[int(id)] == float(value) for id, _, value in map(str.split, said))
made = [r for r in result.history if r.status != "withdrawn"]  # a retry that was not needed
asked = Counter(str(record.objective) for record in made)
print(f"values from before the kill that are still there: {kept} of {len(said)}")
print(f"evaluations in the journal: {asked['slow']} slow, {asked['fast']} fast")
print(f"counted by the result:      {result.n_slow} slow, {result.n_fast} fast")
assert kept == len(said)
assert (asked["slow"], asked["fast"]) == (result.n_slow, result.n_fast)
status()

# %% [markdown]
# ## Who did what, and when
#
# A bar lasts from the question to the answer. At first the initial design waits in a queue for the
# three workers; later each row is a worker. Bars across the line are the evaluations that the kill
# cut short, and that were made again.

# %%
begun_at = min(record.asked_at for record in result.history)
ended_at = max(record.ended_at for record in made)
fig, ax = plt.subplots(figsize=(10, 5.6), layout="constrained")
ax = result.plot(ax, kind="timeline")
kill = ax.get_xlim()[1] * (died_at - begun_at) / (ended_at - begun_at)
ax.axvline(kill, color="black", linestyle="--")
_ = ax.annotate(
    "killed",
    (kill, 0.02),
    xycoords=("data", "axes fraction"),
    xytext=(4, 0),
    textcoords="offset points",
)

# %% [markdown]
# ## What failed
#
# A failed evaluation keeps its reason and teaches the models nothing false. It has cost a slow
# evaluation, so it counts, and so does a retry.


# %%
def last_line(text):
    return text.splitlines()[-1] if text else ""


history = pd.DataFrame(
    {
        "point_id": r.point_id,
        "objective": str(r.objective),
        "status": str(r.status),
        "reason": last_line(r.reason),
    }
    for r in result.history
)
history.groupby(["objective", "status", "reason"]).size().to_frame("evaluations")

# %%
slow = history.query("objective == 'slow'")
retried = slow[slow.duplicated("point_id")]
print(f"retries: {len(retried)}, of which {(retried['status'] == 'done').sum()} worked")

# %% [markdown]
# A missing licence and a hanging simulation are bad luck, and a second try works. Divergence is
# not: it belongs to the design, and a second try is wasted. From three failures on the strategy
# learns where they happen, and goes where it expects values. We know where that is, below the line.
# The strategy does not, and if it is drawn to the line, some tries beside it still fail.

# %%
points = result.to_dataframe().set_index("point_id")
designs = slow.groupby("point_id", sort=False).last()  # what came of the last try
ratio = (points["thickness_6"] / points["thickness_1"])[designs.index].to_numpy()
what = designs["reason"].str.split(":").str[0]
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.axhline(1.5, color="0.5", linewidth=1)
looks = {
    "": ("#0072B2", "o", "value"),
    "ArithmeticError": ("#D55E00", "x", "diverged"),
    "other": ("0.6", "s", "no licence, time is up"),
}
kind = what.where(what.isin(looks), "other").to_numpy()
for name, (color, marker, label) in looks.items():
    (order,) = (kind == name).nonzero()
    ax.scatter(order + 1, ratio[order], s=30, color=color, marker=marker, label=label)
ax.set_xlabel("design, in the order of their slow evaluation")
ax.set_ylabel("thickness of the last\nover the first segment")
_ = ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %%
third = len(kind) // 3
for when, rows in {"first": slice(third), "last": slice(-third, None)}.items():
    n_diverged = (kind[rows] == "ArithmeticError").sum()
    print(f"{when} {third} designs: {n_diverged} diverged, ", end="")
    print(f"largest ratio tried {ratio[rows].max():.2f}")

# %% [markdown]
# ## The front

# %%
ax = result.plot()
ax.get_legend().set_loc("upper right")  # not over the ticks

# %% [markdown]
# While slow evaluations ran, the fast objective was computed at more designs. From each of these
# values TC-SAEA makes a *synthetic* slow value, by a model of the difference between both
# objectives. It believes the value if it lies within the confidence interval of the slow
# surrogate, and else refuses it. Notebook 5 explains that.

# %%
ax = result.plot(kind="transfer")
if legend := ax.get_legend():  # a run as short as in tests has none
    legend.set_loc("lower right")

# %% [markdown]
# ## In your own work
#
# - Real simulations are programs. `tc.CommandObjective(["./simulate", "{thickness_1}", ...])` runs
#   one, in a working folder of its own, and kills it when its time is up.
# - Python code that computes a lot wants processes: `executor={"slow": ProcessPoolExecutor(4)}`.
#   Dask clients and job queues are executors, too.
# - `tcsaea run study.py:problem --n-slow 60 --journal study.db` does without a script, and
#   `--resume` goes on.
# - In a notebook, `callbacks=[tc.plotting.LivePlot()]` shows the front while it grows.

# %%
os.chdir(home)
folder.cleanup()
