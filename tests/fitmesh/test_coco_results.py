"""`eval-coco`: the raw confidence of a person, the file of results, and boxes as annotated."""

import json

import numpy as np
import pytest

import pose2d
from ccnet.coco_ap.average_precision import coco_index, evaluate_coco, run_pycocotools
from ccnet.data.datasets import read_split
from ccnet.predicted_people import predict_split
from fitmesh.coco.eval_coco import EvalCocoOptions, run
from pose2d.skeletons import COCO17
from tests.ccnet.toy import toy_model, write_coco


@pytest.fixture
def toy_data(tmp_path, monkeypatch):
    monkeypatch.setattr(pose2d, "load", lambda name, checkpoint=None: toy_model())
    write_coco(tmp_path / "coco", "val2017", count=5, seed=1)
    return tmp_path / "coco"


def test_the_raw_confidence_of_a_person_is_equation_5(toy_data):
    """The mean over keypoints whose score is above tau; raw-mean counts all; no keypoint: 0."""
    split = read_split(toy_data, "val2017")
    model = toy_model()
    for tau in (0.2, 0.5, 1.1):
        confidence = predict_split(model, None, split, raw_threshold=tau).confidence
        score = confidence["raw"].keypoint
        above = score > tau
        expected = np.where(above, score, 0).sum(1) / np.maximum(above.sum(1), 1)
        ones = np.ones(len(score))
        np.testing.assert_allclose(confidence["raw"].person(ones), expected, atol=1e-12)
        np.testing.assert_allclose(confidence["raw-mean"].person(ones), score.mean(1))


def test_results_can_be_evaluated_by_pycocotools(toy_data, tmp_path):
    path = tmp_path / "results.json"
    request = EvalCocoOptions(toy_data, "toy", confidence=("raw",), results=path)
    ap = run(request).figures["raw"]["ap"]
    results = json.loads(path.read_text())
    dataset = read_split(toy_data, "val2017").dataset
    assert evaluate_coco(dataset, results).ap == pytest.approx(ap)
    again = evaluate_by_pycocotools_files(dataset, results)
    assert again == pytest.approx(ap)


def evaluate_by_pycocotools_files(dataset, results) -> float:
    truth = coco_index(dataset)
    return run_pycocotools(lambda: (truth, truth.loadRes(results)), COCO17.oks_sigma).ap


def test_plain_boxes_are_the_annotated_ones(toy_data):
    split = read_split(toy_data, "val2017", plain_boxes=True)
    by_id = {a["id"]: a["bbox"] for a in split.dataset["annotations"]}
    for person in split.people:
        x, y, width, height = by_id[person.id]
        assert person.box_px == (x, y, x + width, y + height)
    clipped = read_split(toy_data, "val2017").people[0].box_px
    assert clipped != split.people[0].box_px
