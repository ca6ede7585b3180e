"""The benchmark of the links, small."""

import math

import pytest

from benchmarks.links import measure, table


@pytest.fixture(scope="module")
def rows():
    return measure(problems=("dtlz2", "dtlz7"), seeds=(100, 101), rows=(12,), n_test=50)


def test_a_row_for_each_run(rows):
    assert [(row["problem"], row["n"], row["seed"]) for row in rows] == [
        (problem, 12, seed) for problem in ("dtlz2", "dtlz7") for seed in (100, 101)
    ]
    for row in rows:
        assert row["r2_angle"] > (0.9 if row["problem"] == "dtlz2" else -math.inf)
        for key, value in row.items():
            if key.startswith("within") or key == "says":
                assert 0.0 <= value <= 1.0
        if row["chosen"] == "none":
            assert row["says"] == 0.0
            assert row["r2_chosen"] == row["r2_slow"]


def test_the_table_holds_means(rows):
    line = table(rows).splitlines()[2]
    mean = (rows[0]["r2_slow"] + rows[1]["r2_slow"]) / 2
    assert line.startswith(f"| dtlz2 | 12 | {mean:.3f} | ")


def test_what_cannot_be_has_a_dash(rows):
    line = table([{**row, "r2_ratio": math.nan} for row in rows]).splitlines()[2]
    assert " | - | " in line
