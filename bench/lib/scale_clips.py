"""Short clips cut from a few videos, for `bench/scale.py`."""

from collections.abc import Sequence
from pathlib import Path

import cv2

from pose2d.video.frames import Span
from pose2d.video.video_file import Video
from pose2d.video.writer import video_writer

LONG_SIDE_PX = 320


def cut_clips(videos: Sequence[Path], folder: Path, count: int, frames: int) -> list[Path]:
    """`count` clips of `frames` frames, taken in turn from the videos, each from another moment.
    Kept if there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rounds = -(-count // len(videos))
    clips_cut = []
    for number in range(count):
        source = videos[number % len(videos)]
        turn = number // len(videos)
        path = folder / f"{number:02d}_{source.stem}.mp4"
        if not path.is_file():
            _cut(source, path, turn / rounds, frames)
        clips_cut.append(path)
    return clips_cut


def _cut(source: Path, path: Path, share: float, frames: int) -> None:
    """Cut a clip from a moment at `share` of the video."""
    video = Video(source)
    info = video.info
    zoom = min(1.0, LONG_SIDE_PX / max(info.width_px, info.height_px))
    size = (round(info.width_px * zoom) // 2 * 2, round(info.height_px * zoom) // 2 * 2)
    last_s = max(0.0, (info.duration_s or 0) - frames / float(info.rate) - 0.1)
    with video_writer(path, info.rate, info.tick_s) as writer:
        for number, frame in enumerate(video.frames(Span(start_s=round(share * last_s, 3)))):
            if number == frames:
                break
            small = cv2.resize(frame.rgb, size, interpolation=cv2.INTER_AREA)
            writer.write(small, frame.time_s)
