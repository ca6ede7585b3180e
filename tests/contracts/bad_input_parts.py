"""The table of bad input for strategies, problems, kernels, models, evolution and metrics."""

from dataclasses import replace

import numpy as np
import torch
from botorch.models import ModelListGP

import tcsaea_torch as tc
from tcsaea_torch.acquisition import AAFNormalizer, AdaptiveAcquisition, BiObjectiveEHVI
from tcsaea_torch.evolution import Draws, RVEAConfig, Variation, rvea, simplex_lattice
from tcsaea_torch.kernels import AdditiveKernel, PowerExponentialKernel
from tcsaea_torch.models import (
    BFGSOptions,
    Candidate,
    FitConfig,
    Hyperparameters,
    KrigingGP,
    TrainingSet,
    choose,
    fit_best,
    fit_kriging,
)
from tcsaea_torch.transfer import LinkConfig, SwarmConfig
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
    tensors,
)

TEXT = [("number", 3, "a string"), ("none", None, "a string"), ("list", ["a"], "a string")]

# ---------------------------------------------------------------- strategies

callee("strategies.get", tc.strategies.get, lambda: {"name": "tc-saea"})
bad("strategies.get", "name", choices(tc.strategies.names(), "randon", "random"), named="strategy")
bad(
    "strategies.get", "options", [("misspelt", 3, "did you mean 'n_new'?", "'n_news'")],
    named="strategy 'tc-saea'",
)  # fmt: skip
callee("strategies.names", tc.strategies.names, dict)
callee("strategies.register", tc.strategies.register, lambda: {"name": "a", "factory": tc.TCSAEA})
bad("strategies.register", "name", TEXT)
bad("strategies.register", "factory", callables())
callee("strategies.check_strategy", tc.strategies.check_strategy, lambda: {"value": "random"})
bad("strategies.check_strategy", "value", [
    ("misspelt", "randon", "did you mean 'random'?"),
    ("class", tc.RandomSearch, "a name or a configured strategy", "RandomSearch"),
    ("none", None, "a name or a configured strategy"),
], named="strategy")  # fmt: skip

callee("RandomSearch", tc.RandomSearch, dict)
callee("TCSAEA", tc.TCSAEA, dict)
callee("TCEHVI", tc.TCEHVI, dict)
callee("TSAEA", tc.strategies.TSAEA, dict)
callee("TrSAEA", tc.strategies.TrSAEA, dict)
callee("KRVEA", tc.strategies.KRVEA, dict)
callee("HKRVEA", tc.strategies.HKRVEA, dict)
for scheme in ("Waiting", "FastFirst", "BroodInterleaving", "SpeculativeInterleaving"):
    callee(scheme, getattr(tc.strategies, scheme), dict)
RVEAS = "Waiting BroodInterleaving SpeculativeInterleaving"
SCHEMES = f"{RVEAS} FastFirst"
bad(SCHEMES, "n_population", integers(2))
bad(SCHEMES, "n_initial", integers(2, optional=True))
bad(SCHEMES, "variation", objects("a Variation"))
bad(SCHEMES, "name", TEXT)
bad(RVEAS, "alpha", reals(0))
bad(RVEAS, "adaptation_frequency", reals(0, 1, exclusive=True))
bad("BroodInterleaving", "choice", choices(("tournament", "best", "random"), "bst", "best"))
bad("FastFirst", "n_chosen", integers(1, optional=True))
ASSISTED = "TCSAEA TSAEA TrSAEA"
bad(f"RandomSearch {ASSISTED}", "name", TEXT)
bad(ASSISTED, "n_new", integers(1))
bad(ASSISTED, "n_ref_vectors", integers(2))
bad(ASSISTED, "n_train_max", integers(2, optional=True))
for switch in ("reset_vectors", "soea_maximises", "late_fast_credit", "failure_model"):
    bad(ASSISTED, switch, booleans())
bad(ASSISTED, "search", objects("a RVEAConfig"))
bad(ASSISTED, "kriging", objects("a FitConfig"))
bad(ASSISTED, "variation", objects("a Variation"))
for trend in ("trend_fast", "trend_slow"):
    bad(ASSISTED, trend, choices(("constant", "linear"), "constnt", "constant"))
bad(ASSISTED, "box_margin", reals(0, 0.5))
bad(ASSISTED, "uncertainty", choices(("sd", "variance"), "varience", "variance"))
bad(ASSISTED, "uncertainty_sign", reals(-1, 1))
bad(ASSISTED, "infill_penalty_scale", reals(0, exclusive=True))
for switch in ("limit_first_fast", "accumulate", "pure_at_fit"):
    bad("TCSAEA", switch, booleans())
