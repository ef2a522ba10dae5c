"""A pose model small enough for tests, and a data set to train on: coloured dots where the
keypoints are.
"""

import json
from pathlib import Path

import cv2
import numpy as np
import torch
from scipy.io import savemat
from torch import Tensor, nn

from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17, MPII16, Skeleton
from pose2d.types import Prediction


class ToyModel(PoseModel):
    """One convolution, one map per keypoint."""

    input_wh = (24, 32)
    feature_shape = (8, 8, 6)

    def __init__(self, seed: int = 0, skeleton: Skeleton = COCO17) -> None:
        super().__init__()
        self.skeleton = skeleton
        torch.manual_seed(seed)
        self.body = nn.Conv2d(3, 8, 4, stride=4)
        self.final_layer = nn.Conv2d(8, skeleton.size, 1)

    def normalize(self, crops: Tensor) -> Tensor:
        return crops.float() / 255

    def features(self, crops: Tensor) -> Tensor:
        self.check_input(crops)
        return torch.relu(self.body(crops))

    def predict(self, features: Tensor) -> Prediction:
        maps = self.final_layer(features)
        index = maps.flatten(2).argmax(2)
        xy = torch.stack([index % 6, index // 6], -1) * 4.0
        return Prediction(xy_px=xy, score=maps.flatten(2).amax(2).sigmoid(), maps=maps)

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        return self.predict(features)


def toy_model(seed: int = 0, skeleton: Skeleton = COCO17) -> ToyModel:
    return ToyModel(seed, skeleton).eval().requires_grad_(False)


def write_coco(root: Path, split: str, count: int = 6, people: int = 2, seed: int = 0) -> None:
    """A COCO folder of noisy images with random people in them."""
    random = np.random.default_rng(seed)
    folder = root / split
    folder.mkdir(parents=True)
    (root / "annotations").mkdir(exist_ok=True)
    images = []
    annotations = []
    for number in range(1, count + 1):
        name = f"{number:012d}.png"
        cv2.imwrite(str(folder / name), random.integers(0, 255, (60, 80, 3), np.uint8))
        images.append({"id": number, "file_name": name, "width": 80, "height": 60})
        for _ in range(people):
            xy = random.uniform((10, 5), (60, 55), (17, 2)).round()
            visible = random.integers(0, 3, 17)
            visible[0] = 2
            keypoints = np.column_stack([xy * (visible > 0)[:, None], visible]).ravel()
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": 1,
                    "iscrowd": 0,
                    "bbox": [10, 5, 50, 50],
                    "area": 1500.0,
                    "num_keypoints": int((visible > 0).sum()),
                    "keypoints": keypoints.tolist(),
                }
            )
    dataset = {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}],
    }
    (root / "annotations" / f"person_keypoints_{split}.json").write_text(json.dumps(dataset))


def write_mpii(
    root: Path, split: str, count: int = 6, seed: int = 0, head_boxes: bool = True
) -> None:
    """An MPII folder in the layout of HRNet's authors: annot/SPLIT.json, annot/gt_SPLIT.mat,
    images/.
    """
    random = np.random.default_rng(seed)
    (root / "annot").mkdir(parents=True, exist_ok=True)
    (root / "images").mkdir(exist_ok=True)
    people = []
    for number in range(count):
        name = f"{split}{number:05d}.png"
        cv2.imwrite(str(root / "images" / name), random.integers(0, 255, (60, 80, 3), np.uint8))
        joints = random.uniform((10, 5), (60, 55), (MPII16.size, 2)).round() + 1  # counted from 1
        visible = (random.random(MPII16.size) < 0.8).astype(int)
        visible[0] = 1
        people.append(
            {
                "image": name,
                "center": [36.0, 29.0],
                "scale": 0.25,
                "joints": joints.tolist(),
                "joints_vis": visible.tolist(),
            }
        )
    (root / "annot" / f"{split}.json").write_text(json.dumps(people))
    if head_boxes:
        corners = np.tile(
            np.array([[10.0, 5.0], [22.0, 21.0]])[..., None], count
        )  # head size 0.6 * 20 px
        savemat(root / "annot" / f"gt_{split}.mat", {"headboxes_src": corners})


def write_wholebody(root: Path, split: str, count: int = 3, seed: int = 0) -> None:
    """COCO-WholeBody: the people of `write_coco` with feet, faces and hands."""
    write_coco(root, split, count, seed=seed)
    random = np.random.default_rng(seed)
    path = root / "annotations" / f"person_keypoints_{split}.json"
    dataset = json.loads(path.read_text())
    for person in dataset["annotations"]:
        for field, size in (
            ("foot_kpts", 6),
            ("face_kpts", 68),
            ("lefthand_kpts", 21),
            ("righthand_kpts", 21),
        ):
            xy = random.uniform((10, 5), (60, 55), (size, 2))
            person[field] = np.column_stack([xy, random.integers(0, 3, size)]).ravel().tolist()
    (root / "annotations" / f"coco_wholebody_{split.removesuffix('2017')}_v1.0.json").write_text(
        json.dumps(dataset)
    )
