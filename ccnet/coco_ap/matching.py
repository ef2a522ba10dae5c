"""Match detections with annotated people: OKS of every pair, and COCO's greedy assignment for all
thresholds and size ranges.

`pair_oks` is equal to pycocotools to the last bit, not merely close: an OKS that lands on a
threshold, or two people equally similar to one detection, would otherwise be decided differently.
NumPy's sum depends on the number of terms, so pairs are taken together by the number of
keypoints that count."""

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
    ignore: np.ndarray  # [G] bool: neither found nor missed (crowds, people without labels)
    id: np.ndarray  # [G] annotation ids


@dataclass(frozen=True)
class Detections:
    """Predicted people."""

    image: np.ndarray  # [D] id of the image
    xy_px: np.ndarray  # [D, K, 2] full-frame pixels
    score: np.ndarray  # [D] confidence in the person: only the order matters
    area_px2: np.ndarray  # [D] decides whether a false positive counts as medium or large


def detections(image: np.ndarray, xy_px: np.ndarray, score: np.ndarray) -> Detections:
    """Return detections with the area of the box around their keypoints, as in pycocotools."""
    xy_px = np.asarray(xy_px, float)
    return Detections(np.asarray(image), xy_px, np.asarray(score, float), extent_area(xy_px))


def extent_area(xy_px: np.ndarray) -> np.ndarray:
    """Return the area of the tight box around keypoints, [N, K, 2] -> [N]."""
    return np.ptp(xy_px, axis=1).prod(-1) if len(xy_px) else np.zeros(0)


def ground_truth_from_coco(dataset: Mapping[str, Any], keypoints: int = 17) -> GroundTruth:
    """Return the people of a COCO keypoint file (parsed JSON) as `pycocotools` counts them."""
    images = np.unique(np.asarray([image["id"] for image in dataset["images"]]))
    listed = set(images.tolist())
    categories = {category["id"] for category in dataset["categories"]}
    people = [
        annotation
        for annotation in dataset["annotations"]
        if annotation["category_id"] in categories and annotation["image_id"] in listed
    ]
    if len({a["category_id"] for a in people}) > 1:
        raise UserError(
            "the annotations hold more than one category. Evaluate one category at a time."
        )
    identity = np.asarray([a.get("id", i) for i, a in enumerate(people, 1)])
    if len(np.unique(identity)) < len(people):
        raise UserError("two annotations share an id. Give every annotation its own.")
    points = _keypoint_array(people, keypoints, "annotation")
    crowd = np.asarray([bool(a.get("iscrowd", 0)) for a in people], bool)
    empty = [
        a.get("num_keypoints", np.count_nonzero(p)) == 0
        for a, p in zip(people, points[:, :, 2] > 0, strict=True)
    ]
    return GroundTruth(
        images=images,
        image=_image_ids(people, images),
        xy_px=points[:, :, :2],
        visibility=points[:, :, 2].astype(np.int8),
        area_px2=np.array([a["area"] for a in people], float),
        box_px=np.asarray([a["bbox"] for a in people], float).reshape(-1, 4),
        crowd=crowd,
        ignore=crowd | np.asarray(empty, bool),
        id=identity,
    )


def detections_from_coco(
    results: Sequence[Mapping[str, Any]], truth: GroundTruth, category: int = 1
) -> Detections:
    """Return detections from a list of COCO results: `image_id`, `keypoints` (x, y, anything),
    `score`. As in pycocotools, results of another category are left out, and if the first result
    has a `bbox` then boxes, not keypoints, give the size of a detection.
    """
    by_box = bool(results) and len(results[0].get("bbox", ())) > 0
    results = [result for result in results if result.get("category_id", category) == category]
    image = _image_ids(results, truth.images)
    xy_px = _keypoint_array(results, truth.xy_px.shape[1], "detection")[:, :, :2]
    if by_box:
        area = np.asarray([r["bbox"][2] * r["bbox"][3] for r in results], float)
    else:
        area = extent_area(xy_px)
    score = np.array([result["score"] for result in results], float)
    return Detections(image, xy_px, score, area)


def _image_ids(rows: Sequence[Mapping[str, Any]], images: np.ndarray) -> np.ndarray:
    """Return the ids of the rows' images: integers, or what the data set uses."""
    return np.asarray([row["image_id"] for row in rows]) if rows else images[:0]


def _keypoint_array(rows: Sequence[Mapping[str, Any]], keypoints: int, kind: str) -> np.ndarray:
    """Return the flat triples x, y, v of every row as [N, K, 3]."""
    for index, row in enumerate(rows):
        if len(row["keypoints"]) != 3 * keypoints:
            raise UserError(
                f"{kind} {row.get('id', index)} has {len(row['keypoints'])} keypoint values, "
                f"expected {3 * keypoints} (x, y, visibility for {keypoints} keypoints)."
            )
    flat = chain.from_iterable(row["keypoints"] for row in rows)
    return np.fromiter(flat, float, len(rows) * 3 * keypoints).reshape(len(rows), keypoints, 3)


