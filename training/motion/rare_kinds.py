"""Draw poses that people take and captures hardly hold: sitting, kneeling, on hands, lying, ..

Each kind is drawn from ranges of joint angles: hips and shoulders by how far the limb is swung
forwards and out, knees and elbows by their bend. Palms that bear weight have wrists bent back.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from training.motion.joint_angles import Arm, Drawn, Leg


class Draw:
    """Give even numbers of N poses in a fixed order: a place between 0 and 1 for each call."""

    def __init__(self, places: Tensor) -> None:
        self.places, self.next = places, 0

    def __call__(self, low: float, high: float) -> Tensor:
        self.next += 1
        return low + (high - low) * self.places[:, self.next - 1]

    def pick(self, share: float) -> Tensor:
        return self(0, 1) < share


Limb = TypeVar("Limb")


def _free_arm(draw: Draw) -> Arm:
    raised = draw.pick(0.25)
    swing = torch.where(raised, draw(40, 170), draw(-15, 50))
    return Arm(swing, draw(0, 40), draw(0, 110), draw(-10, 40), draw(0, 60), draw(-15, 15))


def _bearing_arm(draw: Draw, swing: Tensor, bend: Tensor) -> Arm:
    """Draw an arm with the palm on the floor, fingers forwards; swing takes the arm to the
    floor.
    """
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
    """Return the ankle that lays the sole onto a level floor."""
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
    """Draw hands and feet on the floor with hips high; also bears and stoops."""
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
    """Draw handstands and headstands."""
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
    """Draw one arm or both, up, ahead or aside, on a trunk that leans after them.

    Legs are as captured.
    """
    one_arm = draw.pick(0.5)
    up = draw.pick(0.6)

    def arm(reaches: Tensor) -> Arm:
        swing = torch.where(up, draw(130, 178), draw(55, 110))
        far = Arm(swing, draw(-15, 45), draw(0, 45), draw(-30, 50), draw(-20, 90), draw(-20, 30))
        hanging = Arm(
            draw(-15, 30), draw(0, 25), draw(5, 60), draw(-10, 30), draw(0, 40), draw(-10, 10)
        )
        return _one_of(reaches, far, hanging)

    still = torch.zeros_like(draw.places[:, 0])
    leg = Leg(still, still, still, still, still)
    arms = arm(torch.ones_like(one_arm)), arm(~one_arm)
    return Drawn(still, still, draw(-15, 25), draw(-35, 15), draw(-30, 30), (leg, leg), arms)


@dataclass(frozen=True)
class Kind:
    draw: Callable[[Draw], Drawn]
    rests: tuple[str, ...]  # CONTACTS on the floor; none: the root stays as drawn
    share: int  # of the clips
    low_m: float = 9.0  # highest place of pelvis and, lying, chest over the lowest joint


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
