"""Frames that are not reliable are left out where one asks for it, and nowhere else."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fitmesh.exports import EXPORTERS, Motion
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from pose2d.base.errors import UserError
from tests.fitmesh.walkers import walkers

QUIET = Reporter()
KEPT = Motion(keep_reliable=0.5, reliable_mm=200.0)


@pytest.fixture
def result(tmp_path: Path) -> Result:
    """Of the first person, frames 3 to 5 are bad."""
    made = walkers(tmp_path, frames=12)
    person = made.people[0]
    worst = np.full(len(person), 80.0, np.float32)
    worst[3:6] = 900
    return replace(
        made, people=[replace(person, worst_error_mm=worst, observed=np.ones(len(person), bool))]
    )


def test_probability_is_high_in_good_frames_low_in_bad_ones_and_zero_where_nothing_was_seen(
    result: Result,
) -> None:
    person = result.people[0]
    chance = person.reliable(200)
    assert (chance[[0, 1, 2, 6]] > 0.8).all()
    assert (chance[3:6] < 0.1).all()
    assert (person.reliable(50) < chance).all()
    assert replace(person, observed=np.zeros(len(person), bool)).reliable(200).max() == 0
    with pytest.raises(UserError, match="above 0"):
        person.reliable(0)


def test_markers_have_a_gap_and_tables_empty_cells(result: Result, tmp_path: Path) -> None:
    for name in ("trc", "csv", "json"):
        EXPORTERS[name].write(result, tmp_path, QUIET, motion=KEPT)
    assert len(list((tmp_path / "trc").iterdir())) == 2
    rows = list(csv.DictReader((tmp_path / "motion.csv").open()))
    assert len(rows) == len(result.people[0])
    assert [row["left_knee_camera_x_m"] == "" for row in rows[:7]] == [False] * 3 + [True] * 3 + [
        False
    ]
    assert rows[3]["left_knee_flexion_deg"] == ""
    assert float(rows[0]["reliable_100_mm"]) > 0.4
    frames = json.loads((tmp_path / "motion.json").read_text())["people"][0]["frames"]
    assert frames[4]["joints_camera_m"][0][0] is None
    assert frames[0]["joints_camera_m"][0][0] is not None


def test_without_the_option_every_frame_is_exported(result: Result, tmp_path: Path) -> None:
    EXPORTERS["trc"].write(result, tmp_path, QUIET)
    assert len(list((tmp_path / "trc").iterdir())) == 1


def test_a_person_of_whom_nothing_is_reliable_is_in_no_motion(
    result: Result, tmp_path: Path
) -> None:
    bad = replace(
        result.people[0], worst_error_mm=np.full(len(result.people[0]), 900.0, np.float32)
    )
    EXPORTERS["trc"].write(replace(result, people=[bad]), tmp_path, QUIET, motion=KEPT)
    assert not list((tmp_path / "trc").iterdir())


def test_shape_says_how_far_the_surface_may_be_off(result: Result) -> None:
    person = replace(result.people[0], shape_covariance=np.eye(10, dtype=np.float32) * 0.25)
    std = result.vertex_std_mm(person)
    assert std.shape == (len(result.body.v_template),)
    assert 1 < std.mean() < 200
    assert np.allclose(
        result.vertex_std_mm(replace(person, shape_covariance=np.eye(10) * 1.0)), 2 * std
    )
    length, deviation = result.segments_m(person)["left_thigh"]
    assert 0.25 < length < 0.6
    assert 0 < deviation < 0.1