bad("TCSAEA", "trend_co", choices(("constant", "linear"), "constnt", "constant"))
bad("TCSAEA", "co_surrogate", choices(("kriging", "quadratic"), "krigging", "kriging"))
bad("TCSAEA", "transfer", choices(("interval", "all", "none"), "intervall", "interval"))
bad("TCSAEA", "interval", choices(("sd", "variance"), "varience", "variance"))
bad("TCSAEA", "last_transfer_period", integers(0, optional=True))
bad("TCSAEA", "asynchronous", booleans())
bad("TCSAEA", "clearance", reals(0, 0.5))

bad("TCEHVI", "name", TEXT)
bad("TCEHVI", "n_new", integers(1))
bad("TCEHVI", "n_ref_vectors", integers(2))
for switch in (
    "strict_clock", "asynchronous", "calibrated", "moves_variables", "climbs",
    "uses_ref_point", "guesses_bounds", "noisy", "failure_model",
):  # fmt: skip
    bad("TCEHVI", switch, booleans())
bad("TCEHVI", "kernels", [
    ("none", None, "a sequence"), ("text", "joint", "a sequence"), ("empty", (), "at least one"),
    ("misspelt", ("aditive",), "did you mean 'additive'?", "'aditive'"),
    ("number", (3,), "one of additive, cautious, joint, smooth", "3"),
])  # fmt: skip
bad("TCEHVI", "link", objects("a LinkConfig", optional=True))
bad("TCEHVI", "search", objects("a RVEAConfig"))
for share in ("space_share", "spread_share", "between_share"):
    bad("TCEHVI", share, reals(0, 1))
bad("TCEHVI", "objective_lower_bounds", [
    ("none", None, "a pair"), ("number", 0.0, "a pair"), ("text", "00", "a pair"),
    ("one", (0.0,), "a pair"), ("three", (0.0, 0.0, 0.0), "a pair"),
    ("nan", (NAN, 0.0), "a finite real number", "nan"),
    ("minus-inf", (0.0, -INF), "a finite real number", "-inf"),
    ("bool", (True, None), "a finite real number", "True"),
])  # fmt: skip
bad("TCEHVI", "clearance", reals(0, 0.5))

bad("TrSAEA", "n_labelled", integers(1))
bad("TrSAEA", "n_components", integers(1))
bad("TrSAEA", "domain_weight", reals(0))
bad("TrSAEA", "coral", choices(("both", "source"), "sorce", "source"))
bad("TrSAEA", "inversion", objects("a BFGSOptions"))
bad("TSAEA", "swarm", objects("a SwarmConfig"))
callee("SwarmConfig", SwarmConfig, dict)
bad("SwarmConfig", "n_particles", integers(1))
bad("SwarmConfig", "n_iterations", integers(0))
for pull in ("inertia", "attraction"):
    bad("SwarmConfig", pull, reals(0))
for part in ("max_speed", "threshold", "redundancy_weight"):
    bad("SwarmConfig", part, reals(0, 1))

callee("LinkConfig", LinkConfig, dict)
bad("LinkConfig", "links", [
    ("none", None, "a sequence"), ("text", "ratio", "a sequence"), ("empty", (), "at least one"),
    ("misspelt", ("ratoi",), "did you mean 'ratio'?", "'ratoi'"), ("number", (3,), "one of", "3"),
])  # fmt: skip
bad("LinkConfig", "ratio_offsets", [
    ("none", None, "a sequence"), ("empty", (), "at least one"), ("zero", (0.0,), "> 0", "0.0"),
    ("nan", (NAN,), "a finite real number", "nan"),
])  # fmt: skip
bad("LinkConfig", "kriging", objects("a FitConfig"))
bad("LinkConfig", "margin", reals(0))
bad("LinkConfig", "confidence", reals(0))
bad("LinkConfig", "largest_square", reals(0, exclusive=True))
bad("LinkConfig", "trimmed", reals(0, 0.5))
bad("LinkConfig", "n_folds", integers(2))
bad("LinkConfig", "min_rows", integers(2))
bad("LinkConfig", "belief", reals(0, exclusive=True))

BY_VECTORS = "KRVEA HKRVEA"
bad(BY_VECTORS, "name", TEXT)
bad(BY_VECTORS, "n_new", integers(1))
bad(BY_VECTORS, "n_ref_vectors", integers(2))
bad(BY_VECTORS, "delta", reals(0, 1))
bad(BY_VECTORS, "search", objects("a RVEAConfig"))
bad(BY_VECTORS, "kriging", objects("a FitConfig"))
bad("KRVEA", "n_train_max", integers(2, optional=True))
for switch in ("spread_training", "ignores_delay"):
    bad("KRVEA", switch, booleans())
