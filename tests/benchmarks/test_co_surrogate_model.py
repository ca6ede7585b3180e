"""The benchmark of the BoTorch model with the transfer, tiny."""

import json

import pytest
import torch

from benchmarks.co_surrogate_model import ARMS, QUICK, TAU, Run, main, table
from tcsaea_torch import problems


def test_tiny_runs_are_written(tmp_path, capsys):
    out, shown = tmp_path / "out.json", tmp_path / "table.md"
    main(["--quick", "--out", str(out), "--table", str(shown), "--problems", "zdt1",
          "--seeds", "100"])  # fmt: skip
    content = json.loads(out.read_text())
    assert content["n_slow"] == QUICK.n_slow
    assert {"versions", "machine", "commit", "seconds"} <= content.keys()
    rows = content["rows"]
    assert [(row["problem"], row["arm"], row["seed"]) for row in rows] == [
        ("zdt1", arm, 100) for arm in ARMS
    ]
    for row in rows:
        assert row["n_slow"] == QUICK.n_slow
        assert row["n_fast"] == TAU * QUICK.n_slow
        assert row["igd"] > 0
        assert row["n_linked"] <= len(row["links"]) == 1
    assert rows[0]["n_linked"] == rows[1]["n_linked"] == 0
    assert table(rows) in capsys.readouterr().out
    assert shown.read_text().startswith(table(rows))
    assert "Seeds 100 to 100; commit" in shown.read_text()


def test_numbers_of_a_tiny_run_do_not_replace_results(capsys):
    with pytest.raises(SystemExit):
        main(["--quick"])
    assert "--quick needs --out and --table" in capsys.readouterr().err


def test_only_the_fast_objective_is_called_where_only_it_is_wanted():
    problem = problems.get("crash-beam", tau=TAU)
    run = Run(problem, 100)
    X = run.draw(3, problem.d)
    run.evaluate(X[:1], slow=True)
    run.evaluate(X[1:], slow=False)
    assert run.Y.isnan().tolist() == [[False, False], [False, True], [False, True]]
    truth = problem.evaluate(problem.from_unit(X)) * problem.signs
    torch.testing.assert_close(run.Y[:, 0], truth[:, 0])
    pool = run.pool(8)
    assert bool(((pool >= 0) & (pool <= 1)).all())
    assert pool.shape == (8, problem.d)


def test_the_table_compares_runs_of_one_seed():
    def runs(arm, hypervolumes, igd, links):
        return [
            {"problem": "p", "arm": arm, "seed": seed, "hypervolume": hypervolume, "igd": igd,
             "seconds": 2.0, "n_linked": sum(link != "none" for link in links), "links": links}
            for seed, hypervolume in enumerate(hypervolumes)
        ]  # fmt: skip

    rows = runs("botorch", (1.0, 3.0), 0.5, ["none"])
    rows += runs("co-surrogate", (2.0, 2.0), None, ["none", "angle"])
    assert table(rows).splitlines()[2:] == [
        "| p | botorch | 2 (1.4) | 0.5 (0) | · | 0 of 2 | 2 |",
        "| p | co-surrogate | 2 (0) | - | 1 of 2 | 2 of 4 | 2 |",
    ]
