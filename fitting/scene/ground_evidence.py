"""Gather what fits of a shot's people say about gravity and floor: plumb lines, stance feet and
steps (`scene.ground`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitting.scene.contact import contacts, intervals
from fitting.scene.height_prior import has_child_head
from fitting.scene.person_evidence import (
    ANKLES,
    PELVIS,
    TOES,
    PersonEvidence,
    ShotCamera,
    never_moves,
)
from fitting.scene.posture import PostureAxis, bend_deg, find_standing
from pose2d.base.columns import column
from pose2d.base.table import Table

# Height of the ankle and toe joints over the sole as shares of the body's height, of the open body
# (1.70 m).
ANKLE_OVER_SOLE = 0.072 / 1.70
TOE_OVER_SOLE = 0.031 / 1.70
LEG_SHARE = 0.5  # length of the legs, of the height
JOINT_M = 0.05  # of a foot relative to the pelvis: the median of what fits state of walkers
FOOT_M = 0.025  # of a stance point from the floor, beside its depth's error
DEPTH_LOG_SIGMA = 0.03  # of a fitted depth, as it changes over a shot
STEP_DEPTH_LOG_SIGMA = 0.015  # of how a fitted depth changes during one stance
STEP_GAIN_SIGMA = 0.18  # of how much fits shrink a leg's swing in depth, between shots
# Correlation of different people's leans in depth: fits err by the same lens and the same habits.
# In four real clips with several people who stand, their axes are off by +14, +7, +7 and -5 degrees
# in the mean and scatter by 5 to 6 around it (bench/facts.py).
ALIKE = 0.5
# Feet of people who stand or walk are in contact nearly always, of people on a trampoline less than
# half of the time: these show no floor, and nothing holds them upright.
LEAST_IN_CONTACT, AIRBORNE_DEG = 0.5, 12.0
LEAST_POSTURE_S = 0.3  # a posture that passes sooner is no standing
# Deviation of the axis of people who are small in the image: this many pixels over the body's
# length, and so many times as much in depth. Not tuned.
KEYPOINT_PX, DEPTH_TIMES = 2.0, 3.0
CHILD_EXCESS_DEG = 20.0  # by which a child's legs and axis lean in depth. Not tuned
CHUNK_S = 0.5  # evidence of one person within this time is one measurement


@dataclass(frozen=True)
class PlumbLines(Table):
    """Axes of people who are upright, in the first camera's axes."""

    axis: np.ndarray = column((3,), "d", "unit")
    root: np.ndarray = column((3,), "d", "pelvis", unit="m")
    sigma: np.ndarray = column(
        (2,), "d", "deviation across and along the line of sight", unit="rad"
    )
    view_axis: np.ndarray = column((3,), "d", "optical axis at that time")


@dataclass(frozen=True)
class StanceFeet(Table):
    """Points of feet that bear weight, in the first camera's axes."""

    point: np.ndarray = column((3,), "d", "joint of the foot", unit="m")
    root: np.ndarray = column((3,), "d", "pelvis", unit="m")
    lift: np.ndarray = column((), "d", "of the joint over its sole", unit="m")
    sigma_m: np.ndarray = column((), "d", "deviation from the floor, beside the depth's", unit="m")
    person: np.ndarray = column((), "i", "whose")
    view_axis: np.ndarray = column((3,), "d", "optical axis at that time")


@dataclass(frozen=True)
class Evidence:
    """Everything that the problem needs."""

    plumb: PlumbLines
    feet: StanceFeet
    # [K, 5] metres along the optical axis from a stance's begin to its end: of the pelvis by its
    # depth, of the pelvis by the camera's turning, of the foot relative to the pelvis; the
    # deviation; and a weight, so that one person's steps together weigh as a few
    step: np.ndarray

    def without_feet(self) -> "Evidence":
        """Return the plumb lines alone."""
        return Evidence(self.plumb, self.feet.rows(slice(0)), self.step[:0])


