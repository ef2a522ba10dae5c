"""Gravity and floor of a shot from everybody in it, with everyone's size and, when it shows, the focal length.

Three kinds of evidence meet in one robust least-squares problem:

  plumb lines   a standing person's axis (ankles to neck, its mean forward lean taken off) points up. In the image it is
                seen well, in depth badly; people in different places meet in the vanishing point of verticals.
  stance feet   points P of feet that stand still lie on the floor:    up . e^s P - e^s a = -H
                with H the camera's height, s a person's log size and a the joint's height over its sole. Depths come
                from apparent size, so this is also how apparent height shrinks towards the horizon.
  steps         while a foot stands, the pelvis passes over it. How far, the pose tells in metres; how far it comes
                nearer, the apparent size tells in units of the focal length. Their ratio is the focal length.
  sizes         adults are 1.70 +- 0.09 m tall; much shorter is possible (children), much taller is not.
  levels        some people stand on a roof or a stage; this costs more than a child, less than 0.8 m of height.

The floor alone cannot tell the focal length (a longer lens is a flatter floor); floor and plumb lines together can
when the camera looks down or up, and steps towards or away from the camera can.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from fitting.scene.ground_evidence import Evidence, PersonEvidence, ShotCamera, gathered
from fitting.scene.lens import FocalEstimate, refocused

SMALLEST_M, SMALLEST_LOG_SIGMA = 0.8, 0.05  # below stand no people, on their own feet
# Somebody on a roof, a step or a stage: beyond so many metres it costs so much log-likelihood, whatever the height.
LEVEL_M, LEVEL_COST = 0.15, 6.0
KNOWN_LOG_SIGMA, GIVEN_UP_DEG = 0.01, 0.3  # of a height and an up direction that the user states
ADULT_M, ADULT_SIGMA_M = 1.70, 0.09
# Fits shrink a leg's swing in depth: by 1.2 against CMU walkers at the true focal length, 1.0 to 1.4 between shots.
STEP_GAIN, STEP_GAIN_SIGMA = 1.15, 0.18
# The camera itself: people hold it level and look slightly down. Wide, and with heavy tails.
PITCH_DEG, PITCH_SIGMA_DEG, ROLL_SIGMA_DEG = 6.0, 20.0, 8.0
LEAST_STANDING_S = 0.3
LEAST_RESTING = 0.1  # of the time that people are upright; noise hides some of it, jumping nearly all
WORST_UP_SIGMA_DEG = 12.0  # above, gravity counts as not known


@dataclass(frozen=True)
class GivenGround:
    """What the user states of gravity and floor, in the first camera's frame."""

    up_cam: tuple[float, float, float] | None = None  # unit, against gravity; None: to be found
    camera_height_m: float | None = None  # of the first camera over the floor; None: to be found


@dataclass(frozen=True)
class GroundEstimate:
    """Gravity and floor in the first camera's frame: floor points satisfy up . x = -camera_height_m."""

    up_cam: np.ndarray  # [3] unit, against gravity
    up_sigma_deg: float  # standard deviation of the direction, per axis
    camera_height_m: float  # of the first camera over the floor
    camera_height_sigma_m: float
    scale: np.ndarray  # [P] on each person's fitted size and distance, so that all share the floor
    scale_log_sigma: np.ndarray  # [P]
    height_m: np.ndarray  # [P] scale times the fitted height
    on_floor: np.ndarray  # [P] bool: this person's own feet took part; else the scale is the prior's
    level_m: np.ndarray  # [P] of what each person stands on over the floor: a roof, a stage; mostly 0
    focal: FocalEstimate | None  # with the people's evidence joined to what was given; None: they add nothing
    stance_points: int  # that the floor rests on


@dataclass(frozen=True)
class GroundAnswer:
    """A ground, or why there is none."""

    ground: GroundEstimate | None
    reason: str  # what it rests on, or what is missing


