"""Filters keep slow motion where and when it is, and halve the power at their frequency."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import Motion
from fitmesh.exports.filters import parse_filter
from fitmesh.exports.motion import change_motion
from pose2d.base.errors import OptionError
from tests.fitmesh.walkers import in_world, walkers

TIME_S = np.arange(0, 10, 1 / 100)


def gain(text: str, hz: float) -> float:
    """Return what is left of a sine of this frequency, in phase with it."""
    wanted = parse_filter(text)
    assert wanted is not None
    sine = np.sin(2 * np.pi * hz * TIME_S)
    middle = slice(200, -200)
    filtered = wanted.apply(TIME_S, sine[:, None])[middle, 0]
    return float(filtered @ sine[middle] / (sine[middle] @ sine[middle]))


def test_butterworth_passes_half_the_power_at_its_frequency_without_delay() -> None:
    assert gain("butterworth:6", 6) == pytest.approx(np.sqrt(0.5), abs=0.01)
    assert gain("butterworth:6", 1) == pytest.approx(1, abs=0.01)
    assert gain("butterworth:6", 20) == pytest.approx(0, abs=0.02)


def test_gaussian_has_the_gain_of_its_standard_deviation() -> None:
    assert gain("gaussian:0.05", 3) == pytest.approx(
        np.exp(-0.5 * (2 * np.pi * 3 * 0.05) ** 2), abs=0.01
    )


def test_a_cut_off_beyond_the_frame_rate_and_short_motions_change_nothing() -> None:
    values = np.random.default_rng(0).normal(size=(50, 3))
    for text, count in (("butterworth:400", 50), ("butterworth:6", 2)):
        wanted = parse_filter(text)
        assert wanted is not None
        np.testing.assert_array_equal(wanted.apply(TIME_S[:count], values[:count]), values[:count])


def test_none_is_no_filter() -> None:
    assert parse_filter("none") is None


@pytest.mark.parametrize(
    "text",
    ["", "butterworth", "butterworth:", "butterworth:0", "gaussian:-1", "none:3", "gaussian:nan"],
)
def test_other_texts_are_refused_with_the_choices(text: str) -> None:
    with pytest.raises(OptionError, match="--filter must be none, butterworth:HZ"):
        parse_filter(text)


def test_filtered_motion_keeps_the_way_and_is_calmer(tmp_path: Path) -> None:
    result = in_world(walkers(tmp_path, frames=60), pan_deg=0)
    noise = np.random.default_rng(0).normal(0, 0.05, result.people[0].pose_rad.shape)
    shaky = replace(result.people[0], pose_rad=result.people[0].pose_rad + noise.astype(np.float32))
    joints_m = result.body.at(result.params(shaky)).joints.numpy()
    person = replace(shaky, joints_m=joints_m)
    result = replace(result, people=[person])
    filtered = change_motion(result, Motion(filter="butterworth:3")).people[0]
    assert len(filtered) == len(person)
    moved_m = np.linalg.norm(filtered.joints_m[5:-5] - person.joints_m[5:-5], axis=-1)
    assert 0 < moved_m.mean() < 0.05

    def jerk(joints_m: np.ndarray) -> float:
        return float(np.abs(np.diff(joints_m, n=3, axis=0)).mean())

    assert jerk(filtered.joints_m[5:-5]) < 0.3 * jerk(person.joints_m[5:-5])
