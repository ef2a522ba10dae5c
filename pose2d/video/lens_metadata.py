"""The focal length that a camera wrote into its file: EXIF of images, QuickTime / MP4 tags and XMP of videos.

A wrong focal length is a wrong depth (the diagonal as a guess put an EMDB phone's people 71 % too far away), and many
files simply state it. Metadata comes from strangers: every offset and count is checked against the bytes at hand, and
whatever cannot be read is "nothing stated", never an exception.

    f_px = f35 / 43.27 mm * diagonal        43.27 mm: the diagonal of the 36 x 24 mm frame
"""

import math
import re
import struct
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import av
from PIL import Image

from pose2d.base.files import open_regular

FULL_FRAME_DIAGONAL_MM = math.hypot(36.0, 24.0)
# A focal length outside this share of the image's diagonal is a mistake: 0.2 is a 136 degree rectilinear lens,
# 15 a 650 mm telephoto lens.
SANE_SHARE = (0.2, 15.0)
# Makers round to whole millimetres, and convert by the width or by the diagonal: 26 mm may be 24 or 27.
LOG_SIGMA_IMAGE = 0.04
# Videos are cropped for stabilisation and to 16:9, by a few to twenty percent, and the tag often ignores it.
LOG_SIGMA_VIDEO = 0.08

_HEAD_BYTES = 1 << 20  # metadata of images lies in the first megabyte
_LARGEST_PAYLOAD = 1 << 20  # of one metadata box
_MOST_BOXES = 20_000
_MOST_TAGS = 512  # of one image file directory
_DEEPEST = 8
_IMAGE_SIGNATURES = (b"\xff\xd8", b"\x89PNG", b"RIFF", b"II*\0", b"MM\0*")


@dataclass(frozen=True)
class LensMetadata:
    """What a file says of its lens."""

    focal_px: float | None  # focal length in pixels of the image as shown; None: not stated, or not believable
    log_sigma: float  # standard deviation of log(focal_px); inf without a focal length
    source: str  # the tag that states it: "EXIF FocalLengthIn35mmFilm 26 mm"; empty without one
    reason: str  # why there is no focal length; empty with one


def read_lens_metadata(path: str | Path, size_px: tuple[int, int]) -> LensMetadata:
    """The focal length of an image or video whose frames are shown at (width, height) pixels."""
    path = Path(path)
    if len(size_px) != 2 or min(size_px) <= 0:
        return _nothing(f"an image of {size_px} pixels has no focal length.")
    try:
        with open_regular(path) as stream:
            head = stream.read(_HEAD_BYTES)
            if head.startswith(_IMAGE_SIGNATURES) and head[8:12] not in (b"AVI ", b"WAVE"):
                return from_exif(_exif_block(head), size_px)
            lens = _first_sane(_container_tags(path), size_px)
            if lens.focal_px is None and _is_iso_file(head):
                lens = _preferred(lens, _first_sane(_box_tags(stream), size_px))
            if lens.focal_px is None and _is_iso_file(head) and (block := _exif_block(head)):  # AVIF, HEIC
                lens = _preferred(lens, from_exif(block, size_px))
            return lens
    except (OSError, ValueError, MemoryError) as error:
        return _nothing(f"{path} cannot be read ({error}).")


def focal_px_from_35mm(f35_mm: float, size_px: tuple[int, int]) -> float:
    """Pixels from the 35 mm equivalent, by the diagonal."""
    return f35_mm / FULL_FRAME_DIAGONAL_MM * math.hypot(*size_px)


def from_exif(block: bytes, size_px: tuple[int, int]) -> LensMetadata:
    """From a TIFF block (what follows "Exif\\0\\0" in a JPEG file)."""
    tags = read_tiff_tags(block)
    if not tags:
        return _nothing("the file has no EXIF data.")
    stated_wh = (_number(tags.get(_PIXELS_X)), _number(tags.get(_PIXELS_Y)))
    if all(side > 0 for side in stated_wh):
        stated, shown = sorted(stated_wh), sorted(map(float, size_px))
        if abs(math.log(stated[1] / stated[0]) - math.log(shown[1] / shown[0])) > 0.03:
            return _nothing(
                f"EXIF tells of {stated_wh[0]:g}x{stated_wh[1]:g} pixels and the image has {size_px[0]}x{size_px[1]}: "
                "it was cropped, and its focal length no longer holds."
            )
    f35 = _number(tags.get(_FOCAL_35MM))
    if f35 > 0:
        return _checked(focal_px_from_35mm(f35, size_px), size_px, f"EXIF FocalLengthIn35mmFilm {f35:g} mm", False)
    focal_mm, per_unit = _number(tags.get(_FOCAL_MM)), _number(tags.get(_PLANE_X_RESOLUTION))
    unit_mm = _UNIT_MM.get(int(_number(tags.get(_PLANE_UNIT, [2.0]))), 0.0)
    if focal_mm > 0 and per_unit > 0 and unit_mm > 0 and stated_wh[0] > 0:
        shrink = max(size_px) / max(stated_wh)
        focal_px = focal_mm * per_unit / unit_mm * shrink
        return _checked(focal_px, size_px, f"EXIF FocalLength {focal_mm:g} mm and FocalPlaneXResolution", False)
    if _FOCAL_35MM in tags or _FOCAL_MM in tags:
        return _nothing("EXIF states a focal length of 0, or one in millimetres without the size of the sensor.")
    return _nothing("EXIF states no focal length.")


