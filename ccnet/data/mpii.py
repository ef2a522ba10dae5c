"""MPII: the share of keypoints within a part of the head's size (PCKh)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError
from pose2d.skeletons import MPII16

HEAD_BIAS = 0.6  # MPII's head size is this times the diagonal of the head box
NOT_COUNTED = (MPII16.keypoints.index("pelvis"), MPII16.keypoints.index("thorax"))
# "Mean@0.1" of SimpleBaseline and HRNet reads entry 11 of the thresholds 0, 0.01, ...: it is PCKh at 0.11.
PUBLISHED_AT_01 = 0.11


@dataclass(frozen=True)
class PCKh:
    """Percent of labelled keypoints that are right."""

    threshold: float  # share of the head size
    keypoint: np.ndarray  # [16] percent; NaN where none is labelled
    mean: float  # over all labelled keypoints but pelvis and thorax


def pckh(
    xy_px: np.ndarray,  # [N, 16, 2]
    truth_xy_px: np.ndarray,  # [N, 16, 2]
    labelled: np.ndarray,  # [N, 16] bool
    head_px: np.ndarray,  # [N] head sizes; NaN: not known, the person does not count
    threshold: float = 0.5,
) -> PCKh:
    """Right is what lies no further from the truth than `threshold` head sizes."""
    labelled = np.asarray(labelled, bool) & np.isfinite(head_px)[:, None]
    distance = np.linalg.norm(np.asarray(xy_px, float) - truth_xy_px, axis=-1) / np.asarray(head_px, float)[:, None]
    right = ((distance <= threshold) & labelled).sum(0)
    count = labelled.sum(0)
    with np.errstate(invalid="ignore"):
        keypoint = 100 * right / count
    counted = np.setdiff1d(np.arange(MPII16.size), NOT_COUNTED)
    total = count[counted].sum()
    return PCKh(threshold, keypoint, float(100 * right[counted].sum() / total) if total else float("nan"))


def mpii_groups(found: PCKh) -> dict[str, float]:
    """Percent of the groups that papers print, left and right together, and the mean."""
    groups: dict[str, tuple[str, ...]] = {"head": ("head_top",)}
    for part in ("shoulder", "elbow", "wrist", "hip", "knee", "ankle"):
        groups[part] = (f"left_{part}", f"right_{part}")
    each = {
        name: float(np.mean([found.keypoint[MPII16.keypoints.index(k)] for k in keypoints]))
        for name, keypoints in groups.items()
    }
    return {**each, "mean": found.mean}


def mean_of_counted(correct: np.ndarray) -> np.ndarray:
    """[N, 16] of `correct_keypoints` -> share of each person's counted keypoints that are right [N]; NaN: none."""
    counted = ~np.isnan(correct)
    right = np.nan_to_num(correct).sum(1) / np.maximum(counted.sum(1), 1)
    return np.where(counted.any(1), right, np.nan)


def published_pckh(
    xy_px: np.ndarray, truth_xy_px: np.ndarray, labelled: np.ndarray, head_px: np.ndarray
) -> tuple[PCKh, PCKh]:
    """PCKh@0.5 and what SimpleBaseline and HRNet print as Mean@0.1 (at 0.11)."""
    people = (xy_px, truth_xy_px, labelled, head_px)
    return pckh(*people, 0.5), pckh(*people, PUBLISHED_AT_01)


def correct_keypoints(
    xy_px: np.ndarray, truth_xy_px: np.ndarray, labelled: np.ndarray, head_px: np.ndarray, threshold: float = 0.5
) -> np.ndarray:
    """[N, 16] 1 where PCKh calls a keypoint right, 0 where wrong; NaN where it does not count it.

    Not counted are keypoints that are not labelled, pelvis and thorax, and people whose head size is not known.
    """
    distance_px = np.linalg.norm(np.asarray(xy_px, float) - truth_xy_px, axis=-1)
    counted = labelled & np.isfinite(head_px)[:, None]
    counted[:, NOT_COUNTED] = False
    with np.errstate(invalid="ignore"):
        return np.where(counted, distance_px <= threshold * np.asarray(head_px, float)[:, None], np.nan)


def head_size_px(head_box_px: np.ndarray) -> np.ndarray:
    """Head boxes [N, 4] (x1, y1, x2, y2) -> head sizes [N]."""
    return HEAD_BIAS * np.linalg.norm(head_box_px[:, 2:] - head_box_px[:, :2], axis=1)


def neck_to_top_px(xy_px: np.ndarray, labelled: np.ndarray) -> float:
    """Head size from keypoints [16, 2], for people without a head box; NaN unless both ends are labelled [16]."""
    ends = [MPII16.keypoints.index(name) for name in ("upper_neck", "head_top")]
    return float(np.linalg.norm(xy_px[ends[0]] - xy_px[ends[1]])) if labelled[ends].all() else float("nan")


def read_head_boxes(path: str | Path) -> np.ndarray:
    """Head boxes [N, 4] (x1, y1, x2, y2) from `gt_valid.mat`, in the order of `valid.json`."""
    from scipy.io import loadmat

    try:
        boxes = loadmat(str(path))["headboxes_src"]  # [2, 2, N]: corner, axis, person
    except FileNotFoundError as error:
        raise UserError(f"no head boxes at {path}. PCKh needs MPII's gt_valid.mat beside valid.json.") from error
    except (KeyError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path} is not MPII's gt_valid.mat: {error}.") from error
    return np.einsum("can->nca", np.asarray(boxes, float)).reshape(-1, 4)
