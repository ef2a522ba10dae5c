"""Do identities hold? Our tracker, plain overlap, and where installed ByteTrack and OC-SORT of the
package `trackers`.

python bench/tracker.py                                     people who cross, vanish and come back,
with exact truth python bench/tracker.py --videos DIR [--size 512]           also
park_two_people.mp4 and one_by_one.mp4 from DIR python bench/tracker.py --videos DIR --cache
boxes.npz      detect once, then compare again and again

`trackers` needs an OpenCV with windows beside ours, so it is not a dependency: pip install
--no-deps --target ...
"""

import argparse
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from pose2d.detect.detector import Boxes, DetectorOptions, iou
from pose2d.detect.multipose import MultiPose
from pose2d.tracking.tracker import Tracker, assign
from pose2d.types import Detections
from pose2d.video.frames import Video

BoxesOfFrames = list[tuple[int, float, Boxes]]  # frame number, seconds, what the detector found
Tracks = list[list[tuple[int, np.ndarray]]]  # for every identity: frame number, box


@dataclass(frozen=True)
class Scene:
    """Detections, and who each box belongs to."""

    boxes: BoxesOfFrames
    image_wh: tuple[int, int]
    people: int
    who: Callable[[int, np.ndarray], int | None]  # frame number and box -> person, None for nobody


def ours(scene: Scene) -> Tracks:
    tracker = Tracker(scene.image_wh)
    tracks = dict[int, list[tuple[int, np.ndarray]]]()
    for frame, seconds, found in scene.boxes:
        seen = Detections.in_frame(frame, seconds, found.boxes_px, found.scores)
        for number, box in zip(tracker.update(seconds, seen).tolist(), found.boxes_px, strict=True):
            tracks.setdefault(number, []).append((frame, box))
    return [tracks[number] for number in tracker.confirmed()]


def overlap(scene: Scene) -> Tracks:
    """A box continues whoever it overlaps most with, up to 2 s later; no motion, no second look at
    doubtful boxes.
    """
    tracks: Tracks = []
    seen: list[float] = []
    for frame, seconds, found in scene.boxes:
        boxes = found.boxes_px[found.scores >= 0.3]
        alive = [i for i, last in enumerate(seen) if seconds - last <= 2]
        cost = -iou(np.reshape([tracks[i][-1][1] for i in alive], (-1, 4)), boxes)
        pairs = dict((column, alive[row]) for row, column in assign(cost, -0.2))
        for column, box in enumerate(boxes):
            if column not in pairs:
                tracks.append([])
                seen.append(seconds)
                pairs[column] = len(tracks) - 1
            tracks[pairs[column]].append((frame, box))
            seen[pairs[column]] = seconds
    return [track for track in tracks if len(track) >= 3]


def from_package(name: str) -> Callable[[Scene], Tracks]:
    import supervision  # type: ignore[import-not-found]
    import trackers  # type: ignore[import-not-found]

    def run(scene: Scene) -> Tracks:
        times = [seconds for _, seconds, _ in scene.boxes]
        rate = (len(times) - 1) / (times[-1] - times[0])
        tracker = getattr(trackers, name)(
            frame_rate=rate, lost_track_buffer=60, high_conf_det_threshold=0.3
        )
        tracks: dict[int, list[tuple[int, np.ndarray]]] = {}
        for frame, _, found in scene.boxes:
            given = supervision.Detections(
                xyxy=found.boxes_px.reshape(-1, 4),
                confidence=found.scores,
                class_id=np.zeros(len(found), int),
            )
            result = tracker.update(given)
            for box, identity in zip(result.xyxy, result.tracker_id, strict=True):
                if identity >= 0:
                    tracks.setdefault(int(identity), []).append((frame, box))
        return list(tracks.values())

    return run


