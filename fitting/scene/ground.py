"""Estimate gravity and floor of a shot from the people in it, with their sizes and, when it shows,
the focal length (docs/scene.md).

Each part is a hypothesis. Plumb lines alone are solved first; feet are joined when the floor that
they make agrees with them, is under the camera and holds most of them: people on an escalator, on a
slope or in the air share no floor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fitting.scene.ground_evidence import Evidence, gather_evidence
from fitting.scene.ground_problem import (
    LONE_VERTICAL_DEG,
    ROLL_SIGMA_DEG,
    VERTICAL_DEG,
    GivenGround,
    GroundEstimate,
    GroundProblem,
)
from fitting.scene.height_prior import ADULT_M
from fitting.scene.person_evidence import PersonEvidence, ShotCamera

# When feet are left out: they turn gravity by more deviations of the plumb lines than this, or
# fewer of them than this share are within twice their deviation of one floor.
MOST_TURNED, LEAST_ON_ONE_FLOOR = 2.5, 0.6
CONTRADICTION = 3.0  # deviations from which on something stated contradicts the people
LEAST_STANDING_S = 0.3
# Above the first deviation no floor is claimed (in simulated scenes gravity is then within 10
# degrees in 9 of 10), above the second no gravity: with 10, all 17 claims of the choosing half of
# bench/facts.py are right; with 9 one clip of it less is claimed.
WORST_FLOOR_DEG, WORST_UP_SIGMA_DEG = 6.0, 10.0
REPORTED_LEVEL_M = 0.5  # over or under the floor, from which on a person is said to stand elsewhere


@dataclass(frozen=True)
class GroundAnswer:
    """A ground, or why there is none."""

    ground: GroundEstimate | None
    reason: str  # what it rests on, or what is missing
    warnings: tuple[str, ...] = ()  # where what was given contradicts the people


@dataclass(frozen=True)
class Source:
    """One source's own estimate of gravity."""

    name: str
    up_cam: np.ndarray  # [3] unit, against gravity
    sigma_deg: float

    def __str__(self) -> str:
        return f"{self.name}: {describe_tilt(self.up_cam)} +- {self.sigma_deg:.0f}"


def describe_tilt(up_cam: np.ndarray) -> str:
    """Return in words how far a camera with this up direction [3] looks down, and its roll."""
    pitch = round(math.degrees(math.atan2(-up_cam[2], -up_cam[1])))
    roll = round(math.degrees(math.atan2(up_cam[0], -up_cam[1])))
    degrees = "degree" if abs(pitch) == 1 else "degrees"
    looks = "level" if pitch == 0 else f"{abs(pitch)} {degrees} {'down' if pitch > 0 else 'up'}"
    return looks if roll == 0 else f"{looks}, roll {roll:+d}"


def estimate_ground(
    people: Sequence[PersonEvidence], camera: ShotCamera, user_ground: GivenGround | None = None
) -> GroundAnswer:
    """Return one gravity and one floor for the whole shot, or why they are not known."""
    user_ground = user_ground or GivenGround()
    evidence, standing_s = gather_evidence(people, camera)
    frames = np.concatenate([np.zeros(0), *(person.frames for person in people)])
    shown_s = (float(np.ptp(frames)) + 1) / camera.fps if len(frames) else 0.0
    has_lines = len(evidence.plumb) > 0
    vertical = camera.vertical if user_ground.up_cam is None else None
    if user_ground.up_cam is None and not has_lines and vertical is None:
        return GroundAnswer(None, f"no person stands for long enough ({standing_s:.1f} s in all)")
    problem = _state_problem(people, evidence.without_feet(), camera, user_ground)
    sources = []
    upright = problem.solved()
    if has_lines:
        sources.append(Source("people", upright.up_cam, upright.up_sigma_deg))
    if vertical is not None:
        sigma_deg = VERTICAL_DEG if has_lines else LONE_VERTICAL_DEG
        sources.append(Source("background verticals", vertical, sigma_deg))
        problem = replace(problem, vertical=vertical, vertical_deg=sigma_deg)
        upright = problem.solved()
    ground = upright
    if len(evidence.feet) == 0 or standing_s < min(LEAST_STANDING_S, shown_s / 2):
        why_no_floor = "no feet are seen to stand still"
    else:
        ground = replace(problem, evidence=evidence).solved(upright.up_cam)
        why_no_floor = "" if user_ground.camera_height_m is not None else _no_floor(ground, upright)
    if why_no_floor:
        ground = upright
    else:
        sources.append(Source("floor", ground.up_cam, ground.up_sigma_deg))
    if user_ground.up_cam is None:
        ground = _widened(ground, sources)
        if (
            ground.up_sigma_deg > WORST_FLOOR_DEG
            and ground.floor_known
            and user_ground.camera_height_m is None
        ):
            why_no_floor = f"it may be tilted by {ground.up_sigma_deg:.0f} degrees"
            ground = replace(upright, up_sigma_deg=ground.up_sigma_deg)
    said = "; ".join(map(str, sources))
    if not np.isfinite(ground.up_cam).all() or ground.up_sigma_deg > WORST_UP_SIGMA_DEG:
        reason = f"the up direction is uncertain by {ground.up_sigma_deg:.0f} degrees"
        return GroundAnswer(None, f"{reason} ({said})")
    if why_no_floor:
        count = len(evidence.plumb)
        return GroundAnswer(ground, f"{count} plumb lines; {said}; floor not known: {why_no_floor}")
    count = int(ground.on_floor.sum())
    people_text = "1 person" if count == 1 else f"{count} people"
    points = f"{ground.stance_points} stance points of {people_text}"
    levels = "".join(
        f"; 1 person stands {abs(level_m):.1f} m {'over' if level_m > 0 else 'under'} it"
        for level_m in ground.level_m[ground.on_floor]
        if abs(level_m) > REPORTED_LEVEL_M
    )
    return GroundAnswer(ground, f"{points} and {standing_s:.1f} s of standing; {said}{levels}")


