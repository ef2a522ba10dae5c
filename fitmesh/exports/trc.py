"""`trc/person_N.trc`: markers at the body's keypoints and joints, for OpenSim and Pose2Sim.

Scene frame: metres (stated in the header), y up, as OpenSim's ground has it. Keypoints have the names of Pose2Sim's
Halpe-26 markers, so that its OpenSim setup finds them; joints are `joint_` and SMPL's name; where hands were looked
for, the ends of the fingers follow. The first five lines are as OpenSim's TRCFileAdapter reads and Pose2Sim writes
them; data begin in line 6.

Readers disagree on missing markers (older OpenSim versions refuse empty cells, Pose2Sim's users report failures with
NaN), so there are none: each segment of frames in which the person is there is a file of its own. Times are the
overlay's."""

from pathlib import Path

import numpy as np

from fitmesh.exports.scene import SceneFrame, clip_time_s, frame_rate
from fitmesh.result import Person, Result
from fitting.body.kinematics import JOINT_NAMES
from pose2d.hands import FINGERS
from pose2d.skeletons import HALPE26

_MIDDLE = {"head_top": "Head", "neck": "Neck", "pelvis": "Hip", "nose": "Nose"}  # by Pose2Sim's names
_KEYS = (
    "DataRate", "CameraRate", "NumFrames", "NumMarkers", "Units", "OrigDataRate", "OrigDataStartFrame", "OrigNumFrames",
)  # fmt: skip


def marker_names(hands: bool) -> list[str]:
    """Of Halpe's 26 keypoints (left_big_toe: LBigToe), of SMPL's 24 joints, and of the fingers' ends (LThumbTip) where
    hands were looked for."""
    sides = ((name, *name.partition("_")[::2]) for name in HALPE26.keypoints)
    named = [_MIDDLE.get(name) or side[0].upper() + part.title().replace("_", "") for name, side, part in sides]
    tips = [f"{side}{finger.capitalize()}Tip" for side in "LR" for finger in FINGERS]
    return named + [f"joint_{name}" for name in JOINT_NAMES] + (tips if hands else [])


def write(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    rate = float(frame_rate(result))
    posed = result.body.at(result.params(person, rows))
    places = np.concatenate([posed.keypoints.double().numpy(), posed.joints.double().numpy()], 1)
    if posed.hands is not None:
        places = np.concatenate([places, posed.hands[:, :, 4::4].flatten(1, 2).double().numpy()], 1)
    times, points = clip_time_s(result, person)[rows], scene.points(places, person.frame[rows])
    names, count = marker_names(posed.hands is not None), len(points)
    stated = f"{rate:.6f}"
    row = "%d\t%.6f" + "\t%.5f" * points[0].size
    lines = [
        f"PathFileType\t4\t(X/Y/Z)\t{path.name}",
        "\t".join(_KEYS),
        "\t".join([stated, stated, str(count), str(len(names)), "m", stated, "1", str(count)]),
        "Frame#\tTime\t" + "\t\t\t".join(names) + "\t\t",
        "\t\t" + "\t".join(f"{axis}{number}" for number in range(1, len(names) + 1) for axis in "XYZ"),
        *(
            row % (number, time, *values)
            for number, (time, values) in enumerate(
                zip(times.tolist(), points.reshape(count, -1).tolist(), strict=True), 1
            )
        ),
    ]
    path.write_text("\n".join(lines) + "\n")
