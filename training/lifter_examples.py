"""What the lifter learns from: captured motion on random bodies, seen by random cameras, read with
errors.

Cameras are of any height, pitch, distance and focal length. COCO's annotators, and so the networks
trained on them, mark a hip above its joint, a shoulder on top of it, an ear before its canal: each
difference is attached to one bone.

What a 2D network does to keypoints: errors of the size it states, and now and then something worse.

Errors are drawn from the very distribution that is stated: a mixture of three Gaussians (a narrow
core and heavy tails) whose expected OKS is the confidence, or the one Gaussian that a confidence
implies, sigma^2 = l^2 (1 - s) / s. Part of an error stays for a while, part changes with each
frame; a few are larger than stated. Keypoints go missing one by one, limb by limb, below a line
(cropped bodies, desks) or all at once (frames without a detection), feet and neck may be unknown to
the network at all, and left and right trade places.

The rates below were set by hand, neither measured nor tuned; bench/lifter.py measures the lifter
trained with them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.kinematics import MIRROR, about_axis, quaternion_to_matrix, rotate
from fitting.camera import NEAREST_KEYPOINT_M
from fitting.init.lifter import SHAPE, SLOW_STEP_S, WINDOW, Inputs, Observation, inputs
from pose2d.base.arrays import Array, check_arrays, read_npz
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import AREA_OF_BOX, l_squared
from training.motion_bank import MOTION_SHARES, SEATED, Bank, mirrored, varied, windows

COUNT = HALPE26.size
_LEFT_FOOT = (20, 22, 24)
_RIGHT_FOOT = (21, 23, 25)
_HEAD = (0, 1, 2, 3, 4, 17)
_FEET = (*_LEFT_FOOT, *_RIGHT_FOOT)
LIMBS = (
    (7, 9),
    (8, 10),
    (13, 15, *_LEFT_FOOT),
    (14, 16, *_RIGHT_FOOT),
    (5, 7, 9),
    (6, 8, 10),
    _HEAD,
    (13, 14, 15, 16, *_FEET),
    (11, 12, 13, 14, 15, 16, 19, *_FEET),
    _LEFT_FOOT,
    _RIGHT_FOOT,
)
SWAPS = (
    tuple(range(COUNT)),
    (5, 6, 7, 8, 9, 10),
    (11, 12, 13, 14, 15, 16, *_FEET),
    (13, 14, 15, 16, *_FEET),
    (15, 16, *_FEET),
    (9, 10),
)
LEAST_INSIDE = 4  # keypoints in the image; nobody is found in it who shows fewer
HARD_TO_PLACE = (*_HEAD, 18)  # OKS asks for much more exactness of a face and a neck
MIXTURES = 0.65  # share of windows whose errors are stated as mixtures
ONLY_COCO = 0.3  # share of windows with COCO's 17 keypoints alone


class Random:
    """Random numbers of a generator, of one shape unless another is given."""

    def __init__(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> None:
        self.generator, self.shape = generator, shape

    def even(self, low: float, high: float, shape: tuple[int, ...] | None = None) -> Tensor:
        return low + (high - low) * torch.rand(
            self.shape if shape is None else shape, generator=self.generator
        )

    def scale(self, low: float, high: float) -> Tensor:
        """Even in the logarithm."""
        return self.even(math.log(low), math.log(high)).exp()

    def normal(self, shape: tuple[int, ...] | None = None) -> Tensor:
        return torch.randn(self.shape if shape is None else shape, generator=self.generator)

    def chance(self, share: float | Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        return self.even(0, 1, shape) < share


def observe(
    rays: Tensor, marked: Tensor, half: Tensor, seated: Tensor, generator: torch.Generator
) -> Observation:
    """Exact directions [B, T, 26, 2] in images of half size [B, 2] -> what a 2D network might give
    for them. marked: [B, T], passed on. seated: [B] bool, people who are likely to be behind a
    table."""
    count, frames = rays.shape[:2]
    size = (count, frames, COUNT)
    draw = Random(generator)
    even = draw.even
    normal = draw.normal
    chance = draw.chance
    inside = (rays.abs() <= half[:, None, None]).all(-1)
    held = torch.maximum(torch.minimum(rays, half[:, None, None]), -half[:, None, None])
    low = held.amin(2)
    high = held.amax(2)
    sides = (high - low).clamp(min=1e-3)
    area = torch.maximum(AREA_OF_BOX * sides.prod(-1), AREA_OF_BOX * sides.amax(-1) ** 2 / 4)
    l2 = l_squared(area, HALPE26)

    # Confidence: a clear or a hard image, good and bad keypoints, and a little of each frame.
    logit = even(0.3, 3.8, (count, 1, 1)) + 0.6 * normal((count, 1, COUNT)) + 0.5 * normal(size)
    logit = logit + 3 * chance(0.1, (count, 1, 1))
    logit[..., HARD_TO_PLACE] -= even(0.0, 1.0, (count, 1, 1))
    confidence = logit.sigmoid()
    presence = even(0.85, 1.0, size)

    # Left and right trade places, for a part of the window; the network does not always know.
    swapped = _members(SWAPS)[torch.randint(len(SWAPS), (count,), generator=generator)][:, None]
    swapped = swapped & _a_while(count, frames, 0.12, generator)[..., None]
    exact = torch.where(swapped[..., None], held[:, :, HALPE26.flip_order], held)
    lowered = swapped & chance(0.6, (count, 1, 1))
    confidence = torch.where(lowered, confidence * even(0.2, 0.8, size), confidence)

    # Missing: one by one, limb by limb, beyond the image or a line across the body.
    rate = torch.where(chance(0.45, (count, 1, 1)), torch.zeros(()), even(0.0, 0.5, (count, 1, 1)))
    gone = chance(0.6 * rate, (count, 1, COUNT)) | chance(0.4 * rate, size)
    hidden = _members(LIMBS)[torch.randint(len(LIMBS), (count,), generator=generator)][:, None]
    gone |= hidden & _a_while(count, frames, 0.15, generator)[..., None]
    # In some windows nothing below (seldom: beside) a line is in view; who sits is behind a table
    # more often.
    at = low + (0.2 + 0.7 * torch.rand(count, 1, 2, generator=generator)) * (high - low)
    line = torch.where(seated[:, None], torch.tensor([0.03, 0.4]), torch.tensor([0.03, 0.08]))
    cut = chance(line[:, None], (count, 1, 2))
    gone |= ~inside | ((held > at.mean(1, keepdim=True)[:, :, None]) & cut[:, :, None]).any(-1)
    gone |= _a_while(count, frames, 0.1, generator, longest=0.4)[..., None]
    left = inside.sum(-1, keepdim=True) < LEAST_INSIDE
    nothing = gone & chance(0.5, (count, 1, 1)) | left
    unknown = torch.arange(COUNT) >= COCO17.size
    nothing |= unknown & chance(ONLY_COCO, (count, 1, 1))
    gone |= nothing
    presence = torch.where(gone, even(0.0, 0.2, size), presence) * ~nothing
    confidence = torch.where(gone & ~nothing, confidence * even(0.05, 0.6, size), confidence).clamp(
        0.01, 0.999
    )

    # Whether a keypoint is in the core or in a tail of its distribution lasts as its error does.
    share = even(0.0, 0.9, (count,))
    memory = even(0.6, 0.99, (count,))
    weight, sigma = stated_mixtures(confidence, chance(MIXTURES, (count, 1, 1)), generator)
    drawn = _lasting(normal(size), normal(size), share, memory)
    own = drawn_sigma(weight, sigma, drawn) * l2.sqrt()
    error = _lasting(normal((*size, 2)), normal((*size, 2)), share, memory)
    error = error * torch.where(chance(0.04, size), even(1.5, 4.0, size), torch.ones(()))[..., None]
    astray = chance(0.02, size)[..., None]
    anywhere = low[:, :, None] + torch.rand(*size, 2, generator=generator) * sides[:, :, None]
    rays = torch.where(astray, anywhere, exact + error * own[..., None])
    edges = torch.cat((-half, half), -1)[:, None].expand(count, frames, 4)
    return Observation(
        rays, weight, sigma * l2.sqrt()[..., None], confidence, presence, edges, marked
    )


def _members(groups: tuple[tuple[int, ...], ...]) -> Tensor:
    """Which keypoints belong to each group, [G, 26] bool."""
    members = torch.zeros(len(groups), COUNT, dtype=torch.bool)
    for number, points in enumerate(groups):
        members[number, list(points)] = True
    return members


def _a_while(
    count: int, frames: int, share: float, generator: torch.Generator, longest: float = 1.0
) -> Tensor:
    """In that share of the windows a stretch of frames, up to `longest` of the window: [B, T]."""
    length = torch.rand(count, 1, generator=generator) * frames * longest + 1
    first = torch.rand(count, 1, generator=generator) * (frames + length) - length
    frame = torch.arange(frames)
    return (
        (frame >= first)
        & (frame < first + length)
        & (torch.rand(count, 1, generator=generator) < share)
    )


def _lasting(slow: Tensor, quick: Tensor, share: Tensor, memory: Tensor) -> Tensor:
    """Unit noise [B, T, ...] of which a share [B] of the variance fades by `memory` [B] a frame."""
    frames = slow.shape[1]
    age = torch.arange(frames)[:, None] - torch.arange(frames)
    mix = torch.where(age >= 0, memory[:, None, None] ** age.clamp(min=0), torch.zeros(()))
    fresh = (1 - memory.square()).sqrt()[:, None].repeat(1, frames)
    fresh[:, 0] = 1
    slow = torch.einsum("bij,bj,bj...->bi...", mix, fresh, slow)
    part = share.view(-1, *[1] * (slow.ndim - 1))
    return part.sqrt() * slow + (1 - part).sqrt() * quick


# core, ordinary, plainly wrong; as a trained head's are
LOG_SIGMAS = (-1.5, -0.3, 1.2)
LOG_SIGMA_SPREAD = 0.3


def stated_mixtures(
    confidence: Tensor, mixed: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Weights and sigmas [..., 3], in units of l, with the expected OKS `confidence` [...]; not
    mixed: one Gaussian. sum_m w_m / (1 + sigma_m^2) = s fixes the core's weight once the sigmas and
    the rest's share are drawn."""
    log_sigma = torch.tensor(LOG_SIGMAS) + LOG_SIGMA_SPREAD * torch.randn(
        *confidence.shape, 3, generator=generator
    )
    sigma = log_sigma.exp()
    one = (1 / confidence - 1).sqrt()  # of the one Gaussian
    sigma[..., 0] = torch.minimum(sigma[..., 0], 0.7 * one)
    oks = 1 / (1 + sigma.square())
    ordinary = torch.rand(confidence.shape, generator=generator).sqrt()
    rest = ordinary * oks[..., 1] + (1 - ordinary) * oks[..., 2]
    core = (1 - (oks[..., 0] - confidence) / (oks[..., 0] - rest).clamp(min=1e-3)).clamp(0.02, 0.98)
    weight = torch.stack((core, (1 - core) * ordinary, (1 - core) * (1 - ordinary)), -1)
    plain = torch.tensor([1.0, 0.0, 0.0])
    return torch.where(mixed[..., None], weight, plain), torch.where(
        mixed[..., None], sigma, one[..., None]
    )


