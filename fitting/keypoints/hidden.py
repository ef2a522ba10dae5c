"""Find keypoints that another person hides, from the fitted bodies of a shot.

A network that looks at a person who is partly hidden by another one finds the other's keypoints as
readily as the right ones, and with high confidence. One image does not tell them apart; two fitted
bodies do. For a person whose body is behind another one, two things count: that a surface of the
other body lies in front of the keypoint, and that the detected keypoint lies where the other body
has one of the same kind. The weights of the stated mixture of errors then become

    w_m'  ~  w_m s_m^a,        a = COVERED (behind a surface) + TAKEN (at the other's keypoint),

both between 0 and 1, and fading with the distance between the two: people far apart differ in size
in the image, and are not mistaken for one another. The body that hides is modelled as capsules
around its bones, which need no mesh.

Keypoints behind the person's own body can be found in the same way (`surface_in_front_m` of the own
body), but nothing is changed for them: the head recognises that from the image (bench/README.md,
"Hidden keypoints").
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fitting.body import BodyOutput
from fitting.camera import Camera
from fitting.keypoints.weights import keypoint_area
from pose2d.base.columns import column, nested
from pose2d.base.scratch import release_scratch
from pose2d.base.table import Table, blocks
from pose2d.skeletons import HALPE26
from pose2d.types import (
    Keypoints,
    l_squared,
)

# Capsules: from joint, to joint, radius in metres on an adult. The torso is wider than deep, so it
# has several.
CAPSULES = (
    (1, 4, 0.08),
    (2, 5, 0.08),
    (4, 7, 0.055),
    (5, 8, 0.055),
    (7, 10, 0.045),
    (8, 11, 0.045),  # legs
    (16, 18, 0.05),
    (17, 19, 0.05),
    (18, 20, 0.04),
    (19, 21, 0.04),
    (20, 22, 0.04),
    (21, 23, 0.04),  # arms
    (1, 16, 0.11),
    (2, 17, 0.11),
    (0, 9, 0.12),
    (1, 2, 0.11),
    (16, 17, 0.08),
    (12, 15, 0.07),  # torso and neck
)
# a ball around the middle of the joint and the keypoint at the top
HEAD_JOINT = 15
HEAD_TOP = 17
HEAD_M = 0.10
UNCOVERED_M = -1.0  # where no surface meets the ray

# Chosen on the rendered validation set by the likelihood of true errors and the squared error of
# the expected OKS (python bench/tuning/hidden_keypoints.py synth_dev --split validation --choose).
COVERED = 4.70
TAKEN = 1.72
# the mean depth by which a body is surely behind another; both may follow the same keypoints
BEHIND_M = 0.02
FADE_M = 1.0  # the depth between two people over which it counts less, by a factor of e
SURFACE_M = 0.05  # how far in front of a keypoint a surface must be, and how exactly that is known
TAKEN_L = 2.0  # distance from the other's keypoint, in units of l


@dataclass(frozen=True)
class FittedBody(Table):
    """One person's keypoints and fitted body over T frames of a shot."""

    frame: np.ndarray = column((), "i", "increasing frame numbers")
    present: np.ndarray = column((), "b", "the person is there")
    keypoints: Keypoints = nested(Keypoints, "Halpe's 26")
    body: BodyOutput = nested(BodyOutput, "in the camera frame")


@dataclass(frozen=True)
class HiddenKeypoints:
    """Evidence against a person's keypoints, each [T, 26] in [0, 1]; with several people in front,
    the largest.
    """

    covered: Tensor  # a surface of another person is in front
    # another person in front has a keypoint of this kind, left or right, at this place
    taken: Tensor

    @property
    def inflation(self) -> Tensor:
        """Return how much the stated variances grow, [T, 26] (`inflate_variance`)."""
        return COVERED * self.covered + TAKEN * self.taken


