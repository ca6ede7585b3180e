import json
import math
import re
import time
import types
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks import micro
from benchmarks.__main__ import main
from benchmarks.micro import data, fits, growth, peers
from benchmarks.micro.rows import OURS, Line, Measured, Row, Setting, judge
from benchmarks.micro.timing import Spread, one_thread, paired
from tcsaea_torch.kernels import PowerExponentialKernel
from tcsaea_torch.models.likelihood import negative_log_likelihood
from tcsaea_torch.models.surrogate import Hyperparameters, condition, scale
from tcsaea_torch.models.training_set import TrainingSet

QUICK = Setting(repeats=1, quick=True, device="cpu")
KEYS = {
    "name", "what", "made", "commit", "cores", "versions", "peers", "machine", "device", "threads",
    "quick", "repeats", "seeds", "sizes", "raw", "scores", "notes", "facts", "lines",
}  # fmt: skip


class Clock:
    """Time that passes only while work is done."""

    def __init__(self):
        self.now = 0.0
        self.calls = []

    def __call__(self):
        return self.now

    def work(self, name, seconds):
        left = iter(seconds)

        def run():
            self.calls.append(name)
            self.now += next(left)
            return name, len(self.calls)

        return run


def test_rivals_take_turns_in_alternating_order():
    clock = Clock()
    works = {
        "a": clock.work("a", [9.0, 1.0, 2.0, 3.0]),
        "b": clock.work("b", [9.0, 4.0, 5.0, 6.0]),
        "c": clock.work("c", [9.0, 7.0, 8.0, 9.0]),
    }
    rounds = paired(works, 3, clock=clock)
    assert "".join(clock.calls) == "abc" + "abc" + "cba" + "abc"
    assert rounds.seconds == {"a": (1, 2, 3), "b": (4, 5, 6), "c": (7, 8, 9)}
    assert rounds.results["b"] == ("b", 11)
    assert rounds.failures == {}


def test_short_work_is_repeated_within_a_round():
    clock = Clock()
    works = {
        "first call slow": clock.work("a", [7.0, 0.25] + [0.25] * 8),
        "long": clock.work("b", [2.0, 2.0, 2.0]),
    }
    rounds = paired(works, 2, min_seconds=1.0, clock=clock)
    assert rounds.seconds == {"first call slow": (0.25, 0.25), "long": (2.0, 2.0)}
    # A first call that took long enough is not repeated to look again.
    assert "".join(clock.calls) == "a" + "b" + "ab" + "ba"


def test_work_that_only_begins_slowly_is_measured_again():
    clock = Clock()
    works = {"a": clock.work("a", [0.5, 0.25] + [0.25] * 8)}
    assert paired(works, 2, min_seconds=1.0, clock=clock).seconds == {"a": (0.25, 0.25)}
    assert len(clock.calls) == 2 + 2 * 4


@pytest.mark.parametrize(("max_seconds", "n"), [(0.0, 1), (5.0, 2), (100.0, 4)])
def test_long_rounds_are_fewer(max_seconds, n):
    clock = Clock()
    works = {name: clock.work(name, [2.0] * 9) for name in "ab"}
    rounds = paired(works, 4, max_seconds=max_seconds, clock=clock)
    assert rounds.seconds == {"a": (2.0,) * n, "b": (2.0,) * n}


def test_the_device_is_waited_for_at_both_ends():
    events = []
    paired(
        {"a": lambda: events.append("work")}, 1, synchronise=lambda: events.append("wait"),
        clock=lambda: events.append("clock") or 0.0,
    )  # fmt: skip
    timed = ["wait", "clock", "work", "wait", "clock"]
    assert events == [*timed, "clock", *timed]  # the middle one: when the rounds began


def test_only_what_is_optional_may_fail():
    def broken():
        raise RuntimeError("no compiler\nand more")

    rounds = paired({"ours": lambda: 1, "peer": broken}, 2, optional=["peer"])
    assert set(rounds.seconds) == {"ours"}
    assert rounds.failures == {"peer": "RuntimeError: no compiler"}
    with pytest.raises(RuntimeError, match="no compiler"):
        paired({"ours": lambda: 1, "bare": broken}, 1, optional=["peer"])


def test_medians_and_quartiles():
    assert Spread.of([3.0, 1.0, 2.0, 5.0, 4.0]) == Spread(median=3.0, low=2.0, high=4.0)
    assert Spread.of([2.0]) == Spread(median=2.0, low=2.0, high=2.0)


RAW = {OURS: (1.0, 2.0, 4.0), "p": (10.0, 10.0, 10.0), "q": (20.0, 4.0, 40.0)}


def measured(**changes):
    return Measured(**{"raw": RAW, "sizes": {}, **changes})


