"""Where a person will be next, and how surely: a Kalman filter on the box, in units of the person's own size.

Position moves with a velocity that changes by random accelerations and dies down (nobody keeps going for ever); the
logarithm of width and height drifts, and fast where the image's edge cuts the person off. Both axes are alike and
independent, so each is a 2x2 filter (position, velocity) and a scalar one (size), in closed form.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Belief:
    """A person's box at one moment, as a Gaussian. Axis 0 is x and width, axis 1 is y and height."""

    centre_px: np.ndarray  # [2]
    velocity_px: np.ndarray  # [2] per second
    log_size: np.ndarray  # [2] log of width and height in pixels
    motion_cov: np.ndarray  # [2, 2, 2] for each axis that of (position, velocity), in body sizes and seconds
    size_var: np.ndarray  # [2]
    body_px: float  # the body's size: the largest diagonal of the box lately, which half a person does not shrink
    cut: np.ndarray  # [2] bool: the box last seen ended at the image's edge

    @property
    def box_px(self) -> np.ndarray:
        half = np.exp(self.log_size) / 2
        return np.concatenate([self.centre_px - half, self.centre_px + half])


@dataclass(frozen=True)
class MotionOptions:
    """How people move and how boxes jitter, in body sizes (box diagonals) and seconds."""

    acceleration: float = 2.0  # standard deviation; free fall is about 5, and rare
    velocity_memory_s: float = 1.0  # an unseen person's velocity falls by 1/e in this time
    first_speed: float = 1.0  # of someone just seen; a brisk walk is about 1, a sprint 4
    position_noise: float = 0.03  # of a detected box's centre
    size_noise: float = 0.1  # of a detected box's log width and height
    size_doubt: float = 0.3  # share of a sudden change of log size that is taken for noise
    size_drift: float = 0.4  # of the log size over one second: people crouch and stretch
    cut_drift: float = 2.0  # the same across an edge of the image: people come in and go out
    edge: float = 0.03  # a box ending this near an edge, in image sides, is cut by it
    body_memory_s: float = 5.0  # the largest size lately falls by 1/e in this time


def first_belief(box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> Belief:
    """What one detection tells."""
    centre, log_size = _measured(box_px)
    cov = np.diag([options.position_noise**2, options.first_speed**2])
    return Belief(
        centre,
        np.zeros(2),
        log_size,
        np.stack([cov, cov]),
        np.full(2, options.size_noise**2),
        float(np.hypot(*np.exp(log_size))),
        _cut(box_px, image_wh, options),
    )


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
        np.einsum("ij,ajk,lk->ail", step, belief.motion_cov, step) + spread,
        belief.size_var + np.where(belief.cut, options.cut_drift, options.size_drift) ** 2 * dt_s,
        belief.body_px * float(np.exp(-dt_s / options.body_memory_s)),
        belief.cut,
    )


def update(belief: Belief, box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> Belief:
    """The belief after seeing a box."""
    centre, log_size = _measured(box_px)
    position_noise2, size_noise2 = _noise2(belief, log_size, options)
    cov = belief.motion_cov
    gain = cov[:, :, 0] / (cov[:, 0, 0] + position_noise2)[:, None]  # [axis, (position, velocity)]
    size_gain = belief.size_var / (belief.size_var + size_noise2)
    surprise_px = centre - belief.centre_px
    log_size = belief.log_size + size_gain * (log_size - belief.log_size)
    return Belief(
        belief.centre_px + gain[:, 0] * surprise_px,
        belief.velocity_px + gain[:, 1] * surprise_px,
        log_size,
        cov - np.einsum("ai,aj->aij", gain, cov[:, 0]),
        (1 - size_gain) * belief.size_var,
        max(belief.body_px, float(np.hypot(*np.exp(log_size)))),
        _cut(box_px, image_wh, options),
    )


def surprise(beliefs: list[Belief], boxes_px: np.ndarray, options: MotionOptions) -> tuple[np.ndarray, np.ndarray]:
    """How far off each box is from each belief: squared Mahalanobis distance, and -2 log likelihood without its
    constant; both [beliefs, boxes].

    The distance says whether it can be the same person (of those who are, 99 % stay below 13.3). The likelihood says
    who it is: its part log det is what makes a person just seen win over one long lost. Positions count in body sizes,
    so that both mean the same for near and far people.
    """
    shape = (len(beliefs), len(boxes_px))
    distance2, likelihood = np.zeros(shape), np.zeros(shape)
    centre, log_size = _measured(boxes_px)
    for row, belief in enumerate(beliefs):
        position_noise2, size_noise2 = _noise2(belief, log_size, options)
        position_var = belief.motion_cov[:, 0, 0] + position_noise2  # [boxes, axis]
        size_var = belief.size_var + size_noise2
        offset = (centre - belief.centre_px) / belief.body_px
        distance2[row] = (offset**2 / position_var + (log_size - belief.log_size) ** 2 / size_var).sum(-1)
        likelihood[row] = distance2[row] + np.log(position_var * size_var).sum(-1)
    return distance2, likelihood


def _noise2(belief: Belief, log_size: np.ndarray, options: MotionOptions) -> tuple[np.ndarray, np.ndarray]:
    """Variances of a box's centre (body sizes^2) and log size, for boxes of log sizes [..., 2]; both [..., 2].

    A box that suddenly ends at the hips is not believed at once. And its centre has moved by half of what it lost
    without any movement: so half the change in size counts as noise.
    """
    change = (np.exp(log_size) - np.exp(belief.log_size)) / belief.body_px
    stretch = log_size - belief.log_size
    return (
        options.position_noise**2 + (change / 2) ** 2,
        options.size_noise**2 + (options.size_doubt * stretch) ** 2,
    )


def _cut(box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> np.ndarray:
    margin = options.edge * image_wh
    return (box_px[:2] < margin) | (box_px[2:] > image_wh - margin)


def _measured(boxes_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and log size, [..., 2] each."""
    first, last = boxes_px[..., :2], boxes_px[..., 2:]
    return (first + last) / 2, np.log(np.maximum(last - first, 1.0))
