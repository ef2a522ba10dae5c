"""`bvh/person_N.bvh`: a skeleton and its motion, for animation tools.

Scene frame (metres, y up), Euler angles in degrees in the order z, x, y: R = Rz Rx Ry. BVH knows one frame time, so
frames that come unevenly are resampled at the video's rate; a video with even frames keeps them as they are.
"""

from pathlib import Path

import numpy as np

from fitmesh.exports.folders import atomic_folder
from fitmesh.exports.motion import clip_time_s, frame_rate, scene_frame
from fitmesh.exports.rest_body import RestBody, rest_body
from fitmesh.exports.rotations import (
    HALF_TURN_X,
    continuous_zxy_deg,
    euler_zxy_deg,
    matrices_from_quaternions,
    product,
    quaternions,
    slerp,
)
from fitmesh.exports.scene_frame import SceneFrame
from fitmesh.progress import Reporter
from fitmesh.result import Person, Result
from fitting import Body
from fitting.body.kinematics import JOINT_COUNT, JOINT_NAMES, PARENTS

FOLDER = "bvh"
_CHILDREN = [[child for child, parent in enumerate(PARENTS) if parent == joint] for joint in range(JOINT_COUNT)]
_SAME_MOMENT = 0.05  # of a frame: containers round time stamps, to a millisecond in mkv


def files(result: Result) -> list[str]:
    return [f"{FOLDER}/person_{person.identity}.bvh" for person in result.people]


def write(result: Result, out: Path, progress: Reporter) -> None:
    """One file per person."""
    scene = scene_frame(result)
    with progress.stage("bvh", len(result.people), "people") as tick, atomic_folder(out / FOLDER) as folder:
        for person in result.people:
            rest = rest_body(result.body, person.shape)
            names, lines = _hierarchy(rest, _tips(result.body, rest))
            lines += _motion(result, person, rest, scene, names)
            (folder / f"person_{person.identity}.bvh").write_text("\n".join(lines) + "\n")
            tick(1)


def _hierarchy(rest: RestBody, tips_m: dict[int, np.ndarray]) -> tuple[list[int], list[str]]:
    """Joints in the order their channels come (depth first), and the text."""
    order: list[int] = []
    lines = ["HIERARCHY"]

    def put(joint: int, depth: int) -> None:
        order.append(joint)
        tab, inner = "\t" * depth, "\t" * (depth + 1)
        turn = "Zrotation Xrotation Yrotation"
        lines.extend(
            (
                f"{tab}{'JOINT' if joint else 'ROOT'} {JOINT_NAMES[joint]}",
                f"{tab}{{",
                f"{inner}OFFSET {_numbers(rest.offsets_m[joint])}",
                f"{inner}CHANNELS " + (f"3 {turn}" if joint else f"6 Xposition Yposition Zposition {turn}"),
            )
        )
        for child in _CHILDREN[joint]:
            put(child, depth + 1)
        if joint in tips_m:
            lines.extend((f"{inner}End Site", f"{inner}{{", f"{inner}\tOFFSET {_numbers(tips_m[joint])}", f"{inner}}}"))
        lines.append(f"{tab}}}")

    put(0, 0)
    return order, lines


def _tips(body: Body, rest: RestBody) -> dict[int, np.ndarray]:
    """Where the bones of joints without children end, from the joint: twice the way to the middle of their skin."""
    weights = body.weights.double().numpy()
    leaves = [joint for joint in range(JOINT_COUNT) if not _CHILDREN[joint]]
    middle = {leaf: weights[:, leaf] @ rest.vertices_m / weights[:, leaf].sum() for leaf in leaves}
    return {leaf: 2 * (middle[leaf] - rest.joints_m[leaf]) for leaf in leaves}


def _motion(result: Result, person: Person, rest: RestBody, scene: SceneFrame, order: list[int]) -> list[str]:
    step_s = float(1 / frame_rate(result))
    turns, pelvis_m = _even(
        clip_time_s(result, person),
        quaternions(person.pose_rad),
        scene.points(person.translation_m + rest.joints_m[0]),
        step_s,
    )
    turns[:, 0] = product(HALF_TURN_X, turns[:, 0])
    angles = continuous_zxy_deg(euler_zxy_deg(matrices_from_quaternions(turns)))[:, order]
    rows = np.concatenate([pelvis_m, angles.reshape(len(angles), -1)], 1)
    form = " ".join(["%.5f"] * rows.shape[1])
    return [
        "MOTION",
        f"Frames: {len(rows)}",
        f"Frame Time: {step_s:.10f}",
        *(form % tuple(row) for row in rows.tolist()),
    ]


def _even(time_s: np.ndarray, turns: np.ndarray, place_m: np.ndarray, step_s: float) -> tuple[np.ndarray, np.ndarray]:
    """Quaternions [T, 24, 4] and places [T, 3] at times [T] -> the same every `step_s` from the first on."""
    at = (time_s - time_s[0]) / step_s  # in frames
    if np.abs(at - np.arange(len(at))).max() < _SAME_MOMENT:
        return turns.copy(), place_m
    wanted = np.arange(int(np.floor(at[-1] + _SAME_MOMENT)) + 1)
    before = np.clip(np.searchsorted(at, wanted, side="right") - 1, 0, len(at) - 2)
    share = np.clip((wanted - at[before]) / (at[before + 1] - at[before]), 0, 1)
    place = place_m[before] + share[:, None] * (place_m[before + 1] - place_m[before])
    return slerp(turns[before], turns[before + 1], share[:, None]), place


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:.6f}" for value in values)