def drawn_sigma(weight: Tensor, sigma: Tensor, normal: Tensor) -> Tensor:
    """The sigma [...] of the component that standard normal numbers [...] pick from mixtures [...,
    M].
    """
    place = torch.special.ndtr(normal)[..., None]
    component = (place > weight.cumsum(-1)[..., :-1]).sum(-1, keepdim=True)
    return sigma.gather(-1, component).squeeze(-1)


STANDING_M, PELVIS_M = 1.75, 0.95  # how tall, and how high above the floor, people roughly are
FOCAL = (0.55, 2.5)  # of the image's diagonal, as far as FILL allows
FILL = (0.15, 1.2)  # of the image's height
# share of close-ups of the upper body, and how much they would fill
CLOSE = 0.15
CLOSE_FILL = (1.2, 3.0)
DISTANCE_M = (1.4, 12.0)
ASPECTS = (16 / 9, 16 / 9, 4 / 3, 1.0, 3 / 4, 9 / 16)


class Views(NamedTuple):
    """One camera for each of B windows."""

    turn: Tensor  # [B, 3, 3] from the world, y up, to the camera
    target_m: Tensor  # [B, 3] where the person's pelvis is on average, in the camera frame
    half: Tensor  # [B, 2] half width and height of the image on the plane z = 1


