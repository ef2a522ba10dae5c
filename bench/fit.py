"""Claim: the closed-form solver fits bodies far faster than gradient descent, and no worse.

Held-out CMU motion on the open body, a random camera, keypoint noise drawn from the stated sigmas, outliers and missing
keypoints. Everyone gets the same keypoints, the same body, the same start and the same number of threads, and runs in a
process of its own. A second table shows how the time of a track grows with its length.

    python bench/fit.py --clips clips_30fps.npz [--frames 300 --threads 2]
"""

import argparse
import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import fitting
from eval3dpw.metrics import acceleration_error_mm, mpjpe_mm, mve_mm, pa_mpjpe_mm
from fitting.body import BodyParams
from fitting.cmu import load_motion
from fitting.fit import frames_problem
from fitting.problem import costs
from fitting.start import torso_starts
from fitting.synthetic import Noise, Scene, scene
from fitting.unknowns import State, to_params
from pose2d.types import Keypoints


@dataclass(frozen=True)
class Row:
    """What one contender reached."""

    seconds: float
    params: BodyParams
    peak_mb: float


def concatenated(scenes: list[Scene]) -> tuple[Keypoints, list[fitting.Camera], BodyParams]:
    """Several tracks' frames one after the other."""
    k = [one.keypoints for one in scenes]
    keypoints = replace(
        k[0],
        xy_px=torch.cat([one.xy_px for one in k]),
        confidence=torch.cat([one.confidence for one in k]),
        presence=torch.cat([one.presence for one in k]),
        area_px2=torch.cat([one.area_px2 for one in k if one.area_px2 is not None]),
    )
    cameras = [one.camera for one in scenes for _ in one.keypoints.xy_px]
    truth = BodyParams(
        torch.cat([one.truth.pose for one in scenes]),
        torch.cat([one.truth.shape.expand(len(one.truth.pose), -1) for one in scenes]),
        torch.cat([one.truth.translation for one in scenes]),
    )
    return keypoints, cameras, truth


def _by_descent(
    scenes: list[Scene], body: fitting.Body, optimiser: Callable[[list[Tensor]], Any], steps: int
) -> BodyParams:
    """Any torch optimiser on the very cost that the solver minimises, keypoints only, all frames in one batch."""
    keypoints, cameras, _ = concatenated(scenes)
    problem, _ = frames_problem(keypoints, cameras, body)
    start = torso_starts(problem)[0].frames(slice(0, len(problem)))
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
        found: State = start.moved(step, shape)
    return to_params(found)


def adam(scenes: list[Scene], body: fitting.Body) -> BodyParams:
    return _by_descent(scenes, body, lambda unknowns: torch.optim.Adam(unknowns, lr=1e-2), 200)


def lbfgs(scenes: list[Scene], body: fitting.Body) -> BodyParams:
    def make(unknowns: list[Tensor]) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(unknowns, lr=1.0, max_iter=20, history_size=10, line_search_fn="strong_wolfe")

    return _by_descent(scenes, body, make, 10)


def single_frames(scenes: list[Scene], body: fitting.Body) -> BodyParams:
    keypoints, cameras, _ = concatenated(scenes)
    return fitting.fit_frames(keypoints, cameras, body).params


def over_time(scenes: list[Scene], body: fitting.Body) -> BodyParams:
    found = [fitting.fit(one.keypoints, one.camera, body, fps=one.fps).params for one in scenes]
    return BodyParams(
        torch.cat([params.pose for params in found]),
        torch.cat([params.shape.expand(len(params.pose), -1) for params in found]),
        torch.cat([params.translation for params in found]),
    )


CONTENDERS: dict[str, Callable[[list[Scene], fitting.Body], BodyParams]] = {
    "Adam on keypoints, 200 steps": adam,
    "L-BFGS on keypoints, 200 steps": lbfgs,
    "fitmesh, single frames": single_frames,
    "fitmesh, with time": over_time,
}


