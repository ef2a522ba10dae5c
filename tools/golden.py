"""The same numbers before and after a change: make the results of five small jobs, and compare two
such folders.

    PYTHONPATH=$PWD python tools/golden.py make /tmp/before              # about two minutes on two cores
    PYTHONPATH=$PWD python tools/golden.py make /tmp/after --only run,cuts
    python tools/golden.py compare /tmp/before /tmp/after                # exit code 1 where something differs

PYTHONPATH decides whose code runs (`PYTHONPATH=/some/other/checkout`); without it, the code beside
this script. Only what a user can call is called, so that one script serves old and new code:

| job | what |
|---|---|
| run | two people of the example clip, with the scene and everything that `fitmesh run` writes by default |
| cuts | five pieces joined with cuts, one of them panning, with --relink; other videos where FITMESH_SHARED has them |
| keypoints | `run --keypoints`: two walkers with noise, hidden legs, and an absence |
| eval-3dpw | two rendered sequences |
| train-ccnet | a head for movenet-lightning, two epochs on random images |

Arrays are compared, not files: a file also holds digests of the code that made it. Results are kept
as FOLDER/JOB.npz, the inputs in FOLDER/inputs (their digests are compared too: another input is no
change of the fit). An array in REMOVED may be missing, one in RENAMED may have another name.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("FITMESH_SHARED", ROOT.parent / "shared"))
PARK = ROOT / "examples" / "park.mp4"
IGNORED = ("cache_key", "digest")  # part of a name: what says which code or file made the numbers
TEXTS = ("camera_reason", "warnings")  # sentences for people, which may be worded better
# Left out on purpose: nothing read them, or text that numbers were packed into. Name of the array,
# without its file.
REMOVED = (
    "row_owner_presence",
    "row_sigma_px",
    "camera_rotation_std_deg",
    "events",
    "mode_identity",
    "mode_frame",
    "mode_probability",
    "mode_pose_rad",
    "mode_translation_m",
)
RENAMED: dict[str, str] = {}  # name of an array before -> after, without their file
JOINED_WH = (640, 360)
JOINED_FPS = 15

Arrays = dict[str, np.ndarray]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="run the jobs and keep their arrays")
    making.add_argument("folder", type=Path)
    making.add_argument("--only", help=f"some of {','.join(JOBS)}, with commas")
    comparing = commands.add_parser(
        "compare", help="two folders of arrays; exit code 1 where they differ"
    )
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--tolerance", type=float, default=0.0, help="largest difference that counts as equal"
    )
    comparing.add_argument("--all", action="store_true", help="name also every array that is equal")
    parsed = parser.parse_args()
    if parsed.command == "compare":
        return compare(parsed.before, parsed.after, parsed.tolerance, parsed.all)
    requested = parsed.only.split(",") if parsed.only else list(JOBS)
    if unknown := set(requested) - set(JOBS):
        parser.error(f"there is no job {', '.join(sorted(unknown))}: choose of {', '.join(JOBS)}")
    make(parsed.folder.resolve(), requested)
    return 0


def make(folder: Path, jobs: list[str]) -> None:
    if "PYTHONPATH" not in os.environ:
        os.environ["PYTHONPATH"] = str(ROOT)
        sys.path.insert(0, str(ROOT))
    import fitmesh

    print(f"code: {Path(fitmesh.__file__).parents[1]}")
    for job in jobs:
        start = time.monotonic()
        inputs = folder / "inputs" / job
        out = folder / "out" / job
        _remove(out)
        _remove(inputs)
        inputs.mkdir(parents=True)
        arrays = JOBS[job](inputs, out)
        files = sorted(
            path for path in inputs.rglob("*") if path.suffix in (".mp4", ".json", ".png", ".jpg")
        )
        arrays["inputs"] = np.array(
            [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
        )
        np.savez_compressed(folder / f"{job}.npz", **arrays)
        print(f"{job}: {len(arrays)} arrays in {time.monotonic() - start:.0f} s", flush=True)


def _remove(folder: Path) -> None:
    import shutil

    if folder.exists():
        shutil.rmtree(folder)


def _fitmesh(*arguments: object) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "fitmesh", *map(str, arguments)],
        cwd=os.sep,
        capture_output=True,
        text=True,
    )
    if ended.returncode != 0:
        sys.exit(f"fitmesh {' '.join(map(str, arguments))}\n{ended.stdout}\n{ended.stderr}")


# The jobs


def _example(inputs: Path, out: Path) -> Arrays:
    _fitmesh("run", "--video", PARK, "--end", 2, "--export", "amass", "--out", out, "--quiet")
    return _of_run(out)


def _cuts(inputs: Path, out: Path) -> Arrays:
    _fitmesh("run", "--video", _joined(inputs / "joined.mp4"), "--relink", "--out", out, "--quiet")
    return _of_run(out)


def _joined(path: Path) -> Path:
    """Five pieces of a second: people, others, children, the first again while the camera pans, a
    back.
    """

    def other(name: str, start: int) -> Iterator[np.ndarray]:
        video = SHARED / "data" / "videos" / name
        return (
            _images(video, start) if video.is_file() else _images(PARK, 30 + start, mirrored=True)
        )

    pieces = (
        _images(PARK, 30, step=2),
        other("worker_back.mp4", 10),
        other("bedroom_children.mp4", 20),
        _images(PARK, 60, step=2, pan_px=24),
        other("one_by_one.mp4", 40),
    )
    return _write_video(
        path,
        (image for piece in pieces for image in islice(piece, JOINED_FPS)),
        JOINED_FPS,
        JOINED_WH,
    )


def _write_video(path: Path, images: Iterable[np.ndarray], fps: int, size: tuple[int, int]) -> Path:
    """Write a video without the project's writer, whose changes must not look like changes of the
    fit.
    """
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264", rate=fps, options={"crf": "18", "threads": "1", "bf": "0"}
        )
        stream.width, stream.height = size
        for image in images:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    return path


def _images(
    video: Path, start: int, step: int = 1, pan_px: int = 0, mirrored: bool = False
) -> Iterator[np.ndarray]:
    """Yield RGB images of one size from frame `start` on; pan_px: a window of 70 % moves so far to
    the right each frame.
    """
    import cv2

    reader = cv2.VideoCapture(str(video))
    number = -1
    while reader.grab():
        number += 1
        if number < start or (number - start) % step:
            continue
        image = reader.retrieve()[1]
        if pan_px:
            height, width = (7 * side // 10 for side in image.shape[:2])
            left = pan_px * (number - start) // step
            top = (image.shape[0] - height) // 2
            image = image[top : top + height, left : left + width]
        image = cv2.resize(image, JOINED_WH, interpolation=cv2.INTER_AREA)[..., ::-1]
        yield np.ascontiguousarray(image[:, ::-1] if mirrored else image)


def _given_keypoints(inputs: Path, out: Path) -> Arrays:
    """Two people walk for three seconds. The second one is away for one of them, and for a while
    has no legs.
    """
    from tests.walkers import LEGS, coco_results, walker

    frames = 60
    fps = 20
    size = (640, 480)
    images = (np.full((size[1], size[0], 3), number, np.uint8) for number in range(frames))
    video = _write_video(inputs / "walk.mp4", images, fps, size)
    random = np.random.default_rng(0)
    entries = coco_results([walker(frames, size), walker(frames, size, start_x_m=-0.9)])
    selected = []
    for entry in entries:
        points = np.array(entry["keypoints"]).reshape(-1, 3)
        points[:, :2] += random.normal(0, 2, points[:, :2].shape)
        points[:, 2] = random.uniform(0.5, 1, len(points))
        if entry["track_id"] == 2 and 40 <= entry["image_id"] < 50:
            points[list(LEGS), 2] = 0
        if entry["track_id"] == 1 or not 15 <= entry["image_id"] < 35:
            selected.append({**entry, "keypoints": points.ravel().round(2).tolist()})
    keypoint_file = inputs / "walk.json"
    keypoint_file.write_text(json.dumps(selected))
    _fitmesh("run", "--video", video, "--keypoints", keypoint_file, "--out", out, "--quiet")
    return _of_run(out)


def _eval_3dpw(inputs: Path, out: Path) -> Arrays:
    _fitmesh(
        "synth", "--out", inputs / "set", "--sequences", 2, "--frames", 14, "--size", "480x270"
    )
    _fitmesh("eval-3dpw", "--data", inputs / "set", "--out", out, "--quiet")
    return {**_of_npz(out), **_of_json(out / "eval-3dpw.json")}


def _train_ccnet(inputs: Path, out: Path) -> Arrays:
    from safetensors.numpy import load_file

    from tests.ccnet.toy import write_coco

    write_coco(inputs / "coco", "train2017", count=8)
    write_coco(inputs / "coco", "val2017", count=5, seed=1)
    options = ("--model", "movenet-lightning", "--epochs", 2, "--batch", 4)
    _fitmesh("train-ccnet", "--data", inputs / "coco", "--out", out, *options)
    head = {
        f"ccnet.safetensors/{name}": value
        for name, value in load_file(out / "ccnet.safetensors").items()
    }
    return {**head, **_of_json(out / "metrics.json")}


JOBS: dict[str, Callable[[Path, Path], Arrays]] = {
    "run": _example,
    "cuts": _cuts,
    "keypoints": _given_keypoints,
    "eval-3dpw": _eval_3dpw,
    "train-ccnet": _train_ccnet,
}


# What they leave


def _of_run(out: Path) -> Arrays:
    """Return the arrays of all files, and all people as the library reads them back."""
    import fitmesh

    result = _of_npz(out)
    for person in fitmesh.load(out).people:
        for name in ("time_s", "joints_m", "joints_world_m"):
            if (value := getattr(person, name)) is not None:
                result[f"load/person {person.identity}/{name}"] = value
    return result


def _of_npz(folder: Path) -> Arrays:
    results = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                if not any(part in name for part in IGNORED):
                    results[f"{path.relative_to(folder)}/{name}"] = arrays[name]
    return results


def _of_json(path: Path) -> Arrays:
    """Return the numbers of a JSON file by the keys that lead to them."""

    def leaves(value: object, name: str) -> Iterator[tuple[str, np.ndarray]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from leaves(inner, f"{name}/{key}")
        elif isinstance(value, list) and value and not isinstance(value[0], int | float):
            for number, inner in enumerate(value):
                yield from leaves(inner, f"{name}/{number}")
        elif isinstance(value, list | int | float):
            yield name, np.array(value)

    return dict(leaves(json.loads(path.read_text()), path.name))


# Comparing


def compare(before: Path, after: Path, tolerance: float, show_equal: bool) -> int:
    jobs = [
        job
        for job in JOBS
        if (before / f"{job}.npz").is_file() and (after / f"{job}.npz").is_file()
    ]
    if not jobs:
        sys.exit(f"no job was made in both {before} and {after}.")
    differ = 0
    for job in jobs:
        with np.load(before / f"{job}.npz") as first, np.load(after / f"{job}.npz") as two:
            differ += _compare_job(job, dict(first), dict(two), tolerance, show_equal)
    left_out = [job for job in JOBS if job not in jobs]
    print(
        f"{differ or 'no'} arrays differ"
        + (f"; not compared: {', '.join(left_out)}" if left_out else "")
    )
    return 1 if differ else 0


def _compare_job(
    job: str, before: Arrays, after: Arrays, tolerance: float, show_equal: bool
) -> int:
    print(f"== {job}")
    differ = equal = 0
    new = set(after)
    for name, value in before.items():
        folder, _, last = name.rpartition("/")
        second = name if name in after else f"{folder}/{RENAMED.get(last, last)}".lstrip("/")
        new.discard(second)
        if second not in after:
            removed = last in REMOVED
            differ += not removed
            print(f"   {name}: {'removed' if removed else 'MISSING'}")
            continue
        said = "" if last in TEXTS else _difference(value, after[second], tolerance)
        if last in REMOVED and said:
            print(f"   {name}: removed, and something else has its name")
        elif said:
            differ += 1
            print(f"   {name}: {said}")
        else:
            equal += 1
            if show_equal:
                print(f"   {name}: equal")
    for name in sorted(new):
        print(f"   {name}: new {after[name].shape}")
    print(f"   {equal} arrays equal" + (f" (within {tolerance:g})" if tolerance else ""))
    for name in (name for name in before if name.endswith("/joints_m") and name in after):
        times = name.removesuffix("joints_m") + "time_s"
        said = [_movement(arrays[name], arrays[times]) for arrays in (before, after)]
        print(f"   {name}: {said[0]}" + (f" -> {said[1]}" if said[0] != said[1] else ""))
    return differ


def _difference(first: np.ndarray, two: np.ndarray, tolerance: float) -> str:
    """Empty where they are equal; NaN equals NaN."""
    if first.shape != two.shape:
        return f"DIFFERS: shape {first.shape} -> {two.shape}"
    if not all(
        np.issubdtype(array.dtype, np.number) or array.dtype == bool for array in (first, two)
    ):
        return "" if np.array_equal(first, two) else f"DIFFERS: {_short(first)} -> {_short(two)}"
    first = first.astype(np.float64)
    two = two.astype(np.float64)
    if (np.isnan(first) != np.isnan(two)).any():
        return (
            f"DIFFERS: {int((np.isnan(first) != np.isnan(two)).sum())} numbers are NaN in one only"
        )
    with np.errstate(invalid="ignore"):
        apart = np.where(first == two, 0, np.abs(first - two))
    largest = float(np.nanmax(apart, initial=0))
    if largest <= tolerance:
        return ""
    share = float((np.nan_to_num(apart, nan=0) > tolerance).mean())
    typical = float(np.nanmedian(np.abs(first)))
    return f"DIFFERS: by {largest:.3g} at most, in {share:.0%} of the numbers (their median is {typical:.3g})"


def _short(array: np.ndarray) -> str:
    text = " ".join(str(array).split())
    return text if len(text) < 80 else f"{text[:77]}..."


def _movement(joints_m: np.ndarray, time_s: np.ndarray) -> str:
    """Mean acceleration and jitter (change of acceleration per second) of the joints where frames
    follow each other.
    """
    steps = np.diff(time_s)
    typical_step = float(np.median(steps)) if len(steps) else 1.0
    breaks = [0, *(np.flatnonzero(steps > 1.5 * typical_step) + 1).tolist(), len(time_s)]
    means = []
    for order in (2, 3):
        pieces = [
            np.diff(joints_m[a:b].astype(np.float64), order, axis=0)
            for a, b in pairwise(breaks)
            if b - a > order
        ]
        lengths = (
            np.concatenate([np.linalg.norm(piece, axis=-1).ravel() for piece in pieces])
            if pieces
            else np.zeros(1)
        )
        means.append(float(lengths.mean()) / typical_step**order)
    return f"acceleration {means[0]:.4g} m/s2, jitter {means[1]:.4g} m/s3"


if __name__ == "__main__":
    sys.exit(main())
