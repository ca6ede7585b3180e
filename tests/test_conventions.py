"""Public bug reports of neighbouring projects, as their users would meet them here.

Numbers are those of the project's list of reports.
"""

import copy
import gc
import json
import math
import os
import re
import resource
import shutil
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import cli
from tcsaea_torch.errors import InvalidInputError, ObjectiveError
from tcsaea_torch.events import Asked
from tcsaea_torch.evolution import Draws, RVEAConfig, rvea, simplex_lattice
from tcsaea_torch.models import FitConfig, fit_kriging
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.strategies import steps
from tcsaea_torch.study import Study
from tcsaea_torch.transfer.instance_selection import half_width, is_believed

NAN, INF = math.nan, math.inf
D = 3


def fast(x):
    return (x**2).sum(-1)


def slow(x):
    return ((x - 1) ** 2).sum(-1)


def toy(**changes):
    box = [[0.0] * D, [1.0] * D]
    return tc.Problem(**{"fast": fast, "slow": slow, "bounds": box, "tau": 5, **changes})


def quick(**changes):
    """TC-SAEA with a short search: these tests are about what happens, not how well."""
    fit = FitConfig(
        input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=10)
    )
    search = RVEAConfig(n_generations=4)
    return tc.TCSAEA(**{"kriging": fit, "search": search, "n_ref_vectors": 20, **changes})


def opt(problem=None, **options):
    problem = toy() if problem is None else problem
    return tc.Optimizer(problem, **{"n_slow": 12, "n_init": 6, "strategy": quick(), **options})


def points(n, seed=0):
    return np.random.default_rng(seed).random((n, D))


def tell_all(optimizer, evaluations):
    for e in evaluations:
        optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))


def finish(optimizer):
    """Run to the end and return the result."""
    while evaluations := optimizer.ask():
        assert all(np.isfinite(e.x).all() and inside(e.x, optimizer) for e in evaluations)
        tell_all(optimizer, evaluations)
    return optimizer.result()


def inside(x, optimizer):
    low, high = optimizer.problem.bounds.numpy()
    return bool(((x >= low) & (x <= high)).all())


def models_are_finite(optimizer):
    """Return whether the last fitted hyper-parameters, and what they led to, are finite."""
    state = [e for e in optimizer.events if isinstance(e, Asked)][-1].strategy_state
    tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
    assert "theta_slow" in state  # a model was fitted
    return all(bool(value.isfinite().all()) for value in tensors)


@pytest.fixture
def trained(monkeypatch):
    """The sizes of the training sets of each fit, by model."""
    sizes = []
    original = steps.fit_models

    def spy(sets, *arguments):
        sizes.append({name: int(train.n_live[0]) for name, train in sets.items()})
        return original(sets, *arguments)

    monkeypatch.setattr(steps, "fit_models", spy)
    return sizes


# ---------------------------------------------------------------- data


def test_01_objectives_with_different_numbers_of_observations(trained):
    X = points(21)
    rows = np.array([20, 11, 3, 17, 0, 8, 5])  # 6 of the first 20, in another order, and one more
    optimizer = opt()
    optimizer.attach(X[:20], fast=fast(X[:20]))
    optimizer.attach(X[rows], slow=slow(X[rows]))
    evaluations = optimizer.ask()
    assert trained == [{"fast": 20, "slow": 7, "co": 6}]
    assert evaluations
    tell_all(optimizer, evaluations)
    assert len(finish(optimizer).Y) == 6 + 12
    assert models_are_finite(optimizer)


def test_01_tables_of_different_files_at_the_start(trained):
    """One of them was rounded to six digits on its way."""
    X = points(21)
    rows = np.array([20, 11, 3, 17, 0, 8, 5])
    tables = [
        {"X": X[:20], "fast": fast(X[:20])},
        {"X": pd.DataFrame(X[rows].round(6)), "slow": slow(X[rows]), "tolerance": 1e-5},
    ]
    optimizer = opt(initial_data=tables)
    X[20] = X[20].round(6)  # the others stay exact
    assert torch.equal(optimizer.result().all_X, torch.tensor(X))
    tell_all(optimizer, optimizer.ask())
    assert trained[0] == {"fast": 20, "slow": 7, "co": 6}
    assert len(finish(optimizer).Y) == 6 + 12


