"""The table of bad input for results and plots."""

import tcsaea_torch as tc
from tcsaea_torch.plotting import plot_front, plot_timeline, save_front
from tests.contracts.bad_input import INF, NAN, arrays, bad, callee, objects
from tests.contracts.bad_input_runs import PATHS, optimizer


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
