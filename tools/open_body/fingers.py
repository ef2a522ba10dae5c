"""Fingers for the open body: 30 joints in SMPL-H's order, skinning weights, and the hand made flat.

MakeHuman's hands are half closed at rest and SMPL-H's are flat, so that a pose of zeros is the same
hand in both only if this one is made flat, too. A flat hand is the skinned hand under fixed
rotations, hence linear in the shape like the hand itself; the file holds the vertices of the hands,
which replace those of the body where fingers are wanted.
"""

import itertools

import numpy as np

from tools.open_body.shape_space import ShapeSpace, joint_regressor
from tools.open_body.skeleton import FLIP, JOINT_MIRROR, NUMBER
from tools.open_body.surface import Surface
from tools.open_body.tpose import between

FINGERS = {
    "index": 2,
    "middle": 3,
    "pinky": 5,
    "ring": 4,
    "thumb": 1,
}  # SMPL-H's order -> MakeHuman's number
_TIPS = ("index", "middle", "pinky", "ring", "thumb")
JOINT_NAMES = tuple(
    f"{side}_{finger}{k}" for side in ("left", "right") for finger in FINGERS for k in (1, 2, 3)
)
_MIRROR = np.r_[15:30, :15]
# MakeHuman turns fingers at the web, hands at the knuckles, a tenth of the palm behind it; its
# thumb's middle joint is as far off the other way. With these shares phalanges have the lengths of
# textbooks, relative to the palm.
_KNUCKLE_BACK, _THUMB_FORTH = 0.10, 0.22
_HALF_WIDTH_M = (0.010, 0.006, 0.005)  # of the transition at a finger's three joints
_REACH_M = 0.03  # a joint lies between vertices that are nearer than this
_THUMB_FLAT = np.array([0.62, -0.26, 0.74])  # where a flat left hand's thumb points


def finger_arrays(
    bones: list[str],
    bone_heads: np.ndarray,
    bodies: np.ndarray,
    space: ShapeSpace,
    bone_weights: np.ndarray,
    weights: np.ndarray,
    picks: dict[str, int],
) -> dict[str, np.ndarray]:
    """Return the arrays of `open_hands.npz`.

    bone_heads [P, bones, 3], bodies [P, v, 3]: people about their pelvis; bone_weights [v, bones]:
    MakeHuman's; weights [v, 24]: of the body without fingers.
    """
    observed = np.ones(len(weights), bool)
    joints_of_all = _joints(bones, bone_heads)
    regressor = joint_regressor(
        bodies, joints_of_all, _MIRROR, space.template, space.mirror, observed, _REACH_M
    )
    remaining = np.concatenate(
        [space.template[..., None], space.directions], -1
    )  # [v, 3, 1 + S]: mean and directions
    joints = regressor_of(regressor, remaining)
    wrists = regressor_of(space.joint_regressor[[20, 21]], remaining)
    names = [f"{side}{name}" for side in "lr" for name in _TIPS]
    tips = np.array([picks[name] for name in names])
    shares = _finger_weights(bones, bone_weights, weights, space, joints[..., 0], tips)
    flat, flat_joints = _flattened(remaining, joints, wrists, shares, tips)
    hand = np.flatnonzero((weights[:, 22:].sum(1) > 0) | (shares[:, 22:].sum(1) > 0))
    return {
        "vertices": hand.astype(np.int32),
        "v_template": flat[hand, :, 0].astype(np.float32),
        "shapedirs": flat[hand, :, 1:].astype(np.float32),
        "weights": shares[hand].astype(np.float32),
        "J": flat_joints[..., 0].astype(np.float32),
        "J_shapedirs": flat_joints[..., 1:].astype(np.float32),
        "tips": tips.astype(np.int32),
        "joint_names": np.array(JOINT_NAMES),
    }


def regressor_of(regressor: np.ndarray, remaining: np.ndarray) -> np.ndarray:
    """Return a regressor [j, v] for meshes [v, 3, n]."""
    return np.einsum("jv,vcn->jcn", regressor, remaining)


def _joints(bones: list[str], bone_heads: np.ndarray) -> np.ndarray:
    """Return where fingers turn, [P, 30, 3]."""
    number = {bone: index for index, bone in enumerate(bones)}

    def head(bone: str) -> np.ndarray:
        return bone_heads[:, number[bone]]

    results = []
    for letter in "LR":
        wrist = head(f"wrist.{letter}")
        for finger, digit in FINGERS.items():
            item, two, three = (head(f"finger{digit}-{k}.{letter}") for k in (1, 2, 3))
            if finger == "thumb":
                two = two + _THUMB_FORTH * (three - two)
            else:
                item = item + _KNUCKLE_BACK * (wrist - item)
            results += [item, two, three]
    joints = np.stack(results, 1)
    return 0.5 * (joints + joints[:, _MIRROR] * FLIP)