bad("HKRVEA", "n_train_max", integers(2))
bad("HKRVEA", "variation", objects("a Variation"))

# ---------------------------------------------------------------- problems

PROBLEMS = {
    "DTLZ": ("dtlz2", 11),
    "UF": ("uf1", 30),
    "CMOneMax": (None, 10),
    "CrashBeam": (None, 12),
    "Engineering": ("re21", 4),
    "LowDimensional": ("kursawe", 3),
    "RotatedDTLZ2": (None, 8),
    "WFG": ("wfg2", 6),
    "ZDT": ("zdt1", 30),
}

callee("problems.get", tc.problems.get, lambda: {"name": "dtlz2"})
bad("problems.get", "name", choices(tc.problems.names(), "dtlz22", "dtlz2"), named="problem")
for name in tc.problems.names():
    bad(
        "problems.get", "options",
        [(f"{name}-misspelt", 3, "did you mean 'tau'?", "'tua'")],
        named=f"problem {name!r}", name=name,
    )  # fmt: skip
bad("problems.get", "slow", integers(0))
bad("problems.get", "slow", [("two", 2, "0 or 1")])
callee("problems.names", tc.problems.names, dict)
callee(
    "problems.register", tc.problems.register, lambda: {"name": "a", "factory": tc.problems.DTLZ}
)
bad("problems.register", "name", TEXT)
bad("problems.register", "factory", callables())

for class_name, (name, d) in PROBLEMS.items():
    good = {} if name is None else {"name": name}
    kind = getattr(tc.problems, class_name)
    callee(class_name, kind, lambda good=good: dict(good))
    bad(class_name, "tau", reals(1))
    make = lambda kind=kind, good=good: kind(**good)  # noqa: E731
    callee(
        f"{class_name}.evaluate", kind.evaluate, lambda d=d: {"X": torch.ones(1, d).double()},
        prepare=lambda make=make: make().evaluate,
    )  # fmt: skip
    expected = f"a tensor of shape (*batch, n, {d}) of floats"
    bad(f"{class_name}.evaluate", "X", [
        ("list", [[0.5] * d], expected, "got"),
        ("numpy", np.ones((2, d)), expected),
        ("none", None, expected),
        ("too-few-columns", torch.ones(2, d - 1), expected),
        ("too-many-columns", torch.ones(2, d + 1), expected),
        ("one-point", torch.ones(d), expected),
        ("integers", torch.ones(2, d).long(), expected, "torch.int64"),
    ])  # fmt: skip
    if class_name != "CrashBeam":
        callee(
            f"{class_name}.pareto_front", kind.pareto_front, lambda: {"n": 5},
            prepare=lambda make=make: make().pareto_front,
        )  # fmt: skip
        bad(f"{class_name}.pareto_front", "n", integers(1))
dtlz = [n for n in tc.problems.names() if n.startswith("dtlz") and "-" not in n]
bad("DTLZ", "name", choices(dtlz, "dtlz22", "dtlz2"))
bad("UF", "name", choices([f"uf{k}" for k in range(1, 8)], "uf11", "uf1"))
bad("UF", "box", choices(("true", "unit"), "units", "unit"))
bad("CMOneMax", "corr", reals(-1, 1))
bad("CMOneMax", "seed", integers())
bad("Engineering", "name", choices(("re21", "re24"), "re211", "re21"))
bad("LowDimensional", "name", choices(("branin-currin", "gmm", "kursawe"), "kursave", "kursawe"))
bad("RotatedDTLZ2", "seed", integers())
bad("WFG", "name", choices(("wfg2", "wfg4", "wfg9"), "wfg22", "wfg2"))
bad("WFG", "k", integers(1))
bad("WFG", "l", integers(1))
bad("WFG", "l", [("odd", 3, "even")])
bad("ZDT", "name", choices(("zdt1", "zdt2", "zdt3", "zdt4", "zdt6"), "zdt11", "zdt1"))
bad("ZDT", "d", integers(2, optional=True))
callee("Swapped", tc.problems.Swapped, lambda: {"original": tc.problems.DTLZ("dtlz2")})
bad("Swapped", "original", objects("a TestProblem"))
swapped = lambda: tc.problems.Swapped(tc.problems.DTLZ("dtlz2"))  # noqa: E731
callee("Swapped.evaluate", tc.problems.Swapped.evaluate, lambda: {"X": torch.ones(1, 11).double()},
       prepare=lambda: swapped().evaluate)  # fmt: skip
bad("Swapped.evaluate", "X", [("list", [[0.5] * 11], "of shape (*batch, n, 11)", "got")])
callee("Swapped.pareto_front", tc.problems.Swapped.pareto_front, lambda: {"n": 5},
       prepare=lambda: swapped().pareto_front)  # fmt: skip
