"""Boxes of people in one image: overlap, suppression, and boxes from a file."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pose2d import crops
from pose2d.base.errors import UserError
from pose2d.base.json_files import read_json

COCO_PERSON = 1  # category of a person in COCO's files
FARTHEST_PX = 1e7  # no image is so large that a box in it is farther away


@dataclass(frozen=True)
class Boxes:
    """The people of one image, highest score first."""

    boxes_px: np.ndarray  # [N, 4] x1, y1, x2, y2 in the image
    scores: np.ndarray  # [N] in [0, 1]

    def __len__(self) -> int:
        return len(self.scores)


def intersection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the area [N, M] that every box of a [N, 4] shares with every box of b [M, 4]."""
    first = np.maximum(a[:, None, :2], b[:, :2])
    last = np.minimum(a[:, None, 2:], b[:, 2:])
    return np.asarray((last - first).clip(0).prod(-1))


def iou(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the intersection over union [N, M] of every box of a [N, 4] with every box of b [M,
    4].
    """
    shared = intersection(a, b)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    return shared / np.maximum(area_a[:, None] + area_b - shared, 1e-12)


def non_maximum_suppression(boxes: np.ndarray, scores: np.ndarray, limit: float) -> np.ndarray:
    """Return the rows to keep, highest score first: a box is dropped when it overlaps one that is
    kept by more than `limit`.
    """
    order = np.argsort(-scores, kind="stable")
    overlap = iou(boxes, boxes)
    keep: list[int] = []
    for index in order:
        if not (overlap[index, keep] > limit).any():
            keep.append(int(index))
    return np.array(keep, int)


def whole_image(image: np.ndarray) -> Boxes:
    """Return one box around the whole image, for an image that is already a crop of one person."""
    height, width = image.shape[:2]
    return Boxes(np.array([[0.0, 0.0, width, height]]), np.ones(1))


def read_detections(path: str | Path) -> dict[int, Boxes]:
    """Return person boxes by image id from a json file in COCO's results format: [{image_id,
    category_id, bbox: [x, y, w, h], score}].
    """
    expected = (
        "Expected a list of detections in COCO's results format: "
        "image_id, bbox [x, y, w, h], score."
    )
    content = read_json(path, expected)
    rows: dict[int, list[tuple[float, ...]]] = {}
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
        people = rows.setdefault(entry.item("image_id").integer(), [])
        people.append((x, y, x + w, y + h, entry.get("score", 1.0).number()))
    boxes = {}
    for image_id, people in rows.items():
        best_first = np.array(sorted(people, key=lambda row: -row[4]))
        boxes[image_id] = Boxes(best_first[:, :4], best_first[:, 4])
    return boxes
