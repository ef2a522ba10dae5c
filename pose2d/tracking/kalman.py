"""Kalman filters: on a person's box, in units of the person's own size, and on each keypoint of the pose that is
expected of a track.

Position moves with a velocity that changes by random accelerations and decays; the logarithm of width and height
drifts, and fast where the image's edge cuts the person off. Both axes are alike and independent, so each is a 2x2
filter (position, velocity) and a scalar one (size), in closed form.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class State:
    """A person's box at one time, as a Gaussian. Axis 0 is x and width, axis 1 is y and height."""

    centre_px: np.ndarray  # [2]
    velocity_px: np.ndarray  # [2] per second
    log_size: np.ndarray  # [2] log of width and height in pixels
    motion_cov: np.ndarray  # [2, 2, 2] for each axis that of (position, velocity), in body sizes and seconds
    size_var: np.ndarray  # [2]
    body_px: float  # the body's size: the largest recent diagonal of the box, which a half-hidden person keeps
    cut: np.ndarray  # [2] bool: the last box ended at the image's edge

    @property
    def box_px(self) -> np.ndarray:
        half = np.exp(self.log_size) / 2
        return np.concatenate([self.centre_px - half, self.centre_px + half])


@dataclass(frozen=True)
class MotionOptions:
    """How people move and how boxes jitter, in body sizes (box diagonals) and seconds.

    Estimated by hand from walking and running people and from detected boxes; bench/tracker.py measures the tracker
    as a whole. Not tuned one by one.
    """

    acceleration: float = 2.0  # standard deviation; free fall is about 5, and rare
    velocity_memory_s: float = 1.0  # without a box, velocity falls to 1/e in this time
    first_speed: float = 1.0  # standard deviation at the first box; a brisk walk is about 1, a sprint 4
    position_noise: float = 0.03  # of a detected box's centre
    size_noise: float = 0.1  # of a detected box's log width and height
    sudden_size_noise: float = 0.3  # share of a sudden change of log size that counts as noise
    size_drift: float = 0.4  # of the log size over one second: people crouch and stretch
    cut_drift: float = 2.0  # the same across an edge of the image: people come in and go out
    edge: float = 0.03  # a box ending this near an edge, in image sides, is cut by it
    body_memory_s: float = 5.0  # the largest recent size falls to 1/e in this time


def initial_state(box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> State:
    """After one box."""
    centre, log_size = _measured(box_px)
    cov = np.diag([options.position_noise**2, options.first_speed**2])
    return State(
        centre,
        np.zeros(2),
        log_size,
        np.stack([cov, cov]),
        np.full(2, options.size_noise**2),
        float(np.hypot(*np.exp(log_size))),
        _cut(box_px, image_wh, options),
    )


def predict(state: State, dt_s: float, options: MotionOptions) -> State:
    """The state `dt_s` later, without a new box."""
    kept = np.exp(-dt_s / options.velocity_memory_s)
    reach_s = options.velocity_memory_s * (1 - kept)  # how long the velocity counts for
    step = np.array([[1.0, reach_s], [0.0, kept]])
    # White noise on the acceleration, so that uncertainty does not depend on the frame rate:
    # Q = q [[dt^3/3, dt^2/2], [dt^2/2, dt]] with q = acceleration^2 x 1 s.
    spread = options.acceleration**2 * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])
    return State(
        state.centre_px + reach_s * state.velocity_px,
        kept * state.velocity_px,
        state.log_size,
        np.einsum("ij,ajk,lk->ail", step, state.motion_cov, step) + spread,
        state.size_var + np.where(state.cut, options.cut_drift, options.size_drift) ** 2 * dt_s,
        state.body_px * float(np.exp(-dt_s / options.body_memory_s)),
        state.cut,
    )