bad("Swapped.pareto_front", "n", integers(1))
bad("CrashBeam", "n_segments", integers())
bad("CrashBeam", "n_segments", [("four", 4, "from 5 to 8"), ("nine", 9, "from 5 to 8")])

# ---------------------------------------------------------------- kernels

callee("PowerExponentialKernel", PowerExponentialKernel, lambda: {"ard_num_dims": 2})
KERNEL = "PowerExponentialKernel"
POWERS = [*reals(0, 2, exclusive=True)]
NO_TEXT = [row for row in POWERS if row[0] != "text"]
POWER_NAMES = [
    ("misspelt", "share", "did you mean 'shared'?"),
    ("unknown", "zzz", "one of ard, shared"),
]
bad(KERNEL, "ard_num_dims", integers(1, optional=True))
bad(KERNEL, "p", [*NO_TEXT, *POWER_NAMES])
bad(KERNEL, "p_range", [
    ("number", 1.5, "a pair"),
    ("text", "ab", "a pair"),
    ("none", None, "a pair"),
    ("three", (0.5, 1.0, 2.0), "a pair"),
    ("texts", ("1", "2"), "a finite real number", "'2'"),
    ("reversed", (2.0, 1.0), "> 0 and <= 1", "2.0"),
    ("zero", (0.0, 2.0), "> 0", "0.0"),
    ("above-two", (1.0, 2.5), "<= 2", "2.5"),
    ("nan", (NAN, 2.0), "a finite real number", "nan"),
    ("inf", (1.0, INF), "a finite real number", "inf"),
])  # fmt: skip
callee("AdditiveKernel", AdditiveKernel, lambda: {"ard_num_dims": 2})
ADDITIVE = "AdditiveKernel"
KERNELS = f"{KERNEL} {ADDITIVE}"
bad(ADDITIVE, "ard_num_dims", integers(1))
bad(ADDITIVE, "p", reals(0, 2, exclusive=True))
bad(KERNELS, "theta_constraint", objects("a gpytorch constraint", optional=True))
bad(ADDITIVE, "amplitude_constraint", objects("a gpytorch constraint", optional=True))
bad(KERNELS, "batch_shape", [
    ("text", "3", "a shape"), ("number", 3, "a shape"), ("negative", (-1,), "a shape"),
    ("fraction", (1.5,), "a shape"),
])  # fmt: skip
bad(KERNELS, "active_dims", [
    ("text", "01", "distinct dimensions"), ("number", 1, "distinct dimensions"),
    ("negative", (-1, 0), "distinct dimensions"), ("fraction", (0.5, 1), "distinct dimensions"),
    ("repeated", (1, 1), "distinct dimensions"),
])  # fmt: skip

# ---------------------------------------------------------------- models

X, Y1 = torch.rand(9, 2, generator=torch.Generator().manual_seed(0)).double(), torch.arange(9.0)
Y1 = Y1.double()
THETA = Hyperparameters(theta=torch.ones(2).double())
OTHER_KERNEL = replace(THETA)
object.__setattr__(OTHER_KERNEL, "kernel", "matern")  # past the check of types


def changed(tensor, value):
    """Return a copy whose last entry is another."""
    other = tensor.clone()
    other.flatten()[-1] = value
    return other


MODELS = "fit_kriging KrigingGP"
TRANSFORMS = {f"{put}_transform": "a module of BoTorch's" for put in ("input", "outcome")}
callee("fit_kriging", fit_kriging, lambda: {"X": X, "y": Y1}, exempt=TRANSFORMS)
callee(
    "KrigingGP", KrigingGP, lambda: {"X": X, "y": Y1, "hyperparameters": THETA}, exempt=TRANSFORMS
)
callee("FitConfig", FitConfig, dict)
callee("BFGSOptions", BFGSOptions, dict)
floats = "a tensor *batch x n x d of floats"
bad(MODELS, "X", [
    ("list", X.tolist(), floats, "got"),
    ("numpy", X.numpy(), floats),
    ("none", None, floats),
    ("vector", X[:, 0], floats),
    ("integers", X.long(), floats, "torch.int64"),
    ("half", X.half(), floats, "torch.float16"),
    ("no-rows", X[:0], "at least one row and column"),
    ("no-columns", X[:, :0], "at least one row and column"),
    ("nan", changed(X, NAN), "finite", "nan at index (8, 1)"),
    ("inf", changed(X, INF), "finite", "inf at index (8, 1)"),
])  # fmt: skip
for name in ("y", "noise_var"):
    bad(MODELS, name, [
        ("list", Y1.tolist(), "a tensor *batch x n", "got"),
        ("numpy", Y1.numpy(), "a tensor *batch x n"),
        ("too-few", Y1[:5], "shape (9,) to go with X"),
        ("matrix", torch.ones(9, 2).double(), "shape (9,) to go with X"),
        ("other-dtype", Y1.float(), "X's dtype and device", "torch.float32"),
    ])  # fmt: skip
