"""The rays of one person's keypoints in one camera over time, and how they are read between frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.ndimage import convolve1d

from fitting.camera import Camera
from fitting.keypoints.usable import check_body_keypoints, undistort_keypoints
from fitting.keypoints.weights import keypoint_weights
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints

MIN_CONFIDENCE = 0.3  # confidence times presence from which a keypoint's ray is used
# Keypoints are interpolated between frames at most this far apart: one missed frame at 25 frames/s.
LONGEST_STEP_S = 0.12
MOST_SAMPLES = 400  # times at which tracks are compared, at most
SAMPLE_S = 0.1  # between two such times, at least
_BLUR = np.array([1, 4, 6, 4, 1]) / 16


@dataclass(frozen=True)
class Sight:
    """One person in one camera: the rays of Halpe's 26 keypoints over N frames."""

    time_s: np.ndarray  # [N] rising, on the camera's clock
    rays: np.ndarray  # [N, 26, 2] x / z, y / z of a perfect lens
    sigma: np.ndarray  # [N, 26] standard deviation in the same units; inf: not visible

    @classmethod
    def of(cls, keypoints: Keypoints, time_s: np.ndarray, camera: Camera) -> "Sight":
        """Return the rays of one person's keypoints; time_s [N] are the times of its rows."""
        keypoints = undistort_keypoints(check_body_keypoints(keypoints), [camera])
        rays = (keypoints.xy_px.double().numpy() - camera.center_px) / camera.focal_px
        sigma_px = keypoint_weights(keypoints, "precision").sigma_px.double().numpy()
        confident = (keypoints.confidence * keypoints.presence).numpy() >= MIN_CONFIDENCE
        sigma = np.where(confident, sigma_px / camera.mean_focal_px, np.inf)
        return cls(np.asarray(time_s, float), rays, sigma)

    def at(self, time_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rays [M, 26, 2] and deviations [M, 26] at other times, interpolated linearly."""
        before, after, share = find_neighbours(self.time_s, time_s)
        rays = self.rays[before] + share[:, None, None] * (self.rays[after] - self.rays[before])
        sigma = np.maximum(self.sigma[before], self.sigma[after])
        return rays, np.where((share >= 0)[:, None], sigma, np.inf)

    def smoothed(self) -> "Sight":
        """Return rays averaged over five frames.

        An interpolated keypoint averages two frames and is less noisy than one read at a frame,
        which would draw an estimated time offset towards half frames.
        """
        visible = np.isfinite(self.sigma)[..., None]
        blur = partial(convolve1d, weights=_BLUR, axis=0, mode="constant")
        total = blur(np.where(visible, self.rays, 0.0))
        weight = blur(visible.astype(float))
        rays = np.where(visible, total / np.maximum(weight, 1e-9), self.rays)
        return Sight(self.time_s, rays, self.sigma)

    def mirrored(self, x: bool, y: bool, center: np.ndarray) -> "Sight":
        """Return the rays of an image flipped along x, y or both about its center [2].

        A single flip also exchanges people's left and right.
        """
        order = np.asarray(HALPE26.flip_order) if x != y else np.arange(26)
        rays = self.rays.copy()
        for axis, flipped in enumerate((x, y)):
            if flipped:
                rays[..., axis] = 2 * center[axis] - rays[..., axis]
        return Sight(self.time_s, rays[:, order], self.sigma[:, order])


def find_neighbours(
    have_s: np.ndarray, want_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each wanted time the rows before and after it and its share of the way, 0..1.

    The share is -1 where no two neighbouring rows are close enough.
    """
    after = np.searchsorted(have_s, want_s).clip(0, len(have_s) - 1)
    before = (after - 1).clip(0)
    step = have_s[after] - have_s[before]
    exact = np.abs(have_s[after] - want_s) < 1e-6
    before = np.where(exact, after, before)
    share = np.where(exact, 0.0, (want_s - have_s[before]) / np.where(step > 0, step, np.inf))
    inside = exact | ((share >= 0) & (share <= 1) & (step > 0) & (step <= LONGEST_STEP_S))
    return before, after, np.where(inside, share, -1.0)


def sample_times(sights: Sequence[Sight]) -> np.ndarray:
    """Return the times at which these tracks are compared with others; none without tracks."""
    if not sights:
        return np.zeros(0)
    first = min(sight.time_s[0] for sight in sights)
    last = max(sight.time_s[-1] for sight in sights)
    steps = int(np.clip((last - first) / SAMPLE_S, 1, MOST_SAMPLES))
    return np.linspace(first, last, steps + 1)
