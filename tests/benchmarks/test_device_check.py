import json
import re
import sys
import time
from dataclasses import replace

import pytest
import torch

from benchmarks import device_check
from benchmarks.device import checks, measure
from benchmarks.device.budget import Budget
from benchmarks.device.checks import Check, judge_tests
from benchmarks.device.items import in_order, works
from benchmarks.device.measure import Timing
from benchmarks.device.record import Record, file_name
from benchmarks.device.verdict import paper_estimate, verdicts
from benchmarks.micro.timing import Spread

# --- what follows from the numbers ---


def timing_of(b, device, seconds, **changes):
    spread = None if seconds is None else Spread(median=seconds, low=seconds, high=seconds)
    status = "skipped" if seconds is None else "measured"
    timing = Timing(what="fit", b=b, device=device, status=status, seconds=spread,
                    per_item=None if seconds is None else seconds / b)  # fmt: skip
    return replace(timing, **changes)


def test_when_the_device_pays():
    timings = [
        timing_of(1, "cpu", 1.0), timing_of(20, "cpu", 16.0),
        timing_of(1, "cuda", 2.0), timing_of(20, "cuda", 4.0), timing_of(320, "cuda", 16.0),
    ]  # fmt: skip
    (verdict,) = verdicts(timings, cores=8)
    assert [(one.b, one.cpu_b) for one in verdict.ratios] == [(1, 1), (20, 20), (320, 20)]
    assert [one.ratio for one in verdict.ratios] == pytest.approx([0.5, 4.0, 16.0])
    assert (verdict.pays_from, verdict.pays_from_all_cores) == (20, 320)
    assert (
        verdict.summary
        == "from a batch of 20 against one thread; from a batch of 320 against all 8 cores"
    )


@pytest.mark.parametrize(
    ("seconds", "pays_from", "against_one"),
    [
        ((0.5, 0.9), 1, "from a batch of 1"),
        ((2.0, 30.0), None, "not in batches of up to 20"),
        ((0.5, 30.0), None, "not in batches of up to 20"),  # a win that does not last is none
        ((1.0, 20.0), None, "not in batches of up to 20"),  # nor is a draw
        ((2.0, None), None, "not in batches of up to 1"),
    ],
)
def test_when_it_pays_from(seconds, pays_from, against_one):
    timings = [timing_of(1, "cpu", 1.0), timing_of(20, "cpu", None)]
    timings += [timing_of(b, "cuda", s) for b, s in zip((1, 20), seconds, strict=True)]
    (verdict,) = verdicts(timings, cores=1000)
    assert verdict.pays_from == pays_from
    assert verdict.summary.startswith(f"{against_one} against one thread; not in batches")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_is_said_of_what_was_not_measured(device):
    (verdict,) = verdicts([timing_of(1, device, 1.0), timing_of(20, device, None)], cores=2)
    assert (verdict.ratios, verdict.pays_from, verdict.summary) == ((), None, "not measured")


def test_works_are_judged_apart():
    timings = [timing_of(1, "cpu", 1.0), timing_of(1, "cuda", 2.0)]
    timings += [replace(timing, what="RVEA") for timing in (timings[0], timing_of(1, "cuda", 0.5))]
    found = verdicts(timings, cores=1)
    assert [(one.what, one.pays_from) for one in found] == [("fit", None), ("RVEA", 1)]


@pytest.mark.parametrize(("seconds", "within"), [(300.0, True), (301.0, False)])
def test_the_estimate_is_from_the_largest_batch(seconds, within):
    runs = [timing_of(b, "cuda", s, is_run=True) for b, s in ((20, 99.0), (320, seconds))]
    runs += [timing_of(640, "cpu", 1.0, is_run=True), timing_of(640, "cuda", 1.0)]
    estimate = paper_estimate(runs)
    assert estimate is not None
    assert estimate.seconds == pytest.approx(2 * seconds)
    assert (estimate.within_aim, estimate.measured_runs) == (within, 320)
    assert "an estimate: as if each of the 640 runs" in estimate.assumes


def test_there_is_no_estimate_from_what_was_not_done():
    assert paper_estimate([timing_of(320, "cuda", None, is_run=True)]) is None
    assert paper_estimate([timing_of(20, "cpu", 1.0, is_run=True)]) is None


# --- checks ---


