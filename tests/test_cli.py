"""The command line, from arguments to files and exit status."""

import contextlib
import csv
import io
import json
import os
import re
import sys
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import pytest
import torch

import tcsaea_torch
from tcsaea_torch import cli, problems, strategies
from tcsaea_torch.metrics import hypervolume
from tcsaea_torch.problems import base

DEMO = ["demo", "--problem", "dtlz2", "--n-slow", "16", "--n-init", "9"]
QUICK = ["demo", "--problem", "dtlz1", "--strategy", "random", "--n-slow", "10"]


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def values_of(rows):
    """Return the (fast, slow) values of the points that have both."""
    points: dict[str, dict[str, float]] = {}
    for row in rows:
        points.setdefault(row["point_id"], {})[row["objective"]] = float(row["value"])
    return torch.tensor(
        [[p["fast"], p["slow"]] for p in points.values() if len(p) == 2], dtype=torch.float64
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Run the demo once; return its folder, exit status and output."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = cli.main([*DEMO, "--out", str(folder)])
    return folder, status, output.getvalue()


def test_the_demo_succeeds_and_says_what_it_does(demo):
    _, status, output = demo
    assert status == 0
    first, *_ = output.splitlines()
    assert first == "dtlz2: 11 variables, 16 slow and 80 fast evaluations, strategy tc-ehvi"
    # No fast ones go beside the last slow one, but for its own, where its point is new.
    assert re.search(
        "the slow budget is spent: 16 of 16 slow and 7[56] of 80 fast evaluations, in ", output
    )


def test_the_demo_writes_a_picture(demo):
    matplotlib: Any = pytest.importorskip("matplotlib.image")
    picture = demo[0] / "front.png"
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert picture.stat().st_size > 5000
    assert matplotlib.imread(picture).shape[:2] == (750, 1050)
    assert str(picture.resolve()) in demo[2]


def test_the_demo_writes_every_evaluation(demo):
    table = demo[0] / "evaluations.csv"
    rows = rows_of(table)
    assert len(rows) in (75 + 16, 76 + 16)
    assert [row["id"] for row in rows] == [str(k) for k in range(len(rows))]
    assert sum(row["objective"] == "slow" for row in rows) == 16
    assert {row["status"] for row in rows} == {"done"}
    problem = problems.get("dtlz2")
    for row in rows:
        x = torch.tensor([[float(row[f"x{k}"]) for k in range(11)]], dtype=torch.float64)
        function = problem.fast if row["objective"] == "fast" else problem.slow
        assert float(row["value"]) == pytest.approx(float(function(x)), rel=1e-12)
    assert str(table.resolve()) in demo[2]


def test_the_demo_prints_both_hypervolumes(demo):
    pattern = r"hypervolume below \(1\.1, 1\.1\):\n  tc-ehvi +(\S+)\n  random +(\S+)\n"
    found = re.search(pattern, demo[2])
    assert found is not None
    mine = hypervolume(values_of(rows_of(demo[0] / "evaluations.csv")), torch.tensor([1.1, 1.1]))
    assert float(found[1]) == pytest.approx(mine, rel=1e-5)
    assert 0.0 <= float(found[2]) <= 1.21


def test_hypervolumes_are_compared_below_the_runs_own_reference_point(
    tmp_path, capsys, monkeypatch
):
    def toy(tau):
        return problems.TestProblem(
            fast=lambda X: (X**2).sum(dim=-1),
            slow=lambda X: ((X - 1) ** 2).sum(dim=-1),
            bounds=[[0.0] * 3, [1.0] * 3],
            tau=tau,
            vectorized=True,
        )

    monkeypatch.setattr(base, "_FACTORIES", dict(base._FACTORIES))
    problems.register("toy", toy)
    arguments = ["--problem", "toy", "--n-slow", "20", "--n-init", "8", "--tau", "2"]
    assert cli.main(["demo", *arguments, "--seed", "5", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "random search, with as many slow evaluations:" in output
    random = tcsaea_torch.minimize(
        toy(2), n_slow=20, n_init=8, seed=5, strategy="random", progress=False
    )
    point = random.ref_point  # the same design, and so the same point
    assert point is not None
    mine = hypervolume(values_of(rows_of(tmp_path / "evaluations.csv")), point)
    assert mine > random.hypervolume() > 0.0
    assert f"hypervolume below ({point[0]:.4g}, {point[1]:.4g}):\n" in output
    assert re.search(rf"^  tc-ehvi +{mine:.6g}$", output, re.M)
    assert re.search(rf"^  random +{random.hypervolume():.6g}$", output, re.M)


def test_options_reach_the_run(tmp_path, capsys):
    tables = []
    for seed in ("3", "3", "4"):
        arguments = [*QUICK, "--tau", "2.5", "--seed", seed, "--out", str(tmp_path / seed)]
        assert cli.main([*arguments, "--n-init", "6", "--device", "cpu"]) == 0
        tables.append(rows_of(tmp_path / seed / "evaluations.csv"))
    assert tables[0] == tables[1] != tables[2]
    assert len(tables[0]) == 20
    captured = capsys.readouterr()
    assert captured.out.startswith(
        "dtlz1: 6 variables, 10 slow and 25 fast evaluations, strategy random\n"
    )
    assert "slow: 100%" in captured.err


def test_the_fast_budget_that_is_printed_is_the_runs(tmp_path, capsys):
    assert int(1.16 * 25) == 28  # by rounding
    cli.main([*QUICK, "--n-slow", "25", "--tau", "1.16", "--out", str(tmp_path)])
    output = capsys.readouterr().out
    assert "of 29 fast evaluations" in output
    assert "25 slow and 29 fast evaluations, strategy random" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--problem", "dtlz22"],
            r"problem must be one of .*, got 'dtlz22'; did you mean 'dtlz2'\?",
        ),
        (["--strategy", "tcsaea"], r"strategy must be .*, got 'tcsaea'; did you mean 'tc-saea'\?"),
        (["--tau", "0.5"], r"tau must be a finite real number >= 1, got 0\.5 \(float\)"),
        (["--n-slow", "0"], r"n_slow must be an integer >= 1, got 0 \(int\)"),
        (["--n-init", "11"], r"n_init must be at most n_slow = 10, got 11"),
        (["--device", "cuda:99"], r"device must name a device that is present here, got 'cuda:99'"),
    ],
)
def test_bad_arguments_end_with_status_2_and_a_message(arguments, message, tmp_path, capsys):
    folder = tmp_path / "out"
    assert cli.main([*QUICK, *arguments, "--out", str(folder)]) == 2
    assert re.search(rf"^tcsaea: error: {message}", capsys.readouterr().err, re.M)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["demo", "--n-slow", "many"], "argument --n-slow: invalid int value: 'many'"),
        (["demo", "--speed", "9"], "unrecognized arguments: --speed 9"),
    ],
)
def test_arguments_that_make_no_sense(arguments, message, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == tcsaea_torch.__version__


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"]])
def test_help(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 0
    output = " ".join(capsys.readouterr().out.split())
    assert output.startswith("usage: tcsaea ")
    if arguments[0] == "--help":
        assert "demo" in output
        return
    assert "".join(", ".join(problems.names()).split()) in "".join(output.split())
    assert "".join(", ".join(strategies.names()).split()) in "".join(
        output.split()
    )  # lines break at hyphens
    for option, default in (("--tau", 5.0), ("--n-slow", 60), ("--seed", 0), ("--device", "cpu")):
        assert re.search(rf"{option} \S+ [^-]*\(default: {default}\)", output)


def interrupt_at_15_events(optimizer, event):
    if len(optimizer.events) >= 15:
        raise KeyboardInterrupt


def test_an_interrupted_demo_writes_what_there_is(tmp_path, capsys, monkeypatch):
    minimize = partial(tcsaea_torch.minimize, callbacks=[interrupt_at_15_events])
    monkeypatch.setattr(cli, "minimize", minimize)
    assert cli.main([*QUICK, "--n-init", "6", "--out", str(tmp_path)]) == 130
    output = capsys.readouterr().out
    assert "\ninterrupted by the user: " in output
    assert "random search" not in output  # there is nothing to compare with
    assert "hypervolume" not in output
    assert (tmp_path / "front.png").stat().st_size > 5000
    statuses = [row["status"] for row in rows_of(tmp_path / "evaluations.csv")]
    assert statuses.count("done") >= 12


def test_without_matplotlib_there_is_a_table_and_a_message(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main([*QUICK, "--out", str(tmp_path)]) == 2
    assert "tcsaea: error: plots need matplotlib: pip install " in capsys.readouterr().err
    assert len(rows_of(tmp_path / "evaluations.csv")) == 20


def test_the_command_is_installed():
    (command,) = entry_points(group="console_scripts", name="tcsaea")
    assert command.load() is cli.main


def test_random_search_gets_the_budget_of_a_strategy_that_ignores_the_delay(tmp_path, capsys):
    options = ["--problem", "dtlz2", "--strategy", "undelayed", "--n-slow", "6", "--n-init", "5"]
    assert cli.main(["demo", *options, "--tau", "2", "--out", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert output.startswith("dtlz2: 11 variables, 12 slow and 12 fast evaluations")
    assert "12 of 12 slow and 12 of 12 fast evaluations" in output


# ------------------------------------------------------------------ studies


def toy():
    return tcsaea_torch.Problem(
        fast=lambda x: float((x**2).sum()),
        slow=lambda x: float(((x - 1) ** 2).sum()),
        bounds=[[0.0, 0.0], [1.0, 1.0]],
        tau=2,
        names=("thickness", "radius"),
    )


@pytest.fixture
def study(tmp_path):
    """A study that its run has left after some events; it still holds the lock."""
    optimizer = tcsaea_torch.Optimizer(
        toy(), n_slow=9, n_init=4, strategy="random", seed=7, journal=tmp_path / "study.db"
    )
    optimizer.attach([[0.25, 0.5]], fast=[0.3125], slow=[None])
    optimizer.attach([[0.5, 0.5]], fast=[0.5], slow=[0.5])
    for e in optimizer.ask()[:-1]:
        if e.id == 3:
            optimizer.fail(e.id, "diverged")
        else:
            optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
    with optimizer:
        yield tmp_path / "study.db", optimizer


def test_status_says_how_a_study_stands(study, capsys):
    path, optimizer = study
    assert cli.main(["status", str(path)]) == 0
    output = capsys.readouterr().out
    n_fast, n_slow = optimizer.n_used
    assert "strategy:     random, seed 7\n" in output
    assert f"evaluations:  {n_slow} of 9 slow, {n_fast} of 18 fast\n" in output
    n = len(optimizer.result().history)
    assert f"done:       {n - 2}\n" in output
    assert f"pending:    1 (ids {n - 1})\n" in output
    assert "failed:     1\n" in output
    assert "attached:     1 points with both values\n" in output
    assert re.search(r"events:       \d+, the last \d seconds ago\n", output)
    assert re.search(rf"worked on by: process {os.getpid()} \(since 20", output)
    assert "hypervolume:  none before the initial design is complete" in output
    optimizer.tell(n - 1, 0.5)
    while evaluations := optimizer.ask():
        for e in evaluations:
            optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
    optimizer.close()
    assert cli.main(["status", str(path)]) == 0
    output = capsys.readouterr().out
    assert f"hypervolume:  {optimizer.result().hypervolume():.6g} below (" in output
    assert "worked on by: nobody\n" in output
    assert "pending:    0\n" in output


def test_export_writes_all_that_was_measured(study, tmp_path):
    path, optimizer = study
    out = tmp_path / "out.csv", tmp_path / "out.json"
    assert cli.main(["export", str(path), "--csv", str(out[0]), "--json", str(out[1])]) == 0
    optimizer.result().write_csv(tmp_path / "expected.csv")
    assert out[0].read_text() == (tmp_path / "expected.csv").read_text()

    def refuse(name):
        raise AssertionError(name)

    content = json.loads(out[1].read_text(), parse_constant=refuse)
    history = optimizer.result().history
    assert [e["status"] for e in content["evaluations"]] == [r.status for r in history]
    for e, r in zip(content["evaluations"], history, strict=True):
        assert e["value"] == (r.value if r.status == "done" else None)
        assert (e["id"], e["point_id"], e["objective"]) == (r.id, r.point_id, r.objective)
    assert content["points"][0] == {
        "point_id": 0, "x": [0.25, 0.5], "fast": 0.3125, "slow": None,
    }  # fmt: skip
    settings = content["settings"]
    assert (settings["n_slow"], settings["n_init"], settings["seed"]) == (9, 4, 7)
    assert settings["problem"]["names"] == ["thickness", "radius"]
    assert settings["strategy"] == {"class": "RandomSearch", "fields": {"name": "random"}}


def test_export_needs_a_file(study, capsys):
    assert cli.main(["export", str(study[0])]) == 2
    assert "export needs --csv FILE or --json FILE" in capsys.readouterr().err


def test_verify_tells_good_from_damaged_by_its_status(study, capsys):
    path, optimizer = study
    assert cli.main(["verify", str(path)]) == 0
    assert f"good: {len(optimizer.events)} events, running: " in capsys.readouterr().out
    optimizer.close()
    data = bytearray(path.read_bytes())
    k = data.rindex(b'"id":2')
    data[k + 5 : k + 6] = b"4"
    path.write_bytes(data)
    assert cli.main(["verify", str(path)]) == 1
    assert re.search(r"^damaged: .*event \d+ is damaged: its checksum", capsys.readouterr().out)
    assert cli.main(["verify", str(path.parent / "none.db")]) == 2


def test_unlock_refuses_a_living_owner(study, capsys):
    path, optimizer = study
    assert cli.main(["unlock", str(path)]) == 2
    assert f"process {os.getpid()} (since" in capsys.readouterr().err
    optimizer.close()
    assert cli.main(["unlock", str(path)]) == 0
    assert capsys.readouterr().out == f"{path} is free\n"
