"""People are found in any image, and given boxes are read or refused in words."""

import json

import cv2
import numpy as np
import pytest

from pose2d import UserError
from pose2d.detect.boxes import Boxes, iou, non_maximum_suppression, read_detections, whole_image
from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose


@pytest.fixture(scope="module")
def detector():
    return MultiPose(DetectorOptions(long_side=256))


def _photo(shared, name="000000000139.jpg"):
    path = shared / "data" / "coco" / "images" / "val2017" / name
    return np.ascontiguousarray(cv2.imread(str(path))[:, :, ::-1])


def _truth(shared, image):
    file = json.loads((shared / "data/coco/annotations/person_keypoints_val2017.json").read_text())
    boxes = [a["bbox"] for a in file["annotations"] if a["image_id"] == image and not a["iscrowd"]]
    return np.array([[x, y, x + w, y + h] for x, y, w, h in boxes])


def test_a_real_person_is_found_where_annotators_saw_one(shared, detector):
    found = detector.detect(_photo(shared))
    assert iou(found.boxes_px, _truth(shared, 139)).max(0).max() > 0.6
    assert (np.diff(found.scores) <= 0).all()
    assert (found.scores >= detector.options.score_threshold).all()


def test_a_image_of_twice_the_size_gives_boxes_of_twice_the_size(shared, detector):
    photo = _photo(shared)
    large = cv2.resize(photo, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    one = detector.detect(photo)
    two = detector.detect(large)
    assert iou(one.boxes_px[:1] * 2, two.boxes_px[:1])[0, 0] > 0.9


@pytest.mark.parametrize("shape", [(32, 32), (16, 2000), (2000, 16), (4320, 7680), (1, 1)])
def test_any_image_can_be_searched(detector, shape):
    found = detector.detect(np.full((*shape, 3), 127, np.uint8))
    assert found.boxes_px.shape == (len(found), 4)
    assert (found.boxes_px >= 0).all()
    assert (found.boxes_px <= [shape[1], shape[0]] * 2).all()


def test_more_than_six_people_can_be_found(shared, detector):
    person = cv2.resize(_photo(shared)[150:300, 400:480], (64, 120), interpolation=cv2.INTER_AREA)
    crowd = np.full((300, 1000, 3), 127, np.uint8)
    for column in range(9):
        crowd[80:200, 20 + 105 * column : 84 + 105 * column] = person
    options = DetectorOptions(long_side=992)
    assert len(MultiPose(options).detect(crowd)) > 6


def test_a_higher_threshold_keeps_a_part_of_what_a_lower_one_finds(shared, detector):
    photo = _photo(shared)
    few = MultiPose(DetectorOptions(long_side=256, score_threshold=0.5)).detect(photo)
    many = MultiPose(DetectorOptions(long_side=256, score_threshold=0.05)).detect(photo)
    assert len(few) < len(many)
    np.testing.assert_array_equal(few.boxes_px, many.boxes_px[: len(few)])


@pytest.mark.parametrize("size", [0, -32, 100])
def test_a_size_that_is_no_multiple_of_32_is_refused(size):
    with pytest.raises(UserError, match="multiple of 32"):
        DetectorOptions(long_side=size)


def test_iou_of_known_boxes():
    boxes = np.array([[0.0, 0, 10, 10], [5, 0, 15, 10], [20, 20, 30, 30]])
    np.testing.assert_allclose(iou(boxes, boxes), [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 1]])


def test_non_maximum_suppression_keeps_the_surest_of_each_heap():
    boxes = np.array([[0.0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60], [2, 0, 12, 10]])
    scores = np.array([0.5, 0.9, 0.3, 0.4])
    np.testing.assert_array_equal(non_maximum_suppression(boxes, scores, 0.5), [1, 2])
    np.testing.assert_array_equal(non_maximum_suppression(boxes, scores, 0.9), [1, 0, 3, 2])
    assert non_maximum_suppression(np.zeros((0, 4)), np.zeros(0), 0.5).shape == (0,)


def test_the_whole_image_is_one_box():
    found = whole_image(np.zeros((20, 30, 3), np.uint8))
    np.testing.assert_array_equal(found.boxes_px, [[0, 0, 30, 20]])


def test_given_boxes_are_read_by_image_surest_first(tmp_path):
    path = tmp_path / "boxes.json"
    path.write_text(
        json.dumps(
            [
                {"image_id": 7, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.2},
                {"image_id": 7, "category_id": 1, "bbox": [10, 20, 30, 40], "score": 0.9},
                {"image_id": 7, "category_id": 18, "bbox": [1, 1, 1, 1], "score": 1.0},
                {"image_id": 9, "category_id": 1, "bbox": [0, 0, 5, 5]},
            ]
        )
    )
    found = read_detections(path)
    assert set(found) == {7, 9}
    assert isinstance(found[7], Boxes)
    np.testing.assert_array_equal(found[7].boxes_px, [[10, 20, 40, 60], [1, 2, 4, 6]])
    np.testing.assert_array_equal(found[7].scores, [0.9, 0.2])
    np.testing.assert_array_equal(found[9].scores, [1.0])


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"annotations": []}',
        '[{"bbox": [0, 0, 1, 1]}]',
        '[{"image_id": 1, "bbox": [0, 0, 1]}]',
        '[{"image_id": 1, "bbox": [0, 0, -4, 5]}]',
        '[{"image_id": 1, "bbox": "all"}]',
        "[3]",
    ],
)
def test_boxes_that_cannot_be_read_are_refused_with_the_files_name(tmp_path, text):
    path = tmp_path / "boxes.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"boxes\.json"):
        read_detections(path)


def test_a_missing_file_of_boxes_is_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.json"):
        read_detections(tmp_path / "none.json")
