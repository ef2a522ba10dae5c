"""Where cameras stand, from the people that they see: nobody has recorded a board.

Every camera's lifter gives bodies in its own frame. The same body seen by two cameras tells how one
is turned to the other, and where it stands (Kabsch over all frames). From there a bundle adjustment
moves cameras, focal lengths and the points where rays meet until the keypoints are explained, each
as its stated error says; points are eliminated (Schur's complement), so that a step solves 7
numbers a camera. Its scale is that of the bodies.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.body import Body
from fitting.camera import Camera, FocalEstimate
from fitting.init.lifter import guess_from_keypoints
from fitting.keypoints.observed import body_keypoints, reordered, side_order
from fitting.optimise import CONSTANT_ERROR_SHARE
from fitting.rig.meeting import (
    FEWEST,
    INDEPENDENT_PER_SECOND,
    LONGEST_OFFSET_S,
    MEETS,
    SAMPLE_S,
    Offset,
    Sight,
    associate,
    gains,
    matched,
    meeting,
    neighbours,
    next_offset,
    sample_times,
    triangulate,
)
from fitting.rig.rig import PlacedCamera, Rig
from pose2d.base.errors import UserError
from pose2d.types import Keypoints

LIFTED_STD_M = (
    0.12  # of a lifted keypoint relative to the pelvis, for comparing two cameras' bodies
)
LOOSE = 0.06  # deviation of rays, as tangents, while cameras are placed by bodies alone
CANDIDATES = 6  # time offsets that are looked at more closely
SAMPLES = 60  # frames of a person in the adjustment, at most
STEPS = 30
# Two cameras far from somebody see no depth, only a family of bodies flattened by one factor: bones
# tell which. Of Halpe's keypoints, as long as in the lifted body; BONE_STD is the deviation of a
# person's proportions.
_BONES = np.array(
    [
        (5, 7),
        (7, 9),
        (6, 8),
        (8, 10),
        (11, 13),
        (13, 15),
        (12, 14),
        (14, 16),
        (5, 11),
        (6, 12),
        (5, 6),
        (17, 18),
    ]
)
BONE_STD = 0.06
ROBUST = 3.0  # deviations at which a keypoint counts half of its square
# Beyond these deviations cameras are not known. Wide: a body that is fitted to cameras 10 degrees
# off is flattened by a tenth at most, since its bones keep their lengths, and stated deviations are
# half again as large as errors are. Where they are right, 0.92 and more of people's rays meet
# (rendered rigs of bench/cameras.py).
WORST_DEG = 15.0
WORST_SHARE = 0.35
WORST_MEETING = 0.85
# How often a network takes all sides of people in a camera for each other, and the odds at which
# another answer is not worth a word. Not tuned.
EXCHANGED, ODDS = 0.03, 50.0
ADULT_LOG_STD, KNOWN_LOG_STD = (
    0.045,
    0.01,
)  # of heights, which the scale rests on: of adults, and where stated
RECORD_A_BOARD = "record a board and give --cameras FILE (docs/cameras.md)"


@dataclass(frozen=True)
class Lifted:
    """One person in one camera: keypoints as they were read, and the body that they suggest."""

    sight: Sight
    points_m: np.ndarray  # [N, 26, 3] in the camera's frame
    own: (
        np.ndarray
    )  # [N, 26, 3] the same relative to the pelvis in the body's axes, which no camera changes
    height_m: float  # of the lifted body

    @classmethod
    def of(
        cls,
        keypoints: Keypoints,
        time_s: np.ndarray,
        camera: Camera,
        body: Body,
        fps: float,
        exchanged: bool = False,
    ) -> "Lifted":
        """Of one person's rows; exchanged: if left is right."""
        order = side_order(keypoints, fps)
        keypoints = reordered(
            keypoints, np.asarray(keypoints.skeleton.flip_order)[order] if exchanged else order
        )
        guess = guess_from_keypoints(body_keypoints(keypoints), [camera], body, fps)
        points = body.at(guess.params).keypoints.double().numpy()
        root = Rotation.from_rotvec(guess.params.pose[:, 0].double().numpy()).as_matrix()
        shape = guess.params.shape if guess.params.shape.ndim == 1 else guess.params.shape.mean(0)
        own = np.einsum("nij,nki->nkj", root, points - points[:, 19:20])
        return cls(Sight.of(keypoints, time_s, camera), points, own, body.height_m(shape))


