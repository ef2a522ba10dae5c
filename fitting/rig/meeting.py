"""Whether the rays of two cameras' keypoints meet within their stated errors: when the cameras looked, and who is who.

Of two rays x_a and x_b (x / z, y / z) of one point the epipolar residual, whitened by the stated errors to first order
(Sampson's), is

    d^2 = (x_b . E x_a)^2 / (sigma_b^2 |E x_a|_xy^2 + sigma_a^2 |E^T x_b|_xy^2),       E = [t]_x R,

about 1 where two tracks are of one person at one time. A keypoint counts MEETS - min(d^2, FAR), half a logarithm of the
odds that the rays belong together, so that sums of it find time offsets and persons alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from scipy.ndimage import convolve1d
from scipy.optimize import linear_sum_assignment

from fitting.camera import Camera
from fitting.keypoints.observed import body_keypoints, undistorted
from fitting.keypoints.weights import keypoint_weights
from fitting.rig.rig import Rig
from pose2d.types import Keypoints

MEETS, FAR = 4.0, 9.0
SURE = 0.3  # confidence times presence of a keypoint whose rays are looked at
LONGEST_STEP_S = 0.12  # between two frames, to read keypoints in between: a frame that is missed at 25 frames/s
SAMPLES, SAMPLE_S = 400, 0.1  # times that are looked at: at most so many, at least so far apart
INDEPENDENT_PER_SECOND = 3.0  # as in fitting.optimise: neighbouring frames have alike errors
LONGEST_OFFSET_S = 15.0  # that is looked for
NEAR_FRAMES = 3  # around the first answer, that are looked at without what is constant
UNSURE_OFFSET_S = 0.02  # deviation of an offset from which on it is not known
FEWEST = 30  # keypoints that two cameras must see together before anything is said of them
DOUBTFUL = 0.5  # of the best sum of gains, at which another person might be meant
OVERLAP_S = 0.3  # two tracks of one camera that overlap so long are two people


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
        """Rays [M, 26, 2] and their deviations [M, 26] at other times, linear between neighbouring frames."""
        before, after, share = neighbours(self.time_s, time_s)
        rays = self.rays[before] + share[:, None, None] * (self.rays[after] - self.rays[before])
        sigma = np.maximum(self.sigma[before], self.sigma[after])
        return rays, np.where((share >= 0)[:, None], sigma, np.inf)

    def smoothed(self) -> "Sight":
        """Rays as means over five frames: keypoints read between two frames would be surer than those at one, and draw
        an offset there."""
        seen = np.isfinite(self.sigma)[..., None].astype(float)
        blur = partial(convolve1d, weights=np.array([1, 4, 6, 4, 1]) / 16, axis=0, mode="constant")
        total, weight = blur(np.where(seen > 0, self.rays, 0.0)), blur(seen)
        return Sight(self.time_s, np.where(seen > 0, total / np.maximum(weight, 1e-9), self.rays), self.sigma)

    def mirrored(self, x: bool, y: bool, center: np.ndarray) -> "Sight":
        """As an image turned over shows it: x exchanges the sides of people as well; center: the image's middle."""
        from pose2d.skeletons import HALPE26

        order = np.asarray(HALPE26.flip_order) if x != y else np.arange(26)
        rays = self.rays.copy()
        for axis, turned in enumerate((x, y)):
            rays[..., axis] = 2 * center[axis] - rays[..., axis] if turned else rays[..., axis]
        return Sight(self.time_s, rays[:, order], self.sigma[:, order])