@pytest.mark.parametrize("n_init", [1, 6])
def test_01_no_point_has_both_objectives(n_init):
    """The design provides the points in common, even if it is a single one."""
    X = points(27)
    optimizer = opt(n_init=n_init)
    optimizer.attach(X[:20], fast=fast(X[:20]))
    optimizer.attach(X[20:], slow=slow(X[20:]))
    assert len([e for e in optimizer.ask() if e.objective == "slow"]) == n_init
    tell_all(optimizer, optimizer.pending)
    assert len(finish(optimizer).Y) == 12


@pytest.mark.parametrize(
    "kind", ["numpy", "torch", "list", "objects", "frame", "missing", "na", "masked"]
)
def test_02_not_measured_written_as_nan_or_none(kind):
    X = points(12)
    Y = np.stack([fast(X), slow(X)], axis=-1)
    Y[::2, 1] = NAN
    gaps = [None if math.isnan(y) else y for y in Y[:, 1]]
    table = pd.DataFrame({"x": Y[:, 0], "y": Y[:, 1]})
    columns: Any = {
        "numpy": (X, Y[:, 0], Y[:, 1]),
        "torch": (torch.tensor(X), *torch.tensor(Y).T),
        "list": (X.tolist(), Y[:, 0].tolist(), gaps),
        "objects": (X, Y[:, 0], np.array(gaps, dtype=object)),
        "frame": (pd.DataFrame(X), table["x"], table["y"]),
        "missing": (pd.DataFrame(X), table["x"], pd.Series(gaps, dtype="Float64")),
        "na": (pd.DataFrame(X), table["x"], [pd.NA if y is None else y for y in gaps]),
        "masked": (X, Y[:, 0], np.ma.masked_invalid(Y[:, 1])),
    }[kind]
    optimizer = opt(n_init=6)
    optimizer.attach(*columns)
    before = optimizer.result()
    assert before.all_Y[:, 0].tolist() == Y[:, 0].tolist()
    assert before.all_Y[:, 1].isnan().tolist() == np.isnan(Y[:, 1]).tolist()
    result = finish(optimizer)
    assert models_are_finite(optimizer)
    assert len(result.Y) == 6 + 12
    assert result.pareto_Y.isfinite().all()
    assert math.isfinite(result.hypervolume([9.0, 9.0]))
    archive = optimizer.archive
    assert archive.Y.isfinite().all()


def test_02_nan_in_x_names_row_and_column():
    X = points(4)
    X[2, 1] = NAN
    for values in (X, torch.tensor(X), X.tolist(), pd.DataFrame(X)):
        with pytest.raises(ValueError, match="X must be finite, got nan in row 2, column 1"):
            opt().attach(values, fast=np.ones(4))


COPIES = np.array([0.0, 1e-9, 1e-12])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("y_differs", [False, True])
def test_09_near_duplicate_points(y_differs, dtype):
    base = torch.tensor(points(10))
    X = torch.cat([base + float(c) for c in COPIES]).to(dtype)
    y = slow(base).repeat(3)
    y = (y + torch.arange(30) % 7 * 0.1 * y_differs).to(dtype)
    posterior = fit_kriging(X, y).posterior(torch.cat([X, torch.tensor(points(50, 1)).to(dtype)]))
    assert posterior.mean.isfinite().all()
    assert posterior.variance.isfinite().all()
    assert (posterior.variance >= 0).all()
    optimizer = opt(dtype=dtype, n_slow=9, n_init=3)
    optimizer.attach(X, fast=fast(X), slow=y, tolerance=0)
    # Rows that are equal in this precision, values too, are one point told twice.
    n = len(torch.cat([X, y.unsqueeze(-1)], dim=-1).unique(dim=0))
    assert len(finish(optimizer).X) == n + 9
    assert models_are_finite(optimizer)


@pytest.mark.parametrize(
    ("n_values", "n_asks", "said"),  # the start comes first, if no point has both values
    [(0, 7, "are only 0 slow values"), (1, 3, "is only 1 slow value")],
)
def test_11_hardly_any_slow_value_at_the_first_fit(n_values, n_asks, said):
    X = points(15)
    values = slow(X)
    values[n_values:] = NAN
    optimizer = opt(n_init=1)
    optimizer.attach(X, fast=fast(X), slow=values)

    def ask_while_no_slow_value_works():
        for _ in range(n_asks):
            evaluations = optimizer.ask()
            assert evaluations
            assert all(np.isfinite(e.x).all() and inside(e.x, optimizer) for e in evaluations)
            for e in evaluations:
                if e.objective == "slow":
                    optimizer.fail(e.id, "diverged")
                else:
                    optimizer.tell(e.id, fast(e.x))

    with pytest.warns(UserWarning, match=f"^there {said}, too few .*: points are drawn") as seen:
        ask_while_no_slow_value_works()
    assert len(seen) == 1
    finish(optimizer)
    assert models_are_finite(optimizer)


