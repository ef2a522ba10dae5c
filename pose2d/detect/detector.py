"""Where people are: detectors behind one interface, or boxes that were given."""

import difflib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from pose2d import crops
from pose2d.base.errors import UserError
from pose2d.base.files import read_json

COCO_PERSON = 1  # category of a person in COCO's files
FARTHEST_PX = 1e7  # of a box that was given: no image is so large


@dataclass(frozen=True)
class Boxes:
    """People found in one image, highest score first."""

    boxes_px: np.ndarray  # [N, 4] x1, y1, x2, y2 in the image
    scores: np.ndarray  # [N] in [0, 1]

    def __len__(self) -> int:
        return len(self.scores)


@dataclass(frozen=True)
class DetectorInput:
    """An image at one size, ready for the network."""

    pixels: Tensor  # [1, 3, h, w] float32, in the network's colour order and range
    scale: float  # its pixels per pixel of the image
    image_wh: tuple[int, int]


@dataclass(frozen=True)
class DetectorOptions:
    """Every choice a detector leaves open; each has its own defaults. bench/coco_accuracy.py shows what they cost."""

    long_side: int = 512  # pixels the image's longer side is resized to, a multiple of 32
    second_long_side: int | None = None  # a second pass at another size; 256 and 512 together find most
    score_threshold: float = 0.2  # higher: fewer boxes, more of them right
    nms_iou: float = 0.6  # of two boxes that overlap more than this, the one with the higher score stays
    most_people: int = 100  # MultiPose: candidates at each size

    def __post_init__(self) -> None:
        for side in self.long_sides:
            if side < 32 or side % 32:
                raise UserError(f"the detector's size must be a positive multiple of 32, got {side}.")

    @property
    def long_sides(self) -> tuple[int, ...]:
        return (self.long_side,) if self.second_long_side is None else (self.long_side, self.second_long_side)


class PersonDetector(nn.Module):
    """What every detector offers: `prepare` needs no network, `find` does. Names: `load_detector`."""

    defaults: ClassVar[DetectorOptions]
    licence: ClassVar[str]  # of the weights

    def __init__(self, options: DetectorOptions | None = None) -> None:
        super().__init__()
        self.options = options or self.defaults

    @staticmethod
    @abstractmethod
    def prepare(image: np.ndarray, options: DetectorOptions) -> list[DetectorInput]:
        """An RGB uint8 image [H, W, 3] at each size. NumPy only, so that another thread can prefetch it."""

    @abstractmethod
    def candidates(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """One input [1, 3, h, w] -> boxes [M, 4] in its pixels, which may overlap, and scores [M]."""

    def detect(self, image: np.ndarray) -> Boxes:
        """People in an RGB uint8 image [H, W, 3]."""
        return self.find(self.prepare(image, self.options))

    @torch.inference_mode()
    def find(self, inputs: Sequence[DetectorInput]) -> Boxes:
        """People in one image, from its inputs at all sizes."""
        device = next(self.parameters()).device
        candidates = [self._in_image(one, *self.candidates(one.pixels.to(device))) for one in inputs]
        boxes, scores = (np.concatenate(parts) for parts in zip(*candidates, strict=True))
        keep = non_maximum_suppression(boxes, scores, self.options.nms_iou)
        return Boxes(boxes[keep], scores[keep])

    def _in_image(self, one: DetectorInput, boxes: Tensor, scores: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """The candidates above the threshold that lie in the image: boxes [M, 4] in its pixels, scores [M]."""
        likely = scores >= self.options.score_threshold
        boxes_px = (boxes[likely].cpu().double().numpy() / one.scale).clip(0, np.array(one.image_wh * 2))
        inside = (boxes_px[:, 2:] > boxes_px[:, :2]).all(1)
        return boxes_px[inside], scores[likely].cpu().numpy()[inside]


DETECTORS = {"yolox-tiny": ("yolox", "YoloxTiny"), "multipose": ("multipose", "MultiPose")}  # the default first


def detector_class(name: str) -> type[PersonDetector]:
    """The detector of that name: its `defaults`, its `licence`, and `prepare`, without its weights."""
    if name not in DETECTORS:
        close = difflib.get_close_matches(name, DETECTORS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise UserError(f"unknown detector {name!r}.{hint} There are {' and '.join(DETECTORS)}.")
    module, class_name = DETECTORS[name]
    return getattr(import_module(f"pose2d.detect.{module}"), class_name)


def load_detector(name: str, options: DetectorOptions | None = None) -> PersonDetector:
    """The detector of that name with its embedded weights, and its own defaults where no options are given."""
    return detector_class(name)(options)


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of every box of a [N, 4] with every box of b [M, 4]: [N, M]."""
    first, last = np.maximum(a[:, None, :2], b[:, :2]), np.minimum(a[:, None, 2:], b[:, 2:])
    both = (last - first).clip(0).prod(-1)
    area_a, area_b = ((boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (a, b))
    return both / np.maximum(area_a[:, None] + area_b - both, 1e-12)


def non_maximum_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> np.ndarray:
    """Indices to keep, highest score first: a box goes when it overlaps a kept one by more than `limit`."""
    order = np.argsort(-scores, kind="stable")
    overlap = iou(boxes, boxes)
    keep: list[int] = []
    for index in order:
        if not (overlap[index, keep] > limit).any():
            keep.append(int(index))
    return np.array(keep, int)


def whole_image(image: np.ndarray) -> Boxes:
    """One box around everything, for an image that is already a crop of one person."""
    height, width = image.shape[:2]
    return Boxes(np.array([[0.0, 0.0, width, height]]), np.ones(1))


def read_detections(path: str | Path) -> dict[int, Boxes]:
    """Person boxes by image id, from a COCO-detections json: [{image_id, category_id, bbox: [x, y, w, h], score}]."""
    content = read_json(
        path, "Expected a list of detections in COCO's results format: image_id, bbox [x, y, w, h], score."
    )
    rows: dict[int, list[tuple[list[float], float]]] = {}
    for entry in content.items():
        if entry.get("category_id", COCO_PERSON).integer() != COCO_PERSON:
            continue
        x, y, w, h = entry.item("bbox").finite_numbers(4).tolist()
        if max(map(abs, (x, y, w, h))) > FARTHEST_PX:
            raise entry.item("bbox").refuse("is farther away than any image is large")
        try:
            crops.check_boxes(np.array([[x, y, x + w, y + h]]))
        except UserError as error:
            raise entry.item("bbox").refuse(f"is no box ({error})") from error
        score = entry.get("score", 1.0).number()
        rows.setdefault(entry.item("image_id").integer(), []).append(([x, y, x + w, y + h], score))
    by_image = {}
    for image, people in rows.items():
        boxes, scores = np.array([box for box, _ in people]), np.array([score for _, score in people])
        order = np.argsort(-scores, kind="stable")
        by_image[image] = Boxes(boxes[order], scores[order])
    return by_image
