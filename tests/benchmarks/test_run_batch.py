import torch

from benchmarks.run_batch import run_batch
from tcsaea_torch import Optimizer, strategies
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
