import json

import pytest

from benchmarks.__main__ import main
from benchmarks.micro import batches, peers, scaling, scaling_figure
from benchmarks.micro.rows import OURS, Setting
from benchmarks.micro.timing import Rounds
from tcsaea_torch.models import fitting

QUICK = Setting(repeats=2, quick=True, device="cpu")
FULL = Setting(repeats=2, quick=False, device="cpu")


@pytest.fixture
def timed(monkeypatch):
    """Replace what is timed by given seconds: a function of the work's name."""
    made = {}

    def paired(works, repeats, **_):
        made.update(works)
        seconds = {name: (made_up(name), made_up(name) * 3) for name in works}
        return Rounds(seconds=seconds, results=dict.fromkeys(works, 50), failures={})

    def made_up(name):
        kind, size = name.split()
        return (1e-6 if kind == OURS else 1e-9) * int(size) ** 2

    monkeypatch.setattr(scaling, "paired", paired)
    for name in ("fits", "counted"):
        monkeypatch.setattr(scaling, name, lambda *a, **_: a)
    for module in (scaling.likelihood, scaling.search):
        monkeypatch.setattr(module, "bare", lambda *a: a)
    monkeypatch.setattr(scaling.search, "search", lambda *a: a)
    return made


def test_a_fit_is_beside_the_operations_of_its_likelihoods(timed):
    panel = scaling.fit_over_rows(FULL)
    assert panel.sizes == (100, 200, 500, 1000, 2000)
    assert panel.facts["evaluations"] == [50] * 5
    assert panel.facts["exponent"] == pytest.approx(2.0)
    assert panel.facts["exponent of the limit"] == pytest.approx(2.0)
    ours, limit = panel.curves
    assert (ours.label, ours.kind) == ("fit, as $n^{2.00}$", "measured")
    assert (limit.label, limit.kind) == (
        "bare operations, as $n^{2.00}$", "limit",
    )  # fmt: skip
    # Medians of two rounds; the limit is that of 50 likelihoods, the raw numbers of one.
    assert ours.points[0].median == pytest.approx(2 * 1e-6 * 100**2)
    assert limit.points[0].median == pytest.approx(50 * 2 * 1e-9 * 100**2)
    assert panel.raw["bare"][0] == pytest.approx((1e-9 * 100**2, 3e-9 * 100**2))


@pytest.mark.parametrize("measure", [scaling.fit_batches, scaling.search_batches])
def test_a_member_of_a_batch_is_beside_one_alone(timed, measure):
    panel = measure(FULL)
    assert panel.sizes == (1, 4, 16, 64)
    together, alone, *limits = panel.curves
    assert [point.median for point in together.points] == pytest.approx(
        [2e-6 * b**2 / b for b in panel.sizes]
    )
    assert [point.median for point in alone.points] == pytest.approx([2e-6] * 4)
    for limit in limits:
        assert limit.points[3].median == pytest.approx(2e-9 * 64)
    assert panel.facts["seeds"] == list(range(100, 164))


def test_batches_are_larger_on_a_device(timed):
    device = Setting(repeats=1, quick=False, device="cuda")
    assert scaling.fit_batches(device).sizes == (1, 4, 16, 64, 320)
    assert scaling.search_batches(device).sizes == (1, 4, 16, 64, 256, 1024)


def test_likelihoods_are_counted(monkeypatch):
    seen = []
    minimise = fitting.minimise_in_box

    def noted(objective, *rest, **options):
        def counting(v, members):
            seen.append(len(v))
            return objective(v, members)

        return minimise(counting, *rest, **options)

    monkeypatch.setattr(fitting, "minimise_in_box", noted)
    work = batches.counted(batches.fits(2, 12, 3, "cpu"))
    assert work() == sum(seen) > 0
    assert fitting.minimise_in_box is noted


def test_members_of_a_batch_have_rows_of_their_own():
    surrogate = batches.fits(3, 12, 2, "cpu")()
    theta = surrogate.hyperparameters.theta
    assert theta.shape == (3, 2)
    assert len({tuple(row) for row in theta.tolist()}) == 3


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Run the command once; return its folder."""
    folder = tmp_path_factory.mktemp("scaling")
    arguments = ["scaling", "--quick", "--repeats", "2", "--results", str(folder)]
    assert main(arguments) == 0
    return folder / "micro"


def test_the_document(quick):
    record = json.loads((quick / "scaling-quick.json").read_text())
    assert set(record) == {
        "name", "made", "commit", "versions", "machine", "device", "cores", "threads", "quick",
        "repeats", "panels",
    }  # fmt: skip
    assert (record["device"], record["threads"], record["quick"]) == ("cpu", 1, True)
    assert [panel["name"] for panel in record["panels"]] == [
        "fit over rows", "fit over batch", "search over batch",
    ]  # fmt: skip
    for panel in record["panels"]:
        assert panel["facts"]["seeds"]
        assert all(len(rounds) == 2 for rounds in panel["raw"][OURS])
        for curve in panel["curves"]:
            assert len(curve["points"]) == len(panel["sizes"])
            assert all(0 < p["low"] <= p["median"] <= p["high"] for p in curve["points"])
    # Both starts are evaluated at least once.
    assert min(record["panels"][0]["facts"]["evaluations"]) >= 2


def test_the_figure_is_made_of_the_document(quick):
    pytest.importorskip("matplotlib")
    assert (quick / "scaling-quick.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((quick / "scaling-quick.json").read_text())
    picture = scaling_figure.figure(record)
    for ax, panel in zip(picture.axes, record["panels"], strict=True):
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        assert ax.get_xlabel() == panel["x"]
        assert ax.get_ylabel() == f"{panel['y']} [s]"
        assert ax.get_title() == panel["title"]
        assert [tick.get_text() for tick in ax.get_xticklabels()] == list(map(str, panel["sizes"]))
        assert [line.get_label() for line in ax.lines] == [c["label"] for c in panel["curves"]]
        for line, curve in zip(ax.lines, panel["curves"], strict=True):
            assert list(line.get_xdata()) == panel["sizes"]
            assert list(line.get_ydata()) == [point["median"] for point in curve["points"]]
        # Neither colour nor shape alone tells curves apart.
        for name in ("color", "linestyle", "marker"):
            assert len({getattr(line, f"get_{name}")() for line in ax.lines}) == len(ax.lines)
    (caption,) = picture.texts
    assert caption.get_text().startswith("Tiny sizes (--quick): the numbers mean nothing. ")
    assert "Median of at most 2 rounds" in caption.get_text()


def test_without_matplotlib_there_is_the_document_alone(tmp_path, monkeypatch, timed):
    def missing(module):
        raise peers.MissingPeerError(f"{module} does not load here")

    monkeypatch.setattr(scaling_figure.peers, "load", missing)
    lines = []
    path = scaling.run(QUICK, tmp_path, report=lines.append)
    assert lines == [f"written: {path}", "no figure: matplotlib.figure does not load here"]
    assert [found.name for found in tmp_path.iterdir()] == ["scaling-quick.json"]


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--device", "warp"]])
def test_wrong_arguments_are_refused(tmp_path, capsys, arguments):
    assert main(["scaling", *arguments, "--results", str(tmp_path)]) == 2
    assert "must" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
