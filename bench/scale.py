"""Many short clips by one process, by two, and by Ray with two workers; killed again and again; in
a store that fails.

    python bench/scale.py --videos VIDEO ..                        60 clips, ten kills (docs/scale.md)
    python bench/scale.py --videos VIDEO .. --clips 8 --kills 3    the same in small

Clips of five frames, 320 pixels wide, are cut from the videos. Speed is that of whole commands,
start-up included. Results are compared byte by byte (tracks, keypoints, fits, overlay, scene). A
kill is SIGKILL, to the driver or to a worker at random, at a random moment; the command is started
again when the driver was killed. A file that was there at a kill and is another one at the end was
made twice.
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitmesh
from bench.lib.claim import Console, claim
from bench.lib.scale_clips import cut_clips
from pose2d.base.threads import cores

ROOT = Path(__file__).parents[1]
RESULTS = ("tracks.npz", "keypoints.npz", "fit.npz", "overlay.mp4", "scene.glb")
MODES = {
    "1 process": ("--jobs", "1"),
    "2 processes": ("--jobs", "2"),
    "Ray, 2 workers": ("--ray", "auto"),
}
LONGEST_WAIT_S = 6.0  # from the first clip that is begun to a kill
STORE_SHARE = 4  # one clip in so many goes through the store


@dataclass(frozen=True)
class Speed:
    """One whole command."""

    seconds: float
    work_s: float  # of the clips, without start-up
    cpu_s: float  # the same of the processor
    memory_mb: int  # most that a worker had
    first_s: float  # until the first clip was done


def command(clips: Path, out: Path, mode: str) -> list[str]:
    words = ["run", "--videos", str(clips / "*.mp4"), "--out", str(out), "--json", *MODES[mode]]
    # Two threads in all, as two workers of one thread have: results do not depend on it, speed
    # does.
    return [sys.executable, "-m", "fitmesh", *words, "--threads", "1" if "--ray" in words else "2"]


def environment() -> dict[str, str]:
    # Ray gives its workers a low priority, and on a machine that is busy they would be compared
    # unfairly.
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "RAY_worker_niceness": "0", "PYTHONPATH": path}


def timed(clips: Path, out: Path, mode: str) -> Speed:
    began = time.monotonic()
    first_s = 0.0
    ended = []
    process = subprocess.Popen(
        command(clips, out, mode), stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    for line in process.stdout:
        news = json.loads(line)
        if news["event"] == "ended":
            first_s = first_s or time.monotonic() - began
            ended.append(news)
    if process.wait() != 0:
        raise SystemExit(f"{mode} failed: {[news['error'] for news in ended if news['error']][:3]}")
    return Speed(
        seconds=time.monotonic() - began,
        work_s=sum(news["seconds"] for news in ended),
        cpu_s=sum(news["cpu_s"] for news in ended),
        memory_mb=max(news["peak_mb"] for news in ended),
        first_s=first_s,
    )


def different(first: Path, second: Path) -> list[str]:
    """Results that are not the same, byte by byte."""
    names = sorted(path.parent.name for path in first.glob("*/fit.npz"))
    return [
        f"{name}/{file}"
        for name in names
        for file in RESULTS
        if not (second / name / file).is_file()
        or (first / name / file).read_bytes() != (second / name / file).read_bytes()
    ]


def state_of(out: Path) -> dict[Path, tuple[int, int]]:
    """Which file is which: a file that is made again is another one."""
    result_paths = [path for name in RESULTS for path in out.glob(f"*/{name}")]
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in result_paths}


def holders(out: Path) -> list[int]:
    """Processes that are at work on a clip."""
    pids = []
    for path in out.glob("*/.fitmesh.lock"):
        try:
            pids.append(int(json.loads(path.read_text())["pid"]))
        except (OSError, ValueError, KeyError):
            continue
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@dataclass
class Kills:
    """What happened."""

    drivers: int = 0
    workers: int = 0
    starts: int = 0
    twice: int = 0  # files of clips that were not in progress at a kill
    twice_of_killed: int = 0  # files of clips that were
    different: int = 0  # files
    failed: int = 0  # clips


def killed(
    clips: Path,
    out: Path,
    undisturbed: Path,
    kills: int,
    chance: random.Random,
    modes: Sequence[str],
) -> Kills:
    """Run to the end, killed so many times on the way."""
    log = Kills()
    states: list[
        tuple[dict[Path, tuple[int, int]], set[str]]
    ] = []  # files, and clips in progress, at every kill
    process: subprocess.Popen[bytes] | None = None
    while log.drivers + log.workers < kills:
        if process is None or process.poll() is not None:
            if process is not None and process.returncode == 0:
                break  # everything is done already
            mode = modes[log.starts % len(modes)]
            process = subprocess.Popen(
                command(clips, out, mode), stdout=subprocess.DEVNULL, env=environment()
            )
            log.starts += 1
        while process.poll() is None and not holders(out):
            time.sleep(0.05)
        time.sleep(chance.uniform(0, LONGEST_WAIT_S))
        states.append((state_of(out), {path.parent.name for path in out.glob("*/.fitmesh.lock")}))
        if chance.random() < 0.5:
            process.kill()
            process.wait()
            log.drivers += 1
        elif at_work := holders(out):
            os.kill(chance.choice(at_work), signal.SIGKILL)
            log.workers += 1
    if process is not None and process.poll() is None:
        process.wait()
    log.starts += 1
    last = subprocess.run(
        command(clips, out, modes[0]), capture_output=True, text=True, env=environment()
    )
    ended = [news for news in map(json.loads, last.stdout.splitlines()) if news["event"] == "ended"]
    log.failed = sum(news["state"] not in ("done", "kept") for news in ended)
    final = state_of(out)
    again = {
        (path, path.parent.name in busy)
        for state, busy in states
        for path, which in state.items()
        if final.get(path) != which
    }
    log.twice, log.twice_of_killed = (
        sum(was_busy == requested for _, was_busy in again) for requested in (False, True)
    )
    log.different = len(different(undisturbed, out))
    return log


def stored(clips: Sequence[Path], scratch: Path, undisturbed: Path) -> dict[str, Any]:
    """Clips and results in a store of which one call in twenty fails."""
    from bench.lib.scale_store import PROTOCOL, FailingStore, register

    register()
    bucket = scratch / "bucket"
    (bucket / "in").mkdir(parents=True)
    for clip in clips:
        (bucket / "in" / clip.name).write_bytes(clip.read_bytes())
    began = time.monotonic()
    statuses = fitmesh.run_many(
        f"{PROTOCOL}://{bucket}/in/*.mp4", f"{PROTOCOL}://{bucket}/out", threads=2
    )
    done = sum(status.is_good for status in statuses)
    wrong = [
        name for name in different(bucket / "out", undisturbed) if (bucket / "out" / name).exists()
    ]
    return {
        "clips": len(clips),
        "done": done,
        "calls": FailingStore.calls,
        "failures": FailingStore.failures,
        "different": len(wrong),
        "seconds": time.monotonic() - began,
    }


def megabytes(paths: Sequence[Path]) -> float:
    return sum(path.stat().st_size for path in paths) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=Path, nargs="+", default=[ROOT / "examples" / "park.mp4"])
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--frames", type=int, default=5, help="of a clip")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments and victims of kills")
    options = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="fitmesh-scale-") as folder:
        scratch = Path(folder)
        clips = cut_clips(options.videos, scratch / "clips", options.clips, options.frames)
        modes = [mode for mode in MODES if "Ray" not in mode or find_spec("ray") is not None]
        lines = [
            f"{len(clips)} clips of {options.frames} frames, {megabytes(clips) / len(clips):.2f} MB each, from "
            f"{len(options.videos)} videos; {cores()} cores, shared with {os.getloadavg()[0]:.0f} others at the "
            f"start, Python {platform.python_version()}."
        ]
        outs = [scratch / mode.replace(" ", "_") for mode in modes]
        head = (
            "",
            "clips a minute",
            "first clip after",
            "a clip, in its worker",
            "processor",
            "memory",
            "different files",
        )
        rows = [f"| {' | '.join(head)} |", "|---|---:|---:|---:|---:|---:|---:|"]
        for mode, out in zip(modes, outs, strict=True):
            speed = timed(scratch / "clips", out, mode)
            cells = (
                mode,
                f"{60 * len(clips) / speed.seconds:.1f}",
                f"{speed.first_s:.0f} s",
                f"{speed.work_s / len(clips):.1f} s",
                f"{speed.cpu_s / len(clips):.1f} s",
                f"{speed.memory_mb} MB",
                str(len(different(outs[0], out))),
            )
            rows.append(f"| {' | '.join(cells)} |")
        results = megabytes([path for path in outs[0].glob("*/*") if path.is_file()]) / len(clips)
        lines += ["", *rows, "", f"Results of a clip: {results:.2f} MB."]
        if find_spec("fsspec") is not None:
            said = stored(clips[::STORE_SHARE], scratch, outs[0])
            lines.append(
                f"A store of which 5 % of calls fail: {said['failures']} of {said['calls']} calls failed, "
                f"{said['done']} of {said['clips']} clips done, {said['different']} files differ."
            )
        for victims in [[mode] for mode in modes[1:]]:
            chance = random.Random(options.seed)
            out = scratch / f"killed_{victims[0][:3].strip()}"
            log = killed(scratch / "clips", out, outs[0], options.kills, chance, victims)
            lines.append(
                f"{victims[0]}, killed {log.drivers + log.workers} times ({log.drivers} drivers, {log.workers} "
                f"workers, {log.starts} starts): {log.failed} clips failed, {log.different} files differ from the "
                f"undisturbed run. Of what was complete at a kill, {log.twice} files of clips that no worker was at "
                f"work on were made again, and {log.twice_of_killed} of those that died."
            )
    console.print_markdown("\n".join(lines))


if __name__ == "__main__":
    claim(main)
