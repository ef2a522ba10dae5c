"""Put people of captured motion onto one floor.

World frame: y up, metres, floor at y = 0. Feet are planted (`captured/feet.py`): a foot that stands
does not slide, whatever the body's proportions.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from eval3dpw.captured.feet import (
    FEET_KEYPOINTS,
    feet_over_sole_m,
    find_contacts,
    plant_feet,
    speeds_m_s,
)
from eval3dpw.captured.motion import legs_m
from eval3dpw.synth.motion import FPS, Clip
from fitting.body import Body
from fitting.body.kinematics import Placement
from fitting.body.rotations import rotation_matrices

BETAS = 10  # as many as 3DPW's files hold
CHILD_SIZE = (0.55, 0.8)
ADULT_SPREAD = 0.045
STILL_M_S = 0.03  # a foot whose speed is measured stands stiller than that in the truth


@dataclass(frozen=True)
class SyntheticPerson:
    clip: str
    shape: Tensor  # [10]
    pose: Tensor  # [T, 24, 3] axis-angle, the root in the world
    translation: Tensor  # [T, 3]
    joints: Tensor  # [T, 24, 3]
    keypoints: Tensor  # [T, 26, 3] Halpe's; the first 17 are COCO's
    placement: Placement  # before size and translation
    size: float = (
        1.0  # multiplies the whole body about the origin, before the translation: children
    )
    has_steps: bool = False  # the feet stand on steps, not only on the floor

    @property
    def path(self) -> np.ndarray:
        """Return x, z of the pelvis [T, 2]."""
        return self.joints[:, 0, ::2].numpy()

    def moved(self, shift_m: Tensor) -> "SyntheticPerson":
        """Return the same person elsewhere; shift_m [3] or [T, 3]."""
        joints, keypoints = (
            points + shift_m[..., None, :] for points in (self.joints, self.keypoints)
        )
        return replace(
            self, translation=self.translation + shift_m, joints=joints, keypoints=keypoints
        )

    def moved_to(self, x: float, z: float) -> "SyntheticPerson":
        """Return the person moved along the floor."""
        return self.moved(torch.tensor([x, 0.0, z], dtype=torch.float32))


def draw_shape(rng: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.clip(rng.normal(0, 1, BETAS), -2.2, 2.2).astype(np.float32))


def draw_size(rng: np.random.Generator, child: bool) -> float:
    return (
        float(rng.uniform(*CHILD_SIZE))
        if child
        else float(np.clip(rng.normal(1, ADULT_SPREAD), 0.9, 1.1))
    )


def there_and_back(count: int, frames: int) -> np.ndarray:
    """Return indices [frames] of a clip of `count` frames played to its end, backwards, and so
    on.
    """
    way = np.arange(frames) % max(2 * (count - 1), 1)
    return np.where(way < count, way, 2 * (count - 1) - way)


def sized_person(
    body: Body, clip: str, pose: Tensor, shape: Tensor, translation: Tensor, size: float = 1.0
) -> SyntheticPerson:
    """Pose a person with every point of the body multiplied by `size` before it is moved."""
    full_shape = torch.nn.functional.pad(shape, (0, body.shape_size - len(shape)))
    output = body(pose, full_shape)
    placement = body.placement(rotation_matrices(pose), full_shape)
    joints, keypoints = (
        size * points + translation[:, None] for points in (output.joints, output.keypoints)
    )
    return SyntheticPerson(clip, shape, pose, translation, joints, keypoints, placement, size)


def staged_person(
    body: Body,
    clip: Clip,
    rows: np.ndarray,
    shape: Tensor,
    size: float,
    yaw: float,
    fps: float = FPS,
    has_steps: bool = False,
    pose: Tensor | None = None,
) -> SyntheticPerson:
    """Stage frames `rows` [T] of a clip, turned by `yaw`, feet planted, the path's middle at the
    origin.

    pose [T, 24, 3]: instead of the clip's own, before it is turned.
    """
    turn = Rotation.from_euler("y", yaw)
    turned = (clip.pose[rows] if pose is None else pose).clone()
    turned[:, 0] = torch.from_numpy(
        (turn * Rotation.from_rotvec(turned[:, 0].double().numpy())).as_rotvec()
    ).float()
    rest_joints = body.rest_joints + body.rest_joint_shapedirs[..., : len(shape)] @ shape
    legs = legs_m(rest_joints) / legs_m(body.rest_joints)
    root = torch.from_numpy(size * legs * turn.apply(clip.root_m[rows].double().numpy())).float()
    person = sized_person(body, clip.name, turned, shape, root - size * rest_joints[0], size)
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    shift = torch.from_numpy(
        plant_feet(feet, size * feet_over_sole_m(body, shape), fps, level=not has_steps)
    ).float()
    middle = (person.joints[:, 0] + shift).amin(0) / 2 + (person.joints[:, 0] + shift).amax(0) / 2
    return replace(
        person.moved(shift - middle * torch.tensor([1.0, 0.0, 1.0])), has_steps=has_steps
    )


def contacts(body: Body, person: SyntheticPerson, fps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return [T, 4] whether left heel, left toes, right heel, right toes stand, and whether they
    are still.
    """
    feet = person.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    over_sole = person.size * feet_over_sole_m(body, person.shape)
    stands = find_contacts(feet, over_sole, fps, level=not person.has_steps)
    return stands, stands & (speeds_m_s(feet, fps) < STILL_M_S)


def heading(path_m: np.ndarray | Tensor) -> float:
    """Return the direction in radians (x = sin, z = cos) from the first to the last of places [T,
    3].
    """
    went = np.asarray(path_m[-1] - path_m[0])
    return float(np.arctan2(went[0], went[2]))


def stage(
    body: Body,
    clips: list[Clip],
    kinds: list[str],
    sizes: list[float],
    frames: int,
    fps: float,
    rng: np.random.Generator,
) -> list[SyntheticPerson]:
    """Put people with their own clip, shape and direction onto one floor, apart from each other."""
    step = round(FPS / fps)
    people = []
    for clip, kind, size in zip(clips, kinds, sizes, strict=True):
        rows = there_and_back(len(clip.pose), frames * step)[::step]
        yaw = float(rng.uniform(0, 2 * np.pi))
        people.append(
            staged_person(
                body, clip, rows, draw_shape(rng), size, yaw, fps, has_steps=kind == "stairs"
            )
        )
    placed = people[:1]
    for person in people[1:]:
        placed.append(apart(person, [(p.path, 0.55) for p in placed], rng))
    return placed


def apart(
    person: SyntheticPerson, paths: list[tuple[np.ndarray, float]], rng: np.random.Generator
) -> SyntheticPerson:
    """Move a person to a random place that keeps these distances to the paths [T, 2] at all
    times.
    """
    reach = 1.0
    spot = rng.uniform(-1, 1, 2)
    while any(
        np.linalg.norm(path - person.path - spot, axis=1).min() <= least for path, least in paths
    ):
        reach *= 1.03
        spot = rng.uniform(-reach, reach, 2)
    return person.moved_to(*spot)
