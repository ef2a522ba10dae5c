"""MakeHuman's own rule that turns sex, age, muscle, weight and so on into a mesh.

Every macro target belongs to a corner of the space of attributes ("female, old, much muscle, ...");
a person's mesh is the base mesh plus all targets, each weighted by how near the person is to its
corner, piecewise linearly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from tools.open_body.assets import Assets

# adults only
_GENDERS = ("male", "female")
_AGES = ("young", "old")
_MUSCLES = ("minmuscle", "averagemuscle", "maxmuscle")
_WEIGHTS = ("minweight", "averageweight", "maxweight")
_HEIGHTS = ("minheight", "maxheight")
_PROPORTIONS = ("idealproportions", "uncommonproportions")
_RACES = ("african", "asian", "caucasian")
_CUPS = ("mincup", "averagecup", "maxcup")
_FIRMNESSES = ("minfirmness", "averagefirmness", "maxfirmness")

_ONE = ""
_BOTH = ("l-", "r-")
# Local targets that come in pairs (decrease, increase): folder, name, sides, standard deviation
# over people.
DETAILS = (
    ("arms", "measure-upperarm-length", _ONE, 0.35),
    ("arms", "measure-lowerarm-length", _ONE, 0.35),
    ("arms", "measure-upperarm-circ", _ONE, 0.5),
    ("arms", "upperarm-fat", _BOTH, 0.5),
    ("arms", "upperarm-muscle", _BOTH, 0.4),
    ("arms", "lowerarm-fat", _BOTH, 0.5),
    ("arms", "lowerarm-muscle", _BOTH, 0.4),
    ("arms", "upperarm-shoulder-muscle", _BOTH, 0.4),
    ("legs", "measure-upperleg-height", _ONE, 0.3),
    ("legs", "measure-lowerleg-height", _ONE, 0.3),
    ("legs", "measure-thigh-circ", _ONE, 0.3),
    ("legs", "measure-calf-circ", _ONE, 0.5),
    ("legs", "measure-knee-circ", _ONE, 0.4),
    ("legs", "upperleg-fat", _BOTH, 0.2),
    ("legs", "lowerleg-fat", _BOTH, 0.4),
    ("legs", "lowerleg-muscle", _BOTH, 0.4),
    ("legs", "upperleg-muscle", _BOTH, 0.3),
    ("torso", "measure-bust-circ", _ONE, 0.4),
    ("torso", "measure-hips-circ", _ONE, 0.4),
    ("torso", "measure-napetowaist-dist", _ONE, 0.2),
    ("torso", "measure-waisttohip-dist", _ONE, 0.2),
    ("torso", "measure-shoulder-dist", _ONE, 0.6),
    ("torso", "measure-underbust-circ", _ONE, 0.3),
    ("torso", "measure-waist-circ", _ONE, 0.5),
    ("torso", "torso-scale-depth", _ONE, 0.3),
    ("torso", "torso-scale-horiz", _ONE, 0.2),
    ("torso", "torso-vshape", _ONE, 0.3),
    ("torso", "torso-muscle-pectoral", _ONE, 0.4),
    ("torso", "torso-muscle-dorsi", _ONE, 0.4),
    ("hip", "hip-scale-depth", _ONE, 0.3),
    ("hip", "hip-scale-horiz", _ONE, 0.4),
    ("stomach", "stomach-tone", _ONE, 0.4),
    ("stomach", "stomach-pregnant", _ONE, 0.25),
    ("buttocks", "buttocks-volume", _ONE, 0.5),
    ("neck", "measure-neck-height", _ONE, 0.3),
    ("neck", "measure-neck-circ", _ONE, 0.5),
    ("head", "head-scale-depth", _ONE, 0.3),
    ("head", "head-scale-horiz", _ONE, 0.3),
    ("head", "head-scale-vert", _ONE, 0.3),
    ("head", "head-fat", _ONE, 0.4),
    ("head", "head-age", _ONE, 0.4),
    ("hands", "hand-scale", _BOTH, 0.3),
    ("feet", "foot-scale", _BOTH, 0.3),
    ("feet", "foot-scale-depth", _BOTH, 0.2),
)


@dataclass(frozen=True)
class Macro:
    """A person in MakeHuman's terms; every number from 0 to 1, 0.5 being average."""

    gender: float = 0.5  # 0 female, 1 male
    age: float = 0.3  # 0 is 25 years, 1 is 90
    muscle: float = 0.5
    weight: float = 0.5
    height: float = 0.5
    proportion: float = 0.5
    race: Sequence[float] = (1 / 3, 1 / 3, 1 / 3)  # sums to 1
    cup: float = 0.5
    firmness: float = 0.5

    def corner_weights(self) -> dict[str, float]:
        """Return how near the person is to each named value of each attribute."""

        def three(x: float) -> tuple[float, float, float]:
            return max(0.0, 1 - 2 * x), 1 - abs(2 * x - 1), max(0.0, 2 * x - 1)

        low, _, high = three(self.height)
        ideal = max(0.0, 2 * self.proportion - 1)
        uncommon = max(0.0, 1 - 2 * self.proportion)
        near: dict[str, float] = {}
        for names, values in (
            (_GENDERS, (self.gender, 1 - self.gender)),
            (_AGES, (1 - self.age, self.age)),
            (_MUSCLES, three(self.muscle)),
            (_WEIGHTS, three(self.weight)),
            (_HEIGHTS, (low, high)),
            (_PROPORTIONS, (ideal, uncommon)),
            (_RACES, self.race),
            (_CUPS, three(self.cup)),
            (_FIRMNESSES, three(self.firmness)),
        ):
            near.update(zip(names, values, strict=True))
        return near


