"""Doubtful people are read again in turned crops, and the reading that is believed more counts."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from pose2d import readings
from pose2d.crops import Crops, crop_boxes
from pose2d.readings import (
    HARDLY_BELIEVED,
    LEAST_PX,
    KeypointReader,
    doubtful_directions,
    turn_errors,
    turned_crop,
)
from pose2d.skeletons import COCO17
from pose2d.types import ErrorDistribution, Keypoints

MODEL: Any = SimpleNamespace(input_wh=(192, 256), box_scale=1.25, crop="sbl")
BOX = np.array([100.0, 80.0, 260.0, 180.0])


def person(torso_deg: float, confidence: float = 0.9, presence: float = 1.0) -> Keypoints:
    """One person whose torso is turned clockwise from upright."""
    angle = np.radians(torso_deg)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    xy_px = np.zeros((1, 17, 2))
    for name, place in (("shoulder", (20, -50)), ("hip", (15, 50))):
        for side, sign in (("left", 1), ("right", -1)):
            xy_px[0, COCO17.keypoints.index(f"{side}_{name}")] = (sign * place[0], place[1])
    ones = torch.ones(1, 17)
    turned_px = torch.from_numpy(xy_px @ turn.T)
    return Keypoints(turned_px, confidence * ones, presence * ones, "ccnet", raw=ones)


def picture() -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (240, 320, 3), dtype=np.uint8)
    return cv2.GaussianBlur(noise, (0, 0), 4)


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_a_turned_crop_is_the_crop_of_the_turned_image(quarter: int) -> None:
    image = picture()
    turned = np.ascontiguousarray(np.rot90(image, quarter))
    corners = BOX.reshape(2, 2)
    for turn in range(quarter):
        width = image.shape[1 - turn % 2]  # before this quarter turn
        corners = np.stack([corners[:, 1], width - 1 - corners[:, 0]], 1)
    box = np.concatenate([corners.min(0), corners.max(0)])[None]
    expected, _ = crop_boxes(turned, box, MODEL.input_wh, MODEL.box_scale, MODEL.crop)
    crop = turned_crop(MODEL, image, BOX, quarter)
    difference = (crop.pixels.int() - expected.int()).abs()
    assert difference.max() <= 3
    centre = crop.affine[0, :, :2] @ ((BOX[:2] + BOX[2:]) / 2) + crop.affine[0, :, 2]
    np.testing.assert_allclose(centre, (96, 128))


@pytest.mark.parametrize(("torso_deg", "quarter"), [(80, 1), (170, 2), (-170, 2), (-100, 3)])
def test_a_person_is_read_again_with_the_torso_up(torso_deg: float, quarter: int) -> None:
    assert np.flatnonzero(doubtful_directions(person(torso_deg))[0]).tolist() == [quarter]


def test_an_upright_person_who_is_believed_is_read_once() -> None:
    assert not doubtful_directions(person(30)).any()


def test_a_person_who_is_hardly_believed_is_read_in_all_directions() -> None:
    doubtful = person(0, confidence=HARDLY_BELIEVED - 0.01)
    assert doubtful_directions(doubtful).tolist() == [[False, True, True, True]]


def test_a_torso_outside_the_image_says_no_direction() -> None:
    close_up = person(90)
    close_up.presence[:, 5:] = 0.1
    assert not doubtful_directions(close_up).any()


def test_after_a_quarter_turn_errors_along_x_and_y_trade_places() -> None:
    ones = torch.ones(1, 17, 1)
    error = ErrorDistribution(ones, ones, torch.full((1, 17), 0.7))
    turned = turn_errors(replace(person(90), error=error))
    assert turned.error is not None
    torch.testing.assert_close(turned.error.axis_sigma, error.axis_sigma.flip(-1))


def reader(
    monkeypatch: pytest.MonkeyPatch, first: Keypoints, turned: dict[int, float]
) -> KeypointReader:
    """A reader whose first reading is given, and whose turned readings have these confidences."""

    def estimate_people(
        model: object, images: Sequence[np.ndarray], boxes_px: np.ndarray
    ) -> tuple[np.ndarray, Keypoints]:
        return boxes_px, first

    def estimate_crops(model: object, crops: Crops) -> Keypoints:
        x, y = crops.affine[0, 0, :2]
        quarter = {(1, 0): 0, (0, 1): 1, (-1, 0): 2, (0, -1): 3}[int(np.sign(x)), int(np.sign(y))]
        return person(90.0 * quarter, turned[quarter])

    monkeypatch.setattr(readings, "estimate_people", estimate_people)
    monkeypatch.setattr(readings, "estimate_crops", estimate_crops)
    as_they_are: Any = lambda poses: poses  # noqa: E731
    return KeypointReader(MODEL, as_they_are)


def test_the_reading_that_is_believed_clearly_more_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    first = person(0, 0.3)
    read = reader(monkeypatch, first, {1: 0.31, 2: 0.6, 3: 0.5})
    _, best = read([picture()], BOX[None])
    assert best.confidence[0, 0] == pytest.approx(0.6)
    assert (read.first_readings, read.second_readings) == (1, 3)
    read = reader(monkeypatch, first, {1: 0.31, 2: 0.32, 3: 0.33})
    _, best = read([picture()], BOX[None])
    torch.testing.assert_close(best.xy_px, first.xy_px)


def test_small_people_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader(monkeypatch, person(0, 0.1), {1: 0.9, 2: 0.9, 3: 0.9})
    small = np.array([[0, 0, 10, LEAST_PX - 1]])
    _, best = read([picture()], small)
    assert best.confidence[0, 0] == pytest.approx(0.1)
    assert read.second_readings == 0


def test_scores_without_calibration_choose_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    read = reader(monkeypatch, replace(person(0, 0.1), source="raw"), {1: 0.9, 2: 0.9, 3: 0.9})
    _, best = read([picture()], BOX[None])
    assert best.confidence[0, 0] == pytest.approx(0.1)
    assert (read.first_readings, read.second_readings) == (1, 0)