# --- EXIF ---------------------------------------------------------------------------------------------------------

_EXIF_DIRECTORY = 0x8769
_FOCAL_MM, _FOCAL_35MM, _PIXELS_X, _PIXELS_Y = 0x920A, 0xA405, 0xA002, 0xA003
_PLANE_X_RESOLUTION, _PLANE_UNIT = 0xA20E, 0xA210
_UNIT_MM = {2: 25.4, 3: 10.0, 4: 1.0, 5: 0.001}  # EXIF's ResolutionUnit: inch, centimetre, millimetre, micrometre
_WANTED = (_FOCAL_MM, _FOCAL_35MM, _PIXELS_X, _PIXELS_Y, _PLANE_X_RESOLUTION, _PLANE_UNIT)
# Where the TIFF block of EXIF begins in a JPEG, PNG, WebP, AVIF or HEIC file; its signature is enough to find it
_BLOCK = re.compile(rb"(?:Exif\0\0|eXIf|EXIF.{4}(?:Exif\0\0)?)(?=II\*\0|MM\0\*)", re.DOTALL)


def read_tiff_tags(block: bytes) -> dict[int, list[float]]:
    """The numeric tags of the first image and of its EXIF directory that concern the lens; {} for garbage."""
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
    return {tag: _numbers(content[tag]) for tag in _WANTED if tag in content}


def _numbers(value: Any) -> list[float]:
    """A tag's values, which may be one or several; NaN for a fraction with nothing below."""
    try:
        return [float(part) for part in (value if isinstance(value, tuple) else (value,))]
    except (TypeError, ValueError, ZeroDivisionError):
        return []


def _number(values: list[float] | None) -> float:
    """The first value if it is finite, else 0, which no tag read here means."""
    return values[0] if values and math.isfinite(values[0]) else 0.0


def _exif_block(head: bytes) -> bytes:
    """The TIFF block of an image file; empty when there is none."""
    if head[:4] in (b"II*\0", b"MM\0*"):
        return head
    start = _BLOCK.search(head)
    return head[start.end() :] if start else b""


# --- Video --------------------------------------------------------------------------------------------------------

# Names under which cameras and programs write the 35 mm equivalent (Apple; exiftool's and XMP's names).
_F35_NAMES = re.compile(
    r"focal_?length[._]?(?:35mm_?equivalent|in35mm(?:film|format))|focallength35efl", re.IGNORECASE
)  # fmt: skip
_XMP_F35 = re.compile(rb"FocalLengthIn35mmF(?:ilm|ormat)\s*(?:=\s*[\"']|>)\s*([0-9./]{1,16})")
_NUMBER = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)(?:\s*/\s*([0-9]+(?:\.[0-9]+)?))?")
_NESTED = (b"moov", b"udta", b"trak", b"meta", b"ilst")
_XMP_UUID = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")


def _is_iso_file(head: bytes) -> bool:
    return head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot")


def _container_tags(path: Path) -> Iterator[tuple[str, float]]:
    """What FFmpeg passes on: QuickTime keys of the file and of its streams, Matroska tags."""
    try:
        with av.open(str(path), options={"protocol_whitelist": "file"}) as container:
            places: list[Mapping[str, str]] = [container.metadata, *(s.metadata for s in container.streams)]
            tags = [(key, _parsed(value)) for part in places for key, value in part.items() if _F35_NAMES.search(key)]
    except (av.error.FFmpegError, OSError, ValueError):
        return
    yield from tags


def _box_tags(stream: BinaryIO) -> Iterator[tuple[str, float]]:
    """Keys, item lists and XMP anywhere under moov; FFmpeg leaves out those of tracks."""
    end = stream.seek(0, 2)
    yield from _walk(stream, 0, end, 0, [_MOST_BOXES], [])


