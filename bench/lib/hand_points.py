"""Where the hand network shows the points of a posed hand."""

import torch
from torch import Tensor

from fitting.body.fingers import BODY_JOINTS, TO_MEDIAPIPE, WRISTS, Fingers
from fitting.body.kinematics import Placement
from fitting.body.rotations import rotate


def shown_points(fingers: Fingers, placement: Placement, shape: Tensor) -> Tensor:
    """[T, 2, 21, 3] metres, of a placement of 52 joints: `Fingers.points` with the network's
    offsets.
    """
    turns = placement.rotation[:, BODY_JOINTS:].unflatten(1, (2, 5, 3))[:, :, list(TO_MEDIAPIPE)]
    wrist = placement.rotation[:, list(WRISTS)].unsqueeze(2)
    bones = torch.cat((wrist.unsqueeze(3).expand(-1, -1, 5, -1, -1, -1), turns), 3).flatten(2, 3)
    offsets = fingers.offsets.expand(len(bones), 2, 21, 3)
    return fingers.points(placement, shape) + rotate(torch.cat((wrist, bones), 2), offsets)
