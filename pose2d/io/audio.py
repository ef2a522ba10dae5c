"""The sound of one video, carried into another."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av

# What browsers play inside an mp4; anything else (vorbis, pcm, ...) is encoded anew as AAC.
_COPIED = ("aac", "mp3", "opus", "flac")
_RATE_HZ = 48000


class Sound:
    """The first sound track of a file, fed into an open container a little at a time, to stay beside the images."""

    def __init__(self, source: av.container.InputContainer, target: av.container.OutputContainer) -> None:
        self._source, self._target = source, target
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
    def of(cls, path: Path, target: av.container.OutputContainer) -> "Sound | None":
        """None where `path` has no sound."""
        source = av.open(str(path), options={"protocol_whitelist": "file"})
        if source.streams.audio:
            return cls(source, target)
        source.close()
        return None

    def copy_until(self, end_s: Fraction, zero_s: Fraction) -> None:
        """Pass on what sounds before `end_s`; `zero_s` on the source's clock becomes zero in the target."""
        for packet in self._packets_until(end_s):
            if packet.pts is None or packet.pts * packet.time_base < zero_s:
                continue
            if self._copy:
                shift = round(zero_s / packet.time_base)
                packet.pts, packet.dts = packet.pts - shift, packet.pts - shift
                packet.stream = self._stream
                self._target.mux(packet)
            else:
                self._encode(packet, zero_s)

    def finish(self) -> None:
        if not self._copy:
            for frame in (*self._resampler.resample(None), None):
                self._target.mux(self._stream.encode(frame))
        self._source.close()

    def _packets_until(self, end_s: Fraction) -> Iterator[av.Packet]:
        while True:
            packet, self._waiting = self._waiting, None
            if packet is None:
                try:
                    packet = next(self._packets, None)
                except (av.error.FFmpegError, OSError):  # the file breaks off here, and so does its sound
                    packet = None
            if packet is None:
                return
            if packet.pts is not None and packet.pts * packet.time_base >= end_s:
                self._waiting = packet
                return
            yield packet

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
