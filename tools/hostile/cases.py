"""The cases: options of every command, files for every loader, runs over damaged results."""

import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import numpy as np
import typer

from tools.hostile.file_cases import again, file_cases, load
from tools.hostile.inputs import Valid
from tools.hostile.mutations import damaged_bytes
from tools.hostile.runner import Case, command
from tools.hostile.scene_cases import scene_cases

BAD_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "1e30",
    "99999999999999999999",
    "abc",
    "",
    "0x10",
    "9" * 5000,
)
BAD_TEXTS: tuple[str | bytes, ...] = (
    "",
    " ",
    "zzz",
    "a" * 300,
    "a/" * 3000,
    b"\xff\xfe",
    "../..",
    "/dev/null",
    "\n",
    "é" * 200,
)


def option_cases(valid: Valid) -> Iterator[Case]:
    """Yield every option of every command with values that it cannot have.

    The inputs named beside them do not exist.
    """
    from fitmesh.cli import COMMANDS, command_of

    base: dict[str, list[str]] = {
        "run": ["--video", "missing.mp4", "--out", "out"],
        "view": ["missing"],
        "tracks": ["missing"],
        "body": ["--body-model", "missing.npz"],
        "train-ccnet": ["--data", "missing", "--model", "movenet-thunder", "--out", "out"],
        "eval-coco": ["--data", "missing"],
        "eval-3dpw": ["--data", "missing"],
        "synth": ["--out", "out", "--motion", "missing.npz"],
    }
    for name in (name for name in COMMANDS if name != "models"):
        for option, parameter in inspect.signature(command_of(name)).parameters.items():
            hint = parameter.annotation
            if get_origin(hint) is not Annotated or hint.__origin__ is bool or option == "config":
                continue
            if isinstance(hint.__metadata__[0], typer.models.ArgumentInfo):
                continue
            numeric = bool({int, float} & {hint.__origin__, *get_args(hint.__origin__)})
            flag = f"--{option.replace('_', '-')}"
            for value in BAD_NUMBERS if numeric else BAD_TEXTS:
                arguments = [*base.get(name, []), f"{flag}=".encode() + os.fsencode(value)]
                visible = os.fsdecode(value)[:20].encode("utf-8", "replace").decode()
                yield Case(f"{name} {flag} {visible!r}", command(name, *arguments))


def choice_cases(valid: Valid) -> Iterator[Case]:
    """Yield names that do not exist, beside a valid video and valid keypoints."""
    run_options = ["--video", str(valid.video), "--keypoints", str(valid.keypoints), "--out", "out"]
    for flag in (
        "--device",
        "--weighting",
        "--init",
        "--export",
        "--keypoint-layout",
        "--body-model",
    ):
        for value in ("zzz", "meta", "../x"):
            yield Case(f"run {flag} {value}", command("run", *run_options, flag, value))
    frames = ["--video", str(valid.video), "--out", "out"]
    for flag, values in {
        "--detector": ("zzz", "yolox"),
        "--pose-model": ("zzz", "poses2d"),
        "--confidence": ("zzz", "oracle"),
        "--checkpoint": ("missing.pth", str(valid.video)),
        "--ccnet": ("missing", str(valid.video)),
        "--detections": ("missing.json", str(valid.video)),
        "--detector-size": ("33", "0"),
    }.items():
        for value in values:
            yield Case(f"run {flag} {value[-20:]}", command("run", *frames, flag, value))
    for value in ("zzz", "1,zzz", "99", "1@x", "-1", "9" * 400, "1@nan", "1@1e400"):
        for flag in ("--merge", "--split", "--drop"):
            yield Case(
                f"tracks {flag} {value[:12]}", command("tracks", valid.out, f"{flag}={value}")
            )
    for number in (480, 960, 10_000, 99_999):
        images = valid.folder / "frames"
        if not images.is_dir():
            images.mkdir()
            for index in range(12):
                shutil.copy(valid.image, images / f"{index:03d}.png")
        arguments = [
            "--images",
            str(images),
            "--fps",
            str(number),
            "--keypoints",
            str(valid.keypoints),
        ]
        run = command("run", *arguments, "--out", "out")
        yield Case(f"run at {number} frames/s", run, must_refuse=False, must_succeed=True)


def image_cases() -> Iterator[Case]:
    """Yield headers that claim more than there is, and images that are really large, thin or small."""
    import cv2

    from pose2d.video.images import read_image

    def png(width: int, height: int) -> bytes:
        import struct
        import zlib

        def chunk(kind: bytes, data: bytes) -> bytes:
            return (
                struct.pack(">I", len(data))
                + kind
                + data
                + struct.pack(">I", zlib.crc32(kind + data))
            )

        head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
        return (
            b"\x89PNG\r\n\x1a\n"
            + head
            + chunk(b"IDAT", zlib.compress(bytes(1000)))
            + chunk(b"IEND", b"")
        )

    for width, height in (
        (30_000, 30_000),
        (2**31 - 1, 1),
        (100_001, 1000),
        (0, 0),
        (2**31 - 1, 2**31 - 1),
        (50_000, 10),
    ):
        yield Case(
            f"image header of {width}x{height}", load(read_image, "i.png", png(width, height))
        )
    for width, height in ((20_000, 40), (1, 1), (1, 4000), (4000, 1), (3, 3)):
        encoded = cv2.imencode(".png", np.zeros((height, width, 3), np.uint8))[1].tobytes()
        run = load(
            lambda p: command("run", "--image", str(p), "--out", "out", "--whole-image")(),
            "i.png",
            encoded,
        )
        yield Case(
            f"run on an image of {width}x{height}",
            run,
            must_refuse=False,
            must_succeed=width == 20_000,
        )


