"""Ground truth and detections of a keypoint evaluation, as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from pose2d.base.errors import UserError


@dataclass(frozen=True)
class GroundTruth:
    """Annotated people. Their order matters only where two are equally similar to a detection."""

    images: np.ndarray  # [I] ids of every image that counts, also those without people; increasing
    image: np.ndarray  # [G] id of the image each person is in
    xy_px: np.ndarray  # [G, K, 2] full-frame pixels
    visibility: np.ndarray  # [G, K] 0 not labelled, 1 labelled but hidden, 2 visible
    area_px2: np.ndarray  # [G] area of the segment, which sets the scale of OKS
    box_px: np.ndarray  # [G, 4] x, y, width, height
    crowd: np.ndarray  # [G] bool: a crowd may swallow any number of detections
    ignore: np.ndarray  # [G] bool: neither found nor missed (crowds, and people without a labelled keypoint)
    id: np.ndarray  # [G] annotation ids

    @property
    def keypoints(self) -> int:
        return int(self.xy_px.shape[1])


@dataclass(frozen=True)
class Detections:
    """Found people."""

    image: np.ndarray  # [D] id of the image
    xy_px: np.ndarray  # [D, K, 2] full-frame pixels
    score: np.ndarray  # [D] confidence in the person: only the order matters
    area_px2: np.ndarray  # [D] decides whether a false positive counts as medium or large


def detections(
    image: np.ndarray, xy_px: np.ndarray, score: np.ndarray, area_px2: np.ndarray | None = None
) -> Detections:
    """Found people from arrays; without an area, that of the box around their keypoints, as pycocotools has it."""
    xy_px = np.asarray(xy_px, float)
    area = extent_area(xy_px) if area_px2 is None else np.asarray(area_px2, float)
    return Detections(np.asarray(image), xy_px, np.asarray(score, float), area)


def extent_area(xy_px: np.ndarray) -> np.ndarray:
    """Area of the tight box around keypoints [N, K, 2] -> [N]."""
    if not len(xy_px):
        return np.zeros(0)
    x, y = xy_px[:, :, 0], xy_px[:, :, 1]
    return (x.max(1) - x.min(1)) * (y.max(1) - y.min(1))


def ground_truth_from_coco(dataset: Mapping[str, Any], keypoints: int = 17) -> GroundTruth:
    """People of a COCO keypoint file (the parsed JSON), as `pycocotools` counts them."""
    images = np.unique(np.asarray([image["id"] for image in dataset["images"]]))
    listed = set(images.tolist())
    categories = {category["id"] for category in dataset["categories"]}
    people = [a for a in dataset["annotations"] if a["category_id"] in categories and a["image_id"] in listed]
    if len({a["category_id"] for a in people}) > 1:
        raise UserError("the annotations hold more than one category. Evaluate one category at a time.")
    identity = np.asarray([a.get("id", i) for i, a in enumerate(people, 1)])
    if len(np.unique(identity)) < len(people):
        raise UserError("two annotations share an id. Give every annotation its own.")
    points = _keypoint_array(people, keypoints, "annotation")
    crowd = np.asarray([bool(a.get("iscrowd", 0)) for a in people], bool)
    empty = [a.get("num_keypoints", np.count_nonzero(p)) == 0 for a, p in zip(people, points[:, :, 2] > 0, strict=True)]
    return GroundTruth(
        images=images,
        image=_image_ids(people, images),
        xy_px=points[:, :, :2],
        visibility=points[:, :, 2].astype(np.int8),
        area_px2=_column(people, "area", float),
        box_px=np.asarray([a["bbox"] for a in people], float).reshape(-1, 4),
        crowd=crowd,
        ignore=crowd | np.asarray(empty, bool),
        id=identity,
    )


def detections_from_coco(results: Sequence[Mapping[str, Any]], truth: GroundTruth, category: int = 1) -> Detections:
    """Found people from a list of COCO results: `image_id`, `keypoints` (x, y, anything), `score`.

    Like pycocotools, results of another category are left out, and if the first result has a `bbox` then boxes, not
    keypoints, give the size of a detection.
    """
    by_box = bool(results) and len(results[0].get("bbox", ())) > 0
    results = [result for result in results if result.get("category_id", category) == category]
    image = _image_ids(results, truth.images)
    strange = np.setdiff1d(image, truth.images)
    if len(strange):
        raise UserError(
            f"a detection is in image {strange[0]}, which the annotations do not list. "
            "Evaluate against the annotations of the images that were run."
        )
    xy_px = _keypoint_array(results, truth.keypoints, "detection")[:, :, :2]
    area = np.asarray([r["bbox"][2] * r["bbox"][3] for r in results], float) if by_box else extent_area(xy_px)
    return Detections(image, xy_px, _column(results, "score", float), area)


def _image_ids(rows: Sequence[Mapping[str, Any]], images: np.ndarray) -> np.ndarray:
    """Ids of the rows' images: integers, or whatever the data set counts with."""
    return np.asarray([row["image_id"] for row in rows]) if rows else images[:0]


def _column(rows: Sequence[Mapping[str, Any]], key: str, dtype: type) -> np.ndarray:
    return np.fromiter((row[key] for row in rows), dtype, len(rows))


def _keypoint_array(rows: Sequence[Mapping[str, Any]], keypoints: int, what: str) -> np.ndarray:
    """The flat triples x, y, v of every row, [N, K, 3]."""
    for index, row in enumerate(rows):
        if len(row["keypoints"]) != 3 * keypoints:
            raise UserError(
                f"{what} {row.get('id', index)} has {len(row['keypoints'])} keypoint values, expected "
                f"{3 * keypoints} (x, y, visibility for {keypoints} keypoints)."
            )
    flat = chain.from_iterable(row["keypoints"] for row in rows)
    return np.fromiter(flat, float, len(rows) * 3 * keypoints).reshape(len(rows), keypoints, 3)
