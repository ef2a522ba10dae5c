"""Do identities hold where people cross, hide, embrace and come back, with and without cuts?

    python bench/identity.py [--scenes 20] [--seed 100] [--people people.npz]

Simulated people walk in front of each other: boxes, keypoints and colours with the noise that
detector, pose network and appearance have; the truth is exact. Every tracker gets the same boxes.
Seeds below 100 were used to choose constants, so figures are of seeds from 100 on. With --people
(the cache of bench/tuning/appearance.py) also real clips joined end to end, with the cuts that
pose2d/video/shots.py finds. Figures: bench/identity_metrics.py; trackers:
bench/identity_trackers.py (ByteTrack and OC-SORT where the package `trackers` is installed).
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.identity_metrics import FrameBoxes, IdentityScores, identity_scores
from bench.lib.identity_scenes import IMAGE_WH, KINDS, Kind, joined_clips, pose_of, simulate
from bench.lib.identity_trackers import Follow, contestants, follow, motion_only

__all__ = ["KINDS", "follow", "measure", "motion_only", "pose_of"]


def tracks_over_cuts(tracked: list[FrameBoxes], cuts: list[int]) -> int:
    """Identities seen on both sides of a cut."""
    shot = np.searchsorted(cuts, np.arange(len(tracked)), side="right")
    pairs = {
        (int(identity), int(s))
        for frame, s in zip(tracked, shot, strict=True)
        for identity in frame.identity
    }
    return len(pairs) - len({identity for identity, _ in pairs})


def measure(kind: Kind, seeds: range, tracker: Follow) -> list[IdentityScores]:
    """A shot is a video of its own: across a cut no person is expected to be recognised."""
    scores = []
    for seed in seeds:
        frames = simulate(kind, seed)
        tracked_boxes = tracker(frames, IMAGE_WH)
        cuts = [0, *(n for n, frame in enumerate(frames) if frame.is_cut), len(frames)]
        shot = np.searchsorted(cuts, np.arange(len(frames)), side="right")
        truth = [
            replace(f.truth, identity=f.truth.identity + kind.people * int(s))
            for f, s in zip(frames, shot, strict=False)
        ]
        scores.append(identity_scores(truth, tracked_boxes))
    return scores


def on_rendered(folder: Path, cache: Path | None) -> None:
    """Rendered people seen by detector and pose network."""
    from bench.lib.identity_rendered import Rendered, sequences

    kinds: dict[str, list[Rendered]] = {}
    for rendered_sequence in sequences(folder, cache):
        kinds.setdefault(rendered_sequence.name.split("_")[0], []).append(rendered_sequence)
    table = Table(
        "rendered",
        "tracker",
        "switches",
        "IDF1",
        "HOTA",
        "AssA",
        "false tracks",
        "tracks over a cut",
    )
    totals: dict[str, int] = {}
    for kind, scenes in kinds.items():
        for tracker, run in contestants().items():
            tracked_boxes = [run(scene.frames, scene.wh) for scene in scenes]
            scores = [
                identity_scores([f.truth for f in scene.frames], boxes)
                for scene, boxes in zip(scenes, tracked_boxes, strict=True)
            ]
            switches = sum(s.switches for s in scores)
            totals[tracker] = totals.get(tracker, 0) + switches
            means = [
                float(np.mean([getattr(s, f) for s in scores]))
                for f in ("idf1", "hota", "association_accuracy")
            ]
            over = sum(
                tracks_over_cuts(b, s.cuts) for s, b in zip(scenes, tracked_boxes, strict=True)
            )
            table.add_row(
                f"{kind} x{len(scenes)}",
                tracker,
                str(switches),
                *(f"{m:.3f}" for m in means),
                str(sum(s.false_tracks for s in scores)),
                str(over),
            )
    Console(width=120).print(table)
    Console().print(f"switches in all: {totals}")
    everything = [scene for scenes in kinds.values() for scene in scenes]
    reported = [({n for n, f in enumerate(s.frames) if f.is_cut}, set(s.cuts)) for s in everything]
    Console().print(
        f"cuts: {sum(len(c) for _, c in reported)}, found {sum(len(a & c) for a, c in reported)}, "
        f"invented {sum(len(a - c) for a, c in reported)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenes", type=int, default=20, help="simulated ones of each kind; 0: none"
    )
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--people", type=Path)
    parser.add_argument("--seed", type=int, default=100, help="of the first scene")
    parser.add_argument(
        "--rendered",
        type=Path,
        help="made by `fitmesh synth --scenes crossing,embrace,behind,cuts`",
    )
    parser.add_argument("--cache", type=Path, help="of what the networks see in it")
    arguments = parser.parse_args()
    if arguments.rendered:
        on_rendered(arguments.rendered, arguments.cache)
    trackers = contestants()
    seeds = range(arguments.seed, arguments.seed + arguments.scenes)
    if arguments.people:
        people = dict(np.load(arguments.people))
        joins = Table(
            "joined clips",
            "tracker",
            "cuts",
            "found",
            "invented",
            "tracks over a cut",
            "switches",
            "IDF1",
        )
        scenes = [joined_clips(people, seed) for seed in seeds]
        for tracker, run in trackers.items():
            results = [(run(frames, IMAGE_WH), frames, cuts) for frames, cuts in scenes]
            reported = [
                ({n for n, f in enumerate(frames) if f.is_cut}, set(cuts))
                for _, frames, cuts in results
            ]
            scores = [
                identity_scores([f.truth for f in frames], result) for result, frames, _ in results
            ]
            counts = (
                sum(len(cuts) for _, cuts in reported),
                sum(len(starts & cuts) for starts, cuts in reported),
                sum(len(starts - cuts) for starts, cuts in reported),
                sum(tracks_over_cuts(result, cuts) for result, _, cuts in results),
                sum(score.switches for score in scores),
            )
            idf1 = float(np.mean([score.idf1 for score in scores]))
            joins.add_row(
                f"{arguments.scenes} x 6 pieces", tracker, *map(str, counts), f"{idf1:.3f}"
            )
        Console(width=120).print(joins)
    if not arguments.scenes:
        return
    table = Table(
        "scene", "tracker", "switches", "IDF1", "HOTA", "AssA", "false tracks", "ms a frame"
    )
    totals: dict[str, int] = {}
    for name in arguments.kinds:
        for tracker, run in trackers.items():
            start = time.process_time()
            scores = measure(KINDS[name], seeds, run)
            cost = (time.process_time() - start) / arguments.scenes / 300
            switches = sum(s.switches for s in scores)
            totals[tracker] = totals.get(tracker, 0) + switches
            means = [
                float(np.mean([getattr(s, f) for s in scores]))
                for f in ("idf1", "hota", "association_accuracy")
            ]
            false = sum(s.false_tracks for s in scores)
            table.add_row(
                name,
                tracker,
                str(switches),
                *(f"{m:.3f}" for m in means),
                str(false),
                f"{1e3 * cost:.2f}",
            )
    Console(width=120).print(table)
    Console().print(f"switches in all: {totals}")


if __name__ == "__main__":
    claim(main)
