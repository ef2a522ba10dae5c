"""Joints stay within the ranges that anatomy allows, as ranges of axis-angle numbers.

Axes at rest (T-pose): x to the body's left, y up, z to the front. A bent knee turns about +x; a
bent left elbow about -y, a bent right one about +y; an arm let down turns its shoulder about -z
(left) or +z (right). The limits are soft: a number beyond its range costs.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_NAMES
from fitting.solver.jacobian import Posed
from fitting.solver.terms.term import NormalEquations, Term
from fitting.solver.unknowns import BODY_JOINTS, POSE

LIMIT_STD_RAD = 0.05  # a number this far beyond its range is one standard deviation off; not tuned
# Ranges of textbooks on joint motion (goniometry), widened by hand where one bone of this tree does
# the work of several (spine, collar, wrist); not tuned. Degrees about x, y, z; left side. The right
# side is its mirror image: x stays, y and z change sign.
_DEGREES = {
    "left_hip": ((-130, 40), (-60, 60), (-45, 75)),
    "left_knee": ((-10, 150), (-25, 25), (-20, 20)),
    "left_ankle": ((-40, 60), (-45, 45), (-40, 40)),
    "spine1": ((-30, 60), (-30, 30), (-30, 30)),
    "spine2": ((-30, 45), (-30, 30), (-30, 30)),
    "spine3": ((-30, 45), (-30, 30), (-30, 30)),
    "neck": ((-60, 60), (-60, 60), (-45, 45)),
    "head": ((-45, 45), (-60, 60), (-45, 45)),
    "left_collar": ((-30, 30), (-40, 40), (-35, 45)),
    "left_shoulder": ((-110, 110), (-130, 110), (-110, 120)),
    "left_elbow": ((-120, 120), (-155, 5), (-60, 60)),
    "left_wrist": ((-120, 120), (-60, 60), (-90, 90)),
}


def _range_degrees(joint: str) -> tuple[tuple[float, float], ...]:
    """Return the lowest and highest angle of a joint about x, y and z, in degrees."""
    if joint in _DEGREES:
        return _DEGREES[joint]
    x, y, z = _DEGREES[joint.replace("right", "left")]
    return x, (-y[1], -y[0]), (-z[1], -z[0])


def joint_ranges(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest axis-angle numbers of BODY_JOINTS, each [57] radians."""
    degrees = torch.tensor([_range_degrees(JOINT_NAMES[j]) for j in BODY_JOINTS], dtype=dtype)
    low, high = (degrees * (math.pi / 180)).unbind(-1)
    return low.flatten(), high.flatten()


@dataclass(frozen=True)
class JointLimits(Term):
    """Keep axis-angle numbers in their ranges: no cost inside, a soft wall beyond."""

    low: Tensor  # [57] radians
    high: Tensor  # [57]

    def beyond(self, pose: Tensor) -> Tensor:
        """Return how far numbers [T, 57] reach beyond their range, in stds: zero inside."""
        return ((pose - self.high).clamp(min=0) + (pose - self.low).clamp(max=0)) / LIMIT_STD_RAD

    def cost(self, posed: Posed) -> Tensor:
        return self.beyond(posed.state.body_pose).square().sum(-1) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        beyond = self.beyond(posed.state.body_pose)
        equations.add_diagonal(POSE, beyond / LIMIT_STD_RAD, (beyond != 0) / LIMIT_STD_RAD**2)
