import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import runner, suites
from benchmarks.__main__ import main
from benchmarks.definitions import Definition, Suite
from benchmarks.peers import base
from benchmarks.store import Store
from tcsaea_torch import TCEHVI, problems
from tcsaea_torch.strategies.ehvi_surrogates import KERNEL_KINDS

ROOT = Path(__file__).parent.parent.parent
RANDOM = Definition(problem="dtlz2", strategy="random", n_slow=12, n_init=5)
TC = Definition(problem="dtlz2", strategy="tc-saea", n_slow=14, n_init=9)
SUITE = Suite(name="small", about="Two strategies", definitions=(RANDOM, TC), n_together=2)
VARYING = ("seconds", "made", "commit")


def grid(high, low=-0.8, n=700):
    """Return points of an even grid from low to high."""
    a, b = (low + (h - low) * (np.arange(n) + 0.5) / n for h in high)
    return np.stack(np.meshgrid(a, b), axis=-1).reshape(-1, 2)


def all_rows(store, suite=SUITE):
    rows = [row for definition in suite.definitions for row in store.rows(definition)]
    return [{k: v for k, v in row.items() if k not in VARYING} for row in rows]


def complete(store, suite=SUITE, n=3, **options):
    tasks = runner.missing(store, suite.with_seeds(n), "cpu")
    lines = []
    assert runner.run(store, tasks, report=lines.append, **options) == 0
    return lines


def test_runs_are_counted_scored_and_stored(tmp_path):
    with Store(tmp_path) as store:
        complete(store)
        rows = all_rows(store)
    assert [(row["strategy"], row["seed"]) for row in rows] == [
        (name, seed) for name in ("random", "tc-saea") for seed in (100, 101, 102)
    ]
    assert {row["n_slow"] for row in rows} == {12, 14}
    assert all(row["n_fast"] <= 5 * row["n_slow"] for row in rows)
    assert all(0.1 < row["igd"] < 3 and 0 <= row["hv"] < 1 for row in rows)
    assert (tmp_path / "small.csv").exists()


def test_volumes_go_to_the_reference_point_whichever_objective_is_slow(tmp_path):
    """Random search measures the same points in both runs; GMM has values below 0."""
    both = [
        Definition(problem="gmm", strategy="random", n_slow=12, n_init=12, slow=slow)
        for slow in (1, 0)
    ]
    suite = Suite(name="either", about="", definitions=tuple(both), n_seeds=1)
    with Store(tmp_path) as store:
        complete(store, suite, n=1)
        (first,), (second,) = (store.rows(definition) for definition in both)
    assert (first["slow"], second["slow"]) == (1, 0)
    assert first["volume"] == pytest.approx(second["volume"], rel=1e-12)
    problem = problems.get("gmm")
    X = base.Evaluations(problem, 100, 12, None).design(12)
    Y = problem.evaluate(X).numpy()
    reached = (Y[:, None] <= grid(problem.ref_point.tolist())).all(-1).any(0).mean()
    low = [-0.8, -0.8]
    area = float(torch.prod(problem.ref_point - torch.tensor(low)))
    assert first["volume"] == pytest.approx(reached * area, abs=2e-3)


def test_nothing_is_run_twice(tmp_path):
    with Store(tmp_path) as store:
        assert len(complete(store)) == 4
        assert complete(store) == []
        # More seeds: only the new ones.
        assert len(complete(store, n=4)) == 2
        assert len(all_rows(store)) == 8


def test_seeds_run_in_aligned_blocks(tmp_path):
    with Store(tmp_path) as store:
        blocks = [task.seeds for task in runner.missing(store, SUITE.with_seeds(5), "cpu")]
        assert blocks == [(100, 101)] * 2 + [(102, 103)] * 2 + [(104,)] * 2
        complete(store, n=2)
        blocks = [task.seeds for task in runner.missing(store, SUITE.with_seeds(4), "cpu")]
        assert blocks == [(102, 103)] * 2


