"""Where cameras stand, from the people that they see, without a calibration board.

Every camera's lifter gives bodies in its own frame. The same body seen by two cameras tells how one
camera is turned to the other and where it stands (Kabsch over all frames). From there a bundle
adjustment (`bundle`) moves cameras, focal lengths and points until the keypoints are explained. The
scale is that of the bodies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.problem_setup import CONSTANT_ERROR_SHARE
from fitting.rig.association import Track, associate
from fitting.rig.bundle import BONES, Bundle, BundleState
from fitting.rig.epipolar import match_tracks, ray_agreement, score_track_pairs
from fitting.rig.lifted import LOOSE, Recorded, likely_lags, pose_between
from fitting.rig.offsets import INDEPENDENT_PER_SECOND, Offset, next_offset
from fitting.rig.rig import PlacedCamera, Rig
from fitting.rig.sights import SAMPLE_S, sample_times
from fitting.rig.triangulation import triangulate
from pose2d.base.errors import UserError

MOST_FRAMES = 60  # of a person in the adjustment
# Above these deviations cameras count as unknown. They are wide: a body that is fitted to cameras
# 10 degrees off is flattened by a tenth at most, since its bones keep their lengths, and stated
# deviations are half again as large as errors. Where cameras are right, 0.92 and more of people's
# rays meet (rendered rigs of bench/cameras.py).
WORST_TURN_DEG = 15.0
WORST_PLACE_SHARE = 0.35
WORST_AGREEMENT = 0.85
# How often a network exchanges all sides of people in a camera, and the odds at which another
# answer is not worth a word. Not tuned.
EXCHANGED_PROBABILITY = 0.03
CLEAR_ODDS = 50.0
# Of heights, on which the scale rests.
ADULT_LOG_STD = 0.045
STATED_HEIGHT_LOG_STD = 0.01
RECORD_A_BOARD = "record a board and give --cameras FILE (docs/cameras.md)"
_NEAR_S = 0.3  # around an offset that bodies suggest


@dataclass(frozen=True)
class RigEstimate:
    """Cameras that people placed; the world is the first camera."""

    rig: Rig
    offsets: list[Offset]
    turn_std_deg: np.ndarray  # [C - 1]
    place_std: np.ndarray  # [C - 1] of the position over the distance to the first camera
    scale_log_std: float
    shared: int  # cameras that see each person, summed over people that several cameras see
    agreement: float  # of rays, 0 .. 1
    exchanged: int | None = None  # the camera in which people's left is their right, if any


def place_cameras(recorded: Recorded) -> RigEstimate:
    """Return where the cameras stand, or raise UserError where people do not determine it.

    A network may confidently take a person's back for a front, and the rays of a mirrored body meet
    from another side. Sides are therefore tried as they are and exchanged in each of the cameras,
    and the answers are compared by evidence.
    """
    candidates: list[tuple[float, RigEstimate]] = []
    errors = []
    for number in (None, *range(len(recorded.exchanged))):
        people = [
            recorded.exchanged[n] if n == number else own for n, own in enumerate(recorded.people)
        ]
        try:
            cost, estimate = _place_with_sides(replace(recorded, people=people))
        except UserError as error:
            errors.append(error)
            continue
        if number is not None:
            cost -= 2 * math.log(EXCHANGED_PROBABILITY)
        candidates.append((cost, replace(estimate, exchanged=number)))
    if not candidates:
        raise errors[0]
    most_shared = max(estimate.shared for _, estimate in candidates)
    (cost, best), *others = sorted(
        (pair for pair in candidates if pair[1].shared == most_shared), key=lambda pair: pair[0]
    )
    for other_cost, other in others:
        is_as_likely = other_cost - cost < 2 * math.log(CLEAR_ODDS)
        if is_as_likely and _largest_turn_deg(other.rig, best.rig) > WORST_TURN_DEG:
            raise UserError(
                "where the cameras stand is not known from the people: their rays meet as well "
                "with left and right exchanged in one camera, which then stands elsewhere; "
                f"{RECORD_A_BOARD}."
            )
    is_known = (
        best.turn_std_deg.max() <= WORST_TURN_DEG
        and best.place_std.max() <= WORST_PLACE_SHARE
        and best.agreement >= WORST_AGREEMENT
    )
    if not is_known:
        raise UserError(
            "where the cameras stand is not known from the people (to "
            f"{best.turn_std_deg.max():.1f} degrees and {100 * best.place_std.max():.0f} %, rays "
            f"meet to {best.agreement:.0%}): {RECORD_A_BOARD}."
        )
    return best


def _largest_turn_deg(one: Rig, two: Rig) -> float:
    """Return the largest angle by which a camera is turned between two rigs."""
    turns = [
        Rotation.from_matrix(a.rotation @ b.rotation.T).magnitude()
        for a, b in zip(one.cameras, two.cameras, strict=True)
    ]
    return math.degrees(max(turns))


def _place_with_sides(recorded: Recorded) -> tuple[float, RigEstimate]:
    """Return the adjustment's cost and the estimate, with people's sides as they are recorded."""
    names = recorded.names
    first = PlacedCamera(names[0], recorded.cameras[0], np.eye(3), np.zeros(3))
    rig = Rig((first,), "people")
    offsets = [Offset(0.0, 0.0)]
    covariance = np.zeros((7, 7))
    cost = 0.0
    for number in range(1, len(names)):
        start = _place_by_bodies(recorded, rig, offsets, number)
        if start is None:
            raise UserError(
                f"no person is visible in {names[number]} and another camera at once: "
                f"{RECORD_A_BOARD}."
            )
        rotation, translation, seconds = start
        camera = PlacedCamera(names[number], recorded.cameras[number], rotation, translation)
        rig = replace(rig, cameras=(*rig.cameras, camera))
        offsets.append(Offset(seconds, np.inf))
        step_s = max(recorded.steps_s[number], recorded.steps_s[0])
        stated_s = recorded.stated_s[number]
        for is_loose in (True, False, False):  # offset and place, each with the other's answer
            rig, covariance, cost = _adjust(recorded, rig, offsets, is_loose)
            *known, last = offsets
            near = (last.seconds - _NEAR_S, last.seconds + _NEAR_S)
            offset = next_offset(rig, recorded.sights(rig), known, stated_s, step_s, near)
            offsets = [*known, offset]
    tracks = recorded.sights(rig)
    offsets_s = [offset.seconds for offset in offsets]
    turn_std_deg, place_std = _deviations(rig, covariance)
    groups = associate(rig, tracks, offsets_s)
    cameras_of_people = [len({camera for camera, _ in group}) for group in groups]
    shared = [count for count in cameras_of_people if count > 1]
    scale_log_std = ADULT_LOG_STD / math.sqrt(max(len(shared), 1))
    return cost, RigEstimate(
        rig=rig,
        offsets=offsets,
        turn_std_deg=turn_std_deg,
        place_std=place_std,
        scale_log_std=scale_log_std if recorded.height_m is None else STATED_HEIGHT_LOG_STD,
        shared=sum(shared),
        agreement=ray_agreement(rig, tracks, offsets_s),
    )


def _deviations(rig: Rig, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return deviations of turns [C - 1] in degrees and of places [C - 1] as shares of distance.

    One factor on all distances is what focal lengths and people's sizes leave open. It changes no
    pose, so its direction is projected out.
    """
    scaling = np.concatenate([np.r_[np.zeros(3), c.translation_m, 0.0] for c in rig.cameras])
    scaling /= np.linalg.norm(scaling)
    other = np.eye(len(scaling)) - np.outer(scaling, scaling)
    std = np.sqrt(np.diag(other @ covariance @ other).clip(0)).reshape(-1, 7)[1:]
    distance_m = np.array([np.linalg.norm(camera.translation_m) for camera in rig.cameras[1:]])
    turn_std_deg = np.degrees(np.linalg.norm(std[:, :3], axis=1))
    place_std = np.linalg.norm(std[:, 3:6], axis=1) / distance_m
    return turn_std_deg, place_std


