"""Open the input of a run before anything heavy is imported, so that a mistyped path fails at once."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fitmesh.options import ranges
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import check_writable, real_path, unfinished
from pose2d.base.json_files import read_json
from pose2d.video.frames import Clip
from pose2d.video.images import DEFAULT_RATE, SUFFIXES, ImageFolder
from pose2d.video.video_file import Video

if TYPE_CHECKING:
    from fitmesh.options.run import RunCommand

_LIVE = re.compile(r"[0-9]+|/dev/video[0-9]+|(rtsps?|rtmps?|rtp|udp|srt|mms)://.*", re.IGNORECASE)
_SWITCHES = ("true", "false", "yes", "no", "on", "off")


def open_clip(path: str | Path, fps: float | None = None) -> Clip:
    """Open a video, an image, or a folder of images."""
    ranges.FPS.check("--fps", fps)
    check_recorded(str(path))
    if "://" in str(path):
        raise UserError(
            f"{path} is a URL; expected a file: download it first, or use `fitmesh.run_many`.",
            file=path,
        )
    path = Path(path)
    if path.is_dir():
        rate = DEFAULT_RATE if fps is None else Fraction(fps).limit_denominator(100_000)
        return ImageFolder(path, rate)
    if fps is not None:
        raise OptionError("--fps is only for a folder of images: a video has its own frame rate.")
    return ImageFolder(path) if path.suffix.lower() in SUFFIXES else Video(path)


def check_recorded(text: str) -> None:
    """Raise UserError for live cameras and streams, since a run reads its video several times."""
    if not _LIVE.fullmatch(text) or Path(text).is_file():
        return
    source = f"-f v4l2 -i /dev/video{text}" if text.isdecimal() else f"-i {text}"
    raise UserError(
        f"{text} is a live camera or stream, and a run reads its video several times: record it "
        f"first, for instance with `ffmpeg {source} -t 60 clip.mp4`. A program can pass its frames to "
        "fitmesh.run(frames=..)."
    )


def given_by_name(asked: "RunCommand") -> "RunCommand":
    """Return the options with positional paths moved to --video."""
    for text in asked.clip:
        if text.lower() in _SWITCHES and not Path(text).exists():
            raise OptionError(
                f"{text!r} is not an input: options such as --relink take no value.", option="clip"
            )
    for text in (*asked.clip, *asked.video):
        check_recorded(text)
    return replace(asked, video=(*asked.clip, *asked.video))


def open_given(asked: "RunCommand") -> tuple[Clip, tuple[str, ...]]:
    """Open the clip of --video, --images or --image; also return the other cameras' videos."""
    if asked.together:
        if len(asked.video) < 2 or asked.videos or asked.images or asked.image:
            raise OptionError("--together needs at least two cameras: pass --video for each.")
        if len({real_path(video) for video in asked.video}) < len(asked.video):
            raise OptionError(
                "--together needs a different video for each camera; one was given twice."
            )
    for text in asked.video[1:]:
        open_clip(text)  # fails early for a mistyped path
    video = Path(asked.video[0]) if asked.video else None
    ways = (
        (
            "--video",
            video,
            False,
            "is a folder, not a video file. For a folder of images use --images.",
        ),
        (
            "--images",
            asked.images,
            True,
            "is not a folder. --images takes a folder of images; for one use --image.",
        ),
        (
            "--image",
            asked.image,
            False,
            "is a folder. --image takes one image; for a folder use --images.",
        ),
    )
    inputs = [(path, is_folder, words) for _, path, is_folder, words in ways if path is not None]
    if len(inputs) != 1:
        names = " and ".join(name for name, path, *_ in ways if path is not None)
        raise OptionError(
            "pass one input: a video (`fitmesh run clip.mp4`), --images or --image; got "
            f"{names or 'none'}.",
            option="video",
        )
    ((path, is_folder, words),) = inputs
    if path.is_dir() != is_folder and not asked.clip:
        raise UserError(f"{path} {words}", file=path)
    is_image = path == asked.image and asked.fps is None  # whatever its suffix
    return ImageFolder(path) if is_image else open_clip(path, asked.fps), asked.video[1:]


def folder_beside(clip: Path) -> Path:
    """Return dance.fitmesh for dance.mp4, or dance-2.fitmesh if that belongs to another clip."""
    clip = real_path(clip)
    name = clip.name if clip.is_dir() else clip.stem
    for number in count(1):
        folder = clip.with_name(f"{name}{f'-{number}' if number > 1 else ''}.fitmesh")
        try:
            is_free = read_json(folder / "run.json").get("clip", "").value == str(clip)
        except UserError:
            is_empty = folder.is_dir() and not any(folder.glob("[!.]*"))
            is_free = is_empty or not folder.exists()
        if is_free:
            return folder
    raise AssertionError


@contextmanager
def spooled(frames: Iterable[np.ndarray], fps: float | None, out: Path) -> Iterator[Clip]:
    """Provide frames [H, W, 3] RGB uint8 as a clip while the block lasts.

    They are written one at a time to a lossless H.264 file in `out`, because a run reads its video
    several times and memory does not hold one.
    """
    if fps is None:
        raise OptionError("`frames` needs `fps`, the frame rate.", option="fps")
    ranges.FPS.check("fps", fps)
    check_writable(out)
    with scratch_folder(".frames-", out) as folder:
        write_lossless(folder / "frames.mp4", frames, Fraction(fps).limit_denominator(100_000))
        yield Video(folder / "frames.mp4")


@contextmanager
def scratch_folder(prefix: str, inside: Path | None = None) -> Iterator[Path]:
    """Provide a new folder that is removed when the block or the process ends."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=inside, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        unfinished.add(folder)
        try:
            yield folder
        finally:
            unfinished.discard(folder)


def write_lossless(path: Path, frames: Iterable[np.ndarray], rate: Fraction) -> None:
    """Write frames to a lossless video; UserError for a frame of another size or type."""
    import av

    size: tuple[int, ...] | None = None
    with av.open(str(path), "w") as container:
        stream = container.add_stream(
            "libx264rgb", rate=rate, options={"crf": "0", "preset": "ultrafast"}
        )
        stream.pix_fmt = "rgb24"
        stream.time_base = 1 / rate
        for number, frame in enumerate(frames):
            rgb = np.ascontiguousarray(frame)
            is_image = rgb.ndim == 3 and rgb.shape[2] == 3 and rgb.dtype == np.uint8
            if not is_image or size not in (None, rgb.shape):
                expected = "[height, width, 3] in RGB, uint8"
                if size is not None:
                    expected = f"{list(size)} as the first, uint8"
                raise UserError(
                    f"frame {number} is {rgb.dtype} of {list(rgb.shape)}; expected {expected}."
                )
            if size is None:
                size = rgb.shape
                stream.height, stream.width = size[:2]
            image = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            image.pts = number
            image.time_base = 1 / rate
            container.mux(stream.encode(image))
        if size is None:
            raise UserError("there are no frames: expected at least one image.")
        container.mux(stream.encode(None))
