"""What the surroundings of a track say about it: which way is up, where the floor is, which points of the body rest.

Everything is in the shot's axes, those of its first camera: a camera that turns by R_t (`world_rotation`) sees a point
that it has at q_t in its own frame at y_t = R_t q_t in the shot's. Three residuals, in natural units:

  rest    a point that rests in frames t and t + 1 stays where it is:   (y_{t+1} - y_t) fps / REST_SPEED
  floor   a point that rests on the floor is at its height:             (up . y - floor - lift) / sigma
          and no point is below it
  lean    people are upright, rather than square to the optical axis (`lean_axis`)

All lengths are those of the body at its own shape, before its size multiplies it, so a child of half the size stands on
a floor of half the camera's height.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body

# Points of the body that can rest on something, among Halpe's 26 keypoints: heels and big toes, wrists, knees, pelvis.
POINTS = (24, 20, 25, 21, 9, 10, 13, 14, 19)
FEET = 4  # the first so many of them
# Of heels and toes over the sole: measured on the body. Of wrists, knees and pelvis over what they rest on.
_OTHER_LIFT_M = (0.03, 0.03, 0.05, 0.05, 0.12)

REST_SPEED = 0.05  # m/s of a resting point; 0.03 and 0.1 were compared by bench/scene_evidence.py --choose
FLOOR_SIGMA_M = 0.03  # of a resting point over the floor: soles, and the floor's own unevenness
BELOW_SIGMA_M = 0.02  # of a point below the floor
# Deviations at which these count half of their square (Geman-McClure's loss): rest and floor are hypotheses, and where
# keypoints contradict them they let go. bench/scene_evidence.py --choose: against a loss that grows on, misfit with the
# scene falls from 1.07 .. 1.31 times that without to 1.02 .. 1.05, and standing feet are as still.
REST_SCALE, FLOOR_SCALE = 2.0, 3.0
SLOWEST_FPS = 9.0  # frames farther apart may belong to different steps of a foot


@dataclass(frozen=True)
class SceneTerms:
    """The surroundings of a track of T frames."""

    up: Tensor | None = None  # [3] unit, against gravity, in the shot's axes; None: not known
    world_rotation: Tensor | None = None  # [T, 3, 3] from each frame's camera to the shot's axes; None: all the same
    floor_m: float | None = None  # up . x of the floor's points x; None: not known
    points: tuple[int, ...] = POINTS  # [n] keypoints that may rest, and that the floor holds
    rest: Tensor | None = None  # [T, n] 0..1 probability that each of them rests on something
    on_floor: Tensor | None = None  # [T, n] 0..1 probability that it rests on the floor
    floor_sigma_m: float = FLOOR_SIGMA_M

    def frames(self, index: slice | Tensor) -> "SceneTerms":
        """Of some of the frames."""
        part = {
            name: value[index]
            for name in ("world_rotation", "rest", "on_floor")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **part)

    def to(self, dtype: torch.dtype) -> "SceneTerms":
        part = {
            name: value.to(dtype)
            for name in ("up", "world_rotation", "rest", "on_floor")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **part)

    @property
    def without_contact(self) -> "SceneTerms":
        """Only gravity and the camera's rotation."""
        return replace(self, floor_m=None, rest=None, on_floor=None)

    @property
    def has_floor(self) -> bool:
        return self.up is not None and self.floor_m is not None

    def in_shot(self, vectors: Tensor) -> Tensor:
        """Vectors [T, n, 3] of each frame's camera, or their derivatives [T, n, 3, d], in the shot's axes."""
        if self.world_rotation is None:
            return vectors
        return torch.einsum("tij,tnj...->tni...", self.world_rotation, vectors)

    def lean_axis(self, frames: int) -> Tensor:
        """[T, 3] the horizontal direction away from the camera, in each frame's camera."""
        assert self.up is not None
        up = self.up.expand(frames, 3)
        if self.world_rotation is not None:
            up = torch.einsum("tji,tj->ti", self.world_rotation, up)
        ahead = up.new_tensor([0.0, 0.0, 1.0]) - up[:, 2:] * up
        size = ahead.norm(dim=-1, keepdim=True)
        # Straight up or down nothing leans out of the image.
        return torch.where(size > 0.3, ahead / size.clamp(min=1e-6), torch.zeros_like(ahead))


def point_lifts(body: Body) -> Tensor:
    """[26] metres of keypoints over what they rest on; zero but for POINTS."""
    rest = body(torch.zeros(1, 24, 3), vertices=True)
    assert rest.vertices is not None
    sole = rest.vertices[0, :, 1].min()
    lifts = torch.zeros_like(rest.keypoints[0, :, 1])
    lifts[list(POINTS[:FEET])] = rest.keypoints[0, list(POINTS[:FEET]), 1] - sole
    lifts[list(POINTS[FEET:])] = lifts.new_tensor(_OTHER_LIFT_M)
    return lifts


def floor_residuals(points_shot: Tensor, scene: SceneTerms, lift: Tensor) -> tuple[Tensor, Tensor]:
    """Points [T, n, 3] in the shot's axes, lift [n] -> residuals [T, n] and their derivative by the height [T, n]."""
    assert scene.up is not None
    assert scene.floor_m is not None
    height = points_shot @ scene.up - scene.floor_m - lift
    held = torch.zeros_like(height) if scene.on_floor is None else scene.on_floor.sqrt()
    share = torch.where(height < 0, torch.full_like(height, 1 / BELOW_SIGMA_M), held / scene.floor_sigma_m)
    return share * height, share


def rest_residuals(points_shot: Tensor, scene: SceneTerms, fps: float) -> tuple[Tensor, Tensor]:
    """Points [T, n, 3] -> residuals [T - 1, n, 3] of neighbouring frames, and their derivative by the step [T - 1, n].

    Summed over frames it stands for an integral over time, as acceleration does.
    """
    assert scene.rest is not None
    share = (scene.rest[1:] * scene.rest[:-1]).sqrt() * rest_factor(fps) / REST_SPEED
    return share.unsqueeze(-1) * (points_shot[1:] - points_shot[:-1]), share


def rest_factor(fps: float) -> float:
    """From a step between frames to a rate-free speed."""
    return 0.0 if fps < SLOWEST_FPS else fps * (30.0 / fps) ** 0.5
