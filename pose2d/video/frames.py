"""What every source of images offers (facts first, then frames one by one), and all of them: a
photo, a folder, a video (mp4, mov, mkv, webm, gif and whatever else FFmpeg reads).

PyAV reads, not OpenCV. Both turn frames upright, convert colours alike and decode at the same
speed, but only PyAV gives the exact rate as a fraction and timestamps on the clock that the sound
runs on (OpenCV shifts the first frame to zero), and only PyAV tells a broken file from one that has
ended."""

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter
from PIL import Image

from pose2d.base.errors import UserError
from pose2d.base.limits import MOST_PIXELS, most_bytes, size_text


@dataclass(frozen=True)
class Frame:
    """One image, upright, with square pixels."""

    index: int  # number in the source, from 0; frames left out by a Span keep their number
    time_s: Fraction  # when it is shown, on the source's own clock; strictly increasing
    rgb: np.ndarray  # [H, W, 3] uint8


@dataclass(frozen=True)
class ClipInfo:
    """The facts of a source before its frames are read."""

    width_px: int  # as shown: after rotation and after making pixels square
    height_px: int
    rate: Fraction  # frames per second, the mean where they come unevenly
    tick_s: Fraction  # every `time_s` is a multiple of this
    frames: int | None  # as the source states it; None where it does not
    duration_s: float | None
    has_audio: bool


