"""Association and relinking on simulated people whose identities are exact."""

from dataclasses import replace

import numpy as np
import pytest

from bench.identity import KINDS, follow, measure, motion_only, pose_of
from pose2d.skeletons import COCO17
from pose2d.tracking.appearance import PARTS, RELINK_RATIO, SIZE, relink, unseen
from pose2d.tracking.tracker import (
    AssociationOptions,
    PoseMotionOptions,
    best_of_each_pose,
    cue_log_likelihood,
    first_pose,
    pose_log_likelihood_ratio,
    pose_similarity,
    predict_pose,
    update_pose,
)
from pose2d.types import Appearance, Detections, Keypoints

OPTIONS, MOTION = AssociationOptions(), PoseMotionOptions()
BODY_PX = 210.0


def clothes(*shades: float, weight: float = 0.8) -> Appearance:
    """People in one colour from head to foot, by its distance from grey in L and b."""
    colours = np.zeros((len(shades), len(PARTS), SIZE))
    colours += np.array([45.0, 50, 55, 0, 0, 0, 0, 0, 0])
    colours[..., [0, 1, 2, 6, 7, 8]] += np.array(shades)[:, None, None]
    return Appearance(colours, np.full((len(shades), len(PARTS)), weight))


# --- Association -----------------------------------------------------------------------------------------------------


def box_around(xy: np.ndarray) -> np.ndarray:
    return np.concatenate([xy.min(-2) - 10, xy.max(-2) + 10], -1)


def detections(seen: np.ndarray, *shades: float) -> Detections:
    keypoints = Keypoints(seen, np.ones(seen.shape[:2]), np.ones(seen.shape[:2]), "ccnet")
    found = Detections.in_frame(0, 0.0, box_around(seen) if len(seen) else np.zeros((0, 4)), np.ones(len(seen)))
    return replace(found, keypoints=keypoints, appearance=clothes(*(shades or [0.0] * len(seen))))


def std(seen: np.ndarray) -> np.ndarray:
    return np.full(seen.shape[:2], 3.0)


def test_a_pose_that_was_expected_is_preferred_to_a_mirrored_one_in_the_same_place() -> None:
    sigma = np.full(17, 3.0)
    poses = [pose_of(np.array([300 + 4.0 * t, 200]), 200, 0.25 * t, 1.0) for t in range(6)]
    belief = first_pose(poses[0], sigma, BODY_PX)
    for pose in poses[1:5]:
        belief = update_pose(predict_pose(belief, 0.04, BODY_PX, MOTION), pose, sigma)
    belief = predict_pose(belief, 0.04, BODY_PX, MOTION)
    mirrored = pose_of(np.array([320.0, 200]), 200, 1.25, -1.0)
    seen = np.stack([poses[5], mirrored])
    pairs = np.array([0, 0]), np.array([0, 1])
    ratio = pose_log_likelihood_ratio(pairs, [belief], detections(seen), std(seen), OPTIONS)
    assert ratio[0] > 0.5
    assert ratio[0] > ratio[1] + 1


def test_a_pose_filter_follows_a_steady_movement_and_skips_what_is_not_seen() -> None:
    sigma = np.full(17, 1.0)
    belief = first_pose(np.zeros((17, 2)), sigma, BODY_PX)
    for t in range(1, 20):
        xy = np.full((17, 2), 2.0 * t)
        xy[3] = np.nan
        belief = update_pose(predict_pose(belief, 0.04, BODY_PX, MOTION), xy, sigma)
    assert belief.xy_px[0, 0] == pytest.approx(38, abs=0.5)
    assert belief.velocity_px[0, 0] == pytest.approx(50, abs=10)
    assert np.isfinite(belief.xy_px).all()
    assert belief.std_px[3] > 20 * belief.std_px[0]


