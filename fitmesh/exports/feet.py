"""Motion with planted feet: what is in contact stays exactly in place, and legs follow by inverse
kinematics.

The fit holds standing feet softly, because contact and floor are hypotheses there. A character
needs them exact. Only hips, knees, ankles and the place of the whole body change. A contact that
would have to move the foot by more than its stated error is not believed; it is split into shorter
contacts, or released."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.ndimage import gaussian_filter1d, maximum_filter1d, uniform_filter1d
from scipy.spatial.transform import Rotation

from fitmesh.exports import scene as scenes
from fitmesh.exports.foot_holds import STANDS, Hold, find_holds, holds_within
from fitmesh.exports.leg_chain import Leg, turn_from_to, turn_leg
from fitmesh.exports.scene import SceneFrame
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.body.kinematics import JOINT_NAMES
from fitting.solver.terms.contact import FEET

# Time over which a foot turns into and out of its flat position.
TURN_S = 0.15
# Standard deviation of the filter of the shift of the whole body.
BODY_S = 0.15
FREE_WEIGHT = 0.2  # of a free foot in that shift; 1: of a foot in contact
# A leg is never straighter than that share of its length: knees would snap.
STRAIGHTEST = 0.999
_ROUNDS = 2  # the skin's pose correctives move the points by a millimetre after the first


_TOES = [JOINT_NAMES.index("left_foot"), JOINT_NAMES.index("right_foot")]


def plant_feet(result: Result) -> Result:
    """Return the result with contacts in place, where gravity is known and the camera's path is."""
    scene = scenes.scene_frame(result)
    people = []
    for person in result.people:
        shot = result.shots[person.shot]
        known = scene.upright[person.shot] and shot.camera != "moving"
        people.append(_plant(result, person, scene) if known else person)
    planted = replace(result, people=people)
    planted.__dict__["body"] = result.body  # what the cached property would read again
    return planted


def _plant(result: Result, person: Person, scene: SceneFrame) -> Person:
    """Return a person with planted feet."""
    if not (person.contact >= STANDS).any():
        return person
    rate = float(scenes.frame_rate(result))
    lift_m, along_m = rest_feet(result, person)
    points_m = contact_points(result, person, scene)
    holds = [
        hold
        for rows in scenes.segments(result, person)
        for hold in find_holds(person, points_m, lift_m, along_m, rows, rate)
    ]
    person = _straighten_toes(person, holds, rate)
    for _ in range(_ROUNDS):
        parts = [
            _move(
                result, person.rows(rows), scene, holds_within(holds, rows), lift_m, along_m, rate
            )
            for rows in scenes.segments(result, person)
        ]
        person = Person.concat(parts)
    return person


def contact_points(result: Result, person: Person, scene: SceneFrame) -> np.ndarray:
    """Return the points of `Person.contact` [T, 4, 3] in the scene, metres."""
    keypoints_cam_m = result.body.at(result.params(person)).keypoints.double().numpy()
    return scene.points(keypoints_cam_m[:, list(FEET)], person.frame)


def rest_feet(result: Result, person: Person) -> tuple[np.ndarray, np.ndarray]:
    """Return how high the points of `Person.contact` [4] are over the soles of the T-pose, and the
    way from heel to toes [2, 3] of the left and the right foot.
    """
    posed = result.body(
        np.zeros((1, 24, 3), np.float32),
        person.shape,
        vertices=True,
        size=np.array(person.size, np.float32),
    )
    assert posed.vertices is not None
    points_m = posed.keypoints[0, list(FEET)].double().numpy()
    sole_m = float(posed.vertices[0, :, 1].min())
    return points_m[:, 1] - sole_m, points_m[1::2] - points_m[::2]


def _straighten_toes(person: Person, holds: list[Hold], rate: float) -> Person:
    """Return the person with straight toes while heel and toes of a foot are held, because a flat
    foot has one length.
    """
    pose = person.pose_rad.copy()
    for side, joint in enumerate(_TOES):
        held = np.zeros((len(person), 2), bool)
        for hold in holds:
            if hold.point // 2 == side:
                held[hold.rows, hold.point % 2] = True
        share = 1 - _fade(np.ones((len(person), 1)), np.asarray(held.all(1)), TURN_S * rate)
        pose[:, joint] *= share.astype(np.float32)
    return replace(person, pose_rad=pose)


