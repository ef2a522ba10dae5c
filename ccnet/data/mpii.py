"""MPII: its people in COCO's form, and PCKh, the share of keypoints within half a head size."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from ccnet.data.coco_files import checked_file_name
from pose2d.base.errors import UserError
from pose2d.base.json_files import Json
from pose2d.skeletons import MPII16

MPII_BOX_PX = 200.0  # MPII states a person's size in units of 200 pixels
HEAD_ENDS = [MPII16.keypoints.index(name) for name in ("upper_neck", "head_top")]
HEAD_BIAS = 0.6  # MPII's head size is this times the diagonal of the head box
NOT_COUNTED = (MPII16.keypoints.index("pelvis"), MPII16.keypoints.index("thorax"))
# "Mean@0.1" of SimpleBaseline and HRNet reads entry 11 of the thresholds 0, 0.01, ...: it is PCKh
# at 0.11.
PCKH_AT = (0.5, 0.1, 0.11)


def mpii_as_coco(content: Json, head_boxes: Path) -> dict[str, Any]:
    """Convert MPII in the JSON form of HRNet's authors (`image`, `center`, `scale`, `joints`,
    `joints_vis`) to COCO's form.

    MPII's coordinates count from 1. The centre is moved down by 15 pixels per unit of size, as in
    the published results. The area is that of the tight box around the labelled keypoints. Head
    sizes come from the file `head_boxes` if it exists (for `valid`), else from the neck
    and the top of the head.
    """
    people = list(content.items())
    sizes_px = read_head_sizes(head_boxes) if head_boxes.is_file() else None
    if sizes_px is not None and len(sizes_px) != len(people):
        raise UserError(
            f"{head_boxes} has {len(sizes_px)} head boxes, expected {len(people)}: one for each "
            f"person in {content.path}.",
            file=head_boxes,
        )
    names = sorted({checked_file_name(person.item("image")) for person in people})
    ids = {name: index for index, name in enumerate(names, 1)}
    annotations = []
    for number, person in enumerate(people, 1):
        joints = [joint.finite_numbers(2) for joint in person.item("joints").items()]
        visible = person.item("joints_vis").finite_numbers(len(joints)) > 0
        if len(joints) != MPII16.size:
            raise person.item("joints").refuse(
                f"has {len(joints)} keypoints; expected {MPII16.size}"
            )
        xy = np.stack(joints) - 1
        scale = person.item("scale").number(-1, 1e4)
        centre = person.item("center").finite_numbers(2) + np.array([0, 15 * scale]) - 1
        side = MPII_BOX_PX * scale
        extent = np.ptp(xy[visible], axis=0) if visible.any() else np.zeros(2)
        head_px = math.nan
        if sizes_px is not None:
            head_px = float(sizes_px[number - 1])
        elif visible[HEAD_ENDS].all():
            head_px = float(np.linalg.norm(np.subtract(*xy[HEAD_ENDS])))
        annotations.append(
            {
                "id": number,
                "image_id": ids[person.item("image").text()],
                "category_id": 1,
                "iscrowd": 0,
                "bbox": [*(centre - side / 2), side, side],
                "area": float(max(extent.prod(), 1.0)),
                "num_keypoints": int(visible.sum()),
                "head_px": head_px if head_px > 0 else math.nan,
                "keypoints": np.column_stack([xy * visible[:, None], 2 * visible]).ravel().tolist(),
            }
        )
    images = [{"id": ids[name], "file_name": name} for name in names]
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}],
    }


def right_keypoints(
    xy_px: np.ndarray,
    truth_xy_px: np.ndarray,
    labelled: np.ndarray,
    head_px: np.ndarray,
    threshold: float = 0.5,
) -> np.ndarray:
    """Return [N, 16]: 1 where a keypoint lies within `threshold` head sizes of the truth, else 0;
    NaN where it is not labelled or the head size is unknown. Places are [N, 16, 2], labelled
    [N, 16], head sizes [N] or NaN.
    """
    distance_px = np.linalg.norm(np.asarray(xy_px, float) - truth_xy_px, axis=-1)
    distance = distance_px / np.asarray(head_px, float)[:, None]
    counted = np.asarray(labelled, bool) & np.isfinite(head_px)[:, None]
    return np.where(counted, distance <= threshold, np.nan)


def pckh(right: np.ndarray) -> dict[str, float]:
    """Return the percentage of right keypoints [N, 16] by the groups that papers print (left and
    right together), and the mean over all but pelvis and thorax; NaN where none is labelled.
    """
    count = (~np.isnan(right)).sum(0)
    correct = np.nansum(right, 0)
    with np.errstate(invalid="ignore"):
        percent = dict(zip(MPII16.keypoints, 100 * correct / count, strict=True))
        counted_right = np.delete(correct, NOT_COUNTED).sum()
        mean = float(100 * counted_right / np.delete(count, NOT_COUNTED).sum())
    parts = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
    pairs = {
        part: float(np.mean([percent[f"{side}_{part}"] for side in ("left", "right")]))
        for part in parts
    }
    return {"head": float(percent["head_top"]), **pairs, "mean": mean}


def read_head_sizes(path: str | Path) -> np.ndarray:
    """Read head sizes [N] from the boxes of `gt_valid.mat`, in the order of `valid.json`."""
    from scipy.io import loadmat

    try:
        # [2, 2, N]: corner, axis, person
        boxes = np.asarray(loadmat(str(path))["headboxes_src"], float)
    except (KeyError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path} is not MPII's gt_valid.mat: {error}.", file=path) from error
    return HEAD_BIAS * np.linalg.norm(boxes[1] - boxes[0], axis=0)
