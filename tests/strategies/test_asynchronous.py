"""Outstanding values are believed as they are foreseen; new points keep away from them."""

from dataclasses import replace

import numpy as np
import torch

from benchmarks.run_batch import initial_view
from tcsaea_torch import TCSAEA
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.surrogate import Surrogate
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.strategies import steps
from tcsaea_torch.strategies.asynchronous import believe, best_fast, fill, latest_new
from tests.strategies.runs import Toy, with_rows

NUGGET = 1e-10
FAST, SLOW = 0, 1
ROUGH = FitConfig(nugget=NUGGET, theta_range=(20.0, 20.1), starts=(2.0,))
"""With variances far above the nugget."""


def view(n=14, n_pending=4, d=2, b=1):
    """Some rows with both values, then some with both on their way."""
    generator = torch.Generator().manual_seed(b)
    X = torch.rand(n + n_pending, d, generator=generator, dtype=torch.float64)
    problem = Toy(d=d)
    run = with_rows(initial_view(problem, [0], n_slow=40, n_init=5), X, problem.evaluate(X))
    known = torch.arange(n + n_pending) < n
    observed = known.unsqueeze(-1).expand(-1, 2).unsqueeze(0)
    archive = replace(run.archive, Y=run.archive.Y * observed, observed=observed)
    return replace(run, archive=archive, pending=~observed)


def model_of(run, column):
    archive = run.archive
    train = TrainingSet.from_mask(archive.X, archive.Y[..., column], archive.observed[..., column])
    return fit(train.compact(), ROUGH, trend=torch.zeros(run.b, dtype=torch.bool))