def _move(
    result: Result,
    person: Person,
    scene: SceneFrame,
    holds: list[Hold],
    lift_m: np.ndarray,
    along_m: np.ndarray,
    rate: float,
) -> Person:
    """Return a person of one segment whose held points are in place."""
    if not holds:
        return person
    points_m = contact_points(result, person, scene)
    turns, _ = scenes.motion_of(result, person, scene)
    joints_m = scene.points(person.joints_m, person.frame)
    legs = [Leg.of(turns, joints_m, side) for side in (0, 1)]
    moves = []
    for side, leg in enumerate(legs):
        foot = slice(2 * side, 2 * side + 2)
        own = [replace(hold, point=hold.point % 2) for hold in holds if hold.point // 2 == side]
        moves.append(_foot_moves(leg, points_m[:, foot], own, lift_m[foot], along_m[side], rate))
    body_m = _body_shift(moves, legs, rate)
    pose = person.pose_rad.copy()
    for leg, move in zip(legs, moves, strict=True):
        locals_ = turn_leg(leg, body_m, leg.ankle_m + move.shift_m, move.turn, STRAIGHTEST)
        for joint, local in zip(leg.joints, locals_, strict=True):
            pose[:, joint] = local.as_rotvec()
    camera_from_scene = np.swapaxes(scene.at(person.frame)[:, :3, :3], 1, 2)
    shift_cam_m = np.einsum("tij,tj->ti", camera_from_scene, body_m)
    translation = (person.translation_m + shift_cam_m).astype(np.float32)
    moved = replace(person, pose_rad=pose.astype(np.float32), translation_m=translation)
    return replace(moved, joints_m=result.body.at(result.params(moved)).joints.numpy())


@dataclass
class _FootMoves:
    """How a foot changes in T frames."""

    shift_m: np.ndarray  # [T, 3] of the ankle
    turn: np.ndarray  # [T, 3] rotation vectors in the scene's axes
    held: np.ndarray  # [T] whether heel or toes are held


def _foot_moves(
    leg: Leg,
    points_m: np.ndarray,
    holds: list[Hold],
    lift_m: np.ndarray,
    rest_along_m: np.ndarray,
    rate: float,
) -> _FootMoves:
    """Return how a foot with heel and toes at points [T, 2, 3] has to move."""
    count = len(points_m)
    place_m = np.full((count, 2, 3), np.nan)
    for hold in holds:
        place_m[hold.rows, hold.point] = hold.place_m
    held = np.isfinite(place_m[..., 0])  # [T, 2]
    any_held = held.any(1)
    both = held.all(1)
    floor_m = _floor_height(place_m[..., 1] - lift_m)
    arm_m = points_m - leg.ankle_m[:, None]  # heel and toes from the ankle
    flat = np.zeros((count, 3))
    flat[both] = _flat_foot_turns(leg.foot[both], place_m[both], rest_along_m)
    flat = _fade(flat, both, TURN_S * rate)
    arm_m = _turned(flat[:, None], arm_m)
    off_floor = _fade(_turns_off_the_floor(arm_m, held, lift_m), any_held, TURN_S * rate)
    arm_m = _turned(off_floor[:, None], arm_m)
    turn = (Rotation.from_rotvec(off_floor) * Rotation.from_rotvec(flat)).as_rotvec()
    pinned = np.where(held[:, 0], 0, 1)
    rows = np.arange(count)
    shift_m = place_m[rows, pinned] - arm_m[rows, pinned] - leg.ankle_m
    # The residual of the foot's length, less than a millimetre, is shared.
    shift_m[both] = place_m[both].mean(1) - arm_m[both].mean(1) - leg.ankle_m[both]
    shift_m = _bridge(shift_m, any_held)
    height_m = (leg.ankle_m + shift_m)[:, None, 1] + arm_m[..., 1]
    below_m = np.maximum(0, (floor_m[:, None] + lift_m - height_m).max(1))
    shift_m[:, 1] += np.where(any_held, 0, below_m)
    return _FootMoves(shift_m, turn, any_held)


def _turns_off_the_floor(points_m: np.ndarray, held: np.ndarray, lift_m: np.ndarray) -> np.ndarray:
    """Return rotation vectors [T, 3] that keep the other end of a foot above the floor where one of
    heel and toes is held.
    """
    along_m = points_m[:, 1] - points_m[:, 0]
    rise_m = lift_m[1] - lift_m[0]
    wanted_m = along_m.copy()
    only_heel = held[:, 0] & ~held[:, 1]
    only_toes = held[:, 1] & ~held[:, 0]
    wanted_m[only_heel, 1] = np.maximum(wanted_m[only_heel, 1], rise_m)
    wanted_m[only_toes, 1] = np.minimum(wanted_m[only_toes, 1], rise_m)
    return turn_from_to(along_m, wanted_m)


def _flat_foot_turns(foot: Rotation, place_m: np.ndarray, rest_along_m: np.ndarray) -> np.ndarray:
    """Return rotation vectors [T, 3] that put a foot flat on the floor, its heel and toes in the
    direction of their places [T, 2, 3].
    """
    if not len(place_m):
        return np.zeros((0, 3))
    way_m = place_m[:, 1] - place_m[:, 0]
    heading = np.arctan2(way_m[:, 0], way_m[:, 2]) - np.arctan2(rest_along_m[0], rest_along_m[2])
    flat = Rotation.from_euler("Y", heading[:, None])
    return (flat * foot.inv()).as_rotvec()


def _turned(rotvec: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return vectors [T, N, 3] turned by rotation vectors [T, 1, 3]."""
    angle = np.linalg.norm(rotvec, axis=-1, keepdims=True)
    axis = rotvec / np.maximum(angle, 1e-12)
    across = np.cross(axis, vectors)
    along = (axis * vectors).sum(-1, keepdims=True) * axis
    return along + (vectors - along) * np.cos(angle) + across * np.sin(angle)


def _floor_height(height_m: np.ndarray) -> np.ndarray:
    """Return the height [T] of what the foot stands on, or stands on next, from heights [T, 2]
    under held points (NaN: not held); the lower one between two.
    """
    held = np.isfinite(height_m).any(1)
    rows = np.arange(len(height_m))
    if not held.any():
        return np.full(len(height_m), -np.inf)
    known = np.flatnonzero(held)
    height = np.nanmin(np.where(held[:, None], height_m, 0), 1)
    before = known[np.maximum(np.searchsorted(known, rows, side="right") - 1, 0)]
    after = known[np.minimum(np.searchsorted(known, rows), len(known) - 1)]
    return np.minimum(height[before], height[after])


def _bridge(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return values [T, 3] that blend smoothly between known rows and are constant beyond."""
    if not known.any():
        return np.zeros_like(values)
    rows = np.flatnonzero(known)
    bridged = values.copy()
    bridged[: rows[0]] = values[rows[0]]
    bridged[rows[-1] :] = values[rows[-1]]
    for a, b in pairwise(rows.tolist()):
        share = np.arange(1, b - a)[:, None] / (b - a)
        share = share * share * (3 - 2 * share)
        bridged[a + 1 : b] = (1 - share) * values[a] + share * values[b]
    return bridged


def _fade(rotvec: np.ndarray, known: np.ndarray, reach: float) -> np.ndarray:
    """Return rotation vectors [T, 3] that fade in and out over `reach` rows beside known ones."""
    if not known.any():
        return np.zeros_like(rotvec)
    rows = np.arange(len(rotvec))
    places = np.flatnonzero(known)
    before = places[np.maximum(np.searchsorted(places, rows, side="right") - 1, 0)]
    after = places[np.minimum(np.searchsorted(places, rows), len(places) - 1)]
    weights = []
    for place in (before, after):
        share = np.clip(1 - np.abs(rows - place) / max(reach, 1), 0, 1)
        weights.append((share * share * (3 - 2 * share))[:, None])
    total = np.maximum(1, weights[0] + weights[1])
    faded = (weights[0] * rotvec[before] + weights[1] * rotvec[after]) / total
    return np.where(known[:, None], rotvec, faded)


def _body_shift(moves: list[_FootMoves], legs: list[Leg], rate: float) -> np.ndarray:
    """Return how the whole body moves [T, 3]: as its feet do on average, smoothly, and down where a
    leg would have to be longer than it is.
    """
    weights = np.stack([np.where(move.held, 1.0, FREE_WEIGHT) for move in moves])[..., None]
    shifts = np.stack([move.shift_m for move in moves])
    shift_m = (weights * shifts).sum(0) / weights.sum(0)
    shift_m = gaussian_filter1d(shift_m, BODY_S * rate, axis=0, mode="nearest")
    drop_m = np.zeros(len(shift_m))
    for leg, move in zip(legs, moves, strict=True):
        reach_m = np.maximum(STRAIGHTEST * leg.length_m, leg.reach_m)
        way_m = leg.ankle_m + move.shift_m - leg.hip_m - shift_m
        level_m = np.linalg.norm(way_m[:, [0, 2]], axis=1)
        deepest_m = np.sqrt(np.maximum(reach_m**2 - level_m**2, 0))
        drop_m = np.maximum(drop_m, -way_m[:, 1] - deepest_m)
    window = 2 * round(BODY_S * rate) + 1
    envelope = maximum_filter1d(np.maximum(drop_m, 0), window, mode="nearest")
    shift_m[:, 1] -= uniform_filter1d(envelope, window, mode="nearest")
    return shift_m
