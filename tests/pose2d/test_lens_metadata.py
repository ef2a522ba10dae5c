"""The focal length in a file's metadata: exact values through files written here byte by byte, and
garbage.
"""

import math
import struct
from pathlib import Path

import numpy as np
import pytest

from pose2d.video.lens_metadata import (
    focal_px_from_35mm,
    from_exif,
    read_lens_metadata,
    read_tiff_tags,
)

SIZE = (1600, 1200)


def tiff(tags: dict[int, tuple[int, tuple]], order: str = "<") -> bytes:
    """A TIFF block whose EXIF directory holds the tags: {number: (type, values)}."""
    codes = {3: "H", 4: "I", 5: "II"}
    start = 8 + 2 + 12 + 4  # header, then a first directory with the pointer alone
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    head += struct.pack(order + "HHHIII", 1, 0x8769, 4, 1, start, 0)
    body = struct.pack(order + "H", len(tags))
    extra = b""
    after = start + 2 + 12 * len(tags) + 4
    for number, (kind, values) in sorted(tags.items()):
        raw = struct.pack(order + codes[kind] * (len(values) // len(codes[kind])), *values)
        if len(raw) > 4:
            place = struct.pack(order + "I", after + len(extra))
            extra += raw
        else:
            place = raw.ljust(4, b"\0")
        body += struct.pack(order + "HHI", number, kind, len(values) // len(codes[kind])) + place
    return head + body + struct.pack(order + "I", 0) + extra


def jpeg(block: bytes) -> bytes:
    payload = b"Exif\0\0" + block
    other = b"\xff\xe0" + struct.pack(">H", 6) + b"JFIF"
    return (
        b"\xff\xd8"
        + other
        + b"\xff\xe1"
        + struct.pack(">H", len(payload) + 2)
        + payload
        + b"\xff\xda\0\2"
    )


def box(name: bytes, payload: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(payload), name) + payload


def apple_meta(value: bytes, kind: int, version: bytes = b"") -> bytes:
    key = b"com.apple.quicktime.camera.focal_length.35mm_equivalent"
    keys = box(
        b"keys",
        struct.pack(">II", 0, 2) + box(b"mdta", b"com.apple.quicktime.make") + box(b"mdta", key),
    )
    make = struct.pack(">II", 8 + 21, 1) + box(b"data", struct.pack(">II", 1, 0) + b"Apple")
    focal = box(b"data", struct.pack(">II", kind, 0) + value)
    items = make + struct.pack(">II", 8 + len(focal), 2) + focal
    return box(b"meta", version + box(b"hdlr", bytes(25)) + keys + box(b"ilst", items))


def movie(*inside: bytes) -> bytes:
    return box(b"ftyp", b"qt  \0\0\0\0") + box(b"mdat", bytes(100)) + box(b"moov", b"".join(inside))


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_the_35mm_equivalent_is_measured_along_the_diagonal() -> None:
    assert focal_px_from_35mm(26, (4032, 3024)) == pytest.approx(26 / 43.2666 * 5040, rel=1e-5)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("container", ["jpg", "png", "webp", "tif", "avif"])
def test_exif_is_found_in_every_image_format(tmp_path: Path, container: str, order: str) -> None:
    block = tiff(
        {0xA405: (3, (26,)), 0x920A: (5, (425, 100)), 0xA002: (4, (3200,)), 0xA003: (4, (2400,))},
        order,
    )
    content = {
        "jpg": jpeg(block),
        "png": b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I4s", 13, b"IHDR")
        + bytes(17)
        + struct.pack(">I4s", len(block), b"eXIf")
        + block
        + bytes(4),
        "webp": b"RIFF"
        + struct.pack("<I", 99)
        + b"WEBP"
        + b"VP8X"
        + struct.pack("<I", 3)
        + bytes(4)
        + b"EXIF"
        + struct.pack("<I", len(block))
        + block,
        "tif": block,
        "avif": box(b"ftyp", b"avif")
        + box(b"meta", bytes(40))
        + box(b"mdat", b"\0\0\0\6Exif\0\0" + block),
    }[container]
    lens = read_lens_metadata(written(tmp_path / f"a.{container}", content), SIZE)
    assert lens.focal_px == pytest.approx(26 / 43.2666 * 2000, rel=1e-5)
    assert "FocalLengthIn35mmFilm" in lens.source
    assert lens.reason == ""


@pytest.mark.parametrize(("unit", "per_unit"), [(2, 25.4 * 500), (3, 10 * 500), (4, 500), (5, 0.5)])
def test_focal_length_and_sensor_resolution_give_pixels_of_the_resized_image(
    unit: int, per_unit: float
) -> None:
    tags = {
        0x920A: (5, (50, 10)),
        0xA20E: (5, (round(per_unit * 100), 100)),
        0xA210: (3, (unit,)),
        0xA002: (4, (3200,)),
        0xA003: (4, (2400,)),
    }
    assert from_exif(tiff(tags), SIZE).focal_px == pytest.approx(5 * 500 / 2)
    assert from_exif(tiff(tags), SIZE[::-1]).focal_px == pytest.approx(
        5 * 500 / 2
    )  # turned upright


@pytest.mark.parametrize(
    ("tags", "word"),
    [
        ({0xA405: (3, (0,)), 0x920A: (5, (0, 0))}, "focal length of 0"),
        ({0xA405: (3, (1,))}, "not believable"),
        ({0xA405: (3, (60000,))}, "not believable"),
        ({0x920A: (5, (425, 100))}, "without the size of the sensor"),
        ({0xA405: (3, (26,)), 0xA002: (4, (4000,)), 0xA003: (4, (4000,))}, "cropped"),
        ({0xA002: (4, (1600,))}, "no focal length"),
    ],
)
def test_metadata_that_cannot_be_right_is_refused_with_a_reason(tags: dict, word: str) -> None:
    lens = from_exif(tiff(tags), SIZE)
    assert lens.focal_px is None
    assert math.isinf(lens.log_sigma)
    assert word in lens.reason


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"26", 1),
        (b"26 mm", 1),
        (b"\0\0\0\x1a", 21),
        (b"\x1a", 22),
        (struct.pack(">f", 26), 23),
        (struct.pack(">d", 26), 24),
        (struct.pack(">H", 26), 76),
    ],
)
@pytest.mark.parametrize("version", [b"", bytes(4)])
def test_quicktime_keys_are_read_from_the_file_and_from_its_tracks(
    tmp_path: Path, value: bytes, kind: int, version: bytes
) -> None:
    meta = apple_meta(value, kind, version)
    for place in (meta, box(b"trak", meta), box(b"udta", meta)):
        lens = read_lens_metadata(
            written(tmp_path / "a.mov", movie(box(b"mvhd", bytes(100)), place)), SIZE
        )
        assert lens.focal_px == pytest.approx(26 / 43.2666 * 2000, rel=1e-5)
        assert "35mm_equivalent" in lens.source