@dataclass(frozen=True)
class _Corner:
    """Which attribute values a macro target stands for, in groups that are multiplied first."""

    groups: tuple[tuple[str, ...], ...]
    file: str

    def weight(self, near: Mapping[str, float]) -> float:
        return prod(prod(near[name] for name in group) for group in self.groups)


def _corners() -> list[_Corner]:
    corners = []
    for person in product(_GENDERS, _AGES):
        gender, age = person
        for race in _RACES:
            corners.append(_Corner((person, (race,)), f"macrodetails/{race}-{gender}-{age}"))
        for build in product(_MUSCLES, _WEIGHTS):
            name = "-".join((*person, *build))
            corners.append(_Corner((person, build), f"macrodetails/universal-{name}"))
            for kind, folder in (
                (_HEIGHTS, "macrodetails/height"),
                (_PROPORTIONS, "macrodetails/proportions"),
            ):
                corners += [
                    _Corner((person, build, (value,)), f"{folder}/{name}-{value}") for value in kind
                ]
            if gender == "female":
                for breast in product(_CUPS, _FIRMNESSES):
                    corners.append(
                        _Corner((person, build, breast), f"breast/{name}-{'-'.join(breast)}")
                    )
    return corners


class Phenotypes:
    """Meshes of people."""

    def __init__(self, assets: Assets) -> None:
        self._base = assets.vertices
        self._corners = [
            corner for corner in _corners() if assets.has(f"targets/{corner.file}.target.gz")
        ]
        self._macros = np.stack([assets.target(corner.file) for corner in self._corners])
        self._detail_names = detail_names()
        self._details = np.stack([assets.target(name) for name in self._detail_names])

    def vertices(self, macro: Macro, details: Mapping[str, float] | None = None) -> np.ndarray:
        """Return the mesh [19158, 3] of a person in metres, standing as MakeHuman's base mesh does."""
        near = macro.corner_weights()
        weights = np.array([corner.weight(near) for corner in self._corners], np.float32)
        used = np.nonzero(weights)[0]
        mesh = self._base + np.tensordot(weights[used], self._macros[used], 1)
        if details is not None:
            weights = np.array([details.get(name, 0.0) for name in self._detail_names], np.float32)
            used = np.nonzero(weights)[0]
            mesh = mesh + np.tensordot(weights[used], self._details[used], 1)
        return mesh * 0.1  # decimetres


def detail_pair(folder: str, name: str, sides: str | tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the target files for less and for more of a detail, one pair for each side it has."""
    return [
        (f"{folder}/{side}{name}-decr", f"{folder}/{side}{name}-incr") for side in sides or ("",)
    ]


def detail_names() -> list[str]:
    """Return every file that DETAILS names, in a fixed order."""
    folders = list(dict.fromkeys(folder for folder, *_ in DETAILS))
    names = {
        name
        for folder, detail, sides, _ in DETAILS
        for pair in detail_pair(folder, detail, sides)
        for name in pair
    }
    return sorted(names, key=lambda name: (folders.index(name.split("/")[0]), name))
