"""From MakeHuman's 163 bones to the 24 joints of SMPL's tree: positions, skinning weights, mirror
images.
"""

from dataclasses import dataclass

import numpy as np

from tools.open_body.assets import Assets
from tools.open_body.people import Population

JOINT_NAMES = (
    "pelvis",
    "left_hip",
    "right_hip",
    "spine1",
    "left_knee",
    "right_knee",
    "spine2",
    "left_ankle",
    "right_ankle",
    "spine3",
    "left_foot",
    "right_foot",
    "neck",
    "left_collar",
    "right_collar",
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hand",
    "right_hand",
)
PARENTS = np.array(
    [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]
)
NUMBER = {name: number for number, name in enumerate(JOINT_NAMES)}
_OTHER = {"left": "right", "right": "left"}
JOINT_MIRROR = np.array(
    [NUMBER["_".join(_OTHER.get(part, part) for part in name.split("_"))] for name in JOINT_NAMES]
)
FLIP = np.array([-1.0, 1, 1])
_SIDES = (("left", "L"), ("right", "R"))

# Which joint moves what a bone moves; the first prefix that fits. Trunk bones are shared out by
# height instead.
_TRUNK = ("root", "pelvis", "breast", "spine")
_LIMBS = (
    ("upperleg", "hip"),
    ("lowerleg", "knee"),
    ("foot", "ankle"),
    ("toe", "foot"),
    ("clavicle", "collar"),
    ("shoulder01", "collar"),
    ("upperarm", "shoulder"),
    ("lowerarm", "elbow"),
    ("wrist", "wrist"),
    ("metacarpal", "wrist"),
    ("finger1", "wrist"),
    ("finger", "hand"),
)
_SPINE_BLEND_M = (
    ("spine1", 0.07),
    ("spine2", 0.055),
    ("spine3", 0.055),
)  # half-width of each joint's transition


@dataclass(frozen=True)
class Rigged:
    """The population with its 24 joints; the pelvis of every person is the origin."""

    vertices: np.ndarray  # [P, n, 3] metres
    joints: np.ndarray  # [P, 24, 3] metres
    mean_vertices: np.ndarray  # [n, 3]
    weights: np.ndarray  # [n, 24], left and right alike
    triangles: np.ndarray  # [m, 3], left and right alike


def rig(assets: Assets, population: Population) -> Rigged:
    """Give the population SMPL's joints."""
    joints = _joints(population)
    vertices = population.vertices - joints[:, :1]
    joints = joints - joints[:, :1]
    mean = vertices.mean(0)
    mean_joints = joints.mean(0)
    weights = _weights(assets.bone_weights, population.bones, mean[:, 1], mean_joints)
    weights = 0.5 * (weights + weights[assets.mirror][:, JOINT_MIRROR])
    return Rigged(
        vertices, joints, mean, weights, _triangles(assets.kept_quads, assets.mirror, mean)
    )


def _joints(population: Population) -> np.ndarray:
    """Return where SMPL puts its joints, [P, 24, 3], as mixtures of MakeHuman's bone heads."""
    number = {bone: index for index, bone in enumerate(population.bones)}

    def head(bone: str) -> np.ndarray:
        return population.bone_heads[:, number[bone]]

    joints = np.zeros((len(population.bone_heads), 24, 3), np.float32)
    mid_hip = 0.5 * (head("upperleg01.L") + head("upperleg01.R"))
    for side, letter in _SIDES:
        ankle = head(f"foot.{letter}")
        wrist = head(f"wrist.{letter}")
        collar = 0.3 * head(f"clavicle.{letter}") + 0.7 * head(f"shoulder01.{letter}")
        for joint, place in (
            ("hip", mid_hip + 0.85 * (head(f"upperleg01.{letter}") - mid_hip)),
            ("knee", head(f"lowerleg01.{letter}")),
            ("ankle", ankle),
            ("foot", ankle + 0.9 * (head(f"toe2-1.{letter}") - ankle)),
            ("collar", collar),
            ("shoulder", head(f"upperarm01.{letter}")),
            ("elbow", head(f"lowerarm01.{letter}")),
            ("wrist", wrist),
            ("hand", wrist + 0.85 * (head(f"finger3-1.{letter}") - wrist)),
        ):
            joints[:, NUMBER[f"{side}_{joint}"]] = place
    pelvis = 0.85 * mid_hip + 0.15 * head("neck01")
    pelvis[:, 2] = 0.5 * (head("spine05") + head("spine04"))[:, 2]
    for joint, place in (
        ("pelvis", pelvis),
        ("spine1", 0.7 * head("spine03") + 0.3 * head("spine02")),
        ("spine2", 0.5 * head("spine02") + 0.5 * head("spine01")),
        ("spine3", 0.85 * head("spine01") + 0.15 * head("spine02")),
        ("neck", head("neck01")),
        ("head", head("head")),
    ):
        joints[:, NUMBER[joint]] = place
    return joints


def _weights(
    bone_weights: np.ndarray, bones: list[str], height: np.ndarray, joints: np.ndarray
) -> np.ndarray:
    """Return skinning weights [n, 24]; the trunk goes to pelvis and spine by a smooth share of its
    height.
    """
    weights = np.zeros((len(bone_weights), 24))
    trunk = np.zeros(len(bone_weights))
    for number, bone in enumerate(bones):
        root, _, letter = bone.partition(".")
        if root.startswith(_TRUNK):
            trunk += bone_weights[:, number]
            continue
        limb = next((joint for prefix, joint in _LIMBS if root.startswith(prefix)), None)
        if limb is None:
            joint = "neck" if root.startswith("neck") else "head"
        else:
            joint = f"{dict(L='left', R='right')[letter]}_{limb}"
        weights[:, NUMBER[joint]] += bone_weights[:, number]

    from_below, below = trunk, "pelvis"
    for joint, half_width in _SPINE_BLEND_M:
        share = np.clip((height - joints[NUMBER[joint], 1]) / (2 * half_width) + 0.5, 0, 1)
        share = share**2 * (3 - 2 * share)
        weights[:, NUMBER[below]] += from_below * (1 - share)
        from_below = trunk * share
        below = joint
    weights[:, NUMBER[below]] += from_below
    return weights


def _triangles(quads: np.ndarray, mirror: np.ndarray, vertices: np.ndarray) -> np.ndarray:
    """Cut every quad along its shorter diagonal and its mirror image along the mirror image of
    that.
    """
    number_of = {frozenset(quad): number for number, quad in enumerate(quads.tolist())}
    triangles: list[tuple[int, int, int]] = []
    done: set[int] = set()
    for number, (a, b, c, d) in enumerate(quads):
        if number in done:
            continue
        if np.linalg.norm(vertices[a] - vertices[c]) <= np.linalg.norm(vertices[b] - vertices[d]):
            cut = [(a, b, c), (a, c, d)]
        else:
            cut = [(a, b, d), (b, c, d)]
        triangles += cut
        done.add(number)
        second = number_of[frozenset(mirror[[a, b, c, d]].tolist())]
        if second not in done:
            done.add(second)
            triangles += [
                (mirror[i], mirror[k], mirror[j]) for i, j, k in cut
            ]  # mirrored, so in the opposite order
    return np.array(triangles)
