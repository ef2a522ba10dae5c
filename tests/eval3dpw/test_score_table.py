"""The table says what is a figure and what is a difference."""

import numpy as np
import pytest

from fitmesh.eval_3dpw.score_table import METRICS, Scores, cell, lines


def some_scores(sequences: int) -> Scores:
    random = np.random.default_rng(0)
    error = random.uniform(80, 100, (2, 10 * sequences))
    rows = {
        label: dict.fromkeys(METRICS, error[n] + 10 * n) for n, label in enumerate(("raw", "other"))
    }
    return Scores(
        rows, np.repeat(np.arange(sequences), 10), tuple(f"s{n}" for n in range(sequences))
    )


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_a_difference_is_printed_as_one_and_has_an_interval_from_three_sequences_on(
    sequences: int,
) -> None:
    raw, other = lines(some_scores(sequences), "raw")
    assert cell(raw, METRICS[0], "raw") == f"{raw.mean[METRICS[0]].value:.1f}"
    value = other.mean[METRICS[0]].value
    difference = other.difference[METRICS[0]]
    assert difference.value == pytest.approx(value - raw.mean[METRICS[0]].value)
    shown = cell(other, METRICS[0], "raw")
    assert shown.startswith(f"{value:.1f}, d {difference.value:+.1f}")
    assert ("[" in shown) == (sequences >= 3)
    assert np.isfinite(difference.low) == (sequences >= 3)
