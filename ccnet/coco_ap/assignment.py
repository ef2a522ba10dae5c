"""Detections choose people, best detection first, in many images at once."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Rivals:
    """N images with about as many people each: R detections and P people at most in any of them."""

    found: np.ndarray  # [N, R] detections, best first, filled up with -1; images with more of them come first
    person: np.ndarray  # [N, P] people in order, filled up with -1
    oks: np.ndarray  # [N, R, P] -1 where the two are no pair


def tables(
    pair_found: np.ndarray,  # [P] detection of every pair, increasing
    pair_person: np.ndarray,  # [P]
    oks: np.ndarray,  # [P]
    found_image: np.ndarray,  # [D] index of the image of every detection, increasing
    person_image: np.ndarray,  # [G] the same of every person
) -> Iterator[Rivals]:
    """Pairs as rectangular tables. Images go together by how many people they have: 1, 2, 3-4, 5-8, and so on."""
    found, person = np.unique(pair_found), np.unique(pair_person)
    image_of_found, image_of_person, image_of_pair = found_image[found], person_image[person], found_image[pair_found]
    rank, column = place_in_group(image_of_found), place_in_group(image_of_person)
    pair_rank, pair_column = rank[np.searchsorted(found, pair_found)], column[np.searchsorted(person, pair_person)]
    detections, people = np.bincount(image_of_found), np.bincount(image_of_person)
    size = np.ceil(np.log2(np.maximum(people, 1))).astype(int)
    for group in np.unique(size[people > 0]):
        images = np.flatnonzero((size == group) & (people > 0))
        images = images[np.argsort(-detections[images], kind="stable")]
        row = np.full(len(people), -1)
        row[images] = np.arange(len(images))
        shape = len(images), detections[images].max(), people[images].max()
        table = Rivals(np.full(shape[:2], -1), np.full(shape[::2], -1), np.full(shape, -1.0))
        for cells, image, places, values in (
            (table.found, image_of_found, (rank,), found),
            (table.person, image_of_person, (column,), person),
            (table.oks, image_of_pair, (pair_rank, pair_column), oks),
        ):
            here = row[image] >= 0
            cells[(row[image[here]], *(place[here] for place in places))] = values[here]
        yield table


def assign(
    rivals: Rivals,
    met: np.ndarray,  # [N, R, P] how many thresholds the pair's OKS meets
    thresholds: int,
    ignored: np.ndarray,  # [A, G] bool: not to be found in this size range
    crowd: np.ndarray,  # [G] bool: may be chosen again and again
) -> tuple[np.ndarray, np.ndarray]:
    """Whom every detection chooses, [A, T, N, R] or -1, and whether that person was to be found, [A, T, N, R].

    Most liked is the highest OKS, of equals the later, and whoever is to be found before all who are ignored.
    """
    images, rounds, people = rivals.oks.shape
    by_liking = np.argsort(rivals.oks, axis=-1, kind="stable")  # [N, R, P] columns, least liked first
    liking = np.argsort(by_liking, axis=-1).astype(np.int32)  # [N, R, P]
    # People are the first axis from here on and images the last, so that one vector operation spans many images.
    to_be_found = np.moveaxis(~ignored[:, rivals.person.T], 0, 1)[:, :, None]  # [P, A, 1, N]
    bonus = np.where(to_be_found, np.int32(people), np.int32(0))
    crowded = crowd[rivals.person].T[:, None, None]  # [P, 1, 1, N]
    column = np.arange(people)[:, None, None, None]
    level = np.arange(thresholds)[:, None]
    free = np.ones((people, len(ignored), thresholds, images), bool)
    chosen = np.full((len(ignored), thresholds, images, rounds), -1)
    wanted = np.zeros(chosen.shape, bool)
    for rank in range(rounds):
        n = np.count_nonzero(rivals.found[:, rank] >= 0)
        able = free[..., :n] & (met[:n, rank].T[:, None, None] > level)
        most = np.where(able, liking[:n, rank].T[:, None, None] + bonus[..., :n], -1).max(0)  # [A, T, n]
        choice = by_liking[np.arange(n), rank, most % people]
        free[..., :n] &= crowded[..., :n] | (most < 0) | (column != choice)
        chosen[..., :n, rank] = np.where(most < 0, -1, rivals.person[np.arange(n), choice])
        wanted[..., :n, rank] = most >= people
    return chosen, wanted


def place_in_group(group: np.ndarray) -> np.ndarray:
    """How many of the same value stand before each entry of a sorted array."""
    return np.arange(len(group)) - np.searchsorted(group, group)
