"""A small image of a clip, for the page over all clips."""

from pathlib import Path

import av
import numpy as np

from fitmesh.exports.report.key_frames import images_at
from fitmesh.result import Result
from pose2d.base.files import atomic_file

FILE = "thumbnail.jpg"
LONG_SIDE_PX = 320


def write_thumbnail(result: Result, out: Path) -> None:
    """The frame of the overlay in the middle of the time that people are in view."""
    in_view = np.unique(np.concatenate([person.time_s for person in result.people] or [result.time_s]))
    middle_s = float(in_view[len(in_view) // 2] - result.time_s[0])
    try:
        images = images_at(result.overlay_path, [middle_s], LONG_SIDE_PX)
    except (av.error.FFmpegError, OSError):
        return
    for image in images:
        with atomic_file(out / FILE) as temporary:
            temporary.write_bytes(image)
