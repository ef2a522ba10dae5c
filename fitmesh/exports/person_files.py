"""Files of one person's motion for other programs: `amass` (.npz), `trc`, `bvh`, and the mesh of
every frame as `obj`.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports import DEFAULT, Y_UP
from fitmesh.exports.angles import euler_deg
from fitmesh.exports.axes import rotation_from_y_up
from fitmesh.exports.rig import Rig, rig_of
from fitmesh.exports.scene import (
    RestBody,
    SceneFrame,
    clip_time_s,
    frame_rate,
    motion_of,
    rest_body,
)
from fitmesh.person import Person
from fitmesh.result import Result
from fitting import Body
from fitting.body.kinematics import JOINT_NAMES
from pose2d.hands import FINGERS
from pose2d.skeletons import HALPE26

Z_UP_FROM_Y_UP = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
# SMPL-H has SMPL's joints without its two hands, then 15 joints a hand.
BODY_JOINTS = 22
HAND_NUMBERS = 90
BETAS = 16
# Pelvis of SMPL's neutral body at rest and at zero shape, metres: SMPL's origin is in the chest,
# the open body's in the pelvis. With it, SMPL and SMPL-H posed by `trans` have the pelvis in its
# place.
SMPL_REST_PELVIS_M = np.array([-0.0018, -0.2233, 0.0282])


def write_amass(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    """Write `amass/person_N.npz`: SMPL-H poses in the layout of AMASS, which retargeting tools
    read.

    World with z up, as AMASS has it: x to the right as the camera first sees it, y away from that
    camera, z up, metres. `trans` is SMPL's: added to every point of the posed body, so that the
    pelvis is at its rest position plus `trans`.

    AMASS has neither absences nor a size. Each segment of frames without an absence is a file of
    its own, so that no pose is invented; and lengths are divided by the person's size, so that a
    body of SMPL's size moves like the person and stands on the floor."""
    rate = frame_rate(result)
    rest_pose = rest_body(result.body, person)
    rotations, pelvis_m = motion_of(result, person, scene, rows)
    rotations[0] = Rotation.from_matrix(Z_UP_FROM_Y_UP) * rotations[0]
    body = np.concatenate([rotation.as_rotvec() for rotation in rotations[:BODY_JOINTS]], 1)
    hands = np.zeros((len(body), HAND_NUMBERS))
    if person.hand_pose_rad is not None:
        hands = np.concatenate([rotation.as_rotvec() for rotation in rotations[BODY_JOINTS:]], 1)
    shape = np.zeros(BETAS)
    rest_pelvis_m = SMPL_REST_PELVIS_M
    if result.body_path is not None:  # a model of the SMPL family: its own shape, its own pelvis
        shape[: len(person.shape)] = person.shape[:BETAS]
        rest_pelvis_m = rest_pose.joints_m[0] / person.size
    arrays: dict[str, Any] = {
        "poses": np.concatenate([body, hands], 1),
        "trans": pelvis_m @ Z_UP_FROM_Y_UP.T / person.size - rest_pelvis_m,
        "betas": shape,
        "gender": np.array("neutral"),
        "mocap_framerate": np.array(float(rate)),
        # The same under the names of AMASS's newer files, which GMR reads.
        "mocap_frame_rate": np.array(float(rate)),
        "root_orient": body[:, :3],
        "pose_body": body[:, 3:],
        "pose_hand": hands,
        "surface_model_type": np.array("smplh"),
        # Beyond AMASS.
        "size": np.array(person.size),
        "height_m": np.array(person.height_m),
        "upright": np.array(scene.upright[person.shot]),
    }
    np.savez(path, **arrays)


# Pose2Sim's names of keypoints without a side.
_CENTRE_MARKERS = {"head_top": "Head", "neck": "Neck", "pelvis": "Hip", "nose": "Nose"}
_TRC_KEYS = (
    "DataRate",
    "CameraRate",
    "NumFrames",
    "NumMarkers",
    "Units",
    "OrigDataRate",
    "OrigDataStartFrame",
    "OrigNumFrames",
)


MARKER_COUNT = len(HALPE26.keypoints)  # markers that are keypoints; joints follow


def marker_names(hands: bool) -> list[str]:
    """Return the names of the markers: Halpe's 26 keypoints (left_big_toe: LBigToe), SMPL's 24
    joints, and with hands the fingertips (LThumbTip).
    """
    keypoints = []
    for name in HALPE26.keypoints:
        side, _, part = name.partition("_")
        with_side = side[0].upper() + part.title().replace("_", "")
        keypoints.append(_CENTRE_MARKERS.get(name, with_side))
    joints = [f"joint_{name}" for name in JOINT_NAMES]
    tips = [f"{side}{finger.capitalize()}Tip" for side in "LR" for finger in FINGERS]
    return keypoints + joints + (tips if hands else [])