def test_results_of_the_tests():
    passed = judge_tests(0, "....\n273 passed, 4879 deselected in 28.49s\n", 100.0)
    assert passed == Check(status="passed", note="273 passed, 4879 deselected in 28.49s")
    output = "..F\n== short test summary info ==\nFAILED a.py::b[cuda] - x\n== 1 failed in 2s ==\n"
    failed = judge_tests(1, output, 100.0)
    assert (failed.status, failed.note) == ("failed", "1 failed in 2s")
    assert failed.failures == ("FAILED a.py::b[cuda] - x",)


@pytest.mark.parametrize(
    ("output", "status", "note"),
    [
        ("bringing up nodes...\n....s [ 52%]\n..", "unfinished", "6 passed, 0 failed so far"),
        (".F.E [ 52%]\n..", "failed", "4 passed, 2 failed so far"),
        ("", "unfinished", "0 passed, 0 failed so far"),
    ],
)
def test_results_of_tests_that_were_stopped(output, status, note):
    stopped = judge_tests(None, output, 100.0)
    assert stopped == Check(status=status, note=f"stopped after 100 s: {note}")


def test_commands_are_run_to_their_end_or_stopped():
    script = "import sys; print('out', flush=True); print('err', file=sys.stderr); {}"
    command = [sys.executable, "-c", script.format("sys.exit(3)")]
    assert checks.run_for(command, 60.0) == (3, "out\nerr\n")
    # A child of the child keeps the output open, as workers do.
    child = "import subprocess; subprocess.run(['sleep', '60'])"
    start = time.monotonic()
    status, output = checks.run_for([sys.executable, "-c", script.format(child)], 1.0)
    assert (status, output) == (None, "out\nerr\n")
    assert time.monotonic() - start < 30


def test_tests_need_their_packages(monkeypatch):
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    found = checks.run_tests("cpu", seconds=7.0)
    assert found.status == "skipped"
    assert found.note.startswith("not installed: pytest, ")


def test_only_cases_that_need_the_device_are_run():
    command = checks.command_of_tests("cuda")
    cases = command[command.index("-k") + 1]
    assert cases == "(cuda and not bad_ and not do_not_exist) or does_not_wait_for_the_device"


def test_the_mode_of_waiting_is_restored(monkeypatch):
    modes = []
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", modes.append)
    assert checks.without_waiting(lambda: None) == Check(status="passed")

    def waits():
        assert modes[-1] == "error"
        raise RuntimeError("called a synchronizing CUDA operation\nsomewhere")

    found = checks.without_waiting(waits)
    assert found.status == "failed"
    assert re.fullmatch(
        r"called a synchronizing CUDA operation \(test_device_check.py:\d+\)", found.note
    )
    assert modes == ["error", 1, "error", 1]


def test_the_search_that_must_not_wait_is_one():
    population = checks.prepared_search("cpu", 12, 4)()
    assert population.X.shape == (4, 12, 11)
    assert population.alive.any(dim=-1).all()
    found = checks.search_does_not_wait("cpu", n_vectors=12, n_generations=4)
    assert found == Check(status="skipped", note="needs CUDA")


# --- the command ---

KEYS = {
    "made", "commit", "versions", "machine", "device", "cores", "threads", "cpu", "quick",
    "seconds_allowed", "seconds_used", "finished", "checks", "timings", "verdicts", "paper_runs",
}  # fmt: skip


def command(folder, capsys, *arguments):
    """Return the exit status, the document and what was printed."""
    status = device_check.main(["--quick", "--no-tests", "--out", str(folder), *arguments])
    (path,) = folder.iterdir()
    return status, json.loads(path.read_text()), capsys.readouterr().out


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("without_cuda")
def test_everything_is_measured_with_tiny_sizes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(measure, "REPEATS", 1)
    status, document, shown = command(tmp_path, capsys)
    assert status == 0
    assert set(document) == KEYS
    assert (document["device"], document["threads"], document["quick"]) == ("cpu", 1, True)
    assert document["finished"] is True
    assert 0 < document["seconds_used"] < document["seconds_allowed"] == 280.0
    assert {name: check["status"] for name, check in document["checks"].items()} == {
        "tests": "skipped", "RVEA does not wait": "skipped",
    }  # fmt: skip
    planned = in_order(works(quick=True), "cpu")
    timings = document["timings"]
    assert [(t["what"], t["b"], t["device"]) for t in timings] == [
        (item.work.what, item.b, item.device) for item in planned
    ]
    for timing in timings:
        assert timing["status"] == "measured"
        assert 0 < timing["seconds"]["low"] <= timing["seconds"]["median"]
        assert timing["seconds"]["median"] == pytest.approx(timing["per_item"] * timing["b"])
        assert timing["repeats"] == 1
    assert [verdict["summary"] for verdict in document["verdicts"]] == ["not measured"] * 5
    assert document["paper_runs"] is None
    body = [line for line in shown.splitlines() if line.startswith("| ")]
    assert len(body) == 2 + len(planned) + 2
    assert "the numbers mean nothing" in shown
    assert "The paper's runs: not measured." in shown


