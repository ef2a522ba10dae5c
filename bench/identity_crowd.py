"""Time and memory of tracking and the second look in a crowd.

python bench/identity_crowd.py [--people 500] [--frames 60]

Simulated people walk to and fro in a 1080p image, each seen in 95 % of the frames; boxes, keypoints
and colours are given, so no network runs. Prints processor seconds of the tracker and of the second
look, the memory they add at their peak, and how many identities are found.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.identity_metrics import FrameBoxes
from bench.lib.identity_scenes import FPS, SeenFrame, box_of, pose_of
from bench.lib.identity_trackers import follow_online, settled
from pose2d.tracking.appearance import PARTS, SIZE
from pose2d.types import Appearance

IMAGE_WH = (1920, 1080)


def crowd(people: int, frames: int, seed: int = 0) -> list[SeenFrame]:
    random = np.random.default_rng(seed)
    height = random.uniform(60, 120, people)
    speed = random.uniform(-60, 60, people)
    x = random.uniform(0, 1900, people)
    y = random.uniform(200, 1000, people)
    colours = 5 * random.normal(size=(people, len(PARTS), SIZE))
    out = []
    for number in range(frames):
        places = np.stack([x + speed * number / FPS, y], 1)
        phases = 0.2 * number + np.arange(people)
        poses = np.stack([pose_of(*each, 1.0) for each in zip(places, height, phases, strict=True)])
        boxes = np.stack(
            [box_of(*each) for each in zip(poses, height, strict=True)]
        ) + random.normal(size=(people, 4))
        seen = np.flatnonzero(random.random(people) > 0.05)
        look = Appearance(
            colours[seen] + random.normal(size=colours[seen].shape),
            np.full((len(seen), len(PARTS)), 0.7),
        )
        out.append(
            SeenFrame(
                boxes[seen],
                np.full(len(seen), 0.8),
                poses[seen],
                np.full((len(seen), 17), 0.86),
                look,
                False,
                FrameBoxes(seen, boxes[seen]),
                number / FPS,
            )
        )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--people", type=int, default=500)
    parser.add_argument("--frames", type=int, default=60)
    arguments = parser.parse_args()
    frames = crowd(arguments.people, arguments.frames)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    follow_online(frames, IMAGE_WH, cues=True, cuts=True)
    tracked = time.process_time()
    result = settled(frames, IMAGE_WH)
    both = time.process_time() - tracked
    tracker_s = tracked - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    found = len(np.unique(result.identity[result.identity >= 0]))
    console = Console()
    console.print(f"{arguments.people} people, {arguments.frames} frames: {found} identities")
    console.print(
        f"tracker {tracker_s:.1f} s, second look {both - tracker_s:.1f} s of processor time; {peak:.0f} MiB more memory"
    )


if __name__ == "__main__":
    claim(main)
