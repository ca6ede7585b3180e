import pytest
import torch

from benchmarks.run_batch import run_batch
from tcsaea_torch import Optimizer, problems, strategies
from tcsaea_torch.errors import InvalidInputError
from tests.strategies.runs import Toy


def test_a_batch_of_one_is_the_run_of_an_optimizer():
    problem = Toy(d=3, tau=4)
    strategy = strategies.get("tc-saea-released")
    batch = run_batch(problem, strategy, [11], n_slow=20, n_init=9)
    optimizer = Optimizer(problem, n_slow=20, n_init=9, strategy=strategy, seed=11)
    while evaluations := optimizer.ask():
        for e in evaluations:
            x = torch.from_numpy(e.x).unsqueeze(0)
            optimizer.tell(e.id, problem.function_of(e.objective)(x))
    assert torch.equal(optimizer.archive.X, batch.archive.X)
    assert optimizer.n_used == tuple(batch.used[0].tolist())


def test_each_run_can_have_a_problem_of_its_own():
    one, two = (problems.get("cm-onemax", corr=0.0, seed=seed) for seed in (1, 2))
    strategy = strategies.get("tc-saea")
    batch = run_batch([one, two], strategy, [5, 5], n_slow=14, n_init=9)
    for i, problem in enumerate((one, two)):
        X = problem.from_unit(batch.archive.X[i])
        observed = batch.archive.observed[i]
        assert torch.equal(batch.archive.Y[i][observed], problem.evaluate(X)[observed])
    # One seed, one design; the maps differ, and so do the values.
    assert torch.equal(batch.archive.X[0, :9], batch.archive.X[1, :9])
    assert not torch.equal(batch.archive.Y[0, :9, 1], batch.archive.Y[1, :9, 1])


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([{"tau": 10.0}], "must agree in tau: 5.0, 10.0"),
        ([{"name": "dtlz1"}], "must agree in d: 11, 6"),
        ([], "must have one entry a seed, 2, got 1"),
    ],
)
def test_problems_of_a_batch_must_be_alike(others, message):
    batch = [problems.get("dtlz2")]
    batch += [problems.get(**{"name": "dtlz2", **options}) for options in others]
    with pytest.raises(InvalidInputError, match=message):
        run_batch(batch, strategies.get("random"), [0, 1], n_slow=6, n_init=3)
