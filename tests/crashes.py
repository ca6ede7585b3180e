"""Studies that are killed again and again: `python -m tests.crashes N SEED FOLDER`.

A child process works on a study and says what it told; it is killed at a random moment,
by SIGKILL, and another goes on, until the study is finished. What must hold then is
checked in the end, in one more process. Prints the number of kills.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import tcsaea_torch as tc
from tcsaea_torch.events import Asked, HandedOut
from tcsaea_torch.evolution import RVEAConfig
from tcsaea_torch.journal import Journal
from tcsaea_torch.models import FitConfig
from tcsaea_torch.models.optimise import BFGSOptions
from tcsaea_torch.study import Study


def strategy():
    """TC-SAEA with a short search."""
    fit = FitConfig(
        input_scaling="standardize", starts=(2.0,), options=BFGSOptions(max_evaluations=5)
    )
    return tc.TCSAEA(kriging=fit, search=RVEAConfig(n_generations=3), n_ref_vectors=12)


def problem():
    return tc.Problem(
        fast=lambda x: float((x**2).sum()),
        slow=lambda x: float(((x - 1) ** 2).sum()),
        bounds=[[0.0, 0.0], [1.0, 3.0]],
        tau=2.5,
    )


SETTINGS: dict[str, Any] = {"n_slow": 14, "n_init": 8, "seed": 5}


def begin(path):
    """Begin or go on, in a new process."""
    if path is not None and Journal.exists(path):
        return tc.Optimizer.resume(path, problem(), on_pending="rerun")
    return tc.Optimizer(problem(), **SETTINGS, strategy=strategy(), journal=path)


def work(optimizer, say=lambda line: None):
    """Tell one value after the other, and some failures; say it as soon as it is told."""
    while evaluations := optimizer.ask():
        for e in evaluations:
            if e.id % 9 == 4:
                optimizer.fail(e.id, f"no {e.id}", retry=e.id % 2 == 0)
                say(f"{e.id} failed")
            else:
                value = optimizer.problem.function_of(e.objective)(e.x)
                optimizer.tell(e.id, value)
                say(f"{e.id} {value!r}")
    return optimizer


def killed(path, seconds):
    """Work in a child for a while, then kill it; return what it said, and whether it ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            work(begin(path), lambda line: os.write(write, f"{line}\n".encode()))
            os.write(write, b"end\n")
        except BaseException as error:
            os.write(write, f"error {error!r}\n".encode())
        os._exit(0)
    os.close(write)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        lines = pipe.read().splitlines()
    assert not [line for line in lines if line.startswith("error")], lines
    return [line for line in lines if line != "end"], "end" in lines


def check_told(path, said):
    """Check that everything that was told is there, once, and that ids go on."""
    study = Study.read(path, thoroughly=True)
    records = study.state.records
    assert [r.id for r in records] == list(range(len(records)))
    for line in said:
        id, what = line.split()
        record = records[int(id)]
        assert what == ("failed" if record.status == "failed" else repr(record.value)), line
    # A retry is asked for again; else no value is asked for twice.
    assert len(said) == len(set(said))


def decisions(events):
    """Return all but the hand-outs of retries, which a crash brings forward."""
    return [event for event in events if not isinstance(event, HandedOut)]


def is_same(a, b):
    """Return whether two runs asked for and were told the same, bit for bit."""
    return len(a) == len(b) and all(
        type(x) is type(y)
        and all(
            same_value(value, vars(y)[name]) for name, value in vars(x).items() if name != "time"
        )
        for x, y in zip(a, b, strict=True)
    )


def same_value(a, b):
    if isinstance(a, torch.Tensor):
        return (
            a.dtype is b.dtype
            and torch.equal(a.isnan(), b.isnan())
            and bool((a.nan_to_num() == b.nan_to_num()).all())
        )
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    return a == b


def main(n, seed, folder):
    """Kill n times; return how many studies were finished on the way."""
    torch.set_num_threads(1)
    rng, expected = random.Random(seed), list(work(begin(None)).events)
    assert sum(isinstance(e, Asked) for e in expected) > 4
    start = time.perf_counter()
    work(begin(folder / "timed.db")).close()
    expected = decisions(expected)
    whole, n_killed, n_finished = time.perf_counter() - start, 0, 0
    while n_killed < n:
        path, said, is_over, longest = folder / f"{n_finished}.db", [], False, 0.4 * whole
        while not is_over:
            lines, is_over = killed(path, rng.uniform(0, longest))
            # One decision may take longer than that, and then no child would get beyond it.
            longest = 0.4 * whole if lines else 1.2 * longest
            n_killed += not is_over
            said += lines
            if Journal.exists(path):
                check_told(path, said)
        events = Study.read(path).events
        assert is_same(decisions(events), expected)
        n_finished += 1
    return n_killed, n_finished


if __name__ == "__main__":
    print(*main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
