"""CMU's own files (.asf skeleton with .amc motion) and their BVH conversions, read into one form.

A skeleton file gives every bone an axis: C turns the bone's own frame into the world's, and the
motion file states a turn M in that frame. In the world it turns by R = C M C^-1, and a joint with
that turn sits where the bone begins. So an .asf becomes the tree of joints that a .bvh has. Lengths
stay in the files' own unit. The conversions leave the wrist bone's length out, so hands begin
elsewhere in the two; nothing that reads the clips uses hands.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from pose2d.base.errors import UserError

# CMU's bone -> the joint that turns it, as BVH files call it.
JOINT_OF_BONE = {
    "root": "Hips",
    "lowerback": "LowerBack",
    "upperback": "Spine",
    "thorax": "Spine1",
    "lowerneck": "Neck",
    "upperneck": "Neck1",
    "head": "Head",
    "lhipjoint": "LHipJoint",
    "lfemur": "LeftUpLeg",
    "ltibia": "LeftLeg",
    "lfoot": "LeftFoot",
    "ltoes": "LeftToeBase",
    "rhipjoint": "RHipJoint",
    "rfemur": "RightUpLeg",
    "rtibia": "RightLeg",
    "rfoot": "RightFoot",
    "rtoes": "RightToeBase",
    "lclavicle": "LeftShoulder",
    "lhumerus": "LeftArm",
    "lradius": "LeftForeArm",
    "lwrist": "LeftHand",
    "lhand": "LeftFingerBase",
    "lfingers": "LeftHandIndex1",
    "lthumb": "LThumb",
    "rclavicle": "RightShoulder",
    "rhumerus": "RightArm",
    "rradius": "RightForeArm",
    "rwrist": "RightHand",
    "rhand": "RightFingerBase",
    "rfingers": "RightHandIndex1",
    "rthumb": "RThumb",
}


@dataclass(frozen=True)
class Skeleton:
    """A tree of joints; parents come before their children."""

    joint: tuple[str, ...]  # [J]
    parent: tuple[int, ...]  # [J] -1 for the root
    offset: np.ndarray  # [J, 3] from the parent at rest, in the file's unit


@dataclass(frozen=True)
class Capture:
    """One clip."""

    skeleton: Skeleton
    euler_zyx_deg: np.ndarray  # [F, J, 3] R = Rz Ry Rx, each joint relative to its parent
    root: np.ndarray  # [F, 3] in the file's unit, y up
    fps: float


@dataclass(frozen=True)
class Bone:
    """Describe one bone of an .asf file."""

    name: str
    parent: str
    offset: np.ndarray  # [3] from the parent's beginning: the parent's direction times its length
    axis: Rotation  # C
    dof: tuple[
        str, ...
    ]  # the channels that the motion file states, in order: rx, ry, rz (root: tx, ty, tz too)


def read_asf(path: Path) -> list[Bone]:
    """Read the skeleton of an .asf file."""
    sections = dict(_sections(path))
    root = _fields(sections.get("root", []))
    data: dict[str, dict[str, list[str]]] = {}
    for block in re.findall(
        r"\bbegin\b(.*?)\bend\b", "\n".join(sections.get("bonedata", [])), re.S
    ):
        fields = _fields(block.splitlines())
        data[_one(fields, "name", path)] = fields
    children = [
        line.split()
        for line in sections.get("hierarchy", [])
        if line.split()[0] not in ("begin", "end")
    ]
    if not root or not data or not children:
        raise UserError(f"{path} is not an .asf skeleton: it lacks :root, :bonedata or :hierarchy.")
    parents = {child: parent for parent, *below in children for child in below}
    turned = Rotation.from_euler(
        "xyz", _numbers(root.get("orientation", ["0"] * 3), 3, path), degrees=True
    )
    bones = [Bone("root", "", np.zeros(3), turned, tuple(word.lower() for word in root["order"]))]
    for name in (child for _, *below in children for child in below):
        if name not in data:
            raise UserError(f"{path}: bone {name} is in the hierarchy and has no data.")
        fields = data[name]
        above = data.get(parents[name])
        axis = Rotation.from_euler("xyz", _numbers(fields["axis"], 3, path), degrees=True)
        offset = np.zeros(3)
        if above is not None:
            offset = _numbers(above["direction"], 3, path) * _numbers(above["length"], 1, path)[0]
        bones.append(Bone(name, parents[name], offset, axis, tuple(fields.get("dof", ()))))
    return bones


def read_amc(path: Path, bones: Sequence[Bone], fps: float) -> Capture:
    """Read the motion of a skeleton.

    The files do not state their rate: CMU's is 120, for some subjects 60.
    """
    by_name = {bone.name: bone for bone in bones}
    frames: list[dict[str, np.ndarray]] = []
    for line in path.read_text("utf-8", "replace").splitlines():
        words = line.split()
        if not words or words[0].startswith(("#", ":")):
            continue
        if len(words) == 1 and words[0].isdigit():
            frames.append({})
        elif words[0] in by_name and frames:
            frames[-1][words[0]] = _numbers(words[1:], len(by_name[words[0]].dof), path)
        else:
            raise UserError(
                f"{path}: {line[:60]!r} is neither a frame number nor a bone of the skeleton."
            )
    if not frames:
        raise UserError(f"{path} holds no frames.")
    turns = [_turns(bone, frames, path) for bone in bones]
    names = [bone.name for bone in bones]
    unknown = sorted(set(names) - set(JOINT_OF_BONE))
    if unknown:
        raise UserError(
            f"{path}: the skeleton has bones that CMU's has not: {', '.join(unknown[:4])}."
        )
    skeleton = Skeleton(
        tuple(JOINT_OF_BONE[name] for name in names),
        tuple(names.index(bone.parent) if bone.parent else -1 for bone in bones),
        np.array([bone.offset for bone in bones]),
    )
    return Capture(
        skeleton, np.stack(turns, 1), _values(bones[0], frames, ("tx", "ty", "tz"), path), fps
    )


def read_bvh(path: Path) -> Capture:
    """Read a BVH file, whatever the order of its channels."""
    head, _, motion = path.read_text("utf-8", "replace").partition("MOTION")
    joints, parents, offsets, channels = _bvh_tree(head, path)
    lines = motion.split("\n")
    try:
        step_s = next(
            float(line.split(":")[1]) for line in lines if line.strip().startswith("Frame Time")
        )
    except (StopIteration, ValueError):
        raise UserError(f"{path} is not a BVH file: it states no Frame Time.") from None
    rows = [line.split() for line in lines if line.strip() and ":" not in line]
    width = sum(map(len, channels))
    if not rows or {len(row) for row in rows} != {width}:
        raise UserError(f"{path}: expected {width} numbers in every frame.")
    values = np.array(rows, float)
    euler = []
    root = np.zeros((len(values), 3))
    place = 0
    for number, names in enumerate(channels):
        part = dict(zip(names, values[:, place : place + len(names)].T, strict=True))
        place += len(names)
        if number == 0 and "Xposition" in part:
            root = np.stack([part[f"{axis}position"] for axis in "XYZ"], 1)
        turning = [name[0] for name in names if name.endswith("rotation")]
        angles = np.stack([part[f"{axis}rotation"] for axis in turning], 1)
        euler.append(
            angles
            if "".join(turning) == "ZYX"
            else _zyx(Rotation.from_euler("".join(turning), angles, True))
        )
    return Capture(
        Skeleton(tuple(joints), tuple(parents), np.array(offsets)),
        np.stack(euler, 1),
        root,
        1 / step_s,
    )


def _bvh_tree(
    head: str, path: Path
) -> tuple[list[str], list[int], list[list[float]], list[list[str]]]:
    joints = []
    parents = []
    offsets = []
    channels = []
    above: list[int] = []
    words = iter(head.split())
    try:
        for word in words:
            if word in ("ROOT", "JOINT"):
                joints.append(next(words))
                parents.append(above[-1] if above else -1)
            elif word == "End":  # the tip of a bone: no joint
                above.append(-2)
                for _ in range(6):  # Site { OFFSET x y z
                    next(words)
            elif word == "{":
                above.append(len(joints) - 1)
            elif word == "}":
                above.pop()
            elif word == "OFFSET":
                offsets.append([float(next(words)) for _ in range(3)])
            elif word == "CHANNELS":
                channels.append([next(words) for _ in range(int(next(words)))])
    except (StopIteration, ValueError, IndexError):
        raise UserError(f"{path} is not a BVH file, or it is cut off.") from None
    if not joints or not len(joints) == len(offsets) == len(channels):
        raise UserError(f"{path} is not a BVH file: every joint has an OFFSET and CHANNELS.")
    return joints, parents, offsets, channels


def _turns(bone: Bone, frames: list[dict[str, np.ndarray]], path: Path) -> np.ndarray:
    """Return z, y, x angles [F, 3] in degrees of C M C^-1, with M = Rz Ry Rx."""
    own = Rotation.from_euler("xyz", _values(bone, frames, ("rx", "ry", "rz"), path), degrees=True)
    return _zyx(bone.axis * own * bone.axis.inv())


def _values(
    bone: Bone, frames: list[dict[str, np.ndarray]], channels: Sequence[str], path: Path
) -> np.ndarray:
    """Return a bone's channels [F, 3]; 0 for those it has not."""
    values = np.zeros((len(frames), 3))
    columns = [(k, bone.dof.index(name)) for k, name in enumerate(channels) if name in bone.dof]
    for t, frame in enumerate(frames if columns else ()):
        if bone.name not in frame:
            raise UserError(f"{path}: frame {t + 1} lacks {bone.name}.")
        for k, column in columns:
            values[t, k] = frame[bone.name][column]
    return values


def _zyx(turn: Rotation) -> np.ndarray:
    return turn.as_euler("ZYX", degrees=True)


def _sections(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Name and lines of every `:section`."""
    name = ""
    lines: list[str] = []
    for line in path.read_text("utf-8", "replace").splitlines():
        line = line.split("#")[0].rstrip()
        if line.startswith(":"):
            if name:
                yield name, lines
            name = line[1:].split()[0].lower()
            lines = []
        elif line.strip():
            lines.append(line)
    if name:
        yield name, lines


def _fields(lines: Sequence[str]) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in lines if (words := line.split())}


def _one(fields: dict[str, list[str]], name: str, path: Path) -> str:
    if len(fields.get(name, ())) != 1:
        raise UserError(f"{path}: a bone without a {name}.")
    return fields[name][0]


def _numbers(words: Sequence[str], count: int, path: Path) -> np.ndarray:
    try:
        values = np.array([float(word) for word in words[:count]])
    except ValueError:
        values = np.zeros(0)
    if len(values) != count or not np.isfinite(values).all():
        raise UserError(f"{path}: expected {count} numbers, got {' '.join(words)[:60]!r}.")
    return values
