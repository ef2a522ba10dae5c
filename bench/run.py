"""Where the time and the memory of `fitmesh run` go.

    python bench/run.py            the example clip: seconds per stage, and the networks' share
    python bench/run.py --end 1    only its first second
    python bench/run.py --busy     frames per second when idle, and while one core is kept busy
    python bench/run.py --memory   peak memory of a short video and of 10,000 looped frames
    python bench/run.py --long     peak memory until fit.npz of five people over 3,000 and 12,000 frames

With --long a track of the example is looped, as if networks had found it in every frame. Of each
kind of fit the first windows are solved, in two iterations, and the others repeat their result:
the solver's memory is that of one window.

"networks" is the time in which detector, keypoint network or calibration head are at work, summed
over the threads that run them, as a share of the stage's seconds times those threads. Loading the
networks, cutting crops, decoding and waiting are the rest.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.run_memory import EXAMPLE, looped, show_long
from ccnet.confidence import default_source
from fitmesh.stages import settings as stage_settings
from fitmesh.stages.people import read_keypoints, read_tracks
from fitmesh.stages.pipeline import run_stages
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter, Tick
from pose2d.detect.detector import DETECTORS, detector_class
from pose2d.models import loading
from pose2d.video.video_file import Video

BUSY_LOOP = "while True: pass"


class StageTimes(Reporter):
    """Notes of every stage how long it took, how long networks were at work in it, and the peak
    memory so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.network_s = 0.0  # summed over threads
        self.stages: dict[str, dict[str, float]] = {}
        self._lock = Lock()

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        before_s = self.network_s
        start = time.perf_counter()
        yield lambda steps: None
        self.stages[name] = {
            "seconds": time.perf_counter() - start,
            "network_s": self.network_s - before_s,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments, **options)
            with self._lock:
                self.network_s += time.perf_counter() - start
            return result

        return call


def time_networks(times: StageTimes, settings: RunSettings) -> None:
    """Detector, keypoint network and calibration head; cutting crops is not counted."""
    detector = detector_class(settings.detector)
    detector.candidates = times.timed(detector.candidates)  # type: ignore[method-assign]
    network = type(loading.load(settings.pose_model))
    for name in ("normalize", "features", "predict"):
        setattr(network, name, times.timed(getattr(network, name)))
    confidence_function = stage_settings.confidence_function
    stage_settings.confidence_function = lambda *inputs: times.timed(confidence_function(*inputs))


def run_settings(parsed: argparse.Namespace) -> RunSettings:
    return RunSettings(
        end_s=parsed.end,
        detector=parsed.detector,
        detector_size=parsed.detector_size,
        pose_model=parsed.pose_model,
        confidence=default_source(parsed.pose_model, None, None),
        threads=parsed.threads,
    )


@contextmanager
def busy_core() -> Iterator[None]:
    """Another process that never rests."""
    process = subprocess.Popen([sys.executable, "-c", BUSY_LOOP])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def one_run(video: Path, settings: RunSettings) -> dict[str, Any]:
    times = StageTimes()
    time_networks(times, settings)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_stages(Job(Video(video), settings, Path(folder), times))
        seconds = time.perf_counter() - start
        frames = len(read_tracks(Path(folder)).frames)
        people = len(read_keypoints(Path(folder)).people)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds,
        "frames": frames,
        "people": people,
        "peak_mb": peak_mb,
        "stages": times.stages,
        "workers": settings.workers,
    }


