"""The table of bad input for what goes to BoTorch, and what comes from there and from pymoo."""

from importlib.util import find_spec

import torch
from botorch.test_functions.multi_objective import BraninCurrin

import tcsaea_torch as tc
from tcsaea_torch.botorch_models import CoSurrogateModel
from tcsaea_torch.models import FitConfig, Hyperparameters, KrigingGP
from tests.contracts.bad_input import INF, NAN, bad, booleans, callee, integers, objects, reals

# ---------------------------------------------------------------- problems

botorch_problem = BraninCurrin()
callee("Problem.from_botorch", tc.Problem.from_botorch, lambda: {"test_problem": botorch_problem})
bad("Problem.from_botorch", "test_problem", objects("a MultiObjectiveTestProblem of BoTorch"))
ADAPTED = ["Problem.from_botorch"]
if find_spec("pymoo") is not None:
    callee("Problem.from_pymoo", tc.Problem.from_pymoo, lambda: {"problem": "zdt1"})
    bad("Problem.from_pymoo", "problem", [
        ("number", 3, "a pymoo Problem"), ("none", None, "a pymoo Problem"),
        ("unknown", "zdt99", "a name that pymoo's get_problem knows"),
    ])  # fmt: skip
    bad("Problem.from_pymoo", "ref_point", [
        ("three", [1.0, 2.0, 3.0], "shape (2,)", "shape (3,)"),
        ("nan", [NAN, 1.0], "finite", "nan"),
    ])  # fmt: skip
    ADAPTED.append("Problem.from_pymoo")
for name in ADAPTED:
    bad(name, "slow", [*integers(0), ("two", 2, "0 or 1")])
    bad(name, "tau", reals(1))
    bad(name, "names", [("text", "ab", "distinct strings"), ("number", 3, "distinct strings")])
callee("Problem.to_botorch", tc.Problem.to_botorch, dict,
       prepare=lambda: tc.problems.get("dtlz2").to_botorch)  # fmt: skip
bad("Problem.to_botorch", "negate", booleans())

# ---------------------------------------------------------------- models

X = torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double()
Y1 = torch.arange(9.0).double()
THETA = Hyperparameters(theta=torch.ones(2).double())


def changed(tensor, value):
    """Return a copy whose last entry is another."""
    other = tensor.clone()
    other.flatten()[-1] = value
    return other


Y2 = torch.stack([Y1, Y1.flip(0)], dim=-1)
callee(
    "CoSurrogateModel.fit",
    CoSurrogateModel.fit,
    lambda: {"train_X": X, "train_Y": Y2, "kriging": [FitConfig(starts=(4.0,))]},
)
FIT = "CoSurrogateModel.fit"
for name, good, shape in (("train_X", X, "n x d"), ("train_Y", Y2, "n x 2")):
    expected = f"a tensor {shape} of float32 or float64"
    bad(FIT, name, [
        ("list", good.tolist(), expected, "got"), ("numpy", good.numpy(), expected),
        ("none", None, expected), ("vector", good[:, 0], expected),
        ("integers", good.long(), expected, "torch.int64"), ("empty", good[:0], expected),
        ("inf", changed(good, INF), "finite", "inf at index (8, 1)"),
    ])  # fmt: skip
bad(FIT, "train_X", [("nan", changed(X, NAN), "finite", "nan at index (8, 1)")])
bad(FIT, "train_Y", [
    ("too-few", Y2[:5], "shape (9, 2)"), ("one-column", Y2[:, :1], "shape (9, 2)"),
    ("other-dtype", Y2.float(), "train_X's dtype and device", "torch.float32"),
    ("nothing", NAN * Y2, "at least one fast value", "none"),
])  # fmt: skip
bad(FIT, "bounds", [
    ("text", "box", "an array of real numbers"), ("vector", [0.0, 1.0], "shape (2, d)", "(2,)"),
    ("too-many", [[0.0] * 3, [1.0] * 3], "shape (2, 2)", "(2, 3)"),
    ("reversed", [[0.0, 1.0], [1.0, 0.0]], "lower <= upper", "(1.0, 0.0)"),
])  # fmt: skip
bad(FIT, "maximize", booleans())
bad(FIT, "link", objects("a LinkConfig", optional=True))
bad(FIT, "kriging", [
    ("number", 1.0, "a sequence of"), ("empty", (), "at least"),
    ("texts", ("ard",), "a FitConfig", "'ard'"),
])  # fmt: skip
bad(FIT, "objective_lower_bounds", [
    ("none", None, "a pair"), ("number", 0.0, "a pair"), ("one", (0.0,), "a pair"),
    ("nan", (NAN, 0.0), "a finite real number", "nan"),
    ("bool", (True, None), "a finite real number", "True"),
])  # fmt: skip
callee(
    "CoSurrogateModel",
    CoSurrogateModel,
    dict,
    prepare=lambda: (
        lambda gp_models=None: CoSurrogateModel(
            *([KrigingGP(X, Y1, THETA)] * 2 if gp_models is None else gp_models)
        )
    ),
    exempt={"link": "made by `fit`", "slow_from_fast": "likewise", "synthetic": "likewise"},
)
bad("CoSurrogateModel", "gp_models", [
    ("none-at-all", (), "a BoTorch Model of the fast and one of the slow", "none"),
    ("texts", ("a", "b"), "a BoTorch Model of the fast and one of the slow", "'a'"),
])  # fmt: skip
