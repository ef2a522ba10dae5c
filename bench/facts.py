"""Are gravity, heights, joints and touching hands of real clips what people see in them?

    python bench/facts.py RESULTS [--clips NAME,NAME] [--data real_clips] [--processes 2] [--verbose]

Fits every clip of `real_clips` from its stored tracks and keypoints with the stage that `fitmesh
run` uses, writes RESULTS/NAME/fit.npz, and checks them against `facts.csv` with the shared checker.
Constants are chosen on every second clip by name (choose: the 1st, 3rd, ..); the others report.
`--score` checks results that are there already.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import claim
from fitmesh.stages import fit
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Event, Message, Reporter
from pose2d.base.caching import CacheKey
from pose2d.video.frames import WHOLE, Clip, ClipInfo, Frame, Span

SHARED = Path(__file__).resolve().parents[2] / "shared"
DATA = SHARED / "data/real_clips"
CHECKER = SHARED / "tools/check_facts.py"
STAGE_FILES = ("tracks.npz", "keypoints.npz")
LOG_FILE = "messages.txt"


class StoredClip(Clip):
    """A clip of which the tracks and keypoints were kept, with or without its footage."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "tracks.npz") as tracks:
            width, height = int(tracks["width_px"]), int(tracks["height_px"])
            rate = Fraction(*map(int, tracks["rate"]))
            count = len(tracks["frame"])
        self.path = folder / "clip.mp4"
        self.info = ClipInfo(width, height, rate, 1 / rate, count, float(count / rate), False)
        self.warnings = []

    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        raise NotImplementedError("Clips without footage have no frames.")

    def files(self) -> list[Path]:
        return [self.path]


def fit_stored_clip(source: Path, out: Path) -> tuple[str, float]:
    """Write `out`/fit.npz from the tracks and keypoints in `source`; return name and seconds."""
    out.mkdir(parents=True, exist_ok=True)
    for name in STAGE_FILES:
        link = out / name
        link.unlink(missing_ok=True)
        link.symlink_to(source / name)
    messages: list[str] = []

    def keep_messages(event: Event) -> None:
        if isinstance(event, Message):
            messages.append(event.text)

    job = Job(StoredClip(source), RunSettings(), out, Reporter(keep_messages))
    people_key = CacheKey("people", {}, {}, "stored")
    began = time.monotonic()
    fit.make(job, fit.cache_key(job, people_key))
    (out / LOG_FILE).write_text("\n".join(messages) + "\n", encoding="utf-8")
    return source.name, time.monotonic() - began


def check_facts(results: Path, data: Path, names: list[str], verbose: bool) -> str:
    """Return the checker's table for these clips."""
    command = [sys.executable, str(CHECKER), str(data / "facts.csv"), str(results)]
    command += ["--clips", ",".join(names), "--worst", "40", *(["--verbose"] if verbose else [])]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="folder for NAME/fit.npz of every clip")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with NAME/tracks.npz")
    parser.add_argument("--clips", default="", help="only these clips, comma-separated")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--score", action="store_true", help="only check fits made before")
    parser.add_argument("--verbose", action="store_true", help="list every fact")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        sys.exit(f"{arguments.data} is missing: real clips are not part of the repository.")
    all_names = sorted(path.parent.name for path in arguments.data.glob("*/tracks.npz"))
    requested = arguments.clips.split(",") if arguments.clips else all_names
    names = [name for name in all_names if name in requested]
    if not arguments.score:
        os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
            sources = [arguments.data / name for name in names]
            outs = [arguments.results / name for name in names]
            for name, seconds in pool.map(fit_stored_clip, sources, outs):
                print(f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)
    if not (arguments.data / "facts.csv").is_file():
        return
    halves = {
        "all": names,
        "choose": [name for name in names if name in all_names[0::2]],
        "report": [name for name in names if name in all_names[1::2]],
    }
    for title, half in halves.items():
        if half:
            verbose = arguments.verbose and title == "all"
            table = check_facts(arguments.results, arguments.data, half, verbose)
            print(
                f"== {title}: {len(half)} clips\n{table if title == 'all' else table.split('worst (')[0]}"
            )


if __name__ == "__main__":
    claim(main)
