"""What a link and a model say together of slow values at points with a fast one."""

import math

import pytest
import torch
from scipy import integrate

from tcsaea_torch.strategies.ehvi_models import Models, Synthetic
from tests.models.models import draw
from tests.strategies.runs import Exact, Toy


def row(values):
    """The values of one run."""
    return torch.tensor([values], dtype=torch.float64)


def synthetic(y, variance, believed=None):
    believed = variance if believed is None else believed
    return Synthetic(y=row(y), variance=row(variance), believed=row(believed))


def combined(some, mean, variance):
    mean, variance = some.combine(row(mean), row(variance))
    return mean[0].tolist(), variance[0].tolist()


@pytest.mark.parametrize("gap", [0.0, 0.3, 2.0])
@pytest.mark.parametrize(("v_model", "v_link"), [(0.5, 0.2), (0.01, 1.0), (1.0, 1e-3)])
def test_a_believed_value_is_weighed_as_bayes_rule_has_it(v_model, v_link, gap):
    """The product of two normal densities, the model's as wide as it is wrong."""
    (mean,), (variance,) = combined(synthetic([1.0 + gap], [v_link]), [1.0], [v_model])
    v_wide = v_model + gap**2

    def density(y):
        return math.exp(-0.5 * ((y - 1.0) ** 2 / v_wide + (y - 1.0 - gap) ** 2 / v_link))

    def moment(k):
        span = {"a": -15, "b": 15, "limit": 500, "points": [1.0 + gap]}
        value, _ = integrate.quad(lambda y: y**k * density(y), **span)
        return value

    expected = moment(1) / moment(0)
    assert mean == pytest.approx(expected, rel=1e-6)
    assert variance == pytest.approx(moment(2) / moment(0) - expected**2, rel=1e-5)


def test_an_exact_link_counts_alone_where_a_model_smooths_it_away():
    mean, variance = combined(synthetic([0.5], [1e-12]), [0.73], [1e-3])
    assert mean == pytest.approx([0.5], abs=1e-9)
    assert variance == pytest.approx([1e-12], rel=1e-3)


def test_a_value_that_is_not_believed_makes_the_model_uncertain():
    some = synthetic([0.9, 0.9], [1e-4, 1e-4], [math.inf, math.inf])
    mean, variance = combined(some, [4.0, 0.9], [0.01, 0.01])
    assert mean == [4.0, 0.9]
    assert variance == pytest.approx([0.01 + 3.1**2, 0.01])


def test_where_a_link_says_nothing_the_model_stands():
    some = synthetic([7.0, math.nan], [math.inf, math.inf])
    assert combined(some, [4.0, 3.0], [0.01, 0.0]) == ([4.0, 3.0], [0.01, 0.0])


def test_models_ask_links_only_of_rows():
    problem = Toy()
    X = draw(2, 9, 2, seed=1)
    fast, slow = Exact(problem, 0), Exact(problem, 1, sd=0.1)
    alone = Models(fast=fast, slow=slow)
    for a, z in zip(alone.slow_of_rows(X), slow.predict(X), strict=True):
        assert torch.equal(a, z)
    y = slow.mean(X) - 1.0
    told = Synthetic(y=y, variance=torch.full_like(y, 1e-6), believed=torch.full_like(y, 1e-6))
    both = Models(fast=fast, slow=slow, synthetic=told)
    torch.testing.assert_close(both.slow_of_rows(X)[0], y, rtol=0.0, atol=1e-5)
    torch.testing.assert_close(both.predict(X)[0], alone.predict(X)[0])
