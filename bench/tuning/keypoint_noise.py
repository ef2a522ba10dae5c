"""Claim: a 2D network's errors last. What one frame gets wrong, the next gets wrong too, so frames
are not independent.

A network estimates the keypoints of rendered people, whose true ones are known; COCO's 17 are
compared. Errors of keypoints in view are put in units of their OKS tolerance, and each keypoint's
error over time is taken apart: the part that is the same throughout, and the rest, which a
first-order process forgets with some time constant. `bench.lib.simulation.Noise` draws its errors
so (constant_share, memory_s).

    python bench/tuning/keypoint_noise.py --data synth_dev [--split validation]
"""

import argparse
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.lib.claim import Console, claim
from bench.lib.simulation import Noise
from eval3dpw.bodies import body_set
from eval3dpw.synth.dataset import truth_path
from eval3dpw.synth.sequence import SEEN
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings
from fitmesh.eval_3dpw.keypoints import KeypointEstimator, true_keypoints_px
from fitmesh.eval_3dpw.sequences import eval_sequences
from pose2d.skeletons import COCO17
from pose2d.types import l_squared

LARGEST = (
    1.0,
    2.0,
    3.0,
)  # in tolerances; beyond it an error is a confusion, which `Noise.outliers` stands for
LAGS = 30  # frames
SHOWN = (1, 3, 8, 18, 29)


def errors(settings: EvalSettings) -> Iterator[np.ndarray]:
    """Each person's errors [T, K, 2] by frame, in units of the keypoint's tolerance l; NaN where
    not in view.
    """
    bodies = body_set(None)
    estimator = KeypointEstimator(settings)
    for sequence in eval_sequences(settings, []):
        people = estimator.estimate(sequence, bodies, lambda frames: None)
        for track, person in zip(sequence.tracks, people, strict=True):
            scale = np.sqrt(l_squared(person.area_px2, COCO17))
            exact = true_keypoints_px(track, sequence.camera, bodies)
            with np.errstate(divide="ignore", invalid="ignore"):
                error = (person.xy_px[:, : COCO17.size] - exact) / scale[..., None]  # [T, 17, 2]
            with np.load(truth_path(settings.data, sequence.name)) as file:
                observed = file["visibility"][track.person, track.frame] == SEEN
            full = np.full((track.frame[-1] + 1, COCO17.size, 2), np.nan)
            full[track.frame] = np.where(observed[..., None], error, np.nan)
            yield full


def fit_process(people: list[np.ndarray]) -> tuple[np.ndarray, float, float]:
    """Correlation of errors by lag [LAGS], and the lasting share a and time constant tau of a + (1
    - a) exp(-t / tau).

    Raw products, not those of deviations from a track's own mean: a mean over a short track takes
    some of the slow part with it.
    """
    moments = []
    for lag in range(LAGS):
        products = [error[lag:] * error[: len(error) - lag] for error in people if len(error) > lag]
        moments.append(
            sum(np.nansum(p) for p in products) / sum(np.isfinite(p).sum() for p in products)
        )
    correlation = np.array(moments) / moments[0]
    time_s = np.arange(LAGS) / FPS
    best = min(
        (float(((a + (1 - a) * np.exp(-time_s / tau) - correlation) ** 2).sum()), a, tau)
        for a in np.linspace(0, 0.99, 100)
        for tau in np.geomspace(0.01, 1, 80)
    )
    return correlation, best[1], best[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a set made by `fitmesh synth`")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--pose-model", default=EvalSettings.pose_model)
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    people = list(
        errors(
            EvalSettings(
                chosen.data, split=chosen.split, pose_model=chosen.pose_model, confidence=("raw",)
            )
        )
    )
    table = Table(
        title=f"{len(people)} people, {chosen.pose_model}: correlation of errors, by the seconds between them"
    )
    for column in (
        "errors up to",
        "keypoints",
        *(f"{lag / FPS:.2f}" for lag in SHOWN),
        "constant",
        "time constant",
    ):
        table.add_column(column, justify="right")
    for largest in LARGEST:
        small = [
            np.where(np.linalg.norm(error, axis=-1, keepdims=True) < largest, error, np.nan)
            for error in people
        ]
        correlation, lasting, memory_s = fit_process(small)
        count = sum(int(np.isfinite(error[..., 0]).sum()) for error in small)
        row = (f"{largest:g} l", f"{count:,}", *(f"{correlation[lag]:.2f}" for lag in SHOWN))
        table.add_row(*row, f"{lasting:.2f}", f"{memory_s:.2f} s")
    used = Noise()
    table.add_row(
        "in use", "", *[""] * len(SHOWN), f"{used.constant_share:.2f}", f"{used.memory_s:.2f} s"
    )
    console = Console(width=120)
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    claim(main)