@dataclass(frozen=True)
class RigEstimate:
    """Cameras that people placed; the world is the first camera."""

    rig: Rig
    offsets: list[Offset]
    turn_std_deg: np.ndarray  # [C - 1]
    place_std: (
        np.ndarray
    )  # [C - 1] of the position, of the distance to the first camera, at one scale for all
    scale_log_std: float
    shared: int  # of people whom more than one camera sees, those cameras' sum
    meeting: float  # how well their rays meet, 0 .. 1
    exchanged: int | None = None  # the camera in which people's left is their right, if any


@dataclass(frozen=True)
class Recorded:
    """What every camera saw, and what is known of it."""

    names: Sequence[str]
    cameras: Sequence[Camera]
    focals: Sequence[FocalEstimate]
    people: Sequence[Sequence[Lifted]]
    stated_s: Sequence[float | None]  # what each clock lacks to the first; None: to be found
    steps_s: Sequence[float]  # between frames
    height_m: float | None = None  # of everybody, where it is known
    exchanged: Sequence[
        Sequence[Lifted]
    ] = ()  # [C] people if their left is their right; empty: never

    def sights(self, rig: Rig, loose: bool = False) -> list[list[Sight]]:
        """Everybody's rays under the focal lengths of a rig, of as many cameras as it has; loose:
        while cameras are placed roughly."""
        found = []
        for own, placed, was in zip(self.people, rig.cameras, self.cameras, strict=False):
            ratio = was.mean_focal_px / placed.camera.mean_focal_px
            least = LOOSE if loose else 0.0
            found.append(
                [
                    Sight(
                        p.sight.time_s, ratio * p.sight.rays, np.hypot(ratio * p.sight.sigma, least)
                    )
                    for p in own
                ]
            )
        return found


def place_cameras(recorded: Recorded) -> RigEstimate:
    """UserError where people do not tell.

    A network may take somebody's back for a front, as surely as ever, and the rays of a mirrored
    body meet from another side: sides are tried as they are and exchanged in each of the cameras,
    and compared by evidence.
    """
    found: list[tuple[float, RigEstimate]] = []
    failed = []
    for number in (None, *range(len(recorded.exchanged))):
        people = [
            recorded.exchanged[n] if n == number else own for n, own in enumerate(recorded.people)
        ]
        try:
            cost, estimate = _placed(replace(recorded, people=people))
        except UserError as error:
            failed.append(error)
            continue
        cost += 0.0 if number is None else -2 * math.log(EXCHANGED)
        found.append((cost, replace(estimate, exchanged=number)))
    if not found:
        raise failed[0]
    most = max(one.shared for _, one in found)
    (cost, best), *others = sorted(
        (pair for pair in found if pair[1].shared == most), key=lambda pair: pair[0]
    )
    for another, one in others:
        turns = [
            Rotation.from_matrix(a.rotation @ b.rotation.T).magnitude()
            for a, b in zip(one.rig.cameras, best.rig.cameras, strict=True)
        ]
        if another - cost < 2 * math.log(ODDS) and math.degrees(max(turns)) > WORST_DEG:
            raise UserError(
                "where the cameras stand is not known from the people: their rays meet as well with left and right "
                f"exchanged in one camera, which then stands elsewhere; {RECORD_A_BOARD}."
            )
    if (
        best.turn_std_deg.max() > WORST_DEG
        or best.place_std.max() > WORST_SHARE
        or not best.meeting >= WORST_MEETING
    ):
        raise UserError(
            f"where the cameras stand is not known from the people (to {best.turn_std_deg.max():.1f} degrees and "
            f"{100 * best.place_std.max():.0f} %, rays meet to {best.meeting:.0%}): {RECORD_A_BOARD}."
        )
    return best


