"""Feet in contact with something do not move."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fitting.solver.jacobian import Posed
from fitting.solver.terms.term import NormalEquations, Term, geman_mcclure

# Points of the body that can be in contact, among Halpe's 26 keypoints: left heel and big toe,
# right heel and big toe. Wrists, knees and pelvis among them changed nothing (bench/world.py,
# bench/scene_evidence.py).
FEET = (24, 20, 25, 21)

# m/s of a point in contact; 0.03 and 0.1 were compared by bench/scene_evidence.py --choose
CONTACT_SPEED = 0.05
# Deviations at which these count half of their square (Geman-McClure's loss): contact and floor are
# hypotheses, and where keypoints contradict them they let go. bench/scene_evidence.py --choose:
# against a loss that grows on, misfit with the scene falls from 1.07 .. 1.31 times that without to
# 1.02 .. 1.05, and standing feet are as still.
CONTACT_SCALE = 2.0
SLOWEST_FPS = 9.0  # frames farther apart may belong to different steps of a foot


@dataclass(frozen=True)
class Contact(Term):
    """Keep feet in contact with something where they are."""

    PER_FRAME = ("contact",)

    contact: Tensor  # [T, 4] 0..1 probability

    def share(self, fps: float) -> Tensor:
        """Return the factor [T - 1, n] from a point's displacement between neighbouring frames to
        its residual.

        Summed over frames it stands for an integral over time, as acceleration does.
        """
        rate = 0.0 if fps < SLOWEST_FPS else fps * (30.0 / fps) ** 0.5
        return (self.contact[1:] * self.contact[:-1]).sqrt() * rate / CONTACT_SPEED

    def residual(self, points_shot: Tensor, fps: float) -> Tensor:
        """Return the residuals [T - 1, n, 3] of points [T, n, 3]."""
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
        """Leave the term out, as for the floor."""


def weaken_moved_contacts(contact: Tensor, points_shot: Tensor, fps: float) -> Tensor:
    """Return probabilities of contact [T, n] once the positions of the points [T, n, 3] are known.

    A point that moved although it was taken to be in contact was released by the robust loss; it
    counts as much as the loss still pulled.
    """
    if len(contact) < 2:
        return contact
    residual = Contact(contact).residual(points_shot, fps)
    pull = geman_mcclure(residual.square().sum(-1), CONTACT_SCALE**2)[1]
    ends = pull.new_zeros(1, pull.shape[1])
    return contact * torch.maximum(torch.cat((pull, ends)), torch.cat((ends, pull)))
