"""What a run is given to look at, opened before anything heavy is imported: a mistyped path is answered at once."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from fitmesh.options import ranges
from pose2d.base.errors import UserError
from pose2d.video.frames import DEFAULT_RATE, SUFFIXES, Clip, ImageFolder
from pose2d.video.reader import Video

if TYPE_CHECKING:
    from fitmesh.options.run import RunCommand


def open_clip(path: Path, fps: float | None = None) -> Clip:
    """A folder of images, an image, or a video."""
    ranges.FPS.check("--fps", fps)
    if path.is_dir():
        return ImageFolder(path, DEFAULT_RATE if fps is None else Fraction(fps).limit_denominator(100_000))
    if fps is not None:
        raise UserError("--fps is for a folder of images: a video knows its own rate.")
    return ImageFolder(path) if path.suffix.lower() in SUFFIXES else Video(path)


def open_given(asked: "RunCommand") -> Clip:
    """The one of --video, --images and --image that was given."""
    images, image = asked.images, asked.image
    video = Path(asked.video[0]) if asked.video else None
    given = {name: path for name, path in (("--video", video), ("--images", images), ("--image", image)) if path}
    if len(given) != 1:
        raise UserError(f"give one of --video, --images and --image; got {' and '.join(given) or 'none'}.")
    if asked.fps is not None and images is None:
        raise UserError("--fps is for --images: a video knows its own rate.")
    if images is not None and not images.is_dir():
        raise UserError(f"{images} is not a folder. --images takes a folder of images; for one image use --image.")
    if image is not None and image.is_dir():
        raise UserError(f"{image} is a folder. --image takes one image; for a folder use --images.")
    return open_clip(next(iter(given.values())), asked.fps) if image is None else ImageFolder(image)