bad(MODELS, "y", [
    ("none", None, "a tensor *batch x n"),
    ("nan", changed(Y1, NAN), "finite", "nan at index (8,"),
    ("inf", changed(Y1, INF), "finite", "inf at index (8,"),
])  # fmt: skip
bad(MODELS, "noise_var", [
    ("nan", changed(0 * Y1, NAN), ">= 0", "got nan"),
    ("negative", changed(0 * Y1, -1.0), ">= 0", "got -1.0"),
])  # fmt: skip
bad(MODELS, "trend", choices(("constant", "linear"), "lineer", "linear"))
bad(MODELS + " FitConfig", "input_scaling", choices(("unit", "standardize"), "units", "unit"))
bad("fit_kriging FitConfig", "p", [*NO_TEXT, *POWER_NAMES])
KERNEL_NAMES = ("additive", "matern-5/2", "power-exponential")
bad("fit_kriging FitConfig", "kernel", choices(KERNEL_NAMES, "matern52", "matern-5/2"))
matern = "2 with kernel 'matern-5/2'"
bad("FitConfig", "p", [("matern", 1.5, matern), ("matern-ard", "ard", matern)], kernel="matern-5/2")
bad("FitConfig", "p", [("additive-ard", "ard", "a number with kernel 'additive'", "'ard'")],
    kernel="additive")  # fmt: skip
bad("fit_kriging", "n_starts", integers(1))
bad("KrigingGP", "nugget", reals(0, optional=True))
bad("fit_kriging FitConfig", "nugget", [
    *(row for row in reals(0, optional=True) if row[0] != "text"),
    ("misspelt", "fitt", "did you mean 'fit'?"), ("unknown", "zzz", "one of fit"),
])  # fmt: skip
bad("fit_kriging", "config", objects("a FitConfig", optional=True))
for callee_name, name in (("fit_kriging", "init"), ("KrigingGP", "hyperparameters")):
    bad(callee_name, name, objects("Hyperparameters", optional=name == "init"))
    bad(callee_name, name, [
        ("shape", Hyperparameters(theta=torch.ones(3).double()), "shape (2,)", "shape (3,)"),
        ("negative", Hyperparameters(theta=-THETA.theta), "> 0 and finite", "-1.0"),
        ("nan", Hyperparameters(theta=NAN * THETA.theta), "> 0 and finite", "nan"),
    ], named=f"{name}.theta")  # fmt: skip
    bad(callee_name, name, [
        ("p-above-2", Hyperparameters(theta=THETA.theta, p=3 * THETA.theta), "<= 2", "3.0"),
        ("p-of-matern", replace(THETA, p=THETA.theta, kernel="matern-5/2"), "None with kernel",
         "a tensor"),
        ("unequal", replace(THETA, p=torch.tensor([1.5, 1.0]).double(), kernel="additive"),
         "one number throughout", "[1.0, 1.5]"),
    ], named=f"{name}.p")  # fmt: skip
    bad(callee_name, name, [
        ("kernel", OTHER_KERNEL, "one of additive, matern-5/2, power-exponential",
         "'matern'; did you mean 'matern-5/2'?"),
    ], named=f"{name}.kernel")  # fmt: skip
    bad(callee_name, name, [
        ("no-amplitudes", replace(THETA, kernel="additive"), "given with kernel", "None"),
        ("short", replace(THETA, kernel="additive", amplitudes=torch.ones(2).double()),
         "shape (3,)", "shape (2,)"),
        ("of-another", replace(THETA, amplitudes=torch.ones(3).double()), "None with kernel",
         "shape (3,)"),
        ("minus-one", replace(THETA, kernel="additive", amplitudes=-torch.ones(3).double()),
         "> 0 and finite", "-1.0"),
    ], named=f"{name}.amplitudes")  # fmt: skip
    bad(callee_name, name, [
        ("negative-nugget", replace(THETA, nugget=torch.tensor(-1.0).double()), "> 0 and finite",
         "-1.0"),
    ], named=f"{name}.nugget")  # fmt: skip
bad(
    "KrigingGP", "hyperparameters", [("variance", THETA, "must be given with noisy rows", "")],
    named="hyperparameters.variance", noise_var=torch.ones(9).double(),
)  # fmt: skip
two = "a pair"
for name in ("theta_range", "nugget_range"):
    bad("FitConfig", name, [
        ("number", 1.0, two), ("three", (1.0, 2.0, 3.0), two),
        ("texts", ("1", "2"), "a finite real number", "'1'"),
        ("reversed", (10.0, 1.0), ">= 10", "1.0"), ("zero", (0.0, 1.0), "> 0", "0.0"),
        ("nan", (NAN, 1.0), "a finite real number", "nan"),
    ])  # fmt: skip
