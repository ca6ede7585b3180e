"""Stored runs made again: what is the same, and what is not."""

import json

from benchmarks.__main__ import main
from benchmarks.store import Store
from benchmarks.suites import get
from benchmarks.verify import blocks


def test_runs_made_again_are_the_same_and_a_change_is_seen(tmp_path, capsys):
    results = ["--results", str(tmp_path)]
    assert main(["run", "mixed-smoke", *results]) == 0
    assert main(["verify", "mixed-smoke", "--blocks", "1", *results]) == 0
    assert "3 of 3 batches are the same to the last bit" in capsys.readouterr().out
    content = json.loads((tmp_path / "verify.json").read_text())
    assert content["n_same"] == len(content["blocks"]) == 3
    assert {tuple(block["seeds"]) for block in content["blocks"]} == {(100, 101)}
    assert all(block["code_then"] == block["code_now"] for block in content["blocks"])
    with Store(tmp_path) as store:
        store._sql.execute("UPDATE runs SET igd = igd * 1.5 WHERE seed = 101")
        store._sql.commit()
    assert main(["verify", "mixed-smoke", *results]) == 0
    assert "0 of 3 batches are the same" in capsys.readouterr().out
    changed = json.loads((tmp_path / "verify.json").read_text())["blocks"]
    assert all(abs(block["largest_difference"] - 1 / 3) < 1e-12 for block in changed)


def test_which_runs_are_drawn(tmp_path):
    assert main(["run", "mixed-smoke", "--results", str(tmp_path)]) == 0
    suite = get("mixed-smoke")
    with Store(tmp_path) as store:
        every = blocks(store, [suite, suite], 99)
        assert {b.definition for b in every} == set(suite.definitions)
        assert len(every) == len(suite.definitions)
        few = blocks(store, [suite], 2, seed=1)
        assert [b.definition.column for b in few] == [
            b.definition.column for b in sorted(few, key=lambda b: list(
                dict.fromkeys(d.column for d in suite.definitions)).index(b.definition.column))
        ]  # fmt: skip
        assert few == blocks(store, [suite], 2, seed=1)
        store._sql.execute("DELETE FROM runs WHERE seed = 101")  # no whole batch is left
        assert blocks(store, [suite], 9) == []