def neighbours(have_s: np.ndarray, want_s: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each wanted time the rows before and after it, and how far it is from the one to the other, 0..1; -1 where
    there are none near enough."""
    after = np.searchsorted(have_s, want_s).clip(0, len(have_s) - 1)
    before = (after - 1).clip(0)
    step = have_s[after] - have_s[before]
    exact = np.abs(have_s[after] - want_s) < 1e-6
    before = np.where(exact, after, before)
    share = np.where(exact, 0.0, (want_s - have_s[before]) / np.where(step > 0, step, np.inf))
    inside = exact | ((share >= 0) & (share <= 1) & (step > 0) & (step <= LONGEST_STEP_S))
    return before, after, np.where(inside, share, -1.0)


def misfit(
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], rotation: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """d [...] with its sign of rays [..., 2] with deviations [...], NaN where one is not seen; and where they meet
    behind a camera. rotation, offset: from the first camera to the second."""
    (rays_a, sigma_a), (rays_b, sigma_b) = a, b
    one, two = (np.concatenate((rays, np.ones_like(rays[..., :1])), -1) for rays in (rays_a, rays_b))
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
    a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray], rotation: np.ndarray, offset: np.ndarray
) -> np.ndarray:
    """d^2, at most FAR, which it also is behind a camera."""
    found, away = misfit(a, b, rotation, offset)
    return np.where(away & np.isfinite(found), FAR, np.minimum(np.square(found), FAR))


def gains(first: Sequence[Sight], second: Sequence[Sight], pose: tuple[np.ndarray, np.ndarray], lag_s: float,
          times_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """For every two tracks of two cameras: the sum of MEETS - d^2, and how many keypoints it is of. lag_s: what the
    second camera's clock lacks to the first's, on which times_s are."""
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
    std_s: float  # inf: people do not tell
    found: bool  # False: as stated, or taken for granted


def sample_times(sights: Sequence[Sight]) -> np.ndarray:
    """Times at which these tracks are looked at."""
    if not sights:
        return np.zeros(0)
    first, last = min(s.time_s[0] for s in sights), max(s.time_s[-1] for s in sights)
    return np.linspace(first, last, int(np.clip((last - first) / SAMPLE_S, 1, SAMPLES)) + 1)


def find_offset(
    known: Sequence[tuple[Sequence[Sight], float, tuple[np.ndarray, np.ndarray]]],
    tracks: Sequence[Sight],
    step_s: float,
    around_s: tuple[float, float] = (-LONGEST_OFFSET_S, LONGEST_OFFSET_S),
) -> Offset:
    """Of a camera with these tracks, against cameras whose offsets are known.

    known: of each such camera its tracks, its offset, and rotation and translation from it to the one looked at.
    step_s: between frames. A search in steps of a frame, then a parabola through the cost around the best.
    """
    if not tracks or not any(sights for sights, _, _ in known):
        return Offset(0.0, np.inf, False)
    times = [sample_times(sights) for sights, _, _ in known]
    known = [([sight.smoothed() for sight in sights], theirs, pose) for sights, theirs, pose in known]
    tracks = [sight.smoothed() for sight in tracks]

    def score(seconds: float) -> float:
        found = (
            gains(sights, tracks, pose, seconds - theirs, t)[0]
            for (sights, theirs, pose), t in zip(known, times, strict=True)
        )
        return sum(float(gain[pair]) for gain in found for pair in matched(gain))

    low = min(min(s.time_s[0] for s in sights) + theirs for sights, theirs, _ in known if sights)
    high = max(max(s.time_s[-1] for s in sights) + theirs for sights, theirs, _ in known if sights)
    low, high = low - max(s.time_s[-1] for s in tracks), high - min(s.time_s[0] for s in tracks)  # where they overlap
    low, high = max(low, around_s[0]), min(high, around_s[1])
    coarse = np.arange(np.floor(low / step_s), np.ceil(high / step_s) + 1) * step_s
    scores = np.array([score(s) for s in coarse])
    best = float(coarse[scores.argmax()])
    pairs = [
        (sights[i], tracks[j], theirs, pose, t)
        for (sights, theirs, pose), t in zip(known, times, strict=True)
        for i, j in matched(gains(sights, tracks, pose, best - theirs, t)[0])
    ]

    def cost(seconds: float) -> float:
        return sum(_moving_cost(*pair, seconds) for pair in pairs)

    near = best + np.linspace(-NEAR_FRAMES, NEAR_FRAMES, 4 * NEAR_FRAMES + 1) * step_s
    lowest = float(near[int(np.argmin([cost(seconds) for seconds in near]))])
    # Within two frames the cost is about a parabola; its curvature is the precision.
    fine = lowest + np.linspace(-2, 2, 9) * step_s
    a, b, _ = np.polyfit(fine - lowest, [cost(seconds) for seconds in fine], 2)
    if not pairs or a <= 0 or abs(lowest - b / (2 * a) - best) > NEAR_FRAMES * step_s:
        return Offset(best, np.inf, False)
    spacing = max(float(np.diff(t).mean()) if len(t) > 1 else SAMPLE_S for t in times)
    alike = max(1.0, 1 / (spacing * INDEPENDENT_PER_SECOND))  # samples that count as one
    return Offset(float(lowest - b / (2 * a)), float(np.sqrt(alike / (2 * a))), True)


def _moving_cost(
    one: Sight, two: Sight, theirs_s: float, pose: tuple[np.ndarray, np.ndarray], times_s: np.ndarray, seconds: float
) -> float:
    """Half the squared misfit of two tracks of one person, without what is constant in each keypoint's: part of a
    network's error never changes, and says nothing of time."""
    found, _ = misfit(one.at(times_s), two.at(times_s - (seconds - theirs_s)), *pose)
    seen = np.isfinite(found).any(0)
    found = found[:, seen] - np.nanmedian(found[:, seen], axis=0)
    return float(np.nansum(np.minimum(np.square(found), FAR)) / 2)


Track = tuple[int, int]  # a camera, and the number of a track in it


def pair_gains(
    rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]
) -> dict[tuple[Track, Track], float]:
    """The sums of gains of tracks of different cameras that are seen together."""
    gain: dict[tuple[Track, Track], float] = {}
    for a, b in combinations(range(len(rig)), 2):
        total, count = gains(
            tracks[a], tracks[b], rig.relative(b, a), offsets_s[b] - offsets_s[a], sample_times(tracks[a])
        )
        for i, j in np.argwhere(count >= FEWEST).tolist():
            gain[(a, i), (b, j)] = gain[(b, j), (a, i)] = float(total[i, j])
    return gain