def estimate_ground(
    people: Sequence[PersonEvidence], camera: ShotCamera, given: GivenGround | None = None
) -> GroundAnswer:
    """One gravity and one floor for the whole shot."""
    evidence, standing_s, resting_s = gathered(people, camera)
    if standing_s < LEAST_STANDING_S or len(evidence.axis) == 0:
        return GroundAnswer(None, f"nobody stands upright with feet in view ({standing_s:.1f} s in all)")
    if len(evidence.foot) == 0:
        return GroundAnswer(None, "nobody's feet are seen to stand still")
    if resting_s < LEAST_RESTING * standing_s:
        return GroundAnswer(
            None, f"feet rest in {resting_s:.1f} of {standing_s:.1f} s only: people jump, or stand on what gives way"
        )
    heights = np.array([person.height_m for person in people], float)
    heights = np.where(np.isfinite(heights) & (heights > 0.3), heights, ADULT_M)
    problem = _Problem(evidence, heights, camera.focal, _target_heights(people), given or GivenGround())
    state, covariance = problem.solved()
    ground = _read(problem, state, covariance, evidence, heights, camera.focal)
    if not np.isfinite(ground.up_cam).all() or ground.up_sigma_deg > WORST_UP_SIGMA_DEG:
        return GroundAnswer(None, f"the up direction is uncertain by {ground.up_sigma_deg:.0f} degrees")
    who = int(ground.on_floor.sum())
    people_text = "1 person" if who == 1 else f"{who} people"
    return GroundAnswer(
        ground, f"{ground.stance_points} stance points of {people_text} and {standing_s:.1f} s of standing"
    )


def _heavy(residual: np.ndarray | float, scale: float = 2.0) -> np.ndarray:
    """A residual whose square grows like a logarithm beyond `scale` (Cauchy's loss, as a residual)."""
    r = np.asarray(residual, float)
    return np.sign(r) * scale * np.sqrt(np.log1p((r / scale) ** 2))


def _target_heights(people: Sequence[PersonEvidence]) -> np.ndarray:
    """[P] heights that are known; NaN: not known."""
    return np.array([np.nan if p.known_height_m is None else p.known_height_m for p in people], float)


def _size_residual(log_height: np.ndarray, known_m: np.ndarray) -> np.ndarray:
    """Adults are normal around ADULT_M; far below lie children, far above nobody. Known heights are held."""
    z = (log_height - math.log(ADULT_M)) / (ADULT_SIGMA_M / ADULT_M)
    too_small = np.maximum(math.log(SMALLEST_M) - log_height, 0) / SMALLEST_LOG_SIGMA
    known = (log_height - np.log(np.where(np.isfinite(known_m), known_m, 1.0))) / KNOWN_LOG_SIGMA
    return np.where(np.isfinite(known_m), known, np.where(z < 0, np.hypot(_heavy(z, 1.6), too_small), z))


def _level_residual(level_m: np.ndarray) -> np.ndarray:
    """Of people who stand on something else than the floor: any height costs about the same, a pit more than a roof."""
    away = level_m**2 / (level_m**2 + LEVEL_M**2)
    return np.sqrt(2 * away * np.where(level_m < 0, LEVEL_COST + 1.0, LEVEL_COST)) * np.sign(level_m)