def test_what_is_believed_to_be_foreseen_changes_no_mean_and_lowers_variances(tensor):
    run = view()
    model = model_of(run, SLOW)
    mean, variance = model.predict(run.archive.X)
    believed = believe(model, run, SLOW, mean, variance, nugget=NUGGET)
    X = torch.rand(1, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (mean_then, var_then), (mean_now, var_now) = model.predict(X), believed.predict(X)
    assert torch.allclose(mean_then, mean_now, atol=1e-8)
    assert (var_now <= var_then * (1 + 1e-9)).all()
    assert (var_now < 0.99 * var_then).any()


def test_one_belief_by_hand():
    """After one value with noise v, a variance s becomes s v / (s + v), a mean moves alike."""
    run = view(n_pending=1)
    model = model_of(run, SLOW)
    at = run.archive.X[:, -1:]
    mean, variance = model.predict(at)
    foreseen, doubt = torch.full_like(run.archive.X[..., 0], 0.7), 0.3 * float(variance)
    believed = believe(model, run, SLOW, foreseen, torch.full_like(foreseen, doubt), nugget=NUGGET)
    new_mean, new_variance = believed.predict(at)
    s = float(variance)
    np.testing.assert_allclose(float(new_variance), s * doubt / (s + doubt), rtol=1e-6)
    expected = float(mean) + s / (s + doubt) * (0.7 - float(mean))
    np.testing.assert_allclose(float(new_mean), expected, rtol=1e-6)


def test_runs_with_different_numbers_outstanding_are_independent():
    run = view(n_pending=3)
    archive = run.archive
    both = replace(
        run,
        archive=type(archive)(
            X=archive.X.repeat(2, 1, 1),
            Y=archive.Y.repeat(2, 1, 1),
            observed=archive.observed.repeat(2, 1, 1),
        ),
        failed=run.failed.repeat(2, 1, 1),
        used=run.used.repeat(2, 1),
        total=run.total.repeat(2, 1),
        pending=torch.stack([run.pending[0], run.pending[0] & (torch.arange(17) != 15)[:, None]]),
        seeds=torch.tensor([0, 1]),
    )
    model = model_of(both, SLOW)
    mean, variance = model.predict(both.archive.X)
    believed = believe(model, both, SLOW, mean, variance, nugget=NUGGET)
    X = torch.rand(2, 9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    alone_model = model_of(run, SLOW)
    mean, variance = alone_model.predict(archive.X)
    alone = believe(alone_model, run, SLOW, mean, variance, nugget=NUGGET)
    together = believed.predict(X)[1]
    assert torch.allclose(together[:1], alone.predict(X[:1])[1], rtol=1e-8)
    nobody = replace(run, pending=torch.zeros_like(run.pending))
    assert believe(alone_model, nobody, SLOW, mean, variance, nugget=NUGGET) is alone_model


def test_a_slow_value_is_foreseen_by_its_fast_one_where_that_has_come():
    """The co-surrogate is exact here: the slow objective is the fast one plus a plane."""
    run = view(n_pending=1)
    archive = run.archive
    Y, observed = archive.Y.clone(), archive.observed.clone()
    Y[0, 14, FAST], observed[0, 14, FAST] = 5.0, True  # quite unlike its neighbours
    archive = replace(archive, Y=Y, observed=observed)
    run = replace(run, archive=archive, pending=run.pending & ~observed)
    strategy = TCSAEA(asynchronous=True, kriging=ROUGH)
    state = strategy.init(run)
    models = strategy._train(state, run, 1)
    assert isinstance(models.co, Surrogate)
    _, gp_s = strategy._with_outstanding(run, models)
    at = archive.X[:, 14:]
    (mean, s), (co, v) = ([float(t) for t in m.predict(at)] for m in (models.slow, models.co))
    expected = mean + s / (s + v) * (5.0 + co - mean)
    assert abs(expected - mean) > 1e-3
    np.testing.assert_allclose(float(gp_s.mean(at)), expected, rtol=1e-5)
    # Without transfer, only GP_s foresees it.
    _, gp_s = replace(strategy, transfer="none")._with_outstanding(run, models)
    np.testing.assert_allclose(float(gp_s.mean(at)), mean, rtol=1e-6)


def test_the_last_points_with_the_slow_objective(tensor):
    run = view(n=3, n_pending=2)
    pending = run.pending.clone()
    pending[0, 4, SLOW] = False  # the last is for the fast objective alone
    run = replace(run, pending=pending)
    X, exists = latest_new(run, 2)
    assert torch.equal(X[0], run.archive.X[0, [3, 2]])
    assert exists.all()
    X, exists = latest_new(run, 9)
    assert exists.tolist() == [[True] * 4 + [False]]


def test_the_best_fast_values(tensor):
    run = view(n=4, n_pending=1)
    Y = torch.zeros_like(run.archive.Y)
    Y[0, :, FAST] = tensor([3.0, 1.0, 2.0, 4.0, 0.0])  # the last is not known
    run = replace(run, archive=replace(run.archive, Y=Y))
    assert best_fast(run, 3, maximise=False).tolist() == [[1, 2, 0]]
    assert best_fast(run, 5, maximise=True).tolist() == [[3, 0, 2, 1, 4]]


def test_points_that_lack_are_filled_up_at_random(tensor):
    run = view()
    near = run.archive.X[:, -1:] + 5e-4  # of an outstanding point
    known = run.archive.X[:, :1]
    X = torch.cat([near, known, tensor([[[0.25, 0.5], [0.2504, 0.5], [0.75, 0.5]]])], dim=1)
    keep = torch.ones(1, 5, dtype=torch.bool)
    found, exists = fill(X, keep, torch.tensor([4]), run, 1e-3)
    assert torch.equal(found[0, :2], X[0, [2, 4]])
    assert exists.tolist() == [[True] * 4]
    assert steps.is_clear(found, run, 1e-3).all()
    assert (torch.pdist(found[0], p=float("inf")) >= 1e-3).all()
    again, _ = fill(X, keep, torch.tensor([4]), run, 1e-3)
    assert torch.equal(found, again)
    fewer, exists = fill(X, torch.zeros_like(keep), torch.tensor([1]), run, 1e-3)
    assert fewer.shape == (1, 1, 2)
    assert exists.all()


def test_clear_means_away_from_outstanding_points_alone(tensor):
    run = view()
    X = torch.cat([run.archive.X[:, :1], run.archive.X[:, -1:] + 0.009], dim=1)
    assert steps.is_clear(X, run, 0.01).tolist() == [[True, False]]
    assert steps.is_clear(X, run, 0.008).tolist() == [[True, True]]
