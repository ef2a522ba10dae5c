"""OKS of pairs of a detection and a person, rounding for rounding what pycocotools computes.

Equal to the last bit, not merely close: an OKS that lands on a threshold, or two people equally similar to one
detection, would otherwise be decided differently. NumPy's sum depends on how many terms it is given, so pairs are
taken together by the number of keypoints that count.
"""

import numpy as np

TERMS_AT_ONCE = 1 << 18  # exponentials computed at a time: a block of arrays that stays in the processor's cache


def pair_oks(
    found: np.ndarray,  # [P] detection of each pair
    person: np.ndarray,  # [P] person of each pair
    found_xy_px: np.ndarray,  # [D, K, 2]
    truth_xy_px: np.ndarray,  # [G, K, 2]
    labelled: np.ndarray,  # [G, K] bool
    area_px2: np.ndarray,  # [G]
    box_px: np.ndarray,  # [G, 4] x, y, width, height
    sigmas: np.ndarray,  # [K]
) -> np.ndarray:
    """OKS of every pair, [P]: the mean over the person's labelled keypoints.

    A person without any is compared by how far each keypoint lies outside the box, grown by its size on every side.
    """
    variance = (sigmas * 2) ** 2
    scale = area_px2 + np.spacing(1)
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
            d, g = found[pairs], person[pairs]
            if terms:
                k = labelled_first[g, :terms]  # [P, terms]
                offset = found_xy_px[d[:, None], k] - truth_xy_px[g[:, None], k]
                exponent = _exponent(offset, variance[k], scale[g])
            else:
                exponent = _exponent(_outside(found_xy_px[d], box_px[g]), variance, scale[g])
            oks[pairs] = np.exp(exponent).sum(1) / exponent.shape[1]
    return oks


def _exponent(offset_px: np.ndarray, variance: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """-d^2 / (2 l^2) of offsets [P, N, 2], in pycocotools' order of operations."""
    squared = offset_px[..., 0] ** 2 + offset_px[..., 1] ** 2
    return -(squared / variance / scale[:, None] / 2)


def _outside(xy_px: np.ndarray, box_px: np.ndarray) -> np.ndarray:
    """How far points [P, K, 2] lie outside boxes [P, 4] that are grown by their size on every side, [P, K, 2]."""
    corner, size = box_px[:, None, :2], box_px[:, None, 2:]
    return np.maximum(0, (corner - size) - xy_px) + np.maximum(0, xy_px - (corner + size * 2))