def views(count: int, generator: torch.Generator) -> Views:
    draw = Random(generator, (count,))
    even = draw.even
    scale = draw.scale
    chance = draw.chance
    aspect = torch.tensor(ASPECTS)[torch.randint(len(ASPECTS), (count,), generator=generator)]
    image = (
        torch.stack((aspect, torch.ones(count)), -1) / (1 + aspect.square()).sqrt()[:, None]
    )  # of its diagonal
    distance = scale(*DISTANCE_M)
    whole = (
        image[:, 1] * distance / STANDING_M
    )  # the focal length at which a person fills the image's height
    close = chance(CLOSE)
    focal = torch.minimum(torch.maximum(scale(*FOCAL), FILL[0] * whole), FILL[1] * whole)
    focal = torch.where(close, scale(*CLOSE_FILL) * whole, focal)
    half = image / (2 * focal)[:, None]
    free = half - torch.stack((0.2 / distance, 0.45 * STANDING_M / distance), -1)
    place = torch.stack((even(-1, 1), even(-1, 1)), -1) * torch.maximum(free, 0.1 * half)
    low = (
        half[:, 1] * even(0.2, 0.8) + 0.15 * STANDING_M / distance
    )  # the pelvis is near the image's lower edge
    place[:, 1] = torch.where(close, low, place[:, 1])

    # Either the camera's height says how far it looks down at a person there, or the pitch is
    # anything.
    height = torch.where(chance(0.15), even(2.5, 5.0), even(0.3, 2.5))
    elevation = torch.atan2(PELVIS_M - height, distance)
    pitch = torch.where(chance(0.5), even(-0.25, 0.55), even(-0.52, 1.05))
    down = torch.where(chance(0.6), -(elevation + place[:, 1].atan()), pitch).clamp(-0.7, 1.1)
    roll = torch.where(
        chance(0.12), even(-0.52, 0.52), 0.04 * torch.randn(count, generator=generator)
    )
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
    turn = about_axis(2, roll) @ about_axis(0, down) @ flip @ about_axis(1, even(-math.pi, math.pi))
    target = torch.cat((place, torch.ones(count, 1)), -1) * distance[:, None]
    return Views(turn, target, half)


