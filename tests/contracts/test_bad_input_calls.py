"""Bad input in calls: what a refusal leaves behind, bad objectives, strategies and options."""

import argparse
import contextlib
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch import cli
from tcsaea_torch.errors import ObjectiveError, ProtocolError, TcsaeaError
from tcsaea_torch.evolution import RVEAConfig, Variation
from tcsaea_torch.strategies import Proposal
from tests.contracts import bad_input_runs as runs
from tests.contracts.bad_input import CALLEES, INF, NAN
from tests.test_cli_run_refusals import BAD_OPTIONS

# ---------------------------------------------------------------- what a refusal leaves behind

CALLS = [
    row
    for name, callee in CALLEES.items()
    for row in callee.rows
    if name.startswith("Optimizer.") and name != "Optimizer.resume"  # it makes one
]


def snapshot(optimizer):
    """Return all that a call could change, comparable by `==`."""
    result = optimizer.result()
    archive = optimizer.archive
    return (
        [id(event) for event in optimizer.events],
        [vars(record) for record in result.history if record.ended_at == record.ended_at],
        [(e.id, e.point_id, e.objective, e.x.tolist()) for e in optimizer.pending],
        optimizer.waits_for, optimizer.n_used, optimizer.is_done, str(optimizer.ref_point),
        archive.X.tolist(), archive.Y.tolist(), archive.observed.tolist(), result.message,
    )  # fmt: skip


@pytest.mark.parametrize("row", CALLS, ids=lambda row: row.id)
@pytest.mark.usefixtures("unchecked")
def test_a_refused_call_changes_nothing(row):
    optimizer = runs.optimizer()
    method = getattr(optimizer, row.callee.split(".")[1])
    before = snapshot(optimizer)
    arguments = {**CALLEES[row.callee].good(), **row.others, row.parameter: row.value}
    with pytest.raises(row.error):
        method(**arguments)
    assert snapshot(optimizer) == before


def test_the_snapshot_sees_what_calls_change():
    optimizer = runs.optimizer()
    states = [snapshot(optimizer)]
    optimizer.tell(2, 1.0)
    states.append(snapshot(optimizer))
    optimizer.fail(3, "diverged")
    states.append(snapshot(optimizer))
    optimizer.attach(runs.X2, fast=[1.0, 2.0])
    states.append(snapshot(optimizer))
    assert all(a != b for a, b in pairwise(states))


# ---------------------------------------------------------------- objectives


def paraboloid(x):
    return (x**2).sum(-1)


def explode(x):
    raise ZeroDivisionError("the solver diverged")


WRONG = {
    "text": (lambda x: "1.0", "must be one real number, got '1.0' (str)"),
    "none": (lambda x: None, "must be one real number, got None (NoneType)"),
    "bool": (lambda x: True, "must be one real number, got True (bool)"),
    "complex": (lambda x: 1j, "must be one real number, got 1j (complex)"),
    "nan": (lambda x: NAN, "must be a finite real number, got nan (float)"),
    "inf": (lambda x: INF, "must be a finite real number, got inf (float)"),
    "list": (lambda x: [1.0], "must be one real number, got [1.0] (list)"),
    "two": (lambda x: x[:2], "must be one real number, got ndarray of shape (2,)"),
    "two-axes": (lambda x: np.ones((2, 2)), "must be one real number, got ndarray of shape (2, 2)"),
    "nothing": (lambda x: x[:0], "must be one real number, got ndarray of shape (0,)"),
    "tensor": (lambda x: torch.ones(3), "must be one real number, got a tensor of shape (3,)"),
    "raises": (explode, "ZeroDivisionError: the solver diverged"),
}
NEVER = {**WRONG, "signature": (lambda: 1.0, "takes 0 positional arguments but 1 was given")}
ALL_WRONG = {
    "text": (lambda X: "1.0", "must return 1 numbers for 1 points, got '1.0' (str)"),
    "none": (lambda X: None, "must return 1 numbers for 1 points, got None (NoneType)"),
    "bool": (lambda X: X[:, 0] > 0, "must return 1 numbers for 1 points, got a tensor"),
    "list-of-bool": (lambda X: [True] * len(X), "must return 1 numbers for 1 points, got [True]"),
    "complex": (lambda X: X[:, 0] * 1j, "must return 1 numbers for 1 points, got a tensor"),
    "one-value-too-many": (
        lambda X: torch.ones(len(X) + 1),
        "must return 1 values for 1 points, got shape (2,)",
    ),
    "number": (lambda X: 1.0, "must return 1 values for 1 points, got shape ()"),
    "two-columns": (lambda X: X[:, :2], "must return 1 values for 1 points, got shape (1, 2)"),
    "three-axes": (lambda X: X[None], "must return 1 values for 1 points, got shape (1, 1, 3)"),
    "nan": (lambda X: X[:, 0] * NAN, "must be a finite real number, got nan (float)"),
    "inf": (lambda X: X[:, 0] + INF, "must be a finite real number, got inf (float)"),
    "raises": (explode, "ZeroDivisionError: the solver diverged"),
}


