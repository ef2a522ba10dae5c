"""Video files: mp4, mov, mkv, webm, gif and most others that FFmpeg reads.

PyAV reads them, not OpenCV. Both turn frames upright, convert colours alike and decode at the same
speed. But only PyAV gives the exact rate as a fraction and timestamps on the clock of the sound
(OpenCV shifts the first frame to zero), and only PyAV distinguishes a broken file from one that has
ended."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from av.video.reformatter import VideoReformatter

from pose2d.base.errors import UserError
from pose2d.base.limits import MOST_PIXELS
from pose2d.video.frames import WHOLE, Clip, ClipInfo, Frame, Span
from pose2d.video.images import check_size

# A frame rate outside these comes from a damaged header; DEFAULT_FPS is used instead.
SLOWEST_FPS = Fraction(1, 1000)
FASTEST_FPS = Fraction(10**6)
DEFAULT_FPS = Fraction(30)
# A later frame may have this many times the first frame's pixels, or this many pixels.
LARGER = 4
SMALL_PX = 4_000_000
# Range of a pixel's width over its height; outside of it the header is damaged.
MOST_STRETCHED = Fraction(1, 16), Fraction(16)
# The images may end this much earlier than the file states: players differ by a frame or two.
_DURATION_SLACK_S = 0.25
_DURATION_SLACK_FRAMES = 2
KINDS = "mp4, mov, mkv, webm or gif"
_MATROSKA_DURATION = re.compile(r"([0-9]{1,4}):([0-9]{1,2}):([0-9]{1,2}(?:\.[0-9]{1,12})?)")
# FFmpeg's names of video containers. It opens more: text that is "played" on a terminal, raw bytes,
# play lists of other files.
_CONTAINERS = {
    "mov",
    "mp4",
    "matroska",
    "webm",
    "avi",
    "gif",
    "apng",
    "mpegts",
    "mpeg",
    "ogg",
    "flv",
    "asf",
    "mxf",
    "m4v",
    "h264",
    "hevc",
    "mjpeg",
    "ivf",
}


class Video(Clip):
    """A video file. A damaged one is read as far as possible, and `warnings` says how far."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.warnings = []
        with _open_video(self.path, MOST_PIXELS) as (container, stream):
            first = next(_decode(container, stream, self.warnings), None)
            if first is None:
                raise UserError(
                    f"{self.path} holds no readable frame: the file is damaged or cut off. "
                    "Copy or record it again, or convert it to mp4 (H.264).",
                    file=self.path,
                )
            self._decoded_px = first.width * first.height
            self._stored_wh = _size_with_square_pixels(stream, first)
            check_size(self.path, self._stored_wh)
            self._turn = _Turn(first)
            width, height = self._stored_wh
            if self._turn.is_sideways:
                width, height = height, width
            self.info = ClipInfo(
                width_px=width,
                height_px=height,
                rate=_rate(stream),
                tick_s=stream.time_base or Fraction(1, 90000),
                frames=stream.frames or None,
                duration_s=_duration_s(container, stream),
                has_audio=bool(container.streams.audio),
            )

    def files(self) -> list[Path]:
        return [self.path]

    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        self.warnings = []
        first_index: int | None = None  # of the span
        last_time: Fraction | None = None
        width, height = self._stored_wh
        most_px = max(LARGER * self._decoded_px, SMALL_PX)
        with _open_video(self.path, most_px) as (container, stream):
            # One converter for all frames: building its tables costs more than using them.
            colours = VideoReformatter()
            for index, frame in enumerate(_decode(container, stream, self.warnings)):
                time_s = self._time_s(frame, last_time)
                last_time = time_s
                if span.too_late(time_s):
                    return
                if span.too_early(time_s):
                    continue
                if first_index is None:
                    first_index = index
                if (index - first_index) % span.every == 0:
                    rgb = _view_pixels(colours.reformat(frame, width, height, "rgb24"))
                    yield Frame(index, time_s, self._turn.to_upright(rgb))
        if last_time is None or first_index is None:
            end_s = float(last_time or 0)
            raise UserError(
                f"{self.path} ends at {end_s:.2f} s, before --start {span.start_s:g} s.",
                file=self.path,
            )
        self._warn_if_cut_off(float(last_time + 1 / self.info.rate))

    def _warn_if_cut_off(self, end_s: float) -> None:
        """Add a warning if the images end well before the time that the file states."""
        stated_s = self.info.duration_s
        slack_s = _DURATION_SLACK_S + _DURATION_SLACK_FRAMES / self.info.rate
        if stated_s is not None and end_s < stated_s - slack_s:
            self.warnings.append(
                f"{self.path} says it lasts {stated_s:.2f} s but its images end at {end_s:.2f} s: "
                "it was cut off or is damaged. What could be read was used."
            )

    def _time_s(self, frame: av.VideoFrame, last: Fraction | None) -> Fraction:
        """Return the frame's own time. Where the file lacks a timestamp, or repeats one, return the
        next possible time after the last frame's.
        """
        info = self.info
        if frame.pts is not None and frame.time_base is not None:
            time_s = Fraction(frame.pts * frame.time_base)
        elif last is not None:
            time_s = last + round(1 / info.rate / info.tick_s) * info.tick_s
        else:
            time_s = Fraction(0)
        return time_s if last is None or time_s > last else last + info.tick_s