# Keypoint -> the bone that carries the difference, and millimetres along its axes at rest: x to the
# body's left, y up, z to the front. The right side is the mirror image. Between those of RTMPose-s
# (bench/keypoint_offsets.py) and of MoveNet; MARKS_SPREAD_M covers their difference.
_SHIFT_MM = {
    "nose": (15, (0, 17, -7)),
    "left_eye": (15, (-1, 4, 3)),
    "left_ear": (15, (2, 2, 13)),
    "left_shoulder": (9, (-5, 9, -8)),
    "left_elbow": (16, (-2, 4, 8)),
    "left_wrist": (18, (5, 0, 1)),
    "left_hip": (0, (-4, 20, 19)),
    "left_knee": (1, (0, 12, -3)),
    "left_ankle": (4, (4, 15, 3)),
    "head_top": (15, (0, -1, -1)),
    "neck": (12, (0, -1, 12)),
    "pelvis": (0, (0, 11, 19)),
    "left_big_toe": (10, (2, 10, -1)),
    "left_small_toe": (10, (0, 9, -1)),
    "left_heel": (7, (1, -1, -1)),
}
MARKS_SPREAD_M = 0.008  # standard deviation per axis


_MARKS = [
    (name.startswith("right"), *_SHIFT_MM[name.replace("right", "left")])
    for name in HALPE26.keypoints
]
_BONES = [MIRROR[bone] if right else bone for right, bone, _ in _MARKS]
_SHIFTS_M = (
    torch.tensor(
        [(-x if right else x, y, z) for right, _, (x, y, z) in _MARKS], dtype=torch.float32
    )
    / 1000
)


def marks(turned: Tensor, spread_m: Tensor) -> Tensor:
    """From the body's keypoints to where they are marked, [B, T, 26, 3] metres, of turned bones [B,
    T, 24, 3, 3]. spread_m: [B, 26, 3] what each person's marks differ by."""
    return rotate(turned[..., _BONES, :, :], _SHIFTS_M + spread_m[:, None])


