"""Gravity and floor of a shot from everybody in it, with everyone's size and, when it shows, the focal length.

One robust least-squares problem; docs/scene.md says what takes part. Points P of feet that stand lie on the floor,

    up . e^s P - e^s a = level - H,

with H the camera's height, s a person's log size and a the joint's height over its sole; depths come from apparent
size, so this is also how that shrinks towards the horizon. The floor alone cannot tell the focal length (a longer lens
is a flatter floor); floor and plumb lines together can when the camera looks down or up, and so can steps towards or
away from it: while a foot stands, the pelvis passes over it, and how far, the pose tells in metres.

Each part is a hypothesis. Plumb lines alone are solved first; feet are joined when the floor that they make agrees with
them, is under the camera and holds most of them: people on an escalator, on a slope or in the air share no floor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from fitting.camera import FocalEstimate
from fitting.scene.background_flow import under_focal
from fitting.scene.ground_evidence import Evidence, PersonEvidence, ShotCamera, gathered, without_feet

SMALLEST_M, SMALLEST_LOG_SIGMA = 0.7, 0.05  # below stand no people, on their own feet
# Somebody on a roof, a step or a stage: beyond so many metres it costs so much log-likelihood, whatever the height; but
# nobody is farther than the highest level from the floor.
LEVEL_M, LEVEL_COST, HIGHEST_LEVEL_M, HIGHEST_SIGMA_M = 0.15, 6.0, 2.5, 0.2
# Of gravity from lines of the background: 98 rendered first frames show it in 39, off by 1.4 degrees in the median and
# 3.0 in nine of ten; what looks like a door frame may lean. Not tuned
VERTICAL_DEG = 2.5
KNOWN_LOG_SIGMA, GIVEN_UP_DEG = 0.01, 0.3  # of a height and an up direction that the user states
ADULT_M, ADULT_SIGMA_M = 1.70, 0.09
CHILDREN, CHILD_M, CHILD_LOG_SIGMA = 0.25, 1.15, 0.3  # share of people who are no adults, and their heights
# Neck to crown measures 0.20 m at 18 months and 0.22 m in adults (head heights of published growth charts and of the
# body model), so its share of what is below tells the height. Between adults of real clips the share as a pose network
# reads it scatters by 0.16 (log) upwards; heads that nod or are seen from behind look small, which tells little.
HEAD_M, HEAD_GROWTH, ANKLE_SHARE, HEAD_LOG_SIGMA, HEAD_BIAS = 0.182, 0.0225, 0.957, 0.16, 0.08
# Fits shrink a leg's swing in depth: by 1.2 against CMU walkers at the true focal length, 1.0 to 1.4 between shots.
STEP_GAIN, STEP_GAIN_SIGMA = 1.15, 0.18
# The camera itself: people hold it level and look slightly down. Wide, and with heavy tails.
PITCH_DEG, PITCH_SIGMA_DEG, ROLL_SIGMA_DEG = 6.0, 12.0, 6.0
CAMERA_M, CAMERA_LOG_SIGMA, LOWEST_CAMERA_M = 1.4, 0.6, 0.12
# When feet are left out: they turn gravity by more deviations of the plumb lines than this, or fewer of them than this
# share are within twice their deviation of one floor.
MOST_TURNED, LEAST_ON_ONE_FLOOR = 2.5, 0.6
CONTRADICTION = 3.0  # deviations from which on something stated contradicts the people
LEAST_STANDING_S = 0.3
LEAST_TOLD = 0.8  # of a lens's deviation that people and floor must bring it below to be heard
ROUGH_STEPS = 15  # of the search from each start, before the best is followed to its end
# Gravity is within 10 degrees in 9 of 10 scenes at 6 degrees, in every other one at 9: above the first no floor is
# claimed, above the second gravity counts as not known (bench/scene_evidence.py --simulated).
WORST_FLOOR_DEG, WORST_UP_SIGMA_DEG = 6.0, 9.0


@dataclass(frozen=True)
class GivenGround:
    """What the user states of gravity and floor, in the first camera's frame."""

    up_cam: tuple[float, float, float] | None = None  # unit, against gravity; None: to be found
    camera_height_m: float | None = None  # of the first camera over the floor; None: to be found

    @property
    def states_floor(self) -> bool:
        return self.camera_height_m is not None

    @property
    def states_anything(self) -> bool:
        return self.up_cam is not None or self.states_floor