def _view_pixels(frame: av.VideoFrame) -> np.ndarray:
    """Return the pixels [H, W, 3] of an RGB frame, without a copy where its rows are not padded."""
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, plane.line_size)
    return rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)


class _Turn:
    """How stored pixels become upright ones.

    The display matrix (a, b, u, c, d, v, x, y, w) of the ISO file format says x' = a x + c y, y' =
    b x + d y. Phones write quarter turns, and a mirror for some front cameras; anything between is
    rounded to the nearest of these."""

    def __init__(self, frame: av.VideoFrame) -> None:
        side_data: Any = frame.side_data.get("DISPLAYMATRIX")
        matrix = [1, 0, 0, 0, 1]
        if side_data is not None:
            matrix = np.frombuffer(bytes(side_data), np.int32)[:5].tolist()
        a, b, _, c, d = matrix
        self.is_sideways = abs(a) < abs(b)
        self._flip_x = c < 0 if self.is_sideways else a < 0
        self._flip_y = b < 0 if self.is_sideways else d < 0

    def to_upright(self, rgb: np.ndarray) -> np.ndarray:
        """Return stored pixels [H, W, 3] turned upright."""
        if self.is_sideways:
            rgb = rgb.transpose(1, 0, 2)
        if self._flip_y:
            rgb = rgb[::-1]
        if self._flip_x:
            rgb = rgb[:, ::-1]
        return np.ascontiguousarray(rgb)


@contextmanager
def _open_video(
    path: Path, most_px: int
) -> Iterator[tuple[av.container.InputContainer, av.VideoStream]]:
    """Open a file and return it with its video track. most_px: the decoder refuses larger frames
    before it allocates them.
    """
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, not a video file. For a folder of images use --images.", file=path
        )
    if not path.is_file():
        raise UserError(f"no video at {path}. Check the path; {KINDS} can be read.", file=path)
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty (0 bytes). Copy or record it again.", file=path)
    try:
        # A play list inside a hostile file must not reach out to the network.
        container = av.open(str(path), options={"protocol_whitelist": "file"})
    except PermissionError as error:
        raise UserError(
            f"{path} may not be read by this user. Change its permissions.", file=path
        ) from error
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a video that can be read ({_reason(error)}). Expected {KINDS}; an mp4 "
            "that was cut off while recording or copying lacks its index and cannot be opened: "
            "copy it again or convert it.",
            file=path,
        ) from error
    with container:
        kind = container.format.name
        if _CONTAINERS.isdisjoint(kind.split(",")):
            raise UserError(
                f"{path} is not a video ({kind}). Expected {KINDS}; for one image use --image.",
                file=path,
            )
        # The cover image of a music file is a video stream too, but not a video.
        videos = [
            stream
            for stream in container.streams.video
            if not stream.disposition & Disposition.attached_pic
        ]
        if not videos:
            content = "only sound" if container.streams.audio else "no images"
            raise UserError(
                f"{path} holds {content}, no video. Expected {KINDS} with a video track.", file=path
            )
        video = videos[0]
        if video.codec_context is None:  # PyAV has none where FFmpeg has no decoder
            raise UserError(
                f"{path} holds video of a kind that FFmpeg cannot decode. "
                "Convert it to mp4 (H.264).",
                file=path,
            )
        video.thread_type = "AUTO"
        video.codec_context.options = {"max_pixels": str(most_px)}
        yield container, video


def _decode(
    container: av.container.InputContainer, stream: av.VideoStream, warnings: list[str]
) -> Iterator[av.VideoFrame]:
    """Yield every frame that can be decoded; packets that cannot are counted in a warning."""
    damaged = 0
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except (av.error.FFmpegError, OSError) as error:
            warnings.append(
                f"{container.name} breaks off ({_reason(error)}). What could be read was used."
            )
            break
        if packet is None:
            break
        try:
            yield from packet.decode()
        except (av.error.FFmpegError, OSError):
            damaged += 1
    if damaged:
        warnings.append(
            f"{container.name} has {damaged} damaged packets of video data; they were left out."
        )


def _size_with_square_pixels(stream: av.VideoStream, frame: av.VideoFrame) -> tuple[int, int]:
    """Return the stored width and height, with the width stretched so that pixels are square."""
    aspect = stream.sample_aspect_ratio or Fraction(1)
    if not MOST_STRETCHED[0] <= aspect <= MOST_STRETCHED[1]:  # a damaged header
        aspect = Fraction(1)
    return max(1, round(frame.width * aspect)), frame.height


def _rate(stream: av.VideoStream) -> Fraction:
    """Return the frame rate of a track; DEFAULT_FPS if its header is damaged."""
    rate = Fraction(stream.average_rate or stream.guessed_rate or DEFAULT_FPS)
    return rate if SLOWEST_FPS <= rate <= FASTEST_FPS else DEFAULT_FPS


def _duration_s(container: av.container.InputContainer, stream: av.VideoStream) -> float | None:
    """Return how long the images last; None if it is not stated. The container's own duration would
    include sound that outlasts them.
    """
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    tag = stream.metadata.get("DURATION", "")  # Matroska: "00:00:02.966000000"
    if match := _MATROSKA_DURATION.fullmatch(tag):
        return int(match[1]) * 3600 + int(match[2]) * 60 + float(match[3])
    if container.duration and not container.streams.audio:
        return container.duration / av.time_base
    return None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
