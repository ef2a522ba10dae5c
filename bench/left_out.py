"""How much the pixels weigh against what is believed: keypoints of real video are left out and
predicted.

    python bench/left_out.py [--clips real_keypoints] [--choose | --report] [--set NAME=VALUE,NAME=VALUE ...]

Real clips have no truth in 3D, but a keypoint that the fit never saw is a truth in the image. Left
out are single keypoints for half a second, a whole arm or leg over the whole track, and whole
frames; the fit predicts each with the deviation that it states relative to the pelvis, and is
scored by the log-likelihood of what the network saw there (nats per keypoint, errors in units of l)
and by how many lie in the regions of 68 and 95 %. `--set` fits with other constants, once for each
time it is given; they are chosen on half of the clips (--choose) and reported on the other half
(--report, the default).
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from rich.table import Table
from scipy.stats import t as student
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.scene_clips import CHOOSING, read_clip
from fitting import problem_setup, stated
from fitting.body import Body
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.camera.focal import focal_prior
from fitting.init import lifter
from fitting.keypoints import weights
from fitting.solver.terms import acceleration
from fitting.stated import ONE_STD
from fitting.track import fit_track
from pose2d.base.errors import UserError
from pose2d.skeletons import HALPE26
from pose2d.types import Keypoints, l_squared

DATA = Path(__file__).resolve().parents[2] / "shared/data/real_keypoints"
UNCALIBRATED = "uncalibrated"  # for --set: Gauss-Newton deviations as they are
CONSTANTS = {  # of the balance, by the names that --set takes
    "annotator": (weights, "ANNOTATOR_STD"),
    "share": (weights, "LEAST_SHARE"),
    "prior": (problem_setup, "PRIOR_BESIDE_GUESS"),
    "guess": (lifter, "SEEN_TWICE"),
    "motion": (problem_setup, "MOTION_WEIGHT"),
    "doubt": (acceleration, "MOTION_FACTOR"),
    "predicts": (sys.modules[__name__], "PREDICTS"),
}
LIMBS = {"arm": ([7, 9], [8, 10]), "leg": ([13, 15, 20, 22, 24], [14, 16, 21, 23, 25])}
JOINT_OF = [15] * 5 + [
    16,
    17,
    18,
    19,
    20,
    21,
    1,
    2,
    4,
    5,
    7,
    8,
    15,
    12,
    1,
    10,
    11,
    10,
    11,
    7,
    8,
]  # of each keypoint
LONGEST, SHORTEST = 90, 18  # frames of a track
SEEN = 0.5  # confidence times presence of a keypoint whose prediction is scored
# What is stated is the distance to the truth, and a network's errors are alike: where it sees a
# keypoint that was left out is predicted by so much of it, with Student's t of so many degrees of
# freedom (--choose --set predicts=..).
PREDICTS, FREEDOM = 0.37, 3.0
STRAY, STRAY_L = (
    0.02,
    8.0,
)  # so many of the network's keypoints lie anywhere: share, and how far in units of l


@dataclass(frozen=True)
class RealTrack:
    clip: str
    keypoints: Keypoints  # [T, 26]
    frame: np.ndarray  # [T]
    fps: float
    camera: Camera


@dataclass(frozen=True)
class Score:
    """Hold the scores of N left-out keypoints."""

    nats: Tensor  # [N] log-likelihood of the error in units of l
    distance: Tensor  # [N] in units of l
    # [N, 2] of an error below this one, along x and y: uniform where deviations are right
    probability: Tensor


def tracks(root: Path, choosing: bool) -> Iterator[RealTrack]:
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if (folder.name in CHOOSING) != choosing:
            continue
        clip = read_clip(folder)
        camera = Camera.from_focal(focal_prior(clip.size_px).focal_px, clip.size_px)
        for identity, points in clip.keypoints.items():
            if len(points) >= SHORTEST:
                rows = slice(0, LONGEST)
                yield RealTrack(
                    clip.name, points.rows(rows), clip.frame[identity][rows], clip.fps, camera
                )


def left_out(track: RealTrack, seed: int) -> dict[str, np.ndarray]:
    """What is hidden from the fit, [T, 26] each."""
    frames = len(track.keypoints)
    rng = np.random.default_rng(seed)
    half_second = max(1, round(0.5 * track.fps))
    subset = rng.random((-(-frames // half_second), 26)) < 0.15
    masks = {"keypoints": np.repeat(subset, half_second, 0)[:frames]}
    for name, sides in LIMBS.items():
        masks[name] = np.zeros((frames, 26), bool)
        masks[name][:, sides[seed % 2]] = True
    gap = max(2, round(0.3 * track.fps))
    masks["frames"] = np.repeat(np.arange(frames)[:, None] // gap % 4 == 2, 26, 1)
    return masks


def score(track: RealTrack, hidden: np.ndarray, body: Body) -> Score:
    mask = torch.from_numpy(hidden)
    observed = track.keypoints
    inputs = replace(
        observed,
        presence=observed.presence.masked_fill(mask, 0),
        confidence=observed.confidence.masked_fill(mask, 0),
    )
    result = fit_track(inputs, track.frame, track.camera, body, fps=track.fps)
    rows_at = torch.from_numpy(np.searchsorted(result.frame, track.frame))
    points = body.at(result.fit.params.rows(rows_at)).keypoints
    std_m = PREDICTS * result.fit.joint_std_relative_mm[rows_at][:, JOINT_OF, :2] / 1000  # type: ignore[index]
    assert observed.area_px2 is not None
    unit = l_squared(observed.area_px2, HALPE26).sqrt()[..., None]
    std = (std_m * (track.camera.mean_focal_px / points[..., 2:]) / unit).nan_to_num(nan=1.5)
    error = (observed.xy_px - track.camera.project(points)) / unit
    counts = mask & (observed.confidence * observed.presence > SEEN)
    head = observed.error
    assert head is not None
    variance = weights.joint_variance(head.axis_sigma.square()) + std.square()[..., None, :]
    scale = variance.sqrt() / float(student.ppf((1 + ONE_STD) / 2, FREEDOM))
    squared = (error[..., None, :] / scale).square().sum(-1)
    log_density = head.weight.log() - math.log(2 * math.pi) - scale.log().sum(-1)
    log_density = log_density - (FREEDOM + 2) / 2 * torch.log1p(squared / FREEDOM)
    stray = -math.log(2 * math.pi * STRAY_L**2) - error.square().sum(-1) / (2 * STRAY_L**2)
    nats = torch.logaddexp(
        math.log(1 - STRAY) + torch.logsumexp(log_density, -1), math.log(STRAY) + stray
    )
    cdf = torch.from_numpy(student.cdf((error[..., None, :] / scale).numpy(), FREEDOM)).float()
    below = (head.weight[..., None] * cdf).sum(-2)
    return Score(nats[counts], error.norm(dim=-1)[counts], below[counts])


def cells(scores: list[Score]) -> list[str]:
    nats, distance = (
        torch.cat([getattr(clip_score, name) for clip_score in scores])
        for name in ("nats", "distance")
    )
    below = torch.cat([clip_score.probability for clip_score in scores])
    inside = [100 * float(((below > p) & (below < 1 - p)).float().mean()) for p in (0.16, 0.025)]
    return [f"{nats.mean():.3f}", f"{distance.median():.2f}", f"{inside[0]:.0f} / {inside[1]:.0f}"]


def row(settings: str, chosen: list[RealTrack], kinds: list[str], body: Body) -> list[str]:
    began = time.monotonic()
    scores = dict[str, list[Score]]()
    with ExitStack() as stack:
        for pair in settings.split(",") if settings else ():
            name, _, value = pair.partition("=")
            if name == UNCALIBRATED:
                from bench.lib.stated_people import NEUTRAL

                stack.enter_context(
                    mock.patch.object(stated, "stated_errors", return_value=NEUTRAL)
                )
                name, value = "predicts", "1"
            if name not in CONSTANTS:
                raise UserError(f"--set {pair}: choose {', '.join(CONSTANTS)}.")
            stack.enter_context(mock.patch.object(*CONSTANTS[name], float(value)))
        for seed, track in enumerate(chosen):
            for kind, hidden in left_out(track, seed).items():
                if kind in kinds:
                    scores.setdefault(kind, []).append(score(track, hidden, body))
    every = [clip_scores for part in scores.values() for clip_scores in part]
    values = [cell for part in (every, *(scores[kind] for kind in kinds)) for cell in cells(part)]
    return [settings or "as shipped", *values, f"{time.monotonic() - began:.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, default=DATA)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE,..: other constants")
    parser.add_argument("--kinds", default="keypoints,arm,leg,frames")
    arguments = parser.parse_args()
    if not arguments.clips.is_dir():
        raise SystemExit(
            f"no folder {arguments.clips}: give the folder of real_keypoints with --clips."
        )
    torch.set_num_threads(1)
    chosen = list(tracks(arguments.clips, arguments.choose))
    kinds = arguments.kinds.split(",")
    table = Table(
        title=f"left-out keypoints of {len({t.clip for t in chosen})} clips, {len(chosen)} tracks"
    )
    for name in (
        "constants",
        *(
            f"{kind}: {figure}"
            for kind in ("all", *kinds)
            for figure in ("nats", "error", "68 / 95")
        ),
        "s",
    ):
        table.add_column(name)
    body = load_body()
    for settings in ("", *arguments.set):
        cells_of = row(settings, chosen, kinds, body)
        print(*cells_of, sep=" | ", flush=True)
        table.add_row(*cells_of)
    Console(200).print(table)


if __name__ == "__main__":
    claim(main)
