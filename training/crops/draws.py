"""Draw people for crops: a pose, a shape and a camera each."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.rotations import quaternion_to_matrix
from training.examples.views import Views, draw_views, move_to_floor_or_ceiling
from training.motion.bank import Bank, cut_windows, mirror_rotations, vary
from training.motion.sources import MOTION_SHARES
from training.motion.surface_points import SurfacePoints

BATCH = 32
SELF_CONTACT = 0.35  # share of people
FLOOR_OR_CEILING = 0.2  # share of cameras
WIDEST_SHAPE = 2.3  # standard deviations
ON_FLOOR_M = 0.05  # highest place of a foot's points that stand
FOOT_JOINTS = ((7, 10), (8, 11))  # ankle and toes of each side
FOOT_INSIDE_M = (0.09, 0.03)  # height of ankle and toes over the sole


@dataclass(frozen=True)
class Draws:
    """B people with their cameras."""

    turn: Tensor  # [B, 24, 4] unit quaternions (x, y, z, w), the root's in the world, y up
    shape: Tensor  # [B, S]
    view: Views
    contacts: Tensor  # [B, 12] bool, in the order of `surface_points.CONTACTS`
    in_contact: Tensor  # [B] bool: the pose was made with self-contact
    holds_bar: Tensor  # [B] bool: both hands are on one bar


class Crowd:
    """Draw people from captured motion and from poses with self-contact."""

    def __init__(
        self, banks: list[Bank], contact: Bank, contact_is_bar: Tensor, body: Body, seed: int
    ) -> None:
        """contact_is_bar: [N] bool, of the frames of `contact`."""
        self.banks = banks
        self.contact = contact
        self.contact_is_bar = contact_is_bar
        self.surface = SurfacePoints(body)
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self) -> Draws:
        """Draw BATCH people."""
        generator = self.generator
        shares = list(MOTION_SHARES[: len(self.banks)])
        motion = vary(cut_windows(self.banks, shares, torch.zeros(BATCH, 1), generator), generator)
        frame = torch.randint(len(self.contact.turn), (BATCH,), generator=generator)
        flip = torch.rand(BATCH, generator=generator) < 0.5
        touching = self.contact.turn[frame]
        touching = torch.where(flip[:, None, None], mirror_rotations(touching), touching)
        in_contact = torch.rand(BATCH, generator=generator) < SELF_CONTACT
        turn = torch.where(in_contact[:, None, None], touching, motion.turn[:, 0])
        shape_size = self.surface.body.shape_size
        shape = torch.randn(BATCH, shape_size, generator=generator)
        shape = shape.clamp(-WIDEST_SHAPE, WIDEST_SHAPE)
        view = draw_views(BATCH, generator)
        view = move_to_floor_or_ceiling(view, FLOOR_OR_CEILING, generator)
        contacts = self._contacts(turn, shape)
        return Draws(
            turn, shape, view, contacts, in_contact, in_contact & self.contact_is_bar[frame]
        )

    def _contacts(self, turn: Tensor, shape: Tensor) -> Tensor:
        """Return hand contacts and which feet stand, [B, 12] bool."""
        placement = self.surface.body.placement(quaternion_to_matrix(turn), shape)
        hands = self.surface.hand_contacts(placement, shape)
        height = placement.joints[..., 1]
        soles = torch.stack([height[:, pair] for pair in FOOT_JOINTS], 1)  # [B, foot, 2]
        soles = soles - torch.tensor(FOOT_INSIDE_M)
        floor = torch.minimum(height.amin(1) - FOOT_INSIDE_M[1], soles.flatten(1).amin(1))
        feet = (soles - floor[:, None, None]).amin(2) < ON_FLOOR_M
        return torch.cat((hands, feet), 1)