STEP_S = (0.06, 0.16)  # between frames of a window; now and then up to SLOW_STEP_S
SPEED = (0.75, 1.35)  # at which the motion is played
MARKED = 0.6  # share of windows whose keypoints are where people mark them
NEAREST_M = 0.9  # no pelvis comes closer to the camera
# So many frames attend to each other, in such shares of windows: single frames are learned too.
GROUPS = (1, 3, WINDOW)
GROUP_SHARES = (0.25, 0.1, 0.65)


@dataclass(frozen=True)
class Examples:
    """B windows of T frames; truth in the camera turned towards the person (`inputs.Box`)."""

    inputs: Inputs
    time_s: Tensor  # [B, T]
    attends: Tensor  # [B, T, T]
    counts: Tensor  # [B, T] weight of a frame in the loss
    rotation: Tensor  # [B, T, 24, 3, 3]
    shape: Tensor  # [B, 10]
    pelvis_m: Tensor  # [B, T, 3]
    joints_m: Tensor  # [B, T, 24, 3] from the pelvis
    keypoints_m: Tensor  # [B, T, 26, 3] from the pelvis


def examples(banks: list[Bank], body: Body, count: int, generator: torch.Generator) -> Examples:
    draw = Random(generator, (count, 1))
    even = draw.even
    step = torch.where(draw.chance(0.1), even(STEP_S[1], SLOW_STEP_S), even(*STEP_S))
    time_s = torch.arange(WINDOW) * step
    motion = varied(
        windows(banks, list(MOTION_SHARES[: len(banks)]), time_s * even(*SPEED), generator),
        generator,
    )
    # Everybody has bones that the lifter's ten shape numbers cannot tell.
    whole_shape = torch.randn(count, body.shape_size, generator=generator).clamp(-2.5, 2.5)
    view = views(count, generator)

    rotation = quaternion_to_matrix(motion.turn)
    rotation[:, :, 0] = torch.einsum("bij,btjk->btik", view.turn, rotation[:, :, 0])
    travel = torch.einsum(
        "bij,btj->bti", view.turn, motion.root_m - motion.root_m.mean(1, keepdim=True)
    )
    pelvis = travel + view.target_m[:, None]
    pelvis[..., 2] += (NEAREST_M - pelvis[..., 2].amin(1, keepdim=True)).clamp(min=0)
    truth = placed(body, rotation, whole_shape[:, None].expand(-1, WINDOW, -1))
    marked = draw.chance(MARKED).expand(count, WINDOW)
    spread_m = MARKS_SPREAD_M * torch.randn(count, HALPE26.size, 3, generator=generator)
    seen_m = (
        truth.keypoints
        + pelvis[:, :, None]
        + marked[..., None, None] * marks(truth.turned, spread_m)
    )
    exact = seen_m[..., :2] / seen_m[..., 2:].clamp(min=NEAREST_KEYPOINT_M)
    seen = observe(exact, marked.float(), view.half, motion.kind == SEATED, generator)
    which = torch.multinomial(
        torch.tensor(GROUP_SHARES), count, replacement=True, generator=generator
    )
    member = torch.arange(WINDOW) // torch.tensor(GROUPS)[which][:, None]
    attends = (member[:, :, None] == member[:, None]) & motion.inside[:, None] | torch.eye(
        WINDOW, dtype=torch.bool
    )
    return _examples(seen, time_s, attends, motion.inside, rotation, whole_shape, pelvis, truth)


def _examples(
    seen: Observation,
    time_s: Tensor,
    attends: Tensor,
    inside: Tensor,
    rotation: Tensor,
    shape: Tensor,
    pelvis_m: Tensor,
    truth: "Placed",
) -> Examples:
    """Truth [B, T, ...] in the real camera -> in the one turned towards the person. inside: [B, T]
    what counts.
    """
    given = inputs(seen)
    to_turned = given.box.to_camera.mT
    rotation = torch.cat(((to_turned @ rotation[:, :, 0])[:, :, None], rotation[:, :, 1:]), 2)
    pelvis = torch.einsum("btij,btj->bti", to_turned, pelvis_m)
    ahead = (
        pelvis[..., 2] > NEAREST_M / 2
    )  # who has left the image may be anywhere: nothing to learn there
    pelvis[..., 2] = pelvis[..., 2].clamp(min=NEAREST_M / 2)
    counts = inside * ahead * torch.where(given.box.visible, 1.0, 0.3)
    points = (
        torch.einsum("btij,btkj->btki", to_turned, own) for own in (truth.joints, truth.keypoints)
    )
    return Examples(given, time_s, attends, counts, rotation, shape[:, :SHAPE], pelvis, *points)


