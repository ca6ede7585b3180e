"""The table of bad input for results and plots."""

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np

import tcsaea_torch as tc
from tcsaea_torch.plotting import (
    KINDS,
    LivePlot,
    Transfer,
    check_picture,
    plot_co_surrogate_error,
    plot_convergence,
    plot_front,
    plot_slices,
    plot_timeline,
    plot_transfer,
    save_front,
)
from tests.contracts.bad_input import (
    INF,
    NAN,
    arrays,
    bad,
    callee,
    choices,
    integers,
    objects,
    reals,
)
from tests.contracts.bad_input_runs import PATHS, optimizer
from tests.plotting.notebook import Notebook


def result():
    return optimizer().result()


callee(
    "Result.hypervolume", tc.Result.hypervolume, lambda: {"ref_point": [9.0, 9.0]},
    prepare=lambda: result().hypervolume,
)  # fmt: skip
bad("Result.hypervolume", "ref_point", arrays([1.0, 1.0], optional=True))
bad("Result.hypervolume", "ref_point", [
    ("not-known-yet", None, "must be given", "initial design is not complete"),
    ("number", 9.0, "shape (2,)", "shape ()"),
    ("three", [9.0, 9.0, 9.0], "shape (2,)", "shape (3,)"),
    ("nan", [9.0, NAN], "finite", "nan"),
    ("inf", [9.0, INF], "finite", "inf"),
])  # fmt: skip
callee("Result.to_dataframe", tc.Result.to_dataframe, dict, prepare=lambda: result().to_dataframe)
callee(
    "Result.write_csv", tc.Result.write_csv, lambda: {"path": "table.csv"},
    prepare=lambda: result().write_csv,
)  # fmt: skip
callee("Result.plot", tc.Result.plot, lambda: {"ax": axes()}, prepare=lambda: result().plot)
callee("plot_front", plot_front, lambda: {"result": result(), "ax": axes()})
callee("save_front", save_front, lambda: {"result": result(), "path": "front.png"})


def axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


bad("Result.write_csv save_front", "path", PATHS)
bad("save_front", "path", [("ending", "front.xyz", "one of", "'.xyz'")])
callee("plot_timeline", plot_timeline, lambda: {"intervals": [], "ax": axes()})
bad("plot_timeline", "intervals", [
    ("none", None, "a sequence of Interval"), ("text", "abc", "a sequence of Interval"),
    ("number", 3, "a sequence of Interval"), ("dict", {"fast": []}, "a sequence of Interval"),
    ("tuples", [(0.0, 1.0)], "a Interval", "(0.0, 1.0)"),
])  # fmt: skip
bad("plot_timeline", "unit", [
    ("none", None, "a string"), ("number", 3, "a string"), ("list", ["h"], "a string"),
])  # fmt: skip
bad("Result.plot plot_front plot_timeline", "ax", objects("matplotlib axes", optional=True))
bad("plot_front save_front", "result", objects("a Result"))
bad("plot_front save_front", "compare", objects("a Result", optional=True))

# ---------------------------------------------------------------- other pictures


TEXTS = [("number", 3, "a string"), ("list", ["h"], "a string")]
FRONT = [[0.0, 1.0], [1.0, 0.0]]
FRONTS = [
    ("one-column", [[1.0]], "shape (n, 2)", "shape (1, 1)"),
    ("flat", [1.0, 2.0], "shape (n, 2)", "shape (2,)"),
    ("nan", [[1.0, NAN]], "finite", "nan"), ("empty", np.zeros((0, 2)), "at least one row", "none"),
]  # fmt: skip
INTERVALS = [
    ("text", "abc", "a sequence of Interval"), ("number", 3, "a sequence of Interval"),
    ("tuples", [(0.0, 1.0)], "a Interval", "(0.0, 1.0)"),
]  # fmt: skip

bad("Result.plot", "kind", choices(KINDS, "fronts", "front"))
bad("Result.plot", "options", [
    ("unknown", 3, "one of compare, known_front", "'tua'"),
], named="options of plot kind 'front'")  # fmt: skip
bad("plot_front", "known_front", arrays(FRONT, optional=True))
bad("plot_front", "known_front", FRONTS)

callee("check_picture", check_picture, lambda: {"name": "path", "path": Path("a.png")}, exempt={
    "name": "names the argument in messages",
})  # fmt: skip
bad("check_picture", "path", [("ending", Path("front.xyz"), "one of", "'.xyz'")])

callee("plot_convergence", plot_convergence, lambda: {
    "result": result(), "ref_point": [9.0, 9.0], "known_front": FRONT, "ax": axes(),
})  # fmt: skip
bad("plot_convergence", "result", objects("a Result"))
bad("plot_convergence", "metric", choices(("hypervolume", "igd"), "hypervolumes", "hypervolume"))
bad("plot_convergence", "x", choices(("slow", "time"), "times", "time"))
bad("plot_convergence", "ref_point", arrays([1.0, 1.0], optional=True))
bad("plot_convergence", "ref_point", [
    ("not-known-yet", None, "must be given", "initial design is not complete"),
    ("three", [9.0, 9.0, 9.0], "shape (2,)", "shape (3,)"), ("nan", [9.0, NAN], "finite", "nan"),
])  # fmt: skip
bad("plot_convergence", "known_front", arrays(FRONT, optional=True), metric="igd")
bad("plot_convergence", "known_front", FRONTS, metric="igd")
bad("plot_convergence", "known_front", [
    ("not-known", None, "must be given", "is not known"),
], metric="igd")  # fmt: skip
bad("plot_convergence", "timeline", INTERVALS)
bad("plot_convergence", "unit", [*TEXTS, ("none", None, "a string")])
bad("plot_convergence", "label", TEXTS)

