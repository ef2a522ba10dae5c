"""Annotated people in real COCO images, their crops, and COCO's figures for what was said of them."""

import contextlib
import io
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor

import pose2d
from pose2d import crops

SETS = {
    "val2017": ("person_keypoints_val2017.json", "val2017"),
    "holdout": ("person_keypoints_train2017_256_holdout.json", "train2017_256"),
}
Box = tuple[int, np.ndarray]  # image id; x1, y1, x2, y2


@dataclass(frozen=True)
class PeopleSet:
    """Images with annotated people, decoded once."""

    name: str
    coco: COCO
    images: dict[int, np.ndarray]  # RGB by image id
    people: list[dict]  # annotations with at least one keypoint
    boxes: list[Box]  # of `people`


def quiet() -> contextlib.redirect_stdout:
    return contextlib.redirect_stdout(io.StringIO())


def read_set(data: Path, name: str) -> PeopleSet:
    annotations, folder = SETS[name]
    with quiet():
        coco = COCO(str(data / "annotations" / annotations))
    images = {}
    for entry in coco.imgs.values():
        image = cv2.imread(str(data / "images" / folder / entry["file_name"]), cv2.IMREAD_COLOR)[
            :, :, ::-1
        ]
        size = (entry["width"], entry["height"])
        if image.shape[1::-1] != size:  # stored squashed
            image = cv2.resize(np.ascontiguousarray(image), size, interpolation=cv2.INTER_LINEAR)
        images[entry["id"]] = np.ascontiguousarray(image)
    people = [a for a in coco.anns.values() if a["num_keypoints"] > 0 and not a["iscrowd"]]
    people.sort(key=lambda person: person["image_id"])
    return PeopleSet(
        name, coco, images, people, [(p["image_id"], corners(p["bbox"])) for p in people]
    )


def corners(xywh: list[float]) -> np.ndarray:
    x, y, w, h = xywh
    return np.array([x, y, x + w, y + h])


@dataclass(frozen=True)
class Cropping:
    """How boxes become crops."""

    scale: float
    shown: str = "box on grey"  # or "box on black", "whole square"
    antialias: bool = True

    def cut(self, image: np.ndarray, boxes: np.ndarray, side: int) -> tuple[Tensor, np.ndarray]:
        if self.shown == "whole square":  # what the published demo feeds
            affine = crops.affines(boxes, (side, side), self.scale, "sbl")
            return crops.cut(image, affine, (side, side), self.antialias), affine
        pixels, affine = crops.crop_boxes(
            image, boxes, (side, side), self.scale, "square", self.antialias
        )
        if self.shown == "box on black":
            grey = (pixels == crops.GREY).all(1, keepdim=True)
            pixels = pixels.masked_fill(grey, 0)
        return pixels, affine


def cut_all(
    images: dict[int, np.ndarray], boxes: list[Box], mode: Cropping, side: int
) -> tuple[Tensor, np.ndarray]:
    """Crops uint8 [N, 3, side, side] and the affine maps [N, 2, 3] that made them."""
    parts = [mode.cut(images[image_id], box[None], side) for image_id, box in boxes]
    return torch.cat([pixels for pixels, _ in parts]), np.concatenate(
        [affine for _, affine in parts]
    )


def average_precision(
    truth: PeopleSet, boxes: list[Box], xy: np.ndarray, score: np.ndarray
) -> np.ndarray:
    """COCO's ten keypoint figures, by pycocotools: AP, AP50, AP75, APm, APl, AR, ..."""
    ones = np.ones((xy.shape[1], 1))
    results = [
        {
            "image_id": image_id,
            "category_id": 1,
            "keypoints": np.hstack([k, ones]).ravel().tolist(),
            "score": float(s),
        }
        for (image_id, _), k, s in zip(boxes, xy, score, strict=True)
    ]
    with quiet():
        evaluation = COCOeval(truth.coco, truth.coco.loadRes(results), "keypoints")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


def oks(truth: PeopleSet, xy: np.ndarray) -> np.ndarray:
    """OKS of each annotated person, [N]."""
    keypoints = np.array([person["keypoints"] for person in truth.people], float).reshape(-1, 17, 3)
    area = np.array([person["area"] for person in truth.people])
    distance2 = ((xy - keypoints[..., :2]) ** 2).sum(-1)
    similarity = np.exp(-distance2 / (2 * pose2d.COCO17.oks_variance * area[:, None]))
    return np.where(keypoints[..., 2] > 0, similarity, np.nan).mean(1, where=keypoints[..., 2] > 0)