@dataclass(frozen=True)
class Span:
    """Which frames to read."""

    start_s: float = 0.0  # from the first frame at or after this time
    end_s: float | None = None  # up to, not including
    every: int = 1  # 1: all; 3: every third

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise UserError(f"--every must be a whole number of 1 or more, got {self.every}.")
        if not 0 <= self.start_s < math.inf:  # NaN fails too
            raise UserError(f"--start must be 0 seconds or more, got {self.start_s}.")
        if self.end_s is not None and not self.start_s < self.end_s < math.inf:
            raise UserError(f"--end ({self.end_s} s) must come after --start ({self.start_s} s).")

    def too_early(self, time_s: Fraction) -> bool:
        """By the decimal number as written: 1.3 means 13/10, not the binary float a hair above it."""
        return time_s < Fraction(str(self.start_s))

    def too_late(self, time_s: Fraction) -> bool:
        return self.end_s is not None and time_s >= Fraction(str(self.end_s))

    def expected_frames(self, info: ClipInfo) -> int | None:
        """How many frames will come, roughly: for progress lines, not for allocating."""
        total = (
            info.frames if info.frames is not None else round((info.duration_s or 0) * info.rate)
        )
        if not total:
            return None
        first = min(total, round(self.start_s * info.rate))
        end = total if self.end_s is None else min(total, round(self.end_s * info.rate))
        return max(1, -(-(end - first) // self.every))


WHOLE = Span()


class Clip(ABC):
    """A source of frames. `frames` may be called any number of times; each call reads the source
    afresh.
    """

    path: Path
    info: ClipInfo
    warnings: list[str]  # what was wrong but survivable in the reading done last

    @abstractmethod
    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        """Frames in order of time, one in memory at a time."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The files this is made of: what a result depends on."""


SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
    ".bmp",
    ".tif",
    ".tiff",
    ".jp2",
    ".avif",
    ".ppm",
    ".pgm",
)
DEFAULT_RATE = Fraction(30)
MOST_FILE_BYTES = 1 << 30  # of an image: 100 megapixels of 16 bits have 600 MB
LARGEST_SIDE = 32_000  # OpenCV warps no image whose side needs more than 15 bits


def read_image(path: str | Path) -> np.ndarray:
    """RGB [H, W, 3] uint8, turned upright as its EXIF data says; grey, 16-bit and transparent files
    too.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder, not an image. For a folder of images use --images.")
    if not path.is_file():
        raise UserError(f"no image at {path}. Check the path.")
    if path.stat().st_size > most_bytes(MOST_FILE_BYTES):
        raise UserError(
            f"{path} has {size_text(path.stat().st_size)}: too large for an image. For a video use --video."
        )
    try:
        data = np.fromfile(path, np.uint8)  # not imread: it cannot say why a file would not open
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    check_size(path, image_size(path))
    try:
        bgr = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    except (cv2.error, MemoryError):  # a header that claims more pixels than OpenCV will allocate
        bgr = None
    if bgr is None:
        raise UserError(
            f"{path} is not an image that can be read: expected jpg, png, webp, tiff or bmp. "
            "It may be damaged or empty; for a video use --video."
        )
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def image_size(path: Path) -> tuple[int, int] | None:
    """Width and height as the file's header states them, without decoding; None where it cannot be
    told so.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                return image.size
    except Image.DecompressionBombError:
        return LARGEST_SIDE, LARGEST_SIDE
    except (
        Exception
    ):  # not an image, or a kind that only OpenCV reads: the decoder has the last word
        return None


def check_size(path: Path, size: tuple[int, int] | None) -> None:
    """Refuse what would take gigabytes before any of it is decoded."""
    if size is not None and (size[0] * size[1] > MOST_PIXELS or max(size) > LARGEST_SIDE):
        stated = "too many pixels" if size == (LARGEST_SIDE,) * 2 else f"{size[0]}x{size[1]} pixels"
        raise UserError(
            f"{path} has {stated}; at most {MOST_PIXELS // 10**6} megapixels and {LARGEST_SIDE} pixels a side can be "
            "read. Make it smaller first."
        )


class ImageFolder(Clip):
    """Image files shown one after another, all of one size."""

    def __init__(self, path: str | Path, rate: Fraction = DEFAULT_RATE) -> None:
        self.path = Path(path)
        self.warnings = []
        if not 0 < rate <= 10**6:
            raise UserError(f"--fps must lie between 0 and a million, got {float(rate):g}.")
        self._files = [self.path] if not self.path.is_dir() else _listed(self.path)
        height, width = read_image(self._files[0]).shape[:2]
        self.info = ClipInfo(
            width_px=width,
            height_px=height,
            rate=rate,
            tick_s=1 / rate,
            frames=len(self._files),
            duration_s=float(len(self._files) / rate),
            has_audio=False,
        )

    def files(self) -> list[Path]:
        return self._files

    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        times = [index / self.info.rate for index in range(len(self._files))]
        wanted = [i for i, t in enumerate(times) if not span.too_early(t) and not span.too_late(t)]
        if not wanted:
            raise UserError(
                f"{self.path} ends at {float(times[-1]):.2f} s, before --start {span.start_s:g} s."
            )
        for index in wanted[:: span.every]:
            rgb = read_image(self._files[index])
            if rgb.shape[:2] != (self.info.height_px, self.info.width_px):
                raise UserError(
                    f"{self._files[index]} is {rgb.shape[1]}x{rgb.shape[0]} pixels, but {self._files[0].name} is "
                    f"{self.info.width_px}x{self.info.height_px}: the frames of one video must be of one size. "
                    "For unrelated photos run --image once for each."
                )
            yield Frame(index, times[index], rgb)


def _listed(folder: Path) -> list[Path]:
    images = [
        p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
    ]
    if not images:
        raise UserError(f"no images in {folder}: expected files ending in {', '.join(SUFFIXES)}.")
    return sorted(images, key=_in_counting_order)


def _in_counting_order(path: Path) -> list[tuple[bool, int, str]]:
    """frame_9 comes before frame_10."""
    return [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"(\d+)", path.name)
    ]


# what is stated beyond this is a mistake
SLOWEST_FPS = Fraction(1, 1000)
FASTEST_FPS = Fraction(10**6)
LARGER, SMALL_PX = (
    4,
    4_000_000,
)  # a later frame may have so many times the first one's pixels, or so many
MOST_STRETCHED = Fraction(1, 16), Fraction(16)  # width over height of a pixel
KINDS = "mp4, mov, mkv, webm or gif"
# FFmpeg's names of what is a video. It opens more: a text "played" on a terminal, raw bytes, play
# lists of other files.
_CONTAINERS = {
    "mov",
    "mp4",
    "matroska",
    "webm",
    "avi",
    "gif",
    "apng",
    "mpegts",
    "mpeg",
    "ogg",
    "flv",
    "asf",
    "mxf",
    "m4v",
    "h264",
    "hevc",
    "mjpeg",
    "ivf",
}