def test_11_the_warning_is_of_a_run_not_of_all():
    for strategy in ("random", quick(), quick()):
        optimizer = opt(n_init=1, n_slow=4, strategy=strategy)
        if strategy == "random":
            finish(optimizer)
        else:
            with pytest.warns(UserWarning, match="only 1 slow value"):
                finish(optimizer)


def test_13_outliers_among_the_slow_values():
    X = points(20)
    far = np.argsort(((X - X.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))[-5:]
    values = 3.0 + 4.0 * slow(X)
    values[far] = 5e6  # a penalty, far from the Pareto set: the cube's diagonal
    optimizer = opt(n_slow=30, n_init=20, strategy=quick(search=RVEAConfig()))
    optimizer.attach(X, fast=fast(X), slow=values)
    proposed = np.stack([e.x for e in optimizer.ask() if e.objective == "slow"])
    assert np.isfinite(proposed).all()
    assert models_are_finite(optimizer)

    def distance(X):
        return np.sqrt(((X - X.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1))

    assert np.median(distance(proposed)) < np.median(distance(points(1000, 1)))


def test_13_infinity_is_an_error_that_points_to_fail():
    optimizer = opt()
    first = optimizer.ask()[0]
    with pytest.raises(ValueError, match=r"got inf .*by fail\(id, reason\)"):
        optimizer.tell(first.id, INF)
    with pytest.raises(ValueError, match="slow must not be infinite, got inf at 1"):
        optimizer.attach(points(2), slow=[1.0, INF])


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1, 0, r"lower <= upper, got \(1.0, 0.0\) in dimension 2"),
        (NAN, 1, r"finite, got \(nan, 1.0\) in dimension 2"),
        (0, INF, r"finite, got \(0.0, inf\) in dimension 2"),
    ],
)
def test_14_reversed_nan_and_infinite_bounds(low, high, message):
    with pytest.raises(ValueError, match="bounds must (be|have) " + message):
        toy(bounds=[[0, 0, low], [1, 1, high]])


@pytest.mark.parametrize("strategy", [quick(), quick(trend_fast="linear"), "random"])
def test_14_equal_bounds_fix_a_parameter(strategy):
    optimizer = opt(toy(bounds=[[0, 0, 0.5], [1, 1, 0.5]]), strategy=strategy)
    result = finish(optimizer)
    assert len(result.X) == 12
    assert (result.X[:, 2] == 0.5).all()
    assert len(result.X.unique(dim=0)) == 12


def test_15_existing_data_outside_the_box(trained):
    X = points(12)
    X[4, 0] = 1.2
    optimizer = opt()
    with pytest.warns(UserWarning, match="1 of 12 attached points lie outside the bounds") as seen:
        optimizer.attach(X, fast=fast(X), slow=slow(X))
    assert len(seen) == 1
    assert optimizer.result().X.tolist() == X.tolist()  # not clipped
    tell_all(optimizer, optimizer.ask())
    assert trained[0] == {"fast": 12, "slow": 12, "co": 12}  # and used
    finish(optimizer)


# ---------------------------------------------------------------- devices and memory


def test_17_values_from_everywhere(device):
    kinds = [
        lambda y: np.float32(y),
        lambda y: torch.tensor(y, dtype=torch.float64),
        lambda y: torch.tensor([y], dtype=torch.float32, device=device),
        lambda y: float(y),
        lambda y: np.array([[y]]),
        lambda y: torch.tensor(y, requires_grad=True),
    ]
    optimizer = opt(device=device)
    while evaluations := optimizer.ask():
        for e in evaluations:
            assert type(e.x) is np.ndarray
            assert e.x.dtype == np.float64
            value = optimizer.problem.function_of(e.objective)(e.x)
            optimizer.tell(e.id, kinds[e.id % len(kinds)](value))
    result = optimizer.result()
    for tensor in (result.X, result.Y, result.pareto_X, result.pareto_Y, result.ref_point):
        assert isinstance(tensor, torch.Tensor)
        assert tensor.dtype == torch.float64
        assert tensor.device.type == "cpu"
    assert optimizer.archive.X.device.type == device.type


def test_17_attached_data_from_everywhere(device):
    X = points(6)
    optimizer = opt(device=device)
    for k, kind in enumerate((
        lambda a: a.astype(np.float32), lambda a: torch.tensor(a), lambda a: a.tolist(),
        lambda a: torch.tensor(a, dtype=torch.float32, device=device),
        lambda a: torch.tensor(a, requires_grad=True),
    )):  # fmt: skip
        row = X[k : k + 1]
        optimizer.attach(kind(row), fast=kind(fast(row)), slow=kind(slow(row)))
    assert len(finish(optimizer).X) == 5 + 12


