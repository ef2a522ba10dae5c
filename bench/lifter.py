"""Claim: the lifter gives the fit a good start, and a fair guess by itself.

Held-out CMU motion on the open body, random cameras, keypoint errors drawn from the stated sigmas
and 2 % of outliers. Rows: how good the keypoints are (range of the confidence, an expected OKS),
how many of the 26 are missing for the whole track, and COCO's 17 alone. Everyone gets the same
keypoints. Then the legs are put out of the image: the error of knees and ankles, and how likely the
pose prior finds what was made of them, beside the truth. Last, people who stand with straight legs:
the bend of their knees, which the image hardly shows.

    python bench/lifter.py --clips clips_30fps.npz [--frames 480 --threads 1]
    python bench/lifter.py --clips clips_30fps.npz --choose  # how much the guess and the pose prior count beside it

Constants are chosen on every second of the subjects that nothing is learned from; the tables are of
the others.
"""

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.simulation import Noise, Scene, scene
from eval3dpw.captured.knees import signed_flexion_deg
from eval3dpw.captured.motion import HELD_OUT_EVERY, load_motion
from eval3dpw.scoring import mpjpe_mm, pa_mpjpe_mm
from fitting import problem_setup
from fitting.body import BodyParams
from fitting.init.lifter import lift, lift_frames
from fitting.solver.unknowns import BODY_JOINTS
from pose2d.skeletons import COCO17, HALPE26, Skeleton
from training.motion.standing import stands_quietly

lift_module = import_module("fitting.init.lifter")
LEGS = (13, 14, 15, 16, *range(20, 26))  # keypoints: knees, ankles and feet
KNEES_AND_ANKLES = (4, 5, 7, 8)
TRACK_FRAMES = 20
STRAIGHT_DEG = 8.0  # of both knees, signed

Contender = Callable[[Scene, fitting.Body], BodyParams]


@dataclass(frozen=True)
class Condition:
    name: str
    confidence: tuple[float, float]
    missing: int  # of the keypoints, all along the track
    skeleton: Skeleton = HALPE26


CONDITIONS = (
    Condition("exact", (0.998, 0.999), 0),
    Condition("good", (0.85, 0.98), 0),
    Condition("ordinary", (0.6, 0.98), 0),
    Condition("bad", (0.3, 0.7), 0),
    Condition("ordinary, 6 missing", (0.6, 0.98), 6),
    Condition("ordinary, 12 missing", (0.6, 0.98), 12),
    Condition("ordinary, COCO's 17", (0.6, 0.98), 0, COCO17),
    Condition("ordinary, COCO's 17, 8 missing", (0.6, 0.98), 8, COCO17),
)
CONTENDERS: dict[str, Contender] = {
    "lifter, 1 frame": lambda s, body: lift_frames(s.keypoints, [s.camera], body).params,
    "lifter": lambda s, body: lift(s.keypoints, s.camera, body, fps=s.fps).params,
    "fit": lambda s, body: fitting.fit(s.keypoints, s.camera, body, fps=s.fps).params,
}


