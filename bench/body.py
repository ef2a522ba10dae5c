"""Claim: keypoints without the mesh cost a fraction of the full body, and the full body less than
smplx's.

Places the open body in B frames by `smplx`, by `fitting` with the mesh, and by `fitting` with
keypoints only, on one and two threads, and reports the time of a call and the memory it needs on
top of the loaded body.

    python bench/body.py
"""

import argparse
import contextlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import claim

WAYS = ("smplx, mesh", "fitting, mesh", "fitting, keypoints")
BATCHES = (1, 64, 512)
THREADS = (1, 2)


def placer(way: str) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]:
    """A call that places the open body for poses [B, 72], shapes [B, 10] and translations [B, 3]."""
    import fitting
    from fitting.body.open_body import OPEN_BODY

    if way.startswith("fitting"):
        body = fitting.load_body()
        return lambda pose, shape, translation: body(
            pose, shape, translation, vertices=way.endswith("mesh")
        )

    import smplx

    with contextlib.redirect_stdout(io.StringIO()):
        model = smplx.SMPL(
            "",
            data_struct=SimpleNamespace(**np.load(OPEN_BODY)),
            vertex_ids=fitting.load_body().vertex_picks,
        )
    return lambda pose, shape, translation: model(
        betas=shape, global_orient=pose[:, :3], body_pose=pose[:, 3:], transl=translation
    )


def peak_bytes(reset: bool = False) -> int:
    """The most memory this process has held since the last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


def measure(way: str, threads: int, seconds: float) -> dict[int, tuple[float, float]]:
    """Return for every batch the best time of a call in ms, and its peak memory above the start
    in MB.
    """
    torch.set_num_threads(threads)
    place = placer(way)
    results = {}
    for batch in BATCHES:
        generator = torch.Generator().manual_seed(batch)
        pose = 0.3 * torch.randn(batch, 72, generator=generator)
        shape = torch.randn(batch, 10, generator=generator)
        translation = torch.randn(batch, 3, generator=generator)
        with torch.no_grad():
            place(pose[:1], shape[:1], translation[:1])
            before = peak_bytes(reset=True)
            place(pose, shape, translation)
            memory = peak_bytes() - before
            best = float("inf")
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                start = time.perf_counter()
                place(pose, shape, translation)
                best = min(best, time.perf_counter() - start)
        results[batch] = (best * 1e3, memory / 1e6)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="how long to repeat each measurement"
    )
    parser.add_argument("--child", nargs=2, metavar=("WAY", "THREADS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child[0], int(options.child[1]), options.seconds)))
        return

    from rich.console import Console
    from rich.table import Table

    for threads in THREADS:
        # Each way has a process of its own, so that no one inherits another's memory.
        results = {}
        for way in WAYS:
            command = [
                sys.executable,
                __file__,
                "--seconds",
                str(options.seconds),
                "--child",
                way,
                str(threads),
            ]
            results[way] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
        table = Table(
            "way",
            "B",
            "ms / call",
            "µs / frame",
            "times faster than smplx",
            "than our mesh",
            "peak MB",
        )
        for batch in map(str, BATCHES):
            for way in WAYS:
                milliseconds, memory = results[way][batch]
                table.add_row(
                    way,
                    batch,
                    f"{milliseconds:.2f}",
                    f"{1e3 * milliseconds / int(batch):.1f}",
                    f"{results[WAYS[0]][batch][0] / milliseconds:.1f}",
                    f"{results[WAYS[1]][batch][0] / milliseconds:.1f}",
                    f"{memory:.1f}",
                )
        table.title = f"open body, {threads} thread{'s' * (threads > 1)}"
        Console().print(table)


if __name__ == "__main__":
    claim(main)