def score(scene: Scene, tracks: Tracks) -> tuple[int, int, int, float]:
    """Identities; those that mix people; changes of identity along a person; share of people's
    boxes kept.
    """
    by_frame: dict[int, list[tuple[int, np.ndarray]]] = {}
    for identity, track in enumerate(tracks):
        for frame, box in track:
            by_frame.setdefault(frame, []).append((identity, box))
    names: dict[int, list[int | None]] = {person: [] for person in range(scene.people)}
    members: dict[int, set[int]] = {identity: set() for identity in range(len(tracks))}
    for frame, _, found in scene.boxes:
        here = by_frame.get(frame, [])
        for box, score in _rows(found):
            person = scene.who(frame, box)
            if person is None or score < 0.3:
                continue
            same = (
                iou(box[None], np.reshape([b for _, b in here], (-1, 4)))[0] > 0.8
            )  # some trackers smooth
            identity = here[int(np.argmax(same))][0] if same.any() else None
            names[person].append(identity)
            if identity is not None:
                members[identity].add(person)
    kept = {person: [n for n in given if n is not None] for person, given in names.items()}
    changes = sum(a != b for given in kept.values() for a, b in pairwise(given))
    share = sum(map(len, kept.values())) / max(1, sum(map(len, names.values())))
    return len(tracks), sum(len(people) > 1 for people in members.values()), changes, share


def _rows(found: Boxes) -> Iterator[tuple[np.ndarray, float]]:
    return zip(found.boxes_px, found.scores, strict=True)


def crossing(seed: int) -> Scene:
    """Four people walk back and forth through each other for 10 s; a tenth of the boxes is missing,
    behind somebody nearer there is none, and scores wander."""
    random = np.random.default_rng(seed)
    size = random.uniform(120, 260, 4)
    start = random.uniform(100, 900, 4)
    speed = random.uniform(40, 160, 4) * random.choice([-1, 1], 4)
    boxes: BoxesOfFrames = []
    truth: dict[tuple[int, tuple[float, ...]], int] = {}
    for frame in range(300):
        seconds = frame / 30
        x = 100 + np.abs((start + speed * seconds) % 1600 - 800)  # to and fro between 100 and 900
        sway = 0.02 * size * np.sin(2 * np.pi * seconds * 1.8 + start)
        exact = np.stack(
            [x - size / 6, 300 + sway - size / 2, x + size / 6, 300 + sway + size / 2], 1
        )
        rows = []
        for i in np.argsort(-size):
            hidden = any(
                size[j] > size[i] and iou(exact[i][None], exact[j][None])[0, 0] > 0.45
                for j in range(4)
            )
            if hidden or random.random() < 0.1:
                continue
            box = exact[i] + random.normal(0, 0.015 * size[i], 4)
            truth[frame, tuple(np.round(box, 3))] = int(i)
            rows.append((box, float(np.clip(random.normal(0.75, 0.15), 0.1, 1))))
        rows.sort(key=lambda row: -row[1])
        found = Boxes(np.reshape([b for b, _ in rows], (-1, 4)), np.array([s for _, s in rows]))
        boxes.append((frame, seconds, found))
    return Scene(
        boxes, (1000, 600), 4, lambda frame, box: truth.get((frame, tuple(np.round(box, 3))))
    )


# Where the centres of the two people in the park are, read off the video: frame -> x, y in pixels.
PARK = (
    {
        0: (652, 270),
        40: (653, 272),
        80: (634, 280),
        100: (646, 269),
        116: (697, 279),
        126: (749, 273),
        138: (799, 273),
        150: (805, 256),
        156: (816, 290),
        164: (870, 337),
        168: (890, 300),
        176: (934, 258),
        184: (1045, 439),
        188: (1062, 590),
        192: (1123, 755),
        200: (1160, 820),
        212: (1278, 756),
        224: (1496, 711),
        229: (1540, 700),
    },
    {
        36: (1570, 750),
        44: (1528, 754),
        60: (1389, 741),
        80: (1223, 731),
        100: (1030, 727),
        120: (832, 723),
        140: (621, 718),
        160: (434, 730),
        180: (205, 731),
        196: (77, 727),
        212: (23, 700),
    },
)
# When each of the six people is in the image who come one by one: first and last frame.
ONE_BY_ONE = ((55, 215), (222, 460), (500, 712), (740, 890), (920, 1215), (1222, 1375))


