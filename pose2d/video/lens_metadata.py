"""The focal length that a camera wrote into its file: EXIF of images, QuickTime / MP4 tags of
videos.

A wrong focal length is a wrong depth (the diagonal as a guess put an EMDB phone's people 71 % too
far away), and many files simply state it. Metadata may be damaged or hostile: every offset and
count is checked against the bytes at hand, and metadata that cannot be read counts as not stated;
it never raises an exception.

    f_px = f35 / 43.27 mm * diagonal        43.27 mm: the diagonal of the 36 x 24 mm frame
"""

import math
import re
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from pose2d.base.files import open_regular

FULL_FRAME_DIAGONAL_MM = math.hypot(36.0, 24.0)
# A focal length outside this share of the image's diagonal is a mistake: 0.2 is a 136 degree
# rectilinear lens, 15 a 650 mm telephoto lens.
SANE_SHARE = (0.2, 15.0)
# Makers round to whole millimetres, and convert by the width or by the diagonal: 26 mm may be 24 or
# 27.
LOG_SIGMA_IMAGE = 0.04
# Videos are cropped for stabilisation and to 16:9, by a few to twenty percent, and the tag often
# ignores it.
LOG_SIGMA_VIDEO = 0.08

_END_BYTES = 8 << 20  # metadata lies in the first bytes of a file, or in its last
# `keys` boxes, names in each, and how far values lie behind
_MOST_BOXES = 64
_MOST_TAGS = 64
_FAR_BYTES = 16 << 10


@dataclass(frozen=True)
class LensMetadata:
    """The lens as a file states it."""

    # Focal length in pixels of the image as shown; None: not stated, or not believable.
    focal_px: float | None
    log_sigma: float  # standard deviation of log(focal_px); inf without a focal length
    source: str  # the tag that states it: "EXIF FocalLengthIn35mmFilm 26 mm"; empty without one
    reason: str  # why there is no focal length; empty with one


def read_lens_metadata(path: str | Path, size_px: tuple[int, int]) -> LensMetadata:
    """Return the focal length of an image or video whose frames are shown at (width, height)
    pixels.
    """
    path = Path(path)
    if len(size_px) != 2 or min(size_px) <= 0:
        return _not_stated(f"an image of {size_px} pixels has no focal length.")
    try:
        with open_regular(path) as stream:
            head = stream.read(_END_BYTES)
            stream.seek(max(len(head), stream.seek(0, 2) - _END_BYTES))
            tail = stream.read()
    except OSError as error:
        return _not_stated(f"{path} cannot be read ({error}).")
    block = _exif_block(head)
    lens = from_exif(block, size_px) if block else _not_stated("the file states no focal length.")
    for name, f35 in (*_quicktime_keys(head), *_quicktime_keys(tail)):
        if lens.focal_px is None:
            focal_px = focal_px_from_35mm(f35, size_px)
            lens = _check_focal(focal_px, size_px, f"{name} {f35:g} mm", LOG_SIGMA_VIDEO)
    return lens


def focal_px_from_35mm(f35_mm: float, size_px: tuple[int, int]) -> float:
    """Return the focal length in pixels from the 35 mm equivalent, by the diagonal."""
    return f35_mm / FULL_FRAME_DIAGONAL_MM * math.hypot(*size_px)


def _check_focal(
    focal_px: float, size_px: tuple[int, int], source: str, log_sigma: float
) -> LensMetadata:
    """Return the lens with this focal length, or without one if it is not believable."""
    share = focal_px / math.hypot(*size_px)
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        return _not_stated(f"{source} is not believable: {share:.3g} times the image's diagonal.")
    return LensMetadata(focal_px, log_sigma, source, "")


def _not_stated(reason: str) -> LensMetadata:
    """Return a lens without a focal length."""
    return LensMetadata(None, math.inf, "", reason)


# --- EXIF


_EXIF_DIRECTORY = 0x8769
_FOCAL_MM = 0x920A
_FOCAL_35MM = 0xA405
_PIXELS_X = 0xA002
_PIXELS_Y = 0xA003
_PLANE_X_RESOLUTION = 0xA20E
_PLANE_UNIT = 0xA210
# Millimetres of EXIF's ResolutionUnit: inch, centimetre, millimetre, micrometre.
_UNIT_MM = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}
_LENS_TAGS = (_FOCAL_MM, _FOCAL_35MM, _PIXELS_X, _PIXELS_Y, _PLANE_X_RESOLUTION, _PLANE_UNIT)
# Where the TIFF block of EXIF begins in a JPEG, PNG, WebP, AVIF or HEIC file; its signature is
# enough to find it
_BLOCK = re.compile(rb"(?:Exif\0\0|eXIf|EXIF.{4}(?:Exif\0\0)?)(?=II\*\0|MM\0\*)", re.DOTALL)


