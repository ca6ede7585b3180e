"""Whole runs of the strategy, alone and in a batch."""

from benchmarks.micro import data
from benchmarks.micro.rows import Line, Measured, Row, Setting
from benchmarks.micro.timing import paired, synchroniser
from benchmarks.run_batch import run_batch
from tcsaea_torch import problems, strategies


def measure(setting: Setting) -> Measured:
    """Time a run alone, and the runs of a batch."""
    n_slow, n_init, b = setting.pick((200, 100, 20), (14, 9, 2))
    problem, strategy = problems.get("dtlz2", tau=5.0), strategies.get("tc-saea-released")

    def runs(n: int) -> object:
        seeds = range(data.SEED, data.SEED + n)
        device = setting.device
        return run_batch(problem, strategy, seeds, n_slow=n_slow, n_init=n_init, device=device)

    rounds = paired(
        {"alone": lambda: runs(1), "batch": lambda: runs(b)},
        setting.repeats,
        synchronise=synchroniser(setting.device),
    )
    per_run = tuple(seconds / b for seconds in rounds.seconds["batch"])
    return Measured(
        raw={"alone": rounds.seconds["alone"], "per run": per_run},
        sizes={"n_slow": n_slow, "n_init": n_init, "b": b, "tau": 5.0, "problem": "dtlz2"},
        seeds=tuple(range(data.SEED, data.SEED + b)),
    )


ROWS = (
    Row(
        name="run",
        what="tc-saea-released, DTLZ2, tau = 5, 200 slow evaluations",
        lines=(
            Line(against="alone", kind="value", target=3.0, ours="alone"),
            Line(against="per run, in a batch of 20", kind="value", target=1.5, ours="per run"),
        ),
        measure=measure,
    ),
)
