"""Claim: MoveNet reads rendered people (mean OKS >= 0.6 over visible keypoints), frames are as hard
and easy as real footage, and the generator makes at least 5 frames a second at 640x360 on two
cores.

    python bench/synth.py DATASET [--every 10]     # measure on an existing data set
    python bench/synth.py --speed [--frames 40]    # time the generator

Boxes come from the truth, as COCO's do in the usual protocol. A keypoint counts as visible unless
another thing or person hides it or it lies outside the image; bystanders are not counted.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib.claim import Console, claim
from eval3dpw.sequences import image_path
from eval3dpw.synth.dataset import SynthSettings, make_dataset
from eval3dpw.synth.sequence import BEHIND_SELF, HIDDEN, SEEN
from fitmesh.commands.synth import in_processes
from pose2d.crops import estimate
from pose2d.types import keypoint_oks, l_squared

SMALLEST_PX2 = 100  # people with less in the image are left out


def measure(root: Path, every: int, console: Console) -> None:
    """Keypoints by MoveNet against the truth, all sequences together and by occlusion level."""
    model = pose2d.load("movenet-thunder")
    levels = []
    oks = []
    score = []
    visibility = []
    hidden_share = []
    height = []
    for path in sorted((root / "synthFiles").glob("*.npz")):
        with np.load(path) as file:
            truth = {name: file[name] for name in file.files}
        for frame in range(0, truth["visibility"].shape[1], every):
            people = np.flatnonzero(truth["area_px2"][:, frame] >= SMALLEST_PX2)
            if not len(people):
                continue
            image = cv2.imread(str(image_path(root, path.stem, frame)))[..., ::-1]
            result = estimate(model, np.ascontiguousarray(image), truth["boxes_px"][people, frame])
            off = ((result.xy_px.numpy() - truth["keypoints_px"][people, frame]) ** 2).sum(-1)
            falloff = l_squared(truth["area_px2"][people, frame], pose2d.COCO17)
            oks.append(keypoint_oks(off, falloff))
            score.append(result.score.numpy())
            visibility.append(truth["visibility"][people, frame])
            hidden_share.append(
                1 - truth["seen_px2"][people, frame] / truth["area_px2"][people, frame]
            )
            height.append(truth["boxes_px"][people, frame, 3] - truth["boxes_px"][people, frame, 1])
            levels += [str(truth["occlusion"])] * len(people)
    level = np.array(levels)
    _table(console, level, *map(np.concatenate, (oks, score, visibility, hidden_share, height)))


def _table(
    console: Console,
    level: np.ndarray,
    oks: np.ndarray,
    score: np.ndarray,
    visibility: np.ndarray,
    hidden_share: np.ndarray,
    height: np.ndarray,
) -> None:
    table = Table(title="MoveNet Thunder on rendered people, true boxes")
    for column in (
        "obstacles",
        "people",
        "OKS visible",
        "OKS seen",
        "OKS hidden",
        "score visible",
        "score hidden",
        "r(score, OKS)",
        "hidden keypoints",
        "hidden area",
        "height px",
    ):
        table.add_column(column, justify="right")
    for name in ("none", "some", "heavy", "all"):
        rows = np.ones(len(level), bool) if name == "all" else level == name
        if not rows.any():
            continue
        o = oks[rows]
        s = score[rows]
        v = visibility[rows]
        visible = v >= BEHIND_SELF
        hidden = v == HIDDEN
        in_image = v >= HIDDEN
        table.add_row(
            name,
            str(rows.sum()),
            f"{o[visible].mean():.3f}",
            f"{o[v == SEEN].mean():.3f}",
            _mean(o[hidden]),
            f"{s[visible].mean():.3f}",
            _mean(s[hidden]),
            f"{np.corrcoef(s[in_image], o[in_image])[0, 1]:.2f}",
            f"{hidden.mean():.1%}",
            f"{hidden_share[rows].mean():.1%}",
            f"{np.median(height[rows]):.0f}",
        )
    console.print(table)
    counts = (visibility >= BEHIND_SELF).sum(1)
    selected = counts > 0
    mean_oks = np.where(visibility >= BEHIND_SELF, oks, 0).sum(1)[selected] / counts[selected]
    deciles = " ".join(f"{q:.2f}" for q in np.quantile(mean_oks, np.linspace(0, 1, 11)))
    console.print(
        f"OKS of a person, deciles 0 to 10: {deciles}; below 0.5: {np.mean(mean_oks < 0.5):.1%}"
    )


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.3f}" if values.size else "-"


def speed(frames: int, jobs: int, console: Console) -> None:
    """The first sequences of a data set, with the loading of everything and without."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        list(
            make_dataset(
                Path(folder) / "warm", SynthSettings(sequences=1, frames=2, size=(96, 64), seed=1)
            )
        )  # numba compiles
        began = time.perf_counter()
        done = list(
            make_dataset(
                Path(folder) / "timed",
                SynthSettings(sequences=2 * jobs, frames=frames, seed=1),
                in_processes(jobs),
            )
        )
        took = time.perf_counter() - began
    count = sum(sequence.frames for sequence in done)
    console.print(
        f"{len(done)} sequences, {count} frames of 640x360 in {took:.1f} s with {jobs} processes, start-up included: "
        f"{count / took:.2f} frames/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", type=Path, nargs="?")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    console = Console(width=160)
    if options.dataset is None and not options.speed:
        parser.error("give a data set, or --speed")
    if options.dataset is not None:
        measure(options.dataset, options.every, console)
    if options.speed:
        speed(options.frames, options.jobs, console)
    peak = max(
        resource.getrusage(person).ru_maxrss
        for person in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    console.print(f"peak memory of one process {peak / 1024:.0f} MB")


if __name__ == "__main__":
    claim(main)
