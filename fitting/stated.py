"""Calibrate what a fit states: deviations as held-out people showed them, and how far off a frame's
worst joint is.

The Gauss-Newton covariance (`solver.uncertainty.joint_deviations`) knows the noise of keypoints and
the spread of the priors. It cannot know a limb mirrored in depth, a wrong scene, or clothes.
`bench/tuning/stated_errors.py` fits rendered people from whom nothing was learned, and leaves in
`data/stated_errors.json` how large their errors are beside what is stated (conformal prediction,
normalised by the stated deviation):

    stated = factor * ref (Gauss-Newton / ref)^a * exp(w . z),    error / stated ~ Student's t,

where factor and degrees of freedom go by kind of joint, hidden or seen, across or along the optical
axis, and without or with a scene, and z is how far the joint would move if its limb were mirrored
in depth, and how far it is from the guess that the fit began from. The exponent a is below 1: a
joint without any keypoint is nearly as uncertain as Gauss-Newton says, and one that a wrong
keypoint pulls is far more so. The scale of t is such that 68 % of errors are below one stated
deviation; its degrees of freedom are such that 95 % are below what `level_factor` says.

The largest error of a frame's joints relative to the pelvis has a log-logistic distribution, whose
median is a linear function of a few features of the frame (`frame_features`).

Deviations are in one of two places: 0, relative to the pelvis, or 1, in the camera frame.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fitting.body import Body
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.fits import InitialGuess, TrackFit
from pose2d.base.embedded import check_embedded
from pose2d.base.json_files import read_json

TABLE = Path(__file__).parent / "data" / "stated_errors.json"
RELATIVE = 0  # places
IN_CAMERA = 1
KINDS = ("trunk", "hip", "knee", "ankle", "foot", "head", "shoulder", "elbow", "wrist", "hand")
KIND = np.array(
    [next((k for k, kind in enumerate(KINDS) if name.endswith(kind)), 0) for name in JOINT_NAMES]
)
AXIS = np.array([0, 0, 1])  # across, across, along the optical axis
ONE_STD = math.erf(math.sqrt(0.5))  # the share of errors that one stated deviation holds: 68.3 %
# Joints that count: all but the pelvis and the hands, which have no measured truth.
COUNTED = np.array([n for n, name in enumerate(JOINT_NAMES) if n and "hand" not in name])
# Gauss-Newton takes neighbouring frames for more independent than they are, so what it states
# shrinks with their number per second: as fps to minus these powers, relative to the pelvis and in
# the camera frame, across and along (the same rendered people at 30, 15 and 10 frames a second).
# Below 6 frames a second they hardly touch.
RATE = np.array([[0.16, 0.31], [0.09, 0.02]])
ROTATION_RATE = 0.48
LEARNT_FPS = 30.0
FPS_RANGE = (6.0, 120.0)
# With several cameras, a factor on Gauss-Newton's deviations (it takes neighbouring frames and
# joints for independent), and what is added along each axis and to each rotation: each camera's
# keypoints lie elsewhere than the body's, and few cameras average little of it. The last is the
# worst joint's median over the largest deviation. Chosen on a real recording, whose truth itself
# errs by some 40 mm, so that 60 to 75 % of errors are within one deviation (bench/laboratory.py).
SEVERAL_FACTOR = 2.5
SEVERAL_MM_OF_ONE = 40.0
SEVERAL_DEG = 8.0
SEVERAL_WORST = 1.8
# One axis of a rotation whose three axes err alike: angles that are not in the table.
ONE_AXIS = 3**-0.5
SMOOTHING_FRAMES = 7  # over which a frame's worst error is averaged
# Added before the logarithm: smaller differences say nothing.
_MIRROR_MM = 30.0
_GUESS_MM = 20.0


@dataclass(frozen=True)
class StatedErrors:
    """The table of constants that held-out people showed."""

    # [2, kinds, 2, 2, 2] place; kind; hidden, seen; across, along; scene or not
    factor: np.ndarray
    freedom: np.ndarray  # the same: degrees of freedom
    spread_mean: np.ndarray  # [2] of z
    spread: np.ndarray  # [2, 2] w across, along
    exponent: np.ndarray  # [2, 2] a: place; across, along
    reference_mm: np.ndarray  # [2, 2] ref
    rotation: np.ndarray  # [kinds, 2] factors on rotations of hidden and seen joints
    angle: Mapping[str, float]  # by kind of angle: its deviation over that of the joints' rotations
    speed_per_s: np.ndarray  # [kinds, 2] m/s per metre of a joint's and the body's deviation
    shape: float  # factor on deviations of the shape
    worst_mean: np.ndarray  # [F] of `frame_features`
    worst_weight: np.ndarray  # [F] of features without their mean -> log of mm
    worst_log_mm: float  # at the mean
    worst_spread: float  # 1 / shape of the log-logistic distribution

    def apply_exponent(self, std_mm: np.ndarray, place: int) -> np.ndarray:
        """Return ref (Gauss-Newton / ref)^a of deviations [.., 3]."""
        reference = self.reference_mm[place, AXIS]
        return reference * (std_mm / reference) ** self.exponent[place, AXIS]

    @staticmethod
    def of(values: Mapping[str, Any]) -> "StatedErrors":
        """Return the table from the values of its file."""
        arrays: dict[str, Any] = {
            name: np.array(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
        return StatedErrors(**arrays)


@cache
def stated_errors() -> StatedErrors:
    """Return the embedded table."""
    return StatedErrors.of(read_json(check_embedded(TABLE)).object())


def calibrate(
    track: TrackFit,
    guess: InitialGuess | None,
    body: Body,
    scene: bool,
    fps: float,
    table: StatedErrors | None = None,
) -> TrackFit:
    """Return the track with deviations that hold, where its fit states any, and with the worst
    error of each frame.

    scene: gravity was used; fps: of the frames that were solved together.
    """
    fit = track.fit
    std_mm = fit.joint_std_mm
    relative_std_mm = fit.joint_std_relative_mm
    rotation_std_deg = fit.rotation_std_deg
    if std_mm is None or relative_std_mm is None or rotation_std_deg is None:
        return track
    table = table or stated_errors()
    observed = track.joint_observed.astype(int)
    rate = float(np.clip(fps, *FPS_RANGE)) / LEARNT_FPS

    def calibrate_joints(std_mm: np.ndarray, place: int) -> torch.Tensor:
        std_mm = table.apply_exponent(std_mm * rate ** RATE[place, AXIS], place)
        std_mm = std_mm * _look_up(table.factor, place, observed, scene)
        return torch.from_numpy(std_mm.astype(np.float32))

    features = spread_features(track, guess, body)
    spread = np.exp((features - table.spread_mean) @ table.spread.T)[..., AXIS]  # [T, 24, 3]
    relative = calibrate_joints(relative_std_mm.numpy(), RELATIVE)
    relative = relative * torch.from_numpy(spread.astype(np.float32))
    rotation_deg = rotation_std_deg.numpy() * rate**ROTATION_RATE * table.rotation[KIND, observed]
    covariance = fit.shape_covariance
    fit = replace(
        fit,
        joint_std_mm=calibrate_joints(std_mm.numpy(), IN_CAMERA),
        joint_std_relative_mm=relative,
        rotation_std_deg=torch.from_numpy(rotation_deg.astype(np.float32)),
        shape_covariance=None if covariance is None else covariance * table.shape**2,
    )
    track = replace(track, fit=fit)
    from_mean = frame_features(track, features, scene) - table.worst_mean
    log_mm = _smooth(table.worst_log_mm + from_mean @ table.worst_weight)
    return replace(track, worst_error_mm=np.exp(log_mm).astype(np.float32))


def calibrate_several_cameras(track: TrackFit, cameras: int) -> TrackFit:
    """Return the track with deviations that hold for a fit to so many cameras."""
    fit = track.fit
    if fit.joint_std_mm is None or fit.joint_std_relative_mm is None:
        return track
    added_mm = SEVERAL_MM_OF_ONE / math.sqrt(max(cameras, 1))
    std_mm, relative_mm = (
        ((SEVERAL_FACTOR * std).square() + added_mm**2).sqrt()
        for std in (fit.joint_std_mm, fit.joint_std_relative_mm)
    )
    rotation_deg = fit.rotation_std_deg
    if rotation_deg is not None:
        rotation_deg = ((SEVERAL_FACTOR * rotation_deg).square() + SEVERAL_DEG**2).sqrt()
    covariance = fit.shape_covariance
    if covariance is not None:
        covariance = covariance * SEVERAL_FACTOR**2
    fit = replace(
        fit,
        joint_std_mm=std_mm,
        joint_std_relative_mm=relative_mm,
        rotation_std_deg=rotation_deg,
        shape_covariance=covariance,
    )
    return replace(track, fit=fit, worst_error_mm=_worst_of_several(relative_mm))


def _worst_of_several(relative_mm: torch.Tensor) -> np.ndarray:
    """Return the worst joint's error [T] that deviations [T, 24, 3] of several cameras state."""
    return SEVERAL_WORST * relative_mm[:, COUNTED].norm(dim=-1).amax(1).numpy()


