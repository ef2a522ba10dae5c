"""`motion.csv`: one row per person and frame, for spreadsheets and statistics.

Joint positions are metres in the scene frame (y up), angles degrees, keypoints pixels. An empty cell: not known.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fitmesh.exports.angles import ANGLE_NAMES, joint_angles_deg
from fitmesh.exports.motion import clip_time_s, pieces, scene_frame
from fitmesh.exports.scene_frame import SceneFrame
from fitmesh.progress import Reporter
from fitmesh.result import Person, Result
from fitting.body.kinematics import JOINT_NAMES
from pose2d.base.files import atomic_file
from pose2d.skeletons import COCO17

FILE = "motion.csv"


def files(result: Result) -> list[str]:
    return [FILE]


def columns() -> list[str]:
    """The header."""
    joints = [f"{joint}_{part}" for joint in JOINT_NAMES for part in ("x_m", "y_m", "z_m", "std_mm", "observed")]
    keypoints = [
        f"{keypoint}_{part}"
        for keypoint in COCO17.keypoints
        for part in ("x_px", "y_px", "confidence", "presence", "reprojection_px")
    ]
    angles = [f"{angle}_deg" for angle in ANGLE_NAMES]
    return ["person", "frame", "time_s", "observed", *angles, *joints, *(f"2d_{name}" for name in keypoints)]


def write(result: Result, out: Path, progress: Reporter) -> None:
    """Everyone, one after the other."""
    scene = scene_frame(result)
    total = sum(len(person) for person in result.people)
    with (
        progress.stage("csv", total, "rows") as tick,
        atomic_file(out / FILE) as temporary,
        temporary.open("w", newline="") as file,
    ):
        file.write(",".join(columns()) + "\n")
        for person in result.people:
            for piece in pieces(person):
                file.writelines(_lines(result, piece, scene))
                tick(len(piece))


def _lines(result: Result, person: Person, scene: SceneFrame) -> Iterator[str]:
    angles = joint_angles_deg(person.pose_rad, person.joints_m)
    joints = np.concatenate(
        [scene.points(person.joints_m), person.joint_std_mm[..., None], person.joint_observed[..., None]], -1
    )
    keypoints = np.concatenate(
        [
            person.keypoints_px,
            np.stack([person.confidence, person.presence, person.reprojection_px], -1),
        ],
        -1,
    )
    form = ["%.2f"] * len(ANGLE_NAMES) + ["%.4f", "%.4f", "%.4f", "%.1f", "%d"] * len(JOINT_NAMES)
    form += ["%.2f", "%.2f", "%.3f", "%.3f", "%.2f"] * COCO17.size
    values = np.concatenate(
        [
            np.stack(list(angles.values()), -1).round(2) + 0.0,
            joints.reshape(len(person), -1),
            keypoints.reshape(len(person), -1),
        ],
        1,
    )
    heads = zip(person.frame.tolist(), clip_time_s(result, person).tolist(), person.observed.tolist(), strict=True)
    for (frame, time_s, observed), row in zip(heads, values.tolist(), strict=True):
        cells = (one % value if value == value else "" for one, value in zip(form, row, strict=True))
        yield f"{person.identity},{frame},{time_s:.6f},{int(observed)}," + ",".join(cells) + "\n"
