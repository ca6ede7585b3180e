"""The benchmark of asynchronous runs, small."""

import json
import statistics

import pytest
import torch

from benchmarks.asynchronous import draw, duration, measure, table
from tcsaea_torch.evolution import RVEAConfig


@pytest.fixture(scope="module")
def measured():
    return measure(
        problems=("dtlz2",), workers=((4, 4),), seeds=(100,), n_slow=12, n_init=6, n_known=40,
        n_asks=2, search=RVEAConfig(n_generations=2), n_ref_vectors=10,
    )  # fmt: skip


def test_the_figures_are_those_of_runs(measured):
    found, timelines = measured
    json.dumps(found)
    assert len(found["runs"]) == 2
    for row in found["runs"]:
        timeline = timelines[row["strategy"]]
        assert row["makespan"] == max(i.end for i in timeline)
        assert row["n_slow"] == 12
        assert len(timeline) == row["n_slow"] + row["n_fast"]
        for lane in ("fast", "slow"):
            busy = sum(i.end - i.start for i in timeline if i.lane == lane)
            assert row[f"idle_{lane}"] == pytest.approx(1 - busy / (4 * row["makespan"]))
        assert row["igd"] > 0
        assert 0 < row["ask_mean_ms"] <= row["ask_max_ms"]
    for times in found["asks_median_ms"].values():
        assert len(times) == 3
        assert min(times.values()) > 0


def test_both_kinds_of_a_run_have_the_same_durations(measured):
    _, timelines = measured
    durations = [
        sorted(round(i.end - i.start, 9) for i in timeline if i.lane == "slow")
        for timeline in timelines.values()
    ]
    assert durations[0] == durations[1]


def test_durations_have_their_mean():
    times = [duration(5.0)((k + 0.5) / 20_000) for k in range(20_000)]
    assert statistics.mean(times) == pytest.approx(5.0, rel=1e-3)
    logs = torch.tensor(times).log()
    assert float(logs.std()) == pytest.approx(0.5, rel=1e-3)


def test_the_table_has_both_kinds_side_by_side(measured):
    found, _ = measured
    (row,) = found["means"]
    line = table(found).splitlines()[-1]
    assert line.startswith("| dtlz2 | 4 + 4 | ")
    makespans = [row[kind]["makespan"] for kind in ("synchronous", "asynchronous")]
    assert "| {:.0f}, {:.0f} |".format(*makespans) in line


def test_the_timelines_become_a_figure(measured, tmp_path):
    draw(measured[1], tmp_path / "new" / "figure.png")
    assert (tmp_path / "new" / "figure.png").stat().st_size > 10_000
