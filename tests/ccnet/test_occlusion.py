"""The patch hides what it should and nothing else; the curve shows whether confidence falls with
OKS.
"""

from pathlib import Path

import cv2
import numpy as np
import torch

from ccnet.data.datasets import AnnotatedPerson
from ccnet.occlusion import blur_patch, occlude_wrists, people_to_occlude
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17
from pose2d.types import Prediction


def test_only_the_patch_is_blurred() -> None:
    image = np.random.default_rng(0).integers(0, 256, (80, 100, 3), dtype=np.uint8)
    before = image.copy()
    hidden = blur_patch(image, (60, 30), 20)
    np.testing.assert_array_equal(image, before)
    changed = (hidden != image).any(-1)
    rows, columns = np.nonzero(changed)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (20, 39, 50, 69)
    assert hidden[20:40, 50:70].std() < 0.15 * image[20:40, 50:70].std()


def test_a_patch_may_hang_over_the_edge_or_miss_the_image() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    corner = blur_patch(image, (0, 0), 20)
    assert (corner != image).any(-1)[:10, :10].mean() > 0.9
    np.testing.assert_array_equal(corner[10:], image[10:])
    np.testing.assert_array_equal(blur_patch(image, (200, 200), 20), image)


class SpotFinder(PoseModel):
    """Reads the brightest spot as every keypoint; its confidence is how bright the spot is."""

    skeleton = COCO17
    input_wh = (100, 100)
    feature_shape = (3, 100, 100)
    box_scale = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.nothing = torch.nn.Parameter(torch.zeros(1))  # whose device is the network's

    def normalize(self, crops: torch.Tensor) -> torch.Tensor:
        return crops.float() / 255

    def features(self, crops: torch.Tensor) -> torch.Tensor:
        return crops

    def predict(self, features: torch.Tensor) -> Prediction:
        brightness, peak = features[:, 0].flatten(1).max(1)
        xy = torch.stack([peak % 100, peak // 100], -1).float()
        return Prediction(
            xy_px=xy[:, None].expand(-1, 17, -1), score=brightness[:, None].expand(-1, 17)
        )

    def predict_flip(self, features: torch.Tensor, mirrored: torch.Tensor) -> Prediction:
        raise NotImplementedError


def test_confidence_and_oks_fall_as_the_patch_grows(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    people = []
    for number, (x, y) in enumerate(rng.integers(30, 70, (6, 2))):
        image = np.full((100, 100, 3), 40, np.uint8)
        image[5, 5] = 90  # a distraction
        image[y - 2 : y + 3, x - 2 : x + 3] = 200
        image[y, x] = 255
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), image)
        keypoints = np.tile(np.array([x, y, 2], np.float32), (17, 1))
        people.append(
            AnnotatedPerson(number, number, path, None, (0, 0, 100, 100), 50.0**2, keypoints)
        )
    curves = occlude_wrists(SpotFinder().eval(), None, people_to_occlude(SpotFinder(), people))
    confidence = curves.confidence["raw"]
    assert curves.people == 6
    assert curves.oks[0] == 1
    assert confidence[0] == 1
    assert curves.oks[-1] < 0.01
    assert (np.diff(confidence) <= 0).all()
    assert confidence[-1] < 0.5