@pytest.mark.usefixtures("without_cuda")
def test_without_time_all_is_skipped_and_said(tmp_path, capsys):
    status, document, shown = command(tmp_path, capsys, "--seconds", "0")
    assert status == 0
    assert document["finished"] is True
    assert {timing["status"] for timing in document["timings"]} == {"skipped"}
    assert all(timing["note"] for timing in document["timings"])
    assert "RVEA, 12 vectors, 4 generations, DTLZ2, batch 1, cpu: skipped (0 s left)" in shown


@pytest.mark.usefixtures("without_cuda")
def test_out_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", str(tmp_path / "new"))
    assert device_check.main(["--quick", "--no-tests", "--seconds", "0"]) == 0
    assert len(list((tmp_path / "new").glob("*-quick.json"))) == 1


@pytest.mark.usefixtures("without_cuda")
def test_a_failure_is_in_the_exit_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(device_check, "run_tests", lambda *_, **__: Check(status="failed"))
    arguments = ["--quick", "--seconds", "0", "--out", str(tmp_path)]
    assert device_check.main(arguments) == 1
    assert "- tests: failed" in capsys.readouterr().out


def test_names_of_files():
    name = file_name("NVIDIA H100 80GB HBM3", quick=False)
    assert name.startswith("nvidia-h100-80gb-hbm3-2")
    assert name.endswith(".json")
    assert file_name("AMD EPYC, 2 cores, 1 used", quick=True).startswith("amd-epyc-2")


@pytest.fixture
def record(tmp_path):
    budget = Budget(10.0)
    return Record(path=tmp_path / "x.json", device="cpu", quick=False, budget=budget, n_planned=4)


def test_what_was_measured_is_not_lost(record):
    record.timings.append(timing_of(1, "cpu", 1.0))
    record.write()
    first = json.loads(record.path.read_text())
    record.timings += [timing_of(b, "cuda", 0.5, is_run=True) for b in (1, 20, 320)]
    record.write()
    last = json.loads(record.path.read_text())
    assert [len(document["timings"]) for document in (first, last)] == [1, 4]
    assert [document["finished"] for document in (first, last)] == [False, True]
    assert last["paper_runs"]["seconds"] == pytest.approx(1.0)
    assert [one["pays_from"] for one in last["verdicts"]] == [1]
    assert [path.name for path in record.path.parent.iterdir()] == ["x.json"]


def test_tables(record):
    spread = Spread(median=4.0, low=3.5, high=4.25)
    record.timings = [
        replace(timing_of(20, "cpu", 4.0, repeats=3), seconds=spread),
        timing_of(20, "cuda", 1.0, repeats=1, peak_bytes=3 * 2**20, is_run=True),
        timing_of(1, "cuda", 2.5),
        timing_of(320, "cuda", None, note="would take about 40 s, 3 s left"),
    ]
    lines = record.markdown().splitlines()
    assert "| fit | 20 | cpu | 4 (3.5 to 4.25) | 200 ms | 3 |  |  |" in lines
    assert "| fit | 20 | cuda | 1 | 50 ms | 1 | 3 MiB |  |" in lines
    assert "| fit | 1 | cuda | 2.5 | 2.5 s | 0 |  |  |" in lines
    assert "| fit | 320 | cuda | skipped |  |  |  | would take about 40 s, 3 s left |" in lines
    assert "| fit | 20 | 200 ms (20) | 50 ms | 4 |" in lines
    assert lines[-1].startswith("The paper's 640 runs: 32 s, within the aim of 600 s, from 20 run")


def test_failures_are_told(record):
    assert not record.has_failures
    record.checks["tests"] = Check(status="failed", note="1 failed", failures=("FAILED a", "b"))
    assert record.has_failures
    assert "- tests: failed (1 failed)\n  FAILED a\n  b" in record.markdown()