# Exponentials computed at a time: a block of arrays that stays in the processor's cache.
TERMS_AT_ONCE = 1 << 18


def pair_oks(
    detection: np.ndarray,  # [P] detection of each pair
    person: np.ndarray,  # [P] person of each pair
    detected_xy_px: np.ndarray,  # [D, K, 2]
    truth: GroundTruth,
    sigmas: Sequence[float] | np.ndarray,  # [K]
) -> np.ndarray:
    """Return the OKS of every pair, [P]: the mean over the person's labelled keypoints. A person
    without labels is compared by how far each keypoint lies outside the box, grown by its size on
    every side.
    """
    variance = (np.asarray(sigmas, float) * 2) ** 2
    scale = truth.area_px2 + np.spacing(1)
    labelled = truth.visibility > 0
    count = labelled.sum(1)  # [G]
    labelled_first = np.argsort(~labelled, axis=1, kind="stable")  # [G, K]
    by_count = np.argsort(count[person], kind="stable")
    block_start = np.searchsorted(count[person][by_count], np.arange(labelled.shape[1] + 2))
    oks = np.empty(len(person))
    for terms in range(labelled.shape[1] + 1):
        pairs_of_count = by_count[block_start[terms] : block_start[terms + 1]]
        at_once = TERMS_AT_ONCE // (terms or len(variance))
        for first in range(0, len(pairs_of_count), at_once):
            pairs = pairs_of_count[first : first + at_once]
            d = detection[pairs]
            g = person[pairs]
            k = labelled_first[g, : terms or None]  # [P, terms]
            xy = detected_xy_px[d[:, None], k]
            if terms:
                offset = xy - truth.xy_px[g[:, None], k]
            else:
                corner, size = np.split(truth.box_px[g][:, None], 2, axis=-1)
                before = np.maximum(0, (corner - size) - xy)
                beyond = np.maximum(0, xy - (corner + size * 2))
                offset = before + beyond
            squared = offset[..., 0] ** 2 + offset[..., 1] ** 2
            # In pycocotools' order of operations.
            exponent = -(squared / variance[k] / scale[g][:, None] / 2)
            oks[pairs] = np.exp(exponent).sum(1) / exponent.shape[1]
    return oks


