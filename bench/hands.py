"""Claim: a run with one person takes at most 1.6 times as long with hands as without.

    python bench/hands.py VIDEO [--rounds 3]

`fitmesh run` in a process of its own with --hands off and --hands auto, in turns; the quickest
round of each counts. Processor time is that of all threads. Fingers are fitted where hands are
found, so their fit counts too.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from fitmesh.stages.people import read_keypoints

MOST = 1.6  # times the time of a run without hands, for `auto` to be the default


def timed(video: Path, out: Path, hands: str) -> tuple[float, float]:
    """Seconds on the clock and of the processor."""
    command = [
        sys.executable,
        "-m",
        "fitmesh",
        "run",
        "--video",
        str(video),
        "--out",
        str(out),
        "--overwrite",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([*command, "--hands", hands], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, used


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("video", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    console = Console()
    modes = ("off", "auto")
    with tempfile.TemporaryDirectory() as folder:
        outs = {mode: Path(folder) / mode for mode in modes}
        rounds = [
            [timed(options.video, outs[mode], mode) for mode in modes]
            for _ in range(options.rounds)
        ]
        seen_people = read_keypoints(outs["auto"])
    hands = seen_people.rows.hands
    assert hands is not None
    best = np.array(rounds).min(0)  # [modes, (clock, processor)]
    table = Table(
        "--hands",
        "seconds",
        "processor seconds",
        "times",
        title=f"fitmesh run, {options.video.name}",
    )
    for mode, (clock, processor) in zip(modes, best, strict=True):
        table.add_row(mode, f"{clock:.1f}", f"{processor:.1f}", f"{processor / best[0, 1]:.2f}")
    console.print(table)
    people = len(seen_people.people)
    rows = len(seen_people.rows)
    observed = hands.presence > 0
    size = hands.size_px[observed]
    std = hands.std_px[observed]
    console.print(
        f"{people} people in {rows} person-frames; hands found: left {observed[:, 0].mean():.0%}, right "
        f"{observed[:, 1].mean():.0%}; {np.median(size):.0f} px long, keypoints stated to be {np.median(std):.1f} px off"
    )
    ratio = best[1, 1] / best[0, 1]
    console.print(
        f"{ratio:.2f} times the processor time: {'within' if ratio <= MOST else 'above'} {MOST}"
    )


if __name__ == "__main__":
    claim(main)