def widen_by_cameras(
    track: TrackFit, scale_log_std: float, turn_std_rad: float, body: Body
) -> TrackFit:
    """Return the track with the uncertainty of cameras that were placed by the people: of all
    lengths, and of the cameras' rotations, which bend a body by about a quarter as much.
    """
    fit = track.fit
    worst_mm = track.worst_error_mm
    if fit.joint_std_mm is None or fit.joint_std_relative_mm is None or worst_mm is None:
        return track
    joints_mm = 1000 * body.at(fit.params).joints
    relative_mm = joints_mm - joints_mm[:, :1]
    bent_mm = turn_std_rad / 4 * relative_mm.norm(dim=-1, keepdim=True) / math.sqrt(3)
    added_mm = torch.hypot(scale_log_std * joints_mm, bent_mm)
    added_relative_mm = torch.hypot(scale_log_std * relative_mm, bent_mm)
    fit = replace(
        fit,
        joint_std_mm=torch.hypot(fit.joint_std_mm, added_mm),
        joint_std_relative_mm=torch.hypot(fit.joint_std_relative_mm, added_relative_mm),
    )
    worst_mm = np.hypot(worst_mm, _worst_of_several(added_relative_mm)).astype(np.float32)
    return replace(track, fit=fit, worst_error_mm=worst_mm)