class _Problem:
    """Unknowns: up (2 tangent numbers), H, log focal ratio, gain of steps, log size and level of each person."""

    def __init__(
        self, evidence: Evidence, heights_m: np.ndarray, focal: FocalEstimate, known_m: np.ndarray, given: GivenGround
    ) -> None:
        self._evidence, self._heights, self._focal = evidence, heights_m, focal
        self._known, self._given = known_m, given
        self._base = np.eye(3)  # columns: two tangents and the up direction that the tangents turn
        counts = np.bincount(evidence.foot_person, minlength=len(heights_m))
        # Feet of one person share that person's errors: together they weigh as a few measurements in each direction.
        self._foot_share = (np.maximum(1.0, counts / 12) ** -0.5)[evidence.foot_person]

    def up(self, state: np.ndarray) -> np.ndarray:
        up = self._base @ np.array([state[0], state[1], 1.0])
        return up / np.linalg.norm(up)

    def residuals(self, state: np.ndarray) -> np.ndarray:
        e = self._evidence
        up, camera_height, log_ratio, gain = self.up(state), state[2], state[3], state[4]
        log_size, level = np.split(state[5:], 2)
        ratio = math.exp(log_ratio)
        axis = _refocused_axes(e.axis, e.axis_root, e.view_axis, ratio)
        ray = _stretched(e.axis_root, e.view_axis, ratio)
        ray = ray / np.linalg.norm(ray, axis=1, keepdims=True)
        across = np.cross(ray, axis)
        across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-6)
        along = np.cross(axis, across)  # towards or away from the camera, square to the axis
        plumb = np.stack((across @ up / e.axis_sigma[:, 0], along @ up / e.axis_sigma[:, 1]), -1)
        foot = _stretched(e.foot_root, e.foot_view_axis, ratio) + _refocused_axes(
            e.foot - e.foot_root, e.foot_root, e.foot_view_axis, ratio
        )
        below = foot @ up
        size = np.exp(-log_size[e.foot_person])
        sigma = np.hypot(e.foot_sigma[:, 0], e.foot_sigma[:, 1] * np.abs(below))
        over = camera_height - level[e.foot_person]
        floor = (below - e.foot_lift + over * size) / sigma * self._foot_share
        # Divided by the ratio: the pelvis' depth is what is noisy, and must not multiply an unknown.
        by_depth, by_turning, relative, step_sigma = e.step.T
        step = (by_depth + (by_turning + gain * relative) / ratio) / step_sigma * e.step_share
        pitch = math.degrees(math.asin(np.clip(-up[2], -1, 1)))  # looking down: up leans towards the camera
        roll = math.degrees(math.atan2(up[0], -up[1]))
        return np.concatenate(
            (
                _heavy(plumb.ravel()),
                _heavy(floor),
                _heavy(step),
                _size_residual(np.log(self._heights) + log_size, self._known),
                _level_residual(level),
                self._given_residuals(up, camera_height),
                [
                    log_ratio / max(self._focal.log_sigma, 1e-3),
                    (gain - STEP_GAIN) / STEP_GAIN_SIGMA,
                    _heavy((pitch - PITCH_DEG) / PITCH_SIGMA_DEG),
                    _heavy(roll / ROLL_SIGMA_DEG),
                ],
            )
        )

    def _given_residuals(self, up: np.ndarray, camera_height: float) -> np.ndarray:
        rows: list[np.ndarray] = []
        if self._given.up_cam is not None:
            rows.append(np.cross(up, self._given.up_cam) / math.radians(GIVEN_UP_DEG))
        if self._given.camera_height_m is not None:
            rows.append(np.array([(camera_height / self._given.camera_height_m - 1) / KNOWN_LOG_SIGMA]))
        return np.concatenate([np.zeros(0), *rows])

    def solved(self) -> tuple[np.ndarray, np.ndarray]:
        """The best of several starts, and the covariance of the unknowns."""
        e = self._evidence
        start_size = np.log(np.where(np.isfinite(self._known), self._known, ADULT_M) / self._heights)
        mean = np.median(e.axis, axis=0)
        best: tuple[float, np.ndarray, np.ndarray, np.ndarray] | None = None
        for pitch_deg in (None, -10.0, 10.0, 30.0, 50.0):
            up = mean.copy() if self._given.up_cam is None else np.array(self._given.up_cam)
            if pitch_deg is not None and self._given.up_cam is None:
                up[2] = -math.tan(math.radians(pitch_deg)) * np.hypot(up[0], up[1])
            self._base = _basis(up)
            below = e.foot @ self.up(np.zeros(2)) - e.foot_lift
            one_floor = np.concatenate(([0, 0, -np.median(below), 0, STEP_GAIN], start_size, np.zeros(len(start_size))))
            for start in (one_floor, *self._on_levels(one_floor, below)):
                found = least_squares(self.residuals, start, method="trf", x_scale="jac", max_nfev=60)
                if np.isfinite(found.cost) and (best is None or found.cost < best[0]):
                    best = (float(found.cost), found.x, found.jac, self._base)
        assert best is not None
        _, state, jacobian, self._base = best
        normal = jacobian.T @ jacobian + 1e-9 * np.eye(len(state))
        return state, np.linalg.inv(normal)

    def _on_levels(self, start: np.ndarray, below: np.ndarray) -> list[np.ndarray]:
        """The same start with everybody an adult on a level of their own, where these are far apart."""
        count = len(self._heights)
        size = np.exp(start[5 : 5 + count])
        who = [n for n in range(count) if (self._evidence.foot_person == n).any()]
        height = {n: float(np.median(below[self._evidence.foot_person == n])) * size[n] for n in who}
        if len(who) < 2 or max(height.values()) - min(height.values()) < 2 * LEVEL_M:
            return []
        other = start.copy()
        other[2] = -min(height.values())
        for n in who:
            other[5 + count + n] = height[n] + other[2]
        return [other]


