"""Which detection is which person: COCO's greedy assignment, for all thresholds and size ranges at once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

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
    _check(truth, detections, spread)
    images = len(truth.images)
    person_image, found_image = _index(truth.images, truth.image), _index(truth.images, detections.image)
    person = np.argsort(person_image, kind="stable")
    person_image = person_image[person]
    found = _best_of_each_image(found_image, detections.score, images)
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
    for block in _blocks(pair_found[close], pair_person[close], oks[close], found_image):
        _assign(block, ignored, truth.crowd[person], counts, outcome)

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


def _best_of_each_image(image: np.ndarray, score: np.ndarray, images: int) -> np.ndarray:
    """Detections to look at, by image and then by score, equal scores in the order they were given."""
    order = np.lexsort((-score, image))
    return order[_rank_in_group(image[order]) < DETECTIONS_PER_IMAGE]


def _rank_in_group(group: np.ndarray) -> np.ndarray:
    """How many of the same value stand before each entry of a sorted array."""
    return np.arange(len(group)) - np.searchsorted(group, group)


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


@dataclass(frozen=True)
class _Block:
    """Images with about as many rivals each. N images, at most R detections and P people in any of them."""

    found: np.ndarray  # [N, R] detections, best first, -1 beyond the last; images with more of them come first
    person: np.ndarray  # [N, P] people, -1 beyond the last
    oks: np.ndarray  # [N, R, P] -1 where a pair is not close


def _blocks(
    pair_found: np.ndarray, pair_person: np.ndarray, oks: np.ndarray, found_image: np.ndarray
) -> Iterator[_Block]:
    """Close pairs, sorted by detection and person, as rectangular tables."""
    found, found_of_pair = np.unique(pair_found, return_inverse=True)
    image_of_found = found_image[found]
    person = np.unique(pair_person)
    image_of_person = np.empty(len(person), int)
    column_of_pair = np.searchsorted(person, pair_person)
    image_of_person[column_of_pair] = found_image[pair_found]
    rank, column = _rank_in_group(image_of_found), _rank_in_group(image_of_person)
    rivals = np.bincount(image_of_found, minlength=0)
    people = np.bincount(image_of_person, minlength=0)
    width = 1
    while len(people) and width < 2 * people.max():
        chosen = np.flatnonzero((people > width // 2) & (people <= width))
        chosen = chosen[np.argsort(-rivals[chosen], kind="stable")]
        width *= 2
        if not len(chosen):
            continue
        row = np.full(len(people), -1)
        row[chosen] = np.arange(len(chosen))
        table = _Block(
            found=np.full((len(chosen), rivals[chosen].max()), -1),
            person=np.full((len(chosen), people[chosen].max()), -1),
            oks=np.full((len(chosen), rivals[chosen].max(), people[chosen].max()), -1.0),
        )
        here = row[image_of_found] >= 0
        table.found[row[image_of_found[here]], rank[here]] = found[here]
        here = row[image_of_person] >= 0
        table.person[row[image_of_person[here]], column[here]] = person[here]
        pair_row = row[found_image[pair_found]]
        here = pair_row >= 0
        table.oks[pair_row[here], rank[found_of_pair[here]], column[column_of_pair[here]]] = oks[here]
        yield table


def _assign(block: _Block, ignored: np.ndarray, crowd: np.ndarray, counts: np.ndarray, outcome: np.ndarray) -> None:
    """Let the best detection of every image choose, then the second best, and note what became of them."""
    people = block.person.shape[1]
    # Each detection's order of preference: by OKS, the later of equals; whoever is not ignored before all who are.
    preference = np.argsort(block.oks, axis=-1, kind="stable")  # [N, R, P] place -> column
    place = np.argsort(preference, axis=-1).astype(np.int16)  # [N, R, P] column -> place
    # From here on people are the first axis and images the last, so that one vector operation spans many images.
    wanted = np.moveaxis(~ignored[:, block.person.T], 0, 1)[:, :, None]  # [P, A, 1, N]
    bonus = np.where(wanted, np.int16(people), np.int16(0))
    reached = (block.oks[..., None] >= OKS_THRESHOLDS).sum(-1, dtype=np.int8)  # [N, R, P] thresholds met
    level = np.arange(len(OKS_THRESHOLDS), dtype=np.int8)[:, None]
    crowded = crowd[block.person].T[:, None, None]  # [P, 1, 1, N]
    free = np.ones((people, *outcome.shape[:2], len(block.person)), bool)  # [P, A, T, N]
    column = np.arange(people)[:, None, None, None]
    for rank in range(block.found.shape[1]):
        n = np.count_nonzero(block.found[:, rank] >= 0)
        able = free[..., :n] & (reached[:n, rank].T[:, None, None] > level)
        liking = np.where(able, place[:n, rank].T[:, None, None] + bonus[..., :n], np.int16(-1)).max(0)  # [A, T, n]
        chosen = preference[np.arange(n), rank, liking % people]  # [A, T, n]
        matched, of_interest = liking >= 0, liking >= people
        free[..., :n] &= crowded[..., :n] | ~(matched & (column == chosen))
        d = block.found[:n, rank]
        found = outcome[:, :, d]
        found[matched & ~of_interest] = IGNORED
        found[of_interest & counts[block.person[np.arange(n), chosen]]] = TRUE
        outcome[:, :, d] = found
