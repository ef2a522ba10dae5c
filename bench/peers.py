"""Claim: `fitmesh run` up to fit.npz is as fast as MediaPipe Pose, and writes meshes.

MediaPipe pins an old NumPy, so it runs in a Python of its own:

    python3 -m venv mp && mp/bin/pip install mediapipe==0.10.21
    python bench/peers.py --video CLIP --peer-python mp/bin/python [--threads 2] [--busy] [--rounds 3]

Both read the same video in turn, several rounds in one run; the middle of the rounds counts. Networks are loaded before
the clock starts, which has a column of its own. MediaPipe tracks one person (complexity 1, its default) and decodes
with OpenCV; fitmesh finds everyone. --busy keeps one core busy with something else
meanwhile. Peak memory is that of each process.
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

from rich.console import Console
from rich.table import Table

PEER = """
import json, resource, sys, time
import cv2
import mediapipe as mp
import numpy as np
begin = time.perf_counter()
pose = mp.solutions.pose.Pose(model_complexity=1)
pose.process(np.zeros((256, 256, 3), np.uint8))
loading = time.perf_counter() - begin
video = cv2.VideoCapture(sys.argv[1])
frames = found = 0
start = time.perf_counter()
while True:
    ok, bgr = video.read()
    if not ok:
        break
    found += pose.process(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)).pose_world_landmarks is not None
    frames += 1
seconds = time.perf_counter() - start
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "frames": frames, "people": found, "peak_mb": peak,
                  "loading_s": loading}))
"""
OURS = """
import json, resource, sys, time
from pathlib import Path
from fitmesh.api import open_clip, run_settings
from fitmesh.progress import Reporter
from fitmesh.stages import fit, overlay, people, pipeline
from fitmesh.stages.people import read_tracks
from fitmesh.stages.settings import FitSettings, Job
from pose2d.io.clip import Span
video, out, threads, options = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
settings = run_settings(
    Span(), detections=None, detector=options["detector"], detector_size=None, min_score=0.55, max_people=None,
    pose_model=options["pose_model"], checkpoint=None, confidence=None, ccnet=None, keypoints=None,
    keypoint_layout="auto", device="cpu", threads=threads, fit=FitSettings(), exports=(), overwrite=True,
)
job = Job(open_clip(video), settings, out, Reporter(quiet=True))
marks = {}
start = time.perf_counter()
job.networks.get(), job.detector.get()
loading = time.perf_counter() - start
start = time.perf_counter()
for stage in pipeline.stages(job)[:3]:
    stage.make(job, stage.key)
    marks[stage.key.stage] = time.perf_counter() - start
seen = read_tracks(out)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": marks["fit"], "overlay_s": marks["overlay"], "people_s": marks["people"],
                  "frames": len(seen.frames), "people": len(seen.tracks), "peak_mb": peak,
                  "loading_s": loading}))
"""


def measured(command: list[str], threads: int) -> dict[str, float]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "GLOG_minloglevel": "3"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[1])
    if ended.returncode:
        raise SystemExit(ended.stderr[-2000:])
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", type=Path, required=True)
    parser.add_argument("--peer-python", type=Path, help="a Python that has mediapipe; without it fitmesh alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", action="store_true", help="another program keeps one core busy")
    parser.add_argument("--pose-model", default="rtmpose-s-halpe26")
    parser.add_argument("--detector", default="yolox-tiny")
    arguments = parser.parse_args()
    options = json.dumps({"pose_model": arguments.pose_model, "detector": arguments.detector})
    found: dict[str, list[dict[str, float]]] = {"fitmesh": [], "mediapipe": []}
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if arguments.busy else None
    video = arguments.video.resolve()
    try:
        for _ in range(arguments.rounds):
            if arguments.peer_python is not None:
                found["mediapipe"].append(measured([str(arguments.peer_python), "-c", PEER, str(video)], 1))
            folder = tempfile.mkdtemp()
            command = [sys.executable, "-c", OURS, str(video), folder, str(arguments.threads), options]
            found["fitmesh"].append(measured(command, arguments.threads))
            shutil.rmtree(folder)
    finally:
        if other is not None:
            other.kill()
    table = Table(
        "",
        "ms a frame",
        "with overlay",
        "loading, s",
        "people",
        "peak MB",
        title=f"{video.name}, {arguments.threads} threads",
    )
    for name, rounds in found.items():
        if rounds:
            each = [1000 * one["seconds"] / one["frames"] for one in rounds]
            overlay = [1000 * one.get("overlay_s", 0) / one["frames"] for one in rounds]
            table.add_row(
                name, f"{statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})",
                f"{statistics.median(overlay):.1f}" if overlay[0] else "",
                f"{statistics.median(one['loading_s'] for one in rounds):.1f}", str(rounds[0]["people"]),
                f"{max(one['peak_mb'] for one in rounds):.0f}",
            )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
