"""Small videos with known contents, for tests."""

import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

MILLISECOND = Fraction(1, 1000)
CODECS = {
    ".mp4": "libx264",
    ".mov": "libx264",
    ".mkv": "libx264",
    ".webm": "libvpx-vp9",
    ".gif": "gif",
}


def image(number: int, width: int = 64, height: int = 48) -> np.ndarray:
    """Red top left corner on black, and a grey bar at the right that tells the frame's number."""
    rgb = np.zeros((height, width, 3), np.uint8)
    rgb[: height // 2, : width // 2] = (255, 0, 0)
    rgb[:, -16:] = 8 * (number % 32)
    return rgb


def number_of(rgb: np.ndarray) -> int:
    """The frame number that `image` wrote."""
    return round(float(rgb[8:-8, -12:-4].mean()) / 8)


def write_video(
    path: Path,
    times_ms: list[int],
    size: tuple[int, int] = (64, 48),
    sound: str | None = None,
    options: dict[str, str] | None = None,
) -> Path:
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(CODECS[path.suffix], rate=30)
        stream.width, stream.height = size
        stream.pix_fmt = "rgb8" if path.suffix == ".gif" else "yuv420p"
        stream.time_base = stream.codec_context.time_base = (
            Fraction(1, 100) if path.suffix == ".gif" else MILLISECOND
        )
        stream.codec_context.max_b_frames = 0
        track = _add_sound(container, sound) if sound else None
        for number, time_ms in enumerate(times_ms):
            frame = av.VideoFrame.from_ndarray(image(number, *size), format="rgb24").reformat(
                format=stream.pix_fmt
            )
            frame.time_base = MILLISECOND
            frame.pts = time_ms
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if track:
            _write_sound(container, track, (times_ms[-1] + 33) / 1000)
    return path


def write_sound(path: Path, codec: str = "aac", seconds: float = 1.0) -> Path:
    with av.open(str(path), "w") as container:
        _write_sound(container, _add_sound(container, codec), seconds)
    return path


def turn(source: Path, target: Path, matrix: tuple[int, int, int, int]) -> Path:
    """Copy an mp4 with another display matrix (a, b, c, d) in its track header: x' = a x + c y, y'
    = b x + d y.
    """
    data = bytearray(source.read_bytes())
    header = data.index(b"tkhd")
    offset = header + 4 + (52 if data[header + 4] else 40)
    one = 1 << 16
    a, b, c, d = (one * value for value in matrix)
    data[offset : offset + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    target.write_bytes(data)
    return target


def _add_sound(container: av.container.OutputContainer, codec: str) -> av.AudioStream:
    track = container.add_stream(codec, rate=48000)
    track.layout = "mono"
    return track


def _write_sound(
    container: av.container.OutputContainer, track: av.AudioStream, seconds: float
) -> None:
    size = track.codec_context.frame_size or 1024
    kind = track.codec_context.format.name
    for start in range(0, int(seconds * 48000), size):
        wave = np.sin(2 * np.pi * 440 * np.arange(start, start + size) / 48000)[None]
        samples = (
            (wave * 3e4).astype(np.int16) if kind == "s16" else (wave * 0.9).astype(np.float32)
        )
        frame = av.AudioFrame.from_ndarray(samples, format=kind, layout="mono")
        frame.sample_rate = 48000
        frame.pts = start
        frame.time_base = Fraction(1, 48000)
        container.mux(track.encode(frame))
    container.mux(track.encode(None))