def spread_features(track: TrackFit, guess: InitialGuess | None, body: Body) -> np.ndarray:
    """Return z [T, 24, 2]: how far the joint would be if its limb were mirrored in depth, and how
    far it is from the guess, both relative to the pelvis, as logarithms of millimetres. Without a
    guess the second is the first.
    """
    joints = _from_pelvis_mm(body.at(track.fit.params).joints)
    mirrored = np.zeros(joints.shape[:2])
    for joint, parent in enumerate(PARENTS[1:], 1):
        depth_mm = np.abs(joints[:, joint, 2] - joints[:, parent, 2])
        mirrored[:, joint] = mirrored[:, parent] + depth_mm
    from_guess = mirrored
    if guess is not None:
        guess_joints = _from_pelvis_mm(body.at(guess.params).joints)
        from_guess = np.linalg.norm(guess_joints - joints, axis=-1)
    return np.log(np.stack((mirrored + _MIRROR_MM, from_guess + _GUESS_MM), -1))


def frame_features(track: TrackFit, spread: np.ndarray, scene: bool) -> np.ndarray:
    """Return features [T, F] of the frames of a track whose deviations are calibrated: logarithms
    of the largest and the mean deviation, how many keypoints are seen, log of the reprojection
    error, how far from the guess and how far mirrored limbs would be, how many joints are hidden,
    and whether there is a scene.

    spread: its `spread_features`.
    """
    fit = track.fit
    assert fit.joint_std_relative_mm is not None
    std_mm = np.linalg.norm(fit.joint_std_relative_mm.numpy()[:, COUNTED], axis=-1)
    area_px2 = track.keypoints.area_px2
    side_px = np.ones(len(track)) if area_px2 is None else area_px2.numpy().clip(1) ** 0.5
    distance_px = fit.reprojection_px.numpy()
    used = np.isfinite(distance_px)
    mean_px = np.where(used, distance_px, 0).sum(1) / used.sum(1).clip(1)
    return np.stack(
        (
            np.log(std_mm.max(1) + 1),
            np.log(std_mm.mean(1) + 1),
            track.keypoint_observed.mean(1),
            np.log(mean_px / side_px + 0.003),
            spread[:, COUNTED, 1].mean(1),
            spread[:, COUNTED, 0].max(1),
            1 - track.joint_observed[:, COUNTED].mean(1),
            np.full(len(track), float(scene)),
        ),
        -1,
    ).astype(np.float64)