def test_18_memory_does_not_grow(device):
    X = torch.tensor(points(25), device=device)
    vectors = simplex_lattice(20, device=device)
    config, alive = RVEAConfig(n_generations=3), torch.ones(1, 25, dtype=torch.bool, device=device)
    fit = FitConfig(starts=(2.0,), options=BFGSOptions(max_evaluations=5))
    seeds = torch.zeros(1, dtype=torch.int64, device=device)

    def memory():
        gc.collect()
        tensors = sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())
        if device.type == "cuda":
            return tensors, torch.cuda.memory_allocated()
        return tensors, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    seen = []
    for i in range(60):
        models = [fit_kriging(X, f(X), config=fit) for f in (fast, slow)]

        def evaluate(Z, models=models):
            return torch.stack([gp.posterior(Z).mean.squeeze(-1) for gp in models], dim=-1)

        draws = Draws.make(seeds, "memory", i, 3, 20, D, X.dtype)
        population, _ = rvea(evaluate, X.unsqueeze(0), alive, vectors, draws, config)
        assert population.F.grad_fn is None
        if i in (19, 59):
            seen.append(memory())
    (tensors, before), (more_tensors, after) = seen
    assert more_tensors <= tensors
    assert after - before < 2**24


def test_18_what_is_kept_has_no_graph():
    optimizer = opt()
    while evaluations := optimizer.ask():
        for e in evaluations:
            x = torch.tensor(e.x, requires_grad=True)
            optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(x))
    optimizer.attach(torch.tensor(points(2), requires_grad=True))
    kept = [optimizer.archive.X, optimizer.archive.Y, optimizer.result().X]
    for event in optimizer.events:
        if isinstance(event, Asked):
            kept += [v for v in event.strategy_state.values() if isinstance(v, torch.Tensor)]
    assert all(tensor.grad_fn is None and not tensor.requires_grad for tensor in kept)


# ---------------------------------------------------------------- workers


@pytest.mark.parametrize("stage", ["soea", "periods"])
def test_05_workers_get_work_while_a_slow_job_never_returns(stage):
    optimizer = opt(n_slow=20, n_init=14, strategy=quick(asynchronous=True))
    begun = optimizer.ask()
    lost = next(e for e in begun if e.objective == "slow")
    tell_all(optimizer, [e for e in begun if e.id != lost.id])
    if stage == "periods":  # from here on, surrogates search
        begun += optimizer.ask(n_fast=1, n_slow=1)
        tell_all(optimizer, begun[-2:])
    seen = {tuple(e.x) for e in begun}
    assert len(seen) == len(begun) / 2

    def asks_for_one(**wanted):
        evaluations = optimizer.ask(**wanted)
        (x,) = {tuple(e.x) for e in evaluations}
        assert x not in seen
        seen.add(x)
        tell_all(optimizer, evaluations)
        n_fast, n_slow = optimizer.n_used
        assert n_fast <= 5 * n_slow
        return sorted(str(e.objective) for e in evaluations)

    for _ in range(50):
        assert asks_for_one(n_fast=1) == ["fast"]
    assert [e.id for e in optimizer.pending] == [lost.id]

    while (action := optimizer.next_action()).n_fast:
        assert asks_for_one(n_fast=1) == ["fast"]
    n_fast, n_slow = optimizer.n_used
    assert n_fast == 5 * n_slow  # all that the slow evaluations so far have released
    assert (action.kind, action.n_slow) == ("ask", 20 - n_slow)
    assert optimizer.ask(n_fast=1) == []
    assert asks_for_one(n_fast=1, n_slow=1) == ["fast", "slow"]  # which releases more
    assert asks_for_one(n_fast=1) == ["fast"]


def test_05_no_limit_of_parallel_evaluations_but_the_budget():
    optimizer = opt(toy(tau=2), n_slow=60, n_init=4, strategy=quick(asynchronous=True))
    design = optimizer.ask()
    tell_all(optimizer, design[:-2])
    evaluations = optimizer.ask(n_fast=1000, n_slow=50)
    assert len([e for e in evaluations if e.objective == "slow"]) == 50
    assert len({tuple(e.x) for e in [*design, *evaluations]}) == len(optimizer.result().all_X)
    evaluations += optimizer.ask(n_fast=1000, n_slow=1000)
    while more := optimizer.ask(n_fast=1000, n_slow=1000):
        evaluations += more
    assert optimizer.n_used == optimizer.n_total == (120, 60)
    assert len(optimizer.pending) == 2 + len(evaluations)
    assert optimizer.next_action().kind == "wait"
    tell_all(optimizer, optimizer.pending)
    assert optimizer.next_action().kind == "stop"
    assert optimizer.result().status == "finished"


