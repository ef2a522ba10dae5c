"""Feet of captured motion: when they stand, and the same motion with standing feet that do not
slide.

Captured motion on a body with other proportions slides: a leg that is longer than the subject's
sweeps the floor. `planted` moves the whole body a little, frame by frame, so that the point that
bears the weight stays where it is, as the truth of a standing foot must. What then stands is
measured, not assumed (`in_contact`).

Shoulders that rise with the arms.

CMU's collars are at rest in every pose, arms overhead included. On people the acromion rises,
measured on UI-PRMD's markers (shoulder abduction and scaption, done correctly): medians over C7 by
the upper arm's angle from hanging.

How CMU's people stand: the bend that skeletons put into straight knees, measured subject by subject
and removed.

In quiet standing knees are at -7 to 10 degrees in three other captures, 3 to 5 cm before the
ankles, with the hips 5 to 8 cm before them. CMU's knees are at 18 in the median, from 8 to 35 by
subject, and 10 cm before the ankles, its hips where they should be: each skeleton has its knees too
far in front. So the knee goes back while hip and ankle stay in line: thigh and shank turn by half
of the excess each, and the foot keeps its direction.

`tools/cmu_knees.py` measures the subjects anew (fitting/data/cmu_knees.json). Deep bends are right,
so the excess fades there."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter1d
from torch import Tensor
from torch.nn.functional import normalize

from fitting.body import Body
from fitting.body.kinematics import matrix_to_axis_angle, rotation_matrices, shortest_turn
from pose2d.skeletons import HALPE26

FEET = (
    "left_heel",
    "left_big_toe",
    "right_heel",
    "right_big_toe",
)  # in the order of `fit.npz`'s contacts
FEET_KEYPOINTS = tuple(HALPE26.keypoints.index(name) for name in FEET)
STILL_M_S = 0.10  # a point that stands is slower
ON_FLOOR_M = 0.05  # and not higher over what it stands on
# height, and speed in each round, at which a point begins to be free
_BEARS_M = 0.03
_BEARS_M_S = (0.30, 0.12)
_SETTLES_S = 0.15  # time over which the height of standing feet is levelled


def feet_over_sole_m(body: Body, shape: torch.Tensor | None = None) -> np.ndarray:
    """[4] height of FEET over the sole at rest."""
    rest = body(torch.zeros(1, 24, 3), shape, vertices=True)
    assert rest.vertices is not None
    return (rest.keypoints[0, list(FEET_KEYPOINTS), 1] - rest.vertices[0, :, 1].min()).numpy()


def speeds_m_s(points_m: np.ndarray, fps: float) -> np.ndarray:
    """[T, N] of points [T, N, 3], by central differences."""
    if len(points_m) < 2:
        return np.zeros(points_m.shape[:-1])
    return np.linalg.norm(np.gradient(points_m, axis=0), axis=-1) * fps


def planted(
    feet_m: np.ndarray, over_sole_m: np.ndarray, fps: float, level: bool = True
) -> np.ndarray:
    """What to add to a body's place [T, 3] so that its feet [T, 4, 3] (y up) stand on y = 0 without
    sliding. level: standing feet are put onto y = 0 at any time, not only on the whole; for floors
    without steps."""
    shift = np.zeros((len(feet_m), 3))
    height = feet_m[..., 1] - over_sole_m
    shift[:, 1] = -np.quantile(height.min(1), 0.1)
    above = height + shift[:, 1:2] if level else height - height.min(1, keepdims=True)
    low = np.exp(-((np.maximum(above, 0) / _BEARS_M) ** 2))
    bears = low
    for free_m_s in _BEARS_M_S:  # what stands shows ever more clearly as the sliding goes
        velocity = np.gradient(feet_m + shift[:, None], axis=0) * fps
        speed = np.linalg.norm(velocity[..., ::2], axis=-1)
        bears = gaussian_filter1d(
            low * np.exp(-((speed / free_m_s) ** 2)), 0.7, axis=0, mode="nearest"
        )
        slide = (bears[..., None] * velocity).sum(1) / np.maximum(bears.sum(1, keepdims=True), 0.02)
        shift[:, ::2] -= np.cumsum(slide, axis=0)[:, ::2] / fps
    shift[:, ::2] -= shift[:, ::2].mean(0)
    if level:
        width = max(_SETTLES_S * fps, 1.0)
        smooth = partial(gaussian_filter1d, sigma=width, mode="nearest")
        off = smooth((bears * height).sum(1))
        weight = smooth(bears.sum(1))
        shift[:, 1] = np.where(weight > 1e-3, -off / np.maximum(weight, 1e-3), shift[:, 1])
    return shift


def in_contact(
    feet_m: np.ndarray, over_sole_m: np.ndarray, fps: float, level: bool = True
) -> np.ndarray:
    """[T, 4] bool: which of the feet's points stand, in a world with the floor at y = 0. level:
    False where there are steps; then what counts is the height over the body's lowest point."""
    height = feet_m[..., 1] - over_sole_m
    above = height if level else height - height.min(1, keepdims=True)
    return (speeds_m_s(feet_m, fps) < STILL_M_S) & (above < ON_FLOOR_M)