@pytest.mark.parametrize("objective", ["fast", "slow"])
@pytest.mark.parametrize(
    ("vectorized", "kind"), [(False, k) for k in WRONG] + [(True, k) for k in ALL_WRONG]
)
def test_what_an_objective_gives_wrongly_is_a_failure_that_says_so(objective, vectorized, kind):
    """Once in a while; the run goes on, and the failure's reason is in the history."""
    function, reason = (ALL_WRONG if vectorized else WRONG)[kind]
    n_calls = 0

    def sometimes(x):
        nonlocal n_calls
        n_calls += 1
        # The design is one call of a vectorised function; later calls are of single points.
        return function(x) if n_calls == 2 else paraboloid(x)

    functions = {"fast": paraboloid, "slow": paraboloid, objective: sometimes}
    strategy: Any = OneByOne() if vectorized else "random"
    result = tc.minimize(
        runs.problem(**functions, vectorized=vectorized, tau=1), n_slow=6, n_init=4,
        strategy=strategy, progress=False,
    )  # fmt: skip
    assert result.status == "finished"
    assert (result.n_fast, result.n_slow) == (6, 6)
    failed = [r for r in result.history if r.status == "failed"]
    assert [r.objective for r in failed] == [objective]
    assert reason in failed[0].reason
    assert len(result.Y) == 5
    assert result.Y.isfinite().all()


class OneByOne:
    """Four points, then one at a time."""

    name = "one-by-one"

    def init(self, run):
        return {"n": 0}

    def propose(self, state, run):
        if bool(run.pending.any()):
            return Proposal.nothing(run, run.pending), state
        n = min(4 if state["n"] == 0 else 1, int(run.left.amin()))
        X = torch.rand(1, n, run.d, generator=torch.Generator().manual_seed(state["n"]))
        mask = torch.ones(1, n, 2, dtype=torch.bool)
        return Proposal(X=X.double(), evaluation_mask=mask), {"n": state["n"] + n}


@pytest.mark.parametrize("objective", ["fast", "slow"])
@pytest.mark.parametrize("kind", NEVER)
def test_an_objective_that_never_works_ends_the_run_with_its_reason(objective, kind):
    function, reason = NEVER[kind]
    with pytest.raises(ObjectiveError) as caught:
        tc.minimize(
            runs.problem(**{objective: function}), n_slow=6, n_init=4, strategy="random",
            progress=False,
        )  # fmt: skip
    message = str(caught.value)
    assert f"evaluations of the {objective} objective failed" in message
    assert reason in message


# ---------------------------------------------------------------- strategies of users


def changed(**fields):
    """Return a strategy whose proposals have some fields replaced."""

    class Broken(OneByOne):
        def propose(self, state, run):
            proposal, state = super().propose(state, run)
            new = {name: change(getattr(proposal, name)) for name, change in fields.items()}
            return replace(proposal, **new), state

    return Broken()