@pytest.mark.parametrize(
    ("line", "ratios", "reached"),
    [
        # The median of the pairs' ratios, which is not the ratio of medians.
        (Line(against="", kind="speed-up", target=5.0, rivals=("p",)), (2.5, 5, 10), True),
        (Line(against="", kind="speed-up", target=5.1, rivals=("p",)), (2.5, 5, 10), False),
        (Line(against="", kind="overhead", target=0.2, rivals=("p",)), (0.1, 0.2, 0.4), True),
        (Line(against="", kind="overhead", target=0.1, rivals=("p",)), (0.1, 0.2, 0.4), False),
        (Line(against="", kind="speed-up", rivals=("q",)), (2, 10, 20), None),
        # Who is slower or faster is decided in each round.
        (Line(against="", kind="speed-up", rivals=("p", "q"), pick="slowest"), (5, 10, 20), None),
        (Line(against="", kind="speed-up", rivals=("p", "q"), pick="fastest"), (2, 2.5, 10), None),
    ],
)
def test_ratios_are_of_pairs(line, ratios, reached):
    outcome = judge(line, measured())
    assert outcome.ratio == Spread.of(ratios)
    assert outcome.reached is reached


def test_values_are_compared_with_the_target_itself():
    line = Line(against="", kind="value", target=2.0)
    assert judge(line, measured()).reached is True
    assert judge(Line(against="", kind="value", target=1.9), measured()).reached is False
    assert judge(Line(against="", kind="value"), measured()).reached is None


def test_faster_but_worse_does_not_count():
    line = Line(against="", kind="speed-up", target=2.0, rivals=("p", "q"))
    for ours, reached in ((-1.0, True), (-0.9995, True), (-0.998, False)):
        outcome = judge(line, measured(scores={OURS: ours, "p": -1.0, "q": -0.5}))
        assert outcome.reached is reached
        assert ("our likelihood is worse" in outcome.note) is not reached
        assert "p's likelihood" not in outcome.note
        assert "q's likelihood is worse by 0.5 a point" in outcome.note


def test_a_missing_peer_is_noted():
    line = Line(against="", kind="speed-up", target=2.0, rivals=("p", "r"))
    outcome = judge(line, measured(notes={"r": "not installed"}))
    assert (outcome.ratio, outcome.reached) == (None, None)
    assert outcome.note == "skipped, r: not installed"


def test_peers_are_optional():
    works, notes = {}, {}
    peers.add(works, notes, "nothing", lambda: peers.load("no_such_package.module"))
    peers.add(works, notes, "loud", lambda: lambda: warnings.warn("of the peer", stacklevel=1))
    assert "no_such_package does not load here" in notes["nothing"]
    assert list(works) == ["loud"]
    works["loud"]()  # warnings are errors in these tests


def test_one_thread_is_left_again():
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_exponents():
    sizes = [100, 200, 500]
    cubic = [1e-9 * n**3 for n in sizes]
    assert growth.exponent(sizes, cubic) == pytest.approx(3.0)
    assert growth.steepest(sizes, cubic) == pytest.approx(3.0)
    cliff = [*cubic[:2], 10 * cubic[2]]
    assert growth.steepest(sizes, cliff) == pytest.approx(3 + math.log(10) / math.log(2.5))


def example(n=30, d=3):
    X = data.design(n, d)
    return X, data.slow_values("dtlz2", X)


def peer_model(X, y, kernel) -> Any:
    """Return GPyTorch's model of the same data, with no priors and a free noise."""
    likelihood = GaussianLikelihood(noise_constraint=GreaterThan(1e-12)).double()
    return SingleTaskGP(
        X, y.unsqueeze(-1), likelihood=likelihood, covar_module=kernel.double(),
        outcome_transform=None,
    )  # fmt: skip


def lengthscale_kernel():
    kernel = RBFKernel(ard_num_dims=3)
    kernel.lengthscale = torch.tensor([0.5, 1.5, 3.0])
    return kernel


def power_kernel():
    kernel = PowerExponentialKernel(ard_num_dims=3, p="ard")
    kernel.theta, kernel.p = torch.tensor([2.0, 0.3, 0.1]), torch.tensor([1.9, 1.2, 2.0])
    return kernel


@pytest.mark.parametrize("make", [lengthscale_kernel, power_kernel])
def test_scores_of_peers_are_their_own_likelihoods(make):
    # GPyTorch standardises nothing here, so y must be standardised already.
    X, y = example()
    y = (y - y.mean()) / y.std()
    model = peer_model(X, y, ScaleKernel(make()))
    theta, p = fits.hyperparameters(model)
    nugget = 1e-3
    score = fits.score(X, y, theta.squeeze(0), p if p is None else p.squeeze(0), nugget)

    # Give GPyTorch the mean, the variance and the noise that are concentrated out of ours.
    train = TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y))
    training, scaling = scale(train, trend=torch.tensor(False), input_scaling="unit")
    found = Hyperparameters(theta=theta.squeeze(0), p=p if p is None else p.squeeze(0))
    ours = condition(training, scaling, found, nugget=nugget)
    model.mean_module.constant = float(ours.factors.beta[0])
    model.covar_module.outputscale = float(ours.variance)
    model.likelihood.noise = nugget * float(ours.variance)
    model.train()
    mll: Any = ExactMarginalLogLikelihood(model.likelihood, model)
    theirs = -float(mll(model(*model.train_inputs), model.train_targets).detach())
    assert score + 0.5 * math.log(2 * math.pi) == pytest.approx(theirs, abs=1e-6)


