from pathlib import Path

import numpy as np
from torch import Tensor

from pose2d.detect.boxes import Boxes, iou
from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose
from pose2d.video.frames import Span
from pose2d.video.video_file import Video

EXAMPLE = Path(__file__).parents[2] / "examples" / "park.mp4"


class CentreDetector(MultiPose):
    """Scores a person by the centre map alone."""

    def _score(self, certainty: Tensor, trunk: Tensor, cells: Tensor, box_cells: Tensor) -> Tensor:
        return certainty


def score_of(found: Boxes, box_px: list[float]) -> float:
    """Of the box that overlaps the given one most."""
    overlap = iou(np.array([box_px]), found.boxes_px)[0]
    return float(found.scores[overlap.argmax()]) if overlap.max(initial=0) > 0.5 else 0.0


def frame_at(video: Path, seconds: float) -> np.ndarray:
    return next(iter(Video(video).frames(Span(start_s=seconds)))).rgb


def test_a_table_has_a_centre_but_no_keypoints(shared: Path) -> None:
    table = [393, 264, 487, 330]
    image = frame_at(shared / "data" / "videos" / "one_by_one.mp4", 20.2)
    options = DetectorOptions(long_side=512, score_threshold=0.1)
    by_centre = score_of(CentreDetector(options).detect(image), table)
    with_keypoints = score_of(MultiPose(options).detect(image), table)
    assert by_centre > 0.6  # a tracker confirms a person at 0.55
    assert with_keypoints < 0.5


def test_people_have_both_and_keep_their_boxes() -> None:
    image = frame_at(EXAMPLE, 2.0)
    options = DetectorOptions(long_side=512, score_threshold=0.5)
    by_centre = CentreDetector(options).detect(image)
    with_keypoints = MultiPose(options).detect(image)
    assert len(by_centre) == len(with_keypoints) == 2
    for box, score in zip(by_centre.boxes_px, by_centre.scores, strict=True):
        assert 0.7 < score_of(with_keypoints, list(box)) <= score
        assert (np.abs(with_keypoints.boxes_px - box).max(1) < 1e-3).any()
