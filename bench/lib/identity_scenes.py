"""Scenes with exact identities for bench/identity.py: simulated people, and real clips joined end
to end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from bench.lib.identity_metrics import FrameBoxes
from pose2d.detect.boxes import iou
from pose2d.skeletons import COCO17, Skeleton
from pose2d.tracking import appearance
from pose2d.tracking.appearance import PARTS, SIZE
from pose2d.types import AREA_OF_BOX, Appearance, l_squared
from pose2d.video.frames import Frame
from pose2d.video.shots import ShotMarker

IMAGE_WH = (1000, 600)
FPS = 25.0


def find_cuts(frames: Iterable[tuple[int, float, np.ndarray]]) -> list[int]:
    """First frames of new shots of a whole video, from (frame number, seconds, RGB image)."""
    marker = ShotMarker()
    for _ in marker.mark(Frame(number, Fraction(time_s), rgb) for number, time_s, rgb in frames):
        pass
    return sorted(marker.cuts)


@dataclass(frozen=True)
class SeenFrame:
    """What detector and pose network say of one frame, and who it is."""

    boxes_px: np.ndarray  # [D, 4]
    scores: np.ndarray  # [D]
    xy_px: np.ndarray  # [D, K, 2]
    sure: np.ndarray  # [D, K] confidence times presence
    appearance: Appearance  # [D]
    is_cut: bool  # as the tracker is told
    truth: FrameBoxes  # all people who could be seen
    time_s: float
    skeleton: Skeleton = COCO17


@dataclass(frozen=True)
class Kind:
    """A kind of scene."""

    people: int = 4
    difference: float = 1.0  # of clothes: 0 is uniforms
    hidden: float = 0.45  # overlap with a nearer person from which a person is not detected
    merged: float = (
        0.3  # share of frames in which a person half hidden gets the nearer one's keypoints
    )
    embrace: bool = False  # the first two meet, stay together for 2 s, and part
    cut_every_s: float | None = None  # all people are somewhere else from then on
    post: bool = False  # something wide in the middle hides people behind it


KINDS = {
    "2 cross": Kind(people=2),
    "4 cross": Kind(people=4),
    "6 cross": Kind(people=6),
    "4 cross, uniforms": Kind(people=4, difference=0.0),
    "2 embrace": Kind(people=2, embrace=True),
    "4 behind a wall": Kind(people=4, post=True),
    "3, a cut every 2 s": Kind(people=3, cut_every_s=2.0),
}

# Places of COCO's keypoints on a standing person, in heights from the hips' middle, x right and y
# down.
_STAND = np.array(
    [
        (0, -0.42),
        (0.015, -0.435),
        (-0.015, -0.435),
        (0.035, -0.425),
        (-0.035, -0.425),
        (0.09, -0.31),
        (-0.09, -0.31),
        (0.12, -0.16),
        (-0.12, -0.16),
        (0.12, -0.02),
        (-0.12, -0.02),
        (0.06, 0),
        (-0.06, 0),
        (0.06, 0.23),
        (-0.06, 0.23),
        (0.06, 0.46),
        (-0.06, 0.46),
    ]
)
_SWING = np.zeros(17)
_SWING[[7, 9, 14, 16]] = (0.04, 0.1, 0.07, 0.14)
_SWING[[8, 10, 13, 15]] = (-0.04, -0.1, -0.07, -0.14)


def pose_of(centre_px: np.ndarray, height_px: float, phase: float, facing: float) -> np.ndarray:
    """A walking person's keypoints [17, 2]. `facing` 1 or -1: to the right or to the left, turned
    by 60 degrees.
    """
    local = _STAND * [0.6 * facing, 1.0]
    local[:, 0] += facing * _SWING * np.sin(phase)
    return centre_px + height_px * local


def box_of(xy_px: np.ndarray, height_px: float) -> np.ndarray:
    margin = 0.06 * height_px
    return np.concatenate([xy_px.min(0) - margin, xy_px.max(0) + margin])


def simulate(kind: Kind, seed: int, seconds: float = 12.0) -> list[SeenFrame]:
    random = np.random.default_rng(seed)
    people = kind.people
    model = appearance._model()
    back = np.linalg.inv(model.basis)  # [P, D, D]
    between = np.sqrt(np.maximum(model.total - model.within, 0) / 2) * kind.difference
    person_look = random.normal(size=(people, len(PARTS), SIZE)) * between
    height = random.uniform(200, 380, people)
    start = random.uniform(0, 1800, people)
    speed = random.uniform(60, 200, people)
    step_hz = random.uniform(0.8, 1.2, people)
    phase = random.uniform(0, 6, people)
    frames = []
    jump = np.zeros(people)
    for number in range(round(seconds * FPS)):
        time_now = number / FPS
        is_cut = bool(kind.cut_every_s and number and number % round(kind.cut_every_s * FPS) == 0)
        if is_cut:
            jump = random.uniform(0, 1800, people)
        path = (start + jump + speed * time_now) % 1800
        x = 50 + np.where(path < 900, path, 1800 - path)
        facing = np.where(path < 900, 1.0, -1.0)
        if (
            kind.embrace
        ):  # towards each other until 5 s, together until 7 s, apart again, each back or through
            away = 160 * max(0.0, 5 - time_now, time_now - 7)
            through = 1 if (time_now < 6 or seed % 2) else -1
            x[:2] = 500 + np.array([-1, 1]) * through * (away + 12)
            facing[:2] = (1.0, -1.0)
        y = 560 - 0.48 * height - 0.25 * (380 - height)
        poses = np.stack(
            [
                pose_of(
                    np.array([x[p], y[p]]),
                    height[p],
                    phase[p] + 2 * np.pi * step_hz[p] * time_now,
                    facing[p],
                )
                for p in range(people)
            ]
        )
        exact = np.stack([box_of(pose, h) for pose, h in zip(poses, height, strict=True)])
        frames.append(
            _seen(
                kind,
                random,
                poses,
                exact,
                height,
                person_look,
                back,
                model.within,
                is_cut,
                time_now,
            )
        )
    return frames


def _seen(
    kind: Kind,
    random: np.random.Generator,
    poses: np.ndarray,
    exact: np.ndarray,
    height: np.ndarray,
    person_look: np.ndarray,
    back: np.ndarray,
    within: np.ndarray,
    is_cut: bool,
    time_s: float,
) -> SeenFrame:
    boxes = []
    xy = []
    looks = []
    weights = []
    visible = []
    l_px = np.sqrt(l_squared(AREA_OF_BOX * (exact[:, 2:] - exact[:, :2]).prod(-1), COCO17))
    noise = random.normal(size=person_look.shape) * np.sqrt(within / 2)
    seen_look = np.einsum("npd,pde->npe", person_look + noise, back) + np.array(
        [40, 55, 70, 0, 5, 10, 0, 8, 15]
    )
    for p in range(len(height)):
        nearer = [q for q in range(len(height)) if height[q] > height[p]]
        covered = [_covered(exact[p], exact[q]) for q in nearer]
        front = nearer[int(np.argmax(covered))] if nearer else p
        most = max(covered, default=0.0)
        behind_wall = kind.post and abs(exact[p, [0, 2]].mean() - 500) < 70
        if most > 0.9 or behind_wall:
            continue
        visible.append(p)
        if (
            iou(exact[p][None], exact[front][None])[0, 0] > kind.hidden and nearer
        ) or random.random() < (0.1 if most > 0.2 else 0.01):
            continue
        pose = poses[p]
        look = seen_look[p]
        weight = np.full(len(PARTS), 0.75)
        if most > 0.35:
            weight = weight * (1 - most)
            if random.random() < kind.merged:
                pose = poses[front]
                look = seen_look[front]
        boxes.append(exact[p] + random.normal(0, 0.015 * height[p], 4))
        xy.append(pose + 0.4 * l_px[p][:, None] * random.normal(size=(17, 2)))
        looks.append(look)
        weights.append(weight)
    order = random.permutation(len(boxes))
    count = len(boxes)
    pick = lambda rows, *shape: np.reshape(rows, (count, *shape))[order]  # noqa: E731
    is_visible = np.array(visible, int)
    seen_boxes = pick(boxes, 4)
    return SeenFrame(
        boxes_px=seen_boxes,
        scores=np.full(count, 0.8),
        xy_px=pick(xy, 17, 2),
        sure=np.full((count, 17), 1 / (1 + 0.4**2)),  # the expected OKS of that noise
        appearance=Appearance(pick(looks, len(PARTS), SIZE), pick(weights, len(PARTS))),
        is_cut=is_cut,
        truth=FrameBoxes(is_visible, exact[is_visible]),
        time_s=time_s,
    )


def _covered(box: np.ndarray, by: np.ndarray) -> float:
    """Share of a box that another covers."""
    pair = (np.minimum(box[2:], by[2:]) - np.maximum(box[:2], by[:2])).clip(0).prod()
    return float(pair / (box[2:] - box[:2]).prod())


def joined_clips(
    people: dict[str, np.ndarray], seed: int, pieces: int = 6
) -> tuple[list[SeenFrame], list[int]]:
    """Pieces of real clips end to end: boxes and keypoints as the networks saw them, cuts as
    pose2d/video/shots.py finds them, and the frames where they really are. The truth is each clip's
    own tracks, which were looked at."""
    random = np.random.default_rng(seed)
    names = sorted(key[: -len("_row")] for key in people if key.endswith("_row"))
    order = [str(name) for name in random.permutation(names)[:pieces]]
    frames: list[SeenFrame] = []
    images = []
    cuts = []
    time_now = 0.0
    named = 0
    for name in order:
        row, box, xy, score = (people[f"{name}_{kind}"] for kind in ("row", "box", "xy", "score"))
        numbers = people[f"{name}_frames"]
        times = people[f"{name}_time"]
        length = min(len(numbers), int(random.integers(5, 40)))
        first = int(random.integers(0, len(numbers) - length + 1))
        cuts += [len(frames)] if frames else []
        for index in range(first, first + length):
            current = np.flatnonzero(row[:, 0] == numbers[index])
            image = people[f"{name}_rgb"][index]
            time_now += float(times[index] - times[index - 1]) if index > first else 0.04
            looks = appearance.describe(image, xy[current], score[current])
            truth = FrameBoxes(named + row[current, 1], box[current])
            frames.append(
                SeenFrame(
                    box[current],
                    np.full(len(current), 0.8),
                    xy[current],
                    score[current],
                    looks,
                    False,
                    truth,
                    time_now,
                )
            )
            images.append((len(images), time_now, image))
        named += int(row[:, 1].max()) + 1
    starts = set(find_cuts(images))
    return [replace(frame, is_cut=number in starts) for number, frame in enumerate(frames)], cuts