def _walk(
    stream: BinaryIO, start: int, end: int, depth: int, boxes_left: list[int], keys: list[str]
) -> Iterator[tuple[str, float]]:
    """keys: the names that the `keys` box of this level states; `ilst` beside it refers to them by number."""
    place = start
    while place + 8 <= end and boxes_left[0] > 0:
        boxes_left[0] -= 1
        stream.seek(place)
        header = stream.read(16)
        if len(header) < 8:
            return
        size, name = struct.unpack_from(">I4s", header)
        body = place + 8
        if size == 1 and len(header) == 16:
            size, body = struct.unpack_from(">Q", header, 8)[0], place + 16
        elif size == 0:
            size = end - place
        if size < body - place or place + size > end:
            return
        stop = place + size
        if name == b"keys":
            keys[:] = _key_names(_payload(stream, body, stop))
        elif name == b"ilst":
            yield from _items(_payload(stream, body, stop), keys)
        elif name in _NESTED and depth < _DEEPEST:
            inner = body + _full_box_header(stream, body, stop) if name == b"meta" else body
            yield from _walk(stream, inner, stop, depth + 1, boxes_left, [])
        elif name == b"XMP_":
            yield from _xmp(_payload(stream, body, stop))
        elif name == b"uuid" and header[8:16] == _XMP_UUID[:8]:
            payload = _payload(stream, body, stop)
            if payload.startswith(_XMP_UUID):
                yield from _xmp(payload)
        place = stop


def _payload(stream: BinaryIO, start: int, stop: int) -> bytes:
    stream.seek(start)
    return stream.read(min(stop - start, _LARGEST_PAYLOAD))


def _full_box_header(stream: BinaryIO, body: int, stop: int) -> int:
    """`meta` has version and flags before its boxes in MP4, and has not in QuickTime."""
    start = _payload(stream, body, min(body + 8, stop))
    return 4 if start[4:8] not in (b"hdlr", b"keys", b"ilst") else 0


def _key_names(payload: bytes) -> list[str]:
    names: list[str] = []
    place = 8  # version and flags, number of entries
    while place + 8 <= len(payload) and len(names) < _MOST_TAGS:
        size = struct.unpack_from(">I", payload, place)[0]
        if size < 8 or place + size > len(payload):
            break
        names.append(payload[place + 8 : place + size].decode("utf-8", "replace"))
        place += size
    return names


def _items(payload: bytes, keys: list[str]) -> Iterator[tuple[str, float]]:
    place = 0
    while place + 24 <= len(payload):
        size, number = struct.unpack_from(">II", payload, place)
        if size < 24 or place + size > len(payload):
            return
        item = payload[place + 8 : place + size]
        if 1 <= number <= len(keys) and item[4:8] == b"data" and _F35_NAMES.search(keys[number - 1]):
            data_size, _, kind = struct.unpack_from(">I4sI", item)
            yield keys[number - 1], _item_value(kind & 0xFFFFFF, item[16 : max(16, min(data_size, len(item)))])
        place += size


# QuickTime's well-known value types.
_ITEM_CODES = {23: ">f", 24: ">d", 65: ">b", 66: ">h", 67: ">i", 74: ">q", 75: ">B", 76: ">H", 77: ">I", 78: ">Q"}


def _item_value(kind: int, value: bytes) -> float:
    if kind == 1:
        return _parsed(value.decode("utf-8", "replace"))
    if kind in (21, 22) and 1 <= len(value) <= 8:
        return float(int.from_bytes(value, "big", signed=kind == 21))
    code = _ITEM_CODES.get(kind)
    if code is None or len(value) < struct.calcsize(code):
        return math.nan
    return float(struct.unpack_from(code, value)[0])


def _xmp(payload: bytes) -> Iterator[tuple[str, float]]:
    for stated in _XMP_F35.finditer(payload):
        yield "XMP FocalLengthIn35mm", _parsed(stated[1].decode("ascii"))


def _parsed(text: str) -> float:
    """26, "26 mm" or "26/1"; NaN for anything else."""
    match = _NUMBER.match(text)
    if not match:
        return math.nan
    below = float(match[2]) if match[2] else 1.0
    return float(match[1]) / below if below else math.nan


# --- Answers ------------------------------------------------------------------------------------------------------


def _first_sane(tags: Iterator[tuple[str, float]], size_px: tuple[int, int]) -> LensMetadata:
    answer = _nothing("the file states no focal length.")
    for name, f35 in tags:
        answer = _checked(focal_px_from_35mm(f35, size_px), size_px, f"{name} {f35:g} mm", True)
        if answer.focal_px is not None:
            return answer
    return answer


def _preferred(first: LensMetadata, second: LensMetadata) -> LensMetadata:
    """The one with a focal length; of two without, the one that found a tag and says what is wrong with it."""
    return second if second.focal_px is not None or "not believable" in second.reason else first


def _checked(focal_px: float, size_px: tuple[int, int], source: str, video: bool) -> LensMetadata:
    share = focal_px / math.hypot(*size_px)
    if not SANE_SHARE[0] <= share <= SANE_SHARE[1]:  # NaN fails too
        return _nothing(f"{source} is not believable: {share:.3g} times the image's diagonal.")
    return LensMetadata(focal_px, LOG_SIGMA_VIDEO if video else LOG_SIGMA_IMAGE, source, "")


def _nothing(reason: str) -> LensMetadata:
    return LensMetadata(None, math.inf, "", reason)
