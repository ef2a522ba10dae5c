"""Images and folders of images, turned upright, with sizes checked before anything is decoded."""

import re
import warnings
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from pose2d.base.errors import OptionError, UserError
from pose2d.base.limits import MOST_PIXELS, most_bytes, size_text
from pose2d.video.frames import WHOLE, Clip, ClipInfo, Frame, Span

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
    """Return an image as RGB [H, W, 3] uint8, turned upright as its EXIF data says. Grey, 16-bit
    and transparent files are converted.
    """
    path = Path(path)
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, not an image. For a folder of images use --images.", file=path
        )
    if not path.is_file():
        raise UserError(f"no image at {path}. Check the path.")
    if path.stat().st_size > most_bytes(MOST_FILE_BYTES):
        size = size_text(path.stat().st_size)
        raise UserError(
            f"{path} has {size}: too large for an image. For a video use --video.", file=path
        )
    try:
        data = np.fromfile(path, np.uint8)  # not imread: it cannot say why a file would not open
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", file=path) from error
    check_size(path, image_size(path))
    try:
        bgr = cv2.imdecode(data, cv2.IMREAD_COLOR) if data.size else None
    except (cv2.error, MemoryError):  # a header that claims more pixels than OpenCV will allocate
        bgr = None
    if bgr is None:
        raise UserError(
            f"{path} is not an image that can be read: expected jpg, png, webp, tiff or bmp. "
            "It may be damaged or empty; for a video use --video.",
            file=path,
        )
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB)


def image_size(path: Path) -> tuple[int, int] | None:
    """Return width and height from the file's header, without decoding; None if Pillow cannot read
    the header.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path) as image:
                return image.size
    except Image.DecompressionBombError:
        return LARGEST_SIDE, LARGEST_SIDE
    except Exception:  # not an image, or a kind that only OpenCV reads: the decoder will decide
        return None


def check_size(path: Path, size: tuple[int, int] | None) -> None:
    """Refuse an image that is too large, before any of it is decoded."""
    if size is None:
        return
    width, height = size
    if width * height > MOST_PIXELS or max(size) > LARGEST_SIDE:
        is_unknown = size == (LARGEST_SIDE, LARGEST_SIDE)
        actual = "too many pixels" if is_unknown else f"{width}x{height} pixels"
        raise UserError(
            f"{path} has {actual}; at most {MOST_PIXELS // 10**6} megapixels and "
            f"{LARGEST_SIDE} pixels a side can be read. Make it smaller first.",
            file=path,
        )


class ImageFolder(Clip):
    """Image files shown one after another, all of one size."""

    def __init__(self, path: str | Path, rate: Fraction = DEFAULT_RATE) -> None:
        self.path = Path(path)
        self.warnings = []
        if not 0 < rate <= 10**6:
            raise OptionError(f"--fps must lie between 0 and a million, got {float(rate):g}.")
        self._files = _list_images(self.path) if self.path.is_dir() else [self.path]
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
        in_span = [i for i, t in enumerate(times) if not span.too_early(t) and not span.too_late(t)]
        if not in_span:
            raise UserError(
                f"{self.path} ends at {float(times[-1]):.2f} s, before --start {span.start_s:g} s.",
                file=self.path,
            )
        for index in in_span[:: span.every]:
            rgb = read_image(self._files[index])
            if rgb.shape[:2] != (self.info.height_px, self.info.width_px):
                raise UserError(
                    f"{self._files[index]} is {rgb.shape[1]}x{rgb.shape[0]} pixels, but "
                    f"{self._files[0].name} is {self.info.width_px}x{self.info.height_px}: all "
                    "frames of one video must have the same size. For unrelated photos run --image "
                    "once for each.",
                    file=self._files[index],
                )
            yield Frame(index, times[index], rgb)


def _list_images(folder: Path) -> list[Path]:
    """Return the image files of a folder in counting order."""
    visible = [path for path in folder.iterdir() if not path.name.startswith(".")]
    images = [path for path in visible if path.suffix.lower() in SUFFIXES]
    if not images:
        raise UserError(f"no images in {folder}: expected files ending in {', '.join(SUFFIXES)}.")
    return sorted(images, key=_counting_order)


def _counting_order(path: Path) -> list[tuple[bool, int, str]]:
    """Return a sort key by which frame_9 comes before frame_10."""
    parts = re.split(r"(\d+)", path.name)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]
