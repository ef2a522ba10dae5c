"""What is stated is what happens: deviations as held-out people showed them, and how far off a
frame's worst joint is.

The Gauss-Newton covariance (`solver.levenberg_marquardt.joint_deviations`) knows the noise of
keypoints and the spread of the priors. It cannot know a limb mirrored in depth, a wrong scene, or clothes.
`bench/tuning/stated_errors.py` fits rendered people whom nothing was learned from, and leaves in
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
from pose2d.base.json_files import read_json

TABLE = Path(__file__).parent / "data" / "stated_errors.json"
KINDS = ("trunk", "hip", "knee", "ankle", "foot", "head", "shoulder", "elbow", "wrist", "hand")
KIND = np.array(
    [next((k for k, kind in enumerate(KINDS) if name.endswith(kind)), 0) for name in JOINT_NAMES]
)
AXIS = np.array([0, 0, 1])  # across, across, along the optical axis
ONE_STD = math.erf(math.sqrt(0.5))  # the share of errors that one stated deviation holds: 68.3 %
COUNTED = np.array(
    [n for n, name in enumerate(JOINT_NAMES) if n and "hand" not in name]
)  # nothing measures hands
# Gauss-Newton takes neighbouring frames for more independent than they are, so what it states
# shrinks with their number per second: as fps to minus these powers, relative to the pelvis and in
# the camera frame, across and along (the same rendered people at 30, 15 and 10 frames a second).
# Below 6 frames a second they hardly touch.
RATE = np.array([[0.16, 0.31], [0.09, 0.02]])
TURN_RATE = 0.48
LEARNT_FPS = 30.0
RATES = (6.0, 120.0)
# Of several cameras: on Gauss-Newton's deviations, what is added along each axis (joints are
# elsewhere in the network than in the body, in every camera alike), and the worst joint's median
# over the largest deviation. Chosen on rigs r1 and r2 of bench/cameras.py.
SEVERAL_FACTOR = 1.5
SEVERAL_MM = 12.0
SEVERAL_WORST = 1.5
AROUND = 7  # frames over which a frame's worst error is averaged
_MIRROR_MM, _GUESS_MM = 30.0, 20.0  # added before the logarithm: below, a difference says nothing


@dataclass(frozen=True)
class StatedErrors:
    """What held-out people showed."""

    # [2, kinds, 2, 2, 2] relative or camera frame; kind; hidden, seen; across, along; scene or not
    factor: np.ndarray
    freedom: np.ndarray  # the same: degrees of freedom
    spread_mean: np.ndarray  # [2] of z
    spread: np.ndarray  # [2, 2] w across, along
    exponent: np.ndarray  # [2, 2] a, relative or camera frame; across, along
    reference_mm: np.ndarray  # [2, 2] ref
    rotation: np.ndarray  # [kinds, 2] factors on rotations of hidden and seen joints
    angle: Mapping[str, float]  # by kind of angle: its deviation over that of the joints' rotations
    speed_per_s: np.ndarray  # [kinds, 2] m/s per metre of a joint's and the body's deviation
    shape: float  # factor on deviations of the shape
    worst_mean: np.ndarray  # [F] of `frame_features`
    worst_weight: np.ndarray  # [F] of features without their mean -> log of mm
    worst_log_mm: float  # at the mean
    worst_spread: float  # 1 / shape of the log-logistic distribution

    def powered(self, std_mm: np.ndarray, place: int) -> np.ndarray:
        """ref (Gauss-Newton / ref)^a of deviations [.., 3]."""
        reference = self.reference_mm[place, AXIS]
        return reference * (std_mm / reference) ** self.exponent[place, AXIS]

    @staticmethod
    def of(stated: Mapping[str, Any]) -> "StatedErrors":
        arrays: dict[str, Any] = {
            n: np.array(v) if isinstance(v, list) else v for n, v in stated.items()
        }
        return StatedErrors(**arrays)


@cache
def stated_errors() -> StatedErrors:
    return StatedErrors.of(read_json(TABLE).object())


def calibrated(
    track: TrackFit,
    guess: InitialGuess | None,
    body: Body,
    scene: bool,
    fps: float,
    table: StatedErrors | None = None,
) -> TrackFit:
    """With deviations that hold, where the fit states any. scene: gravity was used; fps: of the
    frames that were solved together."""
    fit = track.fit
    if (
        fit.joint_std_mm is None
        or fit.joint_std_relative_mm is None
        or fit.rotation_std_deg is None
    ):
        return track
    table = table or stated_errors()
    seen = track.joint_observed.astype(int)
    away = spread_features(track, guess, body)
    rate = float(np.clip(fps, *RATES)) / LEARNT_FPS

    def stated(std_mm: np.ndarray, place: int) -> torch.Tensor:
        std_mm = table.powered(std_mm * rate ** RATE[place, AXIS], place) * _cells(
            table.factor, place, seen, scene
        )
        return torch.from_numpy(std_mm.astype(np.float32))

    wider = np.exp((away - table.spread_mean) @ table.spread.T)[..., AXIS].astype(
        np.float32
    )  # [T, 24, 3]
    relative = stated(fit.joint_std_relative_mm.numpy(), 0) * torch.from_numpy(wider)
    deg = fit.rotation_std_deg.numpy() * rate**TURN_RATE
    rotation = torch.from_numpy((deg * table.rotation[KIND, seen]).astype(np.float32))
    covariance = None if fit.shape_covariance is None else fit.shape_covariance * table.shape**2
    found = replace(
        track,
        fit=replace(
            fit,
            joint_std_mm=stated(fit.joint_std_mm.numpy(), 1),
            joint_std_relative_mm=relative,
            rotation_std_deg=rotation,
            shape_covariance=covariance,
        ),
    )
    features = frame_features(found, away, scene)
    log_mm = table.worst_log_mm + (features - table.worst_mean) @ table.worst_weight
    return replace(found, worst_error_mm=np.exp(_over_time(log_mm)).astype(np.float32))


def calibrated_by_several(track: TrackFit) -> TrackFit:
    """Of a fit to several cameras."""
    fit = track.fit
    if fit.joint_std_mm is None or fit.joint_std_relative_mm is None:
        return track
    std, relative = (
        ((SEVERAL_FACTOR * std).square() + SEVERAL_MM**2).sqrt()
        for std in (fit.joint_std_mm, fit.joint_std_relative_mm)
    )
    worst = SEVERAL_WORST * relative[:, COUNTED].norm(dim=-1).amax(1).numpy()
    return replace(
        track,
        fit=replace(fit, joint_std_mm=std, joint_std_relative_mm=relative),
        worst_error_mm=worst,
    )


def widened_by_cameras(
    track: TrackFit, scale_log_std: float, turn_std_rad: float, body: Body
) -> TrackFit:
    """The same with the uncertainty of cameras that people placed: of all lengths, and of the
    cameras' turns, which bend a body by about a quarter as much."""
    fit = track.fit
    worst = track.worst_error_mm
    if fit.joint_std_mm is None or fit.joint_std_relative_mm is None or worst is None:
        return track
    joints = 1000 * body.at(fit.params).joints
    apart = joints - joints[:, :1]
    bent = turn_std_rad / 4 * apart.norm(dim=-1, keepdim=True) / math.sqrt(3)
    std = torch.hypot(fit.joint_std_mm, torch.hypot(scale_log_std * joints, bent))
    more = torch.hypot(scale_log_std * apart, bent)
    fit = replace(
        fit, joint_std_mm=std, joint_std_relative_mm=torch.hypot(fit.joint_std_relative_mm, more)
    )
    worst = np.hypot(worst, SEVERAL_WORST * more[:, COUNTED].norm(dim=-1).amax(1).numpy()).astype(
        np.float32
    )
    return replace(track, fit=fit, worst_error_mm=worst)


