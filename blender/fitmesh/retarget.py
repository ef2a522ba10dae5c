"""Motion of one skeleton on another: names of SMPL's joints on both sides, NumPy only.

Blender's axes: z up, metres. Every joint keeps its turn from the rest pose. Arms and legs are first
turned into the source's rest pose, so that a T-pose and an A-pose agree; trunk, hands and feet
are taken to rest alike. Places are scaled by the ratio of the hips' heights, from the
world's origin on the floor, and legs follow the
scaled places of the feet by inverse kinematics: a foot that stands stands."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

ARMS_AND_LEGS = ("shoulder", "elbow", "wrist", "hip", "knee")
# The joint in whose direction the bone of a joint lies.
NEXT = {"shoulder": "elbow", "elbow": "wrist", "wrist": "hand", "hip": "knee", "knee": "ankle"}
# A leg is never straighter than that share of its length: knees would snap.
STRAIGHTEST = 0.999
TOE_ROUNDS = 6  # corners of the toes that are lifted off the floor one after the other
DROP_FRAMES = 5  # over which the hips go down and up where a leg would be too short


@dataclass(frozen=True)
class RestPose:
    """A skeleton at rest, in world axes."""

    place_m: Mapping[str, np.ndarray]  # joint -> [3]
    turn: Mapping[str, np.ndarray]  # joint -> [3, 3] of its bone
    sole_m: float  # height of the soles
    # Points of the soles [N, 3] that move with the bones of ankles and feet.
    soles_m: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def left(self) -> np.ndarray:
        """Return the level direction [3] to the skeleton's left."""
        way = self.place_m["left_hip"] - self.place_m["right_hip"]
        way = way * [1.0, 1.0, 0.0]
        return way / np.linalg.norm(way)

    @property
    def hips_m(self) -> float:
        """Return the height of the hips over the soles."""
        return float(self.place_m["pelvis"][2] - self.sole_m)


@dataclass(frozen=True)
class Motion:
    """Joints over T frames, in world axes."""

    place_m: dict[str, np.ndarray]  # joint -> [T, 3]
    turn: dict[str, np.ndarray]  # joint -> [T, 3, 3] of its bone


def retarget(source: RestPose, motion: Motion, target: RestPose) -> Motion:
    """Return the bones' turns of a target, and the place of its hips under "pelvis"."""
    facing = _turn_about_up(source.left, target.left)
    turns = {}
    for joint in motion.turn:
        if joint in target.turn:
            own = facing.T @ target.turn[joint]
            own = _rest_correction(joint, source, target, facing) @ own
            from_rest = motion.turn[joint] @ source.turn[joint].T
            turns[joint] = from_rest @ own
    scale = target.hips_m / source.hips_m
    hips_m = scale * motion.place_m["pelvis"]
    feet_m = {
        side: _ankle_places(side, source, motion, target, turns, scale)
        for side in ("left", "right")
        if _has_leg(side, motion, target)
    }
    hips_m[:, 2] -= _drop(feet_m, hips_m, turns, target)
    for side, ankle_m in feet_m.items():
        _turn_leg(side, ankle_m, hips_m, turns, target)
    return Motion({"pelvis": hips_m}, turns)


def _has_leg(side: str, motion: Motion, target: RestPose) -> bool:
    """Say whether source and target have a leg from hip to ankle."""
    return all(
        f"{side}_{part}" in target.turn and f"{side}_{part}" in motion.turn
        for part in ("hip", "knee", "ankle")
    )


