"""Do identities hold where people cross, hide, embrace and come back, with and without cuts?

python bench/identity.py [--scenes 20] [--people people.npz]

Simulated people walk in front of each other: boxes, keypoints and colours with the noise that detector, pose network
and appearance have; the truth is exact. Every tracker gets the same boxes. With --people (the cache of
bench/appearance.py) also real clips joined end to end, with the cuts that pose2d/io/shots.py finds. Figures:
bench/identity_metrics.py.
"""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.identity_metrics import FrameBoxes, IdentityScores, identity_scores
from pose2d.detect import appearance
from pose2d.detect.appearance import PARTS, SIZE, Appearances, blend, log_likelihood_ratio
from pose2d.detect.detector import Detections, iou
from pose2d.detect.identity import (
    IdentityOptions,
    PoseState,
    association_cost,
    distinctness,
    first_pose,
    pose_log_likelihood_ratio,
    predict_pose,
    update_pose,
)
from pose2d.detect.kalman import MotionOptions, State, initial_state, mahalanobis, predict, update
from pose2d.detect.tracker import Tracker, assign
from pose2d.io.shots import find_cuts
from pose2d.oks import AREA_OF_BOX
from pose2d.skeletons import COCO17

IMAGE_WH = (1000, 600)
FPS = 25.0
GAP_S, NEWCOMER = 2.0, 9.0  # as TrackerOptions


@dataclass(frozen=True)
class SeenFrame:
    """What detector and pose network say of one frame, and who it is."""

    boxes_px: np.ndarray  # [D, 4]
    scores: np.ndarray  # [D]
    xy_px: np.ndarray  # [D, 17, 2]
    sigma_px: np.ndarray  # [D, 17]
    looks: Appearances  # [D]
    is_cut: bool  # as the tracker is told
    truth: FrameBoxes  # everybody who could be seen
    time_s: float


@dataclass(frozen=True)
class Kind:
    """A kind of scene."""

    people: int = 4
    difference: float = 1.0  # of clothes: 0 is uniforms
    hidden: float = 0.45  # overlap with somebody nearer from which a person is not detected
    merged: float = 0.3  # share of frames in which a person half hidden gets the nearer one's keypoints
    embrace: bool = False  # the first two meet, stay together for 2 s, and part
    cut_every_s: float | None = None  # everybody is somewhere else from then on
    post: bool = False  # something wide in the middle hides whoever is behind it


KINDS = {
    "2 cross": Kind(people=2),
    "4 cross": Kind(people=4),
    "6 cross": Kind(people=6),
    "4 cross, uniforms": Kind(people=4, difference=0.0),
    "2 embrace": Kind(people=2, embrace=True),
    "4 behind a wall": Kind(people=4, post=True),
    "3, a cut every 2 s": Kind(people=3, cut_every_s=2.0),
}

# Places of COCO's keypoints on a standing person, in heights from the hips' middle, x right and y down.
_STAND = np.array([
    (0, -0.42), (0.015, -0.435), (-0.015, -0.435), (0.035, -0.425), (-0.035, -0.425), (0.09, -0.31), (-0.09, -0.31),
    (0.12, -0.16), (-0.12, -0.16), (0.12, -0.02), (-0.12, -0.02), (0.06, 0), (-0.06, 0), (0.06, 0.23), (-0.06, 0.23),
    (0.06, 0.46), (-0.06, 0.46),
])  # fmt: skip
_SWING = np.zeros(17)
_SWING[[7, 9, 14, 16]], _SWING[[8, 10, 13, 15]] = (0.04, 0.1, 0.07, 0.14), (-0.04, -0.1, -0.07, -0.14)


