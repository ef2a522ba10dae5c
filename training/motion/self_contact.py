"""Make poses in which hands touch the body, each other or a common bar.

Captured poses hardly hold them. Arms, neck and spine of a captured pose are moved until two points
of the surface meet, with joints inside their limits and forearms outside trunk, head and thighs.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from eval3dpw.captured.motion import Motion
from fitting.body import Body
from fitting.body.rotations import rotation_matrices
from fitting.solver.terms.joint_limits import joint_ranges
from fitting.solver.unknowns import BODY_JOINTS
from training.motion.possible_poses import CAPSULES, are_limbs_apart
from training.motion.surface_points import HAND_PLACES, SIDES, SurfacePoints


@dataclass(frozen=True)
class ContactKind:
    """One kind of contact of a hand."""

    targets: tuple[str, ...]  # points of the hand's own side; "other ..": of the opposite side
    share: int  # of the poses
    both_hands: float = 0.0  # share of poses in which both hands do it
    gap_m: tuple[float, float] = (0.0, 0.015)  # between the two points


KINDS = {
    "face": ContactKind(("mouth", "chin", "nose", "forehead", "cheek", "eye"), 5, 0.15),
    "head": ContactKind(("ear", "crown", "nape"), 3, 0.4),
    "hip": ContactKind(("hip", "pocket", "lower back"), 4, 0.5),
    "knee": ContactKind(("knee", "thigh"), 4, 0.5),
    "trunk": ContactKind(("chest", "belly"), 2, 0.3),
    "other arm": ContactKind(
        ("other elbow", "other forearm", "other upper arm", "other shoulder"), 3, 0.5
    ),
    "hands together": ContactKind(("other palm",), 4, gap_m=(0.0, 0.12)),
    "bar": ContactKind(("other palm",), 4, gap_m=(0.15, 0.7)),
}
MOVED = (3, 6, 9, 12, 15, 13, 14, 16, 17, 18, 19, 20, 21)
STIFF = (8.0, 8.0, 8.0, 4.0, 4.0, 2.0, 2.0, 0.3, 0.3, 0.3, 0.3, 0.6, 0.6)  # of MOVED
STEPS = 140
RATE = 0.07
BATCH = 512
DISTANCE_WEIGHT = 3000.0
LIMIT_WEIGHT = 40.0
DEPTH_WEIGHT = 1500.0
ACCEPTED_M = 0.02  # largest remaining error of the gap
BEYOND_DEG = 8.0  # a joint may be outside its range
FPS = 30.0
MOST_ROUNDS = 60


@dataclass(frozen=True)
class ContactProblem:
    """Pairs of surface points that shall meet in N poses, two pairs in each."""

    first: Tensor  # [N, 2] numbers of surface points
    second: Tensor  # [N, 2]
    gap_m: Tensor  # [N, 2] distance that the two shall have
    counts: Tensor  # [N, 2] 1, or 0 where there is no second pair


def draw_problem(
    kind: ContactKind, count: int, surface: SurfacePoints, rng: np.random.Generator
) -> ContactProblem:
    """Draw which points of the hands touch which points of the body."""
    first = np.zeros((count, 2), np.int64)
    second = np.zeros((count, 2), np.int64)
    counts = np.ones((count, 2), np.float32)
    for row in range(count):
        start = int(rng.integers(2))
        place = str(rng.choice(HAND_PLACES))
        target = str(rng.choice(kind.targets))
        counts[row, 1] = rng.random() < kind.both_hands
        for pair, side in enumerate((SIDES[start], SIDES[1 - start])):
            opposite = SIDES[1 - SIDES.index(side)]
            on_other = target.startswith("other ")
            place = "palm" if target == "other palm" else place
            first[row, pair] = surface.number(f"{side} {place}")
            target_side = opposite if on_other else side
            second[row, pair] = surface.number(f"{target_side} {target.removeprefix('other ')}")
    gap = rng.uniform(*kind.gap_m, (count, 1)).repeat(2, 1).astype(np.float32)
    return ContactProblem(*(torch.from_numpy(array) for array in (first, second, gap, counts)))


def solve(
    captured: Tensor, problem: ContactProblem, surface: SurfacePoints, moved_rad: Tensor
) -> tuple[Tensor, Tensor]:
    """Return poses [N, 24, 3] in contact, and [N] bool: people can take them.

    moved_rad [N, J, 3]: where the rotations of MOVED start, relative to the captured pose.
    """
    body = surface.body
    moved = moved_rad.clone().requires_grad_()
    optimiser = torch.optim.Adam([moved], lr=RATE)
    stiff = torch.tensor(STIFF)[:, None]
    for _ in range(STEPS):
        pose = _moved_pose(captured, moved)
        misses, joints = _misses_m(pose, problem, surface)
        cost = DISTANCE_WEIGHT * misses.square().sum() + (stiff * moved.square()).sum()
        cost = cost + LIMIT_WEIGHT * _beyond_limits(pose).square().sum()
        cost = cost + DEPTH_WEIGHT * _forearm_depth_m(joints).square().sum()
        optimiser.zero_grad()
        torch.autograd.backward(cost)
        optimiser.step()
    with torch.no_grad():
        pose = _moved_pose(captured, moved)
        misses, joints = _misses_m(pose, problem, surface)
        within = _beyond_limits(pose, np.deg2rad(BEYOND_DEG)).amax(1) == 0
        meets = misses.abs().amax(1) < ACCEPTED_M
        good = meets & within & are_limbs_apart(body(pose).joints)
    return pose.detach(), good


def _moved_pose(captured: Tensor, moved: Tensor) -> Tensor:
    """Add rotations [N, J, 3] of MOVED to captured poses."""
    pose = captured.clone()
    pose[:, list(MOVED)] = captured[:, list(MOVED)] + moved
    return pose


def _misses_m(
    pose: Tensor, problem: ContactProblem, surface: SurfacePoints
) -> tuple[Tensor, Tensor]:
    """Return how far the pairs [N, 2] are from their gap, and the joints [N, 24, 3]."""
    shape = torch.zeros(len(pose), surface.body.shape_size)
    placement = surface.body.placement(rotation_matrices(pose), shape)
    points = surface.place(placement, shape)
    row = torch.arange(len(pose))[:, None]
    apart = (points[row, problem.first] - points[row, problem.second]).square().sum(-1)
    return ((apart + 1e-8).sqrt() - problem.gap_m) * problem.counts, placement.joints


def _beyond_limits(pose: Tensor, slack_rad: float = 0.0) -> Tensor:
    """Return how far [N, 57] angles are outside their ranges, in radians."""
    low, high = joint_ranges()
    angles = pose[:, BODY_JOINTS].flatten(1)
    return (low - slack_rad - angles).clamp(min=0) + (angles - high - slack_rad).clamp(min=0)


def _forearm_depth_m(joints_m: Tensor) -> Tensor:
    """Return how deep [N, ..] points of forearms and wrists are inside trunk, head and thighs."""
    depths = []
    along = torch.linspace(0, 1, 9)[:, None]
    for name in ("trunk", "chest", "head", "left thigh", "right thigh"):
        first, last, radius = CAPSULES[name]
        axis = torch.lerp(joints_m[:, first, None], joints_m[:, last, None], along)
        for elbow, wrist in ((18, 20), (19, 21)):
            middle = (joints_m[:, elbow] + joints_m[:, wrist]) / 2
            points = torch.stack((middle, joints_m[:, wrist]), 1)
            nearest = (torch.cdist(points, axis) + 1e-6).amin(2)
            depths.append((radius + 0.02 - nearest).clamp(min=0))
    return torch.cat(depths, 1)


def contact_motion(captured: Tensor, body: Body, count: int, seed: int) -> Motion:
    """Make clips of one frame with self-contact from captured poses [N, 24, 3], y up."""
    rng = np.random.default_rng([seed, 7])
    surface = SurfacePoints(body)
    total = sum(kind.share for kind in KINDS.values())
    poses = []
    names: list[str] = []
    for name, kind in KINDS.items():
        wanted = max(1, count * kind.share // total)
        solved = _solve_many(kind, captured, surface, wanted, rng)
        poses.append(solved)
        names += [name] * len(solved)
    pose = torch.cat(poses)
    joints = torch.cat([body(part).joints for part in pose.split(8192)])
    root = torch.zeros(len(pose), 3)
    root[:, 1] = joints[:, 0, 1] - joints[..., 1].amin(1)
    clips = tuple(f"1_{number}" for number in range(len(pose)))
    return Motion(pose, root, np.arange(len(pose) + 1), clips, FPS, tuple(names))


def _solve_many(
    kind: ContactKind,
    captured: Tensor,
    surface: SurfacePoints,
    wanted: int,
    rng: np.random.Generator,
) -> Tensor:
    """Solve poses of one kind until there are enough that people can take."""
    accepted: list[Tensor] = []
    for _ in range(MOST_ROUNDS):
        tries = min(BATCH, 4 * wanted)
        rows = torch.from_numpy(rng.integers(len(captured), size=tries))
        problem = draw_problem(kind, tries, surface, rng)
        start = 0.1 * torch.from_numpy(rng.normal(size=(tries, len(MOVED), 3))).float()
        pose, good = solve(captured[rows], problem, surface, start)
        accepted.append(pose[good])
        if sum(map(len, accepted)) >= wanted:
            return torch.cat(accepted)[:wanted]
    raise RuntimeError(f"contact with {kind.targets}: too few of {wanted} poses are possible")
