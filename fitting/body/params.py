"""The parameters of a body over T frames, and where they place it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pose2d.base.columns import column
from pose2d.base.table import Table


@dataclass(frozen=True)
class BodyParams(Table):
    """The result of a fit: one person over T frames."""

    TENSORS = True
    # [T, 24, 3] axis-angle, each joint relative to its parent; joint 0 turns it all
    pose: Tensor = column((24, 3), "f", "axis-angle of each joint", unit="rad", finite=True)
    # [S] one body for all frames, or [T, S]
    shape: Tensor = column(("directions",), "f", "shape", unit="standard deviations", finite=True)
    # [T, 3] added to every point
    translation: Tensor = column((3,), "f", "translation", unit="m", finite=True)
    # [] or [T] multiplies the posed body: children; [1] is one for all frames, too
    size: Tensor = column((), "f", "size", finite=True, fill=1, default=lambda: torch.ones(()))
    # [T, 30, 3] SMPL-H's finger joints, zeros: flat hands; None: as the 24 joints have them
    hands: Tensor | None = column(
        (30, 3), "f", "axis-angle of finger joints", unit="rad", finite=True, optional=True
    )

    # [R] where keypoints are read (`fitting.body.reading`), 0: as of most people; None: keypoints are
    # the body's own
    reading: Tensor | None = column(
        ("readings",),
        "f",
        "where keypoints are read",
        unit="standard deviations",
        finite=True,
        optional=True,
    )

    def __post_init__(self) -> None:
        if self.size.ndim and len(self.size) == 1 != len(self.pose):
            object.__setattr__(self, "size", self.size[0])
        super().__post_init__()


@dataclass(frozen=True)
class BodyOutput(Table):
    """Positions of the body in T frames, in the frame of its translation."""

    joints: Tensor = column(
        (24, 3), "f", "posed joints by forward kinematics", unit="m"
    )  # [T, 24, 3]
    keypoints: Tensor = column(
        (26, 3), "f", "Halpe-26; the first 17 are COCO's", unit="m"
    )  # [T, 26, 3]
    vertices: Tensor | None = column(
        ("vertices", 3), "f", "mesh, where wanted", unit="m", optional=True
    )  # [T, V, 3]
    # [T, 2, 21, 3] left and right, in MediaPipe's order; None: no finger pose was given
    hands: Tensor | None = column((2, 21, 3), "f", "hand keypoints", unit="m", optional=True)