def test_absurd_values_of_a_video_are_named(tmp_path: Path) -> None:
    for value, kind in (
        (struct.pack(">f", math.nan), 23),
        (b"0", 1),
        (b"junk", 1),
        (struct.pack(">d", 1e300), 24),
    ):
        lens = read_lens_metadata(written(tmp_path / "a.mov", movie(apple_meta(value, kind))), SIZE)
        assert lens.focal_px is None
        assert "not believable" in lens.reason


def test_a_real_video_without_the_tag_states_nothing(tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        for packet in stream.encode(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))):
            container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    lens = read_lens_metadata(tmp_path / "a.mp4", (64, 48))
    assert lens.focal_px is None
    assert "no focal length" in lens.reason


def test_garbage_and_cut_files_never_raise(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    block = tiff({0xA405: (3, (26,)), 0x920A: (5, (425, 100)), 0xA20E: (5, (1, 1))})
    seeds = (jpeg(block), block, movie(apple_meta(b"26", 1), box(b"trak", apple_meta(b"x", 23))))
    for seed in seeds:
        for trial in range(60):
            data = bytearray(seed)
            for place in rng.integers(0, len(data), 6):
                data[place] = rng.integers(256)
            cut = bytes(data[: rng.integers(1, len(data) + 1)])
            lens = read_lens_metadata(written(tmp_path / f"a{trial % 3}", cut), SIZE)
            assert (lens.focal_px is None) == bool(lens.reason)
            assert lens.focal_px is None or math.isfinite(lens.focal_px)
            read_tiff_tags(cut)
    for content in (
        b"",
        b"\xff\xd8",
        b"II*\0" + b"\xff" * 40,
        box(b"moov", b"\0\0\0\1moov" + b"\xff" * 20),
    ):
        assert read_lens_metadata(written(tmp_path / "b", content), SIZE).focal_px is None
    assert "cannot be read" in read_lens_metadata(tmp_path / "absent.jpg", SIZE).reason
    assert read_lens_metadata(tmp_path, SIZE).focal_px is None
    assert read_lens_metadata(written(tmp_path / "c.jpg", jpeg(block)), (0, 0)).focal_px is None


def test_boxes_that_nest_deeply_and_many_of_them_end(tmp_path: Path) -> None:
    deep = b""
    for _ in range(2000):
        deep = box(b"moov", deep)
    assert (
        read_lens_metadata(written(tmp_path / "a.mp4", box(b"ftyp", b"mp42") + deep), SIZE).focal_px
        is None
    )
    many = box(b"moov", box(b"udta", b"") * 100_000)
    assert (
        read_lens_metadata(written(tmp_path / "b.mp4", box(b"ftyp", b"mp42") + many), SIZE).focal_px
        is None
    )