def _placed(recorded: Recorded) -> tuple[float, RigEstimate]:
    """With the adjustment's cost."""
    names = recorded.names
    rig = Rig((PlacedCamera(names[0], recorded.cameras[0], np.eye(3), np.zeros(3)),), "people")
    offsets = [Offset(0.0, 0.0)]
    covariance = np.zeros((7, 7))
    cost = 0.0
    for number in range(1, len(names)):
        start = _started(recorded, rig, offsets, number)
        if start is None:
            raise UserError(
                f"nobody is seen by {names[number]} and another camera at once: {RECORD_A_BOARD}."
            )
        rotation, translation, seconds = start
        rig = replace(
            rig,
            cameras=(
                *rig.cameras,
                PlacedCamera(names[number], recorded.cameras[number], rotation, translation),
            ),
        )
        offsets.append(Offset(seconds, np.inf))
        for loose in (True, False, False):  # offset and place, each with the other's answer
            rig, covariance, cost = _adjusted(recorded, rig, offsets, loose)
            *known, now = offsets
            step = max(recorded.steps_s[number], recorded.steps_s[0])
            near = (now.seconds - 0.3, now.seconds + 0.3)
            offsets = [
                *known,
                next_offset(
                    rig, recorded.sights(rig), known, recorded.stated_s[number], step, near
                ),
            ]
    tracks = recorded.sights(rig)
    # One factor on all distances is what focal lengths and people's sizes leave open; it bends
    # nobody.
    way = np.concatenate([np.r_[np.zeros(3), placed.translation_m, 0.0] for placed in rig.cameras])
    way /= np.linalg.norm(way)
    other = np.eye(len(way)) - np.outer(way, way)
    deviation = np.sqrt(np.diag(other @ covariance @ other).clip(0)).reshape(-1, 7)[1:]
    far = np.array([np.linalg.norm(placed.translation_m) for placed in rig.cameras[1:]])
    turn = np.degrees(np.linalg.norm(deviation[:, :3], axis=1))
    place = np.linalg.norm(deviation[:, 3:6], axis=1) / far
    offsets_s = [one.seconds for one in offsets]
    seen_by = [len({camera for camera, _ in group}) for group in associate(rig, tracks, offsets_s)]
    shared = [cameras for cameras in seen_by if cameras > 1]
    log_std = (
        ADULT_LOG_STD / math.sqrt(max(len(shared), 1))
        if recorded.height_m is None
        else KNOWN_LOG_STD
    )
    return cost, RigEstimate(
        rig, offsets, turn, place, log_std, sum(shared), meeting(rig, tracks, offsets_s)
    )


def _started(
    recorded: Recorded, rig: Rig, offsets: Sequence[Offset], number: int
) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Rotation, translation and offset of one more camera, by the bodies: of everybody whom it
    shares with a camera that stands already, at the offsets at which their poses are most alike,
    that with which rays meet best."""
    best: tuple[float, tuple[np.ndarray, np.ndarray, float]] | None = None
    people = recorded.people
    stated = recorded.stated_s[number]
    loose = recorded.sights(
        replace(
            rig,
            cameras=(
                *rig.cameras,
                PlacedCamera("", recorded.cameras[number], np.eye(3), np.zeros(3)),
            ),
        ),
        True,
    )
    for base, placed in enumerate(rig.cameras):
        times = sample_times(loose[base])
        for one in people[base]:
            for two in people[number]:
                step = max(recorded.steps_s[base], recorded.steps_s[number])
                for lag in (
                    _likely_lags(one, two, step)
                    if stated is None
                    else [stated - offsets[base].seconds]
                ):
                    pose = _turned(one, two, lag, times)
                    if pose is None:
                        continue
                    total = gains(loose[base], loose[number], pose, lag, times)[0]
                    gain = sum(float(total[pair]) for pair in matched(total))
                    if best is None or gain > best[0]:
                        rotation, offset = pose
                        placing = (
                            rotation @ placed.rotation,
                            rotation @ placed.translation_m + offset,
                        )
                        best = gain, (*placing, lag + offsets[base].seconds)
    return None if best is None or best[0] <= 0 else best[1]


def _likely_lags(one: Lifted, two: Lifted, step_s: float) -> list[float]:
    """Offsets at which both cameras' bodies have the most alike poses, apart from each other; zero
    too.
    """
    first = one.sight.time_s[0] - two.sight.time_s[-1]
    last = one.sight.time_s[-1] - two.sight.time_s[0]
    low = max(first + 0.5, -LONGEST_OFFSET_S)
    high = min(last - 0.5, LONGEST_OFFSET_S)
    lags = np.arange(math.ceil(low / step_s), math.floor(high / step_s) + 1) * step_s
    times = sample_times([one.sight])
    own = (one.own, two.own)
    scores = np.full(len(lags), -np.inf)
    for n, lag in enumerate(lags):
        a, b = _both(one, two, lag, times)
        if len(a):
            squared = np.square(own[0][a] - own[1][b]).sum(-1).mean(-1) / LIFTED_STD_M**2
            scores[n] = (MEETS - np.minimum(squared, 2 * MEETS)).sum()
    chosen = [0.0]
    for n in np.argsort(-scores):
        if np.isfinite(scores[n]) and all(abs(lags[n] - other) > 0.15 for other in chosen[1:]):
            chosen.append(float(lags[n]))
        if len(chosen) > CANDIDATES:
            break
    return chosen


def _both(
    one: Lifted, two: Lifted, lag_s: float, times_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two tracks that are nearest to the same times."""
    rows = [neighbours(p.sight.time_s, t) for p, t in ((one, times_s), (two, times_s - lag_s))]
    seen = (rows[0][2] >= 0) & (rows[1][2] >= 0)
    near = [np.where(share < 0.5, before, after) for before, after, share in rows]
    return near[0][seen], near[1][seen]


