"""Skeletons of other programs: names, hierarchy and rest pose (`--rig`).

Every joint of SMPL (24, or 52 with fingers) turns a bone of the rig; SMPL's `left_hip` turns the
thigh. Rigs have more bones than SMPL has joints (a root on the floor, a second neck bone, ends);
these follow their parents. At rest a rig stands on the floor with its feet on either side of the
origin, in its program's T-pose or A-pose. The default rig, `smpl`, is the fit's own skeleton."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from fitmesh.exports import DEFAULT
from fitmesh.exports.scene import RestBody

_CENTRE = ("pelvis", "spine1", "spine2", "spine3", "neck", "head")
_SIDE = ("hip", "knee", "ankle", "foot", "collar", "shoulder", "elbow", "wrist", "hand")
_FINGERS = ("index", "middle", "pinky", "ring", "thumb")
# By rig: names of _CENTRE, names of _SIDE with {} for the side, the words for left and right, the
# name of a finger's bone with the words for _FINGERS and for a finger's three bones; then the bones
# that SMPL does not have (`_extra_bones`) and the rest pose.
_RULES: Mapping[str, Any] = json.loads(Path(__file__).with_name("rigs.json").read_text("utf-8"))


@dataclass(frozen=True)
class Rig:
    """A person's rig at rest: B bones, first those that SMPL's J joints turn, in SMPL's order.

    Scene axes: x to the body's left, y up, z to the front, metres."""

    names: tuple[str, ...]  # [B]
    parents: tuple[int, ...]  # [B] -1: none
    place_m: np.ndarray  # [B, 3] where each bone begins
    axes: np.ndarray  # [B, 3, 3] how each bone is turned
    from_t_pose: np.ndarray  # [J, 3, 3] how each joint is turned to get from the T-pose to rest
    vertices_m: np.ndarray  # [V, 3] the skin at rest

    @property
    def joints(self) -> int:
        """Return the number of bones that joints turn."""
        return len(self.from_t_pose)

    @property
    def root(self) -> int | None:
        """Return the bone on the floor above the hips, if the rig has one."""
        return self.parents[0] if self.parents[0] >= 0 else None

    @cached_property
    def order(self) -> list[int]:
        """Return the bones with parents before children."""
        order: list[int] = []
        waiting = [bone for bone, parent in enumerate(self.parents) if parent < 0]
        while waiting:
            bone = waiting.pop(0)
            order.append(bone)
            waiting += [child for child, parent in enumerate(self.parents) if parent == bone]
        return order

    def offset_m(self, bone: int) -> np.ndarray:
        """Return a bone's place in its parent's axes; of a bone without a parent its place."""
        parent = self.parents[bone]
        if parent < 0:
            return self.place_m[bone]
        return self.axes[parent].T @ (self.place_m[bone] - self.place_m[parent])

    def rest_turn(self, bone: int) -> Rotation:
        """Return a bone's rotation at rest relative to its parent."""
        parent = self.parents[bone]
        axes = self.axes[bone]
        return Rotation.from_matrix(axes if parent < 0 else self.axes[parent].T @ axes)

    def in_scene_axes(self) -> "Rig":
        """Return the rig with bones that are not turned at rest."""
        return replace(self, axes=np.tile(np.eye(3), (len(self.names), 1, 1)))

    def motion(self, turns: Sequence[Rotation], parents: Sequence[int]) -> list[Rotation]:
        """Return the rotations of the first J bones relative to their parents over T frames, from
        those of SMPL's joints relative to theirs.
        """
        world: list[Rotation] = []
        for joint, parent in enumerate(parents):
            world.append(turns[joint] if parent < 0 else world[parent] * turns[joint])
        bones = [
            turn * Rotation.from_matrix(self.from_t_pose[joint].T @ self.axes[joint])
            for joint, turn in enumerate(world)
        ]
        return [self._parent_turn(joint, bones).inv() * bones[joint] for joint in range(len(bones))]

    def _parent_turn(self, bone: int, bones: Sequence[Rotation]) -> Rotation:
        """Return how the parent of a bone is turned: a bone that no joint turns follows its own."""
        parent = self.parents[bone]
        at_rest = Rotation.identity()
        while parent >= self.joints:
            at_rest = self.rest_turn(parent) * at_rest
            parent = self.parents[parent]
        return at_rest if parent < 0 else bones[parent] * at_rest


