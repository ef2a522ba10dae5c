"""OKS where it is known who is who: one prediction per annotated person, as with ground-truth boxes."""

from collections.abc import Sequence

import numpy as np


def matched_oks(
    xy_px: np.ndarray,  # [N, K, 2] predicted
    truth_xy_px: np.ndarray,  # [N, K, 2]
    labelled: np.ndarray,  # [N, K] bool
    area_px2: np.ndarray,  # [N]
    sigmas: Sequence[float] | np.ndarray,  # [K]
) -> tuple[np.ndarray, np.ndarray]:
    """OKS of every person [N] and every keypoint [N, K]; NaN where nothing is labelled."""
    labelled = np.asarray(labelled, bool)
    d2 = ((np.asarray(xy_px, float) - truth_xy_px) ** 2).sum(-1)
    l2 = (2 * np.asarray(sigmas, float)) ** 2 * (np.asarray(area_px2, float) + np.spacing(1))[:, None]
    keypoint = np.where(labelled, np.exp(-d2 / (2 * l2)), np.nan)
    count = labelled.sum(1)
    person = np.where(labelled, keypoint, 0).sum(1) / np.maximum(count, 1)
    return np.where(count > 0, person, np.nan), keypoint
