"""Where the time and the memory of `fitmesh run` go.

python bench/run.py                 the example clip: seconds per stage, and how much of it is the 2D network
python bench/run.py --memory        peak memory for a short video and for the same video looped to 10,000 frames

"2D network" is the time on the clock in which detector, keypoint network or calibration head are at work, scaling their
input from 0..255 included, or are waited for until they are loaded; all other time is "everything else". What another
thread does beside a network (decoding the next frames, loading the next network) slows it down and is paid for there.
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
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import torch
from fitmesh.stages.keypoints import KeypointSettings
from fitmesh.stages.tracks import TrackSettings
from rich.console import Console
from rich.table import Table

import pose2d
from fitmesh import confidence as trust
from fitmesh.progress import Reporter, Tick
from fitmesh.stages import keypoints, tracks
from fitmesh.stages.fit import FitSettings, best_init
from fitmesh.stages.pipeline import RunSettings, run_stages
from pose2d.base.prefetch import Background
from pose2d.detect.detector import DetectorOptions
from pose2d.detect.multipose import MultiPose
from pose2d.io.clip import Span
from pose2d.io.video import Video
from pose2d.io.video_writer import video_writer

EXAMPLE = Path(__file__).parents[1] / "examples" / "park.mp4"
SMALL = 320  # width of the looped video, pixels


class Watch(Reporter):
    """Notes of every stage how long it took, how much of that the 2D network worked, and the peak memory so far."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.network_s = 0.0
        self.stages: dict[str, dict[str, float]] = {}

    @contextmanager
    def stage(self, name: str, total: int | None, unit: str = "frames") -> Iterator[Tick]:
        before_s, start = self.network_s, time.perf_counter()
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
            self.network_s += time.perf_counter() - start
            return result

        return call


def watch_networks(watch: Watch, pose_model: str) -> None:
    """Detector, keypoint network and calibration head are "the network"; cutting crops is not."""
    MultiPose.candidates = watch.timed(MultiPose.candidates)  # type: ignore[method-assign]
    network = type(pose2d.load(pose_model))
    for name in ("normalize", "features", "predict"):
        setattr(network, name, watch.timed(getattr(network, name)))
    Background.get = watch.timed(Background.get)  # type: ignore[method-assign]
    judge = trust.judge
    trust.judge = lambda *given: watch.timed(judge(*given))  # type: ignore[assignment]


def one_run(video: Path, pose_model: str, detector_size: int) -> dict[str, Any]:
    watch = Watch()
    watch_networks(watch, pose_model)
    settings = RunSettings(
        TrackSettings(detector=DetectorOptions(long_side=detector_size)),
        KeypointSettings(pose_model, confidence=trust.best_source(pose_model, None, None)),
        fit=FitSettings(init=best_init()),
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        run_stages(Video(video), Path(folder), settings, watch)
        seconds = time.perf_counter() - start
        frames = len(tracks.read(Path(folder) / tracks.FILE).frames)
        people = len(keypoints.read(Path(folder) / keypoints.FILE).people)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "frames": frames, "people": people, "peak_mb": peak_mb, "stages": watch.stages}


def in_a_process_of_its_own(video: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Peak memory is a process's; two measurements need two."""
    command = [sys.executable, __file__, "--child", str(video), "--pose-model", arguments.pose_model]
    command += ["--detector-size", str(arguments.detector_size), "--threads", str(arguments.threads)]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def looped(source: Path, target: Path, frames: int) -> Path:
    """The clip forth and back and forth again, small, at `frames` frames: motion without a jump."""
    images = []
    for frame in Video(source).frames(Span()):
        height = round(SMALL * frame.rgb.shape[0] / frame.rgb.shape[1] / 2) * 2
        images.append(cv2.resize(frame.rgb, (SMALL, height), interpolation=cv2.INTER_AREA))
    there_and_back = images + images[-2:0:-1]
    with video_writer(target, Fraction(30), Fraction(1, 30)) as video:
        for number in range(frames):
            video.write(there_and_back[number % len(there_and_back)], Fraction(number, 30))
    return target


def show_split(found: dict[str, Any], console: Console) -> None:
    table = Table(
        "stage", "seconds", "share", "of it 2D network", "peak MB so far", title="fitmesh run, the example clip"
    )
    for name, stage in found["stages"].items():
        share, network = stage["seconds"] / found["seconds"], stage["network_s"] / stage["seconds"]
        table.add_row(name, f"{stage['seconds']:.1f}", f"{share:.0%}", f"{network:.0%}", f"{stage['peak_mb']:.0f}")
    rest = found["seconds"] - sum(stage["seconds"] for stage in found["stages"].values())
    table.add_row("between", f"{rest:.1f}", f"{rest / found['seconds']:.0%}", "", "")
    console.print(table)
    network = sum(stage["network_s"] for stage in found["stages"].values()) / found["seconds"]
    console.print(
        f"{found['frames']} frames, {found['people']} people in {found['seconds']:.1f} s: "
        f"{found['frames'] / found['seconds']:.2f} frames/s; "
        f"2D network {network:.0%}, everything else {1 - network:.0%}"
    )


def show_memory(runs: list[dict[str, Any]], console: Console) -> None:
    names = list(runs[0]["stages"])
    table = Table("frames", "seconds", *names, "peak MB", "ratio", title="peak memory in MB after each stage")
    for run in runs:
        after = [f"{run['stages'][name]['peak_mb']:.0f}" for name in names]
        ratio = run["peak_mb"] / runs[0]["peak_mb"]
        table.add_row(str(run["frames"]), f"{run['seconds']:.0f}", *after, f"{run['peak_mb']:.0f}", f"{ratio:.3f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", type=Path, default=EXAMPLE)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--frames", type=int, nargs="+", default=[500, 10_000], help="of the videos of --memory")
    parser.add_argument("--pose-model", help="movenet-thunder; for --memory movenet-lightning")
    parser.add_argument("--detector-size", type=int, help=f"{DetectorOptions().long_side}; for --memory 256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    light = arguments.memory
    arguments.pose_model = arguments.pose_model or ("movenet-lightning" if light else "movenet-thunder")
    arguments.detector_size = arguments.detector_size or (256 if light else DetectorOptions().long_side)
    torch.set_num_threads(arguments.threads)
    console = Console(width=140)
    if arguments.child:
        print(json.dumps(one_run(arguments.child, arguments.pose_model, arguments.detector_size)))
    elif arguments.memory:
        with tempfile.TemporaryDirectory() as folder:
            videos = [looped(arguments.video, Path(folder) / f"{count}.mp4", count) for count in arguments.frames]
            show_memory([in_a_process_of_its_own(video, arguments) for video in videos], console)
    else:
        show_split(one_run(arguments.video, arguments.pose_model, arguments.detector_size), console)


if __name__ == "__main__":
    main()
