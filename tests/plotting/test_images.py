"""Pictures look as they did when somebody looked at them, in grey."""

from itertools import combinations

import pytest

pytest.importorskip("matplotlib")

from tests.plotting.images import BASELINES, NAMES, difference, draw, stored

TOLERANCE = 0.025
"""Of brightness from 0 to 1. A serif font instead of DejaVu Sans makes 0.01 to 0.02."""


@pytest.mark.parametrize("name", NAMES)
def test_it_looks_as_it_did(name):
    new, old = draw(name), stored(name)
    assert new.shape == old.shape
    assert difference(new, old) < TOLERANCE


def test_other_pictures_look_different():
    pictures = [stored(name) for name in NAMES]
    assert min(difference(a, b) for a, b in combinations(pictures, 2)) > 2 * TOLERANCE


def test_all_stored_pictures_are_compared():
    assert {path.stem for path in BASELINES.glob("*.png")} == set(NAMES)