def matched_oks(
    xy_px: np.ndarray,  # [N, K, 2] predicted
    truth_xy_px: np.ndarray,  # [N, K, 2]
    labelled: np.ndarray,  # [N, K] bool
    area_px2: np.ndarray,  # [N]
    sigmas: Sequence[float] | np.ndarray,  # [K]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the OKS of every person [N] and every keypoint [N, K]; NaN where not labelled."""
    d2 = ((np.asarray(xy_px, float) - truth_xy_px) ** 2).sum(-1)
    area = np.asarray(area_px2, float) + np.spacing(1)
    l2 = (2 * np.asarray(sigmas, float)) ** 2 * area[:, None]
    keypoint = np.where(labelled, np.exp(-d2 / (2 * l2)), np.nan)
    with np.errstate(invalid="ignore"):
        return np.nansum(keypoint, 1) / labelled.sum(1), keypoint


OKS_THRESHOLDS = np.linspace(0.5, 0.95, 10)  # [T]
# [A, 2] all, medium, large
AREA_RANGES_PX2 = np.array([[0, 1e5**2], [32**2, 96**2], [96**2, 1e5**2]], float)
DETECTIONS_PER_IMAGE = 20  # only the best of each image count
# Outcomes of a detection
IGNORED = -1
FALSE = 0
TRUE = 1


def assign(
    oks: np.ndarray, ignored: np.ndarray, crowd: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the person that every detection of one image gets, [A, T, R] or -1, and whether that
    person was to be found.

    oks [R, P]: of detections, best first, with people. ignored [A, P]: not to be found in this size
    range. crowd [P]: may be chosen repeatedly. The highest OKS wins; of equals the later person.
    People to be found come before those who are ignored.
    """
    detections, people = oks.shape
    sizes = len(ignored)
    best = np.full((sizes, len(OKS_THRESHOLDS), detections), -1)
    free = np.ones((sizes, len(OKS_THRESHOLDS), people), bool)
    by_oks = np.argsort(oks, axis=1, kind="stable")  # [R, P] people, lowest OKS first
    rank = np.argsort(by_oks, axis=1)[:, None] + people * ~ignored  # [R, A, P]
    for number in np.flatnonzero(oks.max(1) >= OKS_THRESHOLDS[0]):
        able = free & (oks[number] >= OKS_THRESHOLDS[:, None])
        best[..., number] = most = np.where(able, rank[number][:, None], -1).max(2)  # [A, T]
        choice = by_oks[number, most % people]
        free &= crowd | (most < 0)[..., None] | (np.arange(people) != choice[..., None])
    return np.where(best < 0, -1, by_oks[np.arange(detections), best % people]), best >= people


def place_in_group(group: np.ndarray) -> np.ndarray:
    """Return how many equal values stand before each entry of a sorted array."""
    return np.arange(len(group)) - np.searchsorted(group, group)


@dataclass(frozen=True)
class Matches:
    """The outcome of every detection: all that average precision needs."""

    score: np.ndarray  # [D] of the detections that count, best first
    image: np.ndarray  # [D] index of the image
    outcome: np.ndarray  # [A, T, D] int8: TRUE, FALSE or IGNORED
    positives: np.ndarray  # [A, I] people to be found in each image


def match(
    truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray
) -> Matches:
    """Assign detections to people as COCOeval does, ties included. Within an image the best score
    chooses first; it takes the most similar free person (the later one if two are equal) whose OKS
    reaches the threshold, and a person that is ignored only if no other will do."""
    sound = np.isfinite(detections.xy_px).all((1, 2)) & np.isfinite(detections.score)
    if not sound.all():
        raise UserError(
            f"the detection numbered {np.argmin(sound)} has a keypoint or score that is not a "
            "finite number. Leave such detections out."
        )
    images = len(truth.images)
    person_image = _index(truth.images, truth.image)
    detected_image = _index(truth.images, detections.image)
    person = np.argsort(person_image, kind="stable")
    person_image = person_image[person]
    best_first = np.lexsort((-detections.score, detected_image))  # stable for equal scores
    counted = best_first[place_in_group(detected_image[best_first]) < DETECTIONS_PER_IMAGE]
    detected_image = detected_image[counted]

    # Every detection with every person of its image; people stand sorted by image.
    people = np.bincount(person_image, minlength=images)
    pair_detection = np.repeat(np.arange(len(detected_image)), people[detected_image])
    pair_person = (np.cumsum(people) - people)[detected_image][pair_detection] + place_in_group(
        pair_detection
    )
    oks = pair_oks(pair_detection, person[pair_person], detections.xy_px[counted], truth, sigmas)
    ignored = truth.ignore[person] | _outside(truth.area_px2[person])  # [A, G]
    # A detection without a person is wrong, unless its size is outside the range.
    outside = _outside(detections.area_px2[counted])
    unmatched = np.where(outside, IGNORED, FALSE).astype(np.int8)
    outcome = np.repeat(unmatched[:, None], len(OKS_THRESHOLDS), axis=1)
    # pycocotools notes a match by the person's id, so that a person of id 0 is taken but never
    # found.
    counts = truth.id[person] != 0
    crowd = truth.crowd[person]
    starts = np.flatnonzero(np.diff(detected_image[pair_detection])) + 1
    for pairs in np.split(np.arange(len(pair_detection)), starts) if len(pair_detection) else ():
        people_here = people[detected_image[pair_detection[pairs[0]]]]
        in_image = pair_person[pairs[0]] + np.arange(people_here)
        rows = pair_detection[pairs[:: len(in_image)]]
        image_oks = oks[pairs].reshape(len(rows), -1)
        chosen, is_positive = assign(image_oks, ignored[:, in_image], crowd[in_image])
        image_outcome = outcome[:, :, rows]
        image_outcome[(chosen >= 0) & ~is_positive] = IGNORED
        image_outcome[is_positive & counts[in_image[chosen]]] = TRUE
        outcome[:, :, rows] = image_outcome

    order = np.argsort(-detections.score[counted], kind="stable")
    positives = np.stack([np.bincount(person_image[~row], minlength=images) for row in ignored])
    return Matches(
        detections.score[counted][order], detected_image[order], outcome[:, :, order], positives
    )


def _index(images: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Return the index of each image id in `images`."""
    index = np.searchsorted(images, image)
    listed = index < len(images)
    listed[listed] = images[index[listed]] == image[listed]
    if not listed.all():
        raise UserError(
            f"a detection is in image {image[~listed][0]}, which the annotations do not list. "
            "Evaluate against the annotations of the images that were run."
        )
    return index


def _outside(area_px2: np.ndarray) -> np.ndarray:
    """Return whether each area [N] is outside of each size range, [A, N]."""
    return (area_px2 < AREA_RANGES_PX2[:, :1]) | (area_px2 > AREA_RANGES_PX2[:, 1:])
