"""A hand that is seen alone keeps its side."""

import numpy as np
import torch

from pose2d.hand_sides import keep_sides
from pose2d.types import Detections, HandKeypoints, Keypoints

FPS = 30.0
OPEN_HAND = np.random.default_rng(0).uniform(-50, 50, (21, 2))
LEFT = 0
RIGHT = 1


def person(
    sides: list[tuple[int, ...]], sure: list[tuple[float, float]], moved_px: float = 2.0
) -> tuple[Detections, HandKeypoints]:
    """A person whose hands are found on these sides, with how sure the wrists are, in frames."""
    count = len(sides)
    hands = HandKeypoints.unseen(count)
    for row, found in enumerate(sides):
        for side in found:
            hands.presence[row, side] = 0.9
            hands.size_px[row, side] = 100
            hands.xy_px[row, side] = (
                OPEN_HAND + 300 + 200 * side * (len(found) > 1) + moved_px * row
            )
    confidence = torch.full((count, 17), 0.1)
    confidence[:, 9:11] = torch.tensor(sure)
    points = Keypoints(torch.zeros(count, 17, 2), confidence, torch.ones(count, 17), "ccnet")
    frames = np.arange(count)
    boxes = np.tile([0.0, 0.0, 400.0, 400.0], (count, 1))
    rows = Detections(frames, np.ones(count, np.int64), boxes, np.ones(count), points)
    return rows, hands


def kept(rows: Detections, hands: HandKeypoints) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in keep_sides(rows, hands, FPS).presence > 0]


def test_a_hand_that_is_seen_alone_keeps_its_side() -> None:
    rows, hands = person([(RIGHT,), (LEFT,), (RIGHT,), (LEFT,), (LEFT,)], [(0.3, 0.3)] * 5)
    assert kept(rows, hands) == [[RIGHT]] * 5
    np.testing.assert_array_equal(
        keep_sides(rows, hands, FPS).xy_px[1, RIGHT], hands.xy_px[1, LEFT]
    )


def test_a_hand_changes_its_side_where_the_other_arm_is_clearly_surer() -> None:
    rows, hands = person([(RIGHT,), (LEFT,)], [(0.1, 0.8), (0.8, 0.1)])
    assert kept(rows, hands) == [[RIGHT], [LEFT]]


def test_a_hand_elsewhere_is_another_hand() -> None:
    rows, hands = person([(RIGHT,), (LEFT,)], [(0.3, 0.3)] * 2, moved_px=80)
    assert kept(rows, hands) == [[RIGHT], [LEFT]]


def test_two_hands_stay_as_they_are() -> None:
    rows, hands = person([(RIGHT,), (LEFT, RIGHT), (LEFT,)], [(0.3, 0.3)] * 3)
    assert kept(rows, hands) == [[RIGHT], [LEFT, RIGHT], [LEFT]]


def test_another_person_has_sides_of_their_own() -> None:
    rows, hands = person([(RIGHT,), (LEFT,)], [(0.3, 0.3)] * 2)
    rows.identity[1] = 2
    assert kept(rows, hands) == [[RIGHT], [LEFT]]
