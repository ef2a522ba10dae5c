"""The losses of Eq. 2 and Eq. 4 fall when a miniature is trained from random weights."""

import pytest

from bench.learning_curve import EQUATIONS, draw_people, learning_curve


@pytest.mark.slow
@pytest.mark.parametrize("family", list(EQUATIONS))
def test_the_learning_curve_falls(family):
    curve = learning_curve(family, draw_people(64), steps=40)
    first = curve[:10].mean()
    last = curve[-10:].mean()
    assert last < first - 0.2 * abs(first)
