"""Hands are found where an arm ends in one, follow the image when it is turned or mirrored, and are
never invented.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from pose2d import hands as module
from pose2d.hand_tracks import find_hands
from pose2d.hands import (
    SEEN,
    Arms,
    FoundHands,
    Look,
    hands_in_image,
    look,
    region_around,
)
from pose2d.types import Detections, Keypoints
from pose2d.video.frames import Frame, Span
from pose2d.video.video_file import Video

# of the arm in frame 220, whose hand is open
ELBOW = (370.0, -95.0)
WRIST = (477.0, 132.0)
NOTHING = np.full((1, 21, 2), np.nan)


@pytest.fixture(scope="module")
def clip(shared: Path) -> list[np.ndarray]:
    frames = Video(shared / "data/hands/cam0_test.mp4").frames(Span(7.0, 7.7))
    return [frame.rgb for frame in frames]


@pytest.fixture(scope="module")
def photo(clip: list[np.ndarray]) -> np.ndarray:
    return clip[10]


def arms(
    elbow: tuple[float, float] = ELBOW, wrist: tuple[float, float] = WRIST, right: bool = True
) -> Arms:
    ends = np.array([elbow]), np.array([wrist])
    return Arms(
        *ends, np.array([8.0]), np.array([250.0]), np.array([0.8]), np.array([right]), np.array([0])
    )


def found(photo: np.ndarray, one: Arms) -> FoundHands:
    return hands_in_image(photo, one, np.repeat(NOTHING, len(one), 0))


def test_the_network_says_what_the_published_file_says(shared: Path, photo: np.ndarray) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    crop = np.ascontiguousarray(photo[:224, 400:624]).astype(np.float32)[None] / 255
    path = shared / "weights/mediapipe_hand_landmark_full_224.onnx"
    published = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    expected = published.run(None, {"input_1": crop})
    for ours, theirs in zip(module.network()(torch.from_numpy(crop)), expected, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-4)


def test_a_hand_is_found_at_the_end_of_the_arm(photo: np.ndarray) -> None:
    hand = found(photo, arms())
    assert hand.presence[0] > 0.8
    assert np.linalg.norm(hand.xy_px[0, 0] - WRIST) < 40
    tips = hand.xy_px[0, 8::4]
    knuckles = hand.xy_px[0, 5::4]
    assert (tips[:, 1] > knuckles[:, 1] + 30).all()  # the fingers point down
    assert (hand.std_px > 0.5).all()
    assert (hand.std_px < 30).all()


def test_a_turned_image_has_the_same_hand_turned(photo: np.ndarray) -> None:
    side = len(photo)
    straight = found(photo, arms())
    turned = found(
        np.ascontiguousarray(np.rot90(photo)),
        arms((ELBOW[1], side - 1 - ELBOW[0]), (WRIST[1], side - 1 - WRIST[0])),
    )
    back = np.stack([side - 1 - turned.xy_px[..., 1], turned.xy_px[..., 0]], -1)
    np.testing.assert_allclose(back, straight.xy_px, atol=4)
    metres = np.stack(
        [-turned.landmarks_m[..., 1], turned.landmarks_m[..., 0], turned.landmarks_m[..., 2]], -1
    )
    np.testing.assert_allclose(metres, straight.landmarks_m, atol=0.004)


def test_a_mirrored_video_has_the_hand_of_the_arm_it_hangs_on(photo: np.ndarray) -> None:
    side = len(photo)
    mirrored = found(
        np.ascontiguousarray(photo[:, ::-1]),
        arms((side - 1 - ELBOW[0], ELBOW[1]), (side - 1 - WRIST[0], WRIST[1]), False),
    )
    straight = found(photo, arms())
    assert mirrored.presence[0] > 0.8
    np.testing.assert_allclose(
        side - 1 - mirrored.xy_px[..., 0],
        straight.xy_px[..., 0],
        atol=0.06 * float(straight.size_px[0]),
    )
    np.testing.assert_allclose(
        -mirrored.landmarks_m[0, :, 0], straight.landmarks_m[0, :, 0], atol=0.02
    )


@pytest.mark.parametrize("where", ["nothing", "noise", "desk", "the elbow"])
def test_no_hand_is_invented(photo: np.ndarray, where: str) -> None:
    image = photo
    one = arms()
    if where == "nothing":
        image = np.full_like(photo, 128)
    elif where == "noise":
        image = np.random.default_rng(0).integers(0, 256, photo.shape, np.uint8)
    elif where == "desk":
        one = arms((250.0, 300.0), (350.0, 480.0))
    else:
        one = arms((470.0, 130.0), (420.0, 10.0))
    assert found(image, one).presence[0] < SEEN


def test_a_hand_that_hangs_on_another_arm_is_not_taken(photo: np.ndarray) -> None:
    """The crop shows a hand, but its wrist is not where this person's wrist is."""
    hand = found(photo, arms((660.0, 200.0), (600.0, 215.0)))
    assert hand.score[0] > 0.5
    assert hand.presence[0] < SEEN


