"""Draw what a sequence shows: script, people, clothes, camera and occlusion, from its seed
alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from eval3dpw.synth.camera_paths import CameraKind
from eval3dpw.synth.clothed_people import ClothedBody, clothed_body
from eval3dpw.synth.motion import FPS, Kind
from eval3dpw.synth.occluders import OCCLUSION_LEVELS, OcclusionLevel
from eval3dpw.synth.outfits import Outfit, draw_outfit
from eval3dpw.synth.staging import SyntheticPerson
from eval3dpw.synth.surroundings import SCENE_KINDS
from fitting.body import Body

SceneScript = Literal["crossing", "embrace", "behind", "cuts", "world"]
SCRIPTS: tuple[SceneScript, ...] = ("crossing", "embrace", "behind", "cuts", "world")
# Sequences of each script, in turn: how many people, and whether they wear the same clothes.
_CASTS: dict[SceneScript, tuple[tuple[int, bool], ...]] = {
    "crossing": ((2, False), (4, False), (3, True), (6, False)),
    "embrace": ((2, False), (3, True)),
    "behind": ((2, False), (4, False), (3, True)),
    "cuts": ((3, False), (4, True), (2, False)),
    "world": ((1, False),),
}
# What rendered worlds show, in turn: kind, people, a child among them, camera, focal length over
# the diagonal.
WORLDS: tuple[tuple[Kind, int, bool, CameraKind, float], ...] = (
    ("walking", 1, False, "static", 0.62),
    ("walking", 3, True, "static", 0.95),
    ("jumping", 1, False, "static", 0.72),
    ("sitting", 2, False, "static", 0.80),
    ("walking", 2, True, "pan", 1.25),
    ("stairs", 1, False, "static", 0.66),
    ("standing", 2, True, "hand", 0.58),
    ("walking", 4, True, "hand", 1.05),
)
# Of people who walk about, in turn.
CAMERAS: tuple[CameraKind, ...] = ("static", "hand", "pan", "orbit", "hand", "dolly")
CAMERA_NAMES: dict[CameraKind, str] = {
    "static": "fixed"
}  # in the names of sequences, where they are others
BYSTANDER_SHARE: dict[OcclusionLevel, float] = {
    "none": 0.25,
    "some": 0.4,
    "heavy": 0.5,
}  # of sequences with one


@dataclass(frozen=True)
class Plan:
    """Describe one sequence, drawn from the seed and its number alone."""

    name: str
    seed: tuple[int, int]  # of everything that is drawn later
    people: int
    script: SceneScript | None = None  # None: people walk about
    turn: int = 0  # how many sequences of this script come before
    uniforms: bool = False
    kind: Kind = "walking"  # of motion, where there is a script
    camera: CameraKind = "static"  # of people who walk about
    occlusion: OcclusionLevel = "none"
    bystanders: int = 0  # in the images, but not in the truth

    @property
    def fps(self) -> int:
        return FPS if self.script in (None, "world") else FPS // 2

    def rng(self, part: str) -> np.random.Generator:
        """Return a generator for one part, so that a change of one part leaves the others as they
        were.

        The names are part of the seed: another name makes other images.
        """
        return np.random.default_rng([*self.seed, *part.encode()])

    def outfit(self, identity: int) -> Outfit:
        """Draw a person's outfit; uniforms differ in skin and hair alone."""
        own = draw_outfit(self.rng(f"looks {identity}"))
        if not self.uniforms:
            return own
        return replace(
            draw_outfit(self.rng("looks 0")),
            skin=own.skin,
            hair=own.hair,
            hair_thickness_m=own.hair_thickness_m,
            hair_falls_to_m=own.hair_falls_to_m,
            beard=own.beard,
        )

    def dressed(
        self, people: Sequence[SyntheticPerson], identities: Sequence[int], body: Body
    ) -> list[ClothedBody]:
        """Dress people in clothes that are the same in every shot."""
        cast = zip(people, identities, strict=True)
        return [
            clothed_body(body, p.shape, self.outfit(n), self.rng(f"cloth {n}")) for p, n in cast
        ]


def draw_plan(seed: int, number: int, scripts: Sequence[SceneScript] = ()) -> Plan:
    """Draw the plan of a sequence.

    scripts: used in turn; without any, people walk about.
    """
    if not scripts:
        count = 2 if number % 5 in (1, 3) else 1
        camera = CAMERAS[(number // 2 + number) % len(CAMERAS)]
        level = OCCLUSION_LEVELS[number % len(OCCLUSION_LEVELS)]
        place = SCENE_KINDS[(number + seed) % len(SCENE_KINDS)]
        kind = CAMERA_NAMES.get(camera, camera)
        bystanders = int(np.random.default_rng([seed, number]).random() < BYSTANDER_SHARE[level])
        name = f"synth_{number:03d}_{place}_{count}p_{kind}_{level}"
        return Plan(
            name, (seed, number), count, camera=camera, occlusion=level, bystanders=bystanders
        )
    script = scripts[number % len(scripts)]
    turn = number // len(scripts)
    count, uniforms = _CASTS[script][(turn + seed) % len(_CASTS[script])]
    motion: Kind = "walking"
    if script == "world":
        motion, count, *_ = WORLDS[turn % len(WORLDS)]
    looks = "_uniforms" if uniforms else ""
    name = f"{script}_{number:03d}_{motion + '_' if script == 'world' else ''}{count}p{looks}"
    return Plan(name, (seed, number), count, script, turn, uniforms, motion)
