"""Synthetic values against the slow surrogate, and how wrong predictions were."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from tcsaea_torch import Optimizer, plotting
from tcsaea_torch.errors import InvalidInputError
from tcsaea_torch.plotting.transfer import co_surrogate_errors
from tcsaea_torch.strategies.base import tensor_in
from tests.plotting.runs import N_INIT, N_PERIODS, made
from tests.test_driver import cheap, problem
from tests.test_result import DIRECTIONS, make

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure


def axes() -> Any:
    return Figure().add_subplot()


def texts(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_values_within_the_interval_are_accepted():
    told = plotting.Transfer(
        synthetic=np.array([1.0, 2.0, 3.0]), mean=[1.1, 1.0, 3.0], half_width=[0.2, 0.5, 0.0],
        measured=[math.nan, 1.5, None],
    )  # fmt: skip
    assert told.accepted.tolist() == [True, False, False]  # the interval is open
    ax = axes()
    assert plotting.plot_transfer(told, ax=ax, label="force [kN]") is ax
    assert texts(ax) == ["measured afterwards: 1", "accepted: 1", "refused: 2"]
    accepted, refused = ax.containers
    assert accepted.lines[0].get_xydata().tolist() == [[1.1, 1.0]]
    assert refused.lines[0].get_xydata().tolist() == [[1.0, 2.0], [3.0, 3.0]]
    assert accepted.lines[0].get_marker() != refused.lines[0].get_marker()
    (bars,) = refused.lines[2]
    assert bars.get_segments()[0].tolist() == [[0.5, 2.0], [1.5, 2.0]]
    assert ax.collections[-1].get_offsets().tolist() == [[1.0, 1.5]]
    assert ax.get_xlabel() == "force [kN]: slow surrogate (bars: its interval)"
    assert ax.get_ylabel() == "force [kN]: synthetic value"


def test_who_decided_otherwise_says_so():
    told = plotting.Transfer(
        synthetic=[1.0, 2.0], mean=[1, 1], half_width=[1, 1], accepted=[0 > 1, True]
    )
    assert told.accepted.tolist() == [False, True]


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_a_run_tells_what_it_foretold_in_users_signs(directions):
    result = made(directions)
    told = plotting.Transfer.of(result)
    base = plotting.Transfer.of(made())
    sign = float(result.problem.signs[1])
    assert len(told.synthetic) == 4 * N_PERIODS
    torch.testing.assert_close(told.synthetic, base.synthetic * sign)
    torch.testing.assert_close(told.mean, base.mean * sign)
    assert torch.equal(told.half_width, base.half_width)
    assert torch.equal(told.accepted, base.accepted)
    assert 0 < int(told.accepted.sum()) < len(told.accepted)
    ax = axes()
    result.plot(ax, kind="transfer")
    assert ax.get_ylabel() == "force [kN]: synthetic value"


def test_errors_are_those_of_what_was_measured_afterwards():
    result = made()
    errors = co_surrogate_errors(result)
    rows = (~result.all_Y[:, 1].isnan()).nonzero().flatten()[N_INIT:]
    k = rows.double()
    expected = 0.3 * torch.sin(5 * k) / (1 + 0.1 * k)
    torch.testing.assert_close(errors["fast value + co-surrogate"], expected)
    torch.testing.assert_close(errors["slow surrogate"], 0.5 * torch.cos(2 * k) / (1 + 0.05 * k))


def test_errors_are_drawn_with_a_moving_mean():
    given = [3.0, -4.0, *[1.0] * 9]
    ax = axes()
    assert plotting.plot_co_surrogate_error({"mine": given}, ax=ax) is ax
    dots, line = ax.lines
    assert dots.get_xydata().tolist() == [[n + 1.0, abs(e)] for n, e in enumerate(given)]
    means = [math.sqrt(np.square(given[max(0, n - 9) : n + 1]).mean()) for n in range(11)]
    np.testing.assert_allclose(line.get_ydata(), means, rtol=1e-12)
    assert ax.get_yscale() == "log"
    assert texts(ax) == ["mine"]
    assert ax.get_ylabel() == "|predicted - measured|: slow objective"
    made().plot(ax := axes(), kind="co-surrogate-error")
    assert ax.get_ylabel() == "|predicted - measured|: force [kN]"
    assert len(texts(ax)) == 2
    assert len({line.get_linestyle() for line in ax.lines[1::2]}) == 2


def test_a_real_run_keeps_what_is_drawn():
    """With data that were attached late, which the strategy's state does not know yet."""
    optimizer = Optimizer(problem(), n_slow=14, n_init=8, strategy=cheap())
    while evaluations := optimizer.ask():
        for e in evaluations:
            optimizer.tell(e.id, optimizer.problem.function_of(e.objective)(e.x))
    optimizer.attach([[0.123, 0.456]], fast=[1.0], slow=[2.0])
    result = optimizer.result()
    born = tensor_in(result.strategy_state, "born")[0]
    told = plotting.Transfer.of(result)
    assert len(told.synthetic) == int((born > 0).sum()) > 0
    # The slow objective is known: what the co-surrogate says of it is not far off.
    errors = co_surrogate_errors(result)
    assert {len(e) for e in errors.values()} == {14 - 8}
    assert all(bool(e.isfinite().all()) for e in errors.values())
    is_told = torch.isin(result.all_ids, (born > 0).nonzero().flatten())
    truth = ((result.all_X[is_told] - 1) ** 2).sum(dim=-1)
    assert float((told.synthetic - truth).abs().median()) < 0.5


@pytest.mark.parametrize("plot", [plotting.plot_transfer, plotting.plot_co_surrogate_error])
def test_other_strategies_keep_nothing(plot):
    with pytest.raises(
        InvalidInputError, match=r"^result must be of a strategy that keeps .*'random'"
    ):
        plot(make())


def test_nothing_is_drawn_of_nothing():
    ax = axes()
    plotting.plot_transfer(plotting.Transfer(synthetic=[], mean=[], half_width=[]), ax=ax)
    plotting.plot_co_surrogate_error({}, ax=ax)
    assert ax.get_legend() is None