def test_of_two_arms_at_one_hand_the_nearer_wrist_has_it(photo: np.ndarray) -> None:
    both = Arms.concat([arms(wrist=(WRIST[0] + 50, WRIST[1] - 20), right=False), arms()])
    np.testing.assert_array_equal(found(photo, both).presence >= SEEN, [False, True])


def test_what_the_frame_cuts_off_is_stated_to_be_less_sure(photo: np.ndarray) -> None:
    whole = found(photo, arms())
    cut = found(np.ascontiguousarray(photo[:230]), arms())
    outside = whole.xy_px[0, :, 1] > 250
    assert 2 < outside.sum() < 19
    assert (cut.std_px[0, outside] > 1.5 * whole.std_px[0, outside]).all()


def person(frames: int, scale: float = 1.0) -> Detections:
    """Rows with only the right arm in sight."""
    xy = np.full((frames, 17, 2), 10.0)
    sure = np.zeros((frames, 17))
    xy[:, 8] = ELBOW
    xy[:, 10] = WRIST
    sure[:, [8, 10]] = 0.8
    columns = (torch.from_numpy(part).float() for part in (xy * scale, sure, np.ones_like(sure)))
    keypoints = Keypoints(*columns, source="ccnet")
    box = np.tile([100.0, 0, 700, 700], (frames, 1)) * scale
    return Detections(np.arange(frames), np.ones(frames, np.int64), box, np.ones(frames), keypoints)


def shown(clip: list[np.ndarray], scale: float = 1.0) -> Iterator[Frame]:
    for number, rgb in enumerate(clip):
        small = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        yield Frame(number, Fraction(number, 30), small)


def test_a_hand_that_stays_where_it_is_takes_a_look_every_second_frame(
    clip: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def counted(images: Sequence[np.ndarray], regions: np.ndarray) -> Look:
        looks.append(len(regions))
        return look(images, regions)

    monkeypatch.setattr(module, "look", counted)
    hands = find_hands(shown([clip[10]] * 9), person(9))
    assert (hands.presence[:, 1] > 0.8).all()
    # Frames 3, 5 and 7 lie between frames in which it is where it was expected.
    assert sum(looks) == module.STARTS + 5
    np.testing.assert_allclose(hands.xy_px[3, 1], hands.xy_px[2, 1], atol=2)
    assert not hands.presence[:, 0].any()
    assert np.isnan(hands.xy_px[:, 0]).all()


def test_an_arm_without_a_hand_is_searched_again_after_longer_and_longer_times(
    clip: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []

    def nothing(images: Sequence[np.ndarray], regions: np.ndarray) -> Look:
        searched.append(len(regions))
        return replace(look(images, regions), score=np.zeros(len(regions), np.float32))

    monkeypatch.setattr(module, "look", nothing)
    hands = find_hands(shown([clip[10]] * 34), person(34))
    assert not hands.presence.any()
    assert len(searched) == 5  # frames 0, 3, 9, 21 and 33, at 30 frames a second


def test_a_hand_too_small_to_see_is_not_looked_for(
    clip: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "look", lambda images, regions: pytest.fail("it was looked for"))
    hands = find_hands(shown(clip[:2], 0.1), person(2, 0.1))
    assert not hands.presence.any()
    assert np.isnan(hands.xy_px).all()


def test_nobody_has_no_hands(photo: np.ndarray) -> None:
    assert len(found(photo, arms().rows(np.zeros(0, np.int64)))) == 0


def test_the_next_region_holds_the_whole_hand(photo: np.ndarray) -> None:
    hand = found(photo, arms())
    x, y, side, angle = region_around(hand.xy_px)[0]
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    inside = (hand.xy_px[0] - [x, y]) @ turn / side
    assert np.abs(inside).max() < 0.5


def test_rows_are_those_of_the_people_whatever_their_order(clip: list[np.ndarray]) -> None:
    rows = person(3)
    shuffled = rows.rows(np.array([2, 0, 1]))
    straight = find_hands(shown(clip[:3]), rows)
    other = find_hands(shown(clip[:3]), replace(shuffled))
    np.testing.assert_array_equal(straight.rows(np.array([2, 0, 1])).xy_px, other.xy_px)