# ---------------------------------------------------------------- surrogates


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 5000])
def test_23_predictions_exactly_at_training_points(batch, dtype):
    X = torch.tensor(points(20)).to(dtype)
    y = slow(X)
    model = fit_kriging(X, y).surrogate
    mean, variance = model.predict(X[torch.arange(batch) % 20].unsqueeze(-2))
    assert mean.isfinite().all()
    assert variance.isfinite().all()
    assert (variance >= 0).all()
    for kind in ("sd", "variance"):
        width = half_width(variance, kind)
        assert width.isfinite().all()
        assert (width >= 0).all()
        assert is_believed(mean, mean, width).all()
    both = torch.stack([mean, mean], dim=-1).squeeze(1), torch.stack([variance] * 2, -1).squeeze(1)
    normalizer = tc.acquisition.AAFNormalizer.from_population(*both)
    weight = tc.acquisition.adaptive_weight(torch.tensor(5.0), torch.tensor(9.0)).to(dtype)
    for sign in (-1.0, 1.0):
        value = tc.acquisition.adaptive_acquisition(*both, normalizer, weight, sign=sign)
        assert value.isfinite().all()


@pytest.mark.parametrize("p", [1, 1.5, 1.99, 2.0, "shared", "ard"])
def test_24_kernel_gradient_at_zero_distance(p):
    """The full suite is `tests/contracts/test_kernels.py`."""
    gradients = []
    for _ in range(10):
        kernel = tc.kernels.PowerExponentialKernel(ard_num_dims=D, p=p).double()
        x = torch.full((1, D), 0.3, dtype=torch.float64, requires_grad=True)
        kernel(x, x).to_dense().sum().backward()
        parts = [x.grad, *(parameter.grad for parameter in kernel.parameters())]
        gradients.append(torch.cat([g.flatten() for g in parts if g is not None]))
        assert len(gradients[-1]) == D + sum(q.numel() for q in kernel.parameters())
    assert gradients[0].isfinite().all()
    assert all(torch.equal(g, gradients[0]) for g in gradients)


def test_a_prediction_does_not_depend_on_the_others_in_the_call():
    X, Z = torch.tensor(points(15)), torch.tensor(points(40, 1))
    gp = fit_kriging(X, slow(X), p="ard")
    together, alone = gp.posterior(Z), [gp.posterior(z.unsqueeze(0)) for z in Z]
    # Variances are differences of numbers of the size of y's variance: that is what is rounded.
    for name, atol in (("mean", 1e-12), ("variance", 1e-11)):
        rows = torch.cat([getattr(posterior, name) for posterior in alone])
        torch.testing.assert_close(getattr(together, name), rows, rtol=1e-9, atol=atol)


def test_a_model_can_be_copied_after_a_prediction_with_gradients():
    X = torch.tensor(points(15))
    gp = fit_kriging(X, slow(X))
    Z = torch.tensor(points(4, 1), requires_grad=True)
    expected = gp.posterior(Z).mean
    expected.sum().backward()
    copied = copy.deepcopy(gp)
    assert torch.equal(copied.posterior(Z).mean, expected)


# ---------------------------------------------------------------- durable runs


def test_07_the_seed_survives_and_the_next_ask_is_no_repeat(tmp_path):
    def asks(optimizer, n):
        found = []
        for _ in range(n):
            evaluations = optimizer.ask()
            found.append(np.stack([e.x for e in evaluations]))
            tell_all(optimizer, evaluations)
        return found

    whole = asks(opt(n_slow=20, seed=42), 4)
    with opt(n_slow=20, seed=42, journal=tmp_path / "study.db") as optimizer:
        before = asks(optimizer, 3)
    with tc.Optimizer.resume(tmp_path / "study.db", toy()) as resumed:
        assert resumed.seed == 42
        (after,) = asks(resumed, 1)
    for a, b in zip([*before, after], whole, strict=True):
        assert np.array_equal(a, b)
    assert len(np.unique(np.concatenate(whole[::3]), axis=0)) == len(
        np.unique(whole[0], axis=0)
    ) + len(np.unique(after, axis=0))