# Middle of each range of the arm's angle in degrees, and the rise in millimetres.
ARM_DEG = (12.0, 42.0, 75.0, 105.0, 135.0, 165.0)
RISE_MM = (0.0, 9.0, 27.0, 39.0, 55.0, 52.0)
ARMS = ((13, 16, 18), (14, 17, 19))  # collar, shoulder, elbow


def raised_m(arm_rad: Tensor) -> Tensor:
    """How much higher a shoulder is than with the arm hanging, by the arm's angle from hanging."""
    at = torch.tensor(ARM_DEG).deg2rad()
    rise = torch.tensor(RISE_MM) / 1000
    right = torch.searchsorted(at, arm_rad.contiguous()).clamp(1, len(at) - 1)
    share = ((arm_rad - at[right - 1]) / (at[right] - at[right - 1])).clamp(0, 1)
    return torch.lerp(rise[right - 1], rise[right], share)


def elevation_rad(thorax: Tensor, upper_arm: Tensor) -> Tensor:
    """The angle [N] between an upper arm [N, 3] and the thorax's [N, 3, 3] downward axis."""
    return torch.acos((-(normalize(upper_arm, dim=-1) * thorax[:, :, 1]).sum(-1)).clamp(-1, 1))


def collar_turn(collar_bone: Tensor, moved_m: Tensor) -> Tensor:
    """The turn [N, 3, 3] of a collar whose bone [3] has its end moved by [N, 3], both in the
    thorax's frame. The bone keeps its length; what is moved along it is lost. How far it rises is
    kept exactly, as far as it can."""
    length = collar_bone.norm()
    high = (collar_bone[1] + moved_m[:, 1]).clamp(-0.95 * length, 0.95 * length)
    level = collar_bone[[0, 2]] + moved_m[:, [0, 2]]
    level = normalize(level, dim=-1) * (length.square() - high.square()).sqrt()[:, None]
    target = torch.stack((level[:, 0], high, level[:, 1]), -1)
    return shortest_turn(collar_bone.expand_as(target), target)


def with_raised_collars(pose: Tensor, body: Body) -> Tensor:
    """Poses [N, 24, 3] whose collars follow the arms; the arms' own directions stay."""
    rest = body.rest_joints.float()
    rotation = rotation_matrices(pose)
    turned = body.placement(rotation, torch.zeros(body.shape_size)).rotation
    pose = pose.clone()
    for collar, shoulder, elbow in ARMS:
        arm = (turned[:, shoulder] @ (rest[elbow] - rest[shoulder])[:, None]).squeeze(-1)
        moved = raised_m(elevation_rad(turned[:, 9], arm))[:, None] * torch.tensor([0.0, 1.0, 0.0])
        turn = collar_turn(rest[shoulder] - rest[collar], moved)
        pose[:, collar] = matrix_to_axis_angle(turn)
        pose[:, shoulder] = matrix_to_axis_angle(turn.mT @ turned[:, 9].mT @ turned[:, shoulder])
    return pose