def fit_cases(rng: np.random.Generator) -> Iterator[Case]:
    """Keypoints that no person has: whatever comes out must be finite."""
    import torch

    import fitting
    from pose2d.skeletons import COCO17
    from pose2d.types import Keypoints
    from tests.walkers import walker

    truth = torch.from_numpy(walker(3).keypoints_px).float()

    def fit(xy: "torch.Tensor", confidence: "torch.Tensor") -> Callable[[], object]:
        def run() -> None:
            points = Keypoints(
                xy,
                confidence,
                torch.ones_like(confidence),
                "raw",
                torch.full((len(xy),), 3000.0),
                COCO17,
            )
            result = fitting.fit(points, fitting.Camera.default((160, 120)), weighting="confidence")
            values = (result.params.pose, result.params.shape, result.params.translation)
            if not all(bool(torch.isfinite(value).all()) for value in values):
                raise AssertionError("parameters that are not finite")

        return run

    high = torch.full(truth.shape[:2], 0.9)
    for number in (1e30, -1e30, 1e6, 1e5, float("inf"), float("nan"), 0.0):
        yield Case(
            f"fit of keypoints at {number}",
            fit(torch.full_like(truth, number), high),
            must_refuse=False,
        )
        copied = truth.clone()
        copied[1, 5] = number
        yield Case(f"fit with one keypoint at {number}", fit(copied, high), must_refuse=False)
    for value in (float("nan"), float("inf"), -1.0, 2.0, 0.0, 1e-30):
        yield Case(
            f"fit with confidence {value}",
            fit(truth, torch.full_like(high, value)),
            must_refuse=False,
        )
    yield Case(
        "fit of noise",
        fit(torch.from_numpy(rng.normal(0, 1e3, truth.shape)).float(), high),
        must_refuse=False,
    )


def run_options_of(valid: Valid) -> list[str]:
    """Return the options of a run over the valid video with its keypoints."""
    return ["--video", str(valid.video), "--keypoints", str(valid.keypoints), "--threads", "1"]


def result_cases(valid: Valid, rng: np.random.Generator) -> Iterator[Case]:
    """Yield a finished run with one damaged file each: the same command must make it again, whole."""
    run_options = run_options_of(valid)
    for name in (
        "fit.npz",
        "keypoints.npz",
        "tracks.npz",
        "overlay.mp4",
        "scene.glb",
        "report.html",
        "run.json",
    ):
        data = (valid.out / name).read_bytes()
        for label, content in damaged_bytes(data, rng, 2):
            if label in ("empty", "cut to 70%") or "changed" in label:
                yield Case(
                    f"run again after {name}: {label}",
                    again(valid.out, name, data, content, run_options),
                    False,
                    True,
                )


def door_cases(valid: Valid) -> Iterator[Case]:
    """Yield pipes and devices for every option that names a file, links and foreign files in --out,
    and files that are no video.
    """
    run_options = run_options_of(valid)

    def prepared(prepare: Callable[[], object], *arguments: str | Path) -> Callable[[], object]:
        def run() -> None:
            prepare()
            command("run", *arguments)()

        return run

    def linked(name: str) -> Callable[[], object]:
        def prepare() -> None:
            Path("out").mkdir()
            Path("elsewhere").mkdir()
            Path("out", name).symlink_to(
                Path("elsewhere" if name == ".cache_keys" else "elsewhere/mine").resolve()
            )

        return prepare

    for option in (
        "--floor",
        "--intrinsics",
        "--detections",
        "--keypoints",
        "--config",
        "--videos",
        "--video",
    ):
        base = run_options[:2] if option in ("--detections", "--keypoints") else run_options
        base = [] if option.startswith("--video") else base
        for name in ("pipe.json", "pipe.npz", "pipe.txt"):
            make = prepared(lambda name=name: os.mkfifo(name), *base, option, name, "--out", "out")  # type: ignore[misc]
            yield Case(f"run {option} {name}", make)
        yield Case(
            f"run {option} /dev/zero", command("run", *base, option, "/dev/zero", "--out", "out")
        )
    for name in (".fitmesh.lock", ".cache_keys"):
        yield Case(
            f"run with {name} as a link", prepared(linked(name), *run_options, "--out", "out")
        )
    for name in ("overlay.mp4", "keypoints.npz"):
        inputs = (
            ["--video", f"out/{name}", *run_options[2:]]
            if name == "overlay.mp4"
            else [*run_options[:2], "--keypoints", f"out/{name}"]
        )
        yield Case(
            f"run over its input {name}",
            prepared(lambda: shutil.copytree(valid.out, "out"), *inputs, "--out", "out"),
        )
    for name in ("report.html", "run.json", "fit.npz", "scene.glb"):

        def strangers(name: str = name) -> None:
            Path("out").mkdir()
            Path("out", name).write_text("mine")

        yield Case(
            f"run over a stranger's {name}", prepared(strangers, *run_options, "--out", "out")
        )
    for video in (str(valid.folder), "art.ans", "memory://x.mp4", "file:///missing.mp4"):
        art = prepared(
            lambda: Path("art.ans").write_text("\x1b[31mhello\n" * 200),
            "--video",
            video,
            "--out",
            "out",
        )
        yield Case(f"run --video {Path(video).name}", art, must_refuse="://" not in video)


def all_cases(valid: Valid, seed: int) -> Iterator[Case]:
    rng = np.random.default_rng(seed)
    yield from option_cases(valid)
    yield from choice_cases(valid)
    yield from file_cases(valid, rng)
    yield from image_cases()
    yield from fit_cases(rng)
    yield from result_cases(valid, rng)
    yield from door_cases(valid)
    yield from scene_cases(valid, rng)