def _stretched(points: np.ndarray, view_axis: np.ndarray, ratio: float) -> np.ndarray:
    """Points [N, 3] moved along their camera's optical axis to `ratio` times their depth."""
    return points + (ratio - 1) * np.sum(points * view_axis, 1, keepdims=True) * view_axis


def _refocused_axes(vectors: np.ndarray, root: np.ndarray, view_axis: np.ndarray, ratio: float) -> np.ndarray:
    """Vectors [N, 3] of bodies at root, turned with the ray to the body as the focal length changes."""
    a = root / np.linalg.norm(root, axis=1, keepdims=True)
    b = _stretched(root, view_axis, ratio)
    b = b / np.linalg.norm(b, axis=1, keepdims=True)
    w, cosine = np.cross(a, b), np.sum(a * b, 1, keepdims=True)
    wv = np.cross(w, vectors)
    return vectors + wv + np.cross(w, wv) / (1 + cosine)


def _basis(up: np.ndarray) -> np.ndarray:
    """Columns: two tangents, up."""
    up = up / np.linalg.norm(up)
    side = np.cross(up, [0.0, 0.0, 1.0] if abs(up[2]) < 0.9 else [1.0, 0.0, 0.0])
    side /= np.linalg.norm(side)
    return np.stack((side, np.cross(up, side), up), 1)


def _read(
    problem: _Problem,
    state: np.ndarray,
    covariance: np.ndarray,
    evidence: Evidence,
    heights_m: np.ndarray,
    focal: FocalEstimate,
) -> GroundEstimate:
    sigma = np.sqrt(np.maximum(np.diag(covariance), 0))
    stretch = 1 / (1 + state[0] ** 2 + state[1] ** 2)  # of tangent numbers to radians
    count = len(heights_m)
    on_floor = np.bincount(evidence.foot_person, minlength=count) > 0
    told = sigma[3] < 0.8 * focal.log_sigma
    people = FocalEstimate(focal.focal_px * math.exp(state[3]), float(sigma[3]), f"{focal.source} + people and floor")
    return GroundEstimate(
        up_cam=problem.up(state),
        up_sigma_deg=float(np.degrees(max(sigma[0], sigma[1]) * stretch)),
        camera_height_m=float(state[2]),
        camera_height_sigma_m=float(sigma[2]),
        scale=np.exp(state[5 : 5 + count]),
        scale_log_sigma=sigma[5 : 5 + count],
        height_m=heights_m * np.exp(state[5 : 5 + count]),
        on_floor=on_floor,
        level_m=state[5 + count :],
        focal=people if told else None,
        stance_points=len(evidence.foot),
    )


def placed(points_cam_m: np.ndarray, root_cam_m: np.ndarray, focal_ratio: float, scale: float) -> np.ndarray:
    """A person's points [T, N, 3] as the ground has them: the focal length changed by a ratio, the size by a scale."""
    return scale * refocused(points_cam_m, root_cam_m, focal_ratio)
