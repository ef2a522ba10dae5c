"""YOLOX finds the boxes that OpenMMLab's export finds, before and after suppression, and any image
can be searched.
"""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from pose2d import UserError
from pose2d.detect.boxes import iou, non_maximum_suppression
from pose2d.detect.detector import DETECTORS, DetectorOptions, detector_class, load_detector
from pose2d.detect.yolox import YoloxTiny
from pose2d.video.video_file import Video
from tests.patterns import pattern
from tools.convert_rtmpose import published_yolox

ONNX = "weights/yolox_tiny_humanart_416.onnx"
DATA = Path(__file__).resolve().parents[1] / "data" / "openmmlab_onnx.npz"


@pytest.fixture(scope="module")
def detector():
    return YoloxTiny()


def _photo(shared, name="000000000139.jpg"):
    return np.ascontiguousarray(
        cv2.imread(str(shared / "data/coco/images/val2017" / name))[:, :, ::-1]
    )


def _square(image):
    """As the published pipeline: BGR in the top left corner of 416 x 416, beside it 114."""
    scale = 416 / max(image.shape[:2])
    small = cv2.resize(image[:, :, ::-1], None, fx=scale, fy=scale, interpolation=cv2.INTER_LINEAR)
    padded = np.full((416, 416, 3), 114, np.float32)
    padded[: small.shape[0], : small.shape[1]] = small
    return padded.transpose(2, 0, 1)[None]


def test_boxes_and_scores_are_those_of_onnx_runtime_on_a_fixed_input(detector):
    expected = np.load(DATA)
    with torch.inference_mode():
        boxes, scores = detector.net(torch.from_numpy(pattern(2, 416, 416)).float())
    kept = slice(None, None, int(expected["kept"]))
    assert np.abs(boxes.numpy()[:, kept] - expected["boxes"]).max() < 2e-3  # pixels
    assert np.abs(scores.numpy()[:, kept] - expected["scores"]).max() < 1e-5


@pytest.mark.parametrize("name", ["000000000139.jpg", "000000001490.jpg", "000000000872.jpg"])
def test_people_are_those_of_the_published_file_on_real_images(shared, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    pixels = _square(_photo(shared, name))
    session = onnxruntime.InferenceSession(str(shared / ONNX), providers=["CPUExecutionProvider"])
    found, labels = (output[0] for output in session.run(None, {"input": pixels}))
    found = found[(labels == 0) & (found[:, 4] > 0.05)]
    with torch.inference_mode():
        boxes, scores = (
            output[0].numpy() for output in published_yolox(shared / ONNX)(torch.from_numpy(pixels))
        )
    boxes = boxes[scores > 0.01]
    scores = scores[scores > 0.01]
    keep = non_maximum_suppression(boxes, scores, 0.65)
    keep = keep[scores[keep] > 0.05]
    assert len(found) > 0
    assert np.abs(boxes[keep] - found[:, :4]).max() < 1e-2
    assert np.abs(scores[keep] - found[:, 4]).max() < 1e-4


def test_half_precision_finds_the_same_people(shared, detector):
    image = _photo(shared)
    exact = YoloxTiny()
    exact.net = published_yolox(shared / ONNX)
    one = detector.detect(image)
    two = exact.detect(image)
    assert len(one) == len(two) > 0
    assert iou(one.boxes_px, two.boxes_px).diagonal().min() > 0.99
    assert np.abs(one.scores - two.scores).max() < 0.01


def test_grey_beside_the_image_does_not_matter(shared, detector):
    """An input cut to multiples of 32 and the published square find the same people."""
    image = _photo(shared, "000000001490.jpg")
    boxes, scores = detector.candidates(torch.from_numpy(_square(image)))
    best = int(scores.argmax())
    found = detector.detect(image)
    square = boxes[best].numpy()[None] * max(image.shape[:2]) / 416
    assert iou(found.boxes_px[:1], square)[0, 0] > 0.95


@pytest.mark.parametrize("size", [320, 416, 640])
def test_an_image_of_twice_the_size_gives_boxes_of_twice_the_size(shared, size):
    photo = _photo(shared, "000000001490.jpg")
    large = cv2.resize(photo, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
    detector = YoloxTiny(DetectorOptions(long_side=size, score_threshold=0.3))
    one = detector.detect(photo)
    two = detector.detect(large)
    assert iou(one.boxes_px[:1] * 2, two.boxes_px[:1])[0, 0] > 0.9


@pytest.mark.parametrize("shape", [(32, 32), (16, 2000), (2000, 16), (1, 1)])
def test_any_image_can_be_searched(detector, shape):
    found = detector.detect(np.full((*shape, 3), 127, np.uint8))
    assert found.boxes_px.shape == (len(found), 4)
    assert (found.boxes_px <= [shape[1], shape[0]] * 2).all()


def test_inputs_are_blue_first_in_the_top_left_corner():
    image = np.zeros((208, 104, 3), np.uint8)
    image[..., 0] = 200  # red
    pixels, scale = YoloxTiny.prepare(image, YoloxTiny.defaults.long_side)
    assert tuple(pixels.shape) == (1, 3, 416, 224)
    assert scale == 2
    assert pixels[0, :, 415, 207].tolist() == [0, 0, 200]
    assert pixels[0, :, 0, 208].tolist() == [114, 114, 114]


@pytest.mark.parametrize("part", [(50, 330, 180, 460), (70, 210, 250, 390), (70, 330, 200, 420)])
def test_a_close_up_of_face_or_face_and_hand_is_somebody(shared, detector, part):
    frame = next(
        f.rgb for f in Video(shared / "data/videos/upper_body_sign.mkv").frames() if f.index == 25
    )
    top, bottom, left, right = part
    found = detector.detect(np.ascontiguousarray(frame[top:bottom, left:right]))
    assert found.scores[0] > 0.55  # what starts a track


def test_detectors_are_known_by_name(shared):
    assert list(DETECTORS) == ["yolox-tiny", "multipose"]
    image = _photo(shared)
    for name in DETECTORS:
        kind = detector_class(name)
        detector = load_detector(name)
        assert detector.options == kind.defaults
        found = detector.detect(image)
        assert len(found) > 0
        assert (np.diff(found.scores) <= 0).all()
    with pytest.raises(UserError, match="Did you mean yolox-tiny"):
        load_detector("yolox")


def test_wrong_inputs_are_refused(detector):
    with pytest.raises(UserError, match="multiples of 32"):
        detector.net(torch.zeros(1, 3, 416, 400))
