"""`JobExecutor`: jobs that can only be asked whether they are done become futures."""

import threading
import time
from concurrent.futures import CancelledError, wait

import pytest

import tcsaea_torch as tc
from tcsaea_torch.errors import InvalidInputError

PATIENCE = 20.0
SOON = 0.005


class Job:
    """A job that is done when somebody says so."""

    def __init__(self, cluster, call):
        self.cluster, self.call, self.is_done, self.is_cancelled = cluster, call, False, False

    def done(self):
        self.cluster.asked.append(threading.current_thread())
        return self.is_done

    def result(self):
        assert self.is_done
        return self.call()

    def cancel(self):
        self.is_cancelled = True


class Cluster:
    """An executor of jobs; `ends` says whether they are done at once."""

    def __init__(self, ends=True, kind=Job):
        self.jobs, self.asked, self.ends, self.kind = [], [], ends, kind

    def submit(self, fn, *arguments, **options):
        job = self.kind(self, lambda: fn(*arguments, **options))
        job.is_done = self.ends
        self.jobs.append(job)
        return job


def test_results_and_exceptions_arrive():
    with tc.JobExecutor(Cluster(), poll_s=SOON) as executor:
        good, bad = executor.submit(int, "11", base=2), executor.submit(int, "x")
        exits = executor.submit(exit)
        assert good.result(PATIENCE) == 3
        with pytest.raises(ValueError, match="'x'"):
            bad.result(PATIENCE)
        with pytest.raises(SystemExit):
            exits.result(PATIENCE)


def test_jobs_end_in_any_order_and_one_thread_asks():
    cluster, before = Cluster(ends=False), threading.active_count()
    with tc.JobExecutor(cluster, poll_s=SOON) as executor:
        futures = [executor.submit(int, k) for k in range(20)]
        assert threading.active_count() == before + 1
        for k in (7, 3, 19):
            cluster.jobs[k].is_done = True
            assert futures[k].result(PATIENCE) == k
        assert sum(future.done() for future in futures) == 3
        for job in cluster.jobs:
            job.is_done = True
    assert [future.result(0) for future in futures] == list(range(20))
    assert len(set(cluster.asked)) == 1
    assert threading.active_count() == before


def test_the_thread_ends_with_the_last_job_and_comes_again():
    executor = tc.JobExecutor(Cluster(), poll_s=SOON)
    before = threading.active_count()
    for k in range(3):
        assert executor.submit(int, k).result(PATIENCE) == k
        end = time.monotonic() + PATIENCE
        while threading.active_count() > before:
            assert time.monotonic() < end
            time.sleep(0.001)


def test_jobs_are_not_asked_more_often_than_said():
    cluster = Cluster(ends=False)
    executor = tc.JobExecutor(cluster, poll_s=0.05)
    began = time.monotonic()
    future = executor.submit(int, 1)
    executor.submit(int, 2).cancel()
    time.sleep(0.2)
    cluster.jobs[0].is_done = True
    future.result(PATIENCE)
    assert 2 <= len(cluster.asked) <= (time.monotonic() - began) / 0.05 + 2


@pytest.mark.parametrize("where", ["done", "result"])
def test_a_job_that_cannot_be_asked_is_an_exception_of_its_own(where):
    class Lost(Job):
        pass

    def lost(self):
        if self.cluster.jobs.index(self) == 0:
            raise OSError("node down")
        return Job.done(self) if where == "done" else Job.result(self)

    setattr(Lost, where, lost)
    with tc.JobExecutor(Cluster(kind=Lost), poll_s=SOON) as executor:
        futures = [executor.submit(int, k) for k in range(2)]
        with pytest.raises(OSError, match="node down"):
            futures[0].result(PATIENCE)
        assert futures[1].result(PATIENCE) == 1


def test_to_cancel_a_future_cancels_its_job():
    cluster = Cluster(ends=False)
    executor = tc.JobExecutor(cluster, poll_s=PATIENCE)
    first, second = executor.submit(int, 1), executor.submit(int, 2)
    assert first.cancel()
    assert [job.is_cancelled for job in cluster.jobs] == [True, False]
    assert wait([first], PATIENCE).done == {first}
    with pytest.raises(CancelledError):
        first.result(PATIENCE)
    assert first.cancel()  # again: nothing more happens
    executor.shutdown(cancel_futures=True)  # waits for no poll
    assert second.cancelled()
    assert cluster.jobs[1].is_cancelled
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int, 3)


def test_jobs_without_cancel_are_left_alone():
    cluster = Cluster(ends=False)
    executor = tc.JobExecutor(cluster, poll_s=SOON)
    cluster.kind = type("Lasting", (Job,), {"cancel": None})
    future = executor.submit(int, 1)
    executor.shutdown(wait=False, cancel_futures=True)
    assert future.cancelled()


def test_shutdown_without_waiting_leaves_jobs_running():
    cluster = Cluster(ends=False)
    executor = tc.JobExecutor(cluster, poll_s=SOON)
    future = executor.submit(int, 1)
    executor.shutdown(wait=False)
    assert not future.done()
    cluster.jobs[0].is_done = True
    assert future.result(PATIENCE) == 1


@pytest.mark.parametrize("job", [None, 3, type("Half", (), {"done": bool})()])
def test_what_submit_returns_must_be_a_job(job):
    cluster = Cluster()
    cluster.submit = lambda fn, *arguments: job
    with pytest.raises(InvalidInputError, match=r"^executor must return jobs with done\(\) and"):
        tc.JobExecutor(cluster).submit(int, 1)


def paraboloid(x):
    return float((x**2).sum())


def diverges(x):
    if x[0] > 0.6:
        raise ArithmeticError("diverged")
    return float(((x - 1) ** 2).sum())


def minimized(executor, **options):
    problem = tc.Problem(fast=paraboloid, slow=diverges, bounds=[[0, 0], [1, 1]], tau=2)
    settings = {"n_slow": 8, "n_init": 4, "strategy": "random", "progress": False}
    return tc.minimize(problem, executor=executor, **{**settings, **options})


def test_a_run_is_the_same_as_in_threads():
    expected = minimized(None)
    with tc.JobExecutor(Cluster(), poll_s=SOON) as executor:
        result = minimized({"slow": executor})
    assert result.X.tolist() == expected.X.tolist()
    assert result.Y.tolist() == expected.Y.tolist()
    reasons = [r.reason.splitlines()[-1] for r in result.history if r.status == tc.Status.FAILED]
    assert set(reasons) == {"ArithmeticError: diverged"}


# submitit leaves a process to the garbage collector.
@pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <function Popen\.__del__:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.slow
def test_submitit_jobs(tmp_path):
    submitit = pytest.importorskip("submitit")
    cluster = submitit.LocalExecutor(tmp_path)
    cluster.update_parameters(timeout_min=5)
    with tc.JobExecutor(cluster, poll_s=0.2) as executor:
        result = minimized({"slow": executor}, n_slow=3, n_init=2)
        killed = executor.submit(time.sleep, 600)
        time.sleep(1)
        assert killed.cancel()
    assert result.n_slow == 3
    done = [diverges(x) for x in result.X.numpy()]
    assert result.Y[:, 1].tolist() == done
    failed = [r for r in result.history if r.status == tc.Status.FAILED]
    assert len(done) + len(failed) >= 3
    assert all("diverged" in record.reason for record in failed)
