"""Videos out: H.264 in an mp4 that a browser plays, at the times its frames had, with the sound they had."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import Colorspace, VideoReformatter

from pose2d.base.files import atomic_file
from pose2d.io.audio import Sound

# Constant quality, hard to tell from the source. Measured on overlays of the example clip, 1768x994, one per line:
#   veryfast  crf 20   24 ms a frame   24 kB   PSNR 43.0 dB   SSIM 0.986
#   superfast crf 22   14 ms           30 kB        43.5 dB        0.987    chosen
#   ultrafast crf 22   10 ms           45 kB        43.5 dB        0.985
# A whole image every 30 frames: a player that is dragged to a moment decodes at most that many.
QUALITY = {"crf": "22", "preset": "superfast", "g": "30"}
# With B-frames, frames are stored out of order, and an mp4 of uneven frames then states too short a duration.
IN_ORDER = {"bf": "0"}
BT709 = 1  # the value all three colour fields of H.264 use for it
LIMITED_RANGE = 1


class VideoWriter:
    """An open video. Frames must come in order of time; the first one is shown at zero."""

    def __init__(self, container: av.container.OutputContainer, rate: Fraction, tick_s: Fraction) -> None:
        self._container = container
        self._rate = rate
        self._tick_s = tick_s
        self._stream: av.VideoStream | None = None  # made with the first frame, which knows its size
        self._colours = VideoReformatter()
        self._sound: Sound | None = None
        self._start_s = self._end_s = Fraction(0)

    def add_sound(self, source: Path) -> None:
        """Take the sound of `source`, between the times of the first and last frame, along. Before any frame."""
        self._sound = Sound.of(source, self._container)

    def write(self, rgb: np.ndarray, time_s: Fraction) -> None:
        """Add one frame, [H, W, 3] uint8, shown from `time_s` (the source's clock) on."""
        rgb = np.ascontiguousarray(_even(rgb))
        if self._stream is None:
            self._stream = self._open_stream(*rgb.shape[1::-1])
            self._start_s = time_s
        frame = av.VideoFrame.from_numpy_buffer(rgb, format="rgb24")  # no copy
        frame = self._colours.reformat(frame, format="yuv420p", dst_colorspace=Colorspace.ITU709)
        frame.time_base = self._tick_s
        frame.pts = round((time_s - self._start_s) / self._tick_s)
        self._end_s = time_s + 1 / self._rate
        self._mux(frame)
        if self._sound:
            self._sound.copy_until(time_s, self._start_s)

    def finish(self) -> None:
        if self._stream is None:
            raise ValueError("a video needs at least one frame")
        self._mux(None)
        if self._sound:
            self._sound.copy_until(self._end_s, self._start_s)
            self._sound.finish()

    def _open_stream(self, width: int, height: int) -> av.VideoStream:
        stream = self._container.add_stream("libx264", rate=self._rate, options={**QUALITY, **IN_ORDER})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = stream.codec_context.time_base = self._tick_s
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = BT709
        context.color_range = LIMITED_RANGE
        return stream

    def _mux(self, frame: av.VideoFrame | None) -> None:
        assert self._stream is not None
        for packet in self._stream.encode(frame):
            packet.duration = round(1 / self._rate / self._tick_s)  # counts for the last frame only
            self._container.mux(packet)


@contextmanager
def video_writer(
    path: str | Path,
    rate: Fraction,
    tick_s: Fraction,
    sound_from: Path | None = None,
    tags: Mapping[str, str] | None = None,
) -> Iterator[VideoWriter]:
    """Write a video that appears at `path` whole, or not at all.

    `rate` is the mean frames per second; `tick_s` divides every frame's time. Odd sizes grow by one pixel, since
    4:2:0 colour halves both sides. `tags` are kept in the file (mp4 knows "title", "comment" and the like).
    """
    faststart = {"movflags": "+faststart"}  # the index comes first: a browser can play before it has everything
    with (
        atomic_file(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options=faststart) as container,
    ):
        container.metadata.update(tags or {})
        writer = VideoWriter(container, rate, tick_s)
        if sound_from:
            writer.add_sound(sound_from)
        yield writer
        writer.finish()


def _even(rgb: np.ndarray) -> np.ndarray:
    height, width = rgb.shape[:2]
    if height % 2 == 0 and width % 2 == 0:
        return rgb
    return np.pad(rgb, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
