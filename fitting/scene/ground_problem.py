"""Solve for gravity, floor, sizes and focal length of a shot: one robust least-squares problem.

Points P of feet that stand lie on the floor,

    up . e^s P - e^s a = level - H,

with H the camera's height, s a person's log size and a the joint's height over its sole; depths
come from apparent size, so this is also how that shrinks towards the horizon. The floor alone
cannot tell the focal length (a longer lens is a flatter floor); floor and plumb lines together can
when the camera looks down or up, and so can steps towards or away from it: while a foot stands, the
pelvis passes over it, and how far, the pose tells in metres."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from fitting.camera.focal import FocalEstimate
from fitting.scene.ground_evidence import DEPTH_LOG_SIGMA, Evidence
from fitting.scene.height_prior import (
    child_probability,
    has_child_head,
    heavy_tailed,
    height_cost,
    likely_heights_m,
)
from pose2d.video.camera_motion.motion import under_focal

# A person on a roof, a step or a stage: beyond so many metres it costs so much log-likelihood,
# whatever the height. With 6, far players on a tennis court are lifted by up to 2 m to save the
# horizon of the nearest; with 18 people who share a floor outvote one person, and a roof is found.
LEVEL_M, LEVEL_COST = 0.15, 18.0
# Deviation of gravity from lines of the background: 98 rendered first frames are off by 1.4 degrees
# in the median and 3.0 in nine of ten, the four cameras of pose2sim by 0, 6, 1 and 1.
VERTICAL_DEG = 3.5
LONE_VERTICAL_DEG = 5.0  # where no person confirms them
KNOWN_LOG_SIGMA, GIVEN_UP_DEG = 0.01, 0.3  # of a height and an up direction that the user states
# Fits shrink a leg's swing in depth: by 1.2 against CMU walkers at the true focal length, 1.0 to
# 1.4 between shots.
STEP_GAIN = 1.15
# The camera itself: people hold it level and look slightly down. Wide, and with heavy tails.
PITCH_DEG = 6.0
PITCH_SIGMA_DEG = 12.0
# Most cameras are held level to a few degrees (bench/facts.py: 31 of 31 real clips within 6); a
# tenth is tilted by any angle up to half of this range (two of the four of pose2sim). Not tuned.
ROLL_SIGMA_DEG = 3.0
TILTED, TILTED_RANGE_DEG = 0.1, 90.0
CAMERA_M, CAMERA_LOG_SIGMA = 1.4, 0.6
LEAST_TOLD = 0.8  # of a lens's deviation that people and floor must bring it below to be heard
ROUGH_STEPS = 15  # of the search from each start, before the best is followed to its end


@dataclass(frozen=True)
class GivenGround:
    """What the user states of gravity and floor, in the first camera's frame."""

    up_cam: tuple[float, float, float] | None = None  # unit, against gravity; None: to be found
    camera_height_m: float | None = None  # of the first camera over the floor; None: to be found

    @property
    def states_anything(self) -> bool:
        return self.up_cam is not None or self.camera_height_m is not None


@dataclass(frozen=True)
class GroundEstimate:
    """Gravity and floor in the first camera's frame: floor points satisfy up . x =
    -camera_height_m.
    """

    up_cam: np.ndarray  # [3] unit, against gravity
    up_sigma_deg: float  # standard deviation of the direction, per axis
    floor_known: bool  # False: gravity alone
    camera_height_m: float  # of the first camera over the floor; NaN: not known
    camera_height_sigma_m: float
    scale: np.ndarray  # [P] on each person's fitted size and distance, so that all share the floor
    scale_log_sigma: np.ndarray  # [P]
    height_m: np.ndarray  # [P] scale times the fitted height
    on_floor: (
        np.ndarray
    )  # [P] bool: this person's own feet took part; else the scale is the prior's
    level_m: (
        np.ndarray
    )  # [P] of what each person stands on over the floor: a roof, a stage; mostly 0
    has_child_head: np.ndarray  # [P] bool: the head is a child's
    focal: (
        FocalEstimate | None
    )  # with the people's evidence joined to the prior; None: they add nothing
    stance_points: int  # that the floor rests on
    on_one_floor: float = 1.0  # share of them that are within twice their deviation of it


