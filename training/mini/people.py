"""Training people as arrays: each crop cut out once, labels, and a teacher's answer where labels
are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import pose2d
from ccnet.data.datasets import by_image, load_image, read_split
from pose2d import crops
from pose2d.base.files import atomic_file
from pose2d.crops import estimate
from pose2d.models.base import PoseModel
from pose2d.skeletons import COCO17

TEACHER = "rtmpose-s-halpe26"
TEACHER_SCORE = 0.4  # a keypoint without a label counts from here on, by the teacher's score
MARGIN = 1.5  # a stored crop shows this much more than the network's, for rotation, scale and shift


@dataclass(frozen=True)
class CroppedPeople:
    """N people. Coordinates are pixels of the stored crops, which have the scale of the network's
    own crops.
    """

    pixels: np.ndarray  # [N, H, W, 3] uint8 RGB, on disk
    xy_px: np.ndarray  # [N, 17, 2]
    weight: np.ndarray  # [N, 17] 1 where labelled, the teacher's score where it stands in, else 0

    def __len__(self) -> int:
        return len(self.xy_px)


def cropped_people(
    data: Path, splits: Sequence[str], input_wh: tuple[int, int], folder: Path
) -> CroppedPeople:
    """Return the people of these splits; computed once and kept in `folder`."""
    pixels_file = folder / "pixels.npy"
    labels_file = folder / "labels.npz"
    if not labels_file.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        people = [person for split in splits for person in read_split(data, split, COCO17).people]
        size_wh = (round(input_wh[0] * MARGIN), round(input_wh[1] * MARGIN))
        shape = (len(people), size_wh[1], size_wh[0], 3)
        pixels = np.lib.format.open_memmap(pixels_file, "w+", np.uint8, shape)
        teacher = pose2d.load(TEACHER)
        xy = []
        weight = []
        row = 0
        for group in by_image(people):
            image = load_image(group[0])
            boxes = np.array([person.box_px for person in group])
            labels = np.stack([person.keypoints for person in group])
            affine = crops.affines(boxes, size_wh, PoseModel.box_scale * MARGIN, "sbl")
            pixels[row : row + len(group)] = (
                crops.cut(image, affine, size_wh).permute(0, 2, 3, 1).numpy()
            )
            row += len(group)
            points, counts = with_teacher(teacher, image, boxes, labels)
            xy.append(crops.move(affine, torch.from_numpy(points).double()).float().numpy())
            weight.append(counts)
            if row % 1000 < len(group):
                print(f"{row} of {len(people)} people cut out", flush=True)
        pixels.flush()
        with atomic_file(labels_file) as path:  # last: with it the folder is complete
            np.savez(path, xy_px=np.concatenate(xy), weight=np.concatenate(weight))
    with np.load(labels_file, allow_pickle=False) as labels_of_all:
        arrays = dict(labels_of_all)
    return CroppedPeople(np.load(pixels_file, mmap_mode="r", allow_pickle=False), **arrays)


def with_teacher(
    teacher: PoseModel, image: np.ndarray, boxes_px: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Keypoints [N, 17, 2] in image pixels and their weights [N, 17]: the labels [N, 17, 3], else
    the teacher's.
    """
    estimates = estimate(teacher, image, boxes_px)
    score = estimates.score[:, : COCO17.size].clamp(0, 1).numpy()
    labelled = labels[..., 2] > 0
    xy = np.where(labelled[..., None], labels[..., :2], estimates.xy_px[:, : COCO17.size].numpy())
    weight = np.where(labelled, 1.0, np.where(score >= TEACHER_SCORE, score, 0.0))
    return xy.astype(np.float32), weight.astype(np.float32)