def markers_in_scene(
    result: Result, scene: SceneFrame, person: Person, rows: slice
) -> tuple[np.ndarray, bool]:
    """Return the markers [T, M, 3] of `marker_names` in the scene frame, and whether the fingertips
    are among them.
    """
    posed = result.body.at(result.params(person, rows))
    markers_cam = [posed.keypoints, posed.joints]
    if posed.hands is not None:
        markers_cam.append(posed.hands[:, :, 4::4].flatten(1, 2))
    markers_cam_m = np.concatenate([markers.double().numpy() for markers in markers_cam], 1)
    return scene.points(markers_cam_m, person.frame[rows]), posed.hands is not None


def write_trc(
    result: Result,
    scene: SceneFrame,
    path: Path,
    person: Person,
    rows: slice,
    axes: str = Y_UP,
) -> None:
    """Write `trc/person_N.trc`: markers at the body's keypoints and joints, for OpenSim and
    Pose2Sim.

    Scene frame: metres (stated in the header), y up, as OpenSim's ground has it, unless `axes` says
    otherwise (`exports.axes`). Keypoints have the
    names of Pose2Sim's Halpe-26 markers, so that its OpenSim setup finds them; joints are `joint_`
    and SMPL's name; fingertips follow if hands were detected. The first five lines are as OpenSim's
    TRCFileAdapter reads and Pose2Sim writes them; data begin in line 6.

    Readers disagree on missing markers (older OpenSim versions refuse empty cells, Pose2Sim's users
    report failures with NaN), so there are none: each segment of frames without an absence is a
    file of its own. Times are those of the overlay."""
    points, has_hands = markers_in_scene(result, scene, person, rows)
    points = points @ rotation_from_y_up(result, axes).T
    times = clip_time_s(result, person)[rows]
    write_markers(path, result, times, marker_names(has_hands), points)


def write_markers(
    path: Path, result: Result, time_s: np.ndarray, names: Sequence[str], points_m: np.ndarray
) -> None:
    """Write a TRC file of markers [T, M, 3] in metres."""
    count = str(len(points_m))
    rate = f"{float(frame_rate(result)):.6f}"
    columns = [f"{axis}{number}" for number in range(1, len(names) + 1) for axis in "XYZ"]
    lines = [
        f"PathFileType\t4\t(X/Y/Z)\t{path.name}",
        "\t".join(_TRC_KEYS),
        "\t".join([rate, rate, count, str(len(names)), "m", rate, "1", count]),
        "Frame#\tTime\t" + "\t\t\t".join(names) + "\t\t",
        "\t\t" + "\t".join(columns),
    ]
    row_format = "%d\t%.6f" + "\t%.5f" * points_m[0].size
    coordinates = points_m.reshape(len(points_m), -1).tolist()
    for number, (moment_s, values) in enumerate(zip(time_s.tolist(), coordinates, strict=True), 1):
        lines.append(row_format % (number, moment_s, *values))
    path.write_text("\n".join(lines) + "\n")


def write_bvh(
    result: Result,
    scene: SceneFrame,
    path: Path,
    person: Person,
    rows: slice,
    rig: str = DEFAULT,
) -> None:
    """Write `bvh/person_N.bvh`: a skeleton and its motion, for animation tools.

    Scene frame (metres, y up), Euler angles in degrees in the order z, x, y: R = Rz Rx Ry. A BVH
    file has one frame time, so frames at uneven times are resampled at the video's rate; frames at
    even times are written as they are. BVH cannot hide a skeleton: during an absence it holds the
    last pose and then jumps; before the person appears it holds the first pose. So the files of all
    people begin at the clip's first frame and line up."""
    rest_pose = rest_body(result.body, person)
    # A root above the hips would be a second bone with a position, which few readers expect.
    skeleton = rig_of(rest_pose, rig, with_root=False)
    order, lines = _hierarchy(rest_pose, skeleton)
    motion = _motion_lines(result, person, scene, rest_pose, skeleton, order)
    path.write_text("\n".join([*lines, *motion]) + "\n")