def _place_by_bodies(
    recorded: Recorded, rig: Rig, offsets: Sequence[Offset], number: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Return rotation, translation and offset of one more camera, by the lifted bodies.

    Every person in it is compared with every person in a camera that stands already, at the offsets
    at which their poses are most alike. The placing with which rays meet best wins.
    """
    best_gain = 0.0
    best_placing: tuple[np.ndarray, np.ndarray, float] | None = None
    stated_s = recorded.stated_s[number]
    unplaced = PlacedCamera("", recorded.cameras[number], np.eye(3), np.zeros(3))
    extended = replace(rig, cameras=(*rig.cameras, unplaced))
    sights = recorded.sights(extended, is_loose=True)
    for base, placed in enumerate(rig.cameras):
        times = sample_times(sights[base])
        step_s = max(recorded.steps_s[base], recorded.steps_s[number])
        base_s = offsets[base].seconds
        for one in recorded.people[base]:
            for two in recorded.people[number]:
                lags = likely_lags(one, two, step_s) if stated_s is None else [stated_s - base_s]
                for lag_s in lags:
                    pose = pose_between(one, two, lag_s, times)
                    if pose is None:
                        continue
                    gains, _ = score_track_pairs(sights[base], sights[number], pose, lag_s, times)
                    gain = sum(float(gains[pair]) for pair in match_tracks(gains))
                    if gain > best_gain:
                        best_gain = gain
                        rotation, translation = pose
                        best_placing = (
                            rotation @ placed.rotation,
                            rotation @ placed.translation_m + translation,
                            lag_s + base_s,
                        )
    return best_placing


def _adjust(
    recorded: Recorded, rig: Rig, offsets: Sequence[Offset], is_loose: bool
) -> tuple[Rig, np.ndarray, float]:
    """Return the rig after bundle adjustment, the cameras' covariance, and the cost.

    The adjustment is over all people whom several cameras see.
    """
    offsets_s = [offset.seconds for offset in offsets]
    groups = associate(rig, recorded.sights(rig, is_loose), offsets_s)
    shared = [group for group in groups if len({camera for camera, _ in group}) > 1]
    if not shared:
        raise UserError(f"no person is visible in two cameras at once: {RECORD_A_BOARD}.")
    rotation = np.stack([camera.rotation for camera in rig.cameras])
    translation = np.stack([camera.translation_m for camera in rig.cameras])
    focal_ratio = np.array(
        [
            placed.camera.mean_focal_px / assumed.mean_focal_px
            for placed, assumed in zip(rig.cameras, recorded.cameras, strict=False)
        ]
    )
    parts = [_sample_person(recorded, len(rig), offsets, group, is_loose) for group in shared]
    rays = np.concatenate([part[0] for part in parts], 1)
    sigma = np.concatenate([part[1] for part in parts], 1)
    sigma = np.where(np.isfinite(sigma).sum(0) >= 2, sigma, np.inf)
    points, _ = triangulate(
        rays / focal_ratio[:, None, None, None],
        sigma / focal_ratio[:, None, None],
        rotation,
        translation,
    )
    bundle = Bundle(
        rays,
        sigma,
        np.concatenate([part[2] for part in parts]),
        np.array([max(focal.log_sigma, 1e-3) for focal in recorded.focals[: len(rig)]]),
        _correlated_frames(len(points)),
    )
    start = BundleState(rotation, translation, np.log(focal_ratio), np.nan_to_num(points, nan=1.0))
    state, covariance, cost = bundle.minimise(start)
    cameras = []
    for number, placed in enumerate(rig.cameras):
        ratio = math.exp(state.log_focal[number])
        fx, fy = recorded.cameras[number].focal_px
        camera = replace(placed.camera, focal_px=(ratio * fx, ratio * fy))
        cameras.append(
            PlacedCamera(placed.name, camera, state.rotation[number], state.translation[number])
        )
    return replace(rig, cameras=tuple(cameras)), covariance, cost


def _correlated_frames(frames: int) -> float:
    """Return how many frames count as one: errors are correlated, and part of them is constant."""
    independent = max(1.0, frames * min(1.0, INDEPENDENT_PER_SECOND * SAMPLE_S))
    share = CONSTANT_ERROR_SHARE + (1 - CONSTANT_ERROR_SHARE) / independent
    return max(1.0, frames * share)


def _sample_person(
    recorded: Recorded,
    count: int,
    offsets: Sequence[Offset],
    group: Sequence[Track],
    is_loose: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one person's rays, deviations and bone lengths at some times of its longest track.

    rays [C, T, 26, 2] are under the assumed lenses of the first `count` cameras; deviations
    [C, T, 26] are inf where the keypoint is not visible; bone lengths are [T, B].
    """
    people = recorded.people
    camera, number = max(group, key=lambda track: len(people[track[0]][track[1]].sight.time_s))
    longest = people[camera][number]
    every = max(1, len(longest.sight.time_s) // MOST_FRAMES)
    times = longest.sight.time_s[::every] + offsets[camera].seconds
    rays = np.zeros((count, len(times), 26, 2))
    sigma = np.full((count, len(times), 26), np.inf)
    for c, n in group:
        track_rays, track_sigma = people[c][n].sight.at(times - offsets[c].seconds)
        is_new = np.isfinite(track_sigma) & ~np.isfinite(sigma[c])
        rays[c][is_new] = track_rays[is_new]
        sigma[c][is_new] = np.hypot(track_sigma, LOOSE if is_loose else 0.0)[is_new]
    bones = longest.points_m[:, BONES[:, 0]] - longest.points_m[:, BONES[:, 1]]
    size = 1.0 if recorded.height_m is None else recorded.height_m / longest.height_m
    lengths = size * np.median(np.linalg.norm(bones, axis=-1), axis=0)
    return rays, sigma, np.broadcast_to(lengths, (len(times), len(BONES)))
