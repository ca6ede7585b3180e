"""The table of bad input for problems, optimizers and `minimize`."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
import torch
from scipy import stats

import tcsaea_torch as tc
from tcsaea_torch.errors import JournalError, ProtocolError
from tests.contracts.bad_input import (
    INF,
    NAN,
    arrays,
    bad,
    booleans,
    callables,
    callee,
    choices,
    devices,
    dtypes,
    integers,
    objects,
    reals,
)

BOUNDS = [[0.0, 0.0, 0.0], [1.0, 2.0, 4.0]]


def fast(x):
    return float((x**2).sum())


def slow(x):
    return float(((x - 1) ** 2).sum())


def problem(**changes):
    return tc.Problem(**{"fast": fast, "slow": slow, "bounds": BOUNDS, "tau": 2, **changes})


PATHS = [
    ("number", 3, "a path"),
    ("none", None, "a path"),
    ("bool", True, "a path"),
    ("list", ["a.csv"], "a path"),
    ("bytes", b"a.csv", "a path"),
]


# ---------------------------------------------------------------- Problem

callee("Problem", tc.Problem, lambda: {"fast": fast, "slow": slow, "bounds": BOUNDS, "tau": 2})
bad("Problem", "fast", callables())
bad("Problem", "slow", callables())
bad("Problem", "bounds", arrays(BOUNDS))
shape = "(2, d): a row of lower and a row of upper bounds"
bad("Problem", "bounds", [
    ("one-row", [0.0, 1.0], shape, "shape (2,)"),
    ("d-by-2", [[0, 1], [0, 2], [0, 4]], shape, "shape (3, 2)"),
    ("three-axes", np.zeros((2, 3, 1)), shape),
    ("no-dimension", np.zeros((2, 0)), shape),
    ("number", 3, shape, "shape ()"),
    ("ragged", [[0.0], [1.0, 2.0]], "array of real numbers", "[[0.0], [1.0, 2.0]]"),
    ("reversed", [[0, 3, 0], [1, 2, 4]], "lower <= upper", "(3.0, 2.0) in dimension 1"),
    ("nan", [[0, 0, NAN], [1, 2, 4]], "finite", "(nan, 4.0) in dimension 2"),
    ("inf", [[0, 0, 0], [1, INF, 4]], "finite", "(0.0, inf) in dimension 1"),
    ("too-far-apart", [[0, -1e308, 0], [1, 1e308, 4]], "less than 1.8e308 apart", "dimension 1"),
])  # fmt: skip
bad("Problem", "tau", reals(1))
three = "a sequence of 3 distinct strings"
bad("Problem", "names", [
    ("one-text", "abc", three),
    ("number", 3, three),
    ("too-few", ("a", "b"), three),
    ("too-many", ("a", "b", "c", "d"), three),
    ("empty-name", ("a", "", "c"), three),
    ("numbers", (1, 2, 3), three),
    ("nones", (None, None, None), three),
    ("repeated", ("a", "b", "a"), "distinct", "'a' twice"),
    ("reserved", ("a", "slow", "c"), "a column of result tables", "'slow'"),
])  # fmt: skip
dimensions = "a sequence of dimensions or names"
bad("Problem", "integers", [
    ("text", "0", dimensions),
    ("number", 1, dimensions),
    ("none", None, dimensions),
    ("fraction", (0.5,), "an integer >= 0", "0.5"),
    ("bool", (True,), "an integer >= 0", "True"),
    ("negative", (-1,), "an integer >= 0", "-1"),
    ("nan", (NAN,), "an integer >= 0", "nan"),
    ("unknown", ("x3",), "one of x0, x1, x2", "'x3'; did you mean"),
    ("too-large", (3,), "dimensions below 3", "3"),
])  # fmt: skip
bad(
    "Problem", "integers", [("broken-bounds", (1,), "bounds must be integers", "(0.0, 2.5)")],
    named="integer dimension 1", bounds=[[0, 0, 0], [1, 2.5, 4]],
)  # fmt: skip
pair = "a pair such as ('minimize', 'maximize')"
bad("Problem", "objective_names", [
    ("text", "ab", "a pair"), ("number", 3, "a pair"), ("one", ["mass"], "a pair"),
    ("three", ["a", "b", "c"], "a pair"), ("same", ["a", "a"], "two different names", "('a', 'a')"),
    ("empty", ["", "b"], "two different names", "('', 'b')"),
    ("numbers", [1, 2], "two different names", "(1, 2)"),
])  # fmt: skip
bad("Problem", "directions", [
    ("one-text", "minimize", pair),
    ("none", None, pair),
    ("number", 3, pair),
    ("one", ("minimize",), pair),
    ("three", ("minimize",) * 3, pair),
    ("set", {"minimize", "maximize"}, pair, "set"),
    ("misspelt", ("minimise", "minimize"), "did you mean 'minimize'?", "'minimise'"),
    ("signs", (1, -1), "one of maximize, minimize", "1"),
    ("nones", (None, None), "one of maximize, minimize", "None"),
])  # fmt: skip
bad("Problem", "vectorized", booleans())
bad("Problem", "ref_point", arrays([1.0, 1.0], optional=True))
bad("Problem", "ref_point", [
    ("number", 1.0, "shape (2,)", "shape ()"),
    ("three", [1.0, 1.0, 1.0], "shape (2,)", "shape (3,)"),
    ("two-axes", [[1.0, 1.0]], "shape (2,)", "shape (1, 2)"),
    ("nan", [1.0, NAN], "finite", "nan"),
    ("inf", [INF, 1.0], "finite", "inf"),
])  # fmt: skip

callee(
    "Problem.n_fast", tc.Problem.n_fast, lambda: {"n_slow": 10}, prepare=lambda: problem().n_fast
)
bad("Problem.n_fast", "n_slow", integers(0))
bad("Problem.n_fast", "n_slow", [("too-many", 10**17, "tau n_slow is below 2^53", "got 1000")])
for method, letter in (("from_unit", "U"), ("to_unit", "X")):
    callee(
        f"Problem.{method}", getattr(tc.Problem, method),
        lambda letter=letter: {letter: torch.zeros(2, 3)},
        prepare=lambda method=method: getattr(problem(), method),
    )  # fmt: skip
    bad(f"Problem.{method}", letter, [
        ("list", [[0.0] * 3], "a tensor of shape (*batch, 3)"),
        ("numpy", np.zeros((2, 3)), "a tensor of shape (*batch, 3)"),
        ("too-few-columns", torch.zeros(2, 1), "a tensor of shape (*batch, 3)"),
        ("too-many-columns", torch.zeros(2, 4), "a tensor of shape (*batch, 3)"),
        ("number", torch.tensor(0.5), "a tensor of shape (*batch, 3)"),
        ("integers", torch.zeros(2, 3).long(), "floats", "torch.int64"),
    ])  # fmt: skip
callee(
    "Problem.function_of", tc.Problem.function_of, lambda: {"objective": "fast"},
    prepare=lambda: problem().function_of,
)  # fmt: skip
bad("Problem.function_of", "objective", choices(("fast", "slow"), "slo", "slow"))

# ---------------------------------------------------------------- Optimizer and minimize

RUN = {"n_slow": 6, "n_init": 4, "strategy": "random"}
BOTH = "Optimizer minimize"

callee("Optimizer", tc.Optimizer, lambda: {"problem": problem(), **RUN})
callee("minimize", tc.minimize, lambda: {"problem": problem(), **RUN, "progress": False})
bad(BOTH, "problem", objects("a Problem"))
bad(BOTH, "problem", [("class", tc.Problem, "a Problem", "Problem")])
bad(BOTH, "n_slow", integers(1))
bad(BOTH, "n_slow", [("too-many", 10**17, "tau n_slow is below 2^53", "got 1000")])
bad(BOTH, "n_init", integers(1, optional=True))
bad(BOTH, "n_init", [("above-n_slow", 7, "at most n_slow = 6")])
strategies = tc.strategies.names()
bad(BOTH, "strategy", [
    ("misspelt", "randon", "did you mean 'random'?"),
    ("unknown", "zzz", "one of " + ", ".join(strategies)),
    ("class", tc.TCSAEA, "a configured strategy such as TCEHVI()", "TCSAEA"),
    ("number", 3, "a configured strategy such as TCEHVI()"),
    ("list", ["random"], "a configured strategy such as TCEHVI()"),
])  # fmt: skip
bad(BOTH, "seed", integers())
bad(BOTH, "device", devices())
bad(BOTH, "dtype", dtypes())
X2 = [[0.5, 0.5, 0.5], [0.1, 0.1, 0.1]]
data = "a dict of X and optionally fast, slow and tolerance, or a sequence of such dicts"
bad(BOTH, "initial_data", [
    ("list", X2, data),
    ("text", "data.csv", data),
    ("table", pd.DataFrame({"X": [1.0], "fast": [2.0]}), data),
    ("without-x", {"fast": [1.0]}, data),
    ("second-without-x", [{"X": X2}, {"fast": [1.0]}], data),
    ("generator", ({"X": X2} for _ in "a"), data, "generator"),
    ("bad-x-in-second", [{"X": X2}, {"X": [[0.5]]}], "initial_data[1]: X must have", "(1, 1)"),
    ("nan-in-second", [{"X": X2}, {"X": [[NAN] * 3]}], "initial_data[1]: X must be finite",
     "nan in row 0, column 0"),
    ("bad-slow-in-first", ({"X": X2, "slow": [1.0]},), "initial_data[0]: slow must", "(1,)"),
    ("misspelt-in-second", [{"X": X2}, {"X": X2, "slo": []}], "did you mean 'slow'?", "'slo'"),
])  # fmt: skip
bad(
    BOTH, "initial_data",
    [("misspelt", {"X": np.zeros((99, 3)), "slo": [1.0]}, "did you mean 'slow'?", "'slo'")],
)  # fmt: skip
bad(BOTH, "initial_data", [
    ("bad-x", {"X": [[0.5]]}, "shape (n, 3)", "shape (1, 1)"),
    ("nan-in-x", {"X": [[0.5, NAN, 0.5]]}, "finite", "nan in row 0, column 1"),
], named="X")  # fmt: skip
bad(
    BOTH, "initial_data", [("large-tolerance", {"X": X2, "tolerance": 0.2}, "<= 0.1", "0.2")],
    named="tolerance",
)  # fmt: skip
submit = "a concurrent.futures.Executor"
POOL = ProcessPoolExecutor(1)  # no process begins before a call is submitted
bad("minimize", "executor", [
    ("text", "threads", submit), ("number", 3, submit),
    ("misspelt", {"slo": None}, "did you mean 'slow'?", "'slo'"),
    ("unknown-key", {1: None}, "one of fast, slow", "1"),
    ("text-inside", {"slow": "threads"}, submit, "'threads'"),
])  # fmt: skip
bad("minimize", "executor", [("class", type("Pool", (), {"submit": print}), submit, "Pool")])
bad(
    "minimize", "executor", [("not-picklable", POOL, "picklable to run in a process", "lambda")],
    named="slow", problem=problem(slow=lambda x: 1.0),
)  # fmt: skip
bad("minimize", "timeout_s", reals(0, exclusive=True, optional=True))
bad("minimize", "timeout_s", [
    ("misspelt", {"slo": 3.0}, "did you mean 'slow'?", "'slo'"),
    ("text-inside", {"slow": "3"}, "a finite real number > 0", "'3'"),
    ("zero-inside", {"slow": 1.0, "fast": 0}, "a finite real number > 0", "0"),
])  # fmt: skip
bad("minimize", "workers", integers(1, optional=True))
bad("minimize", "workers", [
    ("misspelt", {"slo": 2}, "did you mean 'slow'?", "'slo'"),
    ("text-inside", {"slow": "2"}, "an integer >= 1", "'2'"),
    ("none-in-a-lane", {"slow": 2, "fast": 0}, "an integer >= 1", "0"),
])  # fmt: skip
bad(
    "minimize", "workers", [("twice-said", 2, "None with a VirtualExecutor", "2")],
    executor=tc.VirtualExecutor(time_slow=5),
)  # fmt: skip


class Silent:
    """An executor that does not say how many workers it has."""

    def submit(self, fn, /, *arguments, **options):
        raise NotImplementedError


bad(
    "minimize", "workers", [("not-known", None, "must say how many calls", "Silent")],
    executor=Silent(), strategy=tc.TCSAEA(asynchronous=True),
)  # fmt: skip
bad("minimize", "retries", integers(0))
bad("minimize", "retries", [
    ("misspelt", {"slo": 3}, "did you mean 'slow'?", "'slo'"),
    ("text-inside", {"slow": "3"}, "an integer >= 0", "'3'"),
    ("none-inside", {"slow": 1, "fast": None}, "an integer >= 0", "None"),
])  # fmt: skip
bad("minimize", "callbacks", [
    ("none", None, "a sequence of functions"),
    ("function", print, "a sequence of functions", "print"),
    ("text", "log", "a sequence of functions"),
    ("number", 3, "a sequence of functions"),
    ("no-functions", [print, 3], "callable", "3"),
    ("nones", [None], "callable", "None"),
])  # fmt: skip
bad("minimize", "progress", booleans())
bad(BOTH, "journal", [row for row in PATHS if row[0] != "none"])
bad(BOTH, "journal", [
    ("folder", ".", "must be the path of a file", "'.'"),
    ("no-such-folder", "no/such/study.db", "unable to open", "no/such/study.db"),
], error=JournalError)  # fmt: skip


def studied():
    """Return arguments for a study that lies in this folder."""
    with tc.Optimizer(problem(), **RUN, journal="study.db") as made:  # pyright: ignore
        made.ask()
    return {"path": "study.db", "problem": problem()}


def resume(**arguments):
    """Resume, and leave the study free."""
    tc.Optimizer.resume(**arguments).close()


callee("Optimizer.resume", tc.Optimizer.resume, studied, prepare=lambda: resume)
bad("Optimizer.resume", "path", PATHS)
bad(
    "Optimizer.resume", "path", [("nothing-there", "other.db", "there is no study", "other.db")],
    named="at", error=JournalError,
)  # fmt: skip
bad("Optimizer.resume", "problem", objects("a Problem"))
bad("Optimizer.resume", "problem", [
    ("another-tau", problem(tau=3), "its tau is 2.0", "not 3.0"),
    ("other-names", problem(names=("a", "b", "c")), "its names is ('x0', 'x1', 'x2')", "'b'"),
], error=JournalError)  # fmt: skip
bad("Optimizer.resume", "on_pending", choices(("wait", "rerun", "fail"), "rerum", "rerun"))
bad("Optimizer.resume", "strategy", [
    ("misspelt", "randon", "did you mean 'random'?"),
    ("class", tc.TCSAEA, "a configured strategy such as TCEHVI()", "TCSAEA"),
    ("number", 3, "a configured strategy such as TCEHVI()"),
])  # fmt: skip
bad("Optimizer.resume", "strategy", [
    ("another", "tc-saea", "the study has another strategy: RandomSearch", "TCSAEA"),
], error=JournalError)  # fmt: skip
bad("Optimizer.resume", "device", devices())

callee("VirtualExecutor", tc.VirtualExecutor, lambda: {"time_slow": 5})
for name in ("time_fast", "time_slow"):
    bad("VirtualExecutor", name, reals(0, exclusive=True))
    bad("VirtualExecutor", name, [
        ("class", type("Time", (), {}), "a finite real number > 0", "got"),
        ("no-parameters", stats.lognorm, "a distribution with ppf", "lognorm"),
        ("negative-function", lambda u: -1.0, "a finite real number > 0", "-1.0"),
        ("function-of-text", lambda u: "5", "a finite real number > 0", "'5'"),
    ])  # fmt: skip
bad("VirtualExecutor", "workers", integers(0))
bad("VirtualExecutor", "workers", [
    ("none-at-all", 0, "at least 1 in the fast lane"),
    ("none-in-a-lane", {"slow": 0}, "at least 1 in the slow lane", "0"),
    ("misspelt", {"slo": 2}, "did you mean 'slow'?", "'slo'"),
    ("fraction-inside", {"slow": 2.5}, "an integer >= 0", "2.5"),
])  # fmt: skip
bad("VirtualExecutor", "failures", reals(0, 1))
bad("VirtualExecutor", "failures", [
    ("misspelt", {"slo": 0.1}, "did you mean 'slow'?", "'slo'"),
    ("too-large-inside", {"slow": 1.5}, "<= 1", "1.5"),
])  # fmt: skip
changes = "a sequence of (time, lane, change)"
bad("VirtualExecutor", "schedule", [
    ("none", None, changes), ("number", 3, changes), ("text", "slow", changes),
    ("dict", {3: "slow"}, changes),
    ("flat", (3, "slow", 1), changes, "got 3"),
    ("pair", [(3, "slow")], changes, "(3, 'slow')"),
    ("text-inside", ["abc"], changes, "'abc'"),
    ("no-time", [("slow", 3, 1)], "a finite real number >= 0", "'slow'"),
    ("before-the-start", [(-1, "slow", 1)], "a finite real number >= 0", "-1"),
    ("misspelt", [(3, "slo", 1)], "did you mean 'slow'?", "'slo'"),
    ("fraction", [(3, "slow", 0.5)], "an integer", "0.5"),
    ("too-few-left", [(3, "slow", -2)], "more workers than the slow lane has", "-1 at time 3"),
])  # fmt: skip
bad("VirtualExecutor", "seed", integers())


def optimizer():
    """An optimizer whose design was handed out; evaluation 0 is known, 1 has failed."""
    made = tc.Optimizer(problem(), **RUN)  # pyright: ignore[reportArgumentType]
    made.ask()
    made.tell(0, 1.5)
    made.fail(1, "diverged")
    return made


callee("Optimizer.ask", tc.Optimizer.ask, dict, prepare=lambda: optimizer().ask)
bad("Optimizer.ask", "n_fast", integers(0, optional=True))
bad("Optimizer.ask", "n_slow", integers(0, optional=True))
callee(
    "Optimizer.tell", tc.Optimizer.tell, lambda: {"id": 2, "value": 1.0},
    prepare=lambda: optimizer().tell,
)  # fmt: skip
callee("Optimizer.fail", tc.Optimizer.fail, lambda: {"id": 2}, prepare=lambda: optimizer().fail)
callee(
    "Optimizer.record", tc.Optimizer.record, lambda: {"id": 2}, prepare=lambda: optimizer().record
)
callee(
    "Optimizer.attach", tc.Optimizer.attach,
    lambda: {"X": X2, "fast": [1.0, 2.0], "slow": [NAN, 3.0]},
    prepare=lambda: optimizer().attach,
)  # fmt: skip
callee("Optimizer.ask_at", tc.Optimizer.ask_at, lambda: {"X": X2}, lambda: optimizer().ask_at)
callee(
    "Optimizer.next_action", tc.Optimizer.next_action, dict,
    prepare=lambda: optimizer().next_action,
)  # fmt: skip
callee("Optimizer.close", tc.Optimizer.close, dict, prepare=lambda: optimizer().close)
callee("Optimizer.result", tc.Optimizer.result, dict, prepare=lambda: optimizer().result)

WITH_ID = "Optimizer.tell Optimizer.fail Optimizer.record"
bad(WITH_ID, "id", integers())
bad(WITH_ID, "id", [
    ("unknown", 99, "ask() never handed it out", "99"),
    ("negative", -1, "ask() never handed it out", "-1"),
], named="evaluation", error=ProtocolError)  # fmt: skip
number = "a finite real number; report a failed evaluation by fail(id, reason)"
one = "one real number; report a failed evaluation by fail(id, reason)"
bad("Optimizer.tell", "value", [
    ("nan", NAN, "a finite real number"),
    ("inf", INF, "a finite real number"),
    ("numpy-nan", np.float32("nan"), "a finite real number", "nan"),
    ("beyond-double", 10**400, "a finite real number", "inf"),
    ("text", "1.0", "one real number"),
    ("none", None, "one real number"),
    ("bool", True, "one real number"),
    ("complex", 1j, "one real number"),
    ("list", [1.0], "one real number"),
    ("two", np.array([1.0, 2.0]), "one real number"),
    ("two-axes", np.ones((2, 2)), "one real number"),
    ("nothing", np.array([]), "one real number"),
    ("tensor-of-two", torch.ones(2), "one real number"),
    ("dict", {"slow": 1.0}, "one real number"),
])  # fmt: skip
bad("Optimizer.tell", "value", [
    ("hint", NAN, "report a failed evaluation by fail(id, reason)"),
    ("names-the-evaluation", "x", "value of evaluation 2 must be"),
])  # fmt: skip
bad(
    "Optimizer.tell", "value", [("another", 2.5, "was told 1.5 before")],
    named="evaluation", error=ProtocolError, id=0,
)  # fmt: skip
bad("Optimizer.fail", "id", [
    ("done", 0, "is done already", "evaluation 0"), ("failed", 1, "is failed already", "1"),
], named="evaluation", error=ProtocolError)  # fmt: skip
bad("Optimizer.fail", "reason", [
    ("none", None, "a string"), ("number", 3, "a string"),
    ("error", ValueError("no"), "a string", "ValueError"), ("bytes", b"no", "a string"),
])  # fmt: skip
bad("Optimizer.fail", "retry", booleans())
bad("Optimizer.attach Optimizer.ask_at", "X", arrays(X2))
bad("Optimizer.attach Optimizer.ask_at", "X", [
    ("one-row", [0.5, 0.5, 0.5], "shape (n, 3)", "shape (3,)"),
    ("too-few-columns", [[0.5], [0.1]], "shape (n, 3)", "shape (2, 1)"),
    ("transposed", np.zeros((3, 2)), "shape (n, 3)"),
    ("three-axes", np.zeros((1, 2, 3)), "shape (n, 3)"),
    ("ragged", [[0.5], [0.1, 0.1]], "array of real numbers", "got"),
    ("nan", [[0.5, 0.5, NAN], X2[1]], "finite", "nan in row 0, column 2"),
    ("inf", [X2[0], [-INF, 0, 0]], "finite", "-inf in row 1, column 0"),
    ("none-inside", [X2[0], [0.5, None, 0.5]], "real numbers", "None (NoneType) at [1, 1]"),
    ("missing-in-table", pd.DataFrame([[0.5, 0.5, pd.NA]], dtype=object), "real numbers",
     "at [0, 2]"),
])  # fmt: skip
for name in ("fast", "slow"):
    bad("Optimizer.attach", name, arrays([1.0, 2.0], optional=True))
    bad("Optimizer.attach", name, [
        ("number", 1.0, "shape (2,)", "shape ()"),
        ("too-few", [1.0], "shape (2,)", "shape (1,)"),
        ("too-many", [1.0, 2.0, 3.0], "shape (2,)", "shape (3,)"),
        ("row", [[1.0, 2.0]], "shape (2,)", "shape (1, 2)"),
        ("inf", [1.0, INF], "not be infinite", "inf at 1"),
        ("texts-in-table", pd.Series(["a", "b"]), "array of real numbers"),
        ("bool-and-none", [True, None], "array of real numbers", "True"),
        ("text-and-none", ["1", None], "array of real numbers", "'1'"),
    ])  # fmt: skip
bad("Optimizer.attach", "X", [
    ("masked", np.ma.masked_equal([X2[0], [1, 2, 3]], 2), "real numbers", "None (NoneType) at [1"),
])  # fmt: skip
bad("Optimizer.attach", "fast", [
    ("table-of-bool", pd.Series([True, False]), "array of real numbers"),
    ("table-of-numbers-as-text", pd.Series(["1", "2"]), "array of real numbers"),
    ("table-of-dates", pd.Series(pd.to_datetime(["2020-01-01"] * 2)), "array of real numbers"),
])  # fmt: skip
bad("Optimizer.attach", "tolerance", reals(0, 0.1))
bad("Optimizer.result", "interrupted", [
    ("bool", True, "a string"), ("number", 3, "a string"), ("error", OSError(), "a string"),
])  # fmt: skip