def pose_of(centre_px: np.ndarray, height_px: float, phase: float, facing: float) -> np.ndarray:
    """A walking person's keypoints [17, 2]. `facing` 1 or -1: to the right or to the left, turned by 60 degrees."""
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
    start, speed = random.uniform(0, 1800, people), random.uniform(60, 200, people)
    step_hz = random.uniform(0.8, 1.2, people)
    phase = random.uniform(0, 6, people)
    frames = []
    jump = np.zeros(people)
    for number in range(round(seconds * FPS)):
        now = number / FPS
        is_cut = bool(kind.cut_every_s and number and number % round(kind.cut_every_s * FPS) == 0)
        if is_cut:
            jump = random.uniform(0, 1800, people)
        path = (start + jump + speed * now) % 1800
        x, facing = 50 + np.where(path < 900, path, 1800 - path), np.where(path < 900, 1.0, -1.0)
        if kind.embrace:  # towards each other until 5 s, together until 7 s, apart again, each back or through
            away = 160 * max(0.0, 5 - now, now - 7)
            through = 1 if (now < 6 or seed % 2) else -1
            x[:2], facing[:2] = 500 + np.array([-1, 1]) * through * (away + 12), (1.0, -1.0)
        y = 560 - 0.48 * height - 0.25 * (380 - height)
        poses = np.stack([
            pose_of(np.array([x[p], y[p]]), height[p], phase[p] + 2 * np.pi * step_hz[p] * now, facing[p])
            for p in range(people)
        ])  # fmt: skip
        exact = np.stack([box_of(pose, h) for pose, h in zip(poses, height, strict=True)])
        frames.append(_seen(kind, random, poses, exact, height, person_look, back, model.within, is_cut, now))
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
    boxes, xy, looks, weights, visible = [], [], [], [], []
    area = AREA_OF_BOX * (exact[:, 2:] - exact[:, :2]).prod(1)
    l_px = np.sqrt(area[:, None] * COCO17.oks_variance)
    noise = random.normal(size=person_look.shape) * np.sqrt(within / 2)
    seen_look = np.einsum("npd,pde->npe", person_look + noise, back) + np.array([40, 55, 70, 0, 5, 10, 0, 8, 15])
    for p in range(len(height)):
        nearer = [q for q in range(len(height)) if height[q] > height[p]]
        covered = [_covered(exact[p], exact[q]) for q in nearer]
        front = nearer[int(np.argmax(covered))] if nearer else p
        most = max(covered, default=0.0)
        behind_wall = kind.post and abs(exact[p, [0, 2]].mean() - 500) < 70
        if most > 0.9 or behind_wall:
            continue
        visible.append(p)
        if (iou(exact[p][None], exact[front][None])[0, 0] > kind.hidden and nearer) or random.random() < (
            0.1 if most > 0.2 else 0.01
        ):
            continue
        pose, look, weight = poses[p], seen_look[p], np.full(len(PARTS), 0.75)
        if most > 0.35:
            weight = weight * (1 - most)
            if random.random() < kind.merged:
                pose, look = poses[front], seen_look[front]
        boxes.append(exact[p] + random.normal(0, 0.015 * height[p], 4))
        xy.append(pose + 0.4 * l_px[p][:, None] * random.normal(size=(17, 2)))
        looks.append(look)
        weights.append(weight)
    order = random.permutation(len(boxes))
    count = len(boxes)
    pick = lambda rows, *shape: np.reshape(rows, (count, *shape))[order]  # noqa: E731
    shown = np.array(visible, int)
    seen_boxes = pick(boxes, 4)
    seen_area = AREA_OF_BOX * np.maximum(seen_boxes[:, 2:] - seen_boxes[:, :2], 1).prod(-1)
    return SeenFrame(
        boxes_px=seen_boxes,
        scores=np.full(count, 0.8),
        xy_px=pick(xy, 17, 2),
        sigma_px=0.4 * np.sqrt(seen_area[:, None] * COCO17.oks_variance),
        looks=Appearances(pick(looks, len(PARTS), SIZE), pick(weights, len(PARTS))),
        is_cut=is_cut,
        truth=FrameBoxes(shown, exact[shown]),
        time_s=time_s,
    )


def _covered(box: np.ndarray, by: np.ndarray) -> float:
    """Share of a box that another covers."""
    both = (np.minimum(box[2:], by[2:]) - np.maximum(box[:2], by[:2])).clip(0).prod()
    return float(both / (box[2:] - box[:2]).prod())


@dataclass
class _Person:
    identity: int
    belief: State
    pose: PoseState
    look: Appearances
    seen_s: float


