"""What `eval-3dpw` measures is what `run` ships: same frames, boxes and settings give the same
bytes.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import fitmesh
from eval3dpw.bodies import body_set
from fitmesh.eval_3dpw import pipeline
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.fits import read_fits
from fitmesh.eval_3dpw.keypoints import true_boxes
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter
from tests.eval3dpw import tiny_3dpw


def detections_json(path: Path, boxes_px: np.ndarray) -> Path:
    """Boxes on whole pixels, so that x + width is exact."""
    rows = [
        {"image_id": frame, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": 1.0}
        for frame, (x1, y1, x2, y2) in enumerate(boxes_px.tolist())
    ]
    path.write_text(json.dumps(rows))
    return path


@pytest.mark.parametrize("model", ["movenet-lightning", "rtmpose-s-halpe26"])
def test_eval_3dpw_fits_the_bodies_that_run_writes(model: str, tmp_path: Path, monkeypatch) -> None:
    data = tiny_3dpw.write(tmp_path / "data", {"one_00": 1})
    row = Row("ccnet", "likelihood", start_source="ccnet")
    settings = EvalSettings(
        data, pose_model=model, confidence=("ccnet",), named_rows=(("CCNet", row),)
    )
    (sequence,) = eval_sequences(settings, [])
    boxes_px = true_boxes(
        sequence.tracks[0], body_set(), sequence.camera.size, sequence.camera.intrinsics
    ).round()
    monkeypatch.setattr("fitmesh.eval_3dpw.keypoints.true_boxes", lambda *_: boxes_px)
    pipeline.run(settings, tmp_path / "eval", Reporter())
    (file,) = (tmp_path / "eval" / "fits" / "tracks").glob("ccnet_likelihood*/one_00.npz")
    measured = read_fits(file)[0].params

    detections = detections_json(tmp_path / "boxes.json", boxes_px)
    result = fitmesh.run(
        data / "imageFiles" / "one_00",
        tmp_path / "run",
        detections=detections,
        pose_model=model,
        confidence="ccnet",
        focal_px=tiny_3dpw.FOCAL_PX,
        floor="off",
    )
    (person,) = result.people
    assert person.pose_rad.tobytes() == measured.pose.numpy().tobytes()
    assert person.translation_m.tobytes() == measured.translation.numpy().tobytes()
    assert person.shape.tobytes() == measured.shape.numpy().tobytes()
