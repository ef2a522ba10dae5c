"""The pose that is expected of a track: a Kalman filter for each keypoint, alike on both axes."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PoseMotionOptions:
    """How keypoints move. Chosen by hand, with the rest of the tracker, on the tuning seeds of bench/identity.py."""

    acceleration: float = 12.0  # of a keypoint, in body sizes (box diagonals) a second^2
    velocity_memory_s: float = 0.3  # an unseen keypoint's velocity falls by 1/e in this time


@dataclass(frozen=True)
class PoseState:
    """A person's keypoints at one moment, as Gaussians."""

    xy_px: np.ndarray  # [K, 2]
    velocity_px: np.ndarray  # [K, 2] per second
    cov: np.ndarray  # [K, 2, 2] of (position, velocity), pixels and seconds

    @property
    def sigma_px(self) -> np.ndarray:
        """[K] standard deviation of the position on either axis."""
        return np.sqrt(self.cov[:, 0, 0])


def first_pose(xy_px: np.ndarray, sigma_px: np.ndarray, body_px: float) -> PoseState:
    """From the keypoints [K, 2] of one frame with standard deviations [K] (infinite: not seen), for a body of that
    size (its box's diagonal)."""
    sigma_px = np.minimum(np.where(np.isfinite(xy_px).all(-1), sigma_px, np.inf), 10 * body_px)
    cov = np.zeros((len(xy_px), 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = sigma_px**2, body_px**2
    return PoseState(np.nan_to_num(xy_px), np.zeros_like(xy_px), cov)


def predict_pose(state: PoseState, dt_s: float, body_px: float, options: PoseMotionOptions) -> PoseState:
    """The pose `dt_s` later, without having seen it."""
    kept = np.exp(-dt_s / options.velocity_memory_s)
    reach_s = options.velocity_memory_s * (1 - kept)
    step = np.array([[1.0, reach_s], [0.0, kept]])
    q = (options.acceleration * body_px) ** 2
    spread = q * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])  # as pose2d/tracking/kalman.py
    return PoseState(
        state.xy_px + reach_s * state.velocity_px,
        kept * state.velocity_px,
        step @ state.cov @ step.T + spread,
    )


def update_pose(state: PoseState, xy_px: np.ndarray, sigma_px: np.ndarray) -> PoseState:
    """The pose after seeing keypoints [K, 2] with standard deviations [K] (infinite: not seen)."""
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(sigma_px)
    noise2 = np.where(seen, np.minimum(sigma_px, 1e6) ** 2, 1e12)
    gain = state.cov[:, :, 0] / (state.cov[:, 0, 0] + noise2)[:, None]  # [K, (position, velocity)]
    innovation = np.where(seen[:, None], np.nan_to_num(xy_px) - state.xy_px, 0.0)
    return PoseState(
        state.xy_px + gain[:, :1] * innovation,
        state.velocity_px + gain[:, 1:] * innovation,
        state.cov - np.einsum("ki,kj->kij", gain, state.cov[:, 0]),
    )
