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
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_folder

FOLDER = "bvh"


def files(result: Result) -> list[str]:
    return [f"{FOLDER}/person_{person.identity}.bvh" for person in result.people]


def write(result: Result, out: Path, progress: Reporter, convention: str = DEFAULT) -> None:
    """One file per person, its bones named after the `convention` of another program."""
    scene = scenes.scene_frame(result)
    with progress.stage("bvh", len(result.people), "people") as tick, atomic_folder(out / FOLDER) as folder:
        for person in result.people:
            rest = scenes.rest_body(result.body, person)
            weights = scenes.skin_weights(result.body, person).astype(np.float64)
            order, lines = _hierarchy(rest, weights, bone_names(convention, rest.joint_names))
            lines += _motion(result, person, rest, scene, order)
            (folder / f"person_{person.identity}.bvh").write_text("\n".join(lines) + "\n")
            tick(1)


def _hierarchy(rest: RestBody, weights: np.ndarray, names: Sequence[str]) -> tuple[list[int], list[str]]:
    """Joints in the order of their channels (depth first), and the text. The bone of a joint without children ends at
    twice the way from the joint to the centre of its skin; weights [V, J] of skinning."""
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
            centre_m = weights[:, joint] @ rest.vertices_m / weights[:, joint].sum()
            tip = numbers(2 * (centre_m - rest.joints_m[joint]))
            lines.extend((f"{inner}End Site", f"{inner}{{", f"{inner}\tOFFSET {tip}", f"{inner}}}"))
        lines.append(f"{tab}}}")

    append(0, 0)
    return order, lines


def _motion(result: Result, person: Person, rest: RestBody, scene: SceneFrame, order: list[int]) -> list[str]:
    step_s = float(1 / scenes.frame_rate(result))
    # In every frame of the clip up to the person's last: before the first row that one, in an absence the last before.
    rows = scenes.on_every_frame(result, person, np.arange(len(person)), -1)
    first = int(np.searchsorted(result.frames, person.frame[0]))
    rows = np.concatenate([np.zeros(first, rows.dtype), np.maximum.accumulate(rows)])
    time_s = result.time_s[: len(rows)] - result.time_s[0]
    rotations, pelvis_m = scenes.evenly(
        time_s,
        scenes.scene_rotations(scenes.joint_poses(person, rows), scene.at(person.frame[rows])),
        scene.points((person.translation_m[rows] + rest.joints_m[0])[:, None], person.frame[rows])[:, 0],
        step_s,
    )
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
