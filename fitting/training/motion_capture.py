"""CMU motion capture, turned onto the 24 joints.

The capture's skeleton and ours stand differently at rest (its legs are splayed), so each bone is turned by its captured
rotation after a fixed one that takes our rest direction to the captured rest direction by the shortest turn:

    G_ours = G_captured A_j,    A_j d_ours = d_captured.

Data: mocap.cs.cmu.edu, created with funding from NSF EIA-0196217; free for all uses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT, PARENTS, rotation_matrices
from fitting.body.rotations import euler_zyx_to_matrix, matrix_to_axis_angle
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.base.errors import UserError

# Our joint -> the captured joint that turns it, and for limbs the joint at the bone's far end: (theirs, ours).
# The trunk's rest directions are taken to agree; clavicles start elsewhere in the two skeletons.
_SOURCE = (
    "Hips", "LeftUpLeg", "RightUpLeg", "LowerBack", "LeftLeg", "RightLeg", "Spine", "LeftFoot", "RightFoot", "Spine1",
    "LeftToeBase", "RightToeBase", "Neck1", "LeftShoulder", "RightShoulder", "Head", "LeftArm", "RightArm",
    "LeftForeArm", "RightForeArm", "LeftHand", "RightHand", "LeftHand", "RightHand",
)  # fmt: skip
_FAR_END = {
    1: ("LeftLeg", 4), 2: ("RightLeg", 5), 4: ("LeftFoot", 7), 5: ("RightFoot", 8), 7: ("LeftToeBase", 10),
    8: ("RightToeBase", 11), 16: ("LeftForeArm", 18), 17: ("RightForeArm", 19), 18: ("LeftHand", 20),
    19: ("RightHand", 21),
}  # fmt: skip
HELD_OUT_EVERY = 5  # every fifth subject number is kept for measuring
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
    def held_out(self) -> np.ndarray:
        """[C] true for clips of subjects that nothing is learned from."""
        return np.array([int(name.split("_")[0]) % HELD_OUT_EVERY == 0 for name in self.clip_name])

    @property
    def left_out(self) -> np.ndarray:
        """[C] true for clips of a kind of motion that nothing is learned from."""
        texts = self.clip_description or ("",) * len(self.clip_name)
        return np.array([any(kind in text.lower() for kind in LEFT_OUT_KINDS) for text in texts])

    @property
    def learned(self) -> np.ndarray:
        """[C] true for clips that may be learned from."""
        return ~self.held_out & ~self.left_out

    def frames_of(self, clips: np.ndarray) -> np.ndarray:
        """[N] bool: frames of the clips that are true in [C]."""
        return np.repeat(clips, np.diff(self.clip_start))


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


def _check_tree(bones: Mapping[str, np.ndarray], file: Mapping[str, np.ndarray], path: Path) -> None:
    """Every joint there, each after its parent; clips one after the other."""
    order, names = [str(n) for n in bones["joint"]], [str(n) for n in file["joint"]]
    lacking = sorted({*_SOURCE, *(theirs for theirs, _ in _FAR_END.values())} - (set(names) & set(order)))
    if lacking:
        raise UserError(f"{path} lacks the joints {', '.join(lacking[:4])} of CMU's skeleton.")
    above = {name: int(parent) for name, parent in zip(order, bones["parent"], strict=True)}
    for number, name in enumerate(names):
        if name not in above or above[name] >= len(order):
            raise UserError(f"{path}: joint {name[:40]!r} has no place in the skeleton.")
        if above[name] >= 0 and order[above[name]] not in names[:number]:
            raise UserError(f"{path}: joint {name[:40]!r} comes before its parent.")
    start = file["clip_start"].astype(np.int64)
    wrong_name = [n for n in map(str, file["clip_name"]) if not n.split("_")[0].isdecimal()]
    if len(start) != len(file["clip_name"]) + 1 or (np.diff(start) < 0).any() or wrong_name:
        raise UserError(f"{path}: clip_start and clip_name do not say which frames belong to which clip.")
    if int(start[-1]) > len(file["euler_zyx_deg_x100"]):
        raise UserError(f"{path}: clip_start goes beyond the frames that are there.")


def load_motion(path: str | Path, body: Body, fps: float, skeleton: str | Path | None = None) -> Motion:
    """A file of clips: `euler_zyx_deg_x100`, `joint`, `clip_start`, `clip_name` (and `clip_desc`, `root_pos`).

    skeleton: the file that has `joint`, `parent` and `offset`; the same one unless given.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} does not exist; expected a file of CMU motion capture (.npz).")
    expected = "Expected a file of CMU motion capture (.npz)."
    file = read_npz(path, expected)
    bones = file if skeleton is None else read_npz(skeleton, expected)
    check_arrays(bones, _BONES, skeleton or path, "a file of CMU motion capture")
    check_arrays(file, _CLIPS, path, "a file of CMU motion capture")
    _check_tree(bones, file, path)
    euler = torch.from_numpy(np.deg2rad(file["euler_zyx_deg_x100"].astype(np.float32) / 100))
    names = [str(name) for name in file["joint"]]
    offsets = {str(n): o for n, o in zip(bones["joint"], bones["offset"], strict=True)}
    above = {str(n): int(p) for n, p in zip(bones["joint"], bones["parent"], strict=True)}
    order = [str(name) for name in bones["joint"]]
    root = torch.from_numpy(file["root_pos"]) if "root_pos" in file else None
    start, clips = file["clip_start"], tuple(str(name) for name in file["clip_name"])
    descriptions = tuple(map(str, file["clip_desc"])) if "clip_desc" in file else ()
    parents = [names.index(order[above[name]]) if above[name] >= 0 else -1 for name in names]
    pose = torch.cat([_retarget(part, names, parents, offsets, body) for part in euler.split(8192)])
    return Motion(pose, None if root is None else root * _scale(offsets, body), start, clips, fps, descriptions)


def _retarget(
    euler: Tensor, names: list[str], parents: list[int], offsets: dict[str, np.ndarray], body: Body
) -> Tensor:
    local = euler_zyx_to_matrix(euler)  # [N, j, 3, 3] = Rz Ry Rx
    world: list[Tensor] = []
    for joint, parent in enumerate(parents):
        world.append(local[:, joint] if parent < 0 else world[parent] @ local[:, joint])
    align = _alignments(offsets, body)
    turned = [world[names.index(source)] @ turn for source, turn in zip(_SOURCE, align, strict=True)]
    relative = [turned[0]] + [turned[PARENTS[j]].mT @ turned[j] for j in range(1, JOINT_COUNT)]
    return matrix_to_axis_angle(torch.stack(relative, 1))


def _alignments(offsets: dict[str, np.ndarray], body: Body) -> list[Tensor]:
    """A_j: each starts from its parent's, so that feet stay as flat under splayed legs as under straight ones."""
    rest = body.rest_joints.float()
    align: list[Tensor] = []
    for joint, parent in enumerate(PARENTS):
        turn = torch.eye(3) if parent < 0 else align[parent]
        if joint in _FAR_END:
            theirs, ours = _FAR_END[joint]
            turn = _shortest(turn @ (rest[ours] - rest[joint]), torch.from_numpy(offsets[theirs])) @ turn
        align.append(turn)
    return align


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
