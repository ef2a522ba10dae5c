"""Whether the rays of two cameras' keypoints meet within their stated errors: when the cameras
looked, and who is who.

Of two rays x_a and x_b (x / z, y / z) of one point the epipolar residual, whitened by the stated
errors to first order (Sampson's), is

    d^2 = (x_b . E x_a)^2 / (sigma_b^2 |E x_a|_xy^2 + sigma_a^2 |E^T x_b|_xy^2),       E = [t]_x R,

about 1 where two tracks are of one person at one time. A keypoint counts MEETS - min(d^2, FAR),
half a logarithm of the odds that the rays belong together, so that sums of it find time offsets and
persons alike.

They also tell whether a calibration belongs to the videos: people's rays must meet, and people must
be as tall as people are. Where they do not, the usual mistakes are tried, and what would make them
meet is said: an inverted or exchanged calibration, a mirrored or upside-down video, another unit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, permutations

import numpy as np
from scipy.ndimage import convolve1d
from scipy.optimize import linear_sum_assignment

from fitting.camera import Camera
from fitting.keypoints.observed import body_keypoints, undistorted
from fitting.keypoints.weights import keypoint_weights
from fitting.rig.rig import PlacedCamera, Rig
from pose2d.base.errors import UserError
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

MEETS, FAR = 4.0, 9.0
SURE = 0.3  # confidence times presence of a keypoint whose rays are looked at
LONGEST_STEP_S = (
    0.12  # between two frames, to read keypoints in between: a frame that is missed at 25 frames/s
)
SAMPLES, SAMPLE_S = 400, 0.1  # times that are looked at: at most so many, at least so far apart
INDEPENDENT_PER_SECOND = 3.0  # as in fitting.optimise: neighbouring frames have alike errors
LONGEST_OFFSET_S = 15.0  # that is looked for
NEAR_FRAMES = 3  # around the first answer, that are looked at without what is constant
UNSURE_OFFSET_S = 0.02  # deviation of an offset from which on it is not known
FEWEST = 30  # keypoints that two cameras must see together before anything is said of them
OVERLAP_S = 0.3  # two tracks of one camera that overlap so long are two people
# 1 - mean d^2 / FAR over everybody who is matched: 0.8 to 0.97 where a calibration is right,
# rendered or real, 0 to 0.4 where it is not (tests/fitting/test_rig.py makes the mistakes). Not
# tuned.
SURELY = 0.75
HARDLY = 0.5
BETTER = 0.12
MOST_ORDERS = 4  # cameras of which every order is tried; of more, every two are exchanged
UNITS = {"metres": 1.0, "centimetres": 0.01, "millimetres": 0.001}
# Bones by Halpe's keypoints of both sides, and an adult's lengths in metres; together a factor of
# body size.
BONES = (
    ((5, 11), (6, 12), 0.50),
    ((11, 13), (12, 14), 0.42),
    ((13, 15), (14, 16), 0.40),
    ((5, 7), (6, 8), 0.28),
    ((7, 9), (8, 10), 0.25),
)
SIZES = (0.4, 1.6)  # of a person over an adult's


@dataclass(frozen=True)
class Sight:
    """One person in one camera: the rays of Halpe's 26 keypoints over N frames."""

    time_s: np.ndarray  # [N] rising, on the camera's clock
    rays: np.ndarray  # [N, 26, 2] x / z, y / z of a perfect lens
    sigma: np.ndarray  # [N, 26] deviation in the same units; inf: not seen

    @classmethod
    def of(cls, keypoints: Keypoints, time_s: np.ndarray, camera: Camera) -> "Sight":
        """Of one person's rows."""
        seen = undistorted(body_keypoints(keypoints), [camera])
        rays = (seen.xy_px.double().numpy() - camera.center_px) / camera.focal_px
        sigma = keypoint_weights(seen, "precision").sigma_px.double().numpy() / camera.mean_focal_px
        sure = (seen.confidence * seen.presence).numpy() >= SURE
        return cls(np.asarray(time_s, float), rays, np.where(sure, sigma, np.inf))

    def at(self, time_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rays [M, 26, 2] and their deviations [M, 26] at other times, linear between neighbouring
        frames.
        """
        before, after, share = neighbours(self.time_s, time_s)
        rays = self.rays[before] + share[:, None, None] * (self.rays[after] - self.rays[before])
        sigma = np.maximum(self.sigma[before], self.sigma[after])
        return rays, np.where((share >= 0)[:, None], sigma, np.inf)

    def smoothed(self) -> "Sight":
        """Rays as means over five frames: keypoints read between two frames would be surer than
        those at one, and draw an offset there."""
        seen = np.isfinite(self.sigma)[..., None].astype(float)
        blur = partial(convolve1d, weights=np.array([1, 4, 6, 4, 1]) / 16, axis=0, mode="constant")
        total = blur(np.where(seen > 0, self.rays, 0.0))
        weight = blur(seen)
        return Sight(
            self.time_s, np.where(seen > 0, total / np.maximum(weight, 1e-9), self.rays), self.sigma
        )

    def mirrored(self, x: bool, y: bool, center: np.ndarray) -> "Sight":
        """As an image turned over shows it: x exchanges the sides of people as well; center: the
        image's middle.
        """
        order = np.asarray(HALPE26.flip_order) if x != y else np.arange(26)
        rays = self.rays.copy()
        for axis, turned in enumerate((x, y)):
            rays[..., axis] = 2 * center[axis] - rays[..., axis] if turned else rays[..., axis]
        return Sight(self.time_s, rays[:, order], self.sigma[:, order])


def neighbours(have_s: np.ndarray, want_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each wanted time the rows before and after it, and how far it is from the one to the
    other, 0..1; -1 where there are none near enough."""
    after = np.searchsorted(have_s, want_s).clip(0, len(have_s) - 1)
    before = (after - 1).clip(0)
    step = have_s[after] - have_s[before]
    exact = np.abs(have_s[after] - want_s) < 1e-6
    before = np.where(exact, after, before)
    share = np.where(exact, 0.0, (want_s - have_s[before]) / np.where(step > 0, step, np.inf))
    inside = exact | ((share >= 0) & (share <= 1) & (step > 0) & (step <= LONGEST_STEP_S))
    return before, after, np.where(inside, share, -1.0)


def misfit(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    rotation: np.ndarray,
    offset: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """d [...] with its sign of rays [..., 2] with deviations [...], NaN where one is not seen; and
    where they meet behind a camera. rotation, offset: from the first camera to the second."""
    (rays_a, sigma_a), (rays_b, sigma_b) = a, b
    one, two = (
        np.concatenate((rays, np.ones_like(rays[..., :1])), -1) for rays in (rays_a, rays_b)
    )
    turned = one @ rotation.T
    line_b = np.cross(offset, turned)
    line_a = -np.cross(offset, two) @ rotation  # E^T x_b
    with np.errstate(invalid="ignore", divide="ignore"):
        variance = np.square(sigma_b) * np.square(line_b[..., :2]).sum(-1)
        variance = variance + np.square(sigma_a) * np.square(line_a[..., :2]).sum(-1)
        found = (two * line_b).sum(-1) / np.sqrt(variance)
    cross = np.cross(two, turned)
    away = (cross * np.cross(two, offset)).sum(-1) > 0  # depth in a is minus this over |cross|^2
    away |= (cross * np.cross(turned, offset)).sum(-1) > 0
    return np.where(np.isfinite(sigma_a) & np.isfinite(sigma_b), found, np.nan), away


def squared_misfit(
    a: tuple[np.ndarray, np.ndarray],
    b: tuple[np.ndarray, np.ndarray],
    rotation: np.ndarray,
    offset: np.ndarray,
) -> np.ndarray:
    """d^2, at most FAR, which it also is behind a camera."""
    found, away = misfit(a, b, rotation, offset)
    return np.where(away & np.isfinite(found), FAR, np.minimum(np.square(found), FAR))


def gains(
    first: Sequence[Sight],
    second: Sequence[Sight],
    pose: tuple[np.ndarray, np.ndarray],
    lag_s: float,
    times_s: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """For every two tracks of two cameras: the sum of MEETS - d^2, and how many keypoints it is of.
    lag_s: what the second camera's clock lacks to the first's, on which times_s are."""
    total, count = (np.zeros((len(first), len(second))) for _ in range(2))
    for i, one in enumerate(first):
        here = times_s[(times_s >= one.time_s[0]) & (times_s <= one.time_s[-1])]
        at_first = one.at(here)
        for j, two in enumerate(second):
            d2 = squared_misfit(at_first, two.at(here - lag_s), *pose)
            count[i, j] = np.isfinite(d2).sum()
            total[i, j] = MEETS * count[i, j] - np.nansum(d2)
    return total, count


def matched(total: np.ndarray) -> list[tuple[int, int]]:
    """The pairs with the best sum of gains, when every track has one partner at most."""
    rows, columns = linear_sum_assignment(-np.maximum(total, 0))
    return [(int(i), int(j)) for i, j in zip(rows, columns, strict=True) if total[i, j] > 0]


@dataclass(frozen=True)
class Offset:
    """What a camera's clock lacks to the first camera's."""

    seconds: float
    std_s: float  # 0: as stated; inf: people do not tell

    @property
    def found(self) -> bool:
        """Not stated, nor taken for granted."""
        return 0 < self.std_s < np.inf


def sample_times(sights: Sequence[Sight]) -> np.ndarray:
    """Times at which these tracks are looked at."""
    if not sights:
        return np.zeros(0)
    first = min(s.time_s[0] for s in sights)
    last = max(s.time_s[-1] for s in sights)
    return np.linspace(first, last, int(np.clip((last - first) / SAMPLE_S, 1, SAMPLES)) + 1)


def find_offset(
    known: Sequence[tuple[Sequence[Sight], float, tuple[np.ndarray, np.ndarray]]],
    tracks: Sequence[Sight],
    step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:
    """Of a camera with these tracks, against cameras whose offsets are known.

    known: of each such camera its tracks, its offset, and rotation and translation from it to the
    one looked at. step_s: between frames. A search in steps of a frame, then a parabola through the
    cost around the best.
    """
    if not tracks or not any(sights for sights, _, _ in known):
        return Offset(0.0, np.inf)
    times = [sample_times(sights) for sights, _, _ in known]
    known = [
        ([sight.smoothed() for sight in sights], theirs, pose) for sights, theirs, pose in known
    ]
    tracks = [sight.smoothed() for sight in tracks]

    def score(seconds: float) -> float:
        found = (
            gains(sights, tracks, pose, seconds - theirs, t)[0]
            for (sights, theirs, pose), t in zip(known, times, strict=True)
        )
        return sum(float(gain[pair]) for gain in found for pair in matched(gain))

    low = min(min(s.time_s[0] for s in sights) + theirs for sights, theirs, _ in known if sights)
    high = max(max(s.time_s[-1] for s in sights) + theirs for sights, theirs, _ in known if sights)
    # where they overlap
    low = low - max(s.time_s[-1] for s in tracks)
    high = high - min(s.time_s[0] for s in tracks)
    low = max(low, around_s[0])
    high = min(high, around_s[1])
    coarse = np.arange(np.floor(low / step_s), np.ceil(high / step_s) + 1) * step_s
    scores = np.array([score(s) for s in coarse])
    best = float(coarse[scores.argmax()])
    pairs = [
        (sights[i], tracks[j], theirs, pose, t)
        for (sights, theirs, pose), t in zip(known, times, strict=True)
        for i, j in matched(gains(sights, tracks, pose, best - theirs, t)[0])
    ]

    def cost(seconds: float) -> float:
        """Half the squared misfit of tracks of one person, without what is constant in each
        keypoint's: part of a network's error never changes, and says nothing of time."""
        total = 0.0
        for one, two, theirs_s, pose, times_s in pairs:
            away, _ = misfit(one.at(times_s), two.at(times_s - (seconds - theirs_s)), *pose)
            away = away[:, np.isfinite(away).any(0)]
            total += np.nansum(np.minimum(np.square(away - np.nanmedian(away, axis=0)), FAR)) / 2
        return float(total)

    near = best + np.linspace(-NEAR_FRAMES, NEAR_FRAMES, 4 * NEAR_FRAMES + 1) * step_s
    lowest = float(near[int(np.argmin([cost(seconds) for seconds in near]))])
    # Within two frames the cost is about a parabola; its curvature is the precision.
    fine = lowest + np.linspace(-2, 2, 9) * step_s
    a, b, _ = np.polyfit(fine - lowest, [cost(seconds) for seconds in fine], 2)
    if not pairs or a <= 0 or abs(lowest - b / (2 * a) - best) > NEAR_FRAMES * step_s:
        return Offset(best, np.inf)
    spacing = max(float(np.diff(t).mean()) if len(t) > 1 else SAMPLE_S for t in times)
    alike = max(1.0, 1 / (spacing * INDEPENDENT_PER_SECOND))  # samples that count as one
    return Offset(float(lowest - b / (2 * a)), float(np.sqrt(alike / (2 * a))))


Track = tuple[int, int]  # a camera, and the number of a track in it


def pair_gains(
    rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]
) -> Iterator[tuple[int, int, np.ndarray, np.ndarray]]:
    """Of every two cameras their numbers, and the `gains` of their tracks."""
    for a, b in combinations(range(len(rig)), 2):
        lag_s = offsets_s[b] - offsets_s[a]
        yield a, b, *gains(tracks[a], tracks[b], rig.relative(b, a), lag_s, sample_times(tracks[a]))


def associate(
    rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]
) -> list[list[Track]]:
    """Who is who: people as lists of tracks, the longest seen first.

    The two groups whose rays meet best are joined, again and again, while any do; tracks of one
    camera that overlap are different people.
    """
    gain: dict[
        tuple[Track, Track], float
    ] = {}  # sums of gains of tracks of different cameras that are seen together
    for a, b, total, count in pair_gains(rig, tracks, offsets_s):
        for i, j in np.argwhere(count >= FEWEST).tolist():
            gain[(a, i), (b, j)] = gain[(b, j), (a, i)] = float(total[i, j])
    everyone = [(camera, number) for camera, own in enumerate(tracks) for number in range(len(own))]

    def apart(one: Track, two: Track) -> bool:
        first = tracks[one[0]][one[1]].time_s
        second = tracks[two[0]][two[1]].time_s
        return (
            one[0] == two[0] and min(first[-1], second[-1]) - max(first[0], second[0]) > OVERLAP_S
        )

    groups = [[one] for one in everyone]
    while True:
        best, which = 0.0, None
        for a, b in combinations(range(len(groups)), 2):
            pairs = [(x, y) for x in groups[a] for y in groups[b]]
            value = sum(gain.get(pair, 0.0) for pair in pairs)
            if value > best and not any(apart(*pair) for pair in pairs):
                best = value
                which = (a, b)
        if which is None:
            break
        groups[which[0]] += groups.pop(which[1])

    def seen_s(group: list[Track]) -> float:
        return sum(float(np.ptp(tracks[camera][number].time_s)) for camera, number in group)

    return sorted((sorted(group) for group in groups), key=seen_s, reverse=True)


def triangulate(
    rays: np.ndarray, sigma: np.ndarray, rotation: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points [..., 3] where rays [V, ..., 2] of V cameras meet best, weighted by their deviations
    [V, ...], and the length of their standard deviation [...]; NaN where fewer than two cameras see
    one.

    rotation [V, 3, 3], offset [V, 3]: from the points' frame to each camera. Iteratively
    reweighted: a ray that misses by more than three deviations counts less, as under
    Geman-McClure's loss.
    """
    # (x R_3 - R_1) X = t_1 - x t_3, and the same for y
    shape = (len(rays), *(1,) * (rays.ndim - 2))
    third = rotation[:, 2].reshape(*shape, 3)
    rows = np.stack(
        [rays[..., k, None] * third - rotation[:, k].reshape(*shape, 3) for k in (0, 1)], -2
    )
    aim = np.stack(
        [offset[:, k].reshape(shape) - rays[..., k] * offset[:, 2].reshape(shape) for k in (0, 1)],
        -1,
    )
    seen = np.isfinite(sigma)
    depth = np.ones_like(sigma)
    slope = np.ones_like(sigma)
    points = np.zeros((*rays.shape[1:-1], 3))
    matrix = np.zeros((*points.shape, 3))
    for _ in range(6):
        weight = np.where(seen, slope / np.square(np.where(seen, sigma, 1.0) * depth), 0.0)
        matrix = np.einsum("v...,v...ki,v...kj->...ij", weight, rows, rows) + 1e-9 * np.eye(3)
        vector = np.einsum("v...,v...ki,v...k->...i", weight, rows, aim)
        points = np.linalg.solve(matrix, vector[..., None])[..., 0]
        depth = np.maximum(
            np.einsum("...i,v...i->v...", points, np.broadcast_to(third, (*sigma.shape, 3)))
            + offset[:, 2].reshape(shape),
            0.1,
        )
        missed = np.einsum("v...ki,...i->v...k", rows, points) - aim
        squared = np.square(missed).sum(-1) / np.square(np.where(seen, sigma, np.inf) * depth)
        slope = np.square(9 / (9 + squared))
    enough = seen.sum(0) >= 2
    std = np.sqrt(np.trace(np.linalg.inv(matrix), axis1=-2, axis2=-1))
    return np.where(enough[..., None], points, np.nan), np.where(enough, std, np.nan)


# --- whether a calibration belongs to the videos
# ---------------------------------------------------------------------


def find_offsets(
    rig: Rig,
    tracks: Sequence[Sequence[Sight]],
    stated_s: Sequence[float | None],
    steps_s: Sequence[float],
) -> list[Offset]:
    """What every camera's clock lacks to the first's: as stated, or found against the cameras
    before it. One that people do not tell is zero."""
    offsets = [Offset(0.0, 0.0)]
    for number in range(1, len(rig)):
        offsets.append(
            next_offset(rig, tracks, offsets, stated_s[number], max(steps_s[number], steps_s[0]))
        )
    return offsets


def next_offset(
    rig: Rig,
    tracks: Sequence[Sequence[Sight]],
    known: Sequence[Offset],
    stated_s: float | None,
    step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:
    """Of the camera after those whose offsets are known; the middle of around_s where people do not
    tell. Zero where it is that within three deviations and half a frame: cameras that were started
    by hand are a few frames apart, and those that are not are mostly started by one signal."""
    if stated_s is not None:
        return Offset(stated_s, 0.0)
    number = len(known)
    others = [
        (tracks[n], one.seconds, rig.relative(number, n))
        for n, one in enumerate(known)
        if tracks[n]
    ]
    found = find_offset(others, tracks[number], step_s, around_s)
    if found.std_s > UNSURE_OFFSET_S:
        return Offset(sum(around_s) / 2, np.inf)
    near = abs(found.seconds) <= min(3 * found.std_s, step_s / 2)
    return Offset(0.0, found.std_s) if near else found


def meeting(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]) -> float:
    """How well the rays of everybody who is matched meet, 0 (nowhere) .. 1 (exactly); NaN: nobody
    is seen by two.
    """
    total = count = 0.0
    for _, _, gain, seen in pair_gains(rig, tracks, offsets_s):
        gain = np.where(seen >= FEWEST, gain, -np.inf)
        if not np.isfinite(gain).any():
            continue
        for i, j in matched(gain) or [divmod(int(np.argmax(gain)), gain.shape[1])]:
            total = total + gain[i, j]
            count = count + seen[i, j]
    return 1 - (MEETS - total / count) / FAR if count else float("nan")


def checked(
    rig: Rig,
    tracks: Sequence[Sequence[Sight]],
    stated_s: Sequence[float | None],
    steps_s: Sequence[float],
) -> tuple[Rig, list[Offset]]:
    """The rig in metres and the offsets, or UserError: what is wrong with them in one sentence."""
    offsets = find_offsets(rig, tracks, stated_s, steps_s)
    offsets_s = [one.seconds for one in offsets]
    share = meeting(rig, tracks, offsets_s)
    if np.isnan(share):
        note = (
            "nobody is seen by two cameras at once: nothing says whether the calibration is right"
        )
        return replace(rig, notes=(*rig.notes, note)), offsets
    if share < SURELY:
        best = share + BETTER
        why = ""
        for words, other, sights in _mistakes(rig, tracks):
            met = meeting(
                other,
                sights,
                [one.seconds for one in find_offsets(other, sights, stated_s, steps_s)],
            )
            if met > best:
                best, why = met, words
        if why:
            raise UserError(
                f"{why} As given, {share:.0%} of what people's rays can agree do; so, {best:.0%} ({rig.source})."
            )
        if share < HARDLY:
            raise UserError(
                f"the cameras' rays of people do not meet ({share:.0%}; a right calibration has 80 % and more): the "
                f"videos are of different scenes or times, or {rig.source} is not their calibration."
            )
    return _in_metres(rig, tracks, offsets_s), offsets


def _mistakes(
    rig: Rig, tracks: Sequence[Sequence[Sight]]
) -> Iterator[tuple[str, Rig, Sequence[Sequence[Sight]]]]:
    """What people do wrong: in words, and how it would be right."""
    yield (
        "The calibration is inverted: its rotations and translations lead from the camera to the world, and the other "
        "way was expected.",
        replace(rig, cameras=tuple(camera.inverted for camera in rig.cameras)),
        tracks,
    )
    for order in _orders(len(rig)):
        cameras = tuple(rig.cameras[n] for n in order)
        if all(a.camera.size == b.camera.size for a, b in zip(cameras, rig.cameras, strict=True)):
            names = ", ".join(f"video {n + 1} is {camera.name}" for n, camera in enumerate(cameras))
            seen = [
                [_through(sight, was, now) for sight in own]
                for own, was, now in zip(tracks, rig.cameras, cameras, strict=True)
            ]
            words = f"The calibration's cameras are in another order than the videos: {names}."
            yield words, replace(rig, cameras=cameras), seen
    for number, placed in enumerate(rig.cameras):
        camera = placed.camera
        center = ((np.array(camera.size) - 1) / 2 - camera.center_px) / camera.focal_px
        for words, x, y in (
            ("mirrored: record again, or flip it", True, False),
            ("upside down: turn it", True, True),
        ):
            turned = [sight.mirrored(x, y, center) for sight in tracks[number]]
            seen_so = [turned if n == number else own for n, own in enumerate(tracks)]
            yield f"The video of camera {placed.name} is {words}.", rig, seen_so


def _orders(count: int) -> Iterator[tuple[int, ...]]:
    same = tuple(range(count))
    if count <= MOST_ORDERS:
        yield from (order for order in permutations(range(count)) if order != same)
        return
    for a, b in combinations(range(count), 2):
        order = list(same)
        order[a], order[b] = b, a
        yield tuple(order)


def _through(sight: Sight, was: PlacedCamera, now: PlacedCamera) -> Sight:
    """The same pixels through another lens."""
    ratio = np.array(was.camera.focal_px) / now.camera.focal_px
    moved = (np.array(was.camera.center_px) - now.camera.center_px) / now.camera.focal_px
    return Sight(sight.time_s, sight.rays * ratio + moved, sight.sigma * ratio.mean())


def body_size(points: np.ndarray) -> float:
    """Of keypoints [T, 26, 3]: bones over an adult's, the median; NaN: none is known."""
    found = [
        np.linalg.norm(points[:, a] - points[:, b], axis=-1) / m
        for *ends, m in BONES
        for a, b in ends
    ]
    ratios = np.concatenate(found)
    ratios = ratios[np.isfinite(ratios)]
    return float(np.median(ratios)) if len(ratios) else float("nan")


def _in_metres(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]) -> Rig:
    """With the unit in which people are as tall as people are: whose rays meet best."""
    best = max(
        (float(gain.max(initial=0.0)), a, b, gain)
        for a, b, gain, _ in pair_gains(rig, tracks, offsets_s)
    )
    if not best[0] > 0:
        return rig
    _, a, b, gain = best
    i, j = divmod(int(gain.argmax()), gain.shape[1])
    times = sample_times(tracks[a])
    at = tracks[a][i].at(times), tracks[b][j].at(times - (offsets_s[b] - offsets_s[a]))
    pose = [
        np.stack(part) for part in zip((np.eye(3), np.zeros(3)), rig.relative(b, a), strict=True)
    ]
    rays, sigma = (np.stack(part) for part in zip(*at, strict=True))
    size = body_size(triangulate(rays, sigma, *pose)[0])
    for unit, metres in UNITS.items():
        if SIZES[0] <= size * metres <= SIZES[1]:
            if unit == "metres":
                return rig
            note = f"{rig.source}: translations are {unit} (in metres, people would be {1.7 * size:,.0f} m tall)"
            return replace(rig.scaled(metres), notes=(*rig.notes, note))
    raise UserError(
        f"{rig.source}: people would be {1.7 * size:,.1f} m tall, so translations are neither metres, centimetres nor "
        f"millimetres (squares of the board?): multiply them by their unit's length in metres, {1 / size:.4g} or so."
    )
