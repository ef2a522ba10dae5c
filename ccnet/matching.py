"""Which detection is which person: COCO's greedy assignment, for all thresholds and size ranges."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ccnet.compiled import compiled
from ccnet.pair_oks import pair_oks
from ccnet.people import Detections, GroundTruth
from pose2d.errors import UserError

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
    if not len(spread) == truth.keypoints == detections.xy_px.shape[1]:
        raise UserError(
            f"keypoints do not agree: {len(spread)} sigmas, {truth.keypoints} annotated, "
            f"{detections.xy_px.shape[1]} detected."
        )
    images = len(truth.images)
    person_image = _index(truth.images, truth.image)
    person = np.argsort(person_image, kind="stable")
    truth_start = np.searchsorted(person_image[person], np.arange(images + 1))
    found_image = _index(truth.images, detections.image)
    found = _best_of_each_image(found_image, detections.score, images)
    found_start = np.searchsorted(found_image[found], np.arange(images + 1))

    xy_px, area_px2 = detections.xy_px[found], truth.area_px2[person]
    labelled = truth.visibility[person] > 0
    oks, pair_start = pair_oks(
        xy_px, found_start, truth.xy_px[person], truth_start, labelled, area_px2, truth.box_px[person], spread
    )  # fmt: skip
    ignored = truth.ignore[person] | _outside(area_px2)  # [A, G]
    outcome = np.empty((len(AREA_RANGES_PX2), len(OKS_THRESHOLDS), len(found)), np.int8)
    # pycocotools notes a match by the person's id, so that id 0 reads as "no match".
    counts = truth.id[person] != 0
    found_outside = _outside(detections.area_px2[found])
    crowd = truth.crowd[person]
    _assign(oks, pair_start, found_start, truth_start, ignored, crowd, counts, found_outside, OKS_THRESHOLDS, outcome)

    order = np.argsort(-detections.score[found], kind="stable")
    positives = np.stack([np.bincount(person_image[person][~row], minlength=images) for row in ignored])
    return Matches(detections.score[found][order], found_image[found][order], outcome[:, :, order], positives)


def _index(images: np.ndarray, image: np.ndarray) -> np.ndarray:
    """Where each image id stands among `images`."""
    index = np.searchsorted(images, image)
    known = index < len(images)
    known[known] = images[index[known]] == image[known]
    if not known.all():
        raise UserError(f"image {image[~known][0]} is not among the images under evaluation.")
    return index


def _best_of_each_image(image: np.ndarray, score: np.ndarray, images: int) -> np.ndarray:
    """Detections to look at, by image and then by score, equal scores in the order they were given."""
    order = np.lexsort((-score, image))
    start = np.searchsorted(image[order], np.arange(images))
    rank = np.arange(len(order)) - start[image[order]]
    return order[rank < DETECTIONS_PER_IMAGE]


def _outside(area_px2: np.ndarray) -> np.ndarray:
    """[N] -> [A, N] bool: not of this size."""
    return (area_px2 < AREA_RANGES_PX2[:, :1]) | (area_px2 > AREA_RANGES_PX2[:, 1:])


@compiled
def _assign(oks, pair_start, found_start, truth_start, ignored, crowd, counts, found_outside, thresholds, outcome):  # type: ignore[no-untyped-def]
    most = 1
    for i in range(len(truth_start) - 1):
        most = max(most, truth_start[i + 1] - truth_start[i])
    taken = np.zeros(most, np.bool_)
    for a in range(outcome.shape[0]):
        for t in range(outcome.shape[1]):
            for i in range(len(found_start) - 1):
                first, people = truth_start[i], truth_start[i + 1] - truth_start[i]
                taken[:people] = False
                pair = pair_start[i]
                for d in range(found_start[i], found_start[i + 1]):
                    best, chosen = thresholds[t], -1
                    for last_resort in (False, True):
                        if chosen >= 0:
                            break
                        for g in range(people):
                            if ignored[a, first + g] != last_resort or (taken[g] and not crowd[first + g]):
                                continue
                            if oks[pair + g] < best:
                                continue
                            best, chosen = oks[pair + g], g
                    pair += people
                    if chosen >= 0:
                        taken[chosen] = True
                    if chosen >= 0 and ignored[a, first + chosen]:
                        outcome[a, t, d] = -1
                    elif chosen >= 0 and counts[first + chosen]:
                        outcome[a, t, d] = 1
                    else:
                        outcome[a, t, d] = -1 if found_outside[a, d] else 0