def in_the_park(frame: int, box: np.ndarray) -> int | None:
    centre = (box[:2] + box[2:]) / 2
    for person, path in enumerate(PARK):
        frames = list(path)
        if frames[0] <= frame <= frames[-1]:
            x, y = (
                np.interp(frame, frames, [point[axis] for point in path.values()])
                for axis in (0, 1)
            )
            if np.hypot(*(centre - (x, y))) < 170 and box[3] - box[1] > 140:
                return person
    return None


def one_by_one(frame: int, box: np.ndarray) -> int | None:
    return next(
        (
            i
            for i, (first, last) in enumerate(ONE_BY_ONE)
            if first <= frame <= last and box[3] - box[1] > 100
        ),
        None,
    )


def detected(video: Path, size: int) -> BoxesOfFrames:
    detector = MultiPose(DetectorOptions(long_side=size, score_threshold=0.1))
    return [(f.index, float(f.time_s), detector.detect(f.rgb)) for f in Video(video).frames()]


def real_scenes(videos: Path, size: int, cache: Path | None) -> dict[str, Scene]:
    kinds = {"park_two_people": (2, in_the_park), "one_by_one": (6, one_by_one)}
    stored = dict(np.load(cache)) if cache and cache.is_file() else {}
    scenes = {}
    for name, (people, who) in kinds.items():
        info = Video(videos / f"{name}.mp4").info
        if name not in stored:
            stored[name] = np.array(
                [
                    (f, s, *b, score)
                    for f, s, found in detected(videos / f"{name}.mp4", size)
                    for b, score in _rows(found)
                ]
            )
        rows = stored[name]
        boxes = [
            (f, f / float(info.rate), Boxes(rows[rows[:, 0] == f, 2:6], rows[rows[:, 0] == f, 6]))
            for f in range(info.frames or 0)
        ]
        scenes[f"{name} ({people} people)"] = Scene(
            boxes, (info.width_px, info.height_px), people, who
        )
    if cache:
        np.savez_compressed(cache, **stored)  # type: ignore[arg-type]
    return scenes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--size", type=int, default=512, help="longer side the detector sees")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--scenes", type=int, default=20, help="synthetic scenes")
    arguments = parser.parse_args()
    contestants: dict[str, Callable[[Scene], Tracks]] = {"ours": ours, "overlap only": overlap}
    try:
        contestants |= {name: from_package(name) for name in ("ByteTrackTracker", "OCSORTTracker")}
    except ImportError:
        print("the package `trackers` is not installed: compared with overlap only")
    groups = {
        f"crossing x{arguments.scenes} (4 people)": [
            crossing(seed) for seed in range(arguments.scenes)
        ]
    }
    if arguments.videos:
        real = real_scenes(arguments.videos, arguments.size, arguments.cache)
        groups |= {name: [scene] for name, scene in real.items()}
    table = Table(
        "scene", "tracker", "identities", "mixed", "changes", "boxes kept", "ms/frame", "time ratio"
    )
    for group, scenes in groups.items():
        base_s = 0.0
        for name, contestant in contestants.items():
            start = time.perf_counter()
            results = [contestant(scene) for scene in scenes]
            seconds = (time.perf_counter() - start) / sum(len(scene.boxes) for scene in scenes)
            base_s = base_s or seconds
            figures = np.mean([score(s, r) for s, r in zip(scenes, results, strict=True)], 0)
            table.add_row(
                group,
                name,
                *(f"{x:g}" for x in figures[:3].round(2)),
                f"{figures[3]:.1%}",
                f"{1e3 * seconds:.2f}",
                f"{seconds / base_s:.2f}",
            )
    Console(width=130).print(table)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    claim(main)
