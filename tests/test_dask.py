"""Runs on a real Dask cluster of two processes: resources, retries, and a worker that is killed."""

import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.executors import make_lanes
from tests.test_driver import cheap

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow  # two processes that import torch

PATIENCE = 60.0


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
        resources={"licence": 1},
    ) as started:  # fmt: skip
        yield started


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as connected:
        connected.wait_for_workers(2, timeout=PATIENCE)
        yield connected


def squares(x):
    return float((x**2).sum())


def shifted(x):
    return float(((x - 1) ** 2).sum())


def licences():
    """Return how many licences are free at the worker that runs this."""
    return distributed.get_worker().state.available_resources["licence"]


def noted(folder, name, function, x):
    """Note a call in a folder that all processes see, and make it."""
    with (Path(folder) / name).open("a") as file:
        file.write(f"{os.getpid()} {licences():g} {x[0]!r}\n")
    return function(x)


def killed_once(folder, x):
    """Kill the worker that makes this call, the first time that its folder has three calls."""
    folder = Path(folder)
    if len((folder / "slow").read_text().splitlines()) >= 3:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return shifted(x)


def minimized(fast, slow, **options):
    problem = tc.Problem(fast=fast, slow=slow, bounds=[[0, 0], [1, 1]], tau=2)
    settings = {"n_slow": 8, "n_init": 4, "strategy": "random", "progress": False}
    return tc.minimize(problem, **{**settings, **options})


def calls(folder, name):
    """Return (process, free licences, first coordinate) of each call that began."""
    return [line.split() for line in (Path(folder) / name).read_text().splitlines()]


def test_each_objective_has_its_resources_and_a_killed_worker_loses_nothing(client, tmp_path):
    folder = str(tmp_path)
    fast = partial(noted, folder, "fast", squares)
    slow = partial(noted, folder, "slow", partial(killed_once, folder))
    expected = minimized(squares, shifted)
    result = minimized(
        fast, slow,
        executor={
            "fast": client.get_executor(),
            "slow": client.get_executor(resources={"licence": 1}),
        },
        timeout_s={"slow": 10 * PATIENCE},
    )  # fmt: skip
    assert result.status == "finished"
    assert (tmp_path / "killed").exists()
    assert not [record for record in result.history if record.status == tc.Status.FAILED]
    assert result.X.tolist() == expected.X.tolist()
    assert result.Y.tolist() == expected.Y.tolist()
    assert {licence for _, licence, _ in calls(folder, "slow")} == {"0"}
    assert {licence for _, licence, _ in calls(folder, "fast")} == {"1"}
    assert os.getpid() not in {int(pid) for pid, _, _ in calls(folder, "slow")}
    # What the killed worker had begun was made again, and so were values not fetched from it yet.
    n = Counter(x for _, _, x in calls(folder, "slow"))
    assert len(n) == 8
    assert max(n.values()) == 2


def fails_once(folder, x):
    """Fail at the first call of each point."""
    mark = Path(folder) / f"{x[0]!r}"
    if mark.exists():
        return shifted(x)
    mark.touch()
    raise ArithmeticError("diverged")


def test_retries_are_calls_of_their_own(client, tmp_path):
    slow = partial(fails_once, str(tmp_path))
    result = minimized(
        squares, slow, executor=client, retries={"slow": 1}, strategy=cheap(), n_slow=10, n_init=5
    )
    statuses = Counter(str(r.status) for r in result.history if r.objective == "slow")
    assert statuses == {"failed": 5, "done": 5}
    assert result.Y[:, 1].tolist() == [shifted(x) for x in result.X.numpy()]
    reasons = [record.reason for record in result.history if record.status == tc.Status.FAILED]
    assert all(reason.endswith("ArithmeticError: diverged") for reason in reasons)


def test_equal_calls_are_made_each(client):
    """By itself Dask makes one call of them, as long as its result is kept."""
    with make_lanes(client) as lanes:
        futures = [lanes.submit(tc.Objective.SLOW, k, os.urandom, 8) for k in range(3)]
        assert len({future.result(PATIENCE) for future in futures}) == 3


def test_a_limit_counts_from_the_start_and_programs_run_there(client):
    slow = tc.CommandObjective(["sh", "-c", "echo $1", "simulate", "{x0}"], timeout_s=PATIENCE)
    lanes = make_lanes(client, {"slow": 0.3})
    with lanes:
        hangs = lanes.submit(tc.Objective.SLOW, 0, time.sleep, 1.0)
        ended, overdue = lanes.wait()
        assert not ended
        assert overdue == {hangs: "timed out after 0.3 s"}
        assert lanes.wait() == ([hangs], {})
    result = minimized(squares, slow, executor=client, n_slow=3, n_init=2)
    assert result.Y[:, 1].tolist() == result.X[:, 0].tolist()


def test_asynchronous_strategies_need_the_number_of_workers(client):
    with pytest.raises(InvalidInputError, match="workers must say how many calls the fast"):
        minimized(squares, shifted, executor=client, strategy=tc.TCSAEA(asynchronous=True))


def test_a_lost_cluster_ends_the_run_with_what_there_is(tmp_path):
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as small,
        distributed.Client(small) as client,
    ):

        def close(optimizer, event):
            if optimizer.n_used[1] and event.id == 3:
                client.close()

        path = tmp_path / "study.db"
        result = minimized(squares, shifted, executor=client, callbacks=[close], journal=path)
    assert result.status == "interrupted"
    assert "broken executor" in result.message
    assert not [record for record in result.history if record.status == tc.Status.FAILED]
    resumed = minimized(squares, shifted, journal=path)
    assert resumed.status == "finished"
    assert resumed.Y.tolist() == minimized(squares, shifted).Y.tolist()