TABLE = Path(__file__).parents[1] / "data" / "cmu_knees.json"
LEGS = ((1, 4, 7, 10), (2, 5, 8, 11))  # hip, knee, ankle, toes
# Subjects' medians spread by 4 degrees in UI-PRMD and OpenCap, about -2 and in pauses of a task 3;
# in CMU by 10, about
# 21. Whoever stands more bent than CMU's median is taken to do so among people, in that measure.
MIDDLE_DEG = 3.0
SPREAD = 0.4
CMU_MIDDLE_DEG = 21.0
MOST_BENT_DEG = 36.0  # quiet standing beyond is a crouch, not a skeleton's error
FADES_DEG = (
    20.0,
    80.0,
)  # the excess is whole below and gone above: swinging legs of walkers bend as others' do
# no knee is made straighter
LEAST_DEG = -6.0
LEAST_SOFT_DEG = 3.0


def signed_flexion_deg(joints_m: Tensor) -> Tensor:
    """[N, 24, 3] -> [N, 2]: thigh against shank in the plane of shank and foot; negative is
    hyperextended.
    """
    found = []
    for hip, knee, ankle, toes in LEGS:
        thigh = joints_m[:, knee] - joints_m[:, hip]
        shank = normalize(joints_m[:, ankle] - joints_m[:, knee], dim=-1)
        foot = joints_m[:, toes] - joints_m[:, ankle]
        ahead = normalize(foot - (foot * shank).sum(-1, keepdim=True) * shank, dim=-1)
        found.append(torch.atan2((thigh * ahead).sum(-1), (thigh * shank).sum(-1)).rad2deg())
    return torch.stack(found, -1)


def subjects_excess_deg() -> dict[int, tuple[float, float]]:
    """Subject -> excess of the left and right knee."""
    content = json.loads(TABLE.read_text())["standing_deg"]
    return {
        int(subject): (_excess(left), _excess(right)) for subject, (left, right) in content.items()
    }


def _excess(standing_deg: float) -> float:
    bent = min(standing_deg, MOST_BENT_DEG)
    excess = max(bent - (MIDDLE_DEG + SPREAD * (bent - CMU_MIDDLE_DEG)), 0.0)
    return excess / float(_whole(torch.tensor(bent)))


def _whole(bend_deg: Tensor) -> Tensor:
    """The share of the excess that a knee bent so far has."""
    low, high = FADES_DEG
    share = ((bend_deg - low) / (high - low)).clamp(0, 1)
    return 1 - share * share * (3 - 2 * share)


def straightened(pose: Tensor, excess_deg: Tensor, body: Body) -> Tensor:
    """Poses [N, 24, 3] without the excess [N, 2] of the two knees."""
    placed = body.placement(rotation_matrices(pose), torch.zeros(body.shape_size))
    turned = placed.rotation
    bend = signed_flexion_deg(placed.joints)
    wanted = bend - excess_deg * _whole(bend)
    wanted = LEAST_DEG + LEAST_SOFT_DEG * torch.nn.functional.softplus(
        (wanted - LEAST_DEG) / LEAST_SOFT_DEG
    )
    less = torch.deg2rad(torch.where(excess_deg > 0, (bend - wanted).clamp(min=0), torch.zeros(())))
    pose = pose.clone()
    for number, (hip, knee, ankle, _) in enumerate(LEGS):
        hinge = turned[:, hip, :, 0] * less[:, number, None] / 2
        thigh = rotation_matrices(hinge) @ turned[:, hip]
        shank = rotation_matrices(-hinge) @ turned[:, knee]
        pose[:, hip] = matrix_to_axis_angle(turned[:, 0].mT @ thigh)
        pose[:, knee] = matrix_to_axis_angle(thigh.mT @ shank)
        pose[:, ankle] = matrix_to_axis_angle(shank.mT @ turned[:, ankle])
    return pose


def lifted(root_m: Tensor, before: Tensor, after: Tensor, body: Body) -> Tensor:
    """The pelvis [N, 3] of poses with longer legs, raised so that the lower ankle stays at its
    height.
    """
    was, now = (
        body.placement(rotation_matrices(pose), torch.zeros(body.shape_size)).joints[:, (7, 8), 1]
        for pose in (before, after)
    )
    share = (-was / 0.03).softmax(1)  # without a jump from one foot to the other
    root_m = root_m.clone()
    root_m[:, 1] += (share * (was - now)).sum(1)
    return root_m