def follow(
    frames: list[SeenFrame],
    use_pose: bool = True,
    use_look: bool = True,
    use_cuts: bool = True,
    options: IdentityOptions | None = None,
) -> list[FrameBoxes]:
    """Identities from the costs of pose2d/detect/identity.py: what the tracker does, without its rules on scores."""
    options, motion = options or IdentityOptions(), MotionOptions()
    present: list[_Person] = []
    born = 0
    found = []
    wh = np.array(IMAGE_WH)
    last_s = frames[0].time_s
    for frame in frames:
        now, step_s, last_s = frame.time_s, frame.time_s - last_s, frame.time_s
        if frame.is_cut and use_cuts:
            present = []
        present = [p for p in present if now - p.seen_s <= GAP_S]
        for p in present:
            p.belief = predict(p.belief, step_s, motion)
            p.pose = predict_pose(p.pose, step_s, p.belief.body_px, options)
        distance2, cost = mahalanobis([p.belief for p in present], frame.boxes_px, motion)
        nothing, distinct = np.zeros_like(distance2), distinctness(frame.xy_px, frame.boxes_px)
        pose = nothing
        if use_pose and distance2.size:
            pose = pose_log_likelihood_ratio(
                [p.pose for p in present], frame.xy_px, frame.sigma_px, frame.boxes_px, options
            )
        look = nothing
        if use_look and distance2.size:
            mean = Appearances(*(np.concatenate([getattr(p.look, n) for p in present]) for n in ("colours", "weight")))
            look = log_likelihood_ratio(mean, frame.looks)
        pairs = assign(association_cost(distance2, cost, pose, look, distinct, options), NEWCOMER)
        identity = np.full(len(frame.boxes_px), -1)
        for row, column in pairs:
            p = present[row]
            identity[column], p.seen_s = p.identity, now
            p.belief = update(p.belief, frame.boxes_px[column], wh, motion)
            p.pose = update_pose(p.pose, frame.xy_px[column], frame.sigma_px[column])
            # What is seen while somebody overlaps is theirs as well.
            others = np.delete(frame.boxes_px, column, 0)
            if not (iou(frame.boxes_px[column][None], others) > 0.2).any():
                p.look = blend(p.look, frame.looks[[column]])
        for column in np.flatnonzero(identity < 0):
            belief = initial_state(frame.boxes_px[column], wh, motion)
            pose_belief = first_pose(frame.xy_px[column], frame.sigma_px[column], belief.body_px)
            present.append(_Person(born, belief, pose_belief, frame.looks[[column]], now))
            identity[column] = born
            born += 1
        found.append(FrameBoxes(identity, frame.boxes_px))
    return found


def today(frames: list[SeenFrame]) -> list[FrameBoxes]:
    """The tracker as it is: motion only, no cuts."""
    tracker = Tracker(IMAGE_WH)
    for number, frame in enumerate(frames):
        tracker.update(number, frame.time_s, Detections(frame.boxes_px, frame.scores))
    rows: dict[int, list[tuple[int, np.ndarray]]] = {}
    for track in tracker.tracks():
        for number, box in zip(track.frames.tolist(), track.boxes_px, strict=True):
            rows.setdefault(number, []).append((track.identity, box))
    return [
        FrameBoxes(np.array([i for i, _ in here], int), np.reshape([b for _, b in here], (-1, 4)))
        for here in (rows.get(number, []) for number in range(len(frames)))
    ]


def joined_clips(people: dict[str, np.ndarray], seed: int, pieces: int = 6) -> tuple[list[SeenFrame], list[int]]:
    """Pieces of real clips end to end: boxes and keypoints as the networks saw them, cuts as pose2d/io/shots.py finds
    them, and the frames where they really are. The truth is each clip's own tracks, which were looked at."""
    random = np.random.default_rng(seed)
    names = sorted(key[: -len("_row")] for key in people if key.endswith("_row"))
    order = [str(name) for name in random.permutation(names)[:pieces]]
    frames: list[SeenFrame] = []
    images, cuts, now, named = [], [], 0.0, 0
    for name in order:
        row, box, xy, score = (people[f"{name}_{kind}"] for kind in ("row", "box", "xy", "score"))
        numbers, times = people[f"{name}_frames"], people[f"{name}_time"]
        length = min(len(numbers), int(random.integers(5, 40)))
        first = int(random.integers(0, len(numbers) - length + 1))
        cuts += [len(frames)] if frames else []
        for index in range(first, first + length):
            here = np.flatnonzero(row[:, 0] == numbers[index])
            image = people[f"{name}_rgb"][index]
            now += float(times[index] - times[index - 1]) if index > first else 0.04
            sides = np.maximum(box[here, 2:] - box[here, :2], 1)
            soft = np.sqrt(AREA_OF_BOX * sides.prod(-1)[:, None] * COCO17.oks_variance)
            looks = appearance.describe(image, xy[here], score[here])
            sigma = np.where(score[here] > 0.2, 0.5 * soft, np.inf)
            truth = FrameBoxes(named + row[here, 1], box[here])
            frames.append(SeenFrame(box[here], np.full(len(here), 0.8), xy[here], sigma, looks, False, truth, now))
            images.append((len(images), now, image))
        named += int(row[:, 1].max()) + 1
    starts = {cut.frame for cut in find_cuts(images)}
    return [replace(frame, is_cut=number in starts) for number, frame in enumerate(frames)], cuts


