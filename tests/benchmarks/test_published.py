import pytest

from benchmarks import published
from benchmarks.published import read_rows, run_suite, table


@pytest.fixture
def smaller(monkeypatch):
    monkeypatch.setattr(published, "N_SLOW", 14)
    monkeypatch.setattr(published, "N_INIT", 9)


@pytest.mark.usefixtures("smaller")
def test_rows_are_counted_stored_and_not_repeated(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    monkeypatch.setattr(published.environment, "commit", lambda: "abc")
    suite = {"problems": ["dtlz2"], "strategies": ["random", "tc-saea"], "seeds": [0, 1]}
    run_suite(path, **suite)
    rows = read_rows(path)
    assert [(row["strategy"], row["seed"]) for row in rows] == [
        ("random", "0"), ("tc-saea", "0"), ("random", "1"), ("tc-saea", "1"),
    ]  # fmt: skip
    assert {row["n_slow"] for row in rows} == {"14"}
    assert all(int(row["n_fast"]) <= 70 and 0 < float(row["igd"]) < 3 for row in rows)
    before = path.read_text()
    run_suite(path, **suite)
    assert path.read_text() == before
    monkeypatch.setattr(published.environment, "commit", lambda: "def")
    run_suite(path, **{**suite, "seeds": [0]})
    assert len(read_rows(path)) == 6


def test_table_shows_mean_and_spread(tmp_path):
    path = tmp_path / "rows.csv"
    columns = ",".join(published.COLUMNS)
    start = "published,dtlz2,true,5.0,tc-saea,"
    end = ",0.5,1.0,cpu,abc,python 3,machine"
    path.write_text(f"{columns}\n{start}0,200,1000,0.1{end}\n{start}1,200,990,0.3{end}\n")
    text = table(path)
    assert "| dtlz2 | 0.2 (0.14) | 0.0286 | 0.02 |" in text
    assert "(200, 1000), (200, 990)" in text
    assert "seeds 0 to 1" in text