def run_in_child(video: Path, parsed: argparse.Namespace) -> dict[str, Any]:
    """Peak memory is a process's; two measurements need two."""
    command = [
        sys.executable,
        __file__,
        "--child",
        str(video),
        "--pose-model",
        parsed.pose_model,
    ]
    command += ["--detector", parsed.detector]
    command += ["--detector-size", str(parsed.detector_size)] if parsed.detector_size else []
    command += ["--end", str(parsed.end)] if parsed.end is not None else []
    ended = subprocess.run(
        [*command, "--threads", str(parsed.threads)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def show_split(measured: dict[str, Any], title: str, console: Console) -> None:
    table = Table("stage", "seconds", "share", "of it networks", "peak MB so far", title=title)
    workers = {"people": measured["workers"]}  # other stages run no networks by default
    for name, stage in measured["stages"].items():
        share = stage["seconds"] / measured["seconds"]
        network = stage["network_s"] / (stage["seconds"] * workers.get(name, 1))
        table.add_row(
            name,
            f"{stage['seconds']:.1f}",
            f"{share:.0%}",
            f"{network:.0%}",
            f"{stage['peak_mb']:.0f}",
        )
    remaining = measured["seconds"] - sum(stage["seconds"] for stage in measured["stages"].values())
    table.add_row(
        "between",
        f"{remaining:.1f}",
        f"{remaining / measured['seconds']:.0%}",
        "",
        f"{measured['peak_mb']:.0f}",
    )
    console.print(table)
    console.print(
        f"{measured['frames']} frames, {measured['people']} people in {measured['seconds']:.1f} s with {measured['workers']} "
        f"threads: {measured['frames'] / measured['seconds']:.2f} frames/s; peak memory {measured['peak_mb']:.0f} MB"
    )


def show_busy(idle: dict[str, Any], busy: dict[str, Any], title: str, console: Console) -> None:
    """Frames per second of each stage and of the whole run, side by side."""
    table = Table("stage", "idle, frames/s", "one core busy", "share", title=title)
    for name in [*idle["stages"], "whole run"]:
        values = [run["frames"] / run["stages"].get(name, run)["seconds"] for run in (idle, busy)]
        table.add_row(name, *(f"{speed:.1f}" for speed in values), f"{values[1] / values[0]:.0%}")
    console.print(table)


def show_memory(runs: list[dict[str, Any]], console: Console) -> None:
    names = list(runs[0]["stages"])
    table = Table(
        "frames", "seconds", *names, "peak MB", "ratio", title="peak memory in MB after each stage"
    )
    for run in runs:
        after = [f"{run['stages'][name]['peak_mb']:.0f}" for name in names]
        ratio = run["peak_mb"] / runs[0]["peak_mb"]
        table.add_row(
            str(run["frames"]),
            f"{run['seconds']:.0f}",
            *after,
            f"{run['peak_mb']:.0f}",
            f"{ratio:.3f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--video", type=Path, default=EXAMPLE)
    parser.add_argument("--end", type=float, help="seconds into the video to stop at")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--people", type=int, default=5, help="of --long")
    parser.add_argument(
        "--frames", type=int, nargs="+", help="of --memory (500 10000) or --long (3000 12000)"
    )
    parser.add_argument(
        "--pose-model", help=f"{RunSettings.pose_model}; for --memory movenet-lightning"
    )
    parser.add_argument("--detector", choices=tuple(DETECTORS), default=RunSettings.detector)
    parser.add_argument("--detector-size", type=int, help="the detector's own; for --memory 256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--busy", action="store_true", help="idle, and beside a process that keeps one core busy"
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.memory and parsed.end is not None:
        parser.error("--end has no effect with --memory: --frames says how long the videos are")
    light = parsed.memory
    parsed.pose_model = parsed.pose_model or (
        "movenet-lightning" if light else RunSettings.pose_model
    )
    parsed.detector_size = parsed.detector_size or (256 if light else None)
    torch.set_num_threads(parsed.threads)
    console = Console(width=140)
    if parsed.child:
        print(json.dumps(one_run(parsed.child, run_settings(parsed))))
        return
    if parsed.memory:
        with tempfile.TemporaryDirectory() as folder:
            counts = parsed.frames or [500, 10_000]
            videos = [
                looped(parsed.video, Path(folder) / f"{count}.mp4", count) for count in counts
            ]
            show_memory([run_in_child(video, parsed) for video in videos], console)
    elif parsed.long:
        show_long(parsed.frames or [3_000, 12_000], parsed.people, console)
    elif parsed.busy:
        idle = run_in_child(parsed.video, parsed)
        with busy_core():
            busy = run_in_child(parsed.video, parsed)
        show_busy(
            idle,
            busy,
            f"fitmesh run, {parsed.video.name}, {parsed.threads} threads",
            console,
        )
    else:
        show_split(
            one_run(parsed.video, run_settings(parsed)),
            f"fitmesh run, {parsed.video.name}",
            console,
        )


if __name__ == "__main__":
    claim(main)
