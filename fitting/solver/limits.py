"""How far joints turn: ranges of the axis-angle numbers, joint by joint.

Axes at rest (T-pose): x to the body's left, y up, z to the front. A bent knee turns about +x; a bent left elbow about
-y, a bent right one about +y; an arm let down turns its shoulder about -z (left) or +z (right). Ranges are those of
textbooks on joint motion (goniometry), widened where one bone of this tree does the work of several. They are soft:
a number beyond its range costs ((beyond) / SIGMA_RAD)^2 / 2.
"""

import math

import torch
from torch import Tensor

from fitting.body.kinematics import JOINT_NAMES
from fitting.solver.unknowns import BODY_JOINTS

SIGMA_RAD = 0.05

# Degrees about x, y, z; left side. The right side is its mirror image: x stays, y and z change sign.
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


def _range(name: str) -> tuple[tuple[float, float], ...]:
    if name in _DEGREES:
        return _DEGREES[name]
    x, y, z = _DEGREES[name.replace("right", "left")]
    return x, (-y[1], -y[0]), (-z[1], -z[0])


def ranges(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Lowest and highest axis-angle numbers of BODY_JOINTS, each [57] radians."""
    table = torch.tensor([_range(JOINT_NAMES[joint]) for joint in BODY_JOINTS], dtype=dtype) * (math.pi / 180)
    return table[..., 0].flatten(), table[..., 1].flatten()