@dataclass(frozen=True)
class GroundEstimate:
    """Gravity and floor in the first camera's frame: floor points satisfy up . x = -camera_height_m."""

    up_cam: np.ndarray  # [3] unit, against gravity
    up_sigma_deg: float  # standard deviation of the direction, per axis
    floor_known: bool  # False: gravity alone
    camera_height_m: float  # of the first camera over the floor; NaN: not known
    camera_height_sigma_m: float
    scale: np.ndarray  # [P] on each person's fitted size and distance, so that all share the floor
    scale_log_sigma: np.ndarray  # [P]
    height_m: np.ndarray  # [P] scale times the fitted height
    on_floor: np.ndarray  # [P] bool: this person's own feet took part; else the scale is the prior's
    level_m: np.ndarray  # [P] of what each person stands on over the floor: a roof, a stage; mostly 0
    focal: FocalEstimate | None  # with the people's evidence joined to what was given; None: they add nothing
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
    if given.up_cam is None and len(evidence.axis) == 0:
        return GroundAnswer(None, f"nobody stands or sits upright ({standing_s:.1f} s in all)")
    heights = np.array([person.height_m for person in people], float)
    heights = np.where(np.isfinite(heights) & (heights > 0.3), heights, ADULT_M)
    shares = np.array([person.head_share for person in people], float)
    known = np.array([np.nan if p.known_height_m is None else p.known_height_m for p in people], float)
    parts = _Parts(heights, camera.focal, known, shares, given)
    plumb = _solved(without_feet(evidence), parts)
    lines = ""
    if camera.vertical is not None and given.up_cam is None:
        away = math.degrees(math.acos(float(np.clip(plumb.up_cam @ camera.vertical, -1, 1))))
        if away < MOST_TURNED * math.hypot(plumb.up_sigma_deg, VERTICAL_DEG):
            parts, lines = replace(parts, vertical=camera.vertical), ", verticals of the background"
            plumb = _solved(without_feet(evidence), parts)
        else:
            lines = f"; verticals of the background are {away:.0f} degrees away and not used"
    ground, why_not = plumb, ""
    if len(evidence.foot) == 0 or standing_s < min(LEAST_STANDING_S, shown_s / 2):
        why_not = "nobody's feet are seen to stand still"
    else:
        ground = _solved(evidence, parts, plumb)
        why_not = "" if given.states_floor else _no_floor(ground, plumb)
    if why_not:
        ground = plumb
    if not np.isfinite(ground.up_cam).all() or ground.up_sigma_deg > WORST_UP_SIGMA_DEG:
        return GroundAnswer(None, f"the up direction is uncertain by {ground.up_sigma_deg:.0f} degrees")
    if why_not:
        return GroundAnswer(ground, f"{len(evidence.axis)} plumb lines{lines}; floor not known: {why_not}")
    who = int(ground.on_floor.sum())
    people_text = "1 person" if who == 1 else f"{who} people"
    return GroundAnswer(
        ground, f"{ground.stance_points} stance points of {people_text} and {standing_s:.1f} s of standing{lines}"
    )


