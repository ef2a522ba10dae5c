"""What is known about the scene around a track: gravity, the floor, and which feet are in contact.

Everything is in the axes of the shot, those of its first camera: a camera that turns by R_t
(`world_rotation`) sees a point that it has at q_t in its own frame at y_t = R_t q_t in the shot's.
Three residuals, in natural units:

    contact  a point in contact in frames t and t + 1 does not move:
             (y_{t+1} - y_t) fps / CONTACT_SPEED
    floor    a point in contact with the floor is at its height, and no point is below it:
             (up . y - floor - lift) / std
    balance  the centre of mass is over the feet that carry:
             horizontal (centre - support) / std

All lengths are those of the body at its own shape, before its size multiplies it, so a child of
half the size stands on a floor of half the camera's height.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fitting.body import Body
from fitting.solver.terms.balance import Balance
from fitting.solver.terms.contact import Contact
from fitting.solver.terms.floor import FLOOR_STD_M, Floor, foot_lifts
from fitting.solver.terms.term import Term


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
        """Return what is known about these frames."""
        per_frame = {
            name: getattr(self, name)
            for name in ("world_rotation", "contact", "on_floor", "carries")
        }
        return replace(
            self, **{name: value[index] for name, value in per_frame.items() if value is not None}
        )

    def terms(self, body: Body) -> Iterator[Term]:
        """Yield a term for everything that is known."""
        if self.up is not None and self.floor_m is not None:
            yield Floor(self.up, self.floor_m, foot_lifts(body), self.on_floor, self.floor_std_m)
        if self.up is not None and self.carries is not None and self.carries.any():
            yield Balance(self.up, self.carries)
        if self.contact is not None:
            yield Contact(self.contact)

    def lean_axis(self, frames: int) -> Tensor:
        """Return the horizontal direction away from the camera, [T, 3] in each frame's camera."""
        assert self.up is not None
        up = self.up.expand(frames, 3)
        if self.world_rotation is not None:
            up = torch.einsum("tji,tj->ti", self.world_rotation, up)
        ahead = up.new_tensor([0.0, 0.0, 1.0]) - up[:, 2:] * up
        size = ahead.norm(dim=-1, keepdim=True)
        # Straight up or down nothing leans out of the image.
        return torch.where(size > 0.3, ahead / size.clamp(min=1e-6), torch.zeros_like(ahead))