callee("Transfer", Transfer, lambda: {
    "synthetic": [1.0, 2.0], "mean": [1.0, 1.0], "half_width": [0.5, 0.5],
    "accepted": [True, False], "measured": [NAN, 2.0],
})  # fmt: skip
bad("Transfer", "synthetic", arrays([1.0, 2.0]))
bad("Transfer", "synthetic", [("table", [[1.0, 2.0]], "shape (n,)", "shape (1, 2)")])
for _name in ("mean", "half_width", "measured"):
    bad("Transfer", _name, arrays([1.0, 2.0], optional=_name == "measured"))
    bad("Transfer", _name, [("three", [1.0] * 3, "shape (2,)", "shape (3,)")])
bad("Transfer", "half_width", [("negative", [1.0, -0.5], ">= 0", "-0.5")])
bad("Transfer", "accepted", [
    ("numbers", [1, 0], "2 truths", "[1, 0]"), ("three", [True] * 3, "2 truths", "[True"),
    ("text", "yes", "2 truths"), ("dict", {"a": True}, "2 truths"),
])  # fmt: skip

callee("plot_transfer", plot_transfer, lambda: {
    "transfer": Transfer(synthetic=[1.0], mean=[1.0], half_width=[0.5]), "ax": axes(),
})  # fmt: skip
bad("plot_transfer", "transfer", objects("a Transfer or Result"))
callee("plot_co_surrogate_error", plot_co_surrogate_error, lambda: {
    "errors": {"mine": [0.1, 0.2]}, "ax": axes(),
})  # fmt: skip
bad("plot_co_surrogate_error", "errors", [
    ("none", None, "a Result or a dict"), ("list", [1.0], "a Result or a dict"),
    ("nan", {"mine": [NAN]}, "finite numbers in a row", "'mine'"),
    ("text", {"mine": "abc"}, "array of real numbers", "'abc'"),
    ("key", {3: [1.0]}, "a string", "3"),
])  # fmt: skip
bad("plot_transfer plot_co_surrogate_error", "label", TEXTS)
bad("plot_convergence plot_transfer plot_co_surrogate_error", "ax",
    objects("matplotlib axes", optional=True))  # fmt: skip


class _Flat:
    """A surrogate that says the same everywhere."""

    def predict(self, X):
        return X[:, 0] * 0.0, X[:, 0] * 0.0 + 1.0


class _Short:
    def predict(self, X):
        return X[:1, 0], X[:1, 0]


def _panels():
    from matplotlib.figure import Figure

    return Figure().subplots(1, 2)


callee("plot_slices", plot_slices, lambda: {
    "surrogate": _Flat(), "center": [0.5, 0.5], "axes": _panels(),
})  # fmt: skip
bad("plot_slices", "surrogate", objects("predict(X) or posterior(X)"))
bad("plot_slices", "surrogate", [("short", _Short(), "one value for each of 101 points", "(1,)")])
bad("plot_slices", "center", arrays([0.5, 0.5]))
bad("plot_slices", "center", [("nan", [0.5, NAN], "finite", "nan")])
bad("plot_slices", "center", [
    ("three", [0.5] * 3, "shape (2,)", "shape (3,)"),
], bounds=[[0.0, 0.0], [1.0, 1.0]])  # fmt: skip
bad("plot_slices", "problem", objects("a Problem", optional=True))
bad("plot_slices", "objective", choices(("fast", "slow"), "slows", "slow"))
bad("plot_slices", "bounds", arrays([[0.0, 0.0], [1.0, 1.0]], optional=True))
bad("plot_slices", "bounds", [
    ("reversed", [[1.0, 0.0], [0.0, 1.0]], "lower <= upper", "(1.0, 0.0)"),
    ("flat", [0.0, 1.0], "shape (2, d)", "shape (2,)"),
])  # fmt: skip
bad("plot_slices", "names", [
    ("one", ["a"], "2 distinct strings"), ("text", "ab", "2 distinct strings"),
    ("twice", ["a", "a"], "distinct", "'a' twice"),
])  # fmt: skip
bad("plot_slices", "label", TEXTS)
bad("plot_slices", "n_points", integers(2))
bad("plot_slices", "axes", [
    ("text", "ab", "2 matplotlib axes"), ("number", 3, "2 matplotlib axes"),
    ("numbers", [1, 2], "matplotlib axes", "1"), ("none-of-them", [], "2 matplotlib axes"),
])  # fmt: skip


def _live(**options):
    with patch.dict(sys.modules, Notebook().modules):
        return LivePlot(**options)


callee("LivePlot", LivePlot, lambda: {"every": 2}, prepare=lambda: _live)
bad("LivePlot", "every", reals(0))
