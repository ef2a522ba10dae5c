"""What the surroundings of a track say about it: which way is up, where the floor is, which points
are in contact.

Everything is in the shot's axes, those of its first camera: a camera that turns by R_t
(`world_rotation`) sees a point that it has at q_t in its own frame at y_t = R_t q_t in the shot's.
Three residuals, in natural units:

  contact  a point in contact in frames t and t + 1 stays where it is:   (y_{t+1} - y_t) fps / CONTACT_SPEED
  floor    a point in contact with the floor is at its height:           (up . y - floor - lift) / std
           and no point is below it
  balance  the centre of mass is over the feet that carry:               horizontal (centre - support) / std

All lengths are those of the body at its own shape, before its size multiplies it, so a child of
half the size stands on a floor of half the camera's height.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body
from fitting.solver.terms.term import NormalEquations, Term, charbonnier, geman_mcclure
from fitting.solver.unknowns import Posed

# Points of the body that can be in contact, among Halpe's 26 keypoints: left heel and big toe,
# right heel and big toe. Wrists, knees and pelvis among them changed nothing (bench/world.py,
# bench/scene_evidence.py).
FEET = (24, 20, 25, 21)

# m/s of a point in contact; 0.03 and 0.1 were compared by bench/scene_evidence.py --choose
CONTACT_SPEED = 0.05
FLOOR_STD_M = 0.03  # of a point in contact over the floor: soles, and the floor's own unevenness
BELOW_STD_M = 0.02  # of a point below the floor
# Deviations at which these count half of their square (Geman-McClure's loss): contact and floor are
# hypotheses, and where keypoints contradict them they let go. bench/scene_evidence.py --choose:
# against a loss that grows on, misfit with the scene falls from 1.07 .. 1.31 times that without to
# 1.02 .. 1.05, and standing feet are as still.
CONTACT_SCALE, FLOOR_SCALE = 2.0, 3.0
# Of the centre of mass from the middle of the feet that carry it: half a foot's length, and more
# where a step is made. Not tuned: bench/world.py and bench/view_independence.py compare with and
# without.
BALANCE_STD_M, BALANCE_SCALE = 0.05, 1.0
SLOWEST_FPS = 9.0  # frames farther apart may belong to different steps of a foot


@dataclass(frozen=True)
class SceneTerms:
    """The surroundings of a track of T frames."""

    up: Tensor | None = None  # [3] unit, against gravity, in the shot's axes; None: not known
    world_rotation: Tensor | None = (
        None  # [T, 3, 3] from each frame's camera to the shot's axes; None: all the same
    )
    floor_m: float | None = None  # up . x of the floor's points x; None: not known
    contact: Tensor | None = (
        None  # [T, 4] 0..1 probability that each of FEET is in contact with something
    )
    on_floor: Tensor | None = None  # [T, 4] 0..1 probability that it is in contact with the floor
    floor_std_m: float = FLOOR_STD_M
    carries: Tensor | None = (
        None  # [T, 4] shares of the body's weight on heels and toes; zero: not known
    )

    def frames(self, index: slice | Tensor) -> "SceneTerms":
        """Of some of the frames."""
        given = {
            name: getattr(self, name)
            for name in ("world_rotation", "contact", "on_floor", "carries")
        }
        return replace(
            self, **{name: value[index] for name, value in given.items() if value is not None}
        )

    def terms(self, body: Body) -> Iterator[Term]:
        """What pulls on a body for what is known."""
        if self.up is not None and self.floor_m is not None:
            yield Floor(self.up, self.floor_m, foot_lifts(body), self.on_floor, self.floor_std_m)
        if self.up is not None and self.carries is not None and self.carries.any():
            yield Balance(self.up, self.carries)
        if self.contact is not None:
            yield Contact(self.contact)

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


def foot_lifts(body: Body) -> Tensor:
    """[4] metres of FEET over the sole."""
    rest = body(torch.zeros(1, 24, 3), vertices=True)
    assert rest.vertices is not None
    return rest.keypoints[0, FEET, 1] - rest.vertices[0, :, 1].min()


@dataclass(frozen=True)
class Floor(Term):
    """Feet in contact with the floor are on it, and none is below."""

    PER_FRAME = ("on_floor",)

    up: Tensor  # [3]
    floor_m: float
    lift: Tensor  # [4] metres over the floor where they touch it
    on_floor: Tensor | None = None  # [T, 4]
    std_m: float = FLOOR_STD_M

    def residuals(self, points_shot: Tensor) -> tuple[Tensor, Tensor]:
        """Points [T, n, 3] in the shot's axes -> residuals [T, n], and their derivative by the
        height [T, n].
        """
        height = points_shot @ self.up - self.floor_m - self.lift
        held = torch.zeros_like(height) if self.on_floor is None else self.on_floor.sqrt()
        share = torch.where(height < 0, torch.full_like(height, 1 / BELOW_STD_M), held / self.std_m)
        return share * height, share

    def cost(self, posed: Posed) -> Tensor:
        residual, _ = self.residuals(posed.points_shot(FEET))
        return geman_mcclure(residual.square(), FLOOR_SCALE**2)[0].sum(-1) / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual, share = self.residuals(posed.points_shot(FEET))
        root_slope = geman_mcclure(residual.square(), FLOOR_SCALE**2)[1].sqrt()
        row = (root_slope * share).unsqueeze(-1) * self.up  # [t, n, 3]
        step, shape = (
            torch.einsum("tnc,tncd->tnd", row, part) for part in posed.point_jacobians_shot(FEET)
        )
        equations.add_rows(root_slope * residual, step, shape)

    def in_doubt(self) -> None:
        """A floor that was found with the same keypoints may be wrong where those are."""


@dataclass(frozen=True)
class Contact(Term):
    """Feet in contact with something stay where they are."""

    PER_FRAME = ("contact",)

    contact: Tensor  # [T, 4] 0..1 probability

    def share(self, fps: float) -> Tensor:
        """[T - 1, n] from the step of a point between neighbouring frames to its residual.

        Summed over frames it stands for an integral over time, as acceleration does.
        """
        rate = 0.0 if fps < SLOWEST_FPS else fps * (30.0 / fps) ** 0.5
        return (self.contact[1:] * self.contact[:-1]).sqrt() * rate / CONTACT_SPEED

    def residual(self, points_shot: Tensor, fps: float) -> Tensor:
        """Of points [T, n, 3], [T - 1, n, 3]."""
        return self.share(fps).unsqueeze(-1) * torch.diff(points_shot, dim=0)

    def cost(self, posed: Posed) -> Tensor:
        if posed.fps is None:
            return self.contact.new_zeros(())
        residual = self.residual(posed.points_shot(FEET), posed.fps)
        return geman_mcclure(residual.square().sum(-1), CONTACT_SCALE**2)[0].sum() / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        if posed.fps is None:
            return
        share = self.share(posed.fps)
        moved = torch.diff(posed.points_shot(FEET), dim=0)  # [t - 1, 4, 3]
        slope = geman_mcclure((share.unsqueeze(-1) * moved).square().sum(-1), CONTACT_SCALE**2)[1]
        weight = (slope * share.square()).repeat_interleave(3, dim=1)
        step, shape = (part.flatten(1, 2) for part in posed.point_jacobians_shot(FEET))
        equations.add_difference(
            (-1.0, 1.0), moved.flatten(1), weight, step, torch.diff(shape, dim=0)
        )

    def in_doubt(self) -> None:
        """As the floor's."""


