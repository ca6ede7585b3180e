"""The learned co-surrogate: which link is used, and how well it predicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import tcsaea_torch as tc
from tcsaea_torch.models.bundles import flatten, restore
from tcsaea_torch.models.fit_config import FitConfig
from tcsaea_torch.models.fitting import fit
from tcsaea_torch.models.leave_one_out import leave_one_out
from tcsaea_torch.models.training_set import TrainingSet
from tcsaea_torch.rng import latin_hypercube, uniforms
from tcsaea_torch.transfer import LearnedLink, LinkConfig, believe, combine, fit_links
from tcsaea_torch.transfer.link_choice import error_correlation

CONFIG = LinkConfig()
ADDITIVE = FitConfig(kernel="additive", nugget="fit")
NAMES = [*CONFIG.links, "none"]


def points(b, n, d, seed=0):
    seeds = torch.arange(b) + 1000 * seed
    u, jitter = (uniforms(seeds, name, n, (n, d)) for name in ("u", "jitter"))
    return latin_hypercube(u, jitter)


def rough(X):
    """A fast objective > 0 that few points do not tell."""
    return 1.5 + torch.sin(17.0 * X[..., 0]) * torch.cos(13.0 * X[..., 1]) * X[..., 2].add(0.3)


RELATIONS = {
    "difference": lambda X: rough(X) + torch.sin(2.0 * X[..., 0]) + X[..., 1].square(),
    "ratio": lambda X: rough(X) * (1.0 + X[..., 0]) * torch.exp(X[..., 1]),
    "function": lambda X: rough(X).square() + 0.1 * X[..., 0],
    "none": lambda X: 2.0 + torch.sin(19.0 * X[..., 0] + 5.0) * torch.cos(14.0 * X[..., 1]),
}


class Case:
    """Rows with both values, the slow model, and new points."""

    def __init__(self, slow, fast=rough, b=2, n=40, d=3, seed=0, dtype=torch.float64):
        self.X = points(b, n, d, seed).to(dtype)
        self.Xq = uniforms(torch.arange(b), "new", seed, (300, d)).to(dtype)
        self.fast, self.slow = fast(self.X), slow(self.X)
        self.fast_q, self.slow_q = fast(self.Xq), slow(self.Xq)
        self.both = torch.ones(b, n, dtype=torch.bool)
        train = TrainingSet.from_mask(self.X, self.slow, self.both)
        self.gp = fit(train, ADDITIVE, trend=torch.zeros(b, dtype=torch.bool))
        self.loo = leave_one_out(self.gp)

    def fit(self, config=CONFIG, **options):
        return fit_links(self.X, self.fast, self.slow, self.both, self.loo, config, **options)

    def r2(self, mean):
        left = (mean - self.slow_q).square().sum(dim=-1)
        return 1 - left / (self.slow_q - self.slow_q.mean(dim=-1, keepdim=True)).square().sum(-1)

    def refine(self, links):
        return links.refine(self.Xq, self.fast_q, *self.gp.predict(self.Xq), belief=4.0)


@pytest.mark.parametrize("name", ["difference", "ratio", "function"])
def test_where_the_slow_objective_follows_it_is_known(name):
    case = Case(RELATIONS[name])
    links = case.fit()
    assert (links.choice >= 0).all()
    if name == "difference":
        assert [NAMES[k] for k in links.choice] == ["difference"] * 2
    if name == "ratio":
        assert all(NAMES[k] in ("ratio", "angle") for k in links.choice)
    if name == "function":
        assert [NAMES[k] for k in links.choice] == ["autoregressive"] * 2
    mean, variance = links.predict(case.Xq, case.fast_q)
    says = variance < torch.inf
    assert says.double().mean() > 0.95
    assert (case.r2(torch.where(says, mean, case.slow_q)) > 0.995).all()
    alone = case.r2(case.gp.mean(case.Xq))
    assert (case.r2(case.refine(links)[0]) > alone + 0.1).all()


def test_where_it_does_not_follow_its_own_model_stays_alone():
    case = Case(RELATIONS["none"], b=8)
    links = case.fit()
    assert (links.choice < 0).sum() >= 7
    mean, variance = links.predict(case.Xq, case.fast_q)
    own = case.gp.predict(case.Xq)
    for found, expected in zip(case.refine(links), own, strict=True):
        assert torch.equal(found[links.choice < 0], expected[links.choice < 0])
    assert (variance[links.choice < 0] == torch.inf).all()
    assert mean.isfinite().all()


@pytest.mark.parametrize("name", ["difference", "ratio", "function"])
def test_intervals_cover_new_values(name):
    case = Case(RELATIONS[name], b=4, n=60, seed=1)
    links = case.fit()
    assert (links.learned.factor >= 1).all()
    for mean, variance in (links.predict(case.Xq, case.fast_q), case.refine(links)):
        distance = (mean - case.slow_q).abs() / variance.sqrt()
        assert (distance < 1.0).double().mean() > 0.6
        assert (distance < 1.96).double().mean() > 0.9


@pytest.mark.parametrize(
    ("name", "n", "expected"),
    [
        ("dtlz1", 20, "angle"),
        ("dtlz2", 20, "angle"),
        ("dtlz3", 30, "angle"),
        ("uf1", 15, "none"),
        ("uf1", 40, "none"),
        ("uf2", 15, "none"),
        ("uf2", 40, "none"),
    ],
)
def test_test_problems(name, n, expected):
    problem = tc.problems.get(name)

    def evaluate(X):
        return problem.evaluate(problem.from_unit(X.flatten(0, 1))).unflatten(0, X.shape[:2])

    case = Case(lambda X: evaluate(X)[..., 1], lambda X: evaluate(X)[..., 0], 3, n, problem.d)
    links = case.fit()
    assert [NAMES[k] for k in links.choice].count(expected) == 3
    if expected != "none":
        assert (case.r2(case.refine(links)[0]) > 0.9).all()


def test_a_batch_is_its_members_and_the_same_again():
    case = Case(
        lambda X: torch.cat([f(X)[i : i + 1] for i, f in enumerate(RELATIONS.values())]), b=4
    )
    links = case.fit()
    again = case.fit()
    together = links.predict(case.Xq, case.fast_q)
    assert all(
        torch.equal(a, b)
        for a, b in zip(together, again.predict(case.Xq, case.fast_q), strict=True)
    )
    for i in range(4):
        k = slice(i, i + 1)
        alone = fit_links(case.X[k], case.fast[k], case.slow[k], case.both[k], case.loo[k], CONFIG)
        assert torch.equal(alone.choice, links.choice[k])
        assert torch.allclose(alone.learned.score, links.learned.score[k], atol=1e-4)
        for a, b in zip(alone.predict(case.Xq[k], case.fast_q[k]), together, strict=True):
            assert torch.allclose(a, b[k], rtol=1e-5, atol=1e-8)


def test_rows_with_one_value_are_not_looked_at():
    case = Case(RELATIONS["ratio"], n=40)
    links = case.fit()
    # Rows with one value lie between the others.
    order = torch.arange(80).view(2, 40).mT.flatten()
    wrong = torch.full_like(case.fast, -1e6)
    X = torch.cat([case.X, points(2, 40, 3, seed=7)], dim=1)[:, order]
    fast, slow, error = (
        torch.cat([a, wrong], dim=1)[:, order] for a in (case.fast, case.slow, case.loo.error)
    )
    both = torch.cat([case.both, ~case.both], dim=1)[:, order]
    loo = type(case.loo)(error=error, variance=torch.ones_like(error))
    before = [t.clone() for t in (X, fast, slow, both)]
    other = fit_links(X, fast, slow, both, loo, CONFIG)
    assert all(torch.equal(a, b) for a, b in zip(before, (X, fast, slow, both), strict=True))
    expected = links.predict(case.Xq, case.fast_q)
    for a, b in zip(other.predict(case.Xq, case.fast_q), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fast_factor", [1e-9, 1e9])
@pytest.mark.parametrize("slow_factor", [1e-9, 1e9])
def test_units_do_not_matter(fast_factor, slow_factor):
    plain = Case(RELATIONS["ratio"])
    scaled = Case(lambda X: slow_factor * RELATIONS["ratio"](X), lambda X: fast_factor * rough(X))
    a, b = plain.fit(), scaled.fit()
    assert torch.equal(a.choice, b.choice)
    mean, variance = a.predict(plain.Xq, plain.fast_q)
    other_mean, other_variance = b.predict(scaled.Xq, scaled.fast_q)
    assert torch.allclose(other_mean / slow_factor, mean, rtol=1e-3)
    assert torch.allclose(other_variance / slow_factor**2, variance, rtol=0.1, atol=1e-9)


def test_values_below_the_bound_rule_out_ratios_and_angles(tensor):
    case = Case(lambda X: RELATIONS["ratio"](X) - 1.0, lambda X: rough(X) - 1.0)
    bound = [NAMES.index(name) for name in ("ratio", "angle")]
    links = case.fit()
    assert (links.learned.score[:, bound] == torch.inf).all()
    assert not any(int(k) in bound for k in links.choice)
    shifted = case.fit(lower_bound=tensor([-1.0, -1.0]))
    assert all(int(k) in bound for k in shifted.choice)
    mean, variance = shifted.predict(case.Xq, case.fast_q)
    says = variance < torch.inf
    assert (case.r2(torch.where(says, mean, case.slow_q)) > 0.995).all()
    below = torch.full_like(case.fast_q, -1.5)
    assert (shifted.predict(case.Xq, below)[1] == torch.inf).all()


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        (lambda X: 0.0 * X[..., 0] + 3.0, rough),
        (RELATIONS["none"], lambda X: 0.0 * X[..., 0] + 3.0),
        (lambda X: 0.0 * X[..., 0], lambda X: 0.0 * X[..., 0]),
    ],
)
def test_constant_objectives_have_no_link(slow, fast):
    case = Case(slow, fast, n=15)
    links = case.fit()
    assert (links.choice == -1).all()
    for found in (*links.predict(case.Xq, case.fast_q), *case.refine(links)):
        assert not found.isnan().any()


def test_an_exact_difference():
    case = Case(lambda X: rough(X) + 2.0)
    links = case.fit(LinkConfig(links=("difference",)))
    mean, variance = links.predict(case.Xq, case.fast_q)
    assert (links.choice == 0).all()
    assert torch.allclose(mean, case.slow_q, rtol=1e-12)
    assert variance.isfinite().all()
    assert torch.allclose(case.refine(links)[0], case.slow_q, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_few_rows_have_no_link(n):
    case = Case(RELATIONS["ratio"], n=12)
    case.both = torch.arange(12).expand(2, 12) < n
    links = case.fit()
    assert (links.choice == -1).all()
    mean, variance = links.predict(case.Xq, case.fast_q)
    assert mean.isfinite().all()
    assert (variance == torch.inf).all()


def test_float32():
    case = Case(RELATIONS["ratio"], dtype=torch.float32)
    links = case.fit()
    assert (links.choice >= 0).all()
    mean, variance = case.refine(links)
    assert mean.dtype == variance.dtype == torch.float32
    assert (case.r2(mean) > 0.98).all()


def test_a_warm_start_ends_where_it_began():
    case = Case(RELATIONS["ratio"])
    links = case.fit()
    again = case.fit(init=links.learned.starts)
    assert torch.equal(links.choice, again.choice)
    expected = links.predict(case.Xq, case.fast_q)[0]
    assert torch.allclose(again.predict(case.Xq, case.fast_q)[0], expected, rtol=1e-3)


def test_models_with_other_rows():
    case = Case(RELATIONS["ratio"], n=40)
    half = replace_rows(case, slice(None, 25))
    links = half.fit()
    same = links.learned.condition(CONFIG, half.X, half.fast, half.slow, half.both)
    for a, b in zip(*(x.predict(case.Xq, case.fast_q) for x in (links, same)), strict=True):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-10)
    more = links.learned.condition(CONFIG, case.X, case.fast, case.slow, case.both)
    errors = [
        (x.predict(case.Xq, case.fast_q)[0] - case.slow_q).abs().mean() for x in (links, more)
    ]
    assert errors[1] < errors[0]
    negative = case.slow.clone()
    negative[1, 0] = -0.1
    given_up = links.learned.condition(CONFIG, case.X, case.fast, negative, case.both)
    assert given_up.choice.tolist() == [int(links.choice[0]), -1]


def test_what_was_learned_makes_the_round_trip_through_a_state():
    case = Case(RELATIONS["ratio"])
    links = case.fit()
    state = flatten(links.learned, "link")
    assert all(isinstance(value, torch.Tensor | str) for value in state.values())
    learned = restore(LearnedLink, state, "link")
    again = flatten(learned, "link")
    assert again.keys() == state.keys()
    for key, value in state.items():
        kept = again[key]
        assert (
            value == kept if isinstance(value, str) else torch.equal(torch.as_tensor(kept), value)
        )
    rows = case.X, case.fast, case.slow, case.both
    again, expected = (kept.condition(CONFIG, *rows) for kept in (learned, links.learned))
    for a, b in zip(case.refine(again), case.refine(expected), strict=True):
        assert torch.equal(a, b)
    second = case.fit(init=learned.starts)
    assert torch.equal(second.choice, case.fit(init=links.learned.starts).choice)


def test_runs_without_a_link_are_not_cross_validated(monkeypatch):
    case = Case(RELATIONS["none"], b=3)
    monkeypatch.setattr("tcsaea_torch.transfer.link_choice.cross_validate", None)
    links = case.fit(LinkConfig(margin=50.0))
    assert links.choice.tolist() == [-1] * 3
    assert links.learned.factor.tolist() == [1.0] * 3


def replace_rows(case, rows):
    part = object.__new__(Case)
    part.__dict__.update(case.__dict__)
    part.X, part.fast, part.slow = case.X[:, rows], case.fast[:, rows], case.slow[:, rows]
    part.both = case.both[:, rows]
    part.loo = type(case.loo)(error=case.loo.error[:, rows], variance=case.loo.variance[:, rows])
    return part


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.9])
def test_combination_has_the_least_variance(rho, tensor):
    mean_s, variance_s = tensor([[1.0, 1.0, 1.0]]), tensor([[0.5, 2.0, 0.1]])
    mean_l, variance_l = tensor([[2.0, 3.0, 9.0]]), tensor([[0.4, 0.1, 0.1]])
    mean, variance = combine(mean_s, variance_s, mean_l, variance_l, tensor([rho]))
    weights = np.linspace(0.0, 1.0, 100_001)
    for k in range(3):
        v_s, v_l = float(variance_s[0, k]), float(variance_l[0, k])
        shared = rho * math.sqrt(v_s * v_l)
        total = (1 - weights) ** 2 * v_s + weights**2 * v_l + 2 * weights * (1 - weights) * shared
        best = weights[total.argmin()]
        assert float(variance[0, k]) == pytest.approx(total.min(), rel=1e-8)
        expected = (1 - best) * float(mean_s[0, k]) + best * float(mean_l[0, k])
        assert float(mean[0, k]) == pytest.approx(expected, abs=2e-4)


def test_combination_without_correlation_weights_by_precision(tensor):
    mean, variance = combine(*(tensor([v]) for v in (1.0, 0.5, 3.0, 0.25)))
    assert float(mean) == pytest.approx((1 / 0.5 + 3 / 0.25) / (1 / 0.5 + 1 / 0.25))
    assert float(variance) == pytest.approx(1 / (1 / 0.5 + 1 / 0.25))


def test_combination_with_nothing_and_with_certainty(tensor):
    mean_s, variance_s = tensor([1.0, 1.0, 1.0]), tensor([0.5, 0.5, 0.0])
    mean_l, variance_l = tensor([7.0, 7.0, 7.0]), tensor([torch.inf, 0.0, 0.0])
    mean, variance = combine(mean_s, variance_s, mean_l, variance_l, tensor(0.5))
    assert mean.tolist() == [1.0, 7.0, 4.0]
    assert variance.tolist() == [0.5, 0.0, 0.0]


def test_what_the_slow_model_contradicts_is_not_believed(tensor):
    mean_s, variance_s = tensor([0.0, 0.0, 0.0]), tensor([0.04, 0.04, 0.04])
    mean_l, variance_l = tensor([0.9, 1.1, 0.0]), tensor([0.01, 0.01, torch.inf])
    for square, believed in ((0.0, [True, False, False]), (0.1, [True, True, False])):
        # 4 sqrt(.04 + .01) = .894: the first is out by that alone.
        found = believe(
            mean_s, variance_s, mean_l, variance_l, belief=4.5, slow_square=tensor(square)
        )
        assert (found < torch.inf).tolist() == believed
        assert torch.equal(found[: sum(believed)], variance_l[: sum(believed)])


def test_correlation_of_errors():
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 1, 4000, generator=generator, dtype=torch.float64)
    says = torch.ones(1, 4000, dtype=torch.bool)
    assert float(error_correlation(a, 0.6 * a + 0.8 * b, says)) == pytest.approx(0.6, abs=0.03)
    assert float(error_correlation(a, -a, says)) == 0.0
    assert float(error_correlation(a, a, says)) == pytest.approx(0.95)
    assert float(error_correlation(a, a, ~says)) == 0.0


def test_one_link_alone_can_be_asked_for():
    case = Case(RELATIONS["ratio"])
    links = case.fit(replace(CONFIG, links=("ratio",), ratio_offsets=(0.01, 1.0)))
    assert links.learned.score.shape == (2, 2)
    assert (links.choice == links.learned.score.argmin(dim=-1)).all()