def _memory_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return float(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def _child(pipe: Any, run: Callable[..., BodyParams], scenes: list[Scene], threads: int) -> None:
    torch.set_num_threads(threads)
    body = fitting.load_body()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = _memory_mb("VmRSS")
    start = time.perf_counter()
    params = run(scenes, body)
    seconds = time.perf_counter() - start
    arrays = tuple(value.detach().numpy() for value in (params.pose, params.shape, params.translation))
    pipe.send((seconds, arrays, _memory_mb("VmHWM") - before))


def measure(run: Callable[..., BodyParams], scenes: list[Scene], threads: int) -> Row:
    """In a fresh process, so that nobody inherits warm caches or memory."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, run, scenes, threads))
    process.start()
    theirs.close()
    try:
        seconds, (pose, shape, translation), peak = ours.recv()
    finally:
        process.join()
    return Row(seconds, BodyParams(*map(torch.from_numpy, (pose, shape, translation))), peak)


def errors(params: BodyParams, scenes: list[Scene], body: fitting.Body) -> dict[str, float]:
    truth = concatenated(scenes)[2]
    found, exact = body.at(params, vertices=True), body.at(truth, vertices=True)
    assert found.vertices is not None
    assert exact.vertices is not None
    roots = found.joints[:, 0], exact.joints[:, 0]
    acceleration, pixels, first = [], [], 0
    for one in scenes:
        rows = slice(first, first + len(one.keypoints.xy_px))
        first = rows.stop
        acceleration.append(acceleration_error_mm(found.joints[rows], exact.joints[rows]))
        pixels.append(
            (one.camera.project(found.keypoints[rows]) - one.camera.project(exact.keypoints[rows])).norm(dim=-1)
        )
    return {
        "px": float(torch.cat(pixels).nanmean()),
        "PA-MPJPE": float(pa_mpjpe_mm(found.joints, exact.joints).mean()),
        "MPJPE": float(mpjpe_mm(found.joints, exact.joints, *roots).mean()),
        "MVE": float(mve_mm(found.vertices, exact.vertices, *roots).mean()),
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
        one = scene(motion, int(clip), body, generator, Noise(), min(left, 100))
        scenes.append(one)
        left -= len(one.keypoints.xy_px)
    return scenes


def long_scene(clips: Path, frames: int) -> Scene:
    """One endless track: a held-out walk forwards and backwards until it is long enough."""
    body = fitting.load_body()
    motion = load_motion(clips, body, 30.0)
    clip = motion.clip_name.index("35_29")
    one = scene(motion, clip, body, torch.Generator().manual_seed(5), Noise())
    there = np.arange(len(one.keypoints.xy_px))
    index = torch.from_numpy(np.resize(np.concatenate((there, there[::-1])), frames))
    k = one.keypoints
    assert k.area_px2 is not None
    keypoints = replace(
        k, xy_px=k.xy_px[index], confidence=k.confidence[index], presence=k.presence[index], area_px2=k.area_px2[index]
    )
    truth = BodyParams(one.truth.pose[index], one.truth.shape, one.truth.translation[index])
    return Scene(truth, one.camera, keypoints, one.fps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lengths", type=int, nargs="*", default=[100, 300, 1000, 10_000])
    arguments = parser.parse_args()
    for library in ("OMP", "OPENBLAS", "MKL"):  # read by the fresh processes when they start
        os.environ[f"{library}_NUM_THREADS"] = str(arguments.threads)
    body = fitting.load_body()
    console = Console(width=150)

    scenes = held_out_scenes(arguments.clips, arguments.frames)
    count = sum(len(one.keypoints.xy_px) for one in scenes)
    table = Table(
        title=f"{count} frames of {len(scenes)} held-out clips, {arguments.threads} threads; mm, accel in mm/frame²"
    )
    for column in ("method", "fits/s", "ratio", "px", "PA-MPJPE", "MPJPE", "MVE", "accel", "peak MB"):
        table.add_column(column, justify="left" if column == "method" else "right")
    slowest = 0.0
    for name, run in CONTENDERS.items():
        row = measure(run, scenes, arguments.threads)
        slowest = slowest or row.seconds
        e = errors(row.params, scenes, body)
        table.add_row(
            name, f"{count / row.seconds:.1f}", f"{slowest / row.seconds:.1f}x", f"{e['px']:.2f}",
            f"{e['PA-MPJPE']:.1f}", f"{e['MPJPE']:.1f}", f"{e['MVE']:.1f}", f"{e['accel']:.1f}", f"{row.peak_mb:.0f}",
        )  # fmt: skip
    console.print(table)

    growth = Table(title="one track with time: how the cost grows with its length")
    for column in ("frames", "seconds", "ms/frame", "PA-MPJPE", "peak MB"):
        growth.add_column(column, justify="right")
    for length in arguments.lengths:
        one = long_scene(arguments.clips, length)
        row = measure(over_time, [one], arguments.threads)
        joints, exact = body.at(row.params).joints, body.at(one.truth).joints
        growth.add_row(
            f"{length:,}", f"{row.seconds:.2f}", f"{1000 * row.seconds / length:.2f}",
            f"{pa_mpjpe_mm(joints, exact).mean():.1f}", f"{row.peak_mb:.0f}",
        )  # fmt: skip
    console.print(growth)


if __name__ == "__main__":
    main()
