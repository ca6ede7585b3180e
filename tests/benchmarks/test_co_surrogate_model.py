"""The benchmark of the BoTorch model with the transfer, tiny."""

import json

import pytest
import torch

from benchmarks.co_surrogate_model import ARMS, QUICK, TAU, Run, main, table
from tcsaea_torch import problems


def test_a_tiny_run_is_written(tmp_path, capsys):
    path = tmp_path / "out.json"
    main(["--quick", "--out", str(path), "--problems", "zdt1"])
    content = json.loads(path.read_text())
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


def test_numbers_of_a_tiny_run_do_not_replace_results(capsys):
    with pytest.raises(SystemExit):
        main(["--quick"])
    assert "--quick needs --out" in capsys.readouterr().err


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


def test_an_unknown_front_has_a_dash():
    row = {"problem": "crash-beam", "arm": "kriging", "hypervolume": 1.0, "igd": None}
    line = table([{**row, "seconds": 1.0, "n_linked": 0}]).splitlines()[2]
    assert line == "| crash-beam | kriging | 1 | 1 | - | 1 | 0 |"