def _level_camera_residual(roll_deg: float) -> float:
    """Return the residual of a camera's roll: most are held level, the others at any angle."""
    share = TILTED / (1 - TILTED) * ROLL_SIGMA_DEG * math.sqrt(2 * math.pi) / TILTED_RANGE_DEG
    level = math.exp(-((roll_deg / ROLL_SIGMA_DEG) ** 2) / 2)
    return math.copysign(math.sqrt(2 * math.log((1 + share) / (level + share))), roll_deg)


def _level_residual(level_m: np.ndarray) -> np.ndarray:
    """Return the residual of people who stand on something else than the floor: any height costs
    about the same, a pit more than a roof.
    """
    away = level_m**2 / (level_m**2 + LEVEL_M**2)
    return np.sqrt(2 * away * np.where(level_m < 0, LEVEL_COST + 1.0, LEVEL_COST)) * np.sign(
        level_m
    )


@dataclass
class GroundProblem:
    """Unknowns: up (2 tangent numbers), log H, log focal ratio, and log size and level of each
    person.
    """

    evidence: Evidence
    heights_m: np.ndarray  # [P] of the fitted bodies
    known_m: np.ndarray  # [P] heights that are stated; NaN: not known
    head_shares: np.ndarray  # [P] NaN: not seen
    focal: FocalEstimate
    user_ground: GivenGround
    vertical: np.ndarray | None = (
        None  # [3] against gravity, as the background shows it under `focal`
    )
    vertical_deg: float = VERTICAL_DEG

    def __post_init__(self) -> None:
        self.likely_m = likely_heights_m(self.head_shares)
        self.children = child_probability(self.head_shares)
        self.likely_cost = height_cost(np.log(self.likely_m), self.head_shares, self.children)
        self.base = np.eye(3)  # columns: two tangents and the up direction that the tangents turn
        # Feet of one person share that person's errors: together they weigh as a few measurements,
        # those of a person who stays in one place as four.
        feet = self.evidence.feet
        self.foot_share = np.ones(len(feet))
        for number in np.unique(feet.person):
            own = feet.person == number
            walked_m = float(np.linalg.norm(np.ptp(feet.root[own], axis=0)))
            self.foot_share[own] = max(1.0, own.sum() / (4 * min(1 + walked_m, 3.0))) ** -0.5

    def up(self, state: np.ndarray) -> np.ndarray:
        up = self.base @ np.array([state[0], state[1], 1.0])
        return up / np.linalg.norm(up)

    def residuals(self, state: np.ndarray) -> np.ndarray:
        plumb = self.evidence.plumb
        up = self.up(state)
        log_ratio = state[3]
        log_size, level = np.split(state[4:], 2)
        ratio = math.exp(log_ratio)
        axis = _refocused_axes(plumb.axis, plumb.root, plumb.view_axis, ratio)
        ray = _stretched(plumb.root, plumb.view_axis, ratio)
        ray = ray / np.linalg.norm(ray, axis=1, keepdims=True)
        across = np.cross(ray, axis)
        across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-6)
        along = np.cross(axis, across)  # towards or away from the camera, square to the axis
        leans = np.stack((across @ up, along @ up), -1) / plumb.sigma
        # Divided by the ratio: the pelvis' depth is what is noisy, and must not multiply an
        # unknown.
        by_depth, by_turning, relative, step_sigma, step_share = self.evidence.step.T
        step = (by_depth + (by_turning + STEP_GAIN * relative) / ratio) / step_sigma * step_share
        pitch = math.degrees(
            math.asin(np.clip(-up[2], -1, 1))
        )  # looking down: up leans towards the camera
        roll = math.degrees(math.atan2(up[0], -up[1]))
        return np.concatenate(
            (
                heavy_tailed(leans.ravel()),
                heavy_tailed(self.off_floor(state) * self.foot_share),
                heavy_tailed(step),
                self._size_residual(np.log(self.heights_m) + log_size),
                _level_residual(level),
                *self._user_residuals(up, _height_m(state), ratio),
                [
                    log_ratio / max(self.focal.log_sigma, 1e-3),
                    heavy_tailed((pitch - PITCH_DEG) / PITCH_SIGMA_DEG),
                    _level_camera_residual(roll),
                    heavy_tailed((state[2] - math.log(CAMERA_M)) / CAMERA_LOG_SIGMA),
                ],
            )
        )

    def off_floor(self, state: np.ndarray) -> np.ndarray:
        """Return how far feet in contact are from the floor [N], in deviations."""
        feet = self.evidence.feet
        up = self.up(state)
        ratio = math.exp(state[3])
        log_size, level = np.split(state[4:], 2)
        place = _stretched(feet.root, feet.view_axis, ratio) + _refocused_axes(
            feet.point - feet.root, feet.root, feet.view_axis, ratio
        )
        below = place @ up
        over = (_height_m(state) - level[feet.person]) * np.exp(-log_size[feet.person])
        return (below - feet.lift + over) / np.hypot(feet.sigma_m, DEPTH_LOG_SIGMA * np.abs(below))

    def _size_residual(self, log_height: np.ndarray) -> np.ndarray:
        """Return a residual whose square is the cost of a height, negative below the likeliest one.
        Known heights are held.
        """
        excess = height_cost(log_height, self.head_shares, self.children) - self.likely_cost
        residual = np.sign(log_height - np.log(self.likely_m)) * np.sqrt(2 * np.maximum(excess, 0))
        known_residual = (
            log_height - np.log(np.where(np.isfinite(self.known_m), self.known_m, 1.0))
        ) / KNOWN_LOG_SIGMA
        return np.where(np.isfinite(self.known_m), known_residual, residual)

    def _user_residuals(
        self, up: np.ndarray, camera_height: float, ratio: float
    ) -> Iterator[np.ndarray]:
        if self.vertical is not None:
            yield heavy_tailed(
                np.cross(up, under_focal(self.vertical, ratio)) / math.radians(self.vertical_deg)
            )
        if self.user_ground.up_cam is not None:
            yield np.cross(up, self.user_ground.up_cam) / math.radians(GIVEN_UP_DEG)
        if self.user_ground.camera_height_m is not None:
            yield np.array(
                [(camera_height / self.user_ground.camera_height_m - 1) / KNOWN_LOG_SIGMA]
            )

    def solved(self, near: np.ndarray | None = None) -> GroundEstimate:
        """Return the best solution of several starts. near: an up direction that is one of them."""
        feet = self.evidence.feet
        axes = self.evidence.plumb.axis
        start_size = np.log(
            np.where(np.isfinite(self.known_m), self.known_m, self.likely_m) / self.heights_m
        )
        mean = np.median(axes, axis=0) if len(axes) else np.array([0.0, -1.0, 0.0])
        usual_up = np.array(
            [mean[0], mean[1], -math.tan(math.radians(PITCH_DEG)) * np.hypot(mean[0], mean[1])]
        )
        best: tuple[float, np.ndarray, np.ndarray] | None = None
        starts = (mean if near is None else near, usual_up)
        for up in (
            starts if self.user_ground.up_cam is None else (np.array(self.user_ground.up_cam),)
        ):
            self.base = _basis(up)
            below = feet.point @ self.up(np.zeros(2)) - feet.lift
            log_camera = math.log(max(-np.median(below), 0.3)) if len(below) else math.log(CAMERA_M)
            one_floor = np.concatenate(
                ([0, 0, log_camera, 0], start_size, np.zeros(len(start_size)))
            )
            for start in (one_floor, *self._on_levels(one_floor, below)):
                solution = least_squares(
                    self.residuals, start, method="trf", x_scale="jac", max_nfev=ROUGH_STEPS
                )
                if np.isfinite(solution.cost) and (best is None or solution.cost < best[0]):
                    best = (float(solution.cost), solution.x, self.base)
        assert best is not None
        _, state, self.base = best
        solution = least_squares(self.residuals, state, method="trf", x_scale="jac", max_nfev=60)
        covariance = np.linalg.inv(solution.jac.T @ solution.jac + 1e-9 * np.eye(len(state)))
        focal = self.focal
        is_focal_measured = covariance[3, 3] < (LEAST_TOLD * self.focal.log_sigma) ** 2
        if not is_focal_measured:
            # The lens stays as it was, and people are fitted again with it: gravity and floor must
            # be those of it.
            self.focal = replace(focal, log_sigma=0.0)
            solution.x[3] = 0.0
            solution = least_squares(
                self.residuals, solution.x, method="trf", x_scale="jac", max_nfev=60
            )
            self.focal = focal
        state = solution.x
        sigma = np.sqrt(np.maximum(np.diag(covariance), 0))
        people = FocalEstimate(
            focal.focal_px * math.exp(state[3]),
            float(sigma[3]),
            f"{focal.source} + people and floor",
        )
        has_floor = len(feet) > 0 or self.user_ground.camera_height_m is not None
        camera_m = _height_m(state)
        stretch = 1 / (1 + state[0] ** 2 + state[1] ** 2)  # of tangent numbers to radians
        log_size, level = np.split(state[4:], 2)
        log_sigma = np.split(sigma[4:], 2)[0]
        away = self.off_floor(state)
        return GroundEstimate(
            up_cam=self.up(state),
            up_sigma_deg=float(np.degrees(max(sigma[0], sigma[1]) * stretch)),
            floor_known=has_floor,
            camera_height_m=camera_m if has_floor else math.nan,
            camera_height_sigma_m=float(sigma[2]) * camera_m if has_floor else math.nan,
            scale=np.exp(log_size),
            scale_log_sigma=log_sigma,
            height_m=self.heights_m * np.exp(log_size),
            on_floor=np.isin(np.arange(len(level)), feet.person),
            level_m=level,
            has_child_head=has_child_head(self.head_shares),
            focal=people if is_focal_measured else None,
            stance_points=len(feet),
            on_one_floor=float((np.abs(away) < 2).mean()) if len(away) else 0.0,
        )

    def _on_levels(self, start: np.ndarray, below: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the same start where feet are on floors far apart: with all people at their size on
        a level of their own, and with all people so large that they stand on the middle one.

        below [N]: up . x of the soles.
        """
        person = self.evidence.feet.person
        count = len(self.heights_m)
        present = np.unique(person)
        height = np.array([np.median(below[person == n]) * math.exp(start[4 + n]) for n in present])
        if len(present) < 2 or np.ptp(height) < 2 * LEVEL_M:
            return
        levels = start.copy()
        sizes = start.copy()
        lowest_m, middle_m = np.maximum((-height.min(), -np.median(height)), 0.3)
        levels[2] = math.log(lowest_m)
        sizes[2] = math.log(middle_m)
        levels[4 + count + present] = height + lowest_m
        sizes[4 + present] += np.log(np.clip(middle_m / np.maximum(-height, 0.1), 0.4, 1.1))
        yield levels
        yield sizes


def _height_m(state: np.ndarray) -> float:
    """Return the height of the camera."""
    return math.exp(np.clip(state[2], -6, 6))


def _stretched(points: np.ndarray, view_axis: np.ndarray, ratio: float) -> np.ndarray:
    """Points [N, 3] moved along their camera's optical axis to `ratio` times their depth."""
    return points + (ratio - 1) * np.sum(points * view_axis, 1, keepdims=True) * view_axis


def _refocused_axes(
    vectors: np.ndarray, root: np.ndarray, view_axis: np.ndarray, ratio: float
) -> np.ndarray:
    """Vectors [N, 3] of bodies at root, turned with the ray to the body as the focal length
    changes.
    """
    a = root / np.linalg.norm(root, axis=1, keepdims=True)
    b = _stretched(root, view_axis, ratio)
    b = b / np.linalg.norm(b, axis=1, keepdims=True)
    w = np.cross(a, b)
    cosine = np.sum(a * b, 1, keepdims=True)
    wv = np.cross(w, vectors)
    return vectors + wv + np.cross(w, wv) / (1 + cosine)


def _basis(up: np.ndarray) -> np.ndarray:
    """Columns: two tangents, up."""
    up = up / np.linalg.norm(up)
    side = np.cross(up, [0.0, 0.0, 1.0] if abs(up[2]) < 0.9 else [1.0, 0.0, 0.0])
    side /= np.linalg.norm(side)
    return np.stack((side, np.cross(up, side), up), 1)