class Video(Clip):
    """A video file. A damaged one is read as far as it goes, and `warnings` says how far that was."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.warnings = []
        with _opened(self.path, MOST_PIXELS) as (container, stream):
            first = next(_decoded(container, stream, self.warnings), None)
            if first is None:
                raise UserError(
                    f"{self.path} holds no readable frame: the file is damaged or cut off. "
                    "Copy or record it again, or convert it to mp4 (H.264)."
                )
            self._decoded_px = first.width * first.height
            self._stored_wh = _square_pixels(stream, first)
            check_size(self.path, self._stored_wh)
            self._turn = _Turn(first)
            width, height = self._stored_wh[:: -1 if self._turn.sideways else 1]
            self.info = ClipInfo(
                width_px=width,
                height_px=height,
                rate=_rate(stream),
                tick_s=stream.time_base or Fraction(1, 90000),
                frames=stream.frames or None,
                duration_s=_duration_s(container, stream),
                has_audio=bool(container.streams.audio),
            )

    def files(self) -> list[Path]:
        return [self.path]

    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        self.warnings = []
        first_wanted = last_time = None
        width, height = self._stored_wh
        with _opened(self.path, max(LARGER * self._decoded_px, SMALL_PX)) as (container, stream):
            colours = (
                VideoReformatter()
            )  # kept: building its tables anew for every frame costs more than using them
            for index, frame in enumerate(_decoded(container, stream, self.warnings)):
                time_s = self._time_s(frame, index, last_time)
                last_time = time_s
                if span.too_late(time_s):
                    return
                if span.too_early(time_s):
                    continue
                first_wanted = index if first_wanted is None else first_wanted
                if (index - first_wanted) % span.every == 0:
                    rgb = colours.reformat(frame, width, height, "rgb24").to_ndarray()
                    yield Frame(index, time_s, self._turn.upright(rgb))
        if last_time is None or first_wanted is None:
            seconds = float(last_time or 0)
            raise UserError(
                f"{self.path} ends at {seconds:.2f} s, before --start {span.start_s:g} s."
            )
        stated_s = self.info.duration_s
        end_s = float(last_time + 1 / self.info.rate)
        if (
            stated_s is not None and end_s < stated_s - 0.25 - 2 / self.info.rate
        ):  # players differ by a frame or two
            self.warnings.append(
                f"{self.path} says it lasts {stated_s:.2f} s but its images end at {end_s:.2f} s: "
                "it was cut off or is damaged. What could be read was used."
            )

    def _time_s(self, frame: av.VideoFrame, index: int, last: Fraction | None) -> Fraction:
        """The frame's own time; where a file repeats or lacks a time stamp, the next moment that
        makes sense.
        """
        info = self.info
        if frame.pts is not None and frame.time_base is not None:
            time_s = Fraction(frame.pts * frame.time_base)
        elif last is not None:
            time_s = last + round(1 / info.rate / info.tick_s) * info.tick_s
        else:
            time_s = Fraction(0)
        return time_s if last is None or time_s > last else last + info.tick_s


class _Turn:
    """How stored pixels become upright ones, from the display matrix (a, b, u, c, d, v, x, y, w) of
    the ISO file format: x' = a x + c y, y' = b x + d y. Phones write quarter turns, and a mirror
    for some front cameras; anything between is rounded to the nearest."""

    def __init__(self, frame: av.VideoFrame) -> None:
        side_data: Any = frame.side_data.get("DISPLAYMATRIX")
        matrix = (
            (1, 0, 0, 0, 1)
            if side_data is None
            else np.frombuffer(bytes(side_data), np.int32)[:5].tolist()
        )
        a, b, _, c, d = matrix
        self.sideways = abs(a) < abs(b)
        self._flip_x, self._flip_y = (c < 0, b < 0) if self.sideways else (a < 0, d < 0)

    def upright(self, rgb: np.ndarray) -> np.ndarray:
        rgb = rgb.transpose(1, 0, 2) if self.sideways else rgb
        return np.ascontiguousarray(rgb[:: -1 if self._flip_y else 1, :: -1 if self._flip_x else 1])


@contextmanager
def _opened(
    path: Path, most_px: int
) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """A file and its video track. most_px: frames that are larger are refused by the decoder before
    it makes room for them."""
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, not a video file. For a folder of images use --images."
        )
    if not path.is_file():
        raise UserError(f"no video at {path}. Check the path; {KINDS} can be read.")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty (0 bytes). Copy or record it again.")
    try:
        # A play list inside a hostile file must not reach out to the network.
        container = av.open(str(path), options={"protocol_whitelist": "file"})
    except PermissionError as error:
        raise UserError(f"{path} may not be read by this user. Change its permissions.") from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a video that can be read ({_reason(error)}). Expected {KINDS}; an mp4 that was cut off "
            "while recording or copying lacks its index and cannot be opened: copy it again or convert it."
        ) from error
    with container:
        kind = container.format.name
        if _CONTAINERS.isdisjoint(kind.split(",")):
            raise UserError(
                f"{path} is not a video ({kind}). Expected {KINDS}; for one image use --image."
            )
        # The cover of a music file is a video stream too, by name.
        videos = [
            s for s in container.streams.video if not s.disposition & Disposition.attached_pic
        ]
        if not videos:
            sound = "only sound" if container.streams.audio else "no images"
            raise UserError(f"{path} holds {sound}, no video. Expected {KINDS} with a video track.")
        if videos[0].codec_context is None:  # PyAV has none where FFmpeg knows no decoder
            raise UserError(
                f"{path} holds images of a kind that FFmpeg does not know. Convert it to mp4 (H.264)."
            )
        videos[0].thread_type = "AUTO"
        videos[0].codec_context.options = {"max_pixels": str(most_px)}
        yield container, videos[0]


def _decoded(
    container: av.container.InputContainer, stream: av.VideoStream, warnings: list[str]
) -> Iterator[av.VideoFrame]:
    """Every frame that can be decoded; what cannot is counted, not hidden."""
    damaged = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except (av.error.FFmpegError, OSError) as error:
            warnings.append(
                f"{container.name} breaks off ({_reason(error)}). What could be read was used."
            )
            break
        if packet is None:
            break
        try:
            yield from packet.decode()
        except (av.error.FFmpegError, OSError):
            damaged += 1
    if damaged:
        warnings.append(
            f"{container.name} has {damaged} damaged packets of video data; they were left out."
        )


def _square_pixels(stream: av.VideoStream, frame: av.VideoFrame) -> tuple[int, int]:
    """Stored width and height with the width stretched so that pixels are square."""
    aspect = stream.sample_aspect_ratio or Fraction(1)
    if not MOST_STRETCHED[0] <= aspect <= MOST_STRETCHED[1]:  # a damaged header
        aspect = Fraction(1)
    return max(1, round(frame.width * aspect)), frame.height


def _rate(stream: av.VideoStream) -> Fraction:
    """Of a damaged header the usual 30."""
    rate = Fraction(stream.average_rate or stream.guessed_rate or 30)
    return rate if SLOWEST_FPS <= rate <= FASTEST_FPS else Fraction(30)


def _duration_s(container: av.container.InputContainer, stream: av.VideoStream) -> float | None:
    """Of the images: the container's own figure would count sound that outlasts them."""
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    tag = stream.metadata.get("DURATION")  # Matroska: "00:00:02.966000000"
    if tag and (
        match := re.fullmatch(r"([0-9]{1,4}):([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]{1,12})?)", tag)
    ):
        return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
    if container.duration and not container.streams.audio:
        return container.duration / av.time_base
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
