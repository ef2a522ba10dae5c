"""Association and relinking on simulated people whose identities are exact."""

from dataclasses import replace

import numpy as np
import pytest

from bench.identity import KINDS, follow, measure, motion_only, pose_of
from pose2d.skeletons import COCO17
from pose2d.tracking.appearance import PARTS, SIZE, no_appearance
from pose2d.tracking.pose_duplicates import best_of_each_pose, pose_similarity
from pose2d.tracking.relink import RELINK_RATIO, relink
from pose2d.tracking.tracker import Tracker
from pose2d.types import Appearance, Detections, Keypoints


def clothes(*shades: float, weight: float = 0.8) -> Appearance:
    """People in one colour from head to foot, by its distance from grey in L and b."""
    colours = np.zeros((len(shades), len(PARTS), SIZE))
    colours += np.array([45.0, 50, 55, 0, 0, 0, 0, 0, 0])
    colours[..., [0, 1, 2, 6, 7, 8]] += np.array(shades)[:, None, None]
    return Appearance(colours, np.full((len(shades), len(PARTS)), weight))


# --- Association
# -----------------------------------------------------------------------------------------------------


def box_around(xy: np.ndarray) -> np.ndarray:
    return np.concatenate([xy.min(-2) - 10, xy.max(-2) + 10], -1)


def detections(seen: np.ndarray, *shades: float) -> Detections:
    keypoints = Keypoints(seen, np.ones(seen.shape[:2]), np.ones(seen.shape[:2]), "ccnet")
    found = Detections.in_frame(
        0, 0.0, box_around(seen) if len(seen) else np.zeros((0, 4)), np.ones(len(seen))
    )
    return replace(found, keypoints=keypoints, appearance=clothes(*(shades or [0.0] * len(seen))))


@pytest.mark.parametrize("shade", [0.0, 40.0])
def test_somebody_who_comes_back_between_two_places_is_the_one_in_the_same_clothes(
    shade: float,
) -> None:
    tracker = Tracker((1000, 600))
    apart = np.array([[300.0, 200], [420.0, 200]])
    for frame in range(10):
        seen = np.stack([pose_of(place, 200, 1.0, 1.0) for place in apart])
        first = tracker.update(0.04 * frame, detections(seen, 0.0, 40.0))
    back = detections(pose_of(np.array([360.0, 200]), 200, 1.0, 1.0)[None], shade)
    assert tracker.update(1.0, back).tolist() == [first[0 if shade == 0 else 1]]


def test_of_two_detections_with_one_pose_only_the_better_one_is_used() -> None:
    pose = pose_of(np.array([300.0, 200]), 200, 1.0, 1.0)
    seen = np.stack([pose, pose + 1, pose + 200])
    boxes = box_around(seen)
    alike = pose_similarity(seen, boxes, COCO17)
    assert alike[0, 1] > 0.9
    assert alike[0, 2] < 0.05
    assert best_of_each_pose(np.array([0.5, 0.7, 0.3]), boxes, seen, alike, 0.6).tolist() == [1, 2]
    boxes[1, 3] = boxes[
        1, [1, 3]
    ].mean()  # half hidden: the keypoints are those of the person in front
    assert best_of_each_pose(np.array([0.5, 0.7, 0.3]), boxes, seen, alike, 0.6).tolist() == [0, 2]
    assert best_of_each_pose(np.array([0.5]), boxes[:1], seen[:1], alike[:1, :1], 0.6).tolist() == [
        0
    ]
    assert best_of_each_pose(np.zeros(0), boxes[:0], seen[:0], np.zeros((0, 0)), 0.6).tolist() == []


def test_nobody_on_either_side_is_no_error() -> None:
    assert Tracker((1000, 600)).update(0.0, detections(np.zeros((0, 17, 2)))).shape == (0,)


def test_people_who_come_out_from_behind_a_wall_are_recognised_where_motion_alone_loses_them() -> (
    None
):
    ours, motion = (
        measure(KINDS["4 behind a wall"], range(4), way) for way in (follow, motion_only)
    )
    assert sum(s.switches for s in ours) <= 0.6 * sum(s.switches for s in motion)
    assert np.mean([s.idf1 for s in ours]) > np.mean([s.idf1 for s in motion]) + 0.15


def test_no_track_goes_over_a_cut() -> None:
    for score in measure(KINDS["3, a cut every 2 s"], range(2), follow):
        assert score.idf1 > 0.85


# --- Relinking
# -------------------------------------------------------------------------------------------------------


def test_the_same_clothes_in_another_shot_are_the_same_person_and_others_are_not() -> None:
    first = np.array([0.0, 0, 5, 5])
    last = np.array([4.0, 4, 9, 9])
    person = relink(clothes(0, 40, 41, 1, weight=1.0), first, last, RELINK_RATIO)
    assert person[0] == person[3]
    assert person[1] == person[2]
    assert person[0] != person[1]


def test_two_people_at_the_same_time_in_the_same_clothes_stay_two() -> None:
    first = np.array([0.0, 0, 5])
    last = np.array([4.0, 4, 9])
    person = relink(clothes(0, 0, 0, weight=1.0), first, last, RELINK_RATIO)
    assert person[0] != person[1]
    assert len(set(person.tolist())) == 2


def test_nobody_seen_is_linked_to_nobody() -> None:
    assert (
        len(
            set(
                relink(
                    no_appearance(3), np.arange(3.0), np.arange(3.0) + 0.5, RELINK_RATIO
                ).tolist()
            )
        )
        == 3
    )
    assert relink(no_appearance(0), np.zeros(0), np.zeros(0), RELINK_RATIO).tolist() == []
