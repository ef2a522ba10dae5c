"""OKS of every detection with every person in the same image, rounding for rounding what pycocotools computes.

Equal to the last bit, not merely close: an OKS that lands on a threshold, or two people equally similar to one
detection, would otherwise be decided differently. Hence NumPy's exponential, and sums in NumPy's pairwise order.
"""

import numpy as np

from ccnet.compiled import compiled

TERMS_AT_ONCE = 1 << 21  # exponentials held in memory at a time (16 MB)


def pair_oks(
    detection_xy_px: np.ndarray,  # [D, K, 2] sorted by image
    detection_start: np.ndarray,  # [I + 1] image i has detections start[i]:start[i + 1]
    truth_xy_px: np.ndarray,  # [G, K, 2] sorted by image
    truth_start: np.ndarray,  # [I + 1]
    labelled: np.ndarray,  # [G, K] bool
    area_px2: np.ndarray,  # [G]
    box_px: np.ndarray,  # [G, 4] x, y, width, height
    sigmas: np.ndarray,  # [K]
) -> tuple[np.ndarray, np.ndarray]:
    """OKS of all pairs, one image's [detections, people] block after the other, flat; and where blocks start, [I + 1]."""
    terms_of_truth = np.where(labelled.any(1), labelled.sum(1), labelled.shape[1])  # [G] keypoints that count
    terms_before = np.concatenate([[0], np.cumsum(terms_of_truth)])
    found = np.diff(detection_start)
    pair_start = np.concatenate([[0], np.cumsum(found * np.diff(truth_start))])
    term_start = np.concatenate([[0], np.cumsum(found * np.diff(terms_before[truth_start]))])
    variance = (sigmas * 2) ** 2
    scale = area_px2 + np.spacing(1)
    oks = np.empty(pair_start[-1])
    first, images = 0, len(found)
    while first < images:
        end = int(np.searchsorted(term_start, term_start[first] + TERMS_AT_ONCE, side="right")) - 1
        end = min(max(end, first + 1), images)
        terms = np.empty(term_start[end] - term_start[first])
        block = (detection_xy_px, detection_start, truth_xy_px, truth_start, labelled)
        _exponents(first, end, *block, scale, box_px, variance, terms)
        np.exp(terms, out=terms)
        _means(first, end, detection_start, truth_start, terms_of_truth, terms, oks[pair_start[first] :])
        first = end
    return oks, pair_start


@compiled
def _exponents(first, end, found_xy, found_start, truth_xy, truth_start, labelled, scale, box, variance, out):  # type: ignore[no-untyped-def]
    """-d^2 / (2 l^2) of every keypoint that counts, pair by pair."""
    keypoints = len(variance)
    n = 0
    for i in range(first, end):
        for d in range(found_start[i], found_start[i + 1]):
            for g in range(truth_start[i], truth_start[i + 1]):
                before = n
                for k in range(keypoints):
                    if labelled[g, k]:
                        dx = found_xy[d, k, 0] - truth_xy[g, k, 0]
                        dy = found_xy[d, k, 1] - truth_xy[g, k, 1]
                        out[n] = -((dx * dx + dy * dy) / variance[k] / scale[g] / 2)
                        n += 1
                if n > before:
                    continue
                # No keypoint is labelled: how far each lies outside the box grown to three times its width and height.
                x, y, width, height = box[g]
                for k in range(keypoints):
                    u, v = found_xy[d, k]
                    dx = max(0.0, (x - width) - u) + max(0.0, u - (x + width * 2))
                    dy = max(0.0, (y - height) - v) + max(0.0, v - (y + height * 2))
                    out[n] = -((dx * dx + dy * dy) / variance[k] / scale[g] / 2)
                    n += 1


@compiled
def _means(first, end, found_start, truth_start, terms_of_truth, terms, out):  # type: ignore[no-untyped-def]
    """Mean of each pair's terms."""
    n = pair = 0
    for i in range(first, end):
        for _ in range(found_start[i], found_start[i + 1]):
            for g in range(truth_start[i], truth_start[i + 1]):
                count = terms_of_truth[g]
                out[pair] = _pairwise_sum(terms, n, count) / count
                pair += 1
                n += count


@compiled
def _pairwise_sum(values, start, count):  # type: ignore[no-untyped-def]
    """NumPy's summation order: halves above 128 values, eight running sums above 7."""
    if count > 128:
        half = count // 2
        half -= half % 8
        return _pairwise_sum(values, start, half) + _pairwise_sum(values, start + half, count - half)
    if count < 8:
        total = 0.0
        for i in range(start, start + count):
            total += values[i]
        return total
    r0, r1, r2, r3 = values[start], values[start + 1], values[start + 2], values[start + 3]
    r4, r5, r6, r7 = values[start + 4], values[start + 5], values[start + 6], values[start + 7]
    whole = count - count % 8
    for i in range(start + 8, start + whole, 8):
        r0 += values[i]
        r1 += values[i + 1]
        r2 += values[i + 2]
        r3 += values[i + 3]
        r4 += values[i + 4]
        r5 += values[i + 5]
        r6 += values[i + 6]
        r7 += values[i + 7]
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for i in range(start + whole, start + count):
        total += values[i]
    return total