def test_appearance_tells_two_poses_apart_that_are_alike_but_not_where_one_pose_was_found_twice() -> None:
    pose = pose_of(np.array([300.0, 200]), 200, 1.0, 1.0)
    seen = np.stack([pose, pose])
    pairs = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    states = [first_pose(pose, np.full(17, 3.0), BODY_PX)] * 2
    said = cue_log_likelihood(
        pairs, states, clothes(0.0, 40.0), detections(seen, 40.0, 0.0), std(seen), np.ones(2), OPTIONS
    )
    assert said[1] > said[0] + 3
    assert said[2] > said[3] + 3
    nothing = cue_log_likelihood(
        pairs, states, clothes(0.0, 40.0), detections(seen, 40.0, 0.0), std(seen), np.zeros(2), OPTIONS
    )
    assert (nothing == 0).all()


def test_of_two_detections_with_one_pose_only_the_better_one_is_used() -> None:
    pose = pose_of(np.array([300.0, 200]), 200, 1.0, 1.0)
    seen = np.stack([pose, pose + 1, pose + 200])
    boxes = box_around(seen)
    alike = pose_similarity(seen, boxes, COCO17)
    assert alike[0, 1] > 0.9
    assert alike[0, 2] < 0.05
    assert best_of_each_pose(np.array([0.5, 0.7, 0.3]), boxes, seen, alike, 0.6).tolist() == [1, 2]
    boxes[1, 3] = boxes[1, [1, 3]].mean()  # half hidden: the keypoints are those of the person in front
    assert best_of_each_pose(np.array([0.5, 0.7, 0.3]), boxes, seen, alike, 0.6).tolist() == [0, 2]
    assert best_of_each_pose(np.array([0.5]), boxes[:1], seen[:1], alike[:1, :1], 0.6).tolist() == [0]
    assert best_of_each_pose(np.zeros(0), boxes[:0], seen[:0], np.zeros((0, 0)), 0.6).tolist() == []


def test_nobody_on_either_side_is_no_error() -> None:
    nobody = np.zeros(0, int), np.zeros(0, int)
    none = np.zeros((0, 17, 2))
    said = cue_log_likelihood(nobody, [], unseen(0), detections(none), std(none), np.zeros(0), OPTIONS)
    assert said.shape == (0,)


def test_people_who_come_out_from_behind_a_wall_are_recognised_where_motion_alone_loses_them() -> None:
    ours, motion = (measure(KINDS["4 behind a wall"], range(4), way) for way in (follow, motion_only))
    assert sum(s.switches for s in ours) <= 0.6 * sum(s.switches for s in motion)
    assert np.mean([s.idf1 for s in ours]) > np.mean([s.idf1 for s in motion]) + 0.15


def test_no_track_goes_over_a_cut() -> None:
    for score in measure(KINDS["3, a cut every 2 s"], range(2), follow):
        assert score.idf1 > 0.85


# --- Relinking -------------------------------------------------------------------------------------------------------


def test_the_same_clothes_in_another_shot_are_the_same_person_and_others_are_not() -> None:
    first, last = np.array([0.0, 0, 5, 5]), np.array([4.0, 4, 9, 9])
    person = relink(clothes(0, 40, 41, 1, weight=1.0), first, last, RELINK_RATIO)
    assert person[0] == person[3]
    assert person[1] == person[2]
    assert person[0] != person[1]


def test_two_people_at_the_same_time_in_the_same_clothes_stay_two() -> None:
    first, last = np.array([0.0, 0, 5]), np.array([4.0, 4, 9])
    person = relink(clothes(0, 0, 0, weight=1.0), first, last, RELINK_RATIO)
    assert person[0] != person[1]
    assert len(set(person.tolist())) == 2


def test_nobody_seen_is_linked_to_nobody() -> None:
    assert len(set(relink(unseen(3), np.arange(3.0), np.arange(3.0) + 0.5, RELINK_RATIO).tolist())) == 3
    assert relink(unseen(0), np.zeros(0), np.zeros(0), RELINK_RATIO).tolist() == []
