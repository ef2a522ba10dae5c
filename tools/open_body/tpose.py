"""From MakeHuman's standing pose to the T-pose: arms out along x, palms down, legs nearly straight
down.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from tools.open_body.assets import SKIN_VERTICES, Assets
from tools.open_body.phenotype import Macro, Phenotypes

_DEGREE = np.pi / 180
_UP = np.array([0, 1.0, 0])
_FRONT = np.array([0, 0, 1.0])


class Standing(NamedTuple):
    """A person in the T-pose."""

    vertices: np.ndarray  # [n, 3] kept vertices, metres
    bone_heads: np.ndarray  # [bones, 3] metres


def rotation(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rodrigues' formula, for an axis of any length."""
    x, y, z = axis / np.linalg.norm(axis)
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def between(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return the shortest rotation from one direction to another."""
    start = start / np.linalg.norm(start)
    end = end / np.linalg.norm(end)
    axis = np.cross(start, end)
    sine = np.linalg.norm(axis)
    return np.eye(3) if sine < 1e-9 else rotation(axis, float(np.arctan2(sine, start @ end)))


class TPose:
    """Poses any MakeHuman mesh by its own rig."""

    def __init__(self, assets: Assets, phenotypes: Phenotypes) -> None:
        self.bones = list(assets.rig)
        self._number = {bone: number for number, bone in enumerate(self.bones)}
        self._parent = {bone: entry["parent"] for bone, entry in assets.rig.items()}
        self._heads = {
            bone: _head_vertices(assets, entry["head"]) for bone, entry in assets.rig.items()
        }
        self._weights = assets.bone_weights
        self._kept = assets.kept
        self._from_root = _from_root(self._parent)
        self._knees = {
            f"lowerleg01.{side}": self._knee_ring(phenotypes.vertices(Macro()), side)
            for side in ("L", "R")
        }

    def _knee_ring(self, mesh: np.ndarray, side: str) -> tuple[np.ndarray, np.ndarray]:
        """Return vertices around the knee and weights whose mean is the joint.

        MakeHuman marks the knee by a cube that drifts off the leg as height changes; the skin
        around it does not.
        """
        knee = mesh[self._heads[f"lowerleg01.{side}"]].mean(0)
        axis = mesh[self._heads[f"foot.{side}"]].mean(0) - mesh[
            self._heads[f"upperleg01.{side}"]
        ].mean(0)
        axis /= np.linalg.norm(axis)
        offset = mesh[:SKIN_VERTICES] - knee
        along = offset @ axis
        radius = np.linalg.norm(offset - along[:, None] * axis, axis=1)
        ring = np.nonzero((np.abs(along) < 0.02) & (radius < 0.12))[0]
        # Non-negative weights, near equal, that sum to one and hit the joint.
        count = len(ring)
        system = np.concatenate(
            [(mesh[ring] - knee).T * 50, np.full((1, count), 50.0), np.eye(count) * 0.3]
        )
        weights, _ = nnls(
            system, np.concatenate([np.zeros(3), [50.0], np.full(count, 0.3 / count)])
        )
        return ring, weights / weights.sum()

    def __call__(self, mesh: np.ndarray) -> Standing:
        """Return the person with mesh [19158, 3] in the T-pose."""
        head = {bone: mesh[vertices].mean(0) for bone, vertices in self._heads.items()}
        for bone, (ring, weights) in self._knees.items():
            head[bone] = weights @ mesh[ring]
        turned: dict[str, np.ndarray] = {}
        for side, sign in (("L", 1.0), ("R", -1.0)):
            turned |= _arm(head, side, sign) | _leg(head, side, sign)

        placed: dict[str, np.ndarray] = {}
        transforms = np.zeros((len(self.bones), 3, 4))
        for bone in self._from_root:
            parent = self._parent[bone]
            if bone not in turned:
                turned[bone] = turned[parent] if parent else np.eye(3)
            placed[bone] = head[bone]
            if parent:
                placed[bone] = placed[parent] + turned[parent] @ (head[bone] - head[parent])
            transforms[self._number[bone], :, :3] = turned[bone]
            transforms[self._number[bone], :, 3] = placed[bone] - turned[bone] @ head[bone]
        blend = (self._weights @ transforms.reshape(len(self.bones), 12)).reshape(-1, 3, 4)
        vertices = np.einsum("nij,nj->ni", blend[:, :, :3], mesh[self._kept]) + blend[:, :, 3]
        return Standing(vertices, np.array([placed[bone] for bone in self.bones]))


def _head_vertices(assets: Assets, place: dict) -> list[int]:
    if place["strategy"] == "CUBE":
        return assets.group_vertices(place["cube_name"])
    return [place["vertex_index"]] if place["strategy"] == "VERTEX" else place["vertex_indices"]


def _from_root(parent: dict[str, str]) -> list[str]:
    """Return all bones, each after its parent."""
    order: list[str] = []

    def visit(bone: str) -> None:
        if bone not in order:
            if parent[bone]:
                visit(parent[bone])
            order.append(bone)

    for bone in parent:
        visit(bone)
    return order


def _arm(head: dict[str, np.ndarray], side: str, sign: float) -> dict[str, np.ndarray]:
    """World rotations of the arm's bones: straight out to the side, elbow axis upright, palm down."""
    out = np.array([sign, 0, 0])
    shoulder, elbow, wrist = (
        head[f"{bone}.{side}"] for bone in ("upperarm01", "lowerarm01", "wrist")
    )
    index, middle, little = (head[f"finger{finger}-1.{side}"] for finger in (2, 3, 5))
    turned = {
        "clavicle": rotation(_FRONT, sign * 6 * _DEGREE),
        "shoulder01": rotation(_FRONT, sign * 12 * _DEGREE),
    }

    swing = between(elbow - shoulder, out)
    hinge = swing @ np.cross(elbow - shoulder, wrist - elbow)
    hinge[0] = 0
    hinge /= np.linalg.norm(hinge)
    requested = np.array([0, -sign, 0])
    upper = between(hinge, requested) @ swing
    twist = float(np.arctan2(np.cross(hinge, requested) @ out, hinge @ requested))
    for bone, share in (("upperarm01", 0.5), ("upperarm02", 1.0)):
        turned[bone] = rotation(out, share * twist) @ swing

    lower = between(upper @ (wrist - elbow), out) @ upper
    palm = lower @ np.cross(index - wrist, little - wrist) * sign
    palm[0] = 0
    palm /= np.linalg.norm(palm)
    twist = float(np.arctan2(np.cross(palm, _UP) @ out, palm @ _UP))
    for bone, share in (("lowerarm01", 1 / 3), ("lowerarm02", 2 / 3)):
        turned[bone] = rotation(out, share * twist) @ lower
    hand = rotation(out, twist) @ lower
    turned["wrist"] = between(hand @ (middle - wrist), out) @ hand
    return {f"{bone}.{side}": matrix for bone, matrix in turned.items()}


def _leg(head: dict[str, np.ndarray], side: str, sign: float) -> dict[str, np.ndarray]:
    """World rotations of the leg's bones: thighs 3 degrees apart, shanks back in and slightly
    backwards.
    """
    hip, knee, ankle = (head[f"{bone}.{side}"] for bone in ("upperleg01", "lowerleg01", "foot"))
    thigh = between(knee - hip, np.array([sign * np.tan(3 * _DEGREE), -1, 0]))
    shank = between(
        ankle - knee, np.array([-sign * np.tan(1.5 * _DEGREE), -1, -np.tan(4 * _DEGREE)])
    )
    bones = {
        "upperleg01": thigh,
        "upperleg02": thigh,
        "lowerleg01": shank,
        "lowerleg02": shank,
        "foot": np.eye(3),
    }
    return {f"{bone}.{side}": matrix for bone, matrix in bones.items()}