def gather_evidence(people: Sequence[PersonEvidence], camera: ShotCamera) -> tuple[Evidence, float]:
    """Return the evidence of all people, and the seconds that they were upright."""
    plumb = [PlumbLines.empty()]
    feet = [StanceFeet.empty()]
    steps = [np.zeros((0, 5))]
    upright, standing_s = 0, 0.0  # people, and the time of all of them
    child_heads = has_child_head(np.array([person.head_share for person in people], float))
    for number, person in enumerate(people):
        if len(person.frames) == 0 or never_moves(person, camera.fps):
            continue
        turn = np.broadcast_to(np.eye(3), (len(person.frames), 3, 3))
        if camera.first_from_camera is not None:
            turn = camera.first_from_camera[person.frames]
        standing = _lasting(find_standing(person), person, camera)
        standing_s += float(standing.holds.sum()) / camera.fps
        stance = _stance(person, standing, turn, camera)
        if stance.any(1).sum() < LEAST_IN_CONTACT * standing.holds.sum():
            # A person in the air need not be upright.
            stance = np.zeros_like(stance)
            standing = replace(standing, deviation_deg=(AIRBORNE_DEG, AIRBORNE_DEG))
        foot_excess_rad = standing.excess_rad
        if child_heads[number]:
            # The body of an adult explains a child's proportions by leaning towards the camera.
            foot_excess_rad = np.hypot(foot_excess_rad, math.radians(CHILD_EXCESS_DEG))
            image_deg, depth_deg = standing.deviation_deg
            standing = replace(
                standing, deviation_deg=(image_deg, math.hypot(depth_deg, CHILD_EXCESS_DEG))
            )
        lines = _plumb_lines(person, standing, turn, camera)
        plumb.append(lines)
        upright += len(lines) > 0
        feet.append(_stance_feet(person, number, stance, foot_excess_rad, turn, camera))
        if not camera.moving:
            steps.append(_steps(person, stance, turn, camera))
    together = PlumbLines.concat(plumb)
    wider = np.array([1.0, math.sqrt(1 + ALIKE * max(upright - 1, 0))])
    together = replace(together, sigma=together.sigma * wider)
    return Evidence(together, StanceFeet.concat(feet), np.concatenate(steps)), standing_s


def _lasting(posture: PostureAxis, person: PersonEvidence, camera: ShotCamera) -> PostureAxis:
    """Return the posture where it lasts, less certain for people who are small in the image."""
    holds = posture.holds
    if not holds.any():
        return posture
    reach = max(1, round(LEAST_POSTURE_S * camera.fps))
    if len(holds) > reach:
        around = np.convolve(holds, np.ones(2 * reach + 1))[reach:-reach]
        holds = holds & (around >= reach)
    depth_m = float(np.median(person.joints_cam_m[posture.holds, PELVIS, 2]))
    pixels = camera.focal.focal_px * person.height_m / max(depth_m, 0.2)
    across = math.degrees(KEYPOINT_PX / pixels)
    image_deg, depth_deg = posture.deviation_deg
    deviation = math.hypot(image_deg, across), math.hypot(depth_deg, DEPTH_TIMES * across)
    return replace(posture, holds=holds, deviation_deg=deviation)


def _chunks(frames: np.ndarray, keep: np.ndarray, fps: float) -> list[np.ndarray]:
    """Indices of kept frames, in groups of at most CHUNK_S."""
    index = np.flatnonzero(keep)
    if len(index) == 0:
        return []
    group = np.floor(frames[index] / max(fps * CHUNK_S, 1.0)).astype(int)
    return np.split(index, np.flatnonzero(np.diff(group)) + 1)


def _plumb_lines(
    person: PersonEvidence, posture: PostureAxis, turn: np.ndarray, camera: ShotCamera
) -> PlumbLines:
    holds = posture.holds
    axis = posture.axis
    chunks = _chunks(person.frames, holds, camera.fps)
    # Posture is one error however long a person stands; walking changes it with every step.
    roots = np.einsum("tij,tj->ti", turn, np.nan_to_num(person.joints_cam_m[:, PELVIS]))
    walked_m = float(np.linalg.norm(np.ptp(roots[holds], axis=0))) if holds.any() else 0.0
    spread = max(1.0, len(chunks) / min(1 + walked_m, 3.0)) ** 0.5
    rows = []
    for index in chunks:
        in_first = np.einsum("tij,tj->ti", turn[index], axis[index])
        mean = np.median(in_first, axis=0)
        mean /= max(np.linalg.norm(mean), 1e-9)
        scatter = math.hypot(
            float(np.radians(np.median(bend_deg(in_first, mean)))) / 2,
            float(np.median(posture.excess_rad[index])),
        )
        sigma = [math.hypot(math.radians(s), scatter) * spread for s in posture.deviation_deg]
        root = np.einsum("tij,tj->ti", turn[index], person.joints_cam_m[index, PELVIS]).mean(0)
        rows.append(PlumbLines(mean, root, np.array(sigma), turn[index, :, 2].mean(0)))
    return PlumbLines.stack(rows)


