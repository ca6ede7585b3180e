import json

import pytest
import torch

from benchmarks import markdown
from benchmarks.__main__ import main
from benchmarks.micro.profile import Profile, _operators, profile_fit


def test_operators_are_counted_with_their_shares():
    A = torch.full((300, 300), 0.5)

    def work():
        (A @ A).neg_()
        A.unsqueeze(0)

    n, shares = _operators(work)
    assert {"mm", "neg_", "unsqueeze"} <= set(shares)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert next(iter(shares)) == "mm"
    assert _operators(lambda: [work() for _ in range(5)])[0] == 5 * n


def test_a_fit_takes_longer_than_its_bare_operations():
    found = profile_fit("dtlz2", 30, 3, 2.0)
    assert 0 < found.limit_seconds < found.seconds
    assert "likelihoods" in found.limit


def test_a_line_shows_everything():
    shown = Profile(
        what="work", seconds=0.0123, n_operators=7, shares={"mm": 0.75, "neg": 0.25},
        limit_seconds=0.002, limit="its parts",
    )  # fmt: skip
    line = markdown.lines([shown.cells])
    assert line == "| work | 12.3 ms | 7 | 2 ms: its parts | mm 75%, neg 25% |"


def test_the_command_writes_numbers_and_a_table(tmp_path, capsys):
    assert main(["profile", "--quick", "--results", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "micro" / "profile-quick.json").read_text())
    table = (tmp_path / "micro" / "profile-quick.md").read_text()
    assert [p["what"] for p in record["profiles"]] == [
        "fit, n = 12, d = 11, p = 2", "RVEA, 12 vectors, 4 generations",
    ]  # fmt: skip
    assert all(p["seconds"] > 0 and p["n_operators"] > 20 for p in record["profiles"])
    assert record["threads"] == 1
    assert table in capsys.readouterr().out + "\n"