def rig_names(rig: str, joints: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the bones that SMPL's or SMPL-H's joints turn."""
    if rig == DEFAULT:
        return tuple(joints)
    rules = _RULES[rig]
    names = dict(zip(_CENTRE, rules["centre"], strict=True))
    for side, side_word in zip(("left", "right"), rules["sides"], strict=True):
        for part, pattern in zip(_SIDE, rules["side"], strict=True):
            names[f"{side}_{part}"] = pattern.format(side_word)
        for finger, finger_word in zip(_FINGERS, rules["fingers"], strict=True):
            words = rules.get("thumb", rules["bones"]) if finger == "thumb" else rules["bones"]
            for number, bone_word in enumerate(words, 1):
                names[f"{side}_{finger}{number}"] = rules["finger_bone"].format(
                    side=side_word, finger=finger_word, bone=bone_word
                )
    return tuple(names[joint] for joint in joints)


def rig_of(rest_pose: RestBody, rig: str, with_root: bool = True) -> Rig:
    """Return a person's rig at rest. with_root: with the bone above the hips, if it has one."""
    names = rig_names(rig, rest_pose.joint_names)
    count = len(names)
    turned = np.tile(np.eye(3), (count, 1, 1))
    if rig == DEFAULT:
        place_m = rest_pose.joints_m
        return Rig(names, rest_pose.parents, place_m, turned, turned, rest_pose.vertices_m)
    rules = _RULES[rig]
    for side, sign in (("left", -1), ("right", 1)):
        shoulder = rest_pose.joint_names.index(f"{side}_shoulder")
        down = Rotation.from_euler("Z", sign * rules.get("arms_down_deg", 0), degrees=True)
        for joint in _descendants(rest_pose.parents, shoulder):
            turned[joint] = down.as_matrix()
    joints_m, vertices_m = _posed(rest_pose, turned)
    feet_m = joints_m[[rest_pose.joint_names.index(f"{side}_ankle") for side in ("left", "right")]]
    origin_m = np.array([feet_m[:, 0].mean(), vertices_m[:, 1].min(), feet_m[:, 2].mean()])
    joints_m = joints_m - origin_m
    vertices_m = vertices_m - origin_m
    extra = _extra_bones(rules, rest_pose, names, joints_m, vertices_m, with_root)
    parents = _parents(rules, rest_pose, names, extra)
    place_m = np.concatenate([joints_m, np.reshape([bone.place_m for bone in extra], (-1, 3))])
    all_names = (*names, *(bone.name for bone in extra))
    axes = np.tile(np.eye(3), (len(all_names), 1, 1))
    if rules.get("bones_along_y"):
        axes = _axes_along_bones(parents, place_m)
    return Rig(all_names, parents, place_m, axes, turned, vertices_m)


def _descendants(parents: Sequence[int], joint: int) -> list[int]:
    """Return a joint and all joints beyond it; parents come before children."""
    found = [joint]
    for child, parent in enumerate(parents):
        if parent in found:
            found.append(child)
    return found


def _posed(rest_pose: RestBody, turned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return joints and skin of a T-pose whose joints are turned [J, 3, 3] in the body's axes."""
    joints_m = rest_pose.joints_m.copy()
    for joint, parent in enumerate(rest_pose.parents):
        if parent >= 0:
            joints_m[joint] = joints_m[parent] + turned[parent] @ rest_pose.offsets_m[joint]
    from_joint = rest_pose.vertices_m[:, None] - rest_pose.joints_m  # [V, J, 3]
    moved = np.einsum("jab,vjb->vja", turned, from_joint) + joints_m
    return joints_m, np.einsum("vj,vja->va", rest_pose.weights, moved)


@dataclass(frozen=True)
class _ExtraBone:
    """A bone that no joint turns."""

    name: str
    parent: str  # empty: none
    place_m: np.ndarray


def _extra_bones(
    rules: Mapping[str, Any],
    rest_pose: RestBody,
    names: Sequence[str],
    joints_m: np.ndarray,
    vertices_m: np.ndarray,
    with_root: bool,
) -> list[_ExtraBone]:
    """Return the bones that a rig has beyond SMPL's: its root, bones between two joints ("between":
    joint -> name and share of the way from the joint's parent), and ends ("ends": name -> joint and
    the place of its skin where the end is).
    """
    extra = []
    if "root" in rules and with_root:
        extra.append(_ExtraBone(rules["root"], "", np.zeros(3)))
    for joint_name, (name, share) in rules.get("between", {}).items():
        if joint_name in rest_pose.joint_names and _is_used(rest_pose, joint_name):
            joint = rest_pose.joint_names.index(joint_name)
            parent = rest_pose.parents[joint]
            place_m = joints_m[parent] + share * (joints_m[joint] - joints_m[parent])
            extra.append(_ExtraBone(name, names[parent], place_m))
    for name, (joint_name, where) in rules.get("ends", {}).items():
        joint = rest_pose.joint_names.index(joint_name)
        place_m = joints_m[joint]
        if where != "joint":
            skin = np.flatnonzero(rest_pose.weights[:, joint] > 0.5)
            score = {"top": vertices_m[:, 1], "front": vertices_m[:, 2], "back": -vertices_m[:, 2]}
            place_m = vertices_m[skin[score[where][skin].argmax()]]
        extra.append(_ExtraBone(name, names[joint], place_m))
    return extra


def _is_used(rest_pose: RestBody, joint_name: str) -> bool:
    """Say whether a joint is the first of its finger in this body: SMPL's `left_hand` is where the
    middle finger begins, unless there are fingers.
    """
    return not (joint_name.endswith("_hand") and "left_middle1" in rest_pose.joint_names)


def _parents(
    rules: Mapping[str, Any],
    rest_pose: RestBody,
    names: Sequence[str],
    extra: Sequence[_ExtraBone],
) -> tuple[int, ...]:
    """Return the parents of all bones."""
    number = {name: n for n, name in enumerate((*names, *(bone.name for bone in extra)))}
    parents = list(rest_pose.parents)
    if "root" in rules and rules["root"] in number:
        parents[0] = number[rules["root"]]
    for joint_name, (name, _) in rules.get("between", {}).items():
        if name in number and joint_name in rest_pose.joint_names:
            parents[rest_pose.joint_names.index(joint_name)] = number[name]
    for joint_name, name in rules.get("parents", {}).items():
        if name in number and joint_name in rest_pose.joint_names:
            parents[rest_pose.joint_names.index(joint_name)] = number[name]
    return (*parents, *(number[bone.parent] if bone.parent else -1 for bone in extra))


def _axes_along_bones(parents: Sequence[int], place_m: np.ndarray) -> np.ndarray:
    """Return axes [B, 3, 3] whose y points to the bone's children, as Blender's bones do; ends
    continue their parents.
    """
    axes = np.tile(np.eye(3), (len(parents), 1, 1))
    order = sorted(range(len(parents)), key=lambda bone: _depth(parents, bone))
    for bone in order:
        children = [child for child, parent in enumerate(parents) if parent == bone]
        ways = [place_m[child] - place_m[bone] for child in children]
        way = np.mean(ways, axis=0) if ways else np.zeros(3)
        if np.linalg.norm(way) < 1e-4:
            axes[bone] = axes[parents[bone]] if parents[bone] >= 0 else np.eye(3)
            continue
        along = way / np.linalg.norm(way)
        rotation, _ = Rotation.align_vectors(along[None], [[0.0, 1.0, 0.0]])
        axes[bone] = rotation.as_matrix()
    return axes


def _depth(parents: Sequence[int], bone: int) -> int:
    """Return how many bones are above a bone."""
    depth = 0
    while parents[bone] >= 0:
        bone = parents[bone]
        depth += 1
    return depth
