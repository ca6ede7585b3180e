"""Parameters as a box, and back."""

import math

import numpy as np
import pytest

from tcsaea_torch.errors import ProtocolError
from tcsaea_torch.integrations.space import Continuous, Levels, Space, Stepped

SPACE = Space(
    (
        Continuous(name="linear", low=-1, high=3),
        Continuous(name="log", low=1e-3, high=1e2, log=True),
        Continuous(name="whole", low=1, high=100, log=True, whole=True),
        Continuous(name="rounded", low=0.0, high=1.0, digits=1),
        Stepped(name="step", low=0.1, high=0.7, step=0.1),
        Stepped(name="third", low=-3, high=6, step=3),
        Levels(name="level", choices=("low", "mid", "high")),
    )
)


def test_corners_are_the_ends_of_all_parameters():
    problem = SPACE.problem(("minimize", "maximize"))
    assert problem.tau == 1
    assert problem.integers == (4, 5, 6)
    assert problem.directions == ("minimize", "maximize")
    low, high = problem.bounds.numpy()
    assert list(SPACE.to_params(low).values()) == [-1, pytest.approx(1e-3), 1, 0, 0.1, -3, "low"]
    assert list(SPACE.to_params(high).values()) == [3, pytest.approx(1e2), 100, 1, 0.7, 6, "high"]


def test_values_never_leave_their_range():
    low, high = SPACE.problem(("minimize", "minimize")).bounds.numpy()
    for x in np.random.default_rng(0).uniform(low, high, size=(200, 7)):
        params = SPACE.to_params(np.where([0, 0, 0, 0, 1, 1, 1], x.round(), x))
        assert -1 <= params["linear"] <= 3
        assert 1e-3 <= params["log"] <= 1e2
        assert params["whole"] in range(1, 101)
        assert params["rounded"] in [k / 10 for k in range(11)]
        assert 0.1 <= params["step"] <= 0.7
        assert params["third"] in (-3, 0, 3, 6)
        assert SPACE.key(params) == SPACE.key(SPACE.to_params(SPACE.to_x(params)))


def test_integers_in_logarithms_have_as_much_room_at_the_ends():
    whole = SPACE.variables[2]
    assert whole.bounds == (math.log(0.5), math.log(100.5))
    assert whole.to_value(math.log(1.49)) == 1
    assert whole.to_value(math.log(1.51)) == 2
    one = Continuous(name="one", low=3, high=3, log=True, whole=True)
    assert one.bounds == (math.log(3), math.log(3))
    assert one.to_value(one.bounds[0]) == 3


def test_what_is_no_step_or_level_lies_between_or_outside():
    step, level = SPACE.variables[4], SPACE.variables[6]
    assert [step.to_x(v) for v in (0.1, 0.1 + 0.2, 0.7)] == [0.0, 2.0, 6.0]
    assert step.to_x(0.25) == pytest.approx(1.5)
    assert level.to_x("unknown") < 0
    assert SPACE.covers({v.name: 0 for v in SPACE.variables} | {"more": 1})
    assert not SPACE.covers({"linear": 1})


def test_nobody_calls_the_objectives():
    problem = SPACE.problem(("minimize", "minimize"))
    for function in (problem.fast, problem.slow):
        with pytest.raises(ProtocolError, match="evaluated elsewhere"):
            function(None)
