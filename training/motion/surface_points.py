"""Name points on the body's surface that hands touch, and find which of them hands touch.

Places are those of the open body at rest (`eval3dpw/synth/outfits.py`): x to the body's left, y up
from the pelvis, z to the front.
"""

from functools import cached_property

import torch
from torch import Tensor

from fitting.body import Body
from fitting.body.attached_points import AttachedPoints
from fitting.body.kinematics import Placement

# Of the left side or the middle; the right side is the mirror image.
PLACES_M = {
    "palm": (0.745, 0.385, 0.03),
    "fingertips": (0.83, 0.39, 0.03),
    "knuckles": (0.75, 0.42, 0.03),
    "mouth": (0.0, 0.532, 0.151),
    "chin": (0.0, 0.50, 0.13),
    "nose": (0.0, 0.575, 0.17),
    "forehead": (0.0, 0.66, 0.14),
    "cheek": (0.06, 0.561, 0.10),
    "eye": (0.03, 0.612, 0.135),
    "ear": (0.075, 0.59, 0.05),
    "crown": (0.0, 0.717, 0.03),
    "nape": (0.0, 0.50, -0.05),
    "chest": (0.06, 0.305, 0.15),
    "belly": (0.043, 0.074, 0.168),
    "lower back": (0.06, 0.09, -0.09),
    "hip": (0.163, 0.0075, 0.01),
    "pocket": (0.14, -0.12, 0.08),
    "thigh": (0.11, -0.30, 0.09),
    "knee": (0.106, -0.471, 0.071),
    "shoulder": (0.18, 0.45, 0.03),
    "upper arm": (0.30, 0.44, 0.03),
    "elbow": (0.43, 0.40, -0.02),
    "forearm": (0.55, 0.43, 0.03),
}
HAND_PLACES = ("palm", "fingertips", "knuckles")
SIDES = ("left", "right")
# What either hand may touch. The network learns a probability for each.
TOUCHED = ("head", "trunk", "hip", "leg", "other arm")
CONTACTS = (
    *(f"{side} hand, {part}" for side in SIDES for part in TOUCHED),
    "left foot",
    "right foot",
)
TOUCHING_M = 0.03  # between points of the two surfaces, which are some centimetres apart
GROUP_SIZE = 240  # points that stand for the surface of a part
_HEAD_BONES = (12, 15)
_TRUNK_BONES = (3, 6, 9, 13, 14)
_ARM_BONES = {"left": (18, 20, 22), "right": (19, 21, 23)}


class SurfacePoints:
    """Points on the surface by name, and groups of points for each part that a hand may touch."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.names: list[str] = []
        vertices = []
        for name, (x, y, z) in PLACES_M.items():
            for side, sign in zip(SIDES, (1.0, -1.0), strict=True):
                self.names.append(f"{side} {name}")
                place = torch.tensor((sign * x, y, z))
                vertices.append(int((body.v_template - place).norm(dim=1).argmin()))
        self.points = self._attach(torch.tensor(vertices))

    def number(self, name: str) -> int:
        """Return the row of a point such as "left palm"."""
        return self.names.index(name)

    def place(self, placement: Placement, shape: Tensor) -> Tensor:
        """Return all named points [N, P, 3] of placed bodies."""
        return self.points.place(placement, self.points.moments(shape, None))

    def _attach(self, vertices: Tensor) -> AttachedPoints:
        """Attach vertices of the mesh to the bones, so that they move without the whole mesh."""
        count = len(vertices)
        on_vertices = torch.zeros(count, len(self.body.v_template))
        on_vertices[torch.arange(count), vertices] = 1.0
        return self.body.points(torch.zeros(count, 24), on_vertices)

    @cached_property
    def parts(self) -> dict[str, AttachedPoints]:
        """Sample the surface of each part: head, trunk, hip, leg, and both forearms with hands."""
        template = self.body.v_template
        bone = self.body.weights.argmax(1)
        height = template[:, 1]
        upper_leg = torch.isin(bone, torch.tensor((1, 2))) & (height > -0.2)
        leg = torch.isin(bone, torch.tensor((1, 2, 4, 5))) & (height <= -0.2) & (height > -0.65)
        members = {
            "head": torch.isin(bone, torch.tensor(_HEAD_BONES)),
            "trunk": torch.isin(bone, torch.tensor(_TRUNK_BONES)),
            "hip": (bone == 0) | upper_leg,
            "leg": leg,
        }
        for side, bones in _ARM_BONES.items():
            members[f"{side} arm"] = torch.isin(bone, torch.tensor(bones))
        return {name: self._attach(_spread(template, mask)) for name, mask in members.items()}

    def hand_contacts(self, placement: Placement, shape: Tensor) -> Tensor:
        """Return [N, 10] bool: left, then right hand on each of TOUCHED."""
        named = self.place(placement, shape)
        columns = []
        for side, other in zip(SIDES, reversed(SIDES), strict=True):
            hand = named[:, [self.number(f"{side} {place}") for place in HAND_PLACES]]
            for part in TOUCHED:
                surface = self.parts[f"{other} arm" if part == "other arm" else part]
                points = surface.place(placement, surface.moments(shape, None))
                columns.append(torch.cdist(hand, points).flatten(1).amin(1) < TOUCHING_M)
        return torch.stack(columns, 1)


def _spread(template: Tensor, mask: Tensor) -> Tensor:
    """Choose GROUP_SIZE vertices of a part, each as far as possible from those before it."""
    vertices = mask.nonzero().squeeze(1)
    chosen = [0]
    distance = (template[vertices] - template[vertices[0]]).norm(dim=1)
    while len(chosen) < min(GROUP_SIZE, len(vertices)):
        chosen.append(int(distance.argmax()))
        from_last = (template[vertices] - template[vertices[chosen[-1]]]).norm(dim=1)
        distance = torch.minimum(distance, from_last)
    return vertices[chosen]
