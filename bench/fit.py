"""Claim: the closed-form solver fits bodies at least a hundred times faster than SMPLify, and no
worse.

Held-out CMU motion on the open body, a random camera, keypoint noise of the stated sigmas that
lasts over time as a real network's does, outliers and missing keypoints. Everyone gets the same
keypoints, the same body and the same number of threads, and runs in a process of its own. The
gradient methods start from the start that the solver's own screening chose, and the time to find it
is not counted for them; the solver's own time includes it. SMPLify has its own losses and weights
(SPIN's) and two stages of 100 steps. It skins all vertices at every step, by the smplx package as
published code does, or by the faster skinning here; being slow, those two rows fit --mesh-frames
frames only, and the third, the same losses through the bones, shows the accuracy on all. The rows
called lifter start from the embedded network instead, as `fitting.fit` does unless told otherwise.
A second table shows how the time of a track grows.

    python bench/fit.py --clips clips_30fps.npz [--frames 300 --mesh-frames 32 --threads 2]
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.memory import Peak, alone
from bench.lib.simulation import Noise, Scene, scene
from eval3dpw.captured.motion import load_motion
from eval3dpw.scoring import acceleration_error_mm, mpjpe_mm, mve_mm, pa_mpjpe_mm
from fitting.body import BodyParams
from fitting.fits import FitInput
from fitting.init.lifter import guess_from_keypoints, lift_frames
from fitting.keypoints.usable import check_body_keypoints
from fitting.problem_setup import make_problem
from fitting.smplify import SmplifySettings, Through, smplify
from fitting.solver.problem import costs
from fitting.solver.unknowns import State, from_params, to_params
from pose2d.types import Keypoints


@dataclass(frozen=True)
class Row:
    """What one contender reached."""

    seconds: float
    params: BodyParams
    peak_mb: float


def concatenated(scenes: list[Scene]) -> tuple[Keypoints, list[fitting.Camera], BodyParams]:
    """Several tracks' frames one after the other."""
    k = [clip_scene.keypoints for clip_scene in scenes]
    keypoints = replace(
        k[0],
        xy_px=torch.cat([clip_scene.xy_px for clip_scene in k]),
        confidence=torch.cat([clip_scene.confidence for clip_scene in k]),
        presence=torch.cat([clip_scene.presence for clip_scene in k]),
        area_px2=torch.cat(
            [clip_scene.area_px2 for clip_scene in k if clip_scene.area_px2 is not None]
        ),
    )
    cameras = [clip_scene.camera for clip_scene in scenes for _ in clip_scene.keypoints.xy_px]
    truth = BodyParams(
        torch.cat([clip_scene.truth.pose for clip_scene in scenes]),
        torch.cat(
            [clip_scene.truth.shape.expand(len(clip_scene.truth.pose), -1) for clip_scene in scenes]
        ),
        torch.cat([clip_scene.truth.translation for clip_scene in scenes]),
    )
    return keypoints, cameras, truth


def solver_start(scenes: list[Scene], body: fitting.Body) -> State:
    """Return where every method begins each frame: the lifter's guess."""
    keypoints, cameras, _ = concatenated(scenes)
    state = from_params(lift_frames(keypoints, cameras, body).params)
    return replace(state, shape=state.shape.expand(len(state), -1))


def _by_descent(
    scenes: list[Scene],
    body: fitting.Body,
    start: State,
    optimiser: Callable[[list[Tensor]], Any],
    steps: int,
) -> BodyParams:
    """Any torch optimiser on the very cost that the solver minimises, all frames in one batch."""
    keypoints, cameras, _ = concatenated(scenes)
    inputs = FitInput(
        check_body_keypoints(keypoints), guess_from_keypoints(keypoints, cameras, body, None)
    )
    problem, _, _ = make_problem(inputs, cameras, body)
    step = torch.zeros(len(problem), 63, requires_grad=True)
    shape = torch.zeros_like(start.shape, requires_grad=True)
    search = optimiser([step, shape])

    def loss() -> Tensor:
        search.zero_grad()
        _, total = costs(problem, start.moved(step, shape))
        total.backward()
        return total

    for _ in range(steps):
        search.step(loss)
    with torch.no_grad():
        return to_params(start.moved(step, shape))


