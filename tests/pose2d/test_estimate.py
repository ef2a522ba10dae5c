"""From an image and boxes to keypoints in the image."""

from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO

import cv2
import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

import pose2d
from pose2d.crops import (
    GREY,
    Crops,
    PoseEstimate,
    crop_people,
    estimate,
    estimate_crops,
    estimate_people,
    grow_boxes,
    regions,
)


@pytest.fixture(scope="module")
def model():
    return pose2d.load("movenet-lightning")


@dataclass(frozen=True)
class Photo:
    """A real image and the people annotated in it."""

    image_id: int
    image: np.ndarray  # RGB
    boxes: np.ndarray  # [N, 4]


@pytest.fixture(scope="module")
def annotations(shared):
    with redirect_stdout(StringIO()):
        coco = COCO(str(shared / "data" / "coco" / "annotations" / "person_keypoints_val2017.json"))
    return coco


@pytest.fixture(scope="module")
def photos(shared, annotations):
    """The people of forty real images."""
    found = []
    for image_id in sorted(annotations.imgs)[:40]:
        people = [a for a in annotations.imgToAnns[image_id] if a["num_keypoints"] > 0]
        path = (
            shared
            / "data"
            / "coco"
            / "images"
            / "val2017"
            / annotations.imgs[image_id]["file_name"]
        )
        boxes = np.array(
            [[x, y, x + w, y + h] for x, y, w, h in (a["bbox"] for a in people)]
        ).reshape(-1, 4)
        found.append(
            Photo(image_id, np.ascontiguousarray(cv2.imread(str(path))[:, :, ::-1]), boxes)
        )
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flip_test", "floor"),
    [
        ("movenet-thunder", False, 0.455),
        ("movenet-thunder", True, 0.475),
        ("movenet-lightning", False, 0.36),
    ],
)
def test_real_people_are_read_well_enough(annotations, photos, name, flip_test, floor):
    model = pose2d.load(name)
    results = []
    for photo in photos:
        people = estimate(model, photo.image, photo.boxes, flip_test)
        for xy, score in zip(people.xy_px, people.score, strict=True):
            keypoints = torch.cat([xy, torch.ones(17, 1)], 1).flatten().tolist()
            entry = {
                "image_id": photo.image_id,
                "category_id": 1,
                "keypoints": keypoints,
                "score": float(score.mean()),
            }
            results.append(entry)
    with redirect_stdout(StringIO()):
        evaluation = COCOeval(annotations, annotations.loadRes(results), "keypoints")
        evaluation.params.imgIds = [photo.image_id for photo in photos]
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    assert evaluation.stats[0] > floor


def test_a_shifted_image_gives_shifted_keypoints(photos, model):
    image, boxes = next((photo.image, photo.boxes) for photo in photos if len(photo.boxes))
    room = np.full((image.shape[0] + 40, image.shape[1] + 60, 3), GREY, np.uint8)
    room[40:, 60:] = image
    here = estimate(model, image, boxes)
    there = estimate(model, room, boxes + np.array([60, 40, 60, 40]))
    # Shrinking starts from other pixels, so the crops are equal up to interpolation only.
    torch.testing.assert_close(
        there.xy_px, here.xy_px + torch.tensor([60.0, 40.0]), rtol=0, atol=0.5
    )
    torch.testing.assert_close(there.score, here.score, rtol=0, atol=0.05)
    torch.testing.assert_close(there.sigma_px, here.sigma_px, rtol=0.1, atol=0.1)


def test_people_do_not_depend_on_the_batch(photos, model):
    most = max(photos, key=lambda photo: len(photo.boxes))
    image = most.image
    boxes = most.boxes
    whole = estimate(model, image, boxes)
    pieces = estimate(model, image, boxes, batch=2)
    torch.testing.assert_close(whole.xy_px, pieces.xy_px, rtol=0, atol=1e-3)
    assert whole.features.shape == pieces.features.shape == (len(boxes), *model.feature_shape)
    assert model.predict(whole.features).xy_px.shape == (len(boxes), 17, 2)


@pytest.mark.parametrize("flip_test", [False, True])
def test_no_boxes_give_no_people(model, flip_test):
    people = estimate(model, np.zeros((50, 60, 3), np.uint8), np.zeros((0, 4)), flip_test)
    assert people.xy_px.shape == (0, 17, 2)
    assert people.features.shape == (0, *model.feature_shape)
    assert (people.flipped_features is not None) == flip_test


