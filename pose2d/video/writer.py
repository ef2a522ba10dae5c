"""Writing videos: H.264 in an mp4 that browsers play, with the frames' own times and the source's
sound.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import Colorspace, VideoReformatter

from pose2d.base.files import atomic_file

# Constant quality, hard to tell from the source. Measured on overlays of the example clip,
# 1768x994, one per line:
#   veryfast  crf 20   24 ms a frame   24 kB   PSNR 43.0 dB   SSIM 0.986
#   superfast crf 22   14 ms           30 kB        43.5 dB        0.987    chosen
#   ultrafast crf 22   10 ms           45 kB        43.5 dB        0.985
# A whole image every 30 frames: a player that is dragged to a moment decodes at most that many.
QUALITY = {"crf": "22", "preset": "superfast", "g": "30"}
# With B-frames, frames are stored out of order, and an mp4 of uneven frames then states too short a
# duration.
IN_ORDER = {"bf": "0"}
BT709 = 1  # the value all three colour fields of H.264 use for it
LIMITED_RANGE = 1
LARGEST_WH = 8192  # pixels a side: the most of H.264's highest level
LEAST_WH = 16  # one of its blocks


class VideoWriter:
    """An open video. Frames must come in order of time; the first one is shown at zero."""

    def __init__(
        self,
        container: av.container.OutputContainer,
        rate: Fraction,
        tick_s: Fraction,
        sound_from: Path | None,
    ) -> None:
        """sound_from: the file whose sound, between the times of the first and last frame, is
        copied.
        """
        self._container = container
        self._rate = rate
        self._tick_s = tick_s
        self._stream: av.VideoStream | None = None  # made with the first frame, which has its size
        self._colours = threading.local()  # a converter for each thread that prepares frames
        self._sound = Sound.open(sound_from, container) if sound_from else None
        self._start_s = Fraction(0)
        self._end_s = Fraction(0)

    def write(self, rgb: np.ndarray, time_s: Fraction) -> None:
        """Add one frame, [H, W, 3] uint8, shown from `time_s` (the source's clock) on."""
        self.add(self.prepare(rgb), time_s)

    def prepare(self, rgb: np.ndarray) -> av.VideoFrame:
        """Return an image [H, W, 3] in the colours of the file, for `add`. Several threads may
        prepare frames at a time.
        """
        rgb = np.ascontiguousarray(_to_playable_size(rgb))
        frame = av.VideoFrame.from_numpy_buffer(rgb, format="rgb24")  # no copy
        if not hasattr(self._colours, "converter"):
            self._colours.converter = VideoReformatter()
        return self._colours.converter.reformat(
            frame, format="yuv420p", dst_colorspace=Colorspace.ITU709
        )

    def add(self, frame: av.VideoFrame, time_s: Fraction) -> None:
        """Add a prepared frame, shown from `time_s` on."""
        if self._stream is None:
            self._stream = self._container.add_stream(
                "libx264", rate=self._rate, options={**QUALITY, **IN_ORDER}
            )
            self._stream.width = frame.width
            self._stream.height = frame.height
            self._stream.pix_fmt = "yuv420p"
            context = self._stream.codec_context
            self._stream.time_base = self._tick_s
            context.time_base = self._tick_s
            context.colorspace = BT709
            context.color_primaries = BT709
            context.color_trc = BT709
            context.color_range = LIMITED_RANGE
            self._start_s = time_s
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

    def _mux(self, frame: av.VideoFrame | None) -> None:
        assert self._stream is not None
        for packet in self._stream.encode(frame):
            packet.duration = round(1 / self._rate / self._tick_s)  # counts for the last frame only
            self._container.mux(packet)


@contextmanager
def video_writer(
    path: str | Path, rate: Fraction, tick_s: Fraction, sound_from: Path | None = None
) -> Iterator[VideoWriter]:
    """Write a video atomically: it appears at `path` when it is complete.

    rate: mean frames per second; tick_s: divides every frame's time. Odd sizes grow by one pixel,
    because 4:2:0 colour halves both sides; images with a side above 8192 pixels are shrunk."""
    # The index comes first, so that a browser can play before it has the whole file.
    faststart = {"movflags": "+faststart"}
    with (
        atomic_file(path) as temporary,
        av.open(str(temporary), "w", format="mp4", options=faststart) as container,
    ):
        writer = VideoWriter(container, rate, tick_s, sound_from)
        yield writer
        writer.finish()


def _to_playable_size(rgb: np.ndarray) -> np.ndarray:
    """Return the image shrunk if a side is longer than H.264 allows; sides that are odd or shorter
    than its blocks grow at their end.
    """
    share = LARGEST_WH / max(rgb.shape[:2])
    if share < 1:
        width, height = (max(2, round(share * side)) for side in rgb.shape[1::-1])
        rgb = cv2.resize(rgb, (width, height), interpolation=cv2.INTER_AREA)
    grow_h, grow_w = (max(side + side % 2, LEAST_WH) - side for side in rgb.shape[:2])
    if not grow_h and not grow_w:
        return rgb
    return np.pad(rgb, ((0, grow_h), (0, grow_w), (0, 0)), mode="edge")


# What browsers play inside an mp4; anything else (vorbis, pcm, ...) is encoded anew as AAC.
_COPIED = ("aac", "mp3", "opus", "flac")
_RATE_HZ = 48000


class Sound:
    """The first sound track of a file, copied into an open container a little at a time, so that
    sound and images of one moment lie close together.
    """

    def __init__(
        self, source: av.container.InputContainer, target: av.container.OutputContainer
    ) -> None:
        self._source = source
        self._target = target
        track = source.streams.audio[0]
        self._copy = track.codec_context.name.removesuffix("float") in _COPIED
        if self._copy:
            self._stream = target.add_stream_from_template(track)
        else:
            self._stream = target.add_stream("aac", rate=_RATE_HZ, layout="stereo")
            self._resampler = av.AudioResampler("fltp", "stereo", _RATE_HZ)
        self._packets = source.demux(track)
        self._waiting: av.Packet | None = None

    @classmethod
    def open(cls, path: Path, target: av.container.OutputContainer) -> "Sound | None":
        """Return the sound of a file; None if it has none."""
        source = av.open(str(path), options={"protocol_whitelist": "file"})
        if source.streams.audio:
            return cls(source, target)
        source.close()
        return None

    def copy_until(self, end_s: Fraction, zero_s: Fraction) -> None:
        """Copy the sound before `end_s`; `zero_s` becomes zero in the target."""
        while True:
            try:
                packet = next(self._packets, None) if self._waiting is None else self._waiting
            except (av.error.FFmpegError, OSError):  # the file breaks off here, and so does sound
                return
            self._waiting = None
            if packet is None:
                return
            if packet.pts is None:
                continue
            time_s = packet.pts * packet.time_base
            if time_s >= end_s:
                self._waiting = packet
                return
            if time_s < zero_s:
                continue
            if self._copy:
                pts = packet.pts - round(zero_s / packet.time_base)
                packet.pts = pts
                packet.dts = pts
                packet.stream = self._stream
                self._target.mux(packet)
            else:
                self._encode(packet, zero_s)

    def finish(self) -> None:
        if not self._copy:
            for frame in (*self._resampler.resample(None), None):
                self._target.mux(self._stream.encode(frame))
        self._source.close()

    def _encode(self, packet: av.Packet, zero_s: Fraction) -> None:
        try:
            frames = packet.decode()
        except (av.error.FFmpegError, OSError):
            return  # a damaged moment stays silent
        for frame in frames:
            assert isinstance(frame, av.AudioFrame)
            if frame.pts is not None and frame.time_base is not None:
                frame.pts -= round(zero_s / frame.time_base)
            for resampled in self._resampler.resample(frame):
                self._target.mux(self._stream.encode(resampled))
