"""Claim: the detector need not look at every frame.

    python bench/people.py VIDEO [VIDEO ..] [--threads 2]

Each video is read twice, with the detector on every frame and as `fitmesh run` does it. Printed:
people found, share of frames the detector looked at, person-frames found one way only, OKS between
the keypoints of both ways (the mean, and the share above 0.9), and seconds on the clock.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from fitmesh.inputs import open_clip
from fitmesh.stages import people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from pose2d.detect.boxes import iou
from pose2d.people import PeopleFinder
from pose2d.skeletons import HALPE26
from pose2d.tracking.identity import People
from pose2d.tracking.tracker import Tracker
from pose2d.types import AREA_OF_BOX, keypoint_oks, l_squared

SAME_IOU = 0.5  # boxes of one person in one frame, found both ways


def found(video: Path, threads: int, every_frame: bool) -> tuple[People, float]:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(open_clip(video), RunSettings(threads=threads), Path(folder), Reporter())
        _ = job.loader.networks
        info = job.clip.info
        finder = PeopleFinder(
            people._detect(job), people._estimate(job), every_frame, by_boxes=True
        )
        tracker = Tracker((info.width_px, info.height_px), job.settings.tracker)
        start = time.perf_counter()
        return finder.find(
            job.clip.frames(), float(info.rate), tracker, threads
        ), time.perf_counter() - start


def compared(first: People, second: People) -> tuple[int, np.ndarray]:
    """Person-frames of either without a partner in the other, and the mean OKS of each pair."""
    alone = 0
    oks = []
    rows = [(p.detections.frame, p.detections.box_px) for p in (first, second)]
    for frame in np.unique(np.concatenate([rows[0][0], rows[1][0]])):
        a, b = (np.flatnonzero(frames == frame) for frames, _ in rows)
        overlap = iou(rows[0][1][a], rows[1][1][b]) >= SAME_IOU
        alone += int((~overlap.any(1)).sum() + (~overlap.any(0)).sum())
        for i, j in zip(*np.nonzero(overlap), strict=True):
            box = rows[0][1][a[i]]
            area = AREA_OF_BOX * np.prod(box[2:] - box[:2])
            away = first.detections.xy_px[a[i]] - second.detections.xy_px[b[j]]
            values = keypoint_oks(
                np.square(away).sum(-1)[None], l_squared(np.array([area]), HALPE26)
            )
            oks.append(float(np.asarray(values)[0, :17].mean()))
    return alone, np.array(oks)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("videos", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    table = Table(
        "video", "people", "looked at", "one way only", "mean OKS", "above 0.9", "seconds"
    )
    for video in arguments.videos:
        (every, slow), (seldom, fast) = (
            found(video, arguments.threads, way) for way in (True, False)
        )
        alone, oks = compared(every, seldom)
        total = len(every.detections)
        table.add_row(
            video.name,
            f"{len(every.same_as)}, {len(seldom.same_as)}",
            f"{seldom.detected.mean():.0%}",
            f"{alone} of {total}",
            f"{oks.mean():.4f}",
            f"{(oks > 0.9).mean():.1%}",
            f"{slow:.1f}, {fast:.1f}",
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    claim(main)
