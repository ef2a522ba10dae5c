"""Gravity and floor of a shot from everybody in it, with everyone's size and, when it shows, the
focal length.

One robust least-squares problem; docs/scene.md says what takes part. Points P of feet that stand
lie on the floor,

    up . e^s P - e^s a = level - H,

with H the camera's height, s a person's log size and a the joint's height over its sole; depths
come from apparent size, so this is also how that shrinks towards the horizon. The floor alone
cannot tell the focal length (a longer lens is a flatter floor); floor and plumb lines together can
when the camera looks down or up, and so can steps towards or away from it: while a foot stands, the
pelvis passes over it, and how far, the pose tells in metres.

Each part is a hypothesis. Plumb lines alone are solved first; feet are joined when the floor that
they make agrees with them, is under the camera and holds most of them: people on an escalator, on a
slope or in the air share no floor."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from fitting.camera import FocalEstimate
from fitting.scene.ground_evidence import (
    DEPTH_LOG_SIGMA,
    Evidence,
    PersonEvidence,
    ShotCamera,
    gathered,
)
from pose2d.video.camera_motion.motion import under_focal

SMALLEST_M = 0.7  # below stand no people, on their own feet
# Somebody on a roof, a step or a stage: beyond so many metres it costs so much log-likelihood,
# whatever the height.
LEVEL_M, LEVEL_COST = 0.15, 6.0
# Of gravity from lines of the background: 98 rendered first frames show it in 39, off by 1.4
# degrees in the median and 3.0 in nine of ten; what looks like a door frame may lean. Not tuned
VERTICAL_DEG = 2.5
KNOWN_LOG_SIGMA, GIVEN_UP_DEG = 0.01, 0.3  # of a height and an up direction that the user states
ADULT_M, ADULT_SIGMA_M = 1.70, 0.09
# share of people who are no adults, and their heights
CHILDREN = 0.25
CHILD_M = 1.15
CHILD_LOG_SIGMA = 0.3
# Neck to crown measures 0.20 m at 18 months and 0.22 m in adults (head heights of published growth
# charts and of the body model), so its share of what is below tells the height. Between adults of
# real clips the share as a pose network reads it scatters by 0.16 (log) upwards; heads that nod or
# are seen from behind look small, which tells little.
HEAD_M = 0.182
HEAD_GROWTH = 0.0225
ANKLE_SHARE = 0.957
HEAD_LOG_SIGMA = 0.16
HEAD_BIAS = 0.08
# Fits shrink a leg's swing in depth: by 1.2 against CMU walkers at the true focal length, 1.0 to
# 1.4 between shots.
STEP_GAIN = 1.15
# The camera itself: people hold it level and look slightly down. Wide, and with heavy tails.
PITCH_DEG = 6.0
PITCH_SIGMA_DEG = 12.0
ROLL_SIGMA_DEG = 6.0
CAMERA_M, CAMERA_LOG_SIGMA = 1.4, 0.6
# When feet are left out: they turn gravity by more deviations of the plumb lines than this, or
# fewer of them than this share are within twice their deviation of one floor.
MOST_TURNED, LEAST_ON_ONE_FLOOR = 2.5, 0.6
CONTRADICTION = 3.0  # deviations from which on something stated contradicts the people
LEAST_STANDING_S = 0.3
LEAST_TOLD = 0.8  # of a lens's deviation that people and floor must bring it below to be heard
ROUGH_STEPS = 15  # of the search from each start, before the best is followed to its end
# Gravity is within 10 degrees in 9 of 10 scenes at 6 degrees, in every other one at 9: above the
# first no floor is claimed, above the second gravity counts as not known (bench/scene_evidence.py
# --simulated).
WORST_FLOOR_DEG, WORST_UP_SIGMA_DEG = 6.0, 9.0


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
    focal: (
        FocalEstimate | None
    )  # with the people's evidence joined to what was given; None: they add nothing
    stance_points: int  # that the floor rests on
    on_one_floor: float = 1.0  # share of them that are within twice their deviation of it


@dataclass(frozen=True)
class GroundAnswer:
    """A ground, or why there is none."""

    ground: GroundEstimate | None
    reason: str  # what it rests on, or what is missing
    warnings: tuple[str, ...] = ()  # where what was given contradicts the people


def estimate_ground(
    people: Sequence[PersonEvidence], camera: ShotCamera, given: GivenGround | None = None
) -> GroundAnswer:
    """One gravity and one floor for the whole shot."""
    given = given or GivenGround()
    evidence, standing_s = gathered(people, camera)
    frames = np.concatenate([np.zeros(0), *(person.frames for person in people)])
    shown_s = (float(np.ptp(frames)) + 1) / camera.fps if len(frames) else 0.0
    if given.up_cam is None and len(evidence.plumb) == 0:
        return GroundAnswer(None, f"nobody stands or sits upright ({standing_s:.1f} s in all)")
    heights = np.array([person.height_m for person in people], float)
    heights = np.where(np.isfinite(heights) & (heights > 0.3), heights, ADULT_M)
    shares = np.array([person.head_share for person in people], float)
    known = np.array(
        [np.nan if p.known_height_m is None else p.known_height_m for p in people], float
    )
    problem = _Problem(evidence.without_feet(), heights, known, shares, camera.focal, given)
    plumb = problem.solved()
    lines = ""
    if camera.vertical is not None and given.up_cam is None:
        away = _angle_deg(plumb.up_cam, camera.vertical)
        if away < MOST_TURNED * math.hypot(plumb.up_sigma_deg, VERTICAL_DEG):
            problem = replace(problem, vertical=camera.vertical)
            lines = ", verticals of the background"
            plumb = problem.solved()
        else:
            lines = f"; verticals of the background are {away:.0f} degrees away and not used"
    ground, why_not = plumb, ""
    if len(evidence.feet) == 0 or standing_s < min(LEAST_STANDING_S, shown_s / 2):
        why_not = "nobody's feet are seen to stand still"
    else:
        ground = replace(problem, evidence=evidence).solved(plumb.up_cam)
        why_not = "" if given.camera_height_m is not None else _no_floor(ground, plumb)
    if why_not:
        ground = plumb
    if not np.isfinite(ground.up_cam).all() or ground.up_sigma_deg > WORST_UP_SIGMA_DEG:
        return GroundAnswer(
            None, f"the up direction is uncertain by {ground.up_sigma_deg:.0f} degrees"
        )
    if why_not:
        return GroundAnswer(
            ground, f"{len(evidence.plumb)} plumb lines{lines}; floor not known: {why_not}"
        )
    who = int(ground.on_floor.sum())
    people_text = "1 person" if who == 1 else f"{who} people"
    return GroundAnswer(
        ground,
        f"{ground.stance_points} stance points of {people_text} and {standing_s:.1f} s of standing{lines}",
    )


def contradictions(
    people: Sequence[PersonEvidence],
    camera: ShotCamera,
    given: GivenGround,
    ground: GroundEstimate | None,
) -> tuple[str, ...]:
    """Where a stated floor or height contradicts what people show, and by how much. They are obeyed
    all the same.
    """
    known = [number for number, person in enumerate(people) if person.known_height_m is not None]
    if ground is None or not (known or given.states_anything):
        return ()
    free = estimate_ground(
        [replace(person, known_height_m=None) for person in people], camera
    ).ground
    if free is None:
        return ()
    found: list[tuple[float, float, str]] = []  # how far away, the deviation, and words
    if given.up_cam is not None:
        turned = _angle_deg(ground.up_cam, free.up_cam)
        words = f"the stated up direction is {turned:.0f} degrees from what upright people show"
        found.append((turned, free.up_sigma_deg, f"{words} (+- {free.up_sigma_deg:.0f})"))
    if given.camera_height_m is not None and free.floor_known:
        stated = given.camera_height_m
        shown = free.camera_height_m
        std_m = free.camera_height_sigma_m
        words = f"the stated camera height of {stated:.2f} m contradicts the people, who show {shown:.2f}"
        found.append(
            (abs(math.log(stated / shown)), max(std_m / shown, 0.1), f"{words} +- {std_m:.2f} m")
        )
    for number in known if free.on_floor.sum() > 1 else ():
        stated = people[number].known_height_m or math.nan
        shown = float(free.height_m[number])
        words = f"a stated height of {stated:.2f} m contradicts the floor that this person shares with others, on which"
        deviation = (
            max(float(free.scale_log_sigma[number]), 0.05) if free.on_floor[number] else math.inf
        )
        found.append(
            (abs(math.log(stated / shown)), deviation, f"{words} it would be {shown:.2f} m")
        )
    return tuple(
        f"{words}; it is used as stated."
        for away, std, words in found
        if away > CONTRADICTION * std
    )


def _angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    """Between unit directions [3]."""
    return math.degrees(math.acos(float(np.clip(a @ b, -1, 1))))


def _no_floor(ground: GroundEstimate, plumb: GroundEstimate) -> str:
    """Why the feet's floor is not one; empty: it is."""
    turned = _angle_deg(ground.up_cam, plumb.up_cam)
    if turned > MOST_TURNED * plumb.up_sigma_deg:
        return f"feet would tilt it by {turned:.0f} degrees against upright bodies: a slope, or no floor"
    if ground.up_sigma_deg > WORST_FLOOR_DEG:
        return f"it may be tilted by {ground.up_sigma_deg:.0f} degrees"
    if ground.on_one_floor < LEAST_ON_ONE_FLOOR:
        return f"only {100 * ground.on_one_floor:.0f} % of resting feet would be on it"
    return ""