def _stance(
    person: PersonEvidence, standing: PostureAxis, turn: np.ndarray, camera: ShotCamera
) -> np.ndarray:
    """Return whether left ankle, left toe, right ankle and right toe bear the weight of a person
    who is upright: [T, 4] bool.
    """
    joints = person.joints_cam_m
    if (
        camera.moving or len(joints) == 1
    ):  # nothing tells what is in contact: the lower foot along the body's own axis
        low = -np.einsum("tkj,tj->tk", joints[:, (*ANKLES, *TOES)], standing.axis)
        left = low[:, (0, 2)].max(1)
        right = low[:, (1, 3)].max(1)
        return (
            np.stack((left > right, left > right, right > left, right > left), 1)
            & standing.holds[:, None]
        )
    contact, is_visible = contacts(
        person.feet_px,
        person.feet_sigma_px,
        joints[:, (7, 7, 10, 8, 8, 11)],
        joints[:, PELVIS],
        person.height_m,
        person.frames / camera.fps,
        (camera.focal.focal_px, camera.center_px, turn),
    )
    touches = (contact > 0) & is_visible
    # The ankle tells of the heel where no heel is seen: it stays put until the heel lifts.
    heel = np.where(is_visible[:, (1, 4)], touches[:, (1, 4)], touches[:, (0, 3)])
    toe = touches[:, (2, 5)]
    return np.stack((heel[:, 0], toe[:, 0], heel[:, 1], toe[:, 1]), 1) & standing.holds[:, None]


def _stance_feet(
    person: PersonEvidence,
    number: int,
    stance: np.ndarray,
    excess_rad: np.ndarray,
    turn: np.ndarray,
    camera: ShotCamera,
) -> StanceFeet:
    """Return the points of feet that bear weight.

    excess_rad [T]: of the posture. The legs of lunges, and so their feet, are seen badly in depth.
    """
    joints = np.einsum("tij,tkj->tki", turn, np.nan_to_num(person.joints_cam_m))
    rows = []
    which = (ANKLES[0], TOES[0], ANKLES[1], TOES[1])
    for point, joint in enumerate(which):
        lift = person.height_m * (ANKLE_OVER_SOLE if joint in ANKLES else TOE_OVER_SOLE)
        for index in _chunks(
            person.frames, stance[:, point] & person.observed[:, joint], camera.fps
        ):
            sigma = 3 * FOOT_M if camera.moving or len(joints) == 1 else FOOT_M
            sigma = math.hypot(
                sigma, JOINT_M, LEG_SHARE * person.height_m * float(np.median(excess_rad[index]))
            )
            place = joints[index, joint].mean(0)
            root = joints[index, PELVIS].mean(0)
            of_foot = np.array(lift), np.array(sigma), np.array(number)
            rows.append(StanceFeet(place, root, *of_foot, turn[index, :, 2].mean(0)))
    return StanceFeet.stack(rows)


def _steps(
    person: PersonEvidence, stance: np.ndarray, turn: np.ndarray, camera: ShotCamera
) -> np.ndarray:
    """Return how pelvis and foot move along the optical axis while a foot stands, from its first to
    its last fifth: [K, 5].
    """
    rows = []
    joints = np.nan_to_num(person.joints_cam_m)
    for side, joint in enumerate(ANKLES):
        stands = stance[:, 2 * side] & person.observed[:, joint]
        for first, end in intervals(stands.astype(float)):
            ends = max(1, (end - first) // 5)
            if end - first < 0.25 * camera.fps or person.frames[end - 1] - person.frames[
                first
            ] >= 1.5 * (end - first):
                continue
            view = turn[first:end, :, 2].mean(0)
            view /= np.linalg.norm(view)
            root = joints[first:end, PELVIS]
            relative = joints[first:end, joint] - joints[first:end, PELVIS]
            along = (
                turn[first:end].swapaxes(1, 2) @ view
            )  # the mean optical axis in each frame's camera
            parts = (
                root[:, 2] * along[:, 2],
                root[:, 0] * along[:, 0] + root[:, 1] * along[:, 1],
                np.sum(relative * along, 1),
            )
            change = [float(part[-ends:].mean() - part[:ends].mean()) for part in parts]
            sigma = math.hypot(
                STEP_DEPTH_LOG_SIGMA * float(root[:, 2].mean()), FOOT_M, STEP_GAIN_SIGMA * change[2]
            )
            rows.append((*change, sigma))
    share = min(1.0, (8 / max(len(rows), 1)) ** 0.5)
    return np.array([(*row, share) for row in rows]).reshape(-1, 5)
