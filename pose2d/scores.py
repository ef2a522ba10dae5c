"""How the published systems rate a whole pose, from its keypoints' raw confidence and its box's score.

`scores` is [..., K], a box's score [...] (1 for an annotated box). All of them work on NumPy arrays.
"""

import numpy as np

VISIBLE = 0.2  # keypoints below this height of the peak do not count


def heatmap_score(scores: np.ndarray, box_score: np.ndarray | float = 1.0, visible: float = VISIBLE) -> np.ndarray:
    """SBL, HRNet, ViTPose, IPR: the box's score times the mean over keypoints above `visible`; 0 if there is none."""
    counts = scores > visible
    total = np.where(counts, scores, 0).sum(-1)
    return box_score * total / np.maximum(counts.sum(-1), 1)


def regression_score(scores: np.ndarray, box_score: np.ndarray | float = 0.0) -> np.ndarray:
    """RLE, Poseur: the box's score plus the mean plus the best keypoint's; with annotated boxes the box adds 0."""
    return box_score + scores.mean(-1) + scores.max(-1)
