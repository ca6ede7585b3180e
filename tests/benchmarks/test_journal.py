"""The benchmark of the journal, small."""

from benchmarks.journal import measure


def test_the_figures_are_there_and_positive(tmp_path):
    found = measure(n_events=20, n_told=30, folder=tmp_path)
    assert found["n_events"] == 20
    assert found["n_told"] == 30
    assert len(found) == 16
    assert all(value > 0 for value in found.values())
    assert list(tmp_path.iterdir()) == []
