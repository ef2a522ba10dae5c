"""What shots, appearance, tracking and the second look cost in the first stage of a run.

    python bench/identity_cost.py VIDEO [VIDEO ..]

Processor time of each part on one thread, in ms a frame, and as a share of the stage (decoding,
detector, pose network and calibration head included); then who was found, and every event.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d.people
from bench.lib.claim import Console, claim
from fitmesh.inputs import open_clip
from fitmesh.stages import people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from pose2d.tracking.tracker import Tracker
from pose2d.video.shots import ShotMarker

PARTS: dict[str, tuple[Any, str]] = {
    "shots": (ShotMarker, "_look"),
    "appearance": (pose2d.people, "describe"),
    "tracker": (Tracker, "update"),
    "second look": (pose2d.people, "collect_people"),
}


@contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Processor seconds of each part, while this is open."""
    spent = dict.fromkeys(PARTS, 0.0)
    originals = {part: getattr(owner, name) for part, (owner, name) in PARTS.items()}

    def wrap(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                spent[part] += time.thread_time() - start

        return call

    for part, (owner, name) in PARTS.items():
        setattr(owner, name, wrap(part, originals[part]))
    try:
        yield spent
    finally:
        for part, (owner, name) in PARTS.items():
            setattr(owner, name, originals[part])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument(
        "--out", type=Path, help="keep tracks.npz and keypoints.npz in a folder a video"
    )
    arguments = parser.parse_args()
    table = Table(
        "video",
        "frames",
        "shots at",
        "people",
        "stage, ms",
        *(f"{part}, ms" for part in PARTS),
        "share",
    )
    lines = []
    for video in arguments.videos:
        with tempfile.TemporaryDirectory() as folder, timed() as spent:
            out = Path(folder) if arguments.out is None else arguments.out / video.stem
            out.mkdir(parents=True, exist_ok=True)
            job = Job(open_clip(video), RunSettings(threads=1), out, Reporter())
            start = time.process_time()
            people.make(job, people.cache_key(job))
            stage = time.process_time() - start
            found = people.read_tracks(out)
        per_frame = [1e3 * seconds / len(found.frames) for seconds in (stage, *spent.values())]
        starts = found.shot_first_frame.tolist()
        shown = ", ".join(map(str, starts[:8])) + (", .." if len(starts) > 8 else "")
        table.add_row(
            video.name,
            str(len(found.frames)),
            shown,
            str(len(found.same_as)),
            *(f"{ms:.2f}" for ms in per_frame),
            f"{sum(per_frame[1:]) / per_frame[0]:.1%}",
        )
        for identity, track in found.people.items():
            span = f"frames {track.frame[0]} to {track.frame[-1]}"
            lines.append(f"{video.name}: person {identity}, {span}, seen in {len(track)}")
        lines += [f"{video.name}: {event.text}" for event in found.events]
    Console(width=140).print(table)
    Console().print("\n".join(lines))


if __name__ == "__main__":
    claim(main)
