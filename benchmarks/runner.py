"""Make the runs of a suite that are missing, in batches, in this or in other processes."""

import multiprocessing
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime

import torch

from benchmarks import environment, traces
from benchmarks.definitions import Definition, Suite
from benchmarks.fingerprint import fingerprint
from benchmarks.micro.peers import MissingPeerError
from benchmarks.peers import Peer
from benchmarks.run_batch import run_batch
from benchmarks.store import Row, Store, identity
from tcsaea_torch import metrics
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.problems import TestProblem
from tcsaea_torch.strategies.base import budget
from tcsaea_torch.types import Tensor


@dataclass(frozen=True, kw_only=True)
class Task:
    """Runs of one definition that are made together."""

    suite: str
    definition: Definition
    seeds: tuple[int, ...]
    device: str
    traces: tuple[str, ...] = ()
    """What is kept beside the scores, see `benchmarks.traces`."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """What a task has made."""

    rows: list[Row]
    traces: list[Row]


def missing(store: Store, suite: Suite, device: str) -> list[Task]:
    """Return the runs that the store does not hold, made by this code on such a device.

    Seeds run in aligned blocks of `suite.n_together`, so that asking for more seeds later
    gives the same batches, as far as those are complete. Peers run one seed at a time.
    """
    kind = torch.device(device).type
    done = {}
    for definition in suite.definitions:
        same = {"code": fingerprint(definition), "device": kind}
        rows = store.rows(definition)
        made = {row["seed"] for row in rows if same.items() <= row.items()}
        # Peers leave none.
        wanted = suite.traces if definition.peer is None else ()
        traced = [store.traced(definition, trace, same) for trace in wanted]
        done[definition] = made.intersection(*traced)
    blocks: dict[int, list[int]] = {}
    for seed in suite.seeds:
        blocks.setdefault((seed - suite.first_seed) // suite.n_together, []).append(seed)
    tasks = []
    for block in blocks.values():
        for definition in suite.definitions:
            left = tuple(
                seed
                for seed in block
                if seed not in done[definition] and suite.takes(definition, seed)
            )
            batches = [left] if definition.peer is None else [(seed,) for seed in left]
            tasks += [
                Task(
                    suite=suite.name,
                    definition=definition,
                    seeds=batch,
                    device=device,
                    traces=suite.traces,
                )
                for batch in batches
                if batch
            ]
    return tasks


@dataclass(frozen=True, kw_only=True, eq=False)
class _Runs:
    """What runs of any kind have in common."""

    points: list[Tensor]
    """Values that each is judged by."""
    used: list[list[int]]
    allowed: list[tuple[int, int]]
    seconds: float
    kept: dict[str, traces.Trace] = field(default_factory=dict)
    """What is left beside the scores."""


def _run_strategy(task: Task, problems: list[TestProblem]) -> _Runs:
    """Run a strategy of the library, all seeds as one batch."""
    definition, strategy = task.definition, task.definition.make_strategy()
    kept = traces.make(task.traces, problems)
    result = run_batch(
        problems,
        strategy,
        task.seeds,
        n_slow=definition.n_slow,
        n_init=definition.n_init,
        device=task.device,
        watch=traces.watch_all(kept),
    )
    return _Runs(
        points=[result.points(i) for i in range(len(problems))],
        used=result.used.tolist(),
        allowed=[budget(strategy, problem, definition.n_slow) for problem in problems],
        seconds=result.seconds,
        kept=kept,
    )


def _run_peer(peer: Peer, task: Task, problems: list[TestProblem]) -> _Runs:
    """Run a peer, one seed after the other."""
    if torch.device(task.device).type != "cpu":
        raise InvalidInputError(f"device must be 'cpu' for a peer, got {task.device!r}")
    definition = task.definition
    results = [
        peer(problem, seed, definition.n_slow, definition.n_init, definition.time_limit)
        for problem, seed in zip(problems, task.seeds, strict=True)
    ]
    return _Runs(
        points=[result.scored for result in results],
        used=[[result.n_fast, result.n_slow] for result in results],
        allowed=[(p.n_fast(definition.n_slow), definition.n_slow) for p in problems],
        seconds=sum(result.seconds for result in results),
    )


def make(task: Task) -> Made:
    """Make the runs of a task."""
    definition, peer = task.definition, task.definition.peer
    problems = [definition.problem_for(seed) for seed in task.seeds]
    runs = _run_peer(peer, task, problems) if peer else _run_strategy(task, problems)
    shared = {
        **identity(definition),
        "device": torch.device(task.device).type,
        "code": fingerprint(definition),
        "seconds": round(runs.seconds / len(task.seeds), 3),
        "n_together": len(task.seeds),
        "suite": task.suite,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": environment.commit(),
        "versions": environment.versions(*(peer.packages if peer else ())),
        "machine": environment.machine(task.device),
    }
    rows = []
    for i, (seed, problem) in enumerate(zip(task.seeds, problems, strict=True)):
        n_fast, n_slow = runs.used[i]
        allowed = runs.allowed[i]
        if n_fast > allowed[0] or n_slow > allowed[1]:
            raise AssertionError(f"budget broken by {task}: {n_slow} slow, {n_fast} fast calls")
        Y = runs.points[i]
        Y, front = Y[metrics.is_non_dominated(Y)].cpu(), problem.pareto_front(traces.N_FRONT)
        rows.append(
            {
                **shared,
                "seed": seed,
                "n_slow": n_slow,
                "n_fast": n_fast,
                "igd": metrics.igd(Y, front),
                "hv": metrics.normalized_hypervolume(Y, front),
                "volume": metrics.hypervolume(Y, problem.ref_point * problem.signs),
            }
        )
    trace_rows = [
        {**row, "trace": name, "x": x, "y": y}
        for i, row in enumerate(rows)
        for name, trace in runs.kept.items()
        for x, y in trace.points(i)
    ]
    return Made(rows=rows, traces=trace_rows)


def run(
    store: Store,
    tasks: Sequence[Task],
    *,
    n_workers: int = 0,
    n_threads: int = 1,
    export_every: float = 60.0,
    report: Callable[[str], None] = print,
) -> int:
    """Make the runs of all tasks, storing each batch as it ends.

    A batch that raises is reported and left out; the others go on. Whatever ends the
    process, at most the batches under way are lost.

    Args:
        store: Where rows go; exported to CSV at intervals and at the end.
        tasks: What to run.
        n_workers: Worker processes; 0: this process.
        n_threads: Numeric threads of each process.
        export_every: Seconds between exports.
        report: Called with a line for each batch.

    Returns:
        The number of batches that raised.
    """
    n_failed, exported = 0, time.monotonic()
    try:
        for n_done, (task, made) in enumerate(_results(tasks, n_workers, n_threads), start=1):
            head = f"[{n_done}/{len(tasks)}] {task.definition.label} {task.definition.column}"
            if isinstance(made, BaseException):
                n_failed += 1
                if isinstance(made, MissingPeerError):
                    report(f"{head}: left out, {made}")
                    continue
                report(f"{head}: FAILED\n{''.join(traceback.format_exception(made))}")
                continue
            rows = made.rows
            store.add(rows, made.traces)
            mean = sum(row["igd"] for row in rows) / len(rows)
            seconds = sum(row["seconds"] for row in rows)
            report(f"{head}: {len(rows)} runs, mean IGD {mean:.4g}, {seconds:.1f} s")
            if time.monotonic() - exported > export_every:
                store.export()
                exported = time.monotonic()
    finally:
        store.export()
    return n_failed


def _results(
    tasks: Sequence[Task], n_workers: int, n_threads: int
) -> Iterator[tuple[Task, Made | BaseException]]:
    """Yield each task with what it made, or with what it raised, as they end."""
    if n_workers == 0:
        torch.set_num_threads(n_threads)
        for task in tasks:
            try:
                yield task, make(task)
            except Exception as error:
                yield task, error
        return
    context = multiprocessing.get_context("spawn")  # a forked CUDA context does not work
    pool = ProcessPoolExecutor(
        n_workers, mp_context=context, initializer=_begin_worker, initargs=(n_threads,)
    )
    try:
        running: dict[Future[Made], Task] = {pool.submit(make, task): task for task in tasks}
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                error = future.exception()
                yield running.pop(future), future.result() if error is None else error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin_worker(n_threads: int) -> None:
    """Set the threads of a worker, and let it end with its parent, however that is killed."""
    torch.set_num_threads(n_threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