def surface_in_front_m(points: Tensor, body: BodyOutput) -> Tensor:
    """Return how far the nearest surface of a body is in front of points [T, K, 3], along the rays
    from the camera, [T, K].

    Points and body are in the camera frame, in metres. UNCOVERED_M where no surface meets the ray.
    """
    first, second = (torch.tensor([capsule[end] for capsule in CAPSULES]) for end in (0, 1))
    radius = points.new_tensor([*(capsule[2] for capsule in CAPSULES), HEAD_M])
    head = (body.joints[:, HEAD_JOINT] + body.keypoints[:, HEAD_TOP])[:, None] / 2
    start = torch.cat((body.joints[:, first], head), 1)  # [T, C, 3]
    step = torch.cat((body.joints[:, second], head), 1) - start
    away = points.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    ray = points / away
    # Across a ray, a segment is a segment: its point nearest to the ray is where it is nearest to
    # the origin there.
    along, step_along = (torch.einsum("tkc,tsc->tks", ray, value) for value in (start, step))
    start2, step2, mixed = (
        (a * b).sum(-1)[:, None] - along_a * along_b
        for a, b, along_a, along_b in (
            (start, start, along, along),
            (step, step, step_along, step_along),
            (start, step, along, step_along),
        )
    )
    share = (-mixed / step2.clamp_min(1e-9)).clamp(0, 1)
    inside = radius.square() - (start2 + 2 * share * mixed + share.square() * step2)
    front = along + share * step_along - inside.clamp_min(0).sqrt()
    return torch.where((inside > 0) & (front > 0), away - front, UNCOVERED_M).amax(-1)


def find_hidden_keypoints(
    people: Mapping[int, FittedBody], identity: int, camera: Camera
) -> HiddenKeypoints:
    """Return the evidence that other people of a shot hide the keypoints of one person."""
    person = people[identity]
    covered = torch.zeros_like(person.keypoints.confidence)
    occupied = torch.zeros_like(covered)
    for number, neighbour in people.items():
        if number == identity:
            continue
        _, own_shared, neighbour_shared = np.intersect1d(
            person.frame, neighbour.frame, return_indices=True
        )
        for block in blocks(len(own_shared)):
            own = own_shared[block]
            front = neighbour_shared[block]
            candidates = _may_hide(person.rows(own), neighbour.rows(front), camera)
            if candidates.any():
                own = own[candidates]
                front = front[candidates]
                hidden = _hidden_by(person.rows(own), neighbour.rows(front), camera)
                covered[own] = torch.maximum(covered[own], hidden.covered)
                occupied[own] = torch.maximum(occupied[own], hidden.taken)
            release_scratch()
    return HiddenKeypoints(covered, occupied)


def _hidden_by(own: FittedBody, neighbour: FittedBody, camera: Camera) -> HiddenKeypoints:
    """Return the evidence that one person hides another in the same T frames."""
    depth_m = (own.body.keypoints[..., 2] - neighbour.body.keypoints[..., 2]).mean(1, keepdim=True)
    behind = torch.sigmoid(depth_m / BEHIND_M) * torch.exp(-depth_m.clamp_min(0) / FADE_M)
    covered = torch.sigmoid(surface_in_front_m(own.body.keypoints, neighbour.body) / SURFACE_M - 1)
    own_xy_px = own.keypoints.xy_px
    neighbour_xy_px = camera.project(neighbour.body.keypoints)
    near = (
        torch.stack(
            [own_xy_px - neighbour_xy_px, own_xy_px - neighbour_xy_px[:, list(HALPE26.flip_order)]]
        )
        .square()
        .sum(-1)
        .amin(0)
    )
    area = keypoint_area(own.keypoints, own.keypoints.confidence * own.keypoints.presence > 0)
    occupied = torch.exp(-near / (2 * TAKEN_L**2 * l_squared(area, HALPE26)))
    return HiddenKeypoints(behind * covered, behind * occupied.nan_to_num(0.0))


def _may_hide(own: FittedBody, neighbour: FittedBody, camera: Camera) -> np.ndarray:
    """Return the frames [T] in which both are present, the other is in front or nearly so, and they
    overlap in the image.
    """
    own_px = camera.project(own.body.keypoints)
    neighbour_px = camera.project(neighbour.body.keypoints)
    low = neighbour_px.amin(1)
    high = neighbour_px.amax(1)
    margin = (high - low).amax(-1, keepdim=True) / 4
    # a body behind the camera has NaN here, which overlaps with nothing
    overlap = ((own_px.amax(1) > low - margin) & (own_px.amin(1) < high + margin)).all(-1)
    nearer = (
        own.body.keypoints[..., 2].mean(1) > neighbour.body.keypoints[..., 2].mean(1) - 5 * BEHIND_M
    )
    return own.present & neighbour.present & (overlap & nearer).numpy()
