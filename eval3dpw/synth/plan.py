"""What each sequence is to show: drawn from the seed and the sequence's number alone."""

from dataclasses import dataclass

import numpy as np

from eval3dpw.synth import camera_path, scene, sensor
from eval3dpw.synth.camera_path import View
from eval3dpw.synth.scene import Kind, Level
from eval3dpw.synth.sensor import Sensor

FOCAL_OF_WIDTH = (0.75, 1.35)  # focal length as a share of the image's width: 67 to 41 degrees


@dataclass(frozen=True)
class Role:
    """Whose motion one person has."""

    clip: int  # number among the split's clips
    mirrored: bool


@dataclass(frozen=True)
class Plan:
    """One sequence."""

    name: str
    roles: tuple[Role, ...]
    bystanders: tuple[Role, ...]  # seen, but not in the truth
    scene: Kind
    occlusion: Level
    view: View
    focal_px: float
    sensor: Sensor
    crossing: bool  # two people walk past each other
    seed: tuple[int, int]  # of everything that is drawn later

    def rng(self, what: str) -> np.random.Generator:
        """A source of randomness for one part, so that a change in one leaves the others as they were."""
        return np.random.default_rng([*self.seed, *what.encode()])


def draw(seed: int, number: int, clip_count: int, width: int, before_photo: bool = False) -> Plan:
    people = 2 if number % 5 in (1, 3) else 1
    first = sum(2 if k % 5 in (1, 3) else 1 for k in range(number))
    rng = np.random.default_rng([seed, number])
    kind: Kind = "photo" if before_photo else scene.BUILT[(number + seed) % len(scene.BUILT)]
    level = scene.LEVELS[number % len(scene.LEVELS)]
    moves = camera_path.KINDS[(number // 2 + number) % len(camera_path.KINDS)]
    return Plan(
        name=f"synth_{number:03d}_{kind}_{people}p_{moves}_{level}",
        roles=tuple(_role(seed, first + k, clip_count) for k in range(people)),
        bystanders=tuple(
            Role(int(rng.integers(clip_count)), bool(rng.integers(2))) for _ in range(_bystanders(level, rng))
        ),
        scene=kind,
        occlusion=level,
        view=camera_path.draw_view(rng, moves),
        focal_px=rng.uniform(*FOCAL_OF_WIDTH) * width,
        sensor=sensor.draw(rng, width),
        crossing=bool(rng.random() < 0.6),
        seed=(seed, number),
    )


def _role(seed: int, turn: int, clip_count: int) -> Role:
    """Clips come in random order, each once, then each once more in a mirror, and so on."""
    order = np.random.default_rng([seed, clip_count]).permutation(clip_count)
    return Role(int(order[turn % clip_count]), mirrored=turn // clip_count % 2 == 1)


def _bystanders(level: Level, rng: np.random.Generator) -> int:
    """Strangers in the image, more often where it is crowded anyway."""
    return int(rng.random() < {"none": 0.25, "some": 0.4, "heavy": 0.5}[level])