def _turned(
    one: Lifted, two: Lifted, lag_s: float, times_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Rotation and translation from one camera to another that see the same body: of the body about
    its pelvis, and of the pelvis's place in the median frame."""
    a, b = _both(one, two, lag_s, times_s)
    seen = np.isfinite(one.sight.sigma[a]) & np.isfinite(two.sight.sigma[b])
    if seen.sum() < FEWEST:
        return None
    points = one.points_m[a]
    others = two.points_m[b]
    turn, _ = Rotation.align_vectors(
        (others - others[:, 19:20])[seen], (points - points[:, 19:20])[seen]
    )
    rotation = turn.as_matrix()
    return rotation, np.median(others[:, 19] - points[:, 19] @ rotation.T, axis=0)


@dataclass(frozen=True)
class _State:
    """Of C cameras, and people in F frames."""

    rotation: np.ndarray  # [C, 3, 3]
    translation: np.ndarray  # [C, 3]
    log_focal: np.ndarray  # [C] over the lens that was assumed
    points: np.ndarray  # [F, 26, 3]

    def moved(self, step: np.ndarray, points: np.ndarray) -> "_State":
        """After a step [C, 7] of turn, translation and log focal length, and one of the points."""
        turn = Rotation.from_rotvec(step[:, :3]).as_matrix()
        translation = np.einsum("cij,cj->ci", turn, self.translation) + step[:, 3:6]
        return _State(
            turn @ self.rotation, translation, self.log_focal + step[:, 6], self.points + points
        )


@dataclass(frozen=True)
class _Bundle:
    """Keypoints of people in F frames in C cameras, and how long their bones are."""

    rays: np.ndarray  # [C, F, 26, 2] under the lens that was assumed
    sigma: np.ndarray  # [C, F, 26]; inf: not seen
    length_m: np.ndarray  # [F, B] of BONES
    focal_log_std: np.ndarray  # [C]
    # frames that count as one: errors of neighbours are alike, and part of them never changes
    alike: float

    def residuals(self, state: _State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the rays [C, F, 26, 2], of the bones [F, B], both in deviations, and the points in the
        cameras.
        """
        own = (
            np.einsum("cij,fkj->cfki", state.rotation, state.points)
            + state.translation[:, None, None]
        )
        seen = (
            np.exp(state.log_focal)[:, None, None, None]
            * own[..., :2]
            / np.maximum(own[..., 2:], 0.1)
        )
        bones = np.linalg.norm(
            state.points[:, _BONES[:, 0]] - state.points[:, _BONES[:, 1]], axis=-1
        )
        return (
            (seen - self.rays) / self.sigma[..., None],
            (bones / self.length_m - 1) / BONE_STD * self._known,
            own,
        )

    @property
    def _known(self) -> np.ndarray:
        """[F, B] bones both of whose ends are seen."""
        used = np.isfinite(self.sigma).any(0)
        return used[:, _BONES[:, 0]] & used[:, _BONES[:, 1]]

    def cost(self, state: _State) -> float:
        rays, bones, _ = self.residuals(state)
        squared = np.concatenate((np.square(rays).sum(-1).ravel(), np.square(bones).ravel()))
        robust = (squared * ROBUST**2 / (ROBUST**2 + squared)).sum() / self.alike
        return float(robust + np.square(state.log_focal / self.focal_log_std).sum())

    def step(self, state: _State, damping: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the cameras [C, 7] and the points [F, 26, 3], and the cameras' covariance [7 C, 7 C]."""
        rays, bones, own = self.residuals(state)
        count, frames = rays.shape[:2]
        root = _root_weight(np.square(rays).sum(-1)) / math.sqrt(self.alike)
        depth = np.maximum(own[..., 2], 0.1)
        focal = np.exp(state.log_focal)[:, None, None]
        along = np.zeros((*own.shape[:3], 2, 3))
        along[..., 0, 0] = along[..., 1, 1] = focal / depth
        along[..., 2] = -(focal / depth**2)[..., None] * own[..., :2]
        along *= (root / self.sigma)[..., None, None]
        residual = rays * root[..., None]
        by_point = np.einsum("cfkij,cjl->cfkil", along, state.rotation)
        by_turn = np.cross(own[..., None, :], along)  # row . (w x p) = w . (p x row)
        by_focal = (focal / depth * root / self.sigma)[..., None] * own[..., :2]
        by_camera = np.concatenate((by_turn, along, by_focal[..., None]), -1)  # [C, F, 26, 2, 7]
        points = np.zeros((frames, 26, 3, 26, 3))
        toward = np.einsum("cfkil,cfki->fkl", by_point, residual)
        each = np.arange(26)
        points[:, each, :, each] = np.einsum("cfkil,cfkim->kflm", by_point, by_point)
        cross = np.einsum("cfkia,cfkil->cafkl", by_camera, by_point).reshape(count, 7, frames, 78)
        matrix = np.zeros((count, 7, count, 7))
        gradient = np.einsum("cfkia,cfki->ca", by_camera, residual)
        matrix[range(count), :, range(count)] = np.einsum("cfkia,cfkib->cab", by_camera, by_camera)
        matrix[range(count), 6, range(count), 6] += 1 / self.focal_log_std**2
        gradient[:, 6] += state.log_focal / self.focal_log_std**2
        pull = (
            _root_weight(np.square(bones))
            / math.sqrt(self.alike)
            * self._known
            / (BONE_STD * self.length_m)
        )
        for number, (a, b) in enumerate(_BONES):
            way = state.points[:, a] - state.points[:, b]
            row = (
                pull[:, number, None]
                * way
                / np.maximum(np.linalg.norm(way, axis=-1, keepdims=True), 1e-6)
            )
            missed = bones[:, number] * pull[:, number] * (BONE_STD * self.length_m[:, number])
            for one, sign in ((a, 1.0), (b, -1.0)):
                toward[:, one] += sign * row * missed[:, None]
                for two, other in ((a, 1.0), (b, -1.0)):
                    points[:, one, :, two] += sign * other * row[:, :, None] * row[:, None]
        block = points.reshape(frames, 78, 78)
        toward = toward.reshape(frames, 78)
        block[:, range(78), range(78)] *= 1 + damping
        block[:, range(78), range(78)] += 1e-6  # of points that nobody sees
        solved = np.linalg.solve(
            block, cross.transpose(2, 3, 0, 1).reshape(frames, 78, -1)
        )  # [F, 78, 7 C]
        flat = cross.reshape(7 * count, frames, 78)
        whole = matrix.reshape(7 * count, 7 * count) - flat.reshape(7 * count, -1) @ solved.reshape(
            -1, 7 * count
        )
        slope = gradient.ravel() - np.einsum("fpa,fp->a", solved, toward)
        free = np.r_[6, 7 : 7 * count]  # the first camera is the world
        part = whole[np.ix_(free, free)]
        inverted = np.linalg.pinv(part + damping * np.diag(np.diag(part)))
        step = np.zeros(7 * count)
        covariance = np.zeros_like(whole)
        step[free] = -inverted @ slope[free]
        covariance[np.ix_(free, free)] = inverted
        change = -np.linalg.solve(block, (toward + np.einsum("afp,a->fp", flat, step))[..., None])
        return step.reshape(count, 7), change.reshape(frames, 26, 3), covariance


def _root_weight(squared: np.ndarray) -> np.ndarray:
    """Of residuals under Geman-McClure's loss."""
    return ROBUST**2 / (ROBUST**2 + squared)


def _adjusted(
    recorded: Recorded, rig: Rig, offsets: Sequence[Offset], loose: bool
) -> tuple[Rig, np.ndarray, float]:
    """Bundle adjustment over everybody whom several cameras see; the cameras' covariance, and the
    cost.
    """
    groups = [
        g
        for g in associate(rig, recorded.sights(rig, loose), [one.seconds for one in offsets])
        if len({c for c, _ in g}) > 1
    ]
    if not groups:
        raise UserError(f"nobody is seen by two cameras at once: {RECORD_A_BOARD}.")
    rotation, translation = (
        np.stack([getattr(p, n) for p in rig.cameras]) for n in ("rotation", "translation_m")
    )
    factor = np.array(
        [
            p.camera.mean_focal_px / c.mean_focal_px
            for p, c in zip(rig.cameras, recorded.cameras, strict=False)
        ]
    )
    parts = [_together(recorded, len(rig), offsets, group, loose) for group in groups]
    rays, sigma = (np.concatenate([part[n] for part in parts], 1) for n in (0, 1))
    sigma = np.where(np.isfinite(sigma).sum(0) >= 2, sigma, np.inf)
    points, _ = triangulate(
        rays / factor[:, None, None, None], sigma / factor[:, None, None], rotation, translation
    )
    frames = len(points)
    independent = max(1.0, frames * min(1.0, INDEPENDENT_PER_SECOND * SAMPLE_S))
    bundle = _Bundle(
        rays,
        sigma,
        np.concatenate([part[2] for part in parts]),
        np.array([max(focal.log_sigma, 1e-3) for focal in recorded.focals[: len(rig)]]),
        max(1.0, frames * (CONSTANT_ERROR_SHARE + (1 - CONSTANT_ERROR_SHARE) / independent)),
    )
    state = _State(rotation, translation, np.log(factor), np.nan_to_num(points, nan=1.0))
    damping = 1e-3
    cost = bundle.cost(state)
    for _ in range(STEPS):
        cameras, moved, _ = bundle.step(state, damping)
        trial = state.moved(cameras, moved)
        lower = bundle.cost(trial)
        if lower < cost:
            done = cost - lower < 1e-4 * cost
            state = trial
            cost = lower
            damping = max(damping / 5, 1e-7)
            if done:
                break
        else:
            damping *= 6
            if damping > 1e4:
                break
    placed = []
    for c, one in enumerate(rig.cameras):
        fx, fy = (math.exp(state.log_focal[c]) * f for f in recorded.cameras[c].focal_px)
        camera = replace(one.camera, focal_px=(fx, fy))
        placed.append(
            replace(
                one, camera=camera, rotation=state.rotation[c], translation_m=state.translation[c]
            )
        )
    return replace(rig, cameras=tuple(placed)), bundle.step(state, 0.0)[2], cost


def _together(
    recorded: Recorded,
    count: int,
    offsets: Sequence[Offset],
    group: Sequence[tuple[int, int]],
    loose: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of somebody whom several of `count` cameras see, at times of the longest track: rays [C, T,
    26, 2] under the lenses that were assumed, their deviations [C, T, 26], and the lengths of the
    bones [T, B]."""
    camera, number = max(group, key=lambda one: len(recorded.people[one[0]][one[1]].sight.time_s))
    one = recorded.people[camera][number]
    every = max(1, len(one.sight.time_s) // SAMPLES)
    times = one.sight.time_s[::every] + offsets[camera].seconds
    rays = np.zeros((count, len(times), 26, 2))
    sigma = np.full((count, len(times), 26), np.inf)
    for c, n in group:
        there, std = recorded.people[c][n].sight.at(times - offsets[c].seconds)
        seen = np.isfinite(std) & ~np.isfinite(sigma[c])
        rays[c][seen] = there[seen]
        sigma[c][seen] = np.hypot(std, LOOSE if loose else 0.0)[seen]
    bones = np.linalg.norm(one.points_m[:, _BONES[:, 0]] - one.points_m[:, _BONES[:, 1]], axis=-1)
    size = 1.0 if recorded.height_m is None else recorded.height_m / one.height_m
    return rays, sigma, np.broadcast_to(size * np.median(bones, axis=0), (len(times), len(_BONES)))