for name in ("theta_prior", "nugget_prior"):
    bad("FitConfig", name, [
        ("number", 1.0, two), ("three", (1.0, 2.0, 3.0), two),
        ("texts", ("1", "2"), "a finite real number", "'1'"),
        ("zero-median", (0.0, 1.0), "> 0", "0.0"), ("zero-spread", (20.0, 0.0), "> 0", "0.0"),
        ("negative", (20.0, -1.0), "> 0", "-1.0"),
        ("nan", (NAN, 1.0), "a finite real number", "nan"),
        ("inf", (20.0, INF), "a finite real number", "inf"),
    ], nugget="fit")  # fmt: skip
for kind, nugget in (("none", None), ("number", 1e-6)):
    row = (f"of-nugget-{kind}", (0.01, 1.0), "None unless nugget is 'fit'", "(0.01, 1.0)")
    bad("FitConfig", "nugget_prior", [row], nugget=nugget)
for name in ("amplitude_spread", "weight_spread"):
    bad("FitConfig", name, reals(0, exclusive=True))
many = "a sequence of"
bad("FitConfig", "starts", [
    ("number", 1.0, many), ("text", "12", many), ("empty", (), "at least"),
    ("zero", (0.0,), "> 0", "0.0"), ("texts", ("1",), "a finite real number", "'1'"),
    ("inf", (INF,), "a finite real number", "inf"),
])  # fmt: skip
FITS = TrainingSet(X=X[None], y=Y1[None], noise_var=0 * Y1[None])
callee(
    "fit_best",
    fit_best,
    lambda: {"train": FITS, "configs": [FitConfig()], "trend": torch.tensor([False])},
    exempt={"train": "checked by itself", "trend": "a mask, in its annotation"},
)
bad("fit_best", "configs", [
    ("number", 1.0, many), ("none", None, many), ("empty", (), "at least"),
    ("texts", ("ard",), "a FitConfig", "'ard'"),
])  # fmt: skip
CRITERIA = ("cross-validation", "evidence", "leave-one-out")
bad("fit_best", "criterion", choices(CRITERIA, "evidense", "evidence"))
bad("fit_best", "init", [("too-many", [None, None], "one entry for each of the 1", "2")])
ONE = Hyperparameters(theta=torch.ones(1, 2).double())
callee("Candidate", Candidate, lambda: {"config": FitConfig(), "hyperparameters": ONE})
bad("Candidate", "config", objects("a FitConfig"))
bad("Candidate", "hyperparameters", objects("Hyperparameters"))
callee(
    "choose",
    choose,
    lambda: {
        "train": FITS,
        "candidates": [Candidate(config=FitConfig(), hyperparameters=ONE)],
        "trend": torch.tensor([False]),
    },
    exempt={
        "train": "checked by itself",
        "trend": "a mask, in its annotation",
        "is_space": "a mask, in its annotation",
    },
)
bad("choose", "score", choices(("density", "error"), "eror", "error"))
bad("choose", "candidates", [
    ("number", 1.0, many), ("none", None, many), ("empty", (), "at least"),
    ("configs", (FitConfig(),), "a Candidate", "FitConfig"),
])  # fmt: skip
bad("FitConfig", "options", objects("a BFGSOptions"))
bad("BFGSOptions", "max_evaluations", integers(1))
bad("BFGSOptions", "check_every", integers(1, optional=True))
for name in ("gradient_tolerance", "value_tolerance"):
    bad("BFGSOptions", name, reals(0))
bad("BFGSOptions", "max_step", reals(0, exclusive=True))

# ---------------------------------------------------------------- acquisition


def good_acquisition():
    model = ModelListGP(*(KrigingGP(X, Y1 * sign, THETA) for sign in (1, -1)))
    mean = torch.stack([Y1, -Y1], dim=-1)
    normalizer = AAFNormalizer.from_population(mean, mean.abs())
    ref_vector = torch.ones(2).double()
    return {
        "model": model, "ref_vector": ref_vector, "normalizer": normalizer, "alpha": 0.5,
        "theta": 1.0,
    }  # fmt: skip