def test_19_killed_while_writing(tmp_path):
    """A half-written transaction, as a kill leaves it, is undone. More: `tests.crashes`."""
    path = tmp_path / "study.db"
    optimizer = opt(journal=path)
    evaluations = optimizer.ask()
    tell_all(optimizer, evaluations[:3])
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA cache_size=1")  # it writes to the file before it commits
    writer.execute("BEGIN")
    writer.execute("UPDATE head SET n_events=99")
    writer.execute("CREATE TABLE half (content BLOB)")
    for _ in range(50):
        writer.execute("INSERT INTO half VALUES (zeroblob(5000))")
    for name in ("study.db", "study.db-journal"):  # what is on the disk at this moment
        assert (tmp_path / name).stat().st_size > 0
        shutil.copy(tmp_path / name, tmp_path / f"killed-{name.removeprefix('study')}")
    writer.close()
    (tmp_path / "killed-.db").rename(tmp_path / "killed.db")
    (tmp_path / "killed-.db-journal").rename(tmp_path / "killed.db-journal")
    optimizer.close()
    assert (tmp_path / "killed.db").stat().st_size > path.stat().st_size
    study = Study.read(tmp_path / "killed.db", thoroughly=True)
    assert [type(e).__name__ for e in study.events] == ["Asked", "Told", "Told", "Told"]
    assert not (tmp_path / "killed.db-journal").exists()


def test_20_pending_failed_and_not_measured_stay_apart(tmp_path):
    path, X = tmp_path / "study.db", points(2)
    with opt(journal=path) as optimizer:
        optimizer.attach(X, fast=[NAN, -0.0], slow=[5e-324, None])
        evaluations = optimizer.ask()
        optimizer.tell(evaluations[0].id, 1.7976931348623157e308)
        with pytest.raises(InvalidInputError, match="report a failed evaluation by fail"):
            optimizer.tell(evaluations[1].id, INF)
        optimizer.fail(evaluations[1].id, "inf")
        before = optimizer.result()
    with tc.Optimizer.resume(path, toy()) as resumed:
        after = resumed.result()
        assert [repr(r) for r in after.history] == [repr(r) for r in before.history]
        assert [r.status for r in after.history[:3]] == ["done", "failed", "pending"]
        assert [e.id for e in resumed.pending] == [e.id for e in evaluations[2:]]
        assert after.all_Y.numpy().tobytes() == before.all_Y.numpy().tobytes()
        assert after.all_Y[0].tolist()[1] == 5e-324
        assert math.copysign(1, after.all_Y[1, 0]) == -1

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    assert cli.main(["export", str(path), "--json", str(tmp_path / "study.json")]) == 0
    content = json.loads((tmp_path / "study.json").read_text(), parse_constant=refuse)
    assert [e["status"] for e in content["evaluations"][:3]] == ["done", "failed", "pending"]
    assert [e["value"] for e in content["evaluations"][:3]] == [1.7976931348623157e308, None, None]


def test_21_a_study_of_another_device_is_loaded_here(tmp_path, device):
    """Nothing is unpickled; the fitted models are the same to the last bit."""
    path = tmp_path / "study.db"
    with opt(n_slow=16, device=device, journal=path) as optimizer:
        while "theta_slow" not in optimizer._state.strategy_state:  # until models are fitted
            tell_all(optimizer, optimizer.ask())
        state = optimizer._state.strategy_state
    for place in ("cpu", device):
        with tc.Optimizer.resume(path, toy(), device=place) as resumed:
            loaded = resumed._state.strategy_state
            assert loaded.keys() == state.keys()
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    assert loaded[key].device.type == torch.device(place).type
                    assert torch.equal(loaded[key].cpu(), value.cpu())
                else:
                    assert loaded[key] == value


def test_a_run_with_workers_writes_its_journal(tmp_path):
    """Also while evaluations are under way."""
    path, sizes = tmp_path / "study.db", []

    def callback(optimizer, event):
        sizes.append(len(Study.read(path).events) == len(optimizer.events))

    with ThreadPoolExecutor(3) as pool:
        tc.minimize(
            toy(), n_slow=8, n_init=6, strategy=quick(), progress=False, executor=pool,
            journal=path, callbacks=[callback],
        )  # fmt: skip
    assert len(sizes) >= 16
    assert all(sizes)


# ---------------------------------------------------------------- search


