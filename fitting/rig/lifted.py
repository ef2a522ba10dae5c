"""Bodies that each camera's lifter suggests, and how two cameras' bodies relate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate
from fitting.init.lifter import guess_from_keypoints
from fitting.keypoints.side_swap import find_side_order, reorder_keypoints
from fitting.keypoints.usable import check_body_keypoints
from fitting.rig.epipolar import FEWEST_KEYPOINTS, MEETS, Pose
from fitting.rig.offsets import LONGEST_OFFSET_S
from fitting.rig.rig import Rig
from fitting.rig.sights import Sight, find_neighbours, sample_times
from pose2d.types import Keypoints

LIFTED_STD_M = 0.12  # of a lifted keypoint relative to the pelvis
LOOSE = 0.06  # deviation of rays, as tangents, while cameras are placed by bodies alone
CANDIDATE_LAGS = 6  # time offsets that are examined more closely
LAGS_APART_S = 0.15
SHORTEST_OVERLAP_S = 0.5
PELVIS = 19


@dataclass(frozen=True)
class Lifted:
    """One person in one camera: keypoints as they were read, and the body that they suggest."""

    sight: Sight
    points_m: np.ndarray  # [N, 26, 3] in the camera's frame
    body_points_m: np.ndarray  # [N, 26, 3] relative to the pelvis, in the body's own axes
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
        """Return the lifted body of one person's keypoints; exchanged: with left as right."""
        order = find_side_order(keypoints, fps)
        if exchanged:
            order = np.asarray(keypoints.skeleton.flip_order)[order]
        keypoints = reorder_keypoints(keypoints, order)
        guess = guess_from_keypoints(check_body_keypoints(keypoints), [camera], body, fps)
        points = body.at(guess.params).keypoints.double().numpy()
        root = Rotation.from_rotvec(guess.params.pose[:, 0].double().numpy()).as_matrix()
        shape = guess.params.shape if guess.params.shape.ndim == 1 else guess.params.shape.mean(0)
        relative = points - points[:, PELVIS : PELVIS + 1]
        body_points = np.einsum("nij,nki->nkj", root, relative)
        return cls(Sight.of(keypoints, time_s, camera), points, body_points, body.height_m(shape))


@dataclass(frozen=True)
class Recorded:
    """What every camera saw, and what is known of it."""

    names: Sequence[str]
    cameras: Sequence[Camera]
    focals: Sequence[FocalEstimate]
    people: Sequence[Sequence[Lifted]]
    stated_s: Sequence[float | None]  # offset of each clock to the first; None: to be found
    steps_s: Sequence[float]  # between frames
    height_m: float | None = None  # of all people, where it is known
    exchanged: Sequence[Sequence[Lifted]] = ()  # [C] people with left as right; empty: not tried

    def sights(self, rig: Rig, is_loose: bool = False) -> list[list[Sight]]:
        """Return all rays under the focal lengths of a rig, of as many cameras as it has.

        is_loose: with wider deviations, while cameras are placed roughly.
        """
        least = LOOSE if is_loose else 0.0
        sights = []
        for people, placed, assumed in zip(self.people, rig.cameras, self.cameras, strict=False):
            ratio = assumed.mean_focal_px / placed.camera.mean_focal_px
            own = []
            for person in people:
                sigma = np.hypot(ratio * person.sight.sigma, least)
                own.append(Sight(person.sight.time_s, ratio * person.sight.rays, sigma))
            sights.append(own)
        return sights


def likely_lags(first: Lifted, second: Lifted, step_s: float) -> list[float]:
    """Return zero and the offsets at which both cameras' bodies have the most alike poses."""
    lowest = first.sight.time_s[0] - second.sight.time_s[-1]
    highest = first.sight.time_s[-1] - second.sight.time_s[0]
    low = max(lowest + SHORTEST_OVERLAP_S, -LONGEST_OFFSET_S)
    high = min(highest - SHORTEST_OVERLAP_S, LONGEST_OFFSET_S)
    lags = np.arange(math.ceil(low / step_s), math.floor(high / step_s) + 1) * step_s
    times = sample_times([first.sight])
    scores = np.full(len(lags), -np.inf)
    for n, lag_s in enumerate(lags):
        a, b = _rows_at_same_times(first, second, lag_s, times)
        if len(a):
            difference = first.body_points_m[a] - second.body_points_m[b]
            squared = np.square(difference).sum(-1).mean(-1) / LIFTED_STD_M**2
            scores[n] = (MEETS - np.minimum(squared, 2 * MEETS)).sum()
    chosen = [0.0]
    for n in np.argsort(-scores):
        is_apart = all(abs(lags[n] - other) > LAGS_APART_S for other in chosen[1:])
        if np.isfinite(scores[n]) and is_apart:
            chosen.append(float(lags[n]))
        if len(chosen) > CANDIDATE_LAGS:
            break
    return chosen


def pose_between(first: Lifted, second: Lifted, lag_s: float, times_s: np.ndarray) -> Pose | None:
    """Return rotation and translation from one camera to another that see the same body.

    The rotation is that of the body about its pelvis, the translation that of the pelvis in the
    median frame. None where too few keypoints are visible in both.
    """
    a, b = _rows_at_same_times(first, second, lag_s, times_s)
    visible = np.isfinite(first.sight.sigma[a]) & np.isfinite(second.sight.sigma[b])
    if visible.sum() < FEWEST_KEYPOINTS:
        return None
    first_points = first.points_m[a]
    second_points = second.points_m[b]
    pelvis = slice(PELVIS, PELVIS + 1)
    turn, _ = Rotation.align_vectors(
        (second_points - second_points[:, pelvis])[visible],
        (first_points - first_points[:, pelvis])[visible],
    )
    rotation = turn.as_matrix()
    moved = second_points[:, PELVIS] - first_points[:, PELVIS] @ rotation.T
    return rotation, np.median(moved, axis=0)


def _rows_at_same_times(
    first: Lifted, second: Lifted, lag_s: float, times_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of two tracks that are nearest to the same times."""
    before_a, after_a, share_a = find_neighbours(first.sight.time_s, times_s)
    before_b, after_b, share_b = find_neighbours(second.sight.time_s, times_s - lag_s)
    both = (share_a >= 0) & (share_b >= 0)
    nearest_a = np.where(share_a < 0.5, before_a, after_a)
    nearest_b = np.where(share_b < 0.5, before_b, after_b)
    return nearest_a[both], nearest_b[both]