AAF, EHVI = "AdaptiveAcquisition", "BiObjectiveEHVI"
callee(AAF, AdaptiveAcquisition, good_acquisition)
callee(
    EHVI, BiObjectiveEHVI,
    lambda: {"model": good_acquisition()["model"], "ref_point": torch.full((2,), 99.0).double()},
)  # fmt: skip
bad(AAF, "model", objects("a BoTorch model"))
bad(AAF, "ref_vector", arrays([1.0, 1.0]))
bad(AAF, "ref_vector", [
    ("three", [1.0, 1.0, 1.0], "shape (2,)", "shape (3,)"),
    ("negative", [1.0, -1.0], "finite entries >= 0, not all 0", "-1.0"),
    ("zero", [0.0, 0.0], "finite entries >= 0, not all 0", "[0.0, 0.0]"),
    ("nan", [1.0, NAN], "finite entries >= 0, not all 0", "nan"),
    ("inf", [1.0, INF], "finite entries >= 0, not all 0", "inf"),
])  # fmt: skip
bad(AAF, "normalizer", objects("an AAFNormalizer"))
bad(AAF, "alpha", reals(0, 1))
bad(AAF, "theta", reals(0))
bad(AAF, "uncertainty_sign", reals())
bad(AAF, "uncertainty_sign", [("half", 0.5, "-1 or 1"), ("zero", 0, "-1 or 1")])
bad(AAF, "exclusion_radius", reals(0))
bad(f"{AAF} {EHVI}", "X_pending", [
    ("list", [[0.5, 0.5]], "a tensor n x 2"), ("numpy", np.ones((1, 2)), "a tensor n x 2"),
    ("one-axis", torch.ones(2), "a tensor n x 2"), ("columns", torch.ones(1, 3), "a tensor n x 2"),
    ("nan", changed(X, NAN), "finite", "NaN"),
])  # fmt: skip

bad(EHVI, "model", objects("a BoTorch model"))
bad(EHVI, "model", [("one-output", KrigingGP(X, Y1, THETA), "2 outputs", "1")])
for name in ("ref_point", "lower_bound"):
    bad(EHVI, name, arrays([1.0, 1.0], optional=name == "lower_bound"))
    bad(EHVI, name, [
        ("three", [1.0, 1.0, 1.0], "shape (2,)", "shape (3,)"),
        ("nan", [1.0, NAN], "finite", "nan"),
        ("inf", [1.0, INF], "finite", "inf"),
    ])  # fmt: skip
bad(EHVI, "lower_bound", [("above-values", [0.0, 100.0], "must not lie above", "100.0")])
bad(EHVI, "Y", arrays([[1.0, 1.0]], optional=True))
bad(EHVI, "Y", [
    ("columns", torch.ones(1, 3), "shape (n, 2)"),
    ("empty", torch.ones(0, 2), "at least one row"),
    ("nan", [[1.0, NAN]], "finite", "nan"),
])  # fmt: skip
bad(EHVI, "log", booleans())

# ---------------------------------------------------------------- evolution

callee("RVEAConfig", RVEAConfig, dict)
bad("RVEAConfig", "n_generations", integers(0))
bad("RVEAConfig", "first_generation", integers(0))
bad("RVEAConfig", "penalty_generations", integers(1, optional=True))
bad("RVEAConfig", "alpha", reals(0))
bad("RVEAConfig", "penalty_factor", reals(0))
bad("RVEAConfig", "adaptation_frequency", reals(0, 1, exclusive=True))
bad("RVEAConfig", "each_once", booleans())
bad("RVEAConfig", "variation", objects("a Variation"))

callee("Variation", Variation, dict)
bad("Variation", "crossover_probability", reals(0, 1))
for index in ("crossover_index", "mutation_rate", "mutation_index"):
    bad("Variation", index, reals(0))
bad("Variation", "clip_before_mutation", booleans())

callee("simplex_lattice", simplex_lattice, lambda: {"n": 5})
bad("simplex_lattice", "n", integers(2))
bad("simplex_lattice", "m", integers(2))
bad("simplex_lattice", "dtype", dtypes())
bad("simplex_lattice", "device", [row for row in devices() if row[0] != "empty"])

SEEDS = torch.zeros(2, dtype=torch.int64)


def good_rvea():
    return {
        "evaluate": lambda X: X[..., :2], "X": torch.full((2, 6, 3), 0.5).double(),
        "alive": torch.ones(2, 6, dtype=torch.bool), "initial_vectors": simplex_lattice(4),
        "draws": Draws.make(SEEDS, "bad-input", 0, 2, 4, 3, torch.float64),
        "config": RVEAConfig(n_generations=2),
    }  # fmt: skip