def test_26_one_of_a_batch_that_collapses_does_not_disturb_the_others(device):
    """The full suite is `tests/evolution/test_rvea.py`."""
    b, n, r = 8, 20, 12
    X = torch.tensor(np.random.default_rng(0).random((b, n, D)), device=device)
    X[3] = 0.5  # all in one place, and only one of them alive
    alive = torch.ones(b, n, dtype=torch.bool, device=device)
    alive[3, 1:] = False
    seeds = torch.arange(b, device=device)
    vectors, config = simplex_lattice(r, device=device), RVEAConfig(n_generations=5)

    def evaluate(Z):
        return torch.stack([fast(Z), slow(Z)], dim=-1)

    def search(i):
        draws = Draws.make(seeds[i], "batch", 0, 5, r, D, X.dtype)
        return rvea(evaluate, X[i], alive[i], vectors, draws, config)

    together, adapted = search(slice(0, b))
    assert together.alive.any(dim=-1).all()
    assert together.F[together.alive].isfinite().all()
    for i in range(b):
        alone, own = search(slice(i, i + 1))
        assert torch.equal(alone.alive[0], together.alive[i])
        living = alone.alive[0]
        torch.testing.assert_close(alone.X[0, living], together.X[i, living], rtol=0, atol=1e-12)
        torch.testing.assert_close(own[0], adapted[i], rtol=0, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_26_a_generation_does_not_wait_for_the_device():
    X = torch.rand(4, 20, D, device="cuda", dtype=torch.float64, generator=None)
    alive = torch.ones(4, 20, dtype=torch.bool, device="cuda")
    vectors, config = simplex_lattice(12).cuda(), RVEAConfig(n_generations=3)
    draws = Draws.make(torch.arange(4, device="cuda"), "sync", 0, 3, 12, D, X.dtype)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rvea(lambda Z: torch.stack([fast(Z), slow(Z)], -1), X, alive, vectors, draws, config)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("integers", [(), (0, 1, 2)])
def test_27_the_archive_is_the_pareto_set_already(integers):
    """Up to five points a round, all of them new, until the budget is spent."""
    problem = toy(tau=1, integers=integers, bounds=[[0] * D, [4] * D])
    X = np.linspace(0, 4 if integers else 1, 5 if integers else 100)[:, None].repeat(D, axis=1)
    seen = {tuple(x) for x in X}
    optimizer = opt(problem, n_slow=100, n_init=5, strategy=quick(n_new=5))
    optimizer.attach(X, fast=fast(X), slow=slow(X))
    while evaluations := optimizer.ask():
        new = {tuple(e.x) for e in evaluations}
        assert 2 * len(new) == len(evaluations)
        assert len(new) <= 5
        assert not new & seen
        seen |= new
        tell_all(optimizer, evaluations)
    assert optimizer.result().status == "finished"
    assert len(seen) == len(X) + 100


def test_27_an_exhausted_space_says_so():
    problem = toy(tau=1, integers=(0, 1, 2), bounds=[[0] * D, [1] * D])
    result = finish(opt(problem, n_slow=20, n_init=3))
    assert result.status == "exhausted"
    assert "nothing more to propose" in result.message
    assert len(result.X) == 8  # each corner once


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n_slow", "tau"), [(40, 5), (37, 2.5)])
def test_28_budgets_are_exact_with_failures(seed, n_slow, tau):
    optimizer = opt(toy(tau=tau), n_slow=n_slow, n_init=30, seed=seed)
    asked = {"fast": 0, "slow": 0}
    while evaluations := optimizer.ask():
        for e in evaluations:
            asked[e.objective] += 1
            if (e.id + seed) % 11 == 0:
                optimizer.fail(e.id, "diverged", retry=e.id % 2 == 0)
            else:
                optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
    result = optimizer.result()
    assert (result.n_fast, result.n_slow) == (asked["fast"], asked["slow"])
    assert result.n_slow == n_slow
    assert n_slow <= result.n_fast <= int(tau * n_slow)
    assert result.status == "finished"


def test_30_a_maximised_objective_keeps_its_sign():
    def results():
        for sign in (1.0, -1.0):
            problem = toy(
                slow=lambda x, sign=sign: sign * slow(x),
                directions=("minimize", "minimize" if sign > 0 else "maximize"),
            )
            yield finish(opt(problem, n_slow=10))

    plain, flipped = results()
    assert torch.equal(plain.X, flipped.X)
    signs = torch.tensor([1.0, -1.0]).double()
    assert torch.equal(plain.Y * signs, flipped.Y)
    assert torch.equal(plain.pareto_Y * signs, flipped.pareto_Y)
    assert flipped.ref_point is not None
    assert torch.equal(plain.ref_point * signs, flipped.ref_point)  # pyright: ignore
    assert plain.hypervolume() == flipped.hypervolume()
    for a, b in zip(plain.history, flipped.history, strict=True):
        assert a.value * (-1.0 if a.objective == "slow" else 1.0) == b.value
    table = flipped.to_dataframe()
    assert (table["slow"].dropna().to_numpy() <= 0).all()
    assert torch.equal(
        torch.tensor(table["on_front"]), torch.tensor(plain.to_dataframe()["on_front"])
    )
    drawn = np.concatenate([line.get_ydata() for line in flipped.plot(figure_axes()).lines])
    assert (drawn <= 0).all()


def figure_axes():
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def numpy_state():
    """Return the numbers of numpy's global generator."""
    state: Any = np.random.get_state()  # noqa: NPY002
    return state[1].copy()


def test_31_global_random_numbers_neither_matter_nor_change():
    def run(disturb):
        optimizer, proposed = opt(n_slow=10), []
        while evaluations := optimizer.ask():
            proposed += [e.x for e in evaluations]
            before = torch.get_rng_state(), numpy_state()
            tell_all(optimizer, evaluations)
            optimizer.result()
            assert torch.equal(torch.get_rng_state(), before[0])
            assert (numpy_state() == before[1]).all()
            if disturb:
                torch.rand(3)
                np.random.rand(5)  # noqa: NPY002
        return np.stack(proposed)

    with torch.random.fork_rng():
        assert np.array_equal(run(disturb=False), run(disturb=True))


def ask_seconds(n):
    """Return the seconds of one ask of a run that has n points."""
    optimizer = opt(n_slow=n + 10, n_init=min(n, 100), strategy=tc.TCSAEA())
    X = points(n)
    optimizer.attach(X, fast=fast(X), slow=slow(X))
    start = time.perf_counter()
    assert optimizer.ask()
    return time.perf_counter() - start


def test_32_the_number_of_threads_is_left_alone():
    before = torch.get_num_threads(), torch.get_num_interop_threads()
    tc.minimize(toy(), n_slow=8, n_init=6, strategy=quick(), progress=False)
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 1000])
def test_32_default_threads_are_not_much_slower_than_one(n):
    if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
        pytest.skip("threads wait for each other on a busy machine, however few they are")
    before = torch.get_num_threads()
    ask_seconds(n)
    try:
        torch.set_num_threads(1)
        one = min(ask_seconds(n) for _ in range(3))
        torch.set_num_threads(max(2, before))
        several = min(ask_seconds(n) for _ in range(3))
    finally:
        torch.set_num_threads(before)
    assert several < 2 * one


