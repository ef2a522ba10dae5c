"""Counts in sentences."""

import pytest

from fitmesh.ui.trouble import count


@pytest.mark.parametrize(
    ("number", "several", "words"),
    [
        (0, "frames", "0 frames"),
        (1, "frames", "1 frame"),
        (2, "frames", "2 frames"),
        (1, "people", "1 person"),
        (3, "people", "3 people"),
        (1, "processes", "1 process"),
        (1, "passes", "1 pass"),
    ],
)
def test_one_is_singular(number: int, several: str, words: str) -> None:
    assert count(number, several) == words