def probability_within(worst_error_mm: np.ndarray, limit_mm: float) -> np.ndarray:
    """Return the probability that no joint is further off, from the median of the largest error."""
    return 1 / (1 + (worst_error_mm / limit_mm) ** (1 / stated_errors().worst_spread))


def level_factor(
    level: float, joint_observed: np.ndarray, scene: bool, place: int = RELATIVE
) -> np.ndarray:
    """Return what multiplies [T, 24, 3] one stated deviation so that it holds this share of errors
    along each axis.
    """
    from scipy.stats import t

    freedom = _look_up(stated_errors().freedom, place, joint_observed.astype(int), scene)
    return t.ppf((1 + level) / 2, freedom) / t.ppf((1 + ONE_STD) / 2, freedom)


def angle_std_deg(
    rotation_std_deg: np.ndarray, joints: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Return the deviations [T] of angles between bones, by name, from those [T, 24] of rotations.

    joints: whose rotations make each angle, by its name.
    """
    factors = stated_errors().angle
    deviations = {}
    for name, turning_joints in joints.items():
        kind = name.removeprefix("left_").removeprefix("right_")
        squares = rotation_std_deg[:, list(turning_joints)] ** 2
        factor = factors.get(kind, ONE_AXIS)
        deviations[name] = factor * np.sqrt(squares.sum(1))
    return deviations


def speed_std_m_s(relative_mm: np.ndarray, joint_observed: np.ndarray) -> np.ndarray:
    """Return the deviations [T, 24] of joints' speeds from the lengths of deviations relative to
    the pelvis: the person's distance is unknown, but does not change.
    """
    return stated_errors().speed_per_s[KIND, joint_observed.astype(int)] * moving_std_m(relative_mm)


def moving_std_m(relative_mm: np.ndarray) -> np.ndarray:
    """Return the joint's own deviation and the body's, combined [T, 24], in metres."""
    return np.hypot(relative_mm, relative_mm.mean(1, keepdims=True)) / 1000


def _look_up(values: np.ndarray, place: int, observed: np.ndarray, scene: bool) -> np.ndarray:
    """Return the entries [T, 24, 3] of a table for joints that are hidden or seen [T, 24]."""
    return values[place][KIND, observed][:, :, AXIS, int(scene)]


def _smooth(values: np.ndarray) -> np.ndarray:
    """Return means of neighbouring frames [T], NaN where values are: errors last for a while."""
    is_finite = np.isfinite(values)
    padding = SMOOTHING_FRAMES // 2
    window = np.ones(SMOOTHING_FRAMES)
    total = np.convolve(np.pad(np.where(is_finite, values, 0.0), padding), window, "valid")
    count = np.convolve(np.pad(is_finite.astype(float), padding), window, "valid")
    return np.where(is_finite, total / count.clip(1), np.nan)


def _from_pelvis_mm(joints_m: torch.Tensor) -> np.ndarray:
    """Return joints [T, 24, 3] relative to the pelvis, in millimetres and float64."""
    joints_mm = 1000 * joints_m.double().numpy()
    return joints_mm - joints_mm[:, :1]