def tracks_over_cuts(found: list[FrameBoxes], cuts: list[int]) -> int:
    """Identities seen on both sides of a cut."""
    shot = np.searchsorted(cuts, np.arange(len(found)), side="right")
    pairs = {(int(identity), int(s)) for frame, s in zip(found, shot, strict=True) for identity in frame.identity}
    return len(pairs) - len({identity for identity, _ in pairs})


TRACKERS: dict[str, Callable[[list[SeenFrame]], list[FrameBoxes]]] = {
    "today (motion)": today,
    "motion + cuts": partial(follow, use_pose=False, use_look=False),
    "+ pose": partial(follow, use_look=False),
    "+ appearance": partial(follow, use_pose=False),
    "all": follow,
}


def measure(kind: Kind, seeds: range, tracker: Callable[[list[SeenFrame]], list[FrameBoxes]]) -> list[IdentityScores]:
    """A shot is a video of its own: across a cut nobody is expected to be recognised."""
    scores = []
    for seed in seeds:
        frames = simulate(kind, seed)
        found = tracker(frames)
        cuts = [0, *(n for n, frame in enumerate(frames) if frame.is_cut), len(frames)]
        shot = np.searchsorted(cuts, np.arange(len(frames)), side="right")
        truth = [replace(f.truth, identity=f.truth.identity + kind.people * int(s)) for f, s in zip(frames, shot)]  # noqa: B905
        scores.append(identity_scores(truth, found))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--people", type=Path)
    arguments = parser.parse_args()
    if arguments.people:
        people = dict(np.load(arguments.people))
        joins = Table("joined clips", "tracker", "cuts", "found", "invented", "tracks over a cut", "switches", "IDF1")
        scenes = [joined_clips(people, seed) for seed in range(arguments.scenes)]
        for tracker, run in TRACKERS.items():
            results = [(run(frames), frames, cuts) for frames, cuts in scenes]
            told = [({n for n, f in enumerate(frames) if f.is_cut}, set(cuts)) for _, frames, cuts in results]
            scores = [identity_scores([f.truth for f in frames], found) for found, frames, _ in results]
            counts = (
                sum(len(cuts) for _, cuts in told),
                sum(len(starts & cuts) for starts, cuts in told),
                sum(len(starts - cuts) for starts, cuts in told),
                sum(tracks_over_cuts(found, cuts) for found, _, cuts in results),
                sum(score.switches for score in scores),
            )
            idf1 = float(np.mean([score.idf1 for score in scores]))
            joins.add_row(f"{arguments.scenes} x 6 pieces", tracker, *map(str, counts), f"{idf1:.3f}")
        Console(width=120).print(joins)
    table = Table("scene", "tracker", "switches", "IDF1", "HOTA", "AssA", "false tracks", "ms a frame")
    totals: dict[str, int] = {}
    for name in arguments.kinds:
        for tracker, run in TRACKERS.items():
            start = time.process_time()
            scores = measure(KINDS[name], range(arguments.scenes), run)
            cost = (time.process_time() - start) / arguments.scenes / 300
            switches = sum(s.switches for s in scores)
            totals[tracker] = totals.get(tracker, 0) + switches
            means = [float(np.mean([getattr(s, f) for s in scores])) for f in ("idf1", "hota", "association_accuracy")]
            false = sum(s.false_tracks for s in scores)
            table.add_row(name, tracker, str(switches), *(f"{m:.3f}" for m in means), str(false), f"{1e3 * cost:.2f}")
    Console(width=120).print(table)
    print("switches in all:", totals)


if __name__ == "__main__":
    main()
