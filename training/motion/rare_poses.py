"""Make short clips of rare poses.

A drawn pose is kept if joints stay within their limits, limbs outside each other, what should rest
on the floor does, and the centre of mass is above it.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from eval3dpw.captured.collars import raise_collars
from eval3dpw.captured.motion import Motion
from fitting.body import Body
from fitting.body.rotations import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.solver.terms.joint_limits import joint_ranges
from fitting.solver.unknowns import BODY_JOINTS
from training.motion.joint_angles import build_poses
from training.motion.possible_poses import are_limbs_apart, is_balanced, lay_on_floor
from training.motion.rare_kinds import RARE, Draw, Kind, inverted, kneeling, lying

SHAKEN_DEG = 4.0  # standard deviation of a turn added to every joint
CLIP_FRAMES, FPS = 6, 5.0  # a second of slow change between a pose and one near it
NEAR = 0.15  # how far apart those two are, of each range
BEYOND_DEG = 8.0  # a joint may be outside its range
PLACES = 80  # more than any kind draws


def rare_motion(captured: Tensor, body: Body, clips: int, seed: int) -> Motion:
    """Make short clips of rare poses from captured ones [N, 24, 3], y up.

    Arms that are not drawn, and legs of people who reach, are captured.
    """
    generator = torch.Generator().manual_seed(seed)
    total = sum(kind.share for kind in RARE.values())
    poses = []
    names = []
    for name, kind in RARE.items():
        pairs = _draw_possible(kind, captured, body, max(1, clips * kind.share // total), generator)
        poses.append(pairs)
        names += [name] * len(pairs)
    ends = torch.cat(poses)  # [C, 2, 24, 3]
    turn = axis_angle_to_quaternion(ends)
    turn[:, 1] *= torch.where((turn[:, 0] * turn[:, 1]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    share = torch.linspace(0, 1, CLIP_FRAMES)[None, :, None, None]
    turn = normalize(torch.lerp(turn[:, :1], turn[:, 1:], share), dim=-1)
    pose = quaternion_to_axis_angle(turn).flatten(0, 1)
    pose = torch.cat([raise_collars(part, body) for part in pose.split(8192)])
    joints = torch.cat([body(part).joints for part in pose.split(8192)])
    root = torch.zeros(len(pose), 3)
    root[:, 1] = joints[:, 0, 1] - joints[..., 1].amin(1)
    start = np.arange(0, len(pose) + 1, CLIP_FRAMES)
    return Motion(
        pose, root, start, tuple(f"1_{number}" for number in range(len(names))), FPS, tuple(names)
    )


def _draw_possible(
    kind: Kind, captured: Tensor, body: Body, count_wanted: int, generator: torch.Generator
) -> Tensor:
    """Draw pairs of poses [count_wanted, 2, 24, 3] that people can take."""
    accepted: list[Tensor] = []
    count = 0
    tries = 4 * count_wanted
    low, high = joint_ranges()
    slack = np.deg2rad(BEYOND_DEG)
    for _ in range(40):
        place = torch.rand(tries, PLACES, generator=generator)
        moved = (place + NEAR * torch.randn(tries, PLACES, generator=generator)).clamp(0, 1)
        base = captured[torch.randint(len(captured), (tries,), generator=generator)]
        shake = np.deg2rad(SHAKEN_DEG) * torch.randn(tries, 24, 3, generator=generator)
        shake[:, [0, 10, 11, 22, 23]] = 0
        pair = []
        good = torch.ones(tries, dtype=torch.bool)
        for places in (place, moved):
            pose, lies = lay_on_floor(
                build_poses(kind.draw(Draw(places)), base) + shake, kind.rests, body
            )
            joints = body(raise_collars(pose, body)).joints
            angles = pose[:, BODY_JOINTS].flatten(1)
            within_limits = ((angles > low - slack) & (angles < high + slack)).all(1)
            good &= lies & within_limits & are_limbs_apart(joints)
            if kind.rests or kind.draw in (kneeling, inverted):
                good &= is_balanced(joints)
            trunk = joints[:, (0, 9) if kind.draw is lying else (0,), 1].amax(1)
            good &= trunk - joints[..., 1].amin(1) < kind.low_m
            pair.append(pose)
        accepted.append(torch.stack(pair, 1)[good])
        count += int(good.sum())
        if count >= count_wanted:
            return torch.cat(accepted)[:count_wanted]
    raise RuntimeError(f"{kind.draw.__name__}: only {count} of {count_wanted} poses are possible")