def _state_problem(
    people: Sequence[PersonEvidence],
    evidence: Evidence,
    camera: ShotCamera,
    user_ground: GivenGround,
) -> GroundProblem:
    """Return the least-squares problem of these people."""
    heights = np.array([person.height_m for person in people], float)
    heights = np.where(np.isfinite(heights) & (heights > 0.3), heights, ADULT_M)
    shares = np.array([person.head_share for person in people], float)
    known_m = [math.nan if p.known_height_m is None else p.known_height_m for p in people]
    return GroundProblem(evidence, heights, np.array(known_m), shares, camera.focal, user_ground)


def _widened(ground: GroundEstimate, sources: Sequence[Source]) -> GroundEstimate:
    """Return the ground as uncertain as its sources disagree beyond their errors.

    Cameras are held level more often than not: a large roll that neither the floor nor the
    background confirms counts as a disagreement.
    """
    apart = 0.0
    for source in sources:
        turned = _angle_deg(ground.up_cam, source.up_cam)
        if turned > MOST_TURNED * source.sigma_deg:
            apart = max(apart, turned)
    roll = abs(math.degrees(math.atan2(ground.up_cam[0], -ground.up_cam[1])))
    confirmed = any(source.name != "people" for source in sources)
    if roll > MOST_TURNED * ROLL_SIGMA_DEG and not confirmed:
        apart = max(apart, roll)
    return replace(ground, up_sigma_deg=math.hypot(ground.up_sigma_deg, apart / 2))


def contradictions(
    people: Sequence[PersonEvidence],
    camera: ShotCamera,
    user_ground: GivenGround,
    ground: GroundEstimate | None,
) -> tuple[str, ...]:
    """Return in words where a stated floor or height contradicts what people show, and by how much.
    They are obeyed all the same.
    """
    measured = [number for number, person in enumerate(people) if person.known_height_m is not None]
    if ground is None or not (measured or user_ground.states_anything):
        return ()
    free = estimate_ground(
        [replace(person, known_height_m=None) for person in people], camera
    ).ground
    if free is None:
        return ()
    candidates: list[tuple[float, float, str]] = []  # how far away, the deviation, and words
    if user_ground.up_cam is not None:
        turned = _angle_deg(ground.up_cam, free.up_cam)
        words = f"the stated up direction is {turned:.0f} degrees from what upright people show"
        candidates.append((turned, free.up_sigma_deg, f"{words} (+- {free.up_sigma_deg:.0f})"))
    if user_ground.camera_height_m is not None and free.floor_known:
        stated_m = user_ground.camera_height_m
        shown_m = free.camera_height_m
        std_m = free.camera_height_sigma_m
        words = f"the stated camera height of {stated_m:.2f} m contradicts the people, who show"
        words = f"{words} {shown_m:.2f}"
        candidates.append(
            (
                abs(math.log(stated_m / shown_m)),
                max(std_m / shown_m, 0.1),
                f"{words} +- {std_m:.2f} m",
            )
        )
    for number in measured if free.on_floor.sum() > 1 else ():
        stated_m = people[number].known_height_m or math.nan
        shown_m = float(free.height_m[number])
        words = f"a stated height of {stated_m:.2f} m contradicts the floor that this person shares"
        words = f"{words} with others, on which"
        deviation = (
            max(float(free.scale_log_sigma[number]), 0.05) if free.on_floor[number] else math.inf
        )
        candidates.append(
            (abs(math.log(stated_m / shown_m)), deviation, f"{words} it would be {shown_m:.2f} m")
        )
    return tuple(
        f"{words}; it is used as stated."
        for away, std, words in candidates
        if away > CONTRADICTION * std
    )


def _angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle between unit directions [3]."""
    return math.degrees(math.acos(float(np.clip(a @ b, -1, 1))))


def _no_floor(ground: GroundEstimate, plumb: GroundEstimate) -> str:
    """Return why the feet's floor is not one; empty: it is."""
    turned = _angle_deg(ground.up_cam, plumb.up_cam)
    if turned > MOST_TURNED * plumb.up_sigma_deg:
        tilt = f"feet would tilt it by {turned:.0f} degrees against upright bodies"
        return f"{tilt}: a slope, or no floor"
    if ground.up_sigma_deg > WORST_FLOOR_DEG:
        return f"it may be tilted by {ground.up_sigma_deg:.0f} degrees"
    if ground.on_one_floor < LEAST_ON_ONE_FLOOR:
        return f"only {100 * ground.on_one_floor:.0f} % of resting feet would be on it"
    return ""