# ---------------------------------------------------------------- the further small ones


def test_vectors_and_columns_mean_the_same():
    X = points(6)
    runs = []
    for shape in ((6,), (6, 1)):
        optimizer = opt()
        optimizer.attach(X, fast=fast(X).reshape(shape), slow=slow(X).reshape(shape))
        runs.append(finish(optimizer).all_Y)
    assert torch.equal(runs[0].nan_to_num(-1), runs[1].nan_to_num(-1))
    results = [
        tc.minimize(
            toy(fast=lambda X, end=end: fast(X).reshape(end), slow=slow, vectorized=True),
            n_slow=8, n_init=6, strategy=quick(), progress=False,
        )
        for end in ((-1,), (-1, 1))
    ]  # fmt: skip
    assert torch.equal(*(result.all_Y.nan_to_num(-1) for result in results))


def test_more_data_at_once_than_the_initial_design():
    X = points(50)
    optimizer = opt(n_init=4)
    optimizer.attach(X, fast=fast(X), slow=slow(X))
    result = finish(optimizer)
    assert len(result.X) == 50 + 12
    assert result.n_slow == 12


def test_an_objective_that_never_works_is_named_with_its_reason():
    def broken(x):
        raise RuntimeError("mesh is tangled")

    message = "all 6 evaluations of the slow objective failed.*mesh is tangled"
    with pytest.raises(ObjectiveError, match=re.compile(message, re.DOTALL)):
        tc.minimize(toy(slow=broken), n_slow=16, n_init=6, strategy=quick(), progress=False)


@pytest.mark.parametrize("progress", [True, False])
def test_a_progress_bar_is_there_if_wanted_and_only_then(progress, capfd):
    tc.minimize(toy(), n_slow=8, n_init=6, strategy="random", progress=progress)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("8/8" in err) if progress else err == ""


def test_bad_input_is_a_value_error_and_the_packages_own():
    with pytest.raises(ValueError, match="tau must be") as caught:
        toy(tau=0)
    assert isinstance(caught.value, InvalidInputError)