class NoProposal(OneByOne):
    def propose(self, state, run):
        return None, state


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (changed(X=lambda X: X * NAN), "points of the unit cube"),
        (changed(X=lambda X: X + 1), "points of the unit cube"),
        (changed(X=lambda X: X - 1), "points of the unit cube"),
        (changed(X=lambda X: X[..., :2]), r"X of shape \(1, q, 3\).*got \(1, 4, 2\)"),
        (changed(X=lambda X: X[0]), r"X of shape \(1, q, 3\).*got \(4, 3\)"),
        (changed(evaluation_mask=lambda mask: mask[..., :1]), r"got .* and \(1, 4, 1\)"),
        (changed(evaluation_mask=lambda mask: mask[:, 1:]), r"got .* and \(1, 3, 2\)"),
        (NoProposal(), "a Proposal, got None"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_broken_proposals_are_refused_before_anything_is_recorded(strategy, message):
    optimizer = tc.Optimizer(runs.problem(), n_slow=6, n_init=4, strategy=strategy)
    with pytest.raises(ProtocolError, match=f"strategy 'one-by-one' must propose .*{message}"):
        optimizer.ask()
    assert len(optimizer.events) == 0
    assert optimizer.n_used == (0, 0)


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_another_type_configure_the_same_strategy():
    """Whole floats and numpy's numbers are taken for what they mean, not kept as they came."""
    options = {"n_new": 2.0, "n_ref_vectors": np.int64(10), "n_train_max": np.float32(30)}
    two: Any = 2.0
    search = RVEAConfig(n_generations=two, alpha=2, variation=Variation(mutation_rate=1))
    given = tc.TCSAEA(**options, box_margin=np.float64(0.025), search=search)
    assert [type(v) for v in (given.n_new, given.n_ref_vectors, given.n_train_max)] == [int] * 3
    assert type(given.search.n_generations) is int
    assert type(given.search.alpha) is float
    plain = tc.TCSAEA(n_new=2, n_ref_vectors=10, n_train_max=30, search=RVEAConfig(n_generations=2))
    assert given == plain
    results = [
        tc.minimize(runs.problem(), n_slow=7, n_init=5, strategy=s, progress=False)
        for s in (given, plain)
    ]
    assert torch.equal(results[0].all_X, results[1].all_X)


# ---------------------------------------------------------------- command line

OPTIONS = {
    "--problem": [("dtlz22", "did you mean 'dtlz2'?")],
    "--strategy": [("randon", "did you mean 'random'?")],
    "--tau": [("fast", "argument --tau: invalid float value: 'fast'"), ("0.5", ">= 1, got 0.5"),
              ("nan", "a finite real number >= 1, got nan"), ("inf", "got inf")],
    "--n-slow": [("many", "argument --n-slow: invalid int value: 'many'"), ("0", ">= 1, got 0"),
                 ("1.5", "invalid int value: '1.5'"),
                 ("-3", "n_slow must be an integer >= 0, got -3")],
    "--n-init": [("x", "argument --n-init: invalid int value: 'x'"), ("0", ">= 1, got 0"),
                 ("11", "n_init must be at most n_slow = 10, got 11")],
    "--seed": [("x", "argument --seed: invalid int value: 'x'"), ("0.5", "invalid int value")],
    "--device": [("nonsense", "a device that is present here, got 'nonsense'"),
                 ("cuda:99", "a device that is present here, got 'cuda:99'")],
    "--out": [("taken", "out must be a folder that can be written to, got 'taken'"),
              ("taken/below", "out must be a folder that can be written to, got 'taken/below'")],
}  # fmt: skip
GOOD = ["demo", "--problem", "dtlz1", "--strategy", "random", "--n-slow", "10"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [(option, *case) for option, cases in OPTIONS.items() for case in cases],
)
def test_bad_options_end_with_status_2_before_anything_runs(
    option, value, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    status = None
    with contextlib.suppress(SystemExit):
        status = cli.main([*GOOD, f"{option}={value}"])
    output = capsys.readouterr()
    assert status in (2, None)
    assert message in output.err
    assert "error: " in output.err
    assert "Traceback" not in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


FILES = {
    "--csv": [("taken/a", "csv must be a file that can be written"), (".", "csv must be a file"),
              ("study.db", "csv must be another file than the journal, got 'study.db'")],
    "--json": [("no/a", "json must be a file that can be written"), (".", "json must be a file"),
               ("study.db", "json must be another file than the journal, got 'study.db'")],
    "study": [("no.db", "there is no study at 'no.db'"), (".", "there is no study at '.'"),
              ("taken", "'taken' could not be read")],
}  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [(option, *case) for option, cases in FILES.items() for case in cases],
)
def test_bad_files_end_with_status_2_and_nothing_is_written(
    option, value, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    runs.studied()
    before = (tmp_path / "study.db").read_bytes()
    given = {"study": "study.db", "--csv": "good.csv", option: value}
    study, options = given.pop("study"), [f"{key}={value}" for key, value in given.items()]
    assert cli.main(["export", study, *options]) == 2
    assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study.db", "taken"]
    assert (tmp_path / "study.db").read_bytes() == before


def test_every_option_of_the_command_line_is_in_the_table():
    commands = next(
        a for a in cli._parser()._actions if isinstance(a, argparse._SubParsersAction)
    )  # fmt: skip
    options = {
        name: {a.option_strings[-1] if a.option_strings else a.dest: a.nargs for a in p._actions}
        for name, p in commands.choices.items()
    }
    of_run = options.pop("run")
    others = {option for found in options.values() for option in found}
    assert others - {"--help"} == OPTIONS.keys() | FILES.keys()
    refused = {option for row, _ in BAD_OPTIONS for option in row if option.startswith("--")}
    switches = {option for option, n in of_run.items() if n == 0}
    # Problems of `run` have tests of their own; its seed is read as that of `demo`.
    assert of_run.keys() - switches - {"problem"} == (refused | {"--seed"}) - switches


def test_all_refusals_are_the_packages_own():
    for callee in CALLEES.values():
        assert all(issubclass(row.error, TcsaeaError) for row in callee.rows)