def _finger_weights(
    bones: list[str],
    bone_weights: np.ndarray,
    weights: np.ndarray,
    space: ShapeSpace,
    joints: np.ndarray,
    tips: np.ndarray,
) -> np.ndarray:
    """Return [v, 52] weights: which finger a vertex belongs to is MakeHuman's, how far along it
    follows from where it is.
    """
    out = np.zeros((len(weights), 52))
    out[:, :22] = weights[:, :22]
    number = {bone: index for index, bone in enumerate(bones)}
    surface = Surface(space.faces, len(weights))
    for side, letter in enumerate("LR"):
        wrist = 20 + side
        hand = NUMBER[("left_hand", "right_hand")[side]]
        full = weights[:, wrist] + weights[:, hand]
        out[:, wrist] = full
        rays = [_ray(number, bone_weights, digit, letter) for digit in FINGERS.values()]
        total = sum(rays) + bone_weights[:, number[f"wrist.{letter}"]] + 1e-9
        for finger, ray in enumerate(rays):
            first = 15 * side + 3 * finger
            index_part = [
                space.joint_regressor[wrist] @ space.template,
                *joints[first : first + 3],
                space.template[tips[first // 3]],
            ]
            along = [(b - a) / np.linalg.norm(b - a) for a, b in itertools.pairwise(index_part)]
            before = full * ray / total
            for k in range(3):
                axis = along[k] + along[k + 1]
                step = (space.template - index_part[k + 1]) @ axis / np.linalg.norm(axis)
                share = np.clip(step / (2 * _HALF_WIDTH_M[k]) + 0.5, 0, 1)
                moved = before * share**2 * (3 - 2 * share)
                out[:, wrist if k == 0 else 22 + first + k - 1] -= moved
                out[:, 22 + first + k] += moved
                before = moved
    fingers = out[:, 22:].sum(1) > 0
    smooth = 0.5 * out + 0.5 * (surface.neighbour_mean @ out)
    out[fingers] = smooth[fingers]
    out[out < 0.004] = 0
    mirror = np.r_[JOINT_MIRROR[:22], 22 + _MIRROR]
    out = 0.5 * (out + out[space.mirror][:, mirror])
    return out / out.sum(1, keepdims=True)


def _ray(number: dict[str, int], bone_weights: np.ndarray, digit: int, letter: str) -> np.ndarray:
    """Return which vertices [v] belong to a finger and to its metacarpal."""
    ray = sum(bone_weights[:, number[f"finger{digit}-{k}.{letter}"]] for k in (1, 2, 3))
    return ray if digit == 1 else ray + bone_weights[:, number[f"metacarpal{digit - 1}.{letter}"]]


def _flattened(
    remaining: np.ndarray,
    joints: np.ndarray,
    wrists: np.ndarray,
    weights: np.ndarray,
    tips: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices [v, 3, n] and joints [30, 3, n] of the hand with straight fingers in the
    plane of the palm, n: the mean and every direction of shape, all under the rotations that make
    the mean hand flat.
    """
    turned = np.tile(np.eye(3), (52, 1, 1))
    placed = np.zeros((52, 3, remaining.shape[-1]))
    flat = joints.copy()
    for first in range(0, 30, 3):
        chain = [*joints[first : first + 3], remaining[tips[first // 3]]]
        sign = 1.0 if first < 15 else -1.0
        towards = chain[2][:, 0] - chain[0][:, 0]
        requested = towards * [1, 0, 1] if (first // 3) % 5 < 4 else _THUMB_FLAT * [sign, 1, 1]
        place = chain[0]
        for k in range(3):
            joint = 22 + first + k
            turned[joint] = between(chain[k + 1][:, 0] - chain[k][:, 0], requested)
            flat[first + k] = place
            placed[joint] = place - np.einsum("ab,bn->an", turned[joint], chain[k])
            place = place + np.einsum("ab,bn->an", turned[joint], chain[k + 1] - chain[k])
    blend = np.einsum("vj,jab->vab", weights, turned)
    moved = np.einsum("vab,vbn->van", blend, remaining) + np.einsum("vj,jan->van", weights, placed)
    return moved, flat
