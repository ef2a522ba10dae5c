"""Measure the peak memory of long runs."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table

import fitmesh
from bench.lib.claim import Console
from bench.lib.memory import alone, memory_mb
from fitmesh.result import FIT_FILE
from fitmesh.stages import fit
from fitmesh.stages.people import read_keypoints, write
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from fitting import optimise, windows
from fitting.body import Body
from fitting.camera import Camera
from fitting.fits import Fit, FitInput, FitOptions
from pose2d.base.caching import CacheKey
from pose2d.base.scratch import scratch_for
from pose2d.base.threads import return_memory
from pose2d.detect.boxes import Boxes
from pose2d.people import PeopleFinder
from pose2d.tracking.tracker import Tracker
from pose2d.types import Keypoints
from pose2d.video.camera_motion.background import BackgroundMotion
from pose2d.video.frames import Frame, Span
from pose2d.video.video_file import Video
from pose2d.video.writer import video_writer

EXAMPLE = Path(__file__).parents[2] / "examples" / "park.mp4"
SMALL = 320  # width of the looped video, pixels


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


class Looped:
    """Instead of networks: one track of a run, forth and back, as `people` people side by side. An
    image holds only its frame's number."""

    def __init__(self, folder: Path, people: int) -> None:
        observed = read_keypoints(folder)
        identity = max(observed.people, key=lambda number: len(observed.people[number]))
        self.keypoints = observed.people[identity].points
        boxes_px = observed.people[identity].box_px
        self.order = np.concatenate([np.arange(len(boxes_px)), np.arange(len(boxes_px) - 2, 0, -1)])
        self.apart_px = np.array([1.2 * np.ptp(boxes_px[:, ::2]), 0.0])
        beside = np.arange(people)[:, None] * np.tile(self.apart_px, 2)
        self.boxes_px = boxes_px[:, None] + beside  # [T, people, 4]

    def frames(self, count: int) -> Iterator[Frame]:
        for number in range(count):
            image = np.full((36, 64, 3), 128, np.uint8)
            image[0, 0] = number & 255, number >> 8 & 255, number >> 16
            yield Frame(number, Fraction(number, 30), image)

    def row(self, image: np.ndarray) -> int:
        low, middle, high = image[0, 0].tolist()
        return int(self.order[(low + (middle << 8) + (high << 16)) % len(self.order)])

    def detect(self, frame: Frame) -> Boxes:
        boxes_px = self.boxes_px[self.row(frame.rgb)]
        return Boxes(boxes_px, np.full(len(boxes_px), 0.9))

    def estimate(
        self, images: Sequence[np.ndarray], boxes_px: np.ndarray
    ) -> tuple[np.ndarray, Keypoints]:
        rows = [self.row(image) for image in images]
        nearest = np.abs(self.boxes_px[rows] - boxes_px[:, None]).sum(-1).argmin(1)
        result = self.keypoints.rows(np.array(rows, np.int64))
        moved = result.xy_px + torch.from_numpy(nearest[:, None] * self.apart_px).float()[:, None]
        return boxes_px, replace(result, xy_px=moved)


def long_people(folder: Path, out: Path, frames: int, people: int) -> tuple[float, float]:
    """Peak MB of a process that finds them and writes both files into `out`; MB before it."""
    return_memory()  # as the command does
    looped = Looped(folder, people)
    job = long_job(out)
    background = BackgroundMotion((64, 36), 60.0)
    before = memory_mb("VmRSS")
    finder = PeopleFinder(looped.detect, looped.estimate, watch=background)
    with scratch_for(out / FIT_FILE), torch.inference_mode():
        result = finder.find(looped.frames(frames), 30.0, Tracker((20_000, 994)))
        key = CacheKey("people", {}, {}, "")
        write(
            job,
            key,
            result,
            "looped",
            looped.keypoints.skeleton.name,
            looped.keypoints.source,
            background,
        )
    return memory_mb("VmHWM"), before


def long_fit(out: Path) -> tuple[float, float]:
    """Return the memory of their fit in the same way."""
    return_memory()
    vars(windows).update(fit_jointly=few_searches(windows.fit_jointly))
    vars(optimise).update(ITERATIONS=2)
    job = long_job(out)
    before = memory_mb("VmRSS")
    with scratch_for(out / FIT_FILE):
        fit.make(job, fit.cache_key(job, CacheKey("people", {}, {}, "")))
    return memory_mb("VmHWM"), before


def few_searches(fit_jointly: Callable[..., Fit], most: int = 2) -> Callable[..., Fit]:
    """Solves the first windows of each kind of fit, and answers later ones with what it found."""
    results: dict[tuple, list[Fit]] = {}

    def solved_or_repeated(
        inputs: FitInput, camera: Camera, body: Body, fps: float, options: FitOptions
    ) -> Fit:
        past = results.setdefault((body.shape_size, options.rough), [])
        if len(past) < most or len(past[0]) < 100:
            past.insert(0, fit_jointly(inputs, camera, body, fps, options))
            return past[0]
        return past[0].rows(torch.arange(len(inputs)) % len(past[0]))

    return solved_or_repeated


def long_job(out: Path) -> Job:
    return Job(Video(EXAMPLE), RunSettings(), out, Reporter())


def show_long(frames: list[int], people: int, console: Console) -> None:
    table = Table(
        "people",
        "frames",
        "stage",
        "peak MB",
        "before it",
        "seconds",
        "fit.npz MB",
        title="peak memory",
    )
    with tempfile.TemporaryDirectory() as folder:
        fitmesh.run(EXAMPLE, folder, outputs=("fit",), end_s=2.0)
        for count in frames:
            out = Path(folder) / str(count)
            out.mkdir()
            for name, task in (
                ("people", (long_people, Path(folder), out, count, people)),
                ("fit", (long_fit, out)),
            ):
                began = time.perf_counter()
                peak, before = alone("spawn", *task)
                seconds = time.perf_counter() - began
                size = (out / FIT_FILE).stat().st_size if name == "fit" else 0
                figures = (f"{value:.0f}" for value in (peak, before, seconds, size / 1e6))
                table.add_row(str(people), f"{count:,}", name, *figures)
    console.print(table)