def scenes(clips: Path, frames: int, condition: Condition, choosing: bool = False) -> list[Scene]:
    """The same people and cameras for every condition, spread over all held-out clips; only the
    keypoints differ.
    """
    body = fitting.load_body()
    motion = load_motion(clips, body, 30.0)
    drawn: list[Scene] = []
    subject = np.array([int(name.split("_")[0]) for name in motion.clip_name])
    clips_held_out = np.flatnonzero(motion.held_out & (subject // HELD_OUT_EVERY % 2 == choosing))
    every = max(1, len(clips_held_out) * TRACK_FRAMES // frames)
    for number, clip in enumerate(clips_held_out[::every]):
        generator = torch.Generator().manual_seed(100 + number)
        noise = Noise(confidence=condition.confidence, outliers=0.02, missing=0.0)
        drawn_scene = scene(
            motion, int(clip), body, generator, noise, TRACK_FRAMES, skeleton=condition.skeleton
        )
        gone = torch.randperm(condition.skeleton.size, generator=generator)[
            : condition.missing
        ].tolist()
        drawn.append(without(drawn_scene, gone))
    return drawn


def without(scene_in: Scene, keypoints: list[int]) -> Scene:
    presence = scene_in.keypoints.presence.clone()
    presence[:, keypoints] = 0
    return replace(scene_in, keypoints=replace(scene_in.keypoints, presence=presence))


def errors(params: list[BodyParams], truth: list[Scene], body: fitting.Body) -> tuple[float, float]:
    """PA-MPJPE and MPJPE in mm, mean over frames."""
    aligned = []
    relative = []
    for estimate, true_scene in zip(params, truth, strict=True):
        joints = body.at(estimate).joints
        exact = body.at(true_scene.truth).joints
        aligned.append(pa_mpjpe_mm(joints, exact))
        relative.append(mpjpe_mm(joints, exact, joints[:, 0], exact[:, 0]))
    return float(torch.cat(aligned).mean()), float(torch.cat(relative).mean())


def legs_out_of_view(clips: Path, frames: int, body: fitting.Body, console: Console) -> None:
    cut_scenes = [
        without(clip_scene, list(LEGS)) for clip_scene in scenes(clips, frames, CONDITIONS[2])
    ]
    prior = fitting.load_prior()
    table = Table(title="legs out of the image")
    for column in ("method", "knees and ankles, mm", "-log p of the pose"):
        table.add_column(column, justify="left" if column == "method" else "right")

    def row(name: str, params: list[BodyParams]) -> None:
        away = []
        energy = []
        for result, clip_scene in zip(params, cut_scenes, strict=True):
            joints = body.at(result).joints
            exact = body.at(clip_scene.truth).joints
            legs = (joints - joints[:, :1] - exact + exact[:, :1])[:, KNEES_AND_ANKLES].norm(dim=-1)
            away.append(1000 * legs.mean(1))
            energy.append(prior.energy(result.pose[:, BODY_JOINTS].flatten(1))[0])
        table.add_row(name, f"{torch.cat(away).mean():.0f}", f"{torch.cat(energy).mean():.1f}")

    for name in ("lifter", "fit"):
        row(name, [CONTENDERS[name](clip_scene, body) for clip_scene in cut_scenes])
    row("truth", [clip_scene.truth for clip_scene in cut_scenes])
    console.print(table)


def standing(clips: Path, frames: int, body: fitting.Body, console: Console) -> None:
    """Held-out poses of people who stand quietly with straight legs: how far the knees are bent in
    what was found.
    """
    motion = load_motion(clips, body, 30.0)
    assert motion.root_m is not None
    joints = torch.cat([body(part).joints for part in motion.pose.split(8192)])
    stands = stands_quietly(joints, motion.root_m, motion.clip_start, motion.fps)
    stands &= signed_flexion_deg(joints).abs().amax(1) < STRAIGHT_DEG
    stands &= torch.from_numpy(motion.frames_of(motion.held_out))
    pose = motion.pose[stands][:: max(1, int(stands.sum()) // frames)]
    straight = replace(
        motion,
        pose=pose.repeat_interleave(TRACK_FRAMES, 0),
        root_m=torch.zeros(len(pose) * TRACK_FRAMES, 3),
        clip_start=np.arange(0, (len(pose) + 1) * TRACK_FRAMES, TRACK_FRAMES),
        clip_name=("0_0",) * len(pose),
        clip_description=(),
    )
    standing_scenes = [
        scene(
            straight,
            clip,
            body,
            torch.Generator().manual_seed(clip),
            Noise(CONDITIONS[2].confidence),
            TRACK_FRAMES,
        )
        for clip in range(len(pose))
    ]
    table = Table(
        title=f"{len(pose)} people who stand with straight legs: signed bend of the knees in degrees"
    )
    for column in ("method", "median", "90 % below"):
        table.add_column(column, justify="left" if column == "method" else "right")
    rows = {
        name: [CONTENDERS[name](clip_scene, body) for clip_scene in standing_scenes]
        for name in CONTENDERS
    }
    for name, params in {
        **rows,
        "truth": [clip_scene.truth for clip_scene in standing_scenes],
    }.items():
        bend = torch.cat(
            [signed_flexion_deg(body.at(result).joints) for result in params]
        ).flatten()
        table.add_row(name, *(f"{float(bend.quantile(q)):.0f}" for q in (0.5, 0.9)))
    console.print(table)


def choose(clips: Path, frames: int, body: fitting.Body, console: Console) -> None:
    """PA-MPJPE / MPJPE of tracks and of single frames by how much the guess and the prior beside it
    count.
    """
    chosen_scenes = scenes(clips, frames, CONDITIONS[2], choosing=True)
    table = Table(title="ordinary keypoints of the other subjects: track; single frames")
    factors = (1.0, 1.3, 1.7, 2.2)
    for column in ("weight of the pose prior", *(f"guess x{factor}" for factor in factors)):
        table.add_column(column)
    for weight in (1.0, 0.5, 0.25, 0.1):
        cells = []
        for factor in factors:
            with (
                mock.patch.object(lift_module, "SEEN_TWICE", factor),
                mock.patch.object(problem_setup, "PRIOR_BESIDE_GUESS", weight),
            ):
                tracks = [
                    CONTENDERS["fit lifter"](clip_scene, body) for clip_scene in chosen_scenes
                ]
                single = [
                    fitting.fit_frames(clip_scene.keypoints, clip_scene.camera, body).params
                    for clip_scene in chosen_scenes
                ]
            error_pair = (errors(params, chosen_scenes, body) for params in (tracks, single))
            cells.append("; ".join("{:.1f} / {:.1f}".format(*pair) for pair in error_pair))
        table.add_row(f"{weight:g}", *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=480)
    parser.add_argument(
        "--choose", action="store_true", help="compare weights of guess and prior on other subjects"
    )
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    body = fitting.load_body()
    console = Console(width=150)
    if arguments.choose:
        choose(arguments.clips, arguments.frames, body, console)
        return
    count = sum(
        len(clip_scene.keypoints.xy_px)
        for clip_scene in scenes(arguments.clips, arguments.frames, CONDITIONS[0])
    )
    table = Table(
        title=f"{count} frames of held-out motion, {arguments.threads} thread(s): PA-MPJPE / MPJPE in mm"
    )
    table.add_column("keypoints")
    for name in CONTENDERS:
        table.add_column(name, justify="right")
    spent = dict.fromkeys(CONTENDERS, 0.0)
    for condition in CONDITIONS:
        noisy_scenes = scenes(arguments.clips, arguments.frames, condition)
        cells = []
        for name, run in CONTENDERS.items():
            began = time.perf_counter()
            params = [run(clip_scene, body) for clip_scene in noisy_scenes]
            spent[name] += time.perf_counter() - began
            cells.append("{:.1f} / {:.1f}".format(*errors(params, noisy_scenes, body)))
        table.add_row(condition.name, *cells)
    table.add_section()
    table.add_row(
        "frames/s", *(f"{count * len(CONDITIONS) / seconds:.0f}" for seconds in spent.values())
    )
    console.print(table)
    legs_out_of_view(arguments.clips, arguments.frames, body, console)
    standing(arguments.clips, arguments.frames // 8, body, console)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    claim(main)