def update(state: State, box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> State:
    """The state after a new box."""
    centre, log_size = _measured(box_px)
    position_noise2, size_noise2 = _noise2(state, log_size, options)
    cov = state.motion_cov
    gain = cov[:, :, 0] / (cov[:, 0, 0] + position_noise2)[:, None]  # [axis, (position, velocity)]
    size_gain = state.size_var / (state.size_var + size_noise2)
    innovation_px = centre - state.centre_px
    log_size = state.log_size + size_gain * (log_size - state.log_size)
    return State(
        state.centre_px + gain[:, 0] * innovation_px,
        state.velocity_px + gain[:, 1] * innovation_px,
        log_size,
        cov - np.einsum("ai,aj->aij", gain, cov[:, 0]),
        (1 - size_gain) * state.size_var,
        max(state.body_px, float(np.hypot(*np.exp(log_size)))),
        _cut(box_px, image_wh, options),
    )


def mahalanobis(states: list[State], boxes_px: np.ndarray, options: MotionOptions) -> tuple[np.ndarray, np.ndarray]:
    """Of each box under each state: squared Mahalanobis distance, and -2 log likelihood without its constant; both
    [states, boxes].

    The distance gates (99 % of right pairs stay below 13.3). The likelihood ranks: its log det term prefers a state
    that is certain to one that has long had no box. Positions count in body sizes, so that both mean the same for near
    and far people.
    """
    shape = (len(states), len(boxes_px))
    distance2, likelihood = np.zeros(shape), np.zeros(shape)
    centre, log_size = _measured(boxes_px)
    for row, state in enumerate(states):
        position_noise2, size_noise2 = _noise2(state, log_size, options)
        position_var = state.motion_cov[:, 0, 0] + position_noise2  # [boxes, axis]
        size_var = state.size_var + size_noise2
        offset = (centre - state.centre_px) / state.body_px
        distance2[row] = (offset**2 / position_var + (log_size - state.log_size) ** 2 / size_var).sum(-1)
        likelihood[row] = distance2[row] + np.log(position_var * size_var).sum(-1)
    return distance2, likelihood


def _noise2(state: State, log_size: np.ndarray, options: MotionOptions) -> tuple[np.ndarray, np.ndarray]:
    """Variances of a box's centre (body sizes^2) and log size, for boxes of log sizes [..., 2]; both [..., 2].

    A box that suddenly ends at the hips (half the person is hidden) moves its centre by half of what it lost, without
    any motion of the person: so half the change in size counts as noise of the centre.
    """
    change = (np.exp(log_size) - np.exp(state.log_size)) / state.body_px
    change_of_log = log_size - state.log_size
    return (
        options.position_noise**2 + (change / 2) ** 2,
        options.size_noise**2 + (options.sudden_size_noise * change_of_log) ** 2,
    )


def _cut(box_px: np.ndarray, image_wh: np.ndarray, options: MotionOptions) -> np.ndarray:
    margin = options.edge * image_wh
    return (box_px[:2] < margin) | (box_px[2:] > image_wh - margin)


def _measured(boxes_px: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre and log size, [..., 2] each."""
    first, last = boxes_px[..., :2], boxes_px[..., 2:]
    return (first + last) / 2, np.log(np.maximum(last - first, 1.0))


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
    def std_px(self) -> np.ndarray:
        """[K] standard deviation of the position on either axis."""
        return np.sqrt(self.cov[:, 0, 0])


def first_pose(xy_px: np.ndarray, std_px: np.ndarray, body_px: float) -> PoseState:
    """From the keypoints [K, 2] of one frame with standard deviations [K] (infinite: not seen), for a body of that
    size (its box's diagonal)."""
    xy_px = np.asarray(xy_px, np.float64)
    std_px = np.minimum(np.where(np.isfinite(xy_px).all(-1), std_px, np.inf), 10 * body_px)
    cov = np.zeros((len(xy_px), 2, 2))
    cov[:, 0, 0], cov[:, 1, 1] = std_px**2, body_px**2
    return PoseState(np.nan_to_num(xy_px), np.zeros_like(xy_px), cov)


def predict_pose(state: PoseState, dt_s: float, body_px: float, options: PoseMotionOptions) -> PoseState:
    """The pose `dt_s` later, without having seen it."""
    kept = np.exp(-dt_s / options.velocity_memory_s)
    reach_s = options.velocity_memory_s * (1 - kept)
    step = np.array([[1.0, reach_s], [0.0, kept]])
    q = (options.acceleration * body_px) ** 2
    spread = q * np.array([[dt_s**3 / 3, dt_s**2 / 2], [dt_s**2 / 2, dt_s]])  # as `predict`
    return PoseState(
        state.xy_px + reach_s * state.velocity_px,
        kept * state.velocity_px,
        step @ state.cov @ step.T + spread,
    )


def update_pose(state: PoseState, xy_px: np.ndarray, std_px: np.ndarray) -> PoseState:
    """The pose after seeing keypoints [K, 2] with standard deviations [K] (infinite: not seen)."""
    seen = np.isfinite(xy_px).all(-1) & np.isfinite(std_px)
    noise2 = np.where(seen, np.minimum(std_px, 1e6) ** 2, 1e12)
    gain = state.cov[:, :, 0] / (state.cov[:, 0, 0] + noise2)[:, None]  # [K, (position, velocity)]
    innovation = np.where(seen[:, None], np.nan_to_num(xy_px) - state.xy_px, 0.0)
    return PoseState(
        state.xy_px + gain[:, :1] * innovation,
        state.velocity_px + gain[:, 1:] * innovation,
        state.cov - np.einsum("ki,kj->kij", gain, state.cov[:, 0]),
    )
