"""How CMU's people stand: the bend that skeletons put into straight knees, measured subject by subject and removed.

In quiet standing knees are at -7 to 10 degrees in three other captures, 3 to 5 cm before the ankles, with the hips 5 to
8 cm before them. CMU's knees are at 18 in the median, from 8 to 35 by subject, and 10 cm before the ankles, its hips
where they should be: each skeleton has its knees too far in front. So the knee goes back while hip and ankle stay
in line: thigh and shank turn by half of the excess each, and the foot keeps its direction.

`tools/cmu_knees.py` measures the subjects anew (fitting/data/cmu_knees.json). Deep bends are right, so the excess fades
there.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fitting.body import Body
from fitting.body.kinematics import rotation_matrices
from fitting.body.rotations import matrix_to_axis_angle

TABLE = Path(__file__).parents[1] / "data" / "cmu_knees.json"
LEGS = ((1, 4, 7, 10), (2, 5, 8, 11))  # hip, knee, ankle, toes
# Subjects' medians spread by 4 degrees in UI-PRMD and OpenCap, about -2 and in pauses of a task 3; in CMU by 10, about
# 21. Whoever stands more bent than CMU's median is taken to do so among people, in that measure.
MIDDLE_DEG, SPREAD, CMU_MIDDLE_DEG = 3.0, 0.4, 21.0
MOST_BENT_DEG = 36.0  # quiet standing beyond is a crouch, not a skeleton's error
FADES_DEG = (20.0, 80.0)  # the excess is whole below and gone above: swinging legs of walkers bend as others' do
LEAST_DEG, LEAST_SOFT_DEG = -6.0, 3.0  # no knee is made straighter


def signed_flexion_deg(joints_m: Tensor) -> Tensor:
    """[N, 24, 3] -> [N, 2]: thigh against shank in the plane of shank and foot; negative is hyperextended."""
    found = []
    for hip, knee, ankle, toes in LEGS:
        thigh = joints_m[:, knee] - joints_m[:, hip]
        shank = normalize(joints_m[:, ankle] - joints_m[:, knee], dim=-1)
        foot = joints_m[:, toes] - joints_m[:, ankle]
        ahead = normalize(foot - (foot * shank).sum(-1, keepdim=True) * shank, dim=-1)
        found.append(torch.atan2((thigh * ahead).sum(-1), (thigh * shank).sum(-1)).rad2deg())
    return torch.stack(found, -1)


def stands_quietly(joints_m: Tensor, root_m: Tensor | None, clip_start: np.ndarray, fps: float) -> Tensor:
    """[N] bool: feet level, near each other and still, knees and trunk not far from straight; y up."""
    place = joints_m - joints_m[:, :1] + (0 if root_m is None else root_m[:, None])
    ankles, hips = place[:, (7, 8)], place[:, (1, 2)].mean(1, keepdim=True)
    parts = torch.cat((ankles, hips), 1)
    speed = torch.full((len(parts), 3), torch.inf)
    for first, end in zip(clip_start[:-1].tolist(), clip_start[1:].tolist(), strict=True):
        if end - first > 2:
            speed[first:end] = torch.gradient(parts[first:end], dim=0)[0].norm(dim=-1) * fps
    trunk = normalize(place[:, 12] - place[:, 0], dim=-1)[:, 1]
    apart = ankles[:, 0] - ankles[:, 1]
    still = (speed[:, :2].amax(1) < 0.05) & ((speed[:, 2] < 0.06) | (root_m is None))
    upright = (signed_flexion_deg(joints_m).amax(1) < 60) & (trunk > np.cos(np.deg2rad(30)))
    return still & upright & (apart[:, 1].abs() < 0.06) & (apart.norm(dim=-1) < 0.6)


def subjects_excess_deg() -> dict[int, tuple[float, float]]:
    """Subject -> excess of the left and right knee."""
    content = json.loads(TABLE.read_text())["standing_deg"]
    return {int(subject): (_excess(left), _excess(right)) for subject, (left, right) in content.items()}


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
    turned, bend = placed.rotation, signed_flexion_deg(placed.joints)
    wanted = bend - excess_deg * _whole(bend)
    wanted = LEAST_DEG + LEAST_SOFT_DEG * torch.nn.functional.softplus((wanted - LEAST_DEG) / LEAST_SOFT_DEG)
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
    """The pelvis [N, 3] of poses with longer legs, raised so that the lower ankle stays at its height."""
    was, now = (
        body.placement(rotation_matrices(pose), torch.zeros(body.shape_size)).joints[:, (7, 8), 1]
        for pose in (before, after)
    )
    share = (-was / 0.03).softmax(1)  # without a jump from one foot to the other
    root_m = root_m.clone()
    root_m[:, 1] += (share * (was - now)).sum(1)
    return root_m
