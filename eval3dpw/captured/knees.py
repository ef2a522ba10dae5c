"""Remove the bend that CMU's skeletons put into straight knees, subject by subject.

In quiet standing knees are at -7 to 10 degrees in three other captures, 3 to 5 cm before the
ankles, with the hips 5 to 8 cm before them. CMU's knees are at 18 in the median, from 8 to 35 by
subject, and 10 cm before the ankles, its hips where they should be: each skeleton has its knees too
far in front. So the knee goes back while hip and ankle stay in line: thigh and shank turn by half
of the excess each, and the foot keeps its direction. Deep bends are right, so the excess fades
there.

`python -m training.cmu_knees` measures the subjects anew and writes `cmu_knees.json`.
"""

import json
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fitting.body import Body
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices

TABLE = Path(__file__).parent / "cmu_knees.json"
LEGS = ((1, 4, 7, 10), (2, 5, 8, 11))  # hip, knee, ankle, toes
# Subjects' medians spread by 4 degrees in UI-PRMD and OpenCap, about -2 and in pauses of a task 3;
# in CMU by 10, about
# 21. A subject who is more bent than CMU's median is assumed to be so by SPREAD of the difference.
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
    """Return the knees' bend [N, 2] of joints [N, 24, 3]; negative is hyperextended.

    Thigh against shank, in the plane of shank and foot.
    """
    flexion = []
    for hip, knee, ankle, toes in LEGS:
        thigh = joints_m[:, knee] - joints_m[:, hip]
        shank = normalize(joints_m[:, ankle] - joints_m[:, knee], dim=-1)
        foot = joints_m[:, toes] - joints_m[:, ankle]
        ahead = normalize(foot - (foot * shank).sum(-1, keepdim=True) * shank, dim=-1)
        flexion.append(torch.atan2((thigh * ahead).sum(-1), (thigh * shank).sum(-1)).rad2deg())
    return torch.stack(flexion, -1)


def subjects_excess_deg() -> dict[int, tuple[float, float]]:
    """Return the excess bend of the left and right knee by subject number."""
    content = json.loads(TABLE.read_text())["standing_deg"]
    return {
        int(subject): (_excess_deg(left), _excess_deg(right))
        for subject, (left, right) in content.items()
    }


def _excess_deg(standing_deg: float) -> float:
    bent = min(standing_deg, MOST_BENT_DEG)
    excess = max(bent - (MIDDLE_DEG + SPREAD * (bent - CMU_MIDDLE_DEG)), 0.0)
    return excess / float(_excess_share(torch.tensor(bent)))


def _excess_share(bend_deg: Tensor) -> Tensor:
    """Return the share of the excess that a knee has at this bend."""
    low, high = FADES_DEG
    share = ((bend_deg - low) / (high - low)).clamp(0, 1)
    return 1 - share * share * (3 - 2 * share)


def straighten_knees(pose: Tensor, excess_deg: Tensor, body: Body) -> Tensor:
    """Return poses [N, 24, 3] without the excess [N, 2] of the two knees."""
    placed = body.placement(rotation_matrices(pose), torch.zeros(body.shape_size))
    turned = placed.rotation
    bend = signed_flexion_deg(placed.joints)
    target_bend = bend - excess_deg * _excess_share(bend)
    target_bend = LEAST_DEG + LEAST_SOFT_DEG * torch.nn.functional.softplus(
        (target_bend - LEAST_DEG) / LEAST_SOFT_DEG
    )
    less = torch.deg2rad(
        torch.where(excess_deg > 0, (bend - target_bend).clamp(min=0), torch.zeros(()))
    )
    pose = pose.clone()
    for number, (hip, knee, ankle, _) in enumerate(LEGS):
        hinge = turned[:, hip, :, 0] * less[:, number, None] / 2
        thigh = rotation_matrices(hinge) @ turned[:, hip]
        shank = rotation_matrices(-hinge) @ turned[:, knee]
        pose[:, hip] = matrix_to_axis_angle(turned[:, 0].mT @ thigh)
        pose[:, knee] = matrix_to_axis_angle(thigh.mT @ shank)
        pose[:, ankle] = matrix_to_axis_angle(shank.mT @ turned[:, ankle])
    return pose


def lift_pelvis(root_m: Tensor, before: Tensor, after: Tensor, body: Body) -> Tensor:
    """Return the pelvis [N, 3] raised for longer legs, so that the lower ankle keeps its height."""
    ankles_before, ankles_after = (
        body.placement(rotation_matrices(pose), torch.zeros(body.shape_size)).joints[:, (7, 8), 1]
        for pose in (before, after)
    )
    share = (-ankles_before / 0.03).softmax(1)  # without a jump from one foot to the other
    root_m = root_m.clone()
    root_m[:, 1] += (share * (ankles_before - ankles_after)).sum(1)
    return root_m
