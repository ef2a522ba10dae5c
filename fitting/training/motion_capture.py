"""CMU's and ACCAD's motion capture, turned onto the 24 joints.

The capture's skeleton and ours stand differently at rest (its legs are splayed), so each bone is turned by its captured
rotation after a fixed one that takes our rest direction to the captured rest direction by the shortest turn:

    G_ours = G_captured A_j,    A_j d_ours = d_captured.

CMU's people are then made to stand and to raise their shoulders as people do (`knees.py`, `collars.py`).

Data: mocap.cs.cmu.edu, created with funding from NSF EIA-0196217; free for all uses. ACCAD, The Ohio State University,
Open Motion Project; CC BY 3.0.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT, PARENTS, rotation_matrices
from fitting.body.rotations import euler_zyx_to_matrix, matrix_to_axis_angle
from fitting.training.collars import with_raised_collars
from fitting.training.knees import lifted, straightened, subjects_excess_deg
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.errors import UserError

# Our joint -> the captured joint that turns it, and for limbs the joint at the bone's far end: (theirs, ours).
# Clavicles start elsewhere in the two skeletons.
_LIMBS = (
    "LeftShoulder", "RightShoulder", "Head", "LeftArm", "RightArm", "LeftForeArm", "RightForeArm", "LeftHand",
    "RightHand", "LeftHand", "RightHand",
)  # fmt: skip
_CMU = (
    "Hips", "LeftUpLeg", "RightUpLeg", "LowerBack", "LeftLeg", "RightLeg", "Spine", "LeftFoot", "RightFoot", "Spine1",
    "LeftToeBase", "RightToeBase", "Neck1", *_LIMBS,
)  # fmt: skip
_ACCAD = tuple({"LowerBack": "ToSpine", "Neck1": "Neck"}.get(name, name) for name in _CMU)
_FAR_END = {
    1: ("LeftLeg", 4), 2: ("RightLeg", 5), 4: ("LeftFoot", 7), 5: ("RightFoot", 8), 7: ("LeftToeBase", 10),
    8: ("RightToeBase", 11), 12: ("Head", 15), 16: ("LeftForeArm", 18), 17: ("RightForeArm", 19), 18: ("LeftHand", 20),
    19: ("RightHand", 21),
}  # fmt: skip
_HEAD = 15
# Pitch of the head's bone in quiet standing, in the median, when people look ahead: by the name of the skeleton's neck.
HEAD_BOWED_RAD = {"Neck1": math.radians(15), "Neck": math.radians(2)}
HELD_OUT_EVERY = 5  # every fifth subject number is kept for measuring
# The same recordings under another number: nothing may be learned from them either.
COPIES_OF_HELD_OUT = (73, 91, 117, 121, 123)  # of 70, 105, 85, 90 and 70
# Kinds of motion, by words of their descriptions, that nothing is learned from: to measure what is new to everything.
LEFT_OUT_KINDS = ("cartwheel", "balanc", "yoga", "crawl")


@dataclass(frozen=True)
class Motion:
    """Captured motion on our joints, clips one after the other."""

    pose: Tensor  # [N, 24, 3] axis-angle; the root in the capture's frame, y up
    root_m: Tensor | None  # [N, 3] pelvis in metres at the body's size, y up, or None when not recorded
    clip_start: np.ndarray  # [C + 1] first frame of each clip, and the end
    clip_name: tuple[str, ...]  # [C] subject_take
    fps: float
    clip_description: tuple[str, ...] = ()  # [C], or none are known

    def clip(self, number: int) -> slice:
        return slice(int(self.clip_start[number]), int(self.clip_start[number + 1]))

    @property
    def clip_subject(self) -> np.ndarray:
        """[C] number of the subject."""
        return np.array([int(name.split("_")[0]) for name in self.clip_name])

    @property
    def held_out(self) -> np.ndarray:
        """[C] true for clips of subjects that nothing is learned from."""
        return self.clip_subject % HELD_OUT_EVERY == 0

    @property
    def left_out(self) -> np.ndarray:
        """[C] true for clips of a kind of motion that nothing is learned from."""
        texts = self.clip_description or ("",) * len(self.clip_name)
        return np.array([any(kind in text.lower() for kind in LEFT_OUT_KINDS) for text in texts])

    @property
    def learned(self) -> np.ndarray:
        """[C] true for clips that may be learned from."""
        return ~self.held_out & ~self.left_out & ~np.isin(self.clip_subject, COPIES_OF_HELD_OUT)

    def frames_of(self, clips: np.ndarray) -> np.ndarray:
        """[N] bool: frames of the clips that are true in [C]."""
        return np.repeat(clips, np.diff(self.clip_start))

    def poses_of(self, clips: np.ndarray) -> Tensor:
        """[n, 24, 3] of the clips that are true in [C]."""
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


def _check_tree(
    bones: Mapping[str, np.ndarray], file: Mapping[str, np.ndarray], path: Path, source: tuple[str, ...]
) -> None:
    """Every joint there, each after its parent; clips one after the other."""
    order, names = [str(n) for n in bones["joint"]], [str(n) for n in file["joint"]]
    lacking = sorted({*source, *(theirs for theirs, _ in _FAR_END.values())} - (set(names) & set(order)))
    if lacking:
        raise UserError(f"{path} lacks the joints {', '.join(lacking[:4])} of the skeleton.")
    above = {name: int(parent) for name, parent in zip(order, bones["parent"], strict=True)}
    for number, name in enumerate(names):
        if name not in above or above[name] >= len(order):
            raise UserError(f"{path}: joint {name[:40]!r} has no place in the skeleton.")
        if above[name] >= 0 and order[above[name]] not in names[:number]:
            raise UserError(f"{path}: joint {name[:40]!r} comes before its parent.")
    start = file["clip_start"].astype(np.int64)
    wrong_name = [n for n in map(str, file["clip_name"]) if source == _CMU and not n.split("_")[0].isdecimal()]
    if len(start) != len(file["clip_name"]) + 1 or (np.diff(start) < 0).any() or wrong_name:
        raise UserError(f"{path}: clip_start and clip_name do not say which frames belong to which clip.")
    if int(start[-1]) > len(file["euler_zyx_deg_x100"]):
        raise UserError(f"{path}: clip_start goes beyond the frames that are there.")


def load_motion(path: str | Path, body: Body, fps: float, skeleton: str | Path | None = None) -> Motion:
    """A file of clips as people move: CMU's knees and shoulders corrected. Arguments as of `load_captured`."""
    motion = load_captured(path, body, fps, skeleton)
    excess = subjects_excess_deg()
    of_clip = torch.tensor([excess.get(int(subject), (0.0, 0.0)) for subject in motion.clip_subject]).reshape(-1, 2)
    by_frame = of_clip.repeat_interleave(torch.from_numpy(np.diff(motion.clip_start)), 0)
    parts = zip(motion.pose.split(8192), by_frame.split(8192), strict=True)
    pose = torch.cat([with_raised_collars(straightened(p, e, body), body) for p, e in parts])
    root = None if motion.root_m is None else lifted(motion.root_m, motion.pose, pose, body)
    return replace(motion, pose=pose, root_m=root)