@pytest.mark.parametrize("shape", [(32, 32), (16, 1500), (1500, 16)])
def test_odd_images_give_finite_keypoints(model, shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    boxes = np.array([[0, 0, shape[1], shape[0]], [-20, -20, 10, 10], [1e4, 1e4, 1e4 + 5, 1e4 + 5]])
    people = estimate(model, image, boxes)
    assert torch.isfinite(people.xy_px).all()
    assert torch.isfinite(people.sigma_px).all()


def test_people_of_several_images_are_what_each_image_gives_alone(model):
    random = np.random.default_rng(1)
    images = [random.integers(0, 256, (90, 120, 3)).astype(np.uint8) for _ in range(3)]
    boxes = np.array([[10.0 + i, 5, 60 + 3 * i, 80] for i in range(3)])
    used, found = estimate_people(model, images, boxes)
    assert found.features.shape == (3, *model.feature_shape)
    for row, image in enumerate(images):
        alone = estimate(model, image, used[row][None])
        torch.testing.assert_close(found.xy_px[row], alone.xy_px[0], rtol=0, atol=1e-3)


def test_nobody_gives_arrays_without_rows(model):
    used, found = estimate_people(model, [], np.zeros((0, 4)))
    assert used.shape == (0, 4)
    assert found.xy_px.shape == (0, model.skeleton.size, 2)


def estimate_at(xy, score):
    count = len(xy)
    return PoseEstimate(
        torch.tensor(xy, dtype=torch.float32),
        torch.full(np.shape(xy)[:2], score),
        torch.zeros(count, 1, 2),
        torch.zeros(count),
        torch.zeros(count, 1),
        None,
    )


def test_a_box_grows_around_confident_keypoints_on_its_crops_edge(model):
    box = np.array([[300.0, 300, 400, 500]])
    centre, side = regions(box, model.input_wh, model.box_scale)
    bottom = centre[0, 1] + side[0, 1] / 2
    inside = [[[350.0, 400]]]
    on_edge = [[[350.0, bottom - 1], [350.0, 320]]]
    size = [(1000, 1000)]
    np.testing.assert_array_equal(grow_boxes(box, estimate_at(inside, 0.9), size, model), box)
    np.testing.assert_array_equal(grow_boxes(box, estimate_at(on_edge, 0.1), size, model), box)
    grown = grow_boxes(box, estimate_at(on_edge, 0.9), size, model)
    assert grown[0, 3] > bottom
    np.testing.assert_array_equal(grown[0, :3], box[0, :3])
    at_image_edge = [(1000, int(bottom))]  # the image ends there: nothing more to see
    np.testing.assert_array_equal(
        grow_boxes(box, estimate_at(on_edge, 0.9), at_image_edge, model), box
    )


def test_mirrored_crops_are_placed_by_their_affine_map(model):
    """The image of a mirrored crop is the same image: only left and right trade names."""
    image = np.random.default_rng(2).integers(0, 256, (100, 100, 3)).astype(np.uint8)
    cropped = crop_people(model, image, np.array([[10.0, 10, 90, 90]]))
    side = model.input_wh[0]
    mirror = np.array([[-1.0, 0, side - 1], [0, 1, 0]])
    affine = mirror[:, :2] @ cropped.affine[0] + np.array([[0, 0, side - 1.0], [0, 0, 0]])
    plain = estimate_crops(model, Crops(cropped.pixels.flip(-1), cropped.affine))
    placed = estimate_crops(model, Crops(cropped.pixels.flip(-1), affine[None]))
    torch.testing.assert_close(placed.xy_px[..., 1], plain.xy_px[..., 1])
    torch.testing.assert_close(
        placed.xy_px[..., 0] + plain.xy_px[..., 0], torch.full((1, 17), 99.0), rtol=0, atol=1.0
    )
    torch.testing.assert_close(placed.sigma_px, plain.sigma_px)


def test_a_network_without_a_spread_says_nan():
    from tests.ccnet.toy import toy_model

    people = estimate(toy_model(), np.zeros((50, 60, 3), np.uint8), np.array([[5.0, 5, 40, 45]]))
    assert torch.isnan(people.sigma_px).all()
