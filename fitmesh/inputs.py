"""What a run is given to look at, opened before anything heavy is imported: a mistyped path is answered at once."""

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
from pose2d.base.errors import UserError
from pose2d.base.files import check_writable, read_json, unfinished
from pose2d.video.frames import DEFAULT_RATE, SUFFIXES, Clip, ImageFolder, Video

if TYPE_CHECKING:
    from fitmesh.options.run import RunCommand

_LIVE = re.compile(r"[0-9]+|/dev/video[0-9]+|(rtsps?|rtmps?|rtp|udp|srt|mms)://.*", re.IGNORECASE)
_SWITCHES = ("true", "false", "yes", "no", "on", "off")


def open_clip(path: str | Path, fps: float | None = None) -> Clip:
    """A folder of images, an image, or a video."""
    ranges.FPS.check("--fps", fps)
    check_recorded(str(path))
    if "://" in str(path):
        raise UserError(f"{path} is a URL, and files are read here: fetch it first, or use `fitmesh.run_many`.")
    path = Path(path)
    if path.is_dir():
        return ImageFolder(path, DEFAULT_RATE if fps is None else _exact(fps))
    if fps is not None:
        raise UserError("--fps is for a folder of images: a video knows its own rate.")
    return ImageFolder(path) if path.suffix.lower() in SUFFIXES else Video(path)


def _exact(fps: float) -> Fraction:
    return Fraction(fps).limit_denominator(100_000)


def check_recorded(text: str) -> None:
    """Refuse cameras and streams: a run reads its video several times."""
    if not _LIVE.fullmatch(text) or Path(text).is_file():
        return
    source = f"-f v4l2 -i /dev/video{text}" if text.isdecimal() else f"-i {text}"
    raise UserError(
        f"{text} is a live camera or stream, and a run reads its video several times: record it first, for instance "
        f"`ffmpeg {source} -t 60 clip.mp4`, and run on clip.mp4. A program gives its frames to fitmesh.run(frames=..)."
    )


def given_by_name(asked: "RunCommand") -> "RunCommand":
    """With the paths that stand alone where --video, --images and --image have them."""
    for text in asked.clip:
        if text.lower() in _SWITCHES and not Path(text).exists():
            raise UserError(f"{text!r} stands alone: options like --relink are given without a value, or left out.")
    for text in (*asked.clip, *asked.video):
        check_recorded(text)
    if len(asked.clip) == 1 and not asked.video and not asked.videos:
        path = Path(asked.clip[0])
        if path.is_dir() and asked.images is None:
            return replace(asked, images=path, clip=())
        if path.suffix.lower() in SUFFIXES and asked.image is None:
            return replace(asked, image=path, clip=())
    return replace(asked, video=(*asked.clip, *asked.video), clip=())


def open_given(asked: "RunCommand") -> Clip:
    """The one of --video, --images and --image that was given."""
    images, image = asked.images, asked.image
    video = Path(asked.video[0]) if asked.video else None
    given = {name: path for name, path in (("--video", video), ("--images", images), ("--image", image)) if path}
    if len(given) != 1:
        raise UserError(
            f"give a video, `fitmesh run clip.mp4`, or one of --video, --images and --image; got "
            f"{' and '.join(given) or 'none'}."
        )
    if asked.fps is not None and images is None:
        raise UserError("--fps is for --images: a video knows its own rate.")
    if images is not None and not images.is_dir():
        raise UserError(f"{images} is not a folder. --images takes a folder of images; for one image use --image.")
    if video is not None and video.is_dir():
        raise UserError(f"{video} is a folder, not a video file. For a folder of images use --images.")
    if image is not None and image.is_dir():
        raise UserError(f"{image} is a folder. --image takes one image; for a folder use --images.")
    return open_clip(next(iter(given.values())), asked.fps) if image is None else ImageFolder(image)


def folder_beside(clip: Path) -> Path:
    """dance.fitmesh beside dance.mp4; where that holds another clip's results, dance-2.fitmesh, and so on."""
    clip = clip.resolve()
    name = clip.name if clip.is_dir() else clip.stem
    folders = (clip.with_name(f"{name}{f'-{n}' if n > 1 else ''}.fitmesh") for n in count(1))
    return next(folder for folder in folders if _is_free(folder, clip))


def _is_free(folder: Path, clip: Path) -> bool:
    """Whether it is the clip's own, or nobody's."""
    try:
        return read_json(folder / "run.json").get("clip", "").value == str(clip)
    except UserError:
        return not folder.exists() or (folder.is_dir() and not any(folder.glob("[!.]*")))


@contextmanager
def spooled(frames: Iterable[np.ndarray], fps: float | None, out: Path) -> Iterator[Clip]:
    """Frames [H, W, 3] RGB uint8 as a clip: one at a time into a lossless H.264 file in a folder of `out`, which goes
    again with the block. A run reads its video several times, and memory does not hold one."""
    if fps is None:
        raise UserError("frames need fps: how many of them are shown in a second.")
    ranges.FPS.check("fps", fps)
    check_writable(out)
    with tempfile.TemporaryDirectory(prefix=".frames-", dir=out) as folder:
        unfinished.add(Path(folder))
        try:
            path = Path(folder, "frames.mp4")
            _write_lossless(path, frames, _exact(fps))
            yield Video(path)
        finally:
            unfinished.discard(Path(folder))


def _write_lossless(path: Path, frames: Iterable[np.ndarray], rate: Fraction) -> None:
    import av

    size: tuple[int, ...] | None = None
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264rgb", rate=rate, options={"crf": "0", "preset": "ultrafast"})
        stream.pix_fmt, stream.time_base = "rgb24", 1 / rate
        for number, given in enumerate(frames):
            rgb = np.ascontiguousarray(given)
            if rgb.ndim != 3 or rgb.shape[2] != 3 or rgb.dtype != np.uint8 or size not in (None, rgb.shape):
                wanted = "[height, width, 3] in RGB, uint8" if size is None else f"{list(size)} as the first, uint8"
                raise UserError(f"frame {number} is {rgb.dtype} of {list(rgb.shape)}; expected {wanted}.")
            if size is None:
                size = rgb.shape
                stream.height, stream.width = size[:2]
            image = av.VideoFrame.from_ndarray(rgb, format="rgb24")
            image.pts, image.time_base = number, 1 / rate
            container.mux(stream.encode(image))
        if size is None:
            raise UserError("there are no frames: expected at least one image.")
        container.mux(stream.encode(None))