def doubtful(gain: Mapping[tuple[Track, Track], float], groups: Sequence[Sequence[Track]]) -> bool:
    """Whether somebody's rays meet those of another person nearly as well as their own in another camera."""
    own = {track: number for number, group in enumerate(groups) for track in group}
    best: dict[tuple[Track, int], float] = {}
    for (one, two), value in gain.items():
        if own[one] == own[two]:
            best[one, two[0]] = max(value, best.get((one, two[0]), 0.0))
    return any(
        value > DOUBTFUL * best.get((one, two[0]), np.inf)
        for (one, two), value in gain.items()
        if own[one] != own[two] and value > 0
    )


def associate(rig: Rig, tracks: Sequence[Sequence[Sight]], offsets_s: Sequence[float]) -> list[list[Track]]:
    """Who is who, by geometry alone."""
    return grouped(pair_gains(rig, tracks, offsets_s), tracks)


def grouped(gain: Mapping[tuple[Track, Track], float], tracks: Sequence[Sequence[Sight]]) -> list[list[Track]]:
    """People as lists of tracks, the longest seen first.

    The two groups whose rays meet best are joined, again and again, while any do; tracks of one camera that overlap
    are different people.
    """
    everyone = [(camera, number) for camera, own in enumerate(tracks) for number in range(len(own))]

    def apart(one: Track, two: Track) -> bool:
        first, second = tracks[one[0]][one[1]].time_s, tracks[two[0]][two[1]].time_s
        return one[0] == two[0] and min(first[-1], second[-1]) - max(first[0], second[0]) > OVERLAP_S

    groups = [[one] for one in everyone]
    while True:
        best, which = 0.0, None
        for a, b in combinations(range(len(groups)), 2):
            pairs = [(x, y) for x in groups[a] for y in groups[b]]
            value = sum(gain.get(pair, 0.0) for pair in pairs)
            if value > best and not any(apart(*pair) for pair in pairs):
                best, which = value, (a, b)
        if which is None:
            break
        groups[which[0]] += groups.pop(which[1])

    def seen_s(group: list[Track]) -> float:
        return sum(float(np.ptp(tracks[camera][number].time_s)) for camera, number in group)

    return sorted((sorted(group) for group in groups), key=seen_s, reverse=True)


def triangulate(
    rays: np.ndarray, sigma: np.ndarray, rotation: np.ndarray, offset: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Points [..., 3] where rays [V, ..., 2] of V cameras meet best, weighted by their deviations [V, ...], and the
    length of their standard deviation [...]; NaN where fewer than two cameras see one.

    rotation [V, 3, 3], offset [V, 3]: from the points' frame to each camera. Iteratively reweighted: a ray that misses
    by more than three deviations counts less, as under Geman-McClure's loss.
    """
    # (x R_3 - R_1) X = t_1 - x t_3, and the same for y
    shape = (len(rays), *(1,) * (rays.ndim - 2))
    third = rotation[:, 2].reshape(*shape, 3)
    rows = np.stack([rays[..., k, None] * third - rotation[:, k].reshape(*shape, 3) for k in (0, 1)], -2)
    aim = np.stack([offset[:, k].reshape(shape) - rays[..., k] * offset[:, 2].reshape(shape) for k in (0, 1)], -1)
    seen = np.isfinite(sigma)
    depth, slope = np.ones_like(sigma), np.ones_like(sigma)
    points = np.zeros((*rays.shape[1:-1], 3))
    matrix = np.zeros((*points.shape, 3))
    for _ in range(6):
        weight = np.where(seen, slope / np.square(np.where(seen, sigma, 1.0) * depth), 0.0)
        matrix = np.einsum("v...,v...ki,v...kj->...ij", weight, rows, rows) + 1e-9 * np.eye(3)
        vector = np.einsum("v...,v...ki,v...k->...i", weight, rows, aim)
        points = np.linalg.solve(matrix, vector[..., None])[..., 0]
        depth = np.maximum(np.einsum("...i,v...i->v...", points, np.broadcast_to(third, (*sigma.shape, 3)))
                           + offset[:, 2].reshape(shape), 0.1)  # fmt: skip
        missed = np.einsum("v...ki,...i->v...k", rows, points) - aim
        squared = np.square(missed).sum(-1) / np.square(np.where(seen, sigma, np.inf) * depth)
        slope = np.square(9 / (9 + squared))
    enough = seen.sum(0) >= 2
    std = np.sqrt(np.trace(np.linalg.inv(matrix), axis1=-2, axis2=-1))
    return np.where(enough[..., None], points, np.nan), np.where(enough, std, np.nan)