def test_changed_code_is_run_anew_and_never_mixed(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        complete(store)
        monkeypatch.setattr(runner, "fingerprint", lambda definition: "changed")
        assert len(complete(store)) == 4
        codes = [row["code"] for row in store.rows(TC)]
        assert codes.count("changed") == 3
        assert len(codes) == 6
        assert len(set(codes)) == 2


def test_worker_processes_give_the_same_rows(tmp_path):
    with Store(tmp_path / "a") as alone, Store(tmp_path / "b") as together:
        complete(alone)
        complete(together, n_workers=2)
        assert all_rows(alone) == all_rows(together)


def test_a_batch_that_raises_does_not_stop_the_others(tmp_path):
    broken = Definition(problem="dtlz2", strategy="tc-saea", settings='{"n_new": -1}')
    suite = Suite(name="broken", about="", definitions=(RANDOM,), n_together=5)
    with Store(tmp_path) as store:
        tasks = runner.missing(store, suite.with_seeds(1), "cpu")
        bad = runner.Task(suite="broken", definition=broken, seeds=(100,), device="cpu")
        lines = []
        assert runner.run(store, [bad, *tasks], report=lines.append) == 1
        assert "FAILED" in lines[0]
        assert "n_new must be" in lines[0]
        assert len(all_rows(store, suite)) == 1


def test_rows_are_exported_at_intervals(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        exports = []
        monkeypatch.setattr(store, "export", lambda: exports.append(len(all_rows(store))))
        complete(store, export_every=0.0)
        # After each of four batches, and at the end.
        assert exports == [2, 4, 5, 6, 6]


def start(folder, *options):
    command = [sys.executable, "-m", "benchmarks", "run", "mixed-smoke", "--results", str(folder)]
    command += options
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_loses_at_most_the_batch_under_way(tmp_path):
    suite = suites.get("mixed-smoke")
    with start(tmp_path) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(0.1)  # somewhere in the second batch
        os.kill(process.pid, signal.SIGKILL)
    assert "[1/9]" in first
    with Store(tmp_path) as store:
        n_done = len(all_rows(store, suite))
        assert 2 <= n_done < 18
    assert main(["run", "mixed-smoke", "--results", str(tmp_path)]) == 0
    with Store(tmp_path) as store, Store(tmp_path / "fresh") as fresh:
        complete(fresh, suite, n=2)
        assert all_rows(store, suite) == all_rows(fresh, suite)


def children_of(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
def test_workers_end_with_their_parent(tmp_path):
    with start(tmp_path, "--workers", "1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        workers = children_of(process.pid)
        assert workers
        os.kill(process.pid, signal.SIGKILL)
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in workers):
            return
        time.sleep(0.1)
    raise AssertionError(f"still running: {workers}")


def test_the_commands(tmp_path, capsys):
    folder = ["--results", str(tmp_path)]
    assert main(["status", "mixed-smoke", *folder]) == 0
    assert "mixed-smoke: 0 of 18 runs" in capsys.readouterr().out
    assert main(["run", "mixed-smoke", *folder]) == 0
    assert "[9/9] cm-onemax +0.5 random: 2 runs" in capsys.readouterr().out
    assert main(["status", "mixed-smoke", *folder]) == 0
    assert "mixed-smoke: 18 of 18 runs" in capsys.readouterr().out
    assert main(["tables", "mixed-smoke", *folder]) == 0
    shown = capsys.readouterr().out
    for metric in ("igd", "hv"):
        written = (tmp_path / "tables" / f"mixed-smoke-{metric}.md").read_text()
        assert written.strip() in shown
        assert "| uf1 (unit box) |" in written
        assert "earlier version" not in written


def test_one_strategy_may_be_run_alone(tmp_path, capsys):
    arguments = ["mixed-smoke", "--results", str(tmp_path)]
    assert main(["run", *arguments, "--strategy", "random", "--seeds", "1"]) == 0
    assert "[3/3] cm-onemax +0.5 random: 1 runs" in capsys.readouterr().out
    assert main(["status", *arguments, "--seeds", "1"]) == 0
    assert "mixed-smoke: 3 of 9 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "own-ablations"], "suite must be one of .*did you mean 'own-ablation'"),
        (["run", "mixed-smoke", "--device", "warp"], "device must name"),
        (["run", "mixed-smoke", "--seeds", "0"], "seeds must be"),
        (["run", "mixed-smoke", "--workers", "-1"], "workers must be"),
        (["run", "mixed-smoke", "--threads", "0"], "threads must be"),
        (["status", "nothing-smoke"], "suite must be one of"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, capsys, arguments, message):
    assert main([*arguments, "--results", str(tmp_path)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_every_suite_can_be_made():
    for name, suite in suites.SUITES.items():
        assert suite.name == name
        assert len(set(suite.definitions)) == len(suite.definitions)
        for definition in suite.definitions:
            assert definition.peer or definition.make_strategy().name
            assert definition.problem_for(3).tau == definition.tau
        assert all(d.n_slow < 20 for d in suite.smoke().definitions)


def test_the_sealed_suite_holds_each_problem_with_either_objective_slow():
    suite = suites.get("breadth-sealed")
    found = {(d.problem, d.slow) for d in suite.definitions}
    assert found == {(name, slow) for name in suites.SEALED for slow in (0, 1)}
    assert not set(suites.SEALED) & set(suites.BREADTH)
    assert {(d.n_slow, d.n_init, d.tau) for d in suite.definitions} == {(60, 20, 5.0)}
    strategies = {d.strategy for d in suite.definitions}
    assert strategies == {suites.RIVAL, *suites.OURS}


@dataclass(frozen=True, kw_only=True)
class Clocked:
    strict_clock: bool = True


@dataclass(frozen=True, kw_only=True)
class Told:
    uses_ref_point: bool = True


@dataclass(frozen=True, kw_only=True)
class Both(Clocked, Told):
    pass


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (object(), [{}]),
        (Clocked(), [{}, {"strict_clock": False}]),
        (Told(), [{"uses_ref_point": False}]),
        (
            Both(),
            [{"uses_ref_point": False}, {"strict_clock": False, "uses_ref_point": False}],
        ),
    ],
)
def test_both_clocks_are_measured_where_a_strategy_has_two(monkeypatch, strategy, expected):
    """The strict one first; no strategy is told the reference point."""
    monkeypatch.setattr(suites, "OURS", ("ours",))
    monkeypatch.setattr(suites.strategies, "get", lambda name: strategy)
    found = list(suites._own(("dtlz2", "uf1")))
    assert [json.loads(d.settings or "{}") for d in found[::2]] == expected
    assert [json.loads(d.settings or "{}") for d in found[1::2]] == expected
    assert [d.problem for d in found] == ["dtlz2", "uf1"] * len(expected)
    # Nothing is said where all is as by default.
    assert "{}" not in {d.settings for d in found}


def test_our_own_suites_hold_every_cell_with_either_clock():
    both = [{"uses_ref_point": False}, {"strict_clock": False, "uses_ref_point": False}]
    for name, n_problems in (("own-dtlz", 9), ("own-uf", 2 * 7), ("own-onemax", 9)):
        definitions = suites.get(name).definitions
        cells: dict[tuple, list] = {}
        for d in definitions:
            assert d.strategy in suites.OURS
            cell = (d.problem, d.box, d.corr, d.tau)
            cells.setdefault(cell, []).append(json.loads(d.settings or "{}"))
        assert len(cells) == 2 * n_problems
        assert {cell[-1] for cell in cells} == {5.0, 10.0}
        assert all(settings == both for settings in cells.values())


def test_the_ablation_takes_one_part_away_at_a_time():
    suite = suites.get("own-ablation")
    n = len(suites.PROBLEMS)
    assert len(suite.definitions) == n * (1 + len(suites.PARTS))
    whole = suite.definitions[0].make_strategy()
    assert {d.settings for d in suite.definitions[:n]}.isdisjoint(suite.parts)
    assert list(suite.parts.values()) == list(suites.PARTS)
    for definition in suite.definitions[n:]:
        found, part = definition.make_strategy(), suite.parts[str(definition.settings)]
        assert isinstance(found, TCEHVI)
        changed = {
            field.name: getattr(found, field.name)
            for field in fields(found)
            if getattr(found, field.name) != getattr(whole, field.name)
        }
        assert len(changed) == 1, part
        if part.endswith(" kernel"):
            left_out = part.removesuffix(" kernel")
            assert changed["kernels"] == tuple(k for k in KERNEL_KINDS if k != left_out)
        if part == "choice of kernels":
            assert len(changed["kernels"]) == 1
    named = {part.removesuffix(" kernel") for part in suites.PARTS if part.endswith(" kernel")}
    assert named == set(KERNEL_KINDS)


def test_runs_of_peers_are_shared_with_the_older_suite():
    older = suites.get("peers").definitions
    for name in ("own-peer", "own-history"):
        rivals = [d for d in suites.get(name).definitions if d.strategy == suites.RIVAL]
        assert len(rivals) == 7
        assert set(rivals) <= set(older)


def test_the_headline_takes_its_rows_from_other_suites():
    others = {
        d
        for name in ("table-1", "peers", "own-dtlz", "own-uf")
        for d in suites.get(name).definitions
    }
    suite = suites.get("headline")
    assert set(suite.definitions) <= others
    assert set(suite.labels) <= {d.column for d in suite.definitions}


def test_histories_are_of_the_cells_that_the_tables_show():
    own = {d for name in ("own-dtlz", "own-uf") for d in suites.get(name).definitions}
    found = [d for d in suites.get("own-history").definitions if d.strategy in suites.OURS]
    assert len(found) == 7
    assert set(found) <= own
