import pytest

from benchmarks.definitions import Definition
from benchmarks.store import COLUMNS, Store
from tcsaea_torch.errors import InvalidInputError
from tests.benchmarks.rows import row

DTLZ2 = Definition(problem="dtlz2", strategy="tc-saea")


def test_rows_come_back_as_they_were(tmp_path):
    rows = [row(DTLZ2, seed, igd=0.1 + 0.2 * seed) for seed in (0, 1)]
    with Store(tmp_path) as store:
        store.add(rows)
        assert store.rows(DTLZ2) == rows
    with Store(tmp_path) as store:
        assert store.rows(DTLZ2) == rows


def test_a_fresh_clone_knows_what_was_exported(tmp_path):
    corr = Definition(problem="cm-onemax", strategy="tc-saea", corr=-0.25, tau=2.5)
    settings = Definition(problem="dtlz2", strategy="tc-saea", settings='{"n_new": 5}')
    rows = [row(d, 7, igd=1 / 3) for d in (DTLZ2, corr, settings)]
    with Store(tmp_path / "here") as store:
        store.add(rows)
        store.export()
    (tmp_path / "clone").mkdir()
    (tmp_path / "here" / "some.csv").rename(tmp_path / "clone" / "some.csv")
    with Store(tmp_path / "clone") as store:
        for definition, expected in zip((DTLZ2, corr, settings), rows, strict=True):
            assert store.rows(definition) == [expected]


@pytest.mark.parametrize(
    "change",
    [
        {"problem": "dtlz7"}, {"box": "unit"}, {"corr": 0.5}, {"tau": 10.0},
        {"slow": 0}, {"strategy": "random"},
        {"settings": '{"n_new": 5}'}, {"n_slow": 100}, {"n_init": 50},
    ],
)  # fmt: skip
def test_another_definition_is_another_run(tmp_path, change):
    other = Definition(**{"problem": "dtlz2", "strategy": "tc-saea", **change})
    with Store(tmp_path) as store:
        store.add([row(DTLZ2, 0, igd=1.0), row(other, 0, igd=2.0)])
        assert [r["igd"] for r in store.rows(DTLZ2)] == [1.0]
        assert [r["igd"] for r in store.rows(other)] == [2.0]


@pytest.mark.parametrize("change", [{"seed": 1}, {"code": "new"}, {"device": "cuda"}])
def test_another_seed_code_or_device_is_another_run(tmp_path, change):
    with Store(tmp_path) as store:
        store.add([row(DTLZ2, 0), {**row(DTLZ2, 0), **change}])
        assert len(store.rows(DTLZ2)) == 2


def test_the_first_row_of_a_run_stays(tmp_path):
    with Store(tmp_path) as store:
        store.add([row(DTLZ2, 0, igd=1.0)])
        store.add([row(DTLZ2, 0, igd=2.0, suite="other")])
        assert [r["igd"] for r in store.rows(DTLZ2)] == [1.0]
        assert store.suites() == ["some"]


def test_a_batch_of_rows_is_stored_whole_or_not_at_all(tmp_path):
    with Store(tmp_path) as store:
        broken = {k: v for k, v in row(DTLZ2, 1).items() if k != "igd"}
        with pytest.raises(Exception, match="igd"):
            store.add([row(DTLZ2, 0), broken])
        assert store.rows(DTLZ2) == []


def test_each_suite_has_a_file_of_its_own(tmp_path):
    with Store(tmp_path) as store:
        store.add([row(DTLZ2, 0, suite="a"), row(DTLZ2, 1, suite="b"), row(DTLZ2, 2, suite="b")])
        store.export()
    assert sorted(path.name for path in tmp_path.glob("*.csv*")) == ["a.csv", "b.csv"]
    lines = (tmp_path / "b.csv").read_text().splitlines()
    assert lines[0] == ",".join(COLUMNS)
    assert len(lines) == 3


def test_an_export_that_breaks_leaves_the_last_one(tmp_path, monkeypatch):
    with Store(tmp_path) as store:
        store.add([row(DTLZ2, 0)])
        store.export()
        before = (tmp_path / "some.csv").read_text()
        store.add([row(DTLZ2, 1)])

        def disk_full(descriptor):
            raise OSError("no space left")

        monkeypatch.setattr("benchmarks.store.os.fsync", disk_full)
        with pytest.raises(OSError, match="no space"):
            store.export()
    assert (tmp_path / "some.csv").read_text() == before


def test_other_csv_files_are_refused(tmp_path):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInputError, match=r"mine.csv must have the columns problem, .*\['a'"):
        Store(tmp_path)
