"""How time grows with rows and dimensions, and how much memory a fit takes."""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.micro import data
from benchmarks.micro.likelihood import standardised, typical_log_theta
from benchmarks.micro.rows import Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from tcsaea_torch.models import fit_kriging
from tcsaea_torch.models.likelihood import evaluate, prepare

ROOT = Path(__file__).parent.parent.parent


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the slope of ln seconds over ln size, by least squares."""
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    cross = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return cross / sum((a - mean_x) ** 2 for a in x)


def steepest(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Return the largest exponent between neighbouring sizes: a cliff stands out."""
    return max(
        math.log(seconds[i + 1] / seconds[i]) / math.log(sizes[i + 1] / sizes[i])
        for i in range(len(sizes) - 1)
    )


def measure_growth(setting: Setting) -> Measured:
    """Time likelihoods and fits over n and over d."""
    series = {
        "n": [(n, 10) for n in setting.pick((100, 200, 500, 1000, 2000), (10, 20))],
        "d": [(setting.pick(200, 15), d) for d in setting.pick((2, 5, 10, 30, 100), (2, 4))],
    }
    raw: dict[str, tuple[float, ...]] = {}
    times: dict[str, dict[str, tuple[float, ...]]] = {}
    for axis, sizes in series.items():
        for kind in ("likelihood", "fit"):
            make = _likelihood if kind == "likelihood" else _fit
            works = {f"n={n}, d={d}": make(n, d, setting.device) for n, d in sizes}
            rounds = paired(
                works,
                setting.repeats,
                min_seconds=setting.pick(0.1, 0.0) if kind == "likelihood" else 0.0,
                synchronise=synchroniser(setting.device),
            )
            times[f"{kind} over {axis}"] = rounds.seconds
            along = [pair[0 if axis == "n" else 1] for pair in sizes]
            columns = list(zip(*rounds.seconds.values(), strict=True))
            raw[f"{kind} over {axis}"] = tuple(exponent(along, column) for column in columns)
            raw[f"{kind} over {axis}, steepest"] = tuple(
                steepest(along, column) for column in columns
            )
    return Measured(
        raw=raw, sizes=series, seeds=(data.SEED,), facts={"seconds": times},
    )  # fmt: skip


def _likelihood(n: int, d: int, device: str) -> Callable[[], object]:
    training = standardised("dtlz2", n, d, device)
    log_theta = typical_log_theta(training)
    prepared = prepare(training, 1e-10, p=None)
    return lambda: evaluate(prepared, log_theta, None, None)


def _fit(n: int, d: int, device: str) -> Callable[[], object]:
    X = data.design(n, d, device)
    y = data.slow_values("dtlz2", X)
    return lambda: fit_kriging(X, y)


def measure_memory(setting: Setting) -> Measured:
    """Measure the peak of a fit in processes of their own."""
    n, d = setting.pick((2000, 30), (60, 3))
    command = [sys.executable, "-m", "benchmarks.micro.memory", str(n), str(d), setting.device]
    peaks = []
    for _ in range(setting.repeats):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
        peaks.append(json.loads(done.stdout)["bytes"] / (8 * n * n))
    return Measured(raw={"peak": tuple(peaks)}, sizes={"n": n, "d": d}, seeds=(data.SEED,))


def _lines() -> tuple[Line, ...]:
    return tuple(
        line
        for axis in ("n", "d")
        for kind in ("likelihood", "fit")
        for line in (
            Line(against=f"exponent of a {kind} in {axis}", kind="value", unit="",
                 ours=f"{kind} over {axis}", target=3.3 if axis == "n" else None),
            Line(against=f"the largest exponent of a {kind} between neighbours in {axis}",
                 kind="value", unit="", ours=f"{kind} over {axis}, steepest"),
        )
    )  # fmt: skip


ROWS = (
    Row(
        name="growth",
        what="time over n = 100 ... 2000 (d = 10) and d = 2 ... 100 (n = 200)",
        lines=_lines(),
        measure=measure_growth,
    ),
    Row(
        name="memory",
        what="peak memory of a fit, n = 2000, d = 30, beyond what was there before",
        lines=(
            Line(against="n x n matrices of float64", kind="value", target=12.0, ours="peak",
                 unit="matrices"),
        ),
        measure=measure_memory,
    ),
)  # fmt: skip