def load_accad(path: str | Path, body: Body) -> Motion:
    """ACCAD's one woman, at 30 frames a second. Her collars follow the arms as CMU's do: the file's hardly move."""
    motion = _load(path, body, 30.0, None, _ACCAD)
    names = tuple(f"1_{name}" for name in motion.clip_name)
    return replace(motion, pose=with_raised_collars(motion.pose, body), clip_name=names)


def load_captured(path: str | Path, body: Body, fps: float, skeleton: str | Path | None = None) -> Motion:
    """A file of CMU's clips as captured: `euler_zyx_deg_x100`, `joint`, `clip_start`, `clip_name` (and `clip_desc`,
    `root_pos`).

    skeleton: the file that has `joint`, `parent` and `offset`; the same one unless given.
    """
    return _load(path, body, fps, skeleton, _CMU)


def _load(path: str | Path, body: Body, fps: float, skeleton: str | Path | None, source: tuple[str, ...]) -> Motion:
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} does not exist; expected a file of motion capture (.npz).")
    expected = "Expected a file of motion capture (.npz)."
    file = read_npz(path, expected)
    bones = file if skeleton is None else read_npz(skeleton, expected)
    check_arrays(bones, _BONES, skeleton or path, "a file of motion capture")
    check_arrays(file, _CLIPS, path, "a file of motion capture")
    _check_tree(bones, file, path, source)
    euler = torch.from_numpy(np.deg2rad(file["euler_zyx_deg_x100"].astype(np.float32) / 100))
    names = [str(name) for name in file["joint"]]
    offsets = {str(n): o for n, o in zip(bones["joint"], bones["offset"], strict=True)}
    above = {str(n): int(p) for n, p in zip(bones["joint"], bones["parent"], strict=True)}
    order = [str(name) for name in bones["joint"]]
    root = torch.from_numpy(file["root_pos"]) if "root_pos" in file else None
    start, clips = file["clip_start"], tuple(str(name) for name in file["clip_name"])
    descriptions = tuple(map(str, file["clip_desc"])) if "clip_desc" in file else ()
    parents = [names.index(order[above[name]]) if above[name] >= 0 else -1 for name in names]
    align = _alignments(offsets, order, above, body)
    turning = [names.index(name) for name in source]
    pose = torch.cat([_retarget(part, parents, turning, align) for part in euler.split(8192)])
    return Motion(pose, None if root is None else root * _scale(offsets, body), start, clips, fps, descriptions)