def test_hyperparameters_of_ours_are_those_it_fitted():
    X, y = example()
    model = fits.fit_kriging(X, y)
    theta, p = fits.hyperparameters(model)
    score = fits.score(X, y, theta, p, 1e-10)
    data_, _ = scale(
        TrainingSet(X=X, y=y, noise_var=torch.zeros_like(y)),
        trend=torch.tensor(False), input_scaling="unit",
    )  # fmt: skip
    nearby = negative_log_likelihood(data_, theta.log() + 0.05, p, None, 1e-10).value
    assert score < float(nearby)


def test_hyperparameters_of_smt_are_in_the_units_of_the_inputs():
    model = types.SimpleNamespace(optimal_theta=[2.0, 3.0], X_scale=[0.5, 2.0])
    theta, p = fits.hyperparameters(model)
    assert theta.tolist() == [8.0, 0.75]
    assert p is None


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Measure every row once with tiny sizes; return the folder, the table and the time."""
    folder, lines = tmp_path_factory.mktemp("micro"), []
    start = time.monotonic()
    micro.run(list(micro.ROWS.values()), QUICK, folder, report=lines.append)
    return folder, "\n".join(lines), time.monotonic() - start


def test_every_row_runs_in_seconds(quick):
    _, table, seconds = quick
    body = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(body) == sum(len(row.lines) for row in micro.ROWS.values())
    assert all(line.count(" | ") == 6 for line in body)
    assert "the numbers mean nothing" in table
    assert seconds < 180  # on a machine that is busy; a few seconds on one that is not


@pytest.mark.parametrize("row", micro.ROWS.values(), ids=lambda row: row.name)
def test_files_hold_what_is_needed_to_judge_a_number(quick, row):
    record = json.loads((quick[0] / f"{row.name}-quick.json").read_text())
    assert set(record) == KEYS
    assert record["quick"] is True
    assert record["threads"] == 1
    assert record["seeds"]
    assert record["sizes"]
    assert all(len(values) == 1 for values in record["raw"].values())
    assert len(record["lines"]) == len(row.lines)
    for line in record["lines"]:
        assert line["ours"]["low"] <= line["ours"]["median"] <= line["ours"]["high"]
        assert line["reached"] is None  # tiny sizes reach or miss nothing
        if line["theirs"] is None and line["line"]["kind"] != "value":
            assert "skipped" in line["note"]
    if row.name.startswith("fit"):
        assert {OURS, "gpytorch", "botorch"} <= set(record["scores"])


def test_the_command(tmp_path, capsys):
    arguments = ["predict", "likelihood-145-11", "--quick", "--repeats", "3"]
    assert main(["micro", *arguments, "--results", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("| what | against | ours (median, quartiles) | theirs |")
    assert re.search(r"\| means and variances .* \| <= 2 x \|  \|", shown)
    record = json.loads((tmp_path / "micro" / "predict-quick.json").read_text())
    assert len(record["raw"]["ours"]) == 3
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predct"], "row must be one of .*did you mean 'predict'"),
        (["predict", "--repeats", "0"], "repeats must be"),
        (["predict", "--device", "warp"], "device must name"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path, capsys, arguments, message):
    assert main(["micro", *arguments, "--results", str(tmp_path)]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_rows_are_consistent():
    for name, row in micro.ROWS.items():
        assert isinstance(row, Row)
        assert name == row.name
        for line in row.lines:
            assert bool(line.rivals) == (line.kind != "value")


def test_the_stored_table_holds_every_row_and_what_made_it(tmp_path):
    work = Row(
        name="work", what="some work",
        lines=(Line(against="a rival", kind="speed-up", target=2.0, rivals=("rival",)),
               Line(against="alone", kind="value", target=1.0)),
        measure=lambda setting: Measured(
            raw={OURS: (0.5, 0.5), "rival": (2.0, 2.0)}, sizes={},
            scores={OURS: -1.5, "rival": -1.5},
        ),
    )  # fmt: skip
    setting = replace(QUICK, quick=False)
    for name in ("first", "second"):
        micro.run([replace(work, name=name)], setting, tmp_path, report=lambda _: None)
    (tmp_path / "scaling.json").write_text("{}")  # another command's, without rows
    micro.run([replace(work, name="tiny")], QUICK, tmp_path, report=lambda _: None)
    table = (tmp_path / "table.md").read_text()
    body = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(body) == 4
    assert body[0] == body[2]
    assert body[0].split(" | ")[2:] == [
        "500 ms (500 to 500)", "2 s (2 to 2)", "4 x (4 to 4)", ">= 2 x", "yes |",
    ]  # fmt: skip
    assert "- second, negative log-likelihood a point: ours -1.5, rival -1.5" in table
    assert table.count("Commit ") == 1  # both were made alike