def adam(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    return _by_descent(
        scenes, body, start, lambda unknowns: torch.optim.Adam(unknowns, lr=1e-2), 200
    )


def lbfgs(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    def make(unknowns: list[Tensor]) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(
            unknowns, lr=1.0, max_iter=20, history_size=10, line_search_fn="strong_wolfe"
        )

    return _by_descent(scenes, body, start, make, 10)


def _smplify(scenes: list[Scene], body: fitting.Body, start: State, through: Through) -> BodyParams:
    params = to_params(start)
    parts = []
    first = 0
    for clip_scene in scenes:
        rows = slice(first, first + len(clip_scene.keypoints.xy_px))
        first = rows.stop
        begin = BodyParams(params.pose[rows], params.shape[rows], params.translation[rows])
        settings = SmplifySettings(batch=32)
        parts.append(
            smplify(
                clip_scene.keypoints, clip_scene.camera, body, begin, settings, through=through
            ).params
        )
    return joined(parts)


def smplify_published(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    return _smplify(scenes, body, start, "smplx")


def smplify_mesh(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    return _smplify(scenes, body, start, "mesh")


def smplify_bones(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    return _smplify(scenes, body, start, "bones")


def single_frames(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    keypoints, cameras, _ = concatenated(scenes)
    return fitting.fit_frames(keypoints, cameras, body).params


def over_time(scenes: list[Scene], body: fitting.Body, start: State) -> BodyParams:
    return joined(
        [
            fitting.fit(clip_scene.keypoints, clip_scene.camera, body, fps=clip_scene.fps).params
            for clip_scene in scenes
        ]
    )


def joined(parts: list[BodyParams]) -> BodyParams:
    return BodyParams(
        torch.cat([params.pose for params in parts]),
        torch.cat([params.shape.expand(len(params.pose), -1) for params in parts]),
        torch.cat([params.translation for params in parts]),
    )


Contender = Callable[
    [list[Scene], fitting.Body, State], BodyParams
]  # the state: where gradient methods begin
NOWHERE = State(*(torch.empty(0) for _ in range(4)))  # for the solver, which finds its own start
CONTENDERS: dict[str, Contender] = {
    "SMPLify, all vertices by smplx": smplify_published,
    "SMPLify, all vertices by fitmesh": smplify_mesh,
    "SMPLify, keypoints only": smplify_bones,
    "Adam on our cost, 200 steps": adam,
    "L-BFGS on our cost, 200 steps": lbfgs,
    "fitmesh, single frames": single_frames,
    "fitmesh, with time": over_time,
}


def _task(
    run: Contender, scenes: list[Scene], begin: tuple[np.ndarray, ...], threads: int
) -> tuple[float, tuple[np.ndarray, ...], float]:
    torch.set_num_threads(threads)
    body = fitting.load_body()
    start = State(*map(torch.from_numpy, begin))
    peak = Peak()
    clock = time.perf_counter()
    params = run(scenes, body, start)
    seconds = time.perf_counter() - clock
    result = (params.pose, params.shape, params.translation)
    return seconds, tuple(value.detach().numpy() for value in result), peak.mb()


def measure(run: Contender, scenes: list[Scene], start: State, threads: int) -> Row:
    """Run in a fresh process, so that no contender inherits warm caches or memory."""
    begin = tuple(value.numpy() for value in vars(start).values())
    seconds, arrays, peak = alone("spawn", _task, run, scenes, begin, threads)
    return Row(seconds, BodyParams(*map(torch.from_numpy, arrays)), peak)


def shortened(scenes: list[Scene], frames: int) -> list[Scene]:
    """The first frames, evenly from all scenes."""
    values = max(3, -(-frames // len(scenes)))

    def part(clip_scene: Scene) -> Scene:
        k = clip_scene.keypoints
        rows = slice(0, values)
        assert k.area_px2 is not None
        keypoints = replace(
            k,
            xy_px=k.xy_px[rows],
            confidence=k.confidence[rows],
            presence=k.presence[rows],
            area_px2=k.area_px2[rows],
        )
        return replace(
            clip_scene,
            keypoints=keypoints,
            truth=BodyParams(
                clip_scene.truth.pose[rows],
                clip_scene.truth.shape,
                clip_scene.truth.translation[rows],
            ),
        )

    return [part(clip_scene) for clip_scene in scenes]


def errors(params: BodyParams, scenes: list[Scene], body: fitting.Body) -> dict[str, float]:
    truth = concatenated(scenes)[2]
    result = body.at(params, vertices=True)
    exact = body.at(truth, vertices=True)
    assert result.vertices is not None
    assert exact.vertices is not None
    roots = result.joints[:, 0], exact.joints[:, 0]
    acceleration = []
    pixels = []
    first = 0
    for clip_scene in scenes:
        rows = slice(first, first + len(clip_scene.keypoints.xy_px))
        first = rows.stop
        acceleration.append(acceleration_error_mm(result.joints[rows], exact.joints[rows]))
        pixels.append(
            (
                clip_scene.camera.project(result.keypoints[rows])
                - clip_scene.camera.project(exact.keypoints[rows])
            ).norm(dim=-1)
        )
    return {
        "px": float(torch.cat(pixels).nanmean()),
        "PA-MPJPE": float(pa_mpjpe_mm(result.joints, exact.joints).mean()),
        "MPJPE": float(mpjpe_mm(result.joints, exact.joints, *roots).mean()),
        "MVE": float(mve_mm(result.vertices, exact.vertices, *roots).mean()),
        "accel": float(torch.cat(acceleration).mean()),
    }


def held_out_scenes(clips: Path, frames: int) -> list[Scene]:
    """Tracks of up to 100 frames from different held-out subjects, `frames` in all."""
    body = fitting.load_body()
    motion = load_motion(clips, body, 30.0)
    generator = torch.Generator().manual_seed(11)
    scenes: list[Scene] = []
    left = frames
    for clip in np.flatnonzero(motion.held_out)[::5]:
        if left < 10:
            break
        drawn = scene(motion, int(clip), body, generator, Noise(), min(left, 100))
        scenes.append(drawn)
        left -= len(drawn.keypoints.xy_px)
    return scenes


def long_scene(clips: Path, frames: int) -> Scene:
    """One endless track: a held-out walk forwards and backwards until it is long enough."""
    body = fitting.load_body()
    motion = load_motion(clips, body, 30.0)
    clip = motion.clip_name.index("35_29")
    short = scene(motion, clip, body, torch.Generator().manual_seed(5), Noise())
    frames_there = np.arange(len(short.keypoints.xy_px))
    index = torch.from_numpy(np.resize(np.concatenate((frames_there, frames_there[::-1])), frames))
    k = short.keypoints
    assert k.area_px2 is not None
    keypoints = replace(
        k,
        xy_px=k.xy_px[index],
        confidence=k.confidence[index],
        presence=k.presence[index],
        area_px2=k.area_px2[index],
    )
    truth = BodyParams(short.truth.pose[index], short.truth.shape, short.truth.translation[index])
    return Scene(truth, short.camera, keypoints, short.fps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument(
        "--mesh-frames", type=int, default=32, help="frames for SMPLify through all vertices"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="*", default=[100, 300, 1000, 10_000])
    arguments = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):  # read by the fresh processes when they start
        os.environ[f"{library}_NUM_THREADS"] = str(arguments.threads)
    body = fitting.load_body()
    console = Console(width=150)

    scenes = held_out_scenes(arguments.clips, arguments.frames)
    count = sum(len(clip_scene.keypoints.xy_px) for clip_scene in scenes)
    table = Table(
        title=f"{count} frames of {len(scenes)} held-out clips, {arguments.threads} threads; mm, accel in mm/frame²"
    )
    for column in (
        "method",
        "fits/s",
        "ratio",
        "px",
        "PA-MPJPE",
        "MPJPE",
        "MVE",
        "accel",
        "peak MB",
    ):
        table.add_column(column, justify="left" if column == "method" else "right")
    few = shortened(scenes, arguments.mesh_frames)
    slowest = 0.0
    for name, run in CONTENDERS.items():
        own = few if run in (smplify_published, smplify_mesh) else scenes
        row = measure(run, own, solver_start(own, body), arguments.threads)
        fits = sum(len(clip_scene.keypoints.xy_px) for clip_scene in own)
        slowest = slowest or row.seconds / fits
        e = errors(row.params, own, body)
        table.add_row(
            f"{name} ({fits} frames)",
            f"{fits / row.seconds:.1f}",
            f"{slowest * fits / row.seconds:.1f}x",
            f"{e['px']:.2f}",
            f"{e['PA-MPJPE']:.1f}",
            f"{e['MPJPE']:.1f}",
            f"{e['MVE']:.1f}",
            f"{e['accel']:.1f}",
            f"{row.peak_mb:.0f}",
        )
    console.print(table)

    growth = Table(title="one track with time: how the cost grows with its length")
    for column in ("frames", "seconds", "ms/frame", "PA-MPJPE", "peak MB"):
        growth.add_column(column, justify="right")
    for length in arguments.lengths:
        clip_scene = long_scene(arguments.clips, length)
        row = measure(over_time, [clip_scene], NOWHERE, arguments.threads)
        joints = body.at(row.params).joints
        exact = body.at(clip_scene.truth).joints
        growth.add_row(
            f"{length:,}",
            f"{row.seconds:.2f}",
            f"{1000 * row.seconds / length:.2f}",
            f"{pa_mpjpe_mm(joints, exact).mean():.1f}",
            f"{row.peak_mb:.0f}",
        )
    console.print(growth)


if __name__ == "__main__":
    claim(main)