def contradictions(
    people: Sequence[PersonEvidence], camera: ShotCamera, given: GivenGround, ground: GroundEstimate | None
) -> tuple[str, ...]:
    """Where a stated floor or height contradicts what people show, and by how much. They are obeyed all the same."""
    known = [number for number, person in enumerate(people) if person.known_height_m is not None]
    if ground is None or not (known or given.states_anything):
        return ()
    free = estimate_ground([replace(person, known_height_m=None) for person in people], camera).ground
    if free is None:
        return ()
    found = []
    turned = math.degrees(math.acos(float(np.clip(ground.up_cam @ free.up_cam, -1, 1))))
    if given.up_cam is not None and turned > CONTRADICTION * free.up_sigma_deg:
        found.append(
            f"the stated up direction is {turned:.0f} degrees from what upright people show (+- "
            f"{free.up_sigma_deg:.0f}); it is used as stated."
        )
    if given.camera_height_m is not None and free.floor_known:
        log_std = free.camera_height_sigma_m / free.camera_height_m
        if abs(math.log(given.camera_height_m / free.camera_height_m)) > CONTRADICTION * max(log_std, 0.1):
            found.append(
                f"the stated camera height of {given.camera_height_m:.2f} m contradicts the people, who show "
                f"{free.camera_height_m:.2f} +- {free.camera_height_sigma_m:.2f} m; it is used as stated."
            )
    for number in known:
        stated, shown = people[number].known_height_m, float(free.height_m[number])
        if stated is None or not free.on_floor[number] or free.on_floor.sum() < 2:
            continue
        if abs(math.log(stated / shown)) > CONTRADICTION * max(float(free.scale_log_sigma[number]), 0.05):
            found.append(
                f"a stated height of {stated:.2f} m contradicts the floor that this person shares with others, on "
                f"which it would be {shown:.2f} m; it is used as stated."
            )
    return tuple(found)


def _no_floor(ground: GroundEstimate, plumb: GroundEstimate) -> str:
    """Why the feet's floor is not one; empty: it is."""
    turned = math.degrees(math.acos(float(np.clip(ground.up_cam @ plumb.up_cam, -1, 1))))
    if turned > MOST_TURNED * plumb.up_sigma_deg:
        return f"feet would tilt it by {turned:.0f} degrees against upright bodies: a slope, or no floor"
    if ground.up_sigma_deg > WORST_FLOOR_DEG:
        return f"it may be tilted by {ground.up_sigma_deg:.0f} degrees"
    if ground.camera_height_m < LOWEST_CAMERA_M:
        return f"the camera would be {100 * ground.camera_height_m:.0f} cm over it"
    if ground.on_one_floor < LEAST_ON_ONE_FLOOR:
        return f"only {100 * ground.on_one_floor:.0f} % of resting feet would be on it"
    return ""


def _heavy(residual: np.ndarray | float, scale: float = 2.0) -> np.ndarray:
    """A residual whose square grows like a logarithm beyond `scale` (Cauchy's loss, as a residual)."""
    r = np.clip(np.asarray(residual, float), -1e100, 1e100)
    return np.sign(r) * scale * np.sqrt(np.log1p((r / scale) ** 2))


def head_share(height_m: np.ndarray) -> np.ndarray:
    """Neck to crown over ankle to neck, as a pose network reads them of standing people of these heights."""
    head = HEAD_M + HEAD_GROWTH * height_m
    return (1 + HEAD_BIAS) * head / (ANKLE_SHARE * height_m - head)


