"""Poses that people take and captures hardly hold: sitting, kneeling, on hands, lying, upside down,
reaching.

Each kind is drawn from ranges of joint angles, in the body's own frame: hips and shoulders by how
far the limb is swung forwards and out, knees and elbows by their bend; what rests on the floor then
says how the body lies on it. Poses are kept if joints stay within their limits, limbs outside each
other, what should rest on the floor does, and the centre of mass is above it. Palms that bear
weight have wrists bent back.

Angles in degrees. Forwards is positive for limbs and trunk; the left side's formulas serve the
right by mirroring."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from eval3dpw.captured.collars import with_raised_collars
from eval3dpw.captured.motion import Motion
from fitting.body import Body
from fitting.body.kinematics import (
    MIRROR,
    about_axis,
    axis_angle_to_quaternion,
    matrix_to_axis_angle,
    quaternion_to_axis_angle,
    rotate,
    rotation_matrices,
    shortest_turn,
)
from fitting.solver.terms.joint_limits import joint_ranges
from fitting.solver.unknowns import BODY_JOINTS

SHAKEN_DEG = 4.0  # standard deviation of a turn added to every joint
CLIP_FRAMES, FPS = 6, 5.0  # a second of slow change between a pose and one near it
NEAR = 0.15  # how far apart those two are, of each range
BEYOND_DEG = 8.0  # a joint may be outside its range
DEEP_M = 0.05  # limbs may be inside each other, as soft parts are
OFF_FLOOR_M = 0.06
TILTED_DEG = 35.0
OUT_OF_BALANCE_M = 0.08


class Draw:
    """Even numbers of N poses, always in the same order: a place between 0 and 1 for each call."""

    def __init__(self, places: Tensor) -> None:
        self.places, self.next = places, 0

    def __call__(self, low: float, high: float) -> Tensor:
        self.next += 1
        return low + (high - low) * self.places[:, self.next - 1]

    def pick(self, share: float) -> Tensor:
        return self(0, 1) < share


PLACES = 80  # more than any kind draws
Limb = TypeVar("Limb")


@dataclass(frozen=True)
class Leg:
    swing: Tensor  # [N] of the thigh forwards from the trunk's line
    out: Tensor
    bend: Tensor  # of the knee
    ankle: Tensor  # toes down is positive
    twist: Tensor  # of the thigh outwards


@dataclass(frozen=True)
class Arm:
    swing: Tensor  # [N] of the upper arm forwards from hanging
    out: Tensor
    bend: Tensor  # of the elbow
    twist: Tensor  # of the upper arm inwards
    pronation: Tensor  # of the forearm: 0 thumb forwards on a hanging arm
    wrist: Tensor  # bent back


@dataclass(frozen=True)
class Drawn:
    root_pitch: Tensor  # [N] forwards
    root_roll: Tensor  # [N] to the left
    spine: Tensor  # [N] forwards, all three together
    head: Tensor  # [N] forwards, with the neck
    head_turn: Tensor  # [N]
    legs: tuple[Leg, Leg]
    arms: tuple[Arm, Arm] | None  # None: as captured


def _free_arm(draw: Draw) -> Arm:
    raised = draw.pick(0.25)
    swing = torch.where(raised, draw(40, 170), draw(-15, 50))
    return Arm(swing, draw(0, 40), draw(0, 110), draw(-10, 40), draw(0, 60), draw(-15, 15))


def _bearing_arm(draw: Draw, swing: Tensor, bend: Tensor) -> Arm:
    """Palm on the floor, fingers forwards; swing: that takes the arm to the floor."""
    twist = draw(20, 70)
    return Arm(
        swing + draw(-10, 10), draw(-3, 22), bend, twist, 90 - twist, 84 - bend / 2 + draw(-10, 10)
    )


def _both(make: Callable[[], Limb]) -> tuple[Limb, Limb]:
    return make(), make()


def _one_of(first: Tensor, a: Arm, b: Arm) -> Arm:
    return Arm(
        *(torch.where(first, x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))
    )


def _flat(swing: Tensor, bend: Tensor, root: Tensor) -> Tensor:
    """The ankle that lays the sole onto a level floor."""
    return (swing - bend - root).clamp(-25, 45)


def sitting(draw: Draw) -> Drawn:
    root = draw(-15, 10)
    lean = draw(0, 40)

    def leg() -> Leg:
        swing = draw(65, 100) + root
        bend = torch.where(draw.pick(0.2), draw(10, 60), draw(65, 110))
        return Leg(swing, draw(-3, 25), bend, _flat(swing, bend, root) + draw(-8, 8), draw(-5, 15))

    def at_table() -> Arm:
        return Arm(draw(0, 50), draw(0, 25), draw(45, 110), draw(0, 50), draw(20, 80), draw(-5, 20))

    legs = _both(leg)
    return Drawn(
        root, draw(-4, 4), lean, draw(-10, 25) - lean / 2, draw(-35, 35), legs, _both(at_table)
    )


def floor_sitting(draw: Draw) -> Drawn:
    root = draw(-25, 5)
    lean = draw(10, 50)
    crossed = draw.pick(0.5)
    apart = draw(30, 48)
    turned = draw(45, 75)

    def leg() -> Leg:
        raised = torch.where(
            draw.pick(0.4), draw(-2, 6), draw(15, 60)
        )  # of the thigh over the floor
        swing = torch.where(crossed, draw(85, 100), 90 + raised) + root
        bend = torch.where(crossed, draw(105, 135), (2 * raised + draw(-8, 8)).clamp(min=0))
        out = torch.where(crossed, apart, draw(0, 15))
        twist = torch.where(crossed, turned, draw(0, 15))
        return Leg(swing, out + draw(-4, 4), bend, draw(0, 35), twist)

    head = draw(-10, 20) - lean / 2
    return Drawn(
        root, draw(-3, 3), lean, head, draw(-30, 30), _both(leg), _both(lambda: _free_arm(draw))
    )


def kneeling(draw: Draw) -> Drawn:
    root = draw(-5, 20)
    half = draw.pick(0.4)
    heels = draw.pick(0.3) & ~half

    def leg(up: Tensor) -> Leg:
        swing = torch.where(heels, draw(60, 95), root + draw(-8, 12))
        bend = torch.where(heels, draw(135, 150), 90 + swing - root)
        ankle = torch.where(draw.pick(0.5), draw(35, 58), draw(-25, 0))
        front = draw(75, 105) + root
        shin = draw(70, 105)
        swing = torch.where(up, front, swing)
        bend = torch.where(up, shin, bend)
        return Leg(
            swing,
            draw(-2, 14),
            bend,
            torch.where(up, _flat(front, shin, root), ankle),
            draw(-5, 12),
        )

    legs = leg(half), leg(torch.zeros_like(half))
    lean = draw(0, 25)
    return Drawn(
        root,
        draw(-4, 4),
        lean,
        draw(-15, 25) - lean / 2,
        draw(-30, 30),
        legs,
        _both(lambda: _free_arm(draw)),
    )


def all_fours(draw: Draw) -> Drawn:
    root = draw(72, 105)
    curve = draw(-20, 25)

    def leg() -> Leg:
        swing = root + draw(-22, 18)
        out = draw(-2, 12)
        bend = 90 + swing - root + draw(-6, 6)
        ankle = torch.where(draw.pick(0.6), draw(35, 58), draw(-25, 0))
        return Leg(swing, out, bend, ankle, draw(-5, 5))

    arms = _both(lambda: _bearing_arm(draw, root + curve, draw(0, 20)))
    return Drawn(root, draw(-3, 3), curve, draw(-45, 15), draw(-25, 25), _both(leg), arms)


def plank(draw: Draw) -> Drawn:
    root = draw(68, 90)
    curve = draw(-12, 12)
    low = draw.pick(0.35)
    bend = draw(0, 80)

    def leg() -> Leg:
        return Leg(draw(-6, 8), draw(-2, 8), draw(0, 10), draw(-25, 5), draw(-4, 4))

    def arm() -> Arm:
        push = _bearing_arm(draw, root + curve - 0.55 * bend, bend)
        elbows = Arm(
            root + curve + draw(-8, 8),
            draw(0, 15),
            draw(82, 98),
            draw(-5, 15),
            draw(0, 90),
            draw(-10, 10),
        )
        return _one_of(low, elbows, push)

    return Drawn(root, draw(-2, 2), curve, draw(-35, 10), draw(-15, 15), _both(leg), _both(arm))


def down_dog(draw: Draw) -> Drawn:
    """Hands and feet on the floor, hips high; also bears and stoops."""
    root = draw(95, 150)
    curve = draw(-10, 30)

    def leg() -> Leg:
        return Leg(root + draw(-45, -5), draw(-2, 14), draw(0, 45), draw(-25, 10), draw(-4, 8))

    arms = _both(lambda: _bearing_arm(draw, draw(100, 178), draw(0, 20)))
    return Drawn(root, draw(-3, 3), curve, draw(-25, 20), draw(-10, 10), _both(leg), arms)


def lying(draw: Draw) -> Drawn:
    prone = draw.pick(0.4)
    side = draw.pick(0.3)
    prone = prone & ~side
    root = torch.where(side, draw(-10, 10), torch.where(prone, draw(84, 95), draw(-96, -84)))
    roll = torch.where(side, draw(80, 100), draw(-5, 5))
    drawn_up = draw.pick(0.5)
    tucked = draw(0, 80)

    def leg() -> Leg:
        swing = torch.where(drawn_up, draw(25, 70), draw(-4, 10))
        bend = torch.where(drawn_up, 90 + 0.4 * swing + draw(-25, 15), draw(0, 15))
        swing = torch.where(prone, draw(-8, 12), torch.where(side, tucked + draw(0, 20), swing))
        bend = torch.where(prone, draw(0, 35), torch.where(side, tucked + draw(0, 35), bend))
        out = torch.where(side, draw(-4, 4), draw(-2, 18))
        ankle = torch.where(prone, draw(25, 55), draw(0, 35))
        return Leg(swing, out, bend, ankle, torch.where(side, draw(-4, 4), draw(0, 25)))

    def arm() -> Arm:
        over = draw.pick(0.4)
        folded = draw.pick(0.5)
        out = torch.where(side, draw(-10, 15), torch.where(over, draw(60, 165), draw(5, 50)))
        swing = torch.where(side, draw(15, 100), draw(-8, 8))
        bend = torch.where(folded, draw(40, 125), draw(0, 25))
        # A forearm beside the head lies in the plane of the back: the arm is turned outwards.
        flat = (prone | over) & ~side
        twist = torch.where(flat, draw(-105, -75), draw(-10, 45))
        bend = torch.where(prone & ~over, draw(0, 15), bend)
        return Arm(swing, out, bend, twist, draw(0, 90), draw(-20, 30))

    turn = torch.where(prone, draw(-75, 75), draw(-45, 45))
    return Drawn(root, roll, draw(-10, 15), draw(-15, 25), turn, _both(leg), _both(arm))


def inverted(draw: Draw) -> Drawn:
    """Handstands and headstands."""
    root = draw(165, 195)
    head = draw.pick(0.4)
    split = draw.pick(0.4)
    curve = draw(-15, 5)

    def leg() -> Leg:
        swing = torch.where(split, draw(-30, 90), draw(-8, 12))
        out = draw(0, 20)
        bend = torch.where(draw.pick(0.3), draw(20, 100), draw(0, 12))
        return Leg(swing, out, bend, draw(10, 55), draw(-5, 10))

    def arm() -> Arm:
        hands = _bearing_arm(draw, draw(165, 182), draw(0, 12))
        folded = Arm(
            draw(125, 155), draw(0, 15), draw(85, 115), draw(0, 20), draw(0, 60), draw(-10, 30)
        )
        return _one_of(head, folded, hands)

    return Drawn(root, draw(-5, 5), curve, draw(-35, 15), draw(-5, 5), _both(leg), _both(arm))


def reaching(draw: Draw) -> Drawn:
    """One arm or both, up, ahead or aside; legs and trunk as captured, arms on a body that leans
    after them.
    """
    one = draw.pick(0.5)
    up = draw.pick(0.6)

    def arm(reaches: Tensor) -> Arm:
        swing = torch.where(up, draw(130, 178), draw(55, 110))
        far = Arm(swing, draw(-15, 45), draw(0, 45), draw(-30, 50), draw(-20, 90), draw(-20, 30))
        rest = Arm(
            draw(-15, 30), draw(0, 25), draw(5, 60), draw(-10, 30), draw(0, 40), draw(-10, 10)
        )
        return _one_of(reaches, far, rest)

    still = torch.zeros_like(draw.places[:, 0])
    leg = Leg(still, still, still, still, still)
    arms = arm(torch.ones_like(one)), arm(~one)
    return Drawn(still, still, draw(-15, 25), draw(-35, 15), draw(-30, 30), (leg, leg), arms)


@dataclass(frozen=True)
class Kind:
    draw: Callable[[Draw], Drawn]
    rests: tuple[str, ...]  # CONTACTS on the floor; none: the root stays as drawn
    share: int  # of the clips
    low_m: float = 9.0  # highest place of pelvis and, lying, chest over the lowest joint


# What touches the floor: a joint, and how far inside the skin it is.
CONTACTS = {
    "hands": ((22, 23), 0.02),
    "wrists": ((20, 21), 0.03),
    "knees": ((4, 5), 0.055),
    "left knee": ((4,), 0.055),
    "toes": ((10, 11), 0.03),
    "elbows": ((18, 19), 0.04),
    "head": ((15,), 0.12),
}
RARE = {
    "sitting": Kind(sitting, (), 4),
    "sitting, arms as captured": Kind(lambda draw: replace(sitting(draw), arms=None), (), 4),
    "floor sitting": Kind(floor_sitting, (), 3, 0.16),
    "kneeling": Kind(kneeling, (), 4),
    "all fours": Kind(all_fours, ("hands", "knees", "toes"), 4),
    "plank": Kind(plank, ("wrists", "toes"), 3),
    "down dog": Kind(down_dog, ("hands", "toes"), 2),
    "lying": Kind(lying, (), 6, 0.26),
    "inverted": Kind(inverted, (), 2),
    "reaching": Kind(reaching, (), 6),
}


def posed(drawn: Drawn, captured: Tensor) -> Tensor:
    """Poses [N, 24, 3]; what is not drawn is taken from captured poses [N, 24, 3]."""
    count = len(captured)
    pose = captured.clone()
    mirror = torch.tensor([1.0, -1.0, -1.0])

    def about(x: Tensor | float = 0.0, y: Tensor | float = 0.0, z: Tensor | float = 0.0) -> Tensor:
        """Rz Rx Ry of degrees [N]: swings out, then about the side, after a twist."""
        angles = (
            torch.deg2rad(torch.as_tensor(angle, dtype=torch.float32).expand(count))
            for angle in (x, y, z)
        )
        by_x, by_y, by_z = (about_axis(axis, angle) for axis, angle in enumerate(angles))
        return by_x @ by_z @ by_y

    def put(joint: int, matrix: Tensor, right: int = 0) -> None:
        turn = matrix_to_axis_angle(matrix)
        pose[:, MIRROR[joint] if right else joint] = turn * mirror if right else turn

    if any(bool(value.any()) for value in vars(drawn.legs[0]).values()):
        put(0, about(drawn.root_pitch, 0.0, drawn.root_roll))
        for right, leg in enumerate(drawn.legs):
            put(1, about(-leg.swing, leg.twist, leg.out), right)
            put(4, about(leg.bend), right)
            put(7, about(leg.ankle), right)
            put(10, about(torch.where(leg.ankle < 0, -25.0, 0.0)), right)  # tucked
    for joint in (3, 6, 9):
        put(joint, about(drawn.spine / 3))
    for joint in (12, 15):
        put(joint, about(drawn.head / 2, drawn.head_turn / 2))
    for right, arm in enumerate(drawn.arms or ()):
        put(13, torch.eye(3).expand(count, 3, 3), right)
        put(16, about(-arm.swing) @ about(z=arm.out - 90) @ about(arm.twist), right)
        put(18, about(y=-arm.bend) @ about(arm.pronation), right)
        put(20, about(z=arm.wrist), right)
        put(22, torch.eye(3).expand(count, 3, 3), right)
    return pose


def laid(pose: Tensor, rests: tuple[str, ...], body: Body) -> tuple[Tensor, Tensor]:
    """The root turned so that what rests on the floor is level, and whether that fits: [N, 24, 3],
    [N] bool.
    """
    if not rests:
        return pose, torch.ones(len(pose), dtype=torch.bool)
    joints = body(pose).joints
    points = torch.cat([joints[:, CONTACTS[name][0]] for name in rests], 1)
    inside = torch.cat([torch.full((len(CONTACTS[name][0]),), CONTACTS[name][1]) for name in rests])
    middle = points.mean(1, keepdim=True)
    _, _, axes = torch.linalg.svd(points - middle - inside[:, None] * torch.tensor([0.0, 1.0, 0.0]))
    normal = axes[:, 2]
    normal = normal * torch.where(normal[:, 1:2] < 0, -1.0, 1.0)
    turn = shortest_turn(normal, torch.tensor([0.0, 1.0, 0.0]).expand_as(normal))
    pose = pose.clone()
    pose[:, 0] = matrix_to_axis_angle(turn @ rotation_matrices(pose[:, 0]))
    height = rotate(turn[:, None], points - middle)[..., 1] - inside
    off = (height - height.mean(1, keepdim=True)).abs().amax(1)
    return pose, (off < OFF_FLOOR_M) & (normal[:, 1] > np.cos(np.deg2rad(TILTED_DEG)))


# Bones as capsules: ends and radius in metres.
CAPSULES = {
    "trunk": (0, 9, 0.11),
    "chest": (6, 12, 0.1),
    "head": (15, 15, 0.1),
    "left thigh": (1, 4, 0.065),
    "right thigh": (2, 5, 0.065),
    "left shank": (4, 7, 0.045),
    "right shank": (5, 8, 0.045),
    "left fore": (18, 20, 0.035),
    "right fore": (19, 21, 0.035),
}
APART = tuple(
    (f"{one} {limb}", part if part in ("trunk", "chest", "head") else f"{other} {part}")
    for one, other in (("left", "right"), ("right", "left"))
    for limb, part in (
        ("fore", "trunk"),
        ("fore", "chest"),
        ("fore", "head"),
        ("fore", "fore"),
        ("fore", "thigh"),
        ("shank", "trunk"),
        ("shank", "shank"),
        ("shank", "thigh"),
    )
)


def limbs_apart(joints_m: Tensor) -> Tensor:
    """[N] bool: no limb deeper in another than soft parts give way."""
    fits = torch.ones(len(joints_m), dtype=torch.bool)
    along = torch.linspace(0, 1, 7)[:, None]

    def points(name: str) -> Tensor:
        a, b, _ = CAPSULES[name]
        return torch.lerp(joints_m[:, a, None], joints_m[:, b, None], along)

    for first, second in APART:
        nearest = torch.cdist(points(first), points(second)).flatten(1).amin(1)
        fits &= nearest > CAPSULES[first][2] + CAPSULES[second][2] - DEEP_M
    return fits


# Shares of the mass (Winter: Biomechanics of human movement) at the middle of bones between joints.
MASSES = (
    (0, 6, 0.28),
    (6, 12, 0.22),
    (15, 15, 0.08),
    (1, 4, 0.1),
    (2, 5, 0.1),
    (4, 7, 0.0465),
    (5, 8, 0.0465),
    (7, 10, 0.0145),
    (8, 11, 0.0145),
    (16, 18, 0.028),
    (17, 19, 0.028),
    (18, 22, 0.022),
    (19, 23, 0.022),
)


def balanced(joints_m: Tensor, touching_m: float = 0.12) -> Tensor:
    """[N] bool: the centre of mass is over the box of what is lowest, y up."""
    share = torch.tensor([m for _, _, m in MASSES])
    middle = torch.stack([(joints_m[:, a] + joints_m[:, b]) / 2 for a, b, _ in MASSES], 1)
    mass = (share[:, None] * middle).sum(1) / share.sum()
    low = joints_m[..., 1] < joints_m[..., 1].amin(1, keepdim=True) + touching_m
    away = torch.zeros(len(joints_m))
    for axis in (0, 2):
        least = torch.where(low, joints_m[..., axis], torch.inf).amin(1)
        most = torch.where(low, joints_m[..., axis], -torch.inf).amax(1)
        away = torch.maximum(away, torch.maximum(least - mass[:, axis], mass[:, axis] - most))
    return away < OUT_OF_BALANCE_M


def rare_motion(captured: Tensor, body: Body, clips: int, seed: int) -> Motion:
    """Short clips of rare poses; upper bodies, and of those who reach the rest, are captured ones
    [N, 24, 3], y up.
    """
    generator = torch.Generator().manual_seed(seed)
    total = sum(kind.share for kind in RARE.values())
    poses = []
    names = []
    for name, kind in RARE.items():
        found = _kept(kind, captured, body, max(1, clips * kind.share // total), generator)
        poses.append(found)
        names += [name] * len(found)
    ends = torch.cat(poses)  # [C, 2, 24, 3]
    turn = axis_angle_to_quaternion(ends)
    turn[:, 1] *= torch.where((turn[:, 0] * turn[:, 1]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    share = torch.linspace(0, 1, CLIP_FRAMES)[None, :, None, None]
    turn = normalize(torch.lerp(turn[:, :1], turn[:, 1:], share), dim=-1)
    pose = quaternion_to_axis_angle(turn).flatten(0, 1)
    pose = torch.cat([with_raised_collars(part, body) for part in pose.split(8192)])
    joints = torch.cat([body(part).joints for part in pose.split(8192)])
    root = torch.zeros(len(pose), 3)
    root[:, 1] = joints[:, 0, 1] - joints[..., 1].amin(1)
    start = np.arange(0, len(pose) + 1, CLIP_FRAMES)
    return Motion(
        pose, root, start, tuple(f"1_{number}" for number in range(len(names))), FPS, tuple(names)
    )


def _kept(
    kind: Kind, captured: Tensor, body: Body, wanted: int, generator: torch.Generator
) -> Tensor:
    """Pairs of poses [wanted, 2, 24, 3] that people can take."""
    found: list[Tensor] = []
    count = 0
    tries = 4 * wanted
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
            pose, lies = laid(posed(kind.draw(Draw(places)), base) + shake, kind.rests, body)
            joints = body(with_raised_collars(pose, body)).joints
            angles = pose[:, BODY_JOINTS].flatten(1)
            within_limits = ((angles > low - slack) & (angles < high + slack)).all(1)
            good &= lies & within_limits & limbs_apart(joints)
            if kind.rests or kind.draw in (kneeling, inverted):
                good &= balanced(joints)
            trunk = joints[:, (0, 9) if kind.draw is lying else (0,), 1].amax(1)
            good &= trunk - joints[..., 1].amin(1) < kind.low_m
            pair.append(pose)
        found.append(torch.stack(pair, 1)[good])
        count += int(good.sum())
        if count >= wanted:
            return torch.cat(found)[:wanted]
    raise RuntimeError(f"{kind.draw.__name__}: only {count} of {wanted} poses are possible")