callee("rvea", rvea, good_rvea)
bad("rvea", "evaluate", callables())
bad("rvea", "evaluate", [
    ("one-objective", lambda X: X[..., :1], "values of shape (2, 6, 2)", "shape (2, 6, 1)"),
    ("no-objectives", lambda X: X.sum(-1), "values of shape (2, 6, 2)", "shape (2, 6)"),
    ("numbers", lambda X: 3.0, "values of shape (2, 6, 2)", "3.0"),
])  # fmt: skip
bad("rvea", "X", [
    ("numpy", np.ones((2, 6, 3)), "a tensor b x n x d of floats"),
    ("none", None, "a tensor b x n x d of floats"),
    ("no-batch", torch.ones(6, 3), "a tensor b x n x d of floats"),
    ("integers", torch.ones(2, 6, 3).long(), "a tensor b x n x d of floats", "torch.int64"),
])  # fmt: skip
bad("rvea", "alive", [
    ("none", None, "a bool tensor of shape (2, 6)"),
    ("floats", torch.ones(2, 6), "a bool tensor of shape (2, 6)", "torch.float32"),
    ("too-few", torch.ones(2, 5) > 0, "a bool tensor of shape (2, 6)"),
])  # fmt: skip
bad("rvea", "initial_vectors", [
    ("list", [[0.5, 0.5]], "a tensor r x m of floats", "0.5"),
    ("one-axis", torch.ones(4), "a tensor r x m of floats"),
    ("integers", torch.ones(4, 2).long(), "a tensor r x m of floats", "torch.int64"),
])  # fmt: skip
bad("rvea", "draws", objects("Draws"))
few = {
    "generations": (1, 4, 3), "offspring": (2, 3, 3), "dimensions": (2, 4, 2)
}  # fmt: skip
bad("rvea", "draws", [
    (f"too-few-{what}", Draws.make(SEEDS, "bad-input", 0, g, n, d, torch.float64),
     "for 2 generations of 4 offspring in 3 dimensions", f"{g} of {n} in {d}")
    for what, (g, n, d) in few.items()
])  # fmt: skip
bad("rvea", "config", objects("a RVEAConfig"))
bad("rvea", "F", [
    ("list", [[0.5, 0.5]], "a tensor of shape (2, 6, 2)", "0.5"),
    ("one-objective", torch.ones(2, 6, 1), "a tensor of shape (2, 6, 2)"),
    ("integers", torch.ones(2, 6, 2).long(), "a tensor of shape (2, 6, 2)", "torch.int64"),
])  # fmt: skip
bad("rvea", "vectors", [
    ("list", [[0.5, 0.5]], "a tensor of shape (2, 4, 2)", "0.5"),
    ("no-batch", torch.ones(4, 2), "a tensor of shape (2, 4, 2)"),
])  # fmt: skip
bad("rvea", "grid", [
    ("list", [1.0, 1.0, 1.0], "a tensor of shape (3,)"),
    ("too-few", torch.ones(2), "a tensor of shape (3,)"),
])  # fmt: skip

# ---------------------------------------------------------------- metrics

FRONT = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
for name in ("igd", "normalized_hypervolume"):
    callee(f"metrics.{name}", getattr(tc.metrics, name), lambda: {"Y": FRONT, "front": FRONT})
    bad(f"metrics.{name}", "front", tensors(2))
    bad(f"metrics.{name}", "front", [
        ("other-columns", torch.ones(2, 3), "as many columns as Y", "(2, 3) and (2, 2)"),
        ("one-row", torch.ones(2), "a tensor n x m", "shape (2,)"),
        ("no-rows", FRONT[:0], "at least one row", "none"),
        ("nan", changed(FRONT, NAN), "finite", "nan in row 1, column 1"),
        ("inf", changed(FRONT, INF), "finite", "inf in row 1, column 1"),
    ])  # fmt: skip
callee("metrics.hypervolume", tc.metrics.hypervolume, lambda: {"Y": FRONT, "ref_point": FRONT[0]})
bad("metrics.hypervolume", "ref_point", [
    row if row[0] == "text" or row[1] is None else (row[0], row[1][0], *row[2:])
    for row in tensors(2)
])  # fmt: skip
bad("metrics.hypervolume", "ref_point", [
    ("three", torch.ones(3), "as many columns as Y", "(1, 3) and (2, 2)"),
    ("number", torch.tensor(1.0), "a tensor of shape (m,)", "shape ()"),
    ("matrix", FRONT, "a tensor of shape (m,)"),
    ("nan", changed(FRONT[0], NAN), "finite", "nan"),
    ("inf", changed(FRONT[0], INF), "finite", "inf"),
])  # fmt: skip
callee("metrics.is_non_dominated", tc.metrics.is_non_dominated, lambda: {"Y": FRONT})
for name in ("igd", "normalized_hypervolume", "hypervolume", "is_non_dominated"):
    bad(f"metrics.{name}", "Y", tensors(2))
    bad(f"metrics.{name}", "Y", [("one-row", torch.ones(2), "a tensor", "shape (2,)")])
