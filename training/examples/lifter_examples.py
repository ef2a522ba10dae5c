"""Make the examples that the lifter learns from: captured motion on random bodies, seen by
cameras.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import quaternion_to_matrix
from fitting.camera.pinhole import NEAREST_KEYPOINT_M
from fitting.init.lifter_inputs import Inputs, Observation, make_inputs
from fitting.init.lifter_network import SHAPE, SLOW_STEP_S, WINDOW
from pose2d.skeletons import HALPE26
from training.examples.marks import MARKS_SPREAD_M, mark_offsets
from training.examples.random_numbers import Random
from training.examples.simulated_keypoints import observe
from training.examples.views import draw_views
from training.motion.bank import Bank, cut_windows, vary
from training.motion.kinds import SEATED
from training.motion.sources import MOTION_SHARES

STEP_S = (0.06, 0.16)  # between frames of a window; now and then up to SLOW_STEP_S
SPEED = (0.75, 1.35)  # at which the motion is played
MARKED = 0.6  # share of windows whose keypoints are where people mark them
NEAREST_M = 0.9  # no pelvis comes closer to the camera
# So many frames attend to each other, in such shares of windows: single frames are learned too.
GROUPS = (1, 3, WINDOW)
GROUP_SHARES = (0.25, 0.1, 0.65)


@dataclass(frozen=True)
class Examples:
    """Hold B windows of T frames, with truth in the camera turned towards the person
    (`inputs.Box`).
    """

    inputs: Inputs
    time_s: Tensor  # [B, T]
    attends: Tensor  # [B, T, T]
    counts: Tensor  # [B, T] weight of a frame in the loss
    rotation: Tensor  # [B, T, 24, 3, 3]
    shape: Tensor  # [B, 10]
    pelvis_m: Tensor  # [B, T, 3]
    joints_m: Tensor  # [B, T, 24, 3] from the pelvis
    keypoints_m: Tensor  # [B, T, 26, 3] from the pelvis


def draw_examples(
    banks: list[Bank], body: Body, count: int, generator: torch.Generator
) -> Examples:
    """Draw windows of captured motion on random bodies, seen by random cameras, read with
    errors.
    """
    draw = Random(generator, (count, 1))
    even = draw.even
    step = torch.where(draw.chance(0.1), even(STEP_S[1], SLOW_STEP_S), even(*STEP_S))
    time_s = torch.arange(WINDOW) * step
    motion = vary(
        cut_windows(banks, list(MOTION_SHARES[: len(banks)]), time_s * even(*SPEED), generator),
        generator,
    )
    # Bones vary in more ways than the lifter's ten shape numbers can tell.
    whole_shape = torch.randn(count, body.shape_size, generator=generator).clamp(-2.5, 2.5)
    view = draw_views(count, generator)

    rotation = quaternion_to_matrix(motion.turn)
    rotation[:, :, 0] = torch.einsum("bij,btjk->btik", view.turn, rotation[:, :, 0])
    travel = torch.einsum(
        "bij,btj->bti", view.turn, motion.root_m - motion.root_m.mean(1, keepdim=True)
    )
    pelvis = travel + view.target_m[:, None]
    pelvis[..., 2] += (NEAREST_M - pelvis[..., 2].amin(1, keepdim=True)).clamp(min=0)
    truth = place_bodies(body, rotation, whole_shape[:, None].expand(-1, WINDOW, -1))
    marked = draw.chance(MARKED).expand(count, WINDOW)
    spread_m = MARKS_SPREAD_M * torch.randn(count, HALPE26.size, 3, generator=generator)
    seen_m = (
        truth.keypoints
        + pelvis[:, :, None]
        + marked[..., None, None] * mark_offsets(truth.turned, spread_m)
    )
    exact = seen_m[..., :2] / seen_m[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    keypoints = observe(exact, marked.float(), view.half, motion.kind == SEATED, generator)
    which = torch.multinomial(
        torch.tensor(GROUP_SHARES), count, replacement=True, generator=generator
    )
    member = torch.arange(WINDOW) // torch.tensor(GROUPS)[which][:, None]
    attends = (member[:, :, None] == member[:, None]) & motion.inside[:, None] | torch.eye(
        WINDOW, dtype=torch.bool
    )
    return turn_towards_person(
        keypoints, time_s, attends, motion.inside, rotation, whole_shape, pelvis, truth
    )


def turn_towards_person(
    keypoints: Observation,
    time_s: Tensor,
    attends: Tensor,
    inside: Tensor,
    rotation: Tensor,
    shape: Tensor,
    pelvis_m: Tensor,
    truth: "Placed",
) -> Examples:
    """Turn the truth [B, T, ...] from the real camera to the one that looks at the person.

    inside: [B, T] the frames that count.
    """
    network_inputs = make_inputs(keypoints)
    to_turned = network_inputs.box.to_camera.mT
    rotation = torch.cat(((to_turned @ rotation[:, :, 0])[:, :, None], rotation[:, :, 1:]), 2)
    pelvis = torch.einsum("btij,btj->bti", to_turned, pelvis_m)
    ahead = (
        pelvis[..., 2] > NEAREST_M / 2
    )  # who has left the image may be anywhere: nothing to learn there
    pelvis[..., 2] = pelvis[..., 2].clamp(min=NEAREST_M / 2)
    counts = inside * ahead * torch.where(network_inputs.box.visible, 1.0, 0.3)
    points = (
        torch.einsum("btij,btkj->btki", to_turned, own) for own in (truth.joints, truth.keypoints)
    )
    return Examples(
        network_inputs, time_s, attends, counts, rotation, shape[:, :SHAPE], pelvis, *points
    )


class Placed(NamedTuple):
    """Hold a body relative to its pelvis, in metres."""

    joints: Tensor  # [..., 24, 3]
    keypoints: Tensor  # [..., 26, 3]
    turned: Tensor  # [..., 24, 3, 3] bones from their rest


def place_bodies(body: Body, rotation: Tensor, shape: Tensor) -> Placed:
    """Place bodies by local rotations [..., 24, 3, 3] and shapes [..., S]."""
    leading = rotation.shape[:-3]
    full_shape = torch.nn.functional.pad(shape, (0, body.shape_size - shape.shape[-1])).flatten(
        0, -2
    )
    placement = body.placement(rotation.flatten(0, -4), full_shape)
    points = body.keypoint_terms.place(placement, body.keypoint_terms.moments(full_shape, None))
    root = placement.joints[:, :1]
    parts = placement.joints - root, points - root, placement.rotation
    return Placed(*(part.unflatten(0, leading) for part in parts))
