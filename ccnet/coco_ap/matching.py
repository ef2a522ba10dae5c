"""Which detection is which person: COCO's greedy assignment, for all thresholds and size ranges at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccnet.coco_ap.assignment import assign, place_in_group, tables
from ccnet.coco_ap.pair_oks import pair_oks
from ccnet.data.people import Detections, GroundTruth
from pose2d.base.errors import UserError

OKS_THRESHOLDS = np.linspace(0.5, 0.95, 10)  # [T]
AREA_RANGES_PX2 = np.array([[0, 1e5**2], [32**2, 96**2], [96**2, 1e5**2]], float)  # [A, 2] all, medium, large
DETECTIONS_PER_IMAGE = 20  # the best of each image; the rest is not looked at
IGNORED, FALSE, TRUE = -1, 0, 1  # what can become of a detection


@dataclass(frozen=True)
class Matches:
    """What became of every detection. All that average precision needs."""

    score: np.ndarray  # [D] detections that were looked at, best first
    image: np.ndarray  # [D] index of the image
    outcome: np.ndarray  # [A, T, D] int8: TRUE, FALSE or IGNORED
    positives: np.ndarray  # [A, I] people to be found in each image


def match(truth: GroundTruth, detections: Detections, sigmas: Sequence[float] | np.ndarray) -> Matches:
    """Assign detections to people as COCOeval does, ties included.

    Within an image the best score chooses first; it takes the most similar free person (the later one if two are
    equal) whose OKS reaches the threshold, and a person that is ignored only if no other will do.
    """
    spread = np.asarray(sigmas, float)
    _check(truth, detections, spread)
    images = len(truth.images)
    person_image, found_image = _index(truth.images, truth.image), _index(truth.images, detections.image)
    person = np.argsort(person_image, kind="stable")
    person_image = person_image[person]
    found = _best_of_each_image(found_image, detections.score)
    found_image = found_image[found]

    area_px2, labelled = truth.area_px2[person], truth.visibility[person] > 0
    pair_found, pair_person = _pairs(found_image, np.bincount(person_image, minlength=images))
    oks = pair_oks(
        pair_found, pair_person, detections.xy_px[found], truth.xy_px[person], labelled, area_px2,
        truth.box_px[person], spread,
    )  # fmt: skip
    ignored = truth.ignore[person] | _outside(area_px2)  # [A, G]
    # What a detection is if it finds nobody: wrong, unless it is of a size that is not asked about.
    outside = _outside(detections.area_px2[found])
    outcome = np.repeat(np.where(outside, IGNORED, FALSE).astype(np.int8)[:, None], len(OKS_THRESHOLDS), axis=1)
    # pycocotools notes a match by the person's id, so that a person of id 0 is taken but never found.
    counts = truth.id[person] != 0
    close = oks >= OKS_THRESHOLDS[0]
    for rivals in tables(pair_found[close], pair_person[close], oks[close], found_image, person_image):
        met = (rivals.oks[..., None] >= OKS_THRESHOLDS).sum(-1, dtype=np.int8)
        choices = assign(rivals, met, len(OKS_THRESHOLDS), ignored, truth.crowd[person])
        real = rivals.found >= 0
        chosen, wanted = (choice[:, :, real] for choice in choices)
        became = outcome[:, :, rivals.found[real]]
        became[(chosen >= 0) & ~wanted] = IGNORED
        became[wanted & counts[chosen]] = TRUE
        outcome[:, :, rivals.found[real]] = became

    order = np.argsort(-detections.score[found], kind="stable")
    positives = np.stack([np.bincount(person_image[~row], minlength=images) for row in ignored])
    return Matches(detections.score[found][order], found_image[order], outcome[:, :, order], positives)


def _check(truth: GroundTruth, detections: Detections, sigmas: np.ndarray) -> None:
    if not len(sigmas) == truth.keypoints == detections.xy_px.shape[1]:
        raise UserError(
            f"keypoints do not agree: {len(sigmas)} sigmas, {truth.keypoints} annotated, "
            f"{detections.xy_px.shape[1]} detected."
        )
    if not (np.isfinite(detections.xy_px).all() and np.isfinite(detections.score).all()):
        sound = np.isfinite(detections.xy_px).all((1, 2)) & np.isfinite(detections.score)
        raise UserError(
            f"the detection numbered {np.argmin(sound)} has a keypoint or score that is not a finite number. "
            "Leave such detections out."
        )


def _index(images: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Where each image id stands among `images`."""
    index = np.searchsorted(images, image)
    known = index < len(images)
    known[known] = images[index[known]] == image[known]
    if not known.all():
        raise UserError(f"image {image[~known][0]} is not among the images under evaluation.")
    return index


def _best_of_each_image(image: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Detections to look at, by image and then by score, equal scores in the order they were given."""
    order = np.lexsort((-score, image))
    return order[place_in_group(image[order]) < DETECTIONS_PER_IMAGE]


def _outside(area_px2: np.ndarray) -> np.ndarray:
    """[N] -> [A, N] bool: not of this size."""
    return (area_px2 < AREA_RANGES_PX2[:, :1]) | (area_px2 > AREA_RANGES_PX2[:, 1:])


def _pairs(found_image: np.ndarray, people: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every detection with every person of its image; `people` [I] counts those, who stand sorted by image."""
    repeats = people[found_image]
    found = np.repeat(np.arange(len(found_image)), repeats)
    first_person = np.cumsum(people) - people
    first_pair = np.cumsum(repeats) - repeats
    return found, np.arange(len(found)) + np.repeat(first_person[found_image] - first_pair, repeats)
