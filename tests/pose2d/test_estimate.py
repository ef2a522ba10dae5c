"""From a picture and boxes to keypoints in the picture."""

import json

import cv2
import numpy as np
import pytest
import torch

import pose2d
from pose2d.crops import GREY
from pose2d.estimate import estimate

LIGHTNING = "movenet-lightning"


@pytest.fixture(scope="module")
def model():
    return pose2d.load(LIGHTNING)


@pytest.fixture(scope="module")
def coco(shared):
    """Forty real pictures and the people in them: [(picture, boxes [N, 4], keypoints [N, 17, 3], area [N])]."""
    root = shared / "data" / "coco"
    file = json.loads((root / "annotations" / "person_keypoints_val2017.json").read_text())
    pictures = []
    for image in sorted(file["images"], key=lambda image: image["id"])[:40]:
        people = [a for a in file["annotations"] if a["image_id"] == image["id"] and a["num_keypoints"] > 0]
        pixels = cv2.imread(str(root / "images" / "val2017" / image["file_name"]))[:, :, ::-1]
        boxes = np.array([[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in people)]).reshape(-1, 4)
        truth = np.array([a["keypoints"] for a in people], float).reshape(-1, 17, 3)
        area = np.array([a["area"] for a in people])
        pictures.append((np.ascontiguousarray(pixels), boxes, truth, area))
    return pictures


def _oks(xy, truth, area):
    distance2 = ((xy - truth[..., :2]) ** 2).sum(-1)
    similarity = np.exp(-distance2 / (2 * pose2d.COCO17.oks_variance * area[:, None]))
    seen = truth[..., 2] > 0
    return (similarity * seen).sum(1) / seen.sum(1)


@pytest.mark.parametrize(("flip_test", "floor"), [(False, 0.60), (True, 0.62)])
def test_real_people_are_read_well_enough(coco, model, flip_test, floor):
    similarity = [
        _oks(estimate(model, picture, boxes, flip_test).xy_px.numpy(), truth, area)
        for picture, boxes, truth, area in coco
        if len(boxes)
    ]
    assert np.concatenate(similarity).mean() > floor


def test_a_shifted_picture_gives_shifted_keypoints(coco, model):
    picture, boxes, _, _ = next(entry for entry in coco if len(entry[1]))
    room = np.full((picture.shape[0] + 40, picture.shape[1] + 60, 3), GREY, np.uint8)
    room[40:, 60:] = picture
    here, there = estimate(model, picture, boxes), estimate(model, room, boxes + np.array([60, 40, 60, 40]))
    # Shrinking starts from other pixels, so the crops are equal up to interpolation only.
    torch.testing.assert_close(there.xy_px, here.xy_px + torch.tensor([60.0, 40.0]), rtol=0, atol=0.5)
    torch.testing.assert_close(there.score, here.score, rtol=0, atol=0.05)
    torch.testing.assert_close(there.sigma_px, here.sigma_px, rtol=0.1, atol=0.1)


def test_people_do_not_depend_on_the_batch(coco, model):
    picture, boxes, _, _ = max(coco, key=lambda entry: len(entry[1]))
    whole, pieces = estimate(model, picture, boxes), estimate(model, picture, boxes, batch=2)
    torch.testing.assert_close(whole.xy_px, pieces.xy_px, rtol=0, atol=1e-3)
    assert whole.features.shape == pieces.features.shape == (len(boxes), *model.feature_shape)
    assert model.predict(whole.features).xy_px.shape == (len(boxes), 17, 2)


@pytest.mark.parametrize("flip_test", [False, True])
def test_no_boxes_give_no_people(model, flip_test):
    people = estimate(model, np.zeros((50, 60, 3), np.uint8), np.zeros((0, 4)), flip_test)
    assert people.xy_px.shape == (0, 17, 2)
    assert people.features.shape == (0, *model.feature_shape)
    assert (people.mirrored is not None) == flip_test


@pytest.mark.parametrize("shape", [(32, 32), (16, 1500), (1500, 16)])
def test_odd_pictures_give_finite_keypoints(model, shape):
    picture = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    boxes = np.array([[0, 0, shape[1], shape[0]], [-20, -20, 10, 10], [1e4, 1e4, 1e4 + 5, 1e4 + 5]])
    people = estimate(model, picture, boxes)
    assert torch.isfinite(people.xy_px).all()
    assert torch.isfinite(people.sigma_px).all()
