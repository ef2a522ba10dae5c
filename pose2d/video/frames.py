"""What every source of images offers (facts first, then frames one by one), and the simplest: a photo, a folder."""

import math
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from pose2d.base.errors import UserError
from pose2d.base.files import MOST_PIXELS, most_bytes, size_text


@dataclass(frozen=True)
class Frame:
    """One image, upright, with square pixels unless another size was asked for."""

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
        total = info.frames if info.frames is not None else round((info.duration_s or 0) * info.rate)
        if not total:
            return None
        first = min(total, round(self.start_s * info.rate))
        end = total if self.end_s is None else min(total, round(self.end_s * info.rate))
        return max(1, -(-(end - first) // self.every))


WHOLE = Span()


class Clip(ABC):
    """A source of frames. `frames` may be called any number of times; each call reads the source afresh."""

    path: Path
    info: ClipInfo
    warnings: list[str]  # what was wrong but survivable in the reading done last

    @abstractmethod
    def frames(self, span: Span = WHOLE, size: tuple[int, int] | None = None) -> Iterator[Frame]:
        """Frames in order of time, one in memory at a time; resized to `size` (width, height), if given."""

    @abstractmethod
    def files(self) -> list[Path]:
        """The files this is made of: what a result depends on."""


SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".jp2", ".avif", ".ppm", ".pgm")
DEFAULT_RATE = Fraction(30)
MOST_FILE_BYTES = 1 << 30  # of an image: 100 megapixels of 16 bits have 600 MB
LARGEST_SIDE = 32_000  # OpenCV warps no image whose side needs more than 15 bits


def read_image(path: str | Path) -> np.ndarray:
    """RGB [H, W, 3] uint8, turned upright as its EXIF data says; grey, 16-bit and transparent files too."""
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
    bgr = None
    if data.size:
        try:
            bgr = cv2.imdecode(data, cv2.IMREAD_COLOR)
        except (cv2.error, MemoryError):  # a header that claims more pixels than OpenCV will allocate
            bgr = None
    if bgr is None:
        raise UserError(
            f"{path} is not an image that can be read: expected jpg, png, webp, tiff or bmp. "
            "It may be damaged or empty; for a video use --video."
        )
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def image_size(path: Path) -> tuple[int, int] | None:
    """Width and height as the file's header states them, without decoding; None where it cannot be told so."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                return image.size
    except Image.DecompressionBombError:
        return LARGEST_SIDE, LARGEST_SIDE
    except Exception:  # not an image, or a kind that only OpenCV reads: the decoder has the last word
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

    def frames(self, span: Span = WHOLE, size: tuple[int, int] | None = None) -> Iterator[Frame]:
        times = [index / self.info.rate for index in range(len(self._files))]
        wanted = [i for i, t in enumerate(times) if not span.too_early(t) and not span.too_late(t)]
        if not wanted:
            raise UserError(f"{self.path} ends at {float(times[-1]):.2f} s, before --start {span.start_s:g} s.")
        for index in wanted[:: span.every]:
            rgb = read_image(self._files[index])
            if rgb.shape[:2] != (self.info.height_px, self.info.width_px):
                raise UserError(
                    f"{self._files[index]} is {rgb.shape[1]}x{rgb.shape[0]} pixels, but {self._files[0].name} is "
                    f"{self.info.width_px}x{self.info.height_px}: the frames of one video must be of one size. "
                    "For unrelated photos run --image once for each."
                )
            if size is not None:
                rgb = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
            yield Frame(index, times[index], rgb)


def _listed(folder: Path) -> list[Path]:
    images = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]
    if not images:
        raise UserError(f"no images in {folder}: expected files ending in {', '.join(SUFFIXES)}.")
    return sorted(images, key=_in_counting_order)


def _in_counting_order(path: Path) -> list[tuple[bool, int, str]]:
    """frame_9 comes before frame_10."""
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", path.name)]
