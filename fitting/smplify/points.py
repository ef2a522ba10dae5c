"""The points of a body that SMPLify fits, and the two ways to place them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import JOINT_COUNT, PARENTS, rotation_matrices

Through = Literal["mesh", "bones", "smplx"]
Place = Callable[[Tensor, Tensor], Tensor]  # pose [N, 72] axis-angle, shape [N, S] -> points [N, K, 3], metres


@dataclass(frozen=True)
class FitPoints:
    """K points as weighted sums of posed joints and vertices, and the part each plays."""

    joint_part: Tensor  # [K, 24]
    vertex_part: Tensor  # [K, V]
    torsos: tuple[tuple[int, ...], ...]  # hips and shoulders, for the first stage; the first set that is seen whole
    ignored: tuple[int, ...]  # left out of the second stage


def coco17(body: Body) -> FitPoints:
    """The body's own COCO keypoints, in the parts that SPIN gives their slots."""
    return FitPoints(body.keypoint_joints[:17], body.keypoint_vertices[:17], ((12, 11, 6, 5),), (11, 12))


def placer(body: Body, points: FitPoints, through: Through) -> Place:
    """How to place the points: "mesh" skins every vertex, as SMPLify does; "bones" only what the points need.

    "smplx" skins every vertex by the smplx package, which is what published SMPLify code calls.
    """
    if through == "bones":
        attached = body.points(points.joint_part, points.vertex_part)

        def by_bones(pose: Tensor, shape: Tensor) -> Tensor:
            rotation = rotation_matrices(pose.unflatten(1, (-1, 3)))
            return attached.place(body.placement(rotation, shape), attached.moments(shape, body.pose_feature(rotation)))

        return by_bones

    if through == "smplx":
        return _by_smplx(body, points)

    def by_mesh(pose: Tensor, shape: Tensor) -> Tensor:
        rotation = rotation_matrices(pose.unflatten(1, (-1, 3)))
        placement = body.placement(rotation, shape)
        vertices = body.mesh(placement, shape, body.pose_feature(rotation))
        return points.joint_part @ placement.joints + points.vertex_part @ vertices

    return by_mesh


def _by_smplx(body: Body, points: FitPoints) -> Place:
    from smplx.lbs import lbs  # slow to import

    size = 3 * len(body.v_template)
    correctives = body.v_template.new_zeros(
        9 * (JOINT_COUNT - 1), size
    )  # SMPL's file has them, so they are always added
    if body.posedirs is not None:
        correctives = body.posedirs.reshape(size, -1).T.contiguous()
    parents = torch.tensor(PARENTS)

    def place(pose: Tensor, shape: Tensor) -> Tensor:
        vertices, joints = lbs(
            shape, pose, body.v_template[None], body.shapedirs, correctives, body.J_regressor, parents, body.weights
        )
        return points.joint_part @ joints + points.vertex_part @ vertices

    return place
