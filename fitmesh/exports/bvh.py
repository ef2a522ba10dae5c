"""`bvh/person_N.bvh`: a skeleton and its motion, for animation tools.

Scene frame (metres, y up), Euler angles in degrees in the order z, x, y: R = Rz Rx Ry. A BVH file has one frame time,
so frames at uneven times are resampled at the video's rate; frames at even times are written as they are. It cannot
hide anything either: while a person is absent, the skeleton holds the last pose, and then jumps; before the person
comes, it holds the first. So the files of all people begin at the clip's first frame and line up."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fitmesh.exports import DEFAULT, bone_names
from fitmesh.exports import scene as scenes
from fitmesh.exports.angles import euler_deg
from fitmesh.exports.scene import RestBody, SceneFrame
from fitmesh.result import Person, Result


def write(
    result: Result, scene: SceneFrame, path: Path, person: Person, rows: slice, convention: str = DEFAULT
) -> None:
    """All rows of a person; bones are named after the `convention` of another program."""
    rest = scenes.rest_body(result.body, person)
    order, lines = _hierarchy(rest, bone_names(convention, rest.joint_names))
    path.write_text("\n".join([*lines, *_motion(result, person, scene, order)]) + "\n")


def _hierarchy(rest: RestBody, names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Joints in the order of their channels (depth first), and the text. The bone of a joint without children ends at
    twice the way from the joint to the centre of its skin."""
    order: list[int] = []
    lines = ["HIERARCHY"]

    def numbers(values: np.ndarray) -> str:
        return " ".join(f"{value:.6f}" for value in values)

    def append(joint: int, depth: int) -> None:
        order.append(joint)
        tab, inner = "\t" * depth, "\t" * (depth + 1)
        rotation = "Zrotation Xrotation Yrotation"
        lines.extend(
            (
                f"{tab}{'JOINT' if joint else 'ROOT'} {names[joint]}",
                f"{tab}{{",
                f"{inner}OFFSET {numbers(rest.offsets_m[joint])}",
                f"{inner}CHANNELS " + (f"3 {rotation}" if joint else f"6 Xposition Yposition Zposition {rotation}"),
            )
        )
        children = [child for child, parent in enumerate(rest.parents) if parent == joint]
        for child in children:
            append(child, depth + 1)
        if not children:
            weights = rest.weights[:, joint].astype(np.float64)
            centre_m = weights @ rest.vertices_m / weights.sum()
            tip = numbers(2 * (centre_m - rest.joints_m[joint]))
            lines.extend((f"{inner}End Site", f"{inner}{{", f"{inner}\tOFFSET {tip}", f"{inner}}}"))
        lines.append(f"{tab}}}")

    append(0, 0)
    return order, lines


def _motion(result: Result, person: Person, scene: SceneFrame, order: list[int]) -> list[str]:
    step_s = float(1 / scenes.frame_rate(result))
    # In every frame of the clip up to the person's last: before the first row that one, in an absence the last before.
    frames = result.frames[result.frames <= person.frame[-1]]
    rows = np.maximum(np.searchsorted(person.frame, frames, side="right") - 1, 0)
    rotations, pelvis_m = scenes.motion_of(result, person, scene, rows)
    angles = _continuous(np.stack([euler_deg(rotations[joint], "ZXY") for joint in order], 1))
    rows = np.concatenate([pelvis_m, angles.reshape(len(angles), -1)], 1)
    line = " ".join(["%.5f"] * rows.shape[1])
    return [
        "MOTION",
        f"Frames: {len(rows)}",
        f"Frame Time: {step_s:.10f}",
        *(line % tuple(row) for row in rows.tolist()),
    ]


def _continuous(euler_zxy_deg: np.ndarray) -> np.ndarray:
    """The same rotations [T, J, 3] with each frame's angles nearest to the frame's before: curves that can be edited.
    (z, x, y) and (z + 180, 180 - x, y + 180) are one rotation, and so is any angle plus full turns."""
    result = euler_zxy_deg.copy()
    for t in range(1, len(result)):
        before = result[t - 1]
        other = np.stack((result[t, :, 0] + 180, 180 - result[t, :, 1], result[t, :, 2] + 180), -1)
        choices = np.stack((result[t], other))
        choices -= 360 * np.round((choices - before) / 360)
        nearer = np.abs(choices - before).sum(-1).argmin(0)
        result[t] = np.take_along_axis(choices, nearer[None, :, None], 0)[0]
    return result