# Shares of the body's mass (P. de Leva, J. Biomech. 1996, mean of women and men), each segment's at
# its centre between two joints: head, trunk in five parts, arms, hands, thighs, shanks, feet. By
# joint, left and right alike.
_MASS = {
    (0,): 0.118,
    (1, 2): 0.180,
    (3,): 0.080,
    (4, 5): 0.161,
    (6,): 0.078,
    (7, 8): 0.056,
    (9,): 0.100,
    (10, 11): 0.012,
    (12,): 0.055,
    (15,): 0.068,
    (16, 17): 0.022,
    (18, 19): 0.046,
    (20, 21): 0.014,
    (22, 23): 0.012,
}


def mass_shares() -> Tensor:
    """[24] of the joints, so that their weighted mean is the centre of mass."""
    shares = torch.zeros(24)
    for joints, mass in _MASS.items():
        shares[list(joints)] = mass / len(joints)
    return shares / shares.sum()


@dataclass(frozen=True)
class Balance(Term):
    """Whoever stands has the centre of mass over the feet: a straight body that leans by 20 degrees
    falls over.
    """

    PER_FRAME = ("carries",)

    up: Tensor  # [3]
    carries: Tensor  # [T, 4] shares of the weight; less than 1 in all: less is known

    @property
    def known(self) -> Tensor:
        return self.carries.sum(-1)

    def horizontal(self, joints: Tensor, feet: Tensor) -> Tensor:
        """Centre of mass less support, [t, 3] in stds, of points [t, 24, 3] and [t, 4, 3], or of
        the derivatives of both [.., d]: it is linear in them."""
        centre = torch.einsum("j,tjc...->tc...", mass_shares().to(joints), joints)
        middle = torch.einsum(
            "tn,tnc...->tc...", self.carries / self.known.clamp(min=1e-6)[:, None], feet
        )
        away = centre - middle
        away = away - torch.einsum("i,j,tj...->ti...", self.up, self.up, away)
        return away * (self.known.sqrt() / BALANCE_STD_M).reshape(-1, *[1] * (away.ndim - 1))

    def loss(self, residual: Tensor) -> tuple[Tensor, Tensor]:
        return charbonnier(residual.square().sum(-1), BALANCE_SCALE)

    def cost(self, posed: Posed) -> Tensor:
        residual = self.horizontal(posed.joints_shot, posed.points_shot(FEET))
        return self.loss(residual)[0] / 2

    def add(self, posed: Posed, equations: NormalEquations) -> None:
        residual = self.horizontal(posed.joints_shot, posed.points_shot(FEET))
        root_slope = self.loss(residual)[1].sqrt()[:, None]
        joints = posed.joint_jacobians_shot
        feet = posed.point_jacobians_shot(FEET)
        step, shape = (
            self.horizontal(*parts) * root_slope[..., None]
            for parts in zip(joints, feet, strict=True)
        )
        equations.add_rows(root_slope * residual, step, shape)

    def in_doubt(self) -> None:
        """As the floor's."""


def kept_contact(contact: Tensor, points_shot: Tensor, fps: float) -> Tensor:
    """[T, n] probabilities of contact once the points' places [T, n, 3] are known: a point that
    moved all the same was let go, and counts as much as the loss still pulled."""
    if len(contact) < 2:
        return contact
    residual = Contact(contact).residual(points_shot, fps)
    pull = geman_mcclure(residual.square().sum(-1), CONTACT_SCALE**2)[1]
    ends = pull.new_zeros(1, pull.shape[1])
    return contact * torch.maximum(torch.cat((pull, ends)), torch.cat((ends, pull)))