class Crops(NamedTuple):
    """Single frames of N rendered people as the 2D network read them, errors and all;
    training/rendered_crops.py.
    """

    seen: Observation  # [N, ...] without a time axis
    turn: Tensor  # [N, 24, 4] unit quaternions (x, y, z, w), the root's in the camera
    shape: Tensor  # [N, S]
    pelvis_m: Tensor  # [N, 3] in the camera


_CROPS = {
    "rays": Array("f", ("crops", COUNT, 2), finite=True),
    "error_weight": Array("f", ("crops", COUNT, "parts")),
    "error_sigma": Array("f", ("crops", COUNT, "parts")),
    "confidence": Array("f", ("crops", COUNT), low=0, high=1),
    "presence": Array("f", ("crops", COUNT), low=0, high=1),
    "edges": Array("f", ("crops", 4)),
    "marked": Array("f", ("crops",)),
    "turn": Array("f", ("crops", 24, 4)),
    "shape": Array("f", ("crops", "numbers")),
    "pelvis_m": Array("f", ("crops", 3)),
}


def load_crops(path: Path) -> Crops:
    arrays = read_npz(path, "Expected crops as training/rendered_crops.py writes them.", _CROPS)
    check_arrays(arrays, _CROPS, path, "crops of training/rendered_crops.py")
    columns = {name: torch.from_numpy(arrays[name]).float() for name in _CROPS}
    seen = Observation(*(columns.pop(name) for name in Observation._fields))
    return Crops(seen, **columns)


def crop_examples(crops: Crops, body: Body, count: int, generator: torch.Generator) -> Examples:
    """Crops drawn at random, each a window of one frame; half of them mirrored."""
    rows = torch.randint(len(crops.turn), (count,), generator=generator)
    flip = torch.rand(count, generator=generator) < 0.5

    def either(own: Tensor, other: Tensor) -> Tensor:
        return torch.where(flip.view(-1, *[1] * (own.ndim - 1)), other, own)

    seen = Observation(*(column[rows] for column in crops.seen))
    sides = HALPE26.flip_order
    other = Observation(
        seen.rays[:, sides] * torch.tensor([-1.0, 1.0]),
        seen.error_weight[:, sides],
        seen.error_sigma[:, sides],
        seen.confidence[:, sides],
        seen.presence[:, sides],
        seen.edges[:, [2, 1, 0, 3]] * torch.tensor([-1.0, 1.0, -1.0, 1.0]),
        seen.marked,
    )
    turn = crops.turn[rows]
    pelvis_m = crops.pelvis_m[rows]
    shape = crops.shape[rows]
    turn = either(turn, mirrored(turn))
    pelvis_m = either(pelvis_m, pelvis_m * torch.tensor([-1.0, 1.0, 1.0]))
    rotation = quaternion_to_matrix(turn)[:, None]
    alone = torch.ones(count, 1, dtype=torch.bool)
    return _examples(
        Observation(*(either(*both)[:, None] for both in zip(seen, other, strict=True))),
        torch.zeros(count, 1),
        alone[..., None],
        alone,
        rotation,
        shape,
        pelvis_m[:, None],
        placed(body, rotation, shape[:, None]),
    )


class Placed(NamedTuple):
    """A body by its pelvis, in metres."""

    joints: Tensor  # [..., 24, 3]
    keypoints: Tensor  # [..., 26, 3]
    turned: Tensor  # [..., 24, 3, 3] bones from their rest


def placed(body: Body, rotation: Tensor, shape: Tensor) -> Placed:
    """Of local rotations [..., 24, 3, 3] and shapes [..., S]."""
    leading = rotation.shape[:-3]
    whole = torch.nn.functional.pad(shape, (0, body.shape_size - shape.shape[-1])).flatten(0, -2)
    placement = body.placement(rotation.flatten(0, -4), whole)
    points = body.keypoint_terms.place(placement, body.keypoint_terms.moments(whole, None))
    root = placement.joints[:, :1]
    parts = placement.joints - root, points - root, placement.rotation
    return Placed(*(part.unflatten(0, leading) for part in parts))
