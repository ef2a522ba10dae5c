"""The points of a body that SMPLify pulls at, and the two ways to place them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fitting.body import Body
from fitting.kinematics import rotation_matrices

Through = Literal["mesh", "bones"]
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
    return FitPoints(body.keypoint_joints, body.keypoint_vertices, ((12, 11, 6, 5),), (11, 12))


def placer(body: Body, points: FitPoints, through: Through) -> Place:
    """How to place the points: "mesh" skins every vertex, as SMPLify does; "bones" only what the points need."""
    if through == "bones":
        riding = body.points(points.joint_part, points.vertex_part)

        def by_bones(pose: Tensor, shape: Tensor) -> Tensor:
            rotation = rotation_matrices(pose.unflatten(1, (-1, 3)))
            return riding.place(body.placement(rotation, shape), riding.moments(shape, body.pose_feature(rotation)))

        return by_bones

    def by_mesh(pose: Tensor, shape: Tensor) -> Tensor:
        rotation = rotation_matrices(pose.unflatten(1, (-1, 3)))
        placement = body.placement(rotation, shape)
        vertices = body.mesh(placement, shape, body.pose_feature(rotation))
        return points.joint_part @ placement.joints + points.vertex_part @ vertices

    return by_mesh
