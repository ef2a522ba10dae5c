"""Where a person will be next, and how surely: a Kalman filter on the box, in units of the person's own size.

Position moves with a velocity that changes by random accelerations and dies down (nobody keeps going for ever); the
logarithm of width and height drifts. Both axes share one covariance, so the filter is a 2x2 (position, velocity) and a
scalar (size), in closed form.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Belief:
    """A person's box at one moment, as a Gaussian."""

    centre_px: np.ndarray  # [2]
    velocity_px: np.ndarray  # [2] per second
    log_size: np.ndarray  # [2] log of width and height in pixels
    motion_cov: np.ndarray  # [2, 2] of (position, velocity) on either axis, in body sizes and seconds
    size_var: float  # of each log size
    body_px: float  # the body's size: the largest diagonal of the box lately, which half a person does not shrink

    @property
    def box_px(self) -> np.ndarray:
        half = np.exp(self.log_size) / 2
        return np.concatenate([self.centre_px - half, self.centre_px + half])


@dataclass(frozen=True)
class MotionOptions:
    """How people move and how boxes jitter, all in body sizes (box diagonals) and seconds."""

    acceleration: float = 2.0  # standard deviation; free fall is about 5, and rare
    first_speed: float = 1.0  # of someone just seen; a brisk walk is about 1, a sprint 4
    velocity_memory_s: float = 1.0  # an unseen person's velocity falls by 1/e in this time
    position_noise: float = 0.03  # of a detected box's centre
    size_noise: float = 0.1  # of a detected box's log width and height
    size_doubt: float = 0.3  # share of a sudden change of log size that is taken for noise
    body_memory_s: float = 5.0  # the largest size lately falls by 1/e in this time
    size_drift: float = 0.4  # of the log size over one second: people crouch and stretch


def first_belief(box_px: np.ndarray, options: MotionOptions) -> Belief:
    """What one detection tells."""
    centre, log_size = _measured(box_px)
    cov = np.diag([options.position_noise**2, options.first_speed**2])
    return Belief(centre, np.zeros(2), log_size, cov, options.size_noise**2, float(np.hypot(*np.exp(log_size))))


def predict(belief: Belief, dt_s: float, options: MotionOptions) -> Belief:
    """The belief `dt_s` later, without having looked."""
    kept = np.exp(-dt_s / options.velocity_memory_s)
    reach_s = options.velocity_memory_s * (1 - kept)  # how long the velocity counts for
    step = np.array([[1.0, reach_s], [0.0, kept]])
    # White noise on the acceleration, so that uncertainty does not depend on the frame rate:
    # Q = q [[dt^3/3, dt^2/2], [dt^2/2, dt]] with q = acceleration^2 x 1 s.
    spread = options.acceleration**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    return Belief(
        belief.centre_px + reach_s * belief.velocity_px,
        kept * belief.velocity_px,
        belief.log_size,
        step @ belief.motion_cov @ step.T + spread,
        belief.size_var + options.size_drift**2 * dt_s,
        belief.body_px * float(np.exp(-dt_s / options.body_memory_s)),
    )


def update(belief: Belief, box_px: np.ndarray, options: MotionOptions) -> Belief:
    """The belief after seeing a box."""
    centre, log_size = _measured(box_px)
    cov = belief.motion_cov
    gain = cov[:, 0] / (cov[0, 0] + _position_noise2(belief, log_size, options))
    stretch = log_size - belief.log_size
    size_gain = belief.size_var / (belief.size_var + _size_noise2(stretch, options))
    surprise_px = centre - belief.centre_px
    log_size = belief.log_size + size_gain * stretch
    return Belief(
        belief.centre_px + gain[0] * surprise_px,
        belief.velocity_px + gain[1] * surprise_px,
        log_size,
        cov - np.outer(gain, cov[0]),
        float((1 - size_gain) * belief.size_var),
        max(belief.body_px, float(np.hypot(*np.exp(log_size)))),
    )


def surprise(beliefs: list[Belief], boxes_px: np.ndarray, options: MotionOptions) -> np.ndarray:
    """-2 log likelihood of seeing each box given each belief, without the constant: [beliefs, boxes].

    Positions count in body sizes, so that the figure means the same for near and far people. The log of the
    covariance's determinant is part of it: it is what makes a person just seen win over one long lost.
    """
    if not beliefs or not len(boxes_px):
        return np.zeros((len(beliefs), len(boxes_px)))
    centre, log_size = _measured(boxes_px)
    body_px = np.array([b.body_px for b in beliefs])
    noise2 = np.stack([_position_noise2(b, log_size, options) for b in beliefs])  # [beliefs, boxes]
    position_var = np.array([b.motion_cov[0, 0] for b in beliefs])[:, None] + noise2
    offset = (centre - np.stack([b.centre_px for b in beliefs])[:, None]) / body_px[:, None, None]
    stretch = log_size - np.stack([b.log_size for b in beliefs])[:, None]
    size_var = np.array([b.size_var for b in beliefs])[:, None] + _size_noise2(stretch, options)
    distance2 = (offset**2).sum(-1) / position_var + (stretch**2).sum(-1) / size_var
    return distance2 + 2 * np.log(position_var * size_var)


def _position_noise2(belief: Belief, log_size: np.ndarray, options: MotionOptions) -> np.ndarray:
    """Variance of a box's centre in body sizes^2, for log sizes [..., 2].

    A box that suddenly ends at the hips has its centre moved by half of what it lost, without any movement: so half
    the change in size counts as noise.
    """
    change_px = np.exp(log_size) - np.exp(belief.log_size)
    return options.position_noise**2 + (change_px**2).sum(-1) / (2 * belief.body_px) ** 2


def _size_noise2(stretch: np.ndarray, options: MotionOptions) -> np.ndarray:
    """Variance of a log size, for changes of log size [..., 2]: the more sudden, the less believed."""
    return options.size_noise**2 + options.size_doubt**2 * (stretch**2).mean(-1)


def _measured(boxes_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and log size, [..., 2] each."""
    first, last = boxes_px[..., :2], boxes_px[..., 2:]
    return (first + last) / 2, np.log(np.maximum(last - first, 1.0))