def _retarget(euler: Tensor, parents: list[int], turning: list[int], align: list[Tensor]) -> Tensor:
    """Angles [N, j, 3] -> poses [N, 24, 3]; turning: [24] captured joint that turns each of ours."""
    local = euler_zyx_to_matrix(euler)  # [N, j, 3, 3] = Rz Ry Rx
    world: list[Tensor] = []
    for joint, parent in enumerate(parents):
        world.append(local[:, joint] if parent < 0 else world[parent] @ local[:, joint])
    turned = [world[theirs] @ turn for theirs, turn in zip(turning, align, strict=True)]
    relative = [turned[0]] + [turned[PARENTS[j]].mT @ turned[j] for j in range(1, JOINT_COUNT)]
    return matrix_to_axis_angle(torch.stack(relative, 1))


def _alignments(offsets: dict[str, np.ndarray], order: list[str], above: dict[str, int], body: Body) -> list[Tensor]:
    """A_j: the trunk's takes our line from hips to neck to theirs, the others start from their parent's, so that feet
    stay as flat under splayed legs as under straight ones."""
    rest = body.rest_joints.float()

    def place(name: str) -> Tensor:
        own = torch.from_numpy(offsets[name]).float()
        return own if above[name] < 0 else own + place(order[above[name]])

    neck = "Neck1" if "Neck1" in offsets else "Neck"
    theirs = place(neck) - (place("LeftUpLeg") + place("RightUpLeg")) / 2
    trunk = _pitch(math.atan2(theirs[2], theirs[1]) - _lean_rad(rest))
    align: list[Tensor] = []
    for joint, parent in enumerate(PARENTS):
        turn = trunk if parent < 0 else align[parent]
        if joint == _HEAD:
            turn = _pitch(-HEAD_BOWED_RAD[neck])
        if joint in _FAR_END:
            name, ours = _FAR_END[joint]
            turn = _shortest(turn @ (rest[ours] - rest[joint]), torch.from_numpy(offsets[name])) @ turn
        align.append(turn)
    return align


def _lean_rad(rest: Tensor) -> float:
    ours = rest[12] - (rest[1] + rest[2]) / 2
    return math.atan2(ours[2], ours[1])


def _pitch(forwards_rad: float) -> Tensor:
    return rotation_matrices(torch.tensor([forwards_rad, 0.0, 0.0]))


def _shortest(source: Tensor, target: Tensor) -> Tensor:
    """The rotation matrix of the shortest turn that takes one direction to the other."""
    a, b = source / source.norm(), target / target.norm()
    axis = torch.linalg.cross(a, b)
    sine = axis.norm().clamp(min=1e-12)
    return rotation_matrices(axis / sine * torch.atan2(sine, a @ b))


def _scale(offsets: dict[str, np.ndarray], body: Body) -> float:
    """Metres of our body per unit of the capture, by the length of the legs."""
    captured = sum(float(np.linalg.norm(offsets[name])) for name in ("LeftLeg", "LeftFoot", "RightLeg", "RightFoot"))
    rest = body.rest_joints
    ours = sum(float((rest[a] - rest[b]).norm()) for a, b in ((1, 4), (4, 7), (2, 5), (5, 8)))
    return ours / captured
