"""Rows may have gaps: while a person is absent nothing is shown, and the files say so."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest

import fitmesh
from fitmesh.exports import EXPORTERS
from fitmesh.exports.scene import absences, on_every_frame, runs, scene_frame, segments
from fitmesh.person import Person
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from fitmesh.viewer.data import viewer_data
from tests.fitmesh.conftest import SIZE, Fitmesh
from tests.fitmesh.test_export_glb import Glb
from tests.fitmesh.test_exports import play_bvh
from tests.fitmesh.walkers import NUMBER, walkers
from tests.walkers import coco_results, walker, write_json

QUIET = Reporter()
# rows of person 1 that are taken away
FRAMES = 40
AWAY = slice(10, 25)


def without(person: Person, rows: slice) -> Person:
    return person.rows(np.delete(np.arange(len(person)), rows))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    whole = walkers(tmp_path_factory.mktemp("absences"), frames=FRAMES)
    result = replace(whole, people=[without(whole.people[0], AWAY), whole.people[1]])
    for name in ("glb", "bvh", "json", "csv", "obj", "report"):
        EXPORTERS[name].write(result, result.folder, QUIET)
    return result


def test_segments_and_absences_are_the_runs_of_rows(result: Result) -> None:
    away, always = result.people
    assert segments(result, away) == [slice(0, 10), slice(10, 25)]
    assert absences(result, away) == [(110, 124)]
    assert segments(result, always) == [slice(0, len(always))]
    assert absences(result, always) == []
    spread = on_every_frame(result, away, away.frame.astype(float))
    assert runs(np.isnan(spread)) == [(10, 24)]
    np.testing.assert_array_equal(spread[[0, 9, 25, -1]], [100, 109, 125, 139])


def test_with_every_second_frame_used_neighbours_are_two_apart(result: Result) -> None:
    frames = result.frames[::2]
    person = without(result.people[1], slice(1, None, 2))
    every_second = replace(result, frames=frames, time_s=result.time_s[::2], people=[person])
    assert segments(every_second, person) == [slice(0, len(person))]


def test_glb_hides_the_person(result: Result) -> None:
    glb = Glb(result.folder / "scene.glb")
    times, scale, interpolation = glb.channels()[glb.node("person_1"), "scale"]
    assert (scale[:, 0].tolist(), interpolation) == ([1, 0, 1], "STEP")
    np.testing.assert_allclose(times, (result.time_s - result.time_s[0])[[0, 10, 25]], atol=1e-6)


def test_bvh_holds_the_last_pose_and_keeps_time(result: Result) -> None:
    person = result.people[0]
    names, places, step_s = play_bvh(result.folder / "bvh" / "person_1.bvh")
    expected = scene_frame(result).points(person.joints_m, person.frame)[
        :, [NUMBER[name] for name in names]
    ]
    assert len(places) == FRAMES
    np.testing.assert_allclose(places[:10], expected[:10], atol=1e-4)
    np.testing.assert_allclose(places[10:25], np.repeat(expected[9:10], 15, 0), atol=1e-4)
    np.testing.assert_allclose(places[25:], expected[10:], atol=1e-4)
    assert step_s == pytest.approx(1001 / 30000)


def test_tables_have_no_row_and_name_the_frames(result: Result) -> None:
    with (result.folder / "motion.csv").open(newline="") as file:
        rows = [int(row["frame"]) for row in csv.DictReader(file) if row["person"] == "1"]
    assert rows == result.people[0].frame.tolist()
    content = json.loads((result.folder / "motion.json").read_text())
    assert [person["absent_frames"] for person in content["people"]] == [[[110, 124]], []]
    assert len(content["people"][0]["frames"]) == FRAMES - 15
    assert not (result.folder / "obj" / "person_1" / "frame_000112.obj").exists()


def test_the_report_says_when_and_draws_no_line_through_it(result: Result) -> None:
    text = (result.folder / "report.html").read_text()
    start, end = (result.time_s[[10, 24]] - result.time_s[0]).tolist()
    assert f"absent from {start:.2f} to {end:.2f} s" in text
    first = text[text.index("Person 1") : text.index("Person 4")]
    left = 1000 * 9 / 39
    right = 1000 * 25 / 39
    for points in re.findall(r'<polyline class="curve one"[^>]*points="([^"]+)"', first):
        x = [float(point.split(",")[0]) for point in points.split()]
        assert max(x) <= left + 1 or min(x) >= right - 1
    assert re.search(r'<rect class="away" x="([\d.]+)"', first)
    assert '<rect class="away" x="10" width="15"' in first  # in the strips of keypoints


def test_the_viewer_is_told_the_spans(result: Result) -> None:
    person, always = json.loads(viewer_data(result)[0])["people"]
    assert person["spans"] == [
        {"first": 0, "row": 0, "count": 10},
        {"first": 25, "row": 10, "count": 15},
    ]
    assert len(always["spans"]) == 1


def test_a_run_leaves_the_rows_out_and_says_so(
    fitmesh: Fitmesh, no_exports: None, tmp_path: Path
) -> None:
    """From keypoints to the overlay: a walker who is not seen for a second is not there."""
    # at 25 frames/s
    frames = 60
    gone = range(15, 45)
    entries = [
        entry for entry in coco_results([walker(frames, SIZE)]) if entry["image_id"] not in gone
    ]
    images = tmp_path / "images"
    out = tmp_path / "out"
    images.mkdir()
    for number in range(frames):
        cv2.imwrite(str(images / f"{number:03d}.png"), np.full((SIZE[1], SIZE[0], 3), 90, np.uint8))
    keypoints = write_json(tmp_path / "k.json", entries)
    given = ("--images", images, "--fps", "25", "--keypoints", keypoints)
    assert fitmesh("run", *given, "--out", out) == 0, fitmesh.said
    assert "30 observed, absent in 30" in fitmesh.said
    (person,) = fitmesh_load(out).people
    np.testing.assert_array_equal(person.frame, [i for i in range(frames) if i not in gone])
    assert person.observed.all()
    assert np.isfinite(person.joints_m).all()


def fitmesh_load(folder: Path) -> Result:
    return fitmesh.load(folder)
