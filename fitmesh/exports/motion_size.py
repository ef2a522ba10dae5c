"""Refuse a frame rate of exports whose motion would not fit into memory."""

from pose2d.base.errors import ResourceError
from pose2d.base.limits import MOST_ARRAY_BYTES, most_bytes, size_text

# Resampling takes 4.7 kB for a person in a frame at its peak (tracemalloc, 300 and 1000 frames/s);
# what writes the formats needs as much again.
PERSON_FRAME_BYTES = 12_000
FRAME_BYTES = 1000


def check_motion_size(seconds: float, people: float, fps: float) -> None:
    """Raise ResourceError if so many seconds of people at a frame rate do not fit into memory.

    people: the mean number in a frame.
    """
    frames = seconds * fps
    needed = frames * (FRAME_BYTES + people * PERSON_FRAME_BYTES)
    available = most_bytes(MOST_ARRAY_BYTES)
    if needed > available:
        raise ResourceError(
            f"exports at {fps:g} frames/s of {seconds:.0f} s would have {frames:.3g} frames and take "
            f"{size_text(needed)} of memory; at most {size_text(available)} may be used. Pass a lower "
            "--export-fps, or a part of the video with --start and --end.",
            option="export_fps",
        )