def _heavy(residual: np.ndarray | float, scale: float = 2.0) -> np.ndarray:
    """A residual whose square grows like a logarithm beyond `scale` (Cauchy's loss, as a residual)."""
    r = np.clip(np.asarray(residual, float), -1e100, 1e100)
    return np.sign(r) * scale * np.sqrt(np.log1p((r / scale) ** 2))


def head_share(height_m: np.ndarray) -> np.ndarray:
    """Neck to crown over ankle to neck, as a pose network reads them of standing people of these
    heights.
    """
    head = HEAD_M + HEAD_GROWTH * height_m
    return (1 + HEAD_BIAS) * head / (ANKLE_SHARE * height_m - head)


def _size_cost(log_height: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """-log probability of heights, given the heads' shares (NaN: not seen): adults and some
    children.
    """
    height = np.exp(np.clip(log_height, math.log(0.5), math.log(4.0)))
    adult = math.log((1 - CHILDREN) / ADULT_SIGMA_M) - ((height - ADULT_M) / ADULT_SIGMA_M) ** 2 / 2
    child = (
        math.log(CHILDREN / (CHILD_M * CHILD_LOG_SIGMA))
        - (np.log(height / CHILD_M) / CHILD_LOG_SIGMA) ** 2 / 2
    )
    head = np.log(np.where(np.isfinite(shares), shares, 1.0) / head_share(height)) / HEAD_LOG_SIGMA
    head = np.where(np.isfinite(shares), np.where(head < 0, _heavy(head), head), 0.0)
    return head**2 / 2 - np.logaddexp(adult, child)


_HEIGHTS_LOG = np.log(np.linspace(SMALLEST_M, 2.1, 141))


def likely_heights_m(shares: np.ndarray) -> np.ndarray:
    """[P] the most likely height of people whose heads have these shares (NaN: not seen)."""
    costs = _size_cost(_HEIGHTS_LOG[:, None], shares[None])
    return np.exp(_HEIGHTS_LOG[costs.argmin(0)])


def _level_residual(level_m: np.ndarray) -> np.ndarray:
    """Of people who stand on something else than the floor: any height costs about the same, a pit
    more than a roof.
    """
    away = level_m**2 / (level_m**2 + LEVEL_M**2)
    return np.sqrt(2 * away * np.where(level_m < 0, LEVEL_COST + 1.0, LEVEL_COST)) * np.sign(
        level_m
    )


@dataclass
class _Problem:
    """Unknowns: up (2 tangent numbers), log H, log focal ratio, and log size and level of each
    person.
    """

    evidence: Evidence
    heights_m: np.ndarray  # [P] of the fitted bodies
    known_m: np.ndarray  # [P] heights that are stated; NaN: not known
    head_shares: np.ndarray  # [P] NaN: not seen
    focal: FocalEstimate
    given: GivenGround
    vertical: np.ndarray | None = (
        None  # [3] against gravity, as the background shows it under `focal`
    )

    def __post_init__(self) -> None:
        self.likely_m = likely_heights_m(self.head_shares)
        self.likely_cost = _size_cost(np.log(self.likely_m), self.head_shares)
        self.base = np.eye(3)  # columns: two tangents and the up direction that the tangents turn
        # Feet of one person share that person's errors: together they weigh as a few measurements,
        # those of somebody who stays in one place as four.
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
                _heavy(leans.ravel()),
                _heavy(self.off_floor(state) * self.foot_share),
                _heavy(step),
                self._size_residual(np.log(self.heights_m) + log_size),
                _level_residual(level),
                *self._given_residuals(up, _height_m(state), ratio),
                [
                    log_ratio / max(self.focal.log_sigma, 1e-3),
                    _heavy((pitch - PITCH_DEG) / PITCH_SIGMA_DEG),
                    _heavy(roll / ROLL_SIGMA_DEG),
                    _heavy((state[2] - math.log(CAMERA_M)) / CAMERA_LOG_SIGMA),
                ],
            )
        )

    def off_floor(self, state: np.ndarray) -> np.ndarray:
        """[N] how far feet in contact are from the floor, in deviations."""
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
        """A height's cost as a residual whose square it is, negative below the likeliest. Known
        heights are held.
        """
        excess = _size_cost(log_height, self.head_shares) - self.likely_cost
        residual = np.sign(log_height - np.log(self.likely_m)) * np.sqrt(2 * np.maximum(excess, 0))
        known = (
            log_height - np.log(np.where(np.isfinite(self.known_m), self.known_m, 1.0))
        ) / KNOWN_LOG_SIGMA
        return np.where(np.isfinite(self.known_m), known, residual)

    def _given_residuals(
        self, up: np.ndarray, camera_height: float, ratio: float
    ) -> Iterator[np.ndarray]:
        if self.vertical is not None:
            yield _heavy(
                np.cross(up, under_focal(self.vertical, ratio)) / math.radians(VERTICAL_DEG)
            )
        if self.given.up_cam is not None:
            yield np.cross(up, self.given.up_cam) / math.radians(GIVEN_UP_DEG)
        if self.given.camera_height_m is not None:
            yield np.array([(camera_height / self.given.camera_height_m - 1) / KNOWN_LOG_SIGMA])

    def solved(self, near: np.ndarray | None = None) -> GroundEstimate:
        """The best of several starts. near: an up direction that is one of them."""
        feet = self.evidence.feet
        axes = self.evidence.plumb.axis
        start_size = np.log(
            np.where(np.isfinite(self.known_m), self.known_m, self.likely_m) / self.heights_m
        )
        mean = np.median(axes, axis=0) if len(axes) else np.array([0.0, -1.0, 0.0])
        usual = np.array(
            [mean[0], mean[1], -math.tan(math.radians(PITCH_DEG)) * np.hypot(mean[0], mean[1])]
        )
        best: tuple[float, np.ndarray, np.ndarray] | None = None
        starts = (mean if near is None else near, usual)
        for up in starts if self.given.up_cam is None else (np.array(self.given.up_cam),):
            self.base = _basis(up)
            below = feet.point @ self.up(np.zeros(2)) - feet.lift
            log_camera = math.log(max(-np.median(below), 0.3)) if len(below) else math.log(CAMERA_M)
            one_floor = np.concatenate(
                ([0, 0, log_camera, 0], start_size, np.zeros(len(start_size)))
            )
            for start in (one_floor, *self._on_levels(one_floor, below)):
                found = least_squares(
                    self.residuals, start, method="trf", x_scale="jac", max_nfev=ROUGH_STEPS
                )
                if np.isfinite(found.cost) and (best is None or found.cost < best[0]):
                    best = (float(found.cost), found.x, self.base)
        assert best is not None
        _, state, self.base = best
        found = least_squares(self.residuals, state, method="trf", x_scale="jac", max_nfev=60)
        covariance = np.linalg.inv(found.jac.T @ found.jac + 1e-9 * np.eye(len(state)))
        focal = self.focal
        told = covariance[3, 3] < (LEAST_TOLD * self.focal.log_sigma) ** 2
        if not told:
            # The lens stays as it was, and people are fitted again with it: gravity and floor must
            # be those of it.
            self.focal = replace(focal, log_sigma=0.0)
            found.x[3] = 0.0
            found = least_squares(self.residuals, found.x, method="trf", x_scale="jac", max_nfev=60)
            self.focal = focal
        state = found.x
        sigma = np.sqrt(np.maximum(np.diag(covariance), 0))
        people = FocalEstimate(
            focal.focal_px * math.exp(state[3]),
            float(sigma[3]),
            f"{focal.source} + people and floor",
        )
        known = len(feet) > 0 or self.given.camera_height_m is not None
        # of tangent numbers to radians
        camera_m = _height_m(state)
        stretch = 1 / (1 + state[0] ** 2 + state[1] ** 2)
        log_size, level = np.split(state[4:], 2)
        log_sigma = np.split(sigma[4:], 2)[0]
        away = self.off_floor(state)
        return GroundEstimate(
            up_cam=self.up(state),
            up_sigma_deg=float(np.degrees(max(sigma[0], sigma[1]) * stretch)),
            floor_known=known,
            camera_height_m=camera_m if known else math.nan,
            camera_height_sigma_m=float(sigma[2]) * camera_m if known else math.nan,
            scale=np.exp(log_size),
            scale_log_sigma=log_sigma,
            height_m=self.heights_m * np.exp(log_size),
            on_floor=np.isin(np.arange(len(level)), feet.person),
            level_m=level,
            focal=people if told else None,
            stance_points=len(feet),
            on_one_floor=float((np.abs(away) < 2).mean()) if len(away) else 0.0,
        )

    def _on_levels(self, start: np.ndarray, below: np.ndarray) -> Iterator[np.ndarray]:
        """The same start where feet are on floors far apart: with everybody at their size on a
        level of their own, and with everybody of such a size that they stand on the middle one.
        below [N]: up . x of the soles."""
        whose = self.evidence.feet.person
        count = len(self.heights_m)
        who = np.unique(whose)
        height = np.array([np.median(below[whose == n]) * math.exp(start[4 + n]) for n in who])
        if len(who) < 2 or np.ptp(height) < 2 * LEVEL_M:
            return
        levels = start.copy()
        sizes = start.copy()
        lowest_m, middle_m = np.maximum((-height.min(), -np.median(height)), 0.3)
        levels[2] = math.log(lowest_m)
        sizes[2] = math.log(middle_m)
        levels[4 + count + who] = height + lowest_m
        sizes[4 + who] += np.log(np.clip(middle_m / np.maximum(-height, 0.1), 0.4, 1.1))
        yield levels
        yield sizes


def _height_m(state: np.ndarray) -> float:
    """Of the camera."""
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
