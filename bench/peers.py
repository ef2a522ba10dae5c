"""Claim: `fitmesh run` up to fit.npz is as fast as MediaPipe Pose, and writes meshes.

MediaPipe pins an old NumPy, so it runs in a Python of its own (3.9 to 3.12):

    python3 -m venv mp && mp/bin/pip install mediapipe==0.10.21
    python bench/peers.py --video CLIP --peer-python mp/bin/python [--threads 2] [--rounds 3]
    python bench/peers.py --video CLIP --peer-python mp/bin/python --copies 5     the clip five times in one image

Both read the same video in turn, several rounds in one run; the middle of the rounds counts. What
is paid once a run, loading the networks and fitmesh's cache keys, comes before the clock starts and
has a column of its own; importing is left out for both. MediaPipe tracks one person (complexity 1,
its default) on one core and decodes with OpenCV; fitmesh finds everyone. --busy keeps one core busy
with something else meanwhile. Peak memory is that of each process up to the same point, without the
overlay.

--copies makes a video of 1920x1080 out of the clip, played forth and back for --frames frames:
itself, or as many copies as asked for, each at another moment, in a grid of 3 x 3.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from fitmesh.inputs import open_clip
from pose2d.video.writer import video_writer

PEER = """
import json, sys, time
import cv2
import mediapipe as mp
import numpy as np
begin = time.perf_counter()
pose = mp.solutions.pose.Pose(model_complexity=1)
pose.process(np.zeros((256, 256, 3), np.uint8))
loading = time.perf_counter() - begin
video = cv2.VideoCapture(sys.argv[1])
frames = found = 0
start, start_cpu = time.perf_counter(), time.process_time()
while True:
    ok, bgr = video.read()
    if not ok:
        break
    found += pose.process(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)).pose_world_landmarks is not None
    frames += 1
seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
print(json.dumps({"seconds": seconds, "cpu_s": cpu, "frames": frames, "people": found, "peak_mb": PEAK_MB,
                  "loading_s": loading}))
"""
OURS = """
import json, sys, time
from pathlib import Path
from fitmesh.inputs import open_clip
from ccnet.confidence import default_source
from fitmesh.ui.events import Reporter
from fitmesh.stages import pipeline
from fitmesh.stages.people import read_tracks
from fitmesh.stages.settings import Job, RunSettings
from pose2d.base.threads import return_memory
return_memory()  # as the command does
video, out, threads, options = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
detector, pose_model = options["detector"], options["pose_model"]
settings = RunSettings(
    detector=detector, pose_model=pose_model, confidence=default_source(pose_model, None, None),
    threads=threads, overwrite=True, hands=options["hands"],
)
job = Job(open_clip(video), settings, out, Reporter())
marks = {}
start = time.perf_counter()
job.loader.networks, job.loader.detector
stages = pipeline.stages(job)
loading = time.perf_counter() - start
start, start_cpu = time.perf_counter(), time.process_time()
for stage in stages[:3]:
    stage.make()
    marks[stage.key.stage] = time.perf_counter() - start
    if stage.key.stage == "fit":
        peak, cpu = PEAK_MB, time.process_time() - start_cpu
seen = read_tracks(out)
print(json.dumps({"seconds": marks["fit"], "cpu_s": cpu, "overlay_s": marks["overlay"], "people_s": marks["people"],
                  "frames": len(seen.frames), "people": len(seen.same_as), "peak_mb": peak,
                  "loading_s": loading}))