def _hierarchy(rest_pose: RestBody, rig: Rig) -> tuple[list[int], list[str]]:
    """Return the bones in the order of their channels (depth first), and the lines of a BVH file's
    hierarchy. A bone without children ends at twice the way from its joint to the centre of the
    joint's skin, or where it begins if no joint turns it.

    BVH has no rest rotations: all bones rest in the scene's axes.
    """
    order: list[int] = []
    lines = ["HIERARCHY"]

    def numbers(values: np.ndarray) -> str:
        return " ".join(f"{value:.6f}" for value in values)

    def append(bone: int, depth: int) -> None:
        order.append(bone)
        tab = "\t" * depth
        inner = "\t" * (depth + 1)
        channels = "3 Zrotation Xrotation Yrotation"
        parent = rig.parents[bone]
        offset_m = np.zeros(3) if parent < 0 else rig.place_m[bone] - rig.place_m[parent]
        if parent < 0:
            channels = "6 Xposition Yposition Zposition Zrotation Xrotation Yrotation"
        lines.extend(
            (
                f"{tab}{'ROOT' if parent < 0 else 'JOINT'} {rig.names[bone]}",
                f"{tab}{{",
                f"{inner}OFFSET {numbers(offset_m)}",
                f"{inner}CHANNELS {channels}",
            )
        )
        children = [child for child, parent in enumerate(rig.parents) if parent == bone]
        for child in children:
            append(child, depth + 1)
        if not children:
            tip_m = np.zeros(3)
            if bone < rig.joints:
                weights = rest_pose.weights[:, bone].astype(np.float64)
                tip_m = 2 * (weights @ rig.vertices_m / weights.sum() - rig.place_m[bone])
            tip = numbers(tip_m)
            lines.extend((f"{inner}End Site", f"{inner}{{", f"{inner}\tOFFSET {tip}", f"{inner}}}"))
        lines.append(f"{tab}}}")

    append(0, 0)
    return order, lines


def _motion_lines(
    result: Result,
    person: Person,
    scene: SceneFrame,
    rest_pose: RestBody,
    rig: Rig,
    order: list[int],
) -> list[str]:
    """Return the lines of a BVH file's motion."""
    step_s = float(1 / frame_rate(result))
    # Every frame of the clip up to the person's last has a row: before the person's first row that
    # one, in an absence the last one before it.
    frames = result.frames[result.frames <= person.frame[-1]]
    rows = np.maximum(np.searchsorted(person.frame, frames, side="right") - 1, 0)
    rotations, pelvis_m = motion_of(result, person, scene, rows)
    turns = rig.in_scene_axes().motion(rotations, rest_pose.parents)
    angles_deg = np.zeros((len(rows), len(rig.names), 3))
    for bone, turn in enumerate(turns):
        angles_deg[:, bone] = euler_deg(turn, "ZXY")
    angles_deg = _make_continuous(angles_deg[:, order])
    channels = np.concatenate([pelvis_m, angles_deg.reshape(len(rows), -1)], 1)
    row_format = " ".join(["%.5f"] * channels.shape[1])
    return [
        "MOTION",
        f"Frames: {len(channels)}",
        f"Frame Time: {step_s:.10f}",
        *(row_format % tuple(row) for row in channels.tolist()),
    ]


def _make_continuous(euler_zxy_deg: np.ndarray) -> np.ndarray:
    """Return equal rotations [T, J, 3] with each frame's angles nearest to those of the frame
    before, so that curves can be edited. (z, x, y) and (z + 180, 180 - x, y + 180) are one
    rotation, and so is any angle plus full turns.
    """
    angles = euler_zxy_deg.copy()
    for t in range(1, len(angles)):
        before = angles[t - 1]
        z, x, y = angles[t].T
        flipped = np.stack((z + 180, 180 - x, y + 180), -1)
        choices = np.stack((angles[t], flipped))
        choices -= 360 * np.round((choices - before) / 360)
        nearer = np.abs(choices - before).sum(-1).argmin(0)
        angles[t] = np.take_along_axis(choices, nearer[None, :, None], 0)[0]
    return angles


def write_obj(result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice) -> None:
    """Write `obj/person_N/frame_NNNNNN.obj`: the exact mesh of a person in a frame, in the scene
    frame, metres. Frames have the numbers of the video.
    """
    vertices_cam_m = result.vertices(person, rows.start)[None].astype(np.float64)
    vertices_m = scene.points(vertices_cam_m, person.frame[rows])
    name = result.name_of(person)
    frame = person.frame[rows.start]
    vertex_lines = ("v %.4f %.4f %.4f\n" * vertices_m.shape[1]) % tuple(vertices_m.ravel().tolist())
    header = f"# fitmesh person {person.identity} frame {frame}, metres, y up\no {name}\n"
    path.write_text(header + vertex_lines + _face_lines(result.body))


@lru_cache(maxsize=1)
def _face_lines(body: Body) -> str:
    """Return the faces of a body as lines of an OBJ file."""
    faces = (body.faces.numpy() + 1).astype(int)  # OBJ counts from 1
    return ("f %d %d %d\n" * len(faces)) % tuple(faces.ravel().tolist())