def _turn_about_up(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the rotation [3, 3] about z from one level direction to another."""
    angle = np.arctan2(second[1], second[0]) - np.arctan2(first[1], first[0])
    cosine = np.cos(angle)
    sine = np.sin(angle)
    return np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1.0]])


def _rest_correction(
    joint: str, source: RestPose, target: RestPose, facing: np.ndarray
) -> np.ndarray:
    """Return the rotation [3, 3] from the target's rest pose to the source's, of one bone."""
    side, _, part = joint.rpartition("_")
    following = f"{side}_{NEXT.get(part, '')}"
    if part not in ARMS_AND_LEGS or any(
        following not in rest.place_m or joint not in rest.place_m for rest in (source, target)
    ):
        return np.eye(3)
    wanted = source.place_m[following] - source.place_m[joint]
    own = facing.T @ (target.place_m[following] - target.place_m[joint])
    return turn_from_to(own[None], wanted[None])[0]


def turn_from_to(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the smallest rotations [T, 3, 3] from directions [T, 3] to others."""
    a = first / np.maximum(np.linalg.norm(first, axis=1, keepdims=True), 1e-12)
    b = second / np.maximum(np.linalg.norm(second, axis=1, keepdims=True), 1e-12)
    axis = np.cross(a, b)
    sine = np.linalg.norm(axis, axis=1, keepdims=True)
    angle = np.arctan2(sine, (a * b).sum(1, keepdims=True))
    return about_axis(axis / np.maximum(sine, 1e-12), angle[:, 0])


def about_axis(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Return the rotations [T, 3, 3] by angles [T] about unit axes [T, 3]."""
    cross = np.zeros((len(axis), 3, 3))
    cross[:, 0, 1] = -axis[:, 2]
    cross[:, 0, 2] = axis[:, 1]
    cross[:, 1, 0] = axis[:, 2]
    cross[:, 1, 2] = -axis[:, 0]
    cross[:, 2, 0] = -axis[:, 1]
    cross[:, 2, 1] = axis[:, 0]
    sine = np.sin(angle)[:, None, None]
    versine = (1 - np.cos(angle))[:, None, None]
    return np.eye(3) + sine * cross + versine * (cross @ cross)


def _bone_m(joint: str, end: str, turns: Mapping[str, np.ndarray], target: RestPose) -> np.ndarray:
    """Return the way [T, 3] from a joint to another one that is fixed to its bone."""
    way_m = target.place_m[end] - target.place_m[joint]
    return turns[joint] @ target.turn[joint].T @ way_m


def _ankle_places(
    side: str,
    source: RestPose,
    motion: Motion,
    target: RestPose,
    turns: Mapping[str, np.ndarray],
    scale: float,
) -> np.ndarray:
    """Return where an ankle has to be [T, 3], so that the ball of the foot is at the scaled place of
    the source's and as high over its rest as there, in scale.
    """
    ankle = f"{side}_ankle"
    ball = f"{side}_foot"
    has_ball = ball in motion.place_m and ball in target.place_m
    point = ball if has_ball else ankle
    place_m = scale * motion.place_m[point]
    rest_m = source.place_m[point][2] - source.sole_m
    own_rest_m = target.place_m[point][2] - target.sole_m
    place_m[:, 2] = scale * (motion.place_m[point][:, 2] - rest_m) + own_rest_m
    if has_ball:
        place_m = place_m - _bone_m(ankle, ball, turns, target)
    place_m[:, 2] += _below_floor(ankle, place_m, turns, target)
    if has_ball and ball in turns:
        _bend_toes(ball, place_m + _bone_m(ankle, ball, turns, target), turns, target)
    return place_m


def _sole_places(
    joint: str, place_m: np.ndarray, turns: Mapping[str, np.ndarray], target: RestPose
) -> np.ndarray:
    """Return the points of a sole [T, N, 3] that move with the bone of a joint at places [T, 3]."""
    points_m = target.soles_m.get(joint, np.zeros((0, 3))) - target.place_m[joint]
    turned = turns[joint] @ target.turn[joint].T
    return np.einsum("tij,nj->tni", turned, points_m) + place_m[:, None]


def _below_floor(
    joint: str, place_m: np.ndarray, turns: Mapping[str, np.ndarray], target: RestPose
) -> np.ndarray:
    """Return how far the sole under a joint at places [T, 3] is below the floor [T]."""
    heights_m = _sole_places(joint, place_m, turns, target)[..., 2]
    return np.maximum(0, -heights_m.min(1)) if heights_m.size else np.zeros(len(place_m))


def _bend_toes(
    joint: str, place_m: np.ndarray, turns: dict[str, np.ndarray], target: RestPose
) -> None:
    """Bend toes whose ball is at places [T, 3] up until their tips are on the floor: the lowest
    corner first, then the next.
    """
    rows = np.arange(len(place_m))
    for _ in range(TOE_ROUNDS):
        points_m = _sole_places(joint, place_m, turns, target)
        if not points_m.size:
            return
        way_m = points_m[rows, points_m[..., 2].argmin(1)] - place_m
        level_m = np.linalg.norm(way_m[:, :2], axis=1)
        up_m = np.maximum(way_m[:, 2], -place_m[:, 2])  # the tip is at 0 at least
        length_m = np.linalg.norm(way_m, axis=1)
        shorter = np.sqrt(np.maximum(length_m**2 - up_m**2, 0)) / np.maximum(level_m, 1e-9)
        wanted_m = np.concatenate([way_m[:, :2] * shorter[:, None], up_m[:, None]], 1)
        turns[joint] = turn_from_to(way_m, wanted_m) @ turns[joint]


def _drop(
    feet_m: Mapping[str, np.ndarray],
    hips_m: np.ndarray,
    turns: Mapping[str, np.ndarray],
    target: RestPose,
) -> np.ndarray:
    """Return how far the hips have to go down [T] for both feet to be within reach, smoothly."""
    drop_m = np.zeros(len(hips_m))
    for side, ankle_m in feet_m.items():
        hip_m = hips_m + _bone_m("pelvis", f"{side}_hip", turns, target)
        way_m = ankle_m - hip_m
        reach_m = STRAIGHTEST * sum(_lengths(side, target))
        level_m = np.linalg.norm(way_m[:, :2], axis=1)
        deepest_m = np.sqrt(np.maximum(reach_m**2 - level_m**2, 0))
        drop_m = np.maximum(drop_m, -way_m[:, 2] - deepest_m)
    padded = np.pad(np.maximum(drop_m, 0), 2 * DROP_FRAMES, mode="edge")
    window = 2 * DROP_FRAMES + 1
    highest = np.lib.stride_tricks.sliding_window_view(padded, window).max(1)
    return np.lib.stride_tricks.sliding_window_view(highest, window).mean(1)


def _lengths(side: str, target: RestPose) -> tuple[float, float]:
    """Return the lengths of thigh and shank."""
    hip, knee, ankle = (target.place_m[f"{side}_{part}"] for part in ("hip", "knee", "ankle"))
    return float(np.linalg.norm(knee - hip)), float(np.linalg.norm(ankle - knee))


def _turn_leg(
    side: str,
    ankle_m: np.ndarray,
    hips_m: np.ndarray,
    turns: dict[str, np.ndarray],
    target: RestPose,
) -> None:
    """Turn thigh and shank so that the ankle gets to its place [T, 3]; the knee bends in the plane
    in which it is bent.
    """
    hip, knee, ankle = (f"{side}_{part}" for part in ("hip", "knee", "ankle"))
    upper, lower = _lengths(side, target)
    thigh_m = _bone_m(hip, knee, turns, target)
    shank_m = _bone_m(knee, ankle, turns, target)
    way_m = ankle_m - hips_m - _bone_m("pelvis", hip, turns, target)
    longest = upper + lower - 1e-6
    distance = np.clip(np.linalg.norm(way_m, axis=1), abs(upper - lower) + 1e-4, longest)
    before = np.linalg.norm(thigh_m + shank_m, axis=1)
    angles = [
        np.arccos(np.clip((upper**2 + lower**2 - reach**2) / (2 * upper * lower), -1, 1))
        for reach in (before, distance)
    ]
    pelvis = turns["pelvis"] @ target.turn["pelvis"].T
    lateral = pelvis @ target.left
    axis = np.cross(thigh_m, shank_m)
    # The plane of an almost straight leg is noise: it bends about the pelvis's axis.
    share = np.clip(np.linalg.norm(axis, axis=1, keepdims=True) / (upper * lower) / 0.1, 0, 1)
    axis = share * axis / np.maximum(np.linalg.norm(axis, axis=1, keepdims=True), 1e-12)
    axis = axis + (1 - share) * lateral
    axis /= np.maximum(np.linalg.norm(axis, axis=1, keepdims=True), 1e-12)
    bend = about_axis(axis, angles[0] - angles[1])
    aim = turn_from_to(thigh_m + np.einsum("tij,tj->ti", bend, shank_m), way_m)
    turns[hip] = aim @ turns[hip]
    turns[knee] = aim @ bend @ turns[knee]