def spread_features(track: TrackFit, guess: InitialGuess | None, body: Body) -> np.ndarray:
    """[T, 24, 2] z: how far the joint would be if its limb were mirrored in depth, and how far it
    is from the guess, both relative to the pelvis, logarithms of millimetres. Without a guess the
    second is the first."""
    joints = _from_pelvis_mm(body.at(track.fit.params).joints)
    mirrored = np.zeros(joints.shape[:2])
    for joint, parent in enumerate(PARENTS[1:], 1):
        mirrored[:, joint] = mirrored[:, parent] + np.abs(
            joints[:, joint, 2] - joints[:, parent, 2]
        )
    moved = mirrored
    if guess is not None:
        moved = np.linalg.norm(_from_pelvis_mm(body.at(guess.params).joints) - joints, axis=-1)
    return np.log(np.stack((mirrored + _MIRROR_MM, moved + _GUESS_MM), -1))


def frame_features(track: TrackFit, away: np.ndarray, scene: bool) -> np.ndarray:
    """[T, F] of a track whose deviations are calibrated: logarithms of the largest and the mean
    one, how many keypoints are seen, log of the misfit, how far from the guess and how far mirrored
    limbs would be, how many joints are hidden, and whether there is a scene. away: its
    `spread_features`."""
    fit = track.fit
    assert fit.joint_std_relative_mm is not None
    std_mm = np.linalg.norm(fit.joint_std_relative_mm.numpy()[:, COUNTED], axis=-1)
    area = track.keypoints.area_px2
    side_px = np.ones(len(track)) if area is None else area.numpy().clip(1) ** 0.5
    pulled = np.isfinite(fit.reprojection_px.numpy())
    misfit = (
        np.where(pulled, fit.reprojection_px.numpy(), 0).sum(1) / pulled.sum(1).clip(1) / side_px
    )
    return np.stack(
        (
            np.log(std_mm.max(1) + 1),
            np.log(std_mm.mean(1) + 1),
            track.keypoint_observed.mean(1),
            np.log(misfit + 0.003),
            away[:, COUNTED, 1].mean(1),
            away[:, COUNTED, 0].max(1),
            1 - track.joint_observed[:, COUNTED].mean(1),
            np.full(len(track), float(scene)),
        ),
        -1,
    ).astype(np.float64)


