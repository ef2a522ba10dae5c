"""One pose per person: drop poses that are nearly another one with a higher score."""

import numpy as np

from pose2d.skeletons import COCO17, Skeleton


def oks_to_others(xy: np.ndarray, area: float, others: np.ndarray, areas: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """OKS [M] of one pose [K, 2] with others [M, K, 2]: all keypoints count, the scale is the mean of both areas."""
    d2 = ((others - xy) ** 2).sum(-1)
    l2 = ((areas + area) / 2 + np.spacing(1))[:, None] * skeleton.oks_variance
    return np.exp(-d2 / (2 * l2)).mean(1)


def oks_nms(
    xy_px: np.ndarray,
    scores: np.ndarray,
    areas_px2: np.ndarray,
    threshold: float = 0.9,
    skeleton: Skeleton = COCO17,
) -> np.ndarray:
    """The poses to keep, best first: indices into xy_px [M, K, 2].

    Greedy by score; a pose goes when its OKS with a kept one is above the threshold. Simple Baselines, HRNet, ViTPose
    and mmpose run it per image with the area of the crop (the box grown by 1.25) as `areas_px2` [M].
    """
    order = np.argsort(scores)[::-1]
    kept = []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best)
        near = oks_to_others(xy_px[best], areas_px2[best], xy_px[rest], areas_px2[rest], skeleton)
        order = rest[near <= threshold]
    return np.array(kept, dtype=np.int64)