def from_exif(block: bytes, size_px: tuple[int, int]) -> LensMetadata:
    """Return the lens that a TIFF block states (the bytes after "Exif\\0\\0" in a JPEG file)."""
    tags = read_tiff_tags(block)
    if not tags:
        return _not_stated("the file has no EXIF data.")
    stated_wh = (tags.get(_PIXELS_X, 0.0), tags.get(_PIXELS_Y, 0.0))
    if all(side > 0 for side in stated_wh):
        stated_aspect = max(stated_wh) / min(stated_wh)
        shown_aspect = max(size_px) / min(size_px)
        if abs(math.log(stated_aspect) - math.log(shown_aspect)) > 0.03:
            return _not_stated(
                f"EXIF states {stated_wh[0]:g}x{stated_wh[1]:g} pixels and the image has "
                f"{size_px[0]}x{size_px[1]}: it was cropped, so its focal length no longer holds."
            )
    f35 = tags.get(_FOCAL_35MM, 0.0)
    if f35 > 0:
        source = f"EXIF FocalLengthIn35mmFilm {f35:g} mm"
        return _check_focal(focal_px_from_35mm(f35, size_px), size_px, source, LOG_SIGMA_IMAGE)
    focal_mm = tags.get(_FOCAL_MM, 0.0)
    per_unit = tags.get(_PLANE_X_RESOLUTION, 0.0)
    unit_mm = _UNIT_MM.get(int(tags.get(_PLANE_UNIT, 2)), 0.0)
    if focal_mm > 0 and per_unit > 0 and unit_mm > 0 and stated_wh[0] > 0:
        shrink = max(size_px) / max(stated_wh)
        source = f"EXIF FocalLength {focal_mm:g} mm and FocalPlaneXResolution"
        return _check_focal(
            focal_mm * per_unit / unit_mm * shrink, size_px, source, LOG_SIGMA_IMAGE
        )
    if _FOCAL_35MM in tags or _FOCAL_MM in tags:
        return _not_stated(
            "EXIF states a focal length of 0, or one in millimetres without the size of the sensor."
        )
    return _not_stated("EXIF states no focal length.")


def read_tiff_tags(block: bytes) -> dict[int, float]:
    """Return the numeric tags of the first image and of its EXIF directory that concern the lens;
    {} if the block is damaged.
    """
    if block[:4] not in (b"II*\0", b"MM\0*"):
        return {}
    exif = Image.Exif()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exif.load(block)
            content = {**exif, **exif.get_ifd(_EXIF_DIRECTORY)}
    except Exception:  # what damaged bytes raise is as varied as the bytes
        return {}
    return {tag: _number(content[tag]) for tag in _LENS_TAGS if tag in content}


def _number(value: Any) -> float:
    """Return a tag's value, or the first of several, if it is a finite number; else 0, which is no
    valid value of the tags read here.
    """
    try:
        number = float(value[0] if isinstance(value, tuple) else value)
    except (TypeError, ValueError, ZeroDivisionError, IndexError):
        return 0.0
    return number if math.isfinite(number) else 0.0


def _exif_block(head: bytes) -> bytes:
    """Return the TIFF block of an image file; empty if it has none."""
    if head[:4] in (b"II*\0", b"MM\0*"):
        return head
    start = _BLOCK.search(head)
    return head[start.end() :] if start else b""


# --- Video


# Names under which cameras and programs write the 35 mm equivalent (Apple; exiftool's names).
_F35_NAMES = re.compile(
    r"focal_?length[._]?(?:35mm_?equivalent|in35mm(?:film|format))|focallength35efl", re.I
)
_DECIMAL = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)(?:\s*/\s*([0-9]+(?:\.[0-9]+)?))?")
# QuickTime's well-known types of whole numbers
_SIGNED = (21, 65, 66, 67, 74)
_UNSIGNED = (22, 75, 76, 77, 78)


def _quicktime_keys(content: bytes) -> Iterator[tuple[str, float]]:
    """Yield names and values of the file's 35 mm focal lengths, also those of its tracks, which
    FFmpeg would leave out. A `keys` box lists names; the items of the `ilst` box after it have a
    name's number and a `data` box.
    """
    for box in islice(re.finditer(rb"keys\0{4}.{4}", content, re.DOTALL), _MOST_BOXES):
        position = box.end()
        for number in range(1, _MOST_TAGS):
            size = int.from_bytes(content[position : position + 4], "big")
            if not 8 <= size <= 256:
                break
            name = content[position + 8 : position + size].decode("utf-8", "replace")
            position = position + size
            item = re.compile(re.escape(number.to_bytes(4, "big")) + rb"(.{4})data", re.DOTALL)
            if _F35_NAMES.search(name) and (
                data := item.search(content, position, position + _FAR_BYTES)
            ):
                size = int.from_bytes(data[1], "big")
                yield name, _item_value(content[data.end() : data.start(1) + min(size, 256)])


def _item_value(payload: bytes) -> float:
    """Return the value of a `data` box: type, language and bytes; NaN if it has none."""
    kind = int.from_bytes(payload[1:4], "big")
    value = payload[8:]
    if kind == 1:
        return _parse_decimal(value.decode("utf-8", "replace"))
    if kind in _SIGNED + _UNSIGNED and 1 <= len(value) <= 8:
        return float(int.from_bytes(value, "big", signed=kind in _SIGNED))
    if (kind, len(value)) in ((23, 4), (24, 8)):
        return float(struct.unpack(">f" if kind == 23 else ">d", value)[0])
    return math.nan


def _parse_decimal(text: str) -> float:
    """Return the number of "26", "26 mm" or "26/1"; NaN for any other text."""
    match = _DECIMAL.match(text)
    if not match:
        return math.nan
    below = float(match[2]) if match[2] else 1.0
    return float(match[1]) / below if below else math.nan