def _size_cost(log_height: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """-log probability of heights, given the heads' shares (NaN: not seen): adults and some children."""
    height = np.exp(np.clip(log_height, math.log(0.5), math.log(4.0)))
    adult = math.log((1 - CHILDREN) / ADULT_SIGMA_M) - ((height - ADULT_M) / ADULT_SIGMA_M) ** 2 / 2
    child = math.log(CHILDREN / (CHILD_M * CHILD_LOG_SIGMA)) - (np.log(height / CHILD_M) / CHILD_LOG_SIGMA) ** 2 / 2
    head = np.log(np.where(np.isfinite(shares), shares, 1.0) / head_share(height)) / HEAD_LOG_SIGMA
    head = np.where(np.isfinite(shares), np.where(head < 0, _heavy(head), head), 0.0)
    too_small = np.maximum(math.log(SMALLEST_M) - log_height, 0) / SMALLEST_LOG_SIGMA
    return (head**2 + too_small**2) / 2 - np.logaddexp(adult, child)


_HEIGHTS_LOG = np.log(np.linspace(SMALLEST_M, 2.1, 141))


def likely_heights_m(shares: np.ndarray) -> np.ndarray:
    """[P] the most likely height of people whose heads have these shares (NaN: not seen)."""
    costs = _size_cost(_HEIGHTS_LOG[:, None], shares[None])
    return np.exp(_HEIGHTS_LOG[costs.argmin(0)])


def _size_residual(log_height: np.ndarray, known_m: np.ndarray, shares: np.ndarray, likely_m: np.ndarray) -> np.ndarray:
    """A height's cost as a residual whose square it is, negative below the likeliest. Known heights are held."""
    likely = np.log(likely_m)
    excess = _size_cost(log_height, shares) - _size_cost(likely, shares)
    residual = np.sign(log_height - likely) * np.sqrt(2 * np.maximum(excess, 0))
    known = (log_height - np.log(np.where(np.isfinite(known_m), known_m, 1.0))) / KNOWN_LOG_SIGMA
    return np.where(np.isfinite(known_m), known, residual)


def _level_residual(level_m: np.ndarray) -> np.ndarray:
    """Of people who stand on something else than the floor: any height costs about the same, a pit more than a roof."""
    away = level_m**2 / (level_m**2 + LEVEL_M**2)
    cost = 2 * away * np.where(level_m < 0, LEVEL_COST + 1.0, LEVEL_COST)
    too_far = np.maximum(np.abs(level_m) - HIGHEST_LEVEL_M, 0) / HIGHEST_SIGMA_M
    return np.sqrt(cost + too_far**2) * np.sign(level_m)


@dataclass(frozen=True)
class _Parts:
    """What is known beside the evidence."""

    heights_m: np.ndarray  # [P] of the fitted bodies
    focal: FocalEstimate
    known_m: np.ndarray  # [P] heights that are stated; NaN: not known
    head_shares: np.ndarray  # [P] NaN: not seen
    given: GivenGround
    vertical: np.ndarray | None = None  # [3] against gravity, as the background shows it under `focal`


def _solved(evidence: Evidence, parts: _Parts, near: GroundEstimate | None = None) -> GroundEstimate:
    """Sizes and levels are unknowns of those whose feet take part; the others have the most likely size. near: where
    the search also begins."""
    who, place = np.unique(evidence.foot_person, return_inverse=True)
    some = replace(
        parts, heights_m=parts.heights_m[who], known_m=parts.known_m[who], head_shares=parts.head_shares[who]
    )
    own = replace(evidence, foot_person=place)
    problem = _Problem(own, some)
    state, covariance = problem.solved(None if near is None else near.up_cam)
    return _read(problem, state, covariance, own, parts, who)


class _Problem:
    """Unknowns: up (2 tangent numbers), log H, log focal ratio, gain of steps, log size and level of each person."""

    def __init__(self, evidence: Evidence, parts: _Parts) -> None:
        self._evidence, self._heights, self._focal = evidence, parts.heights_m, parts.focal
        self._known, self._shares, self._given = parts.known_m, parts.head_shares, parts.given
        self._likely, self._vertical = likely_heights_m(self._shares), parts.vertical
        self._base = np.eye(3)  # columns: two tangents and the up direction that the tangents turn
        # Feet of one person share that person's errors: together they weigh as a few measurements, those of somebody
        # who stays in one place as four.
        self._foot_share = np.ones(len(evidence.foot))
        for number in range(len(parts.heights_m)):
            own = evidence.foot_person == number
            walked_m = float(np.linalg.norm(np.ptp(evidence.foot_root[own], axis=0))) if own.any() else 0.0
            self._foot_share[own] = max(1.0, own.sum() / (4 * min(1 + walked_m, 3.0))) ** -0.5

    def up(self, state: np.ndarray) -> np.ndarray:
        up = self._base @ np.array([state[0], state[1], 1.0])
        return up / np.linalg.norm(up)

    def residuals(self, state: np.ndarray) -> np.ndarray:
        e = self._evidence
        up, camera_height, log_ratio, gain = self.up(state), math.exp(np.clip(state[2], -6, 6)), state[3], state[4]
        log_size, level = np.split(state[5:], 2)
        ratio = math.exp(log_ratio)
        axis = _refocused_axes(e.axis, e.axis_root, e.view_axis, ratio)
        ray = _stretched(e.axis_root, e.view_axis, ratio)
        ray = ray / np.linalg.norm(ray, axis=1, keepdims=True)
        across = np.cross(ray, axis)
        across /= np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-6)
        along = np.cross(axis, across)  # towards or away from the camera, square to the axis
        plumb = np.stack((across @ up / e.axis_sigma[:, 0], along @ up / e.axis_sigma[:, 1]), -1)
        floor = self._floor(up, camera_height, ratio, log_size, level)
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
                _size_residual(np.log(self._heights) + log_size, self._known, self._shares, self._likely),
                _level_residual(level),
                self._given_residuals(up, camera_height, ratio),
                [
                    log_ratio / max(self._focal.log_sigma, 1e-3),
                    (gain - STEP_GAIN) / STEP_GAIN_SIGMA,
                    _heavy((pitch - PITCH_DEG) / PITCH_SIGMA_DEG),
                    _heavy(roll / ROLL_SIGMA_DEG),
                    _heavy((state[2] - math.log(CAMERA_M)) / CAMERA_LOG_SIGMA),
                ],
            )
        )

    def _floor(
        self, up: np.ndarray, camera_height: float, ratio: float, log_size: np.ndarray, level: np.ndarray
    ) -> np.ndarray:
        """[N] how far resting feet are from the floor, in deviations."""
        e = self._evidence
        foot = _stretched(e.foot_root, e.foot_view_axis, ratio) + _refocused_axes(
            e.foot - e.foot_root, e.foot_root, e.foot_view_axis, ratio
        )
        below = foot @ up
        size = np.exp(-log_size[e.foot_person])
        sigma = np.hypot(e.foot_sigma[:, 0], e.foot_sigma[:, 1] * np.abs(below))
        over = camera_height - level[e.foot_person]
        return (below - e.foot_lift + over * size) / sigma * self._foot_share

    def on_one_floor(self, state: np.ndarray) -> float:
        """Share of the resting feet that are within twice their deviation of the floor."""
        log_size, level = np.split(state[5:], 2)
        away = self._floor(self.up(state), math.exp(state[2]), math.exp(state[3]), log_size, level) / self._foot_share
        return float((np.abs(away) < 2).mean()) if len(away) else 0.0

    def _given_residuals(self, up: np.ndarray, camera_height: float, ratio: float) -> np.ndarray:
        rows: list[np.ndarray] = []
        if self._vertical is not None:
            rows.append(_heavy(np.cross(up, under_focal(self._vertical, ratio)) / math.radians(VERTICAL_DEG)))
        if self._given.up_cam is not None:
            rows.append(np.cross(up, self._given.up_cam) / math.radians(GIVEN_UP_DEG))
        if self._given.camera_height_m is not None:
            rows.append(np.array([(camera_height / self._given.camera_height_m - 1) / KNOWN_LOG_SIGMA]))
        return np.concatenate([np.zeros(0), *rows])

    def solved(self, near: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """The best of several starts, and the covariance of the unknowns."""
        e = self._evidence
        start_size = np.log(np.where(np.isfinite(self._known), self._known, self._likely) / self._heights)
        mean = np.median(e.axis, axis=0) if len(e.axis) else np.array([0.0, -1.0, 0.0])
        count = len(start_size)
        best: tuple[float, np.ndarray, np.ndarray] | None = None
        usual = np.array([mean[0], mean[1], -math.tan(math.radians(PITCH_DEG)) * np.hypot(mean[0], mean[1])])
        starts = (mean if near is None else near, usual)
        for up in starts if self._given.up_cam is None else (np.array(self._given.up_cam),):
            self._base = _basis(up)
            below = e.foot @ self.up(np.zeros(2)) - e.foot_lift
            log_camera = math.log(max(-np.median(below), 0.3)) if len(below) else math.log(CAMERA_M)
            one_floor = np.concatenate(([0, 0, log_camera, 0, STEP_GAIN], start_size, np.zeros(count)))
            for start in (one_floor, *self._on_levels(one_floor, below)):
                found = least_squares(self.residuals, start, method="trf", x_scale="jac", max_nfev=ROUGH_STEPS)
                if np.isfinite(found.cost) and (best is None or found.cost < best[0]):
                    best = (float(found.cost), found.x, self._base)
        assert best is not None
        _, state, self._base = best
        found = least_squares(self.residuals, state, method="trf", x_scale="jac", max_nfev=60)
        covariance = np.linalg.inv(found.jac.T @ found.jac + 1e-9 * np.eye(len(state)))
        if covariance[3, 3] >= (LEAST_TOLD * self._focal.log_sigma) ** 2:
            # The lens stays as it was, and people are fitted again with it: gravity and floor must be those of it.
            self._focal = replace(self._focal, log_sigma=0.0)
            found.x[3] = 0.0
            found = least_squares(self.residuals, found.x, method="trf", x_scale="jac", max_nfev=60)
        return found.x, covariance

    def _on_levels(self, start: np.ndarray, below: np.ndarray) -> list[np.ndarray]:
        """The same start where floors are far apart: with everybody at their size on a level of their own, and with
        everybody of such a size that they stand on the middle one."""
        count = len(self._heights)
        size = np.exp(start[5 : 5 + count])
        who = [n for n in range(count) if (self._evidence.foot_person == n).any()]
        height = {n: float(np.median(below[self._evidence.foot_person == n])) * size[n] for n in who}
        if len(who) < 2 or max(height.values()) - min(height.values()) < 2 * LEVEL_M:
            return []
        other = start.copy()
        camera_m = max(-min(height.values()), 0.3)
        other[2] = math.log(camera_m)
        for n in who:
            other[5 + count + n] = height[n] + camera_m
        middle = start.copy()
        middle_m = max(-float(np.median(list(height.values()))), 0.3)
        middle[2] = math.log(middle_m)
        for n in who:
            middle[5 + n] += math.log(np.clip(middle_m / max(-height[n], 0.1), 0.4, 1.1))
        return [other, middle]


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
    problem: _Problem, state: np.ndarray, covariance: np.ndarray, evidence: Evidence, parts: _Parts, who: np.ndarray
) -> GroundEstimate:
    """who: the people whose sizes and levels are among the unknowns."""
    sigma = np.sqrt(np.maximum(np.diag(covariance), 0))
    stretch = 1 / (1 + state[0] ** 2 + state[1] ** 2)  # of tangent numbers to radians
    count, focal = len(who), parts.focal
    told = sigma[3] < LEAST_TOLD * focal.log_sigma
    people = FocalEstimate(focal.focal_px * math.exp(state[3]), float(sigma[3]), f"{focal.source} + people and floor")
    known = len(evidence.foot) > 0 or parts.given.states_floor
    likely = np.where(np.isfinite(parts.known_m), parts.known_m, likely_heights_m(parts.head_shares))
    log_size, log_sigma = np.log(likely / parts.heights_m), np.full(len(likely), ADULT_SIGMA_M / ADULT_M)
    level, on_floor = np.zeros(len(likely)), np.zeros(len(likely), bool)
    log_size[who], log_sigma[who] = state[5 : 5 + count], sigma[5 : 5 + count]
    level[who], on_floor[who] = state[5 + count :], True
    return GroundEstimate(
        up_cam=problem.up(state), up_sigma_deg=float(np.degrees(max(sigma[0], sigma[1]) * stretch)), floor_known=known,
        camera_height_m=math.exp(state[2]) if known else math.nan,
        camera_height_sigma_m=float(sigma[2]) * math.exp(state[2]) if known else math.nan, scale=np.exp(log_size),
        scale_log_sigma=log_sigma, height_m=parts.heights_m * np.exp(log_size), on_floor=on_floor, level_m=level,
        focal=people if told else None, stance_points=len(evidence.foot), on_one_floor=problem.on_one_floor(state),
    )  # fmt: skip