"""


# The kernel's own count: getrusage would also count what this process held when it started the
# other.
PEAK_MB = "int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) / 1024"
PEER, OURS = (text.replace("PEAK_MB", PEAK_MB) for text in (PEER, OURS))
SIZE_WH = (1920, 1080)


def grid_clip(source: Path, target: Path, copies: int, frames: int) -> Path:
    """The clip itself, or copies of it in a grid of 3 x 3, each a fifth of its length later than
    the one before.
    """
    side = 1 if copies == 1 else 3
    width = SIZE_WH[0] // side
    height = SIZE_WH[1] // side
    clip = open_clip(source)
    images = [_fitted(frame.rgb, width, height) for frame in clip.frames()]
    order = [*range(len(images)), *range(len(images) - 2, 0, -1)]
    with video_writer(target, clip.info.rate, 1 / clip.info.rate) as video:
        for number in range(frames):
            image = np.full((SIZE_WH[1], SIZE_WH[0], 3), 128, np.uint8)
            for copy in range(copies):
                row, column = divmod(copy, side)
                visible = images[order[(number + copy * len(images) // 5) % len(order)]]
                image[row * height :, column * width :][:height, :width] = visible
            video.write(image, number / clip.info.rate)
    return target


def _fitted(rgb: np.ndarray, width: int, height: int) -> np.ndarray:
    """As large as fits, in the middle of the lower edge: who is cut off there stays cut off by the
    image.
    """
    scale = min(width / rgb.shape[1], height / rgb.shape[0])
    small = cv2.resize(rgb, (round(scale * rgb.shape[1]), round(scale * rgb.shape[0])))
    image = np.full((height, width, 3), 128, np.uint8)
    left = (width - small.shape[1]) // 2
    image[height - small.shape[0] :, left : left + small.shape[1]] = small
    return image


def measured(command: list[str], threads: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOG_minloglevel": "3"}
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1]
    )
    if ended.returncode:
        raise SystemExit(ended.stderr[-2000:])
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--video", type=Path, required=True)
    parser.add_argument(
        "--peer-python", type=Path, help="a Python that has mediapipe; without it fitmesh alone"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--copies",
        type=int,
        choices=range(1, 10),
        help="of the clip in one video; without it as it is",
    )
    parser.add_argument("--frames", type=int, default=300, help="of a video made by --copies")
    parser.add_argument("--busy", action="store_true", help="another program keeps one core busy")
    parser.add_argument("--pose-model", default="rtmpose-s-halpe26")
    parser.add_argument("--detector", default="yolox-tiny")
    parser.add_argument("--hands", choices=("auto", "off"), default="auto")
    arguments = parser.parse_args()
    names = ("pose_model", "detector", "hands")
    options = json.dumps({name: getattr(arguments, name) for name in names})
    results: dict[str, list[dict[str, float]]] = {"fitmesh": [], "mediapipe": []}
    second = (
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) if arguments.busy else None
    )
    video = arguments.video.resolve()
    work = Path(tempfile.mkdtemp())
    if arguments.copies:
        video = grid_clip(
            video,
            work / f"{video.stem}_x{arguments.copies}.mp4",
            arguments.copies,
            arguments.frames,
        )
    try:
        for _ in range(arguments.rounds):
            if arguments.peer_python is not None:
                results["mediapipe"].append(
                    measured([str(arguments.peer_python), "-c", PEER, str(video)], 1)
                )
            command = [
                sys.executable,
                "-c",
                OURS,
                str(video),
                str(work / "out"),
                str(arguments.threads),
                options,
            ]
            results["fitmesh"].append(measured(command, arguments.threads))
    finally:
        if second is not None:
            second.kill()
        shutil.rmtree(work)
    table = Table(
        "",
        "ms a frame",
        "CPU ms",
        "with overlay",
        "start-up, s",
        "people",
        "peak MB",
        title=f"{video.name}, {arguments.threads} threads",
    )
    for name, rounds in results.items():
        if rounds:
            values = [1000 * timing["seconds"] / timing["frames"] for timing in rounds]
            overlay = [1000 * timing.get("overlay_s", 0) / timing["frames"] for timing in rounds]
            table.add_row(
                name,
                f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})",
                f"{statistics.median(1000 * timing['cpu_s'] / timing['frames'] for timing in rounds):.1f}",
                f"{statistics.median(overlay):.1f}" if overlay[0] else "",
                f"{statistics.median(timing['loading_s'] for timing in rounds):.1f}",
                str(rounds[0]["people"]),
                f"{max(timing['peak_mb'] for timing in rounds):.0f}",
            )
    Console(width=120).print(table)


if __name__ == "__main__":
    claim(main)
