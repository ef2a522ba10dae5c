"""Turn CMU's motion capture onto the body's 24 joints.

The capture's skeleton and ours stand differently at rest (its legs are splayed), so each bone is
turned by its captured rotation after a fixed one that takes our rest direction to the captured rest
direction by the shortest turn:

    G_ours = G_captured A_j,    A_j d_ours = d_captured.

Then knees are straighten_knees (`knees.py`) and shoulders raised (`collars.py`) as people's are.

Data: mocap.cs.cmu.edu, created with funding from NSF EIA-0196217; free for all uses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from eval3dpw.captured.collars import raise_collars
from eval3dpw.captured.knees import lift_pelvis, straighten_knees, subjects_excess_deg
from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT, PARENTS
from fitting.body.rotations import (
    about_axis,
    euler_zyx_to_matrix,
    matrix_to_axis_angle,
    shortest_turn,
)
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.errors import UserError

# Our joint -> the captured joint that turns it, and for limbs the joint at the bone's far end:
# (theirs, ours). Clavicles start elsewhere in the two skeletons.
_LIMBS = (
    "LeftShoulder",
    "RightShoulder",
    "Head",
    "LeftArm",
    "RightArm",
    "LeftForeArm",
    "RightForeArm",
    "LeftHand",
    "RightHand",
    "LeftHand",
    "RightHand",
)
CMU_JOINTS = (
    "Hips",
    "LeftUpLeg",
    "RightUpLeg",
    "LowerBack",
    "LeftLeg",
    "RightLeg",
    "Spine",
    "LeftFoot",
    "RightFoot",
    "Spine1",
    "LeftToeBase",
    "RightToeBase",
    "Neck1",
    *_LIMBS,
)
FAR_END = {
    1: ("LeftLeg", 4),
    2: ("RightLeg", 5),
    4: ("LeftFoot", 7),
    5: ("RightFoot", 8),
    7: ("LeftToeBase", 10),
    8: ("RightToeBase", 11),
    12: ("Head", 15),
    16: ("LeftForeArm", 18),
    17: ("RightForeArm", 19),
    18: ("LeftHand", 20),
    19: ("RightHand", 21),
}
_HEAD = 15
# Pitch of the head's bone in quiet standing, in the median, when people look ahead: by the name of
# the skeleton's neck.
HEAD_BOWED_RAD = {"Neck1": math.radians(15), "Neck": math.radians(2)}
HELD_OUT_EVERY = 5  # every fifth subject number is kept for measuring
# The same recordings under another number: nothing may be learned from them either.
COPIES_OF_HELD_OUT = (73, 91, 117, 121, 123)  # of 70, 105, 85, 90 and 70
# Kinds of motion, by words of their descriptions, that nothing is learned from: to measure what is
# new to everything.
LEFT_OUT_KINDS = ("cartwheel", "balanc", "yoga", "crawl")


@dataclass(frozen=True)
class Motion:
    """Hold captured motion on our joints, one clip after the other."""

    pose: Tensor  # [N, 24, 3] axis-angle; the root in the capture's frame, y up
    root_m: (
        Tensor | None
    )  # [N, 3] pelvis in metres at the body's size, y up, or None when not recorded
    clip_start: np.ndarray  # [C + 1] first frame of each clip, and the end
    clip_name: tuple[str, ...]  # [C] subject_take
    fps: float
    clip_description: tuple[str, ...] = ()  # [C], or none are known

    def clip(self, number: int) -> slice:
        """Return the frames of a clip."""
        return slice(int(self.clip_start[number]), int(self.clip_start[number + 1]))

    @property
    def clip_subject(self) -> np.ndarray:
        """Return the subject number of each clip [C]."""
        return np.array([int(name.split("_")[0]) for name in self.clip_name])

    @property
    def held_out(self) -> np.ndarray:
        """Mark the clips [C] of subjects that nothing is learned from."""
        return self.clip_subject % HELD_OUT_EVERY == 0

    @property
    def left_out(self) -> np.ndarray:
        """Mark the clips [C] of a kind of motion that nothing is learned from."""
        texts = self.clip_description or ("",) * len(self.clip_name)
        return np.array([any(kind in text.lower() for kind in LEFT_OUT_KINDS) for text in texts])

    @property
    def learned(self) -> np.ndarray:
        """Mark the clips [C] that may be learned from."""
        return ~self.held_out & ~self.left_out & ~np.isin(self.clip_subject, COPIES_OF_HELD_OUT)

    def frames_of(self, clips: np.ndarray) -> np.ndarray:
        """Mark the frames [N] of the clips that are true in [C]."""
        return np.repeat(clips, np.diff(self.clip_start))

    def poses_of(self, clips: np.ndarray) -> Tensor:
        """Return the poses [n, 24, 3] of the clips that are true in [C]."""
        return self.pose[torch.from_numpy(self.frames_of(clips))]


_BONES = {
    "joint": Array("U", ("bones",)),
    "parent": Array("i", ("bones",), low=-1),
    "offset": Array("f", ("bones", 3), finite=True),
}
_CLIPS = {
    "joint": Array("U", ("joints",)),
    "euler_zyx_deg_x100": Array("f", ("frames", "joints", 3), finite=True),
    "root_pos": Array("f", ("frames", 3), finite=True, optional=True),
    "clip_start": Array("i", ("clips + 1",), low=0),
    "clip_name": Array("U", ("clips",)),
    "clip_desc": Array("U", ("clips",), optional=True),
}


def load_motion(
    path: str | Path, body: Body, fps: float, skeleton: str | Path | None = None
) -> Motion:
    """Read a file of clips, with CMU's knees and shoulders corrected; arguments as of
    `load_captured`.
    """
    motion = load_captured(path, body, fps, skeleton)
    excess = subjects_excess_deg()
    of_clip = torch.tensor(
        [excess.get(int(subject), (0.0, 0.0)) for subject in motion.clip_subject]
    ).reshape(-1, 2)
    by_frame = of_clip.repeat_interleave(torch.from_numpy(np.diff(motion.clip_start)), 0)
    parts = zip(motion.pose.split(8192), by_frame.split(8192), strict=True)
    pose = torch.cat([raise_collars(straighten_knees(p, e, body), body) for p, e in parts])
    root = None if motion.root_m is None else lift_pelvis(motion.root_m, motion.pose, pose, body)
    return replace(motion, pose=pose, root_m=root)


def read_checked(
    path: str | Path, specification: dict[str, Array], description: str
) -> dict[str, np.ndarray]:
    """Read an npz file and check its arrays against the specification."""
    arrays = read_npz(path, f"Expected {description} (.npz).", specification)
    check_arrays(arrays, specification, path, description)
    return arrays


def load_captured(
    path: str | Path,
    body: Body,
    fps: float,
    skeleton: str | Path | None = None,
    source: tuple[str, ...] = CMU_JOINTS,
) -> Motion:
    """Read a file of clips as captured.

    The file holds `euler_zyx_deg_x100`, `joint`, `clip_start`, `clip_name` and perhaps `clip_desc`
    and `root_pos`. skeleton: the file with `joint`, `parent` and `offset`; by default the same
    file. source: [24] the captured joint that turns each of ours.
    """
    bones = read_checked(skeleton or path, _BONES, "a file of motion capture")
    file = read_checked(path, _CLIPS, "a file of motion capture")
    # Every joint there, each after its parent; clips one after the other.
    order = [str(n) for n in bones["joint"]]
    names = [str(n) for n in file["joint"]]
    lacking = sorted(
        {*source, *(theirs for theirs, _ in FAR_END.values())} - (set(names) & set(order))
    )
    if lacking:
        raise UserError(
            f"{path} lacks the joints {', '.join(lacking[:4])} of the skeleton.", file=path
        )
    above = {name: int(parent) for name, parent in zip(order, bones["parent"], strict=True)}
    for number, name in enumerate(names):
        if name not in above or above[name] >= len(order):
            raise UserError(f"{path}: joint {name[:40]!r} has no place in the skeleton.", file=path)
        if above[name] >= 0 and order[above[name]] not in names[:number]:
            raise UserError(f"{path}: joint {name[:40]!r} comes before its parent.", file=path)
    start = file["clip_start"]
    clips = tuple(str(name) for name in file["clip_name"])
    wrong_name = [
        name for name in clips if source == CMU_JOINTS and not name.split("_")[0].isdecimal()
    ]
    if len(start) != len(clips) + 1 or (np.diff(start.astype(np.int64)) < 0).any() or wrong_name:
        raise UserError(
            f"{path}: clip_start and clip_name do not say which frames belong to which clip.",
            file=path,
        )
    if int(start[-1]) > len(file["euler_zyx_deg_x100"]):
        raise UserError(f"{path}: clip_start goes beyond the frames that are there.", file=path)
    euler = torch.from_numpy(np.deg2rad(file["euler_zyx_deg_x100"].astype(np.float32) / 100))
    offsets = dict(zip(order, bones["offset"], strict=True))
    descriptions = tuple(map(str, file["clip_desc"])) if "clip_desc" in file else ()
    parents = [names.index(order[above[name]]) if above[name] >= 0 else -1 for name in names]
    align = _alignments(offsets, order, above, body)
    turning = [names.index(name) for name in source]
    pose = torch.cat([_retarget(part, parents, turning, align) for part in euler.split(8192)])
    # Metres of our body per unit of the capture, by the length of the legs.
    captured = sum(
        float(np.linalg.norm(offsets[name]))
        for name in ("LeftLeg", "LeftFoot", "RightLeg", "RightFoot")
    )
    size = legs_m(body.rest_joints) / captured
    root_m = torch.from_numpy(file["root_pos"]) * size if "root_pos" in file else None
    return Motion(pose, root_m, start, clips, fps, descriptions)


def _retarget(euler: Tensor, parents: list[int], turning: list[int], align: list[Tensor]) -> Tensor:
    """Turn angles [N, j, 3] into poses [N, 24, 3]; turning: [24] captured joint that turns each of
    ours.
    """
    local = euler_zyx_to_matrix(euler)  # [N, j, 3, 3] = Rz Ry Rx
    world: list[Tensor] = []
    for joint, parent in enumerate(parents):
        world.append(local[:, joint] if parent < 0 else world[parent] @ local[:, joint])
    turned = [world[theirs] @ turn for theirs, turn in zip(turning, align, strict=True)]
    return relative_poses(turned)


def relative_poses(turned: Sequence[Tensor] | dict[int, Tensor]) -> Tensor:
    """Return poses [N, 24, 3] of bones with global rotations [N, 3, 3]."""
    parts = [turned[0]] + [
        turned[PARENTS[joint]].mT @ turned[joint] for joint in range(1, JOINT_COUNT)
    ]
    return matrix_to_axis_angle(torch.stack(parts, 1))


def _alignments(
    offsets: dict[str, np.ndarray], order: list[str], above: dict[str, int], body: Body
) -> list[Tensor]:
    """Return A_j of each joint.

    The trunk's takes our line from hips to neck to theirs. The others start from their parent's, so
    that feet stay as flat under splayed legs as under straight ones.
    """
    rest_joints = body.rest_joints.float()

    def place(name: str) -> Tensor:
        own = torch.from_numpy(offsets[name]).float()
        return own if above[name] < 0 else own + place(order[above[name]])

    neck = "Neck1" if "Neck1" in offsets else "Neck"
    theirs = place(neck) - (place("LeftUpLeg") + place("RightUpLeg")) / 2
    ours_up = rest_joints[12] - (rest_joints[1] + rest_joints[2]) / 2
    trunk = about_axis(0, torch.atan2(theirs[2], theirs[1]) - torch.atan2(ours_up[2], ours_up[1]))
    align: list[Tensor] = []
    for joint, parent in enumerate(PARENTS):
        turn = trunk if parent < 0 else align[parent]
        if joint == _HEAD:
            turn = about_axis(0, torch.tensor(-HEAD_BOWED_RAD[neck]))
        if joint in FAR_END:
            name, ours = FAR_END[joint]
            turn = (
                shortest_turn(
                    turn @ (rest_joints[ours] - rest_joints[joint]),
                    torch.from_numpy(offsets[name]).float(),
                )
                @ turn
            )
        align.append(turn)
    return align


def legs_m(joints: Tensor) -> float:
    """Return the length of both legs of joints [24, 3]."""
    return sum(float((joints[a] - joints[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8)))