def probability_within(worst_error_mm: np.ndarray, limit_mm: float) -> np.ndarray:
    """That no joint is further off, of the median of the largest error."""
    return 1 / (1 + (worst_error_mm / limit_mm) ** (1 / stated_errors().worst_spread))


def level_factor(
    level: float, joint_observed: np.ndarray, scene: bool, place: int = 0
) -> np.ndarray:
    """[T, 24, 3] by which one stated deviation is multiplied so that it holds this share of errors
    along each axis.

    place: 0 relative to the pelvis, 1 in the camera frame."""
    from scipy.stats import t

    freedom = _cells(stated_errors().freedom, place, joint_observed.astype(int), scene)
    return t.ppf((1 + level) / 2, freedom) / t.ppf((1 + ONE_STD) / 2, freedom)


def angle_std_deg(
    rotation_std_deg: np.ndarray, joints: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Of angles between bones [T]; joints: whose rotations make each angle, by its name."""
    factors = stated_errors().angle
    return {
        name: factors[name.removeprefix("left_").removeprefix("right_")]
        * np.sqrt((rotation_std_deg[:, list(made_by)] ** 2).sum(1))
        for name, made_by in joints.items()
    }


def speed_std_m_s(relative_mm: np.ndarray, joint_observed: np.ndarray) -> np.ndarray:
    """[T, 24] of a joint's speed, from the lengths of deviations relative to the pelvis: how far
    away somebody is stays unknown, but does not change."""
    return stated_errors().speed_per_s[KIND, joint_observed.astype(int)] * moving_m(relative_mm)


def moving_m(relative_mm: np.ndarray) -> np.ndarray:
    """[T, 24] metres: the joint's own deviation and the body's."""
    return np.hypot(relative_mm, relative_mm.mean(1, keepdims=True)) / 1000


def _cells(table: np.ndarray, place: int, seen: np.ndarray, scene: bool) -> np.ndarray:
    """[T, 24, 3] the entries of joints that are hidden or seen [T, 24]."""
    return table[place][KIND, seen][:, :, AXIS, int(scene)]


def _over_time(values: np.ndarray) -> np.ndarray:
    """Means of neighbouring frames [T], NaN where they are: what is wrong stays so for a while."""
    known = np.isfinite(values)
    half = AROUND // 2
    parts = (np.pad(part, half) for part in (np.where(known, values, 0.0), known.astype(float)))
    total, count = (np.convolve(part, np.ones(AROUND), "valid") for part in parts)
    return np.where(known, total / count.clip(1), np.nan)


def _from_pelvis_mm(joints_m: torch.Tensor) -> np.ndarray:
    joints = 1000 * joints_m.double().numpy()
    return joints - joints[:, :1]
