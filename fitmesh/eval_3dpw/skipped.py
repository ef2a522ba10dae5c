"""What was left out, and why: it goes into the table."""

from collections.abc import Iterable
from dataclasses import dataclass

NO_IMAGE = "image missing"
BROKEN_IMAGE = "image unreadable"
NOT_EVERY = "not asked for (--every)"
NO_PREDICTION = "no prediction"


@dataclass(frozen=True)
class Skipped:
    """Person-frames, or a whole sequence."""

    sequence: str
    why: str
    frames: int | None  # person-frames; None: nobody knows, the file could not be read
    whole: bool = False  # the whole sequence


def summary(skipped: Iterable[Skipped]) -> list[tuple[str, int, int]]:
    """Reasons with person-frames and whole sequences left out, most frames first."""
    frames: dict[str, int] = {}
    wholes: dict[str, int] = {}
    for one in skipped:
        frames[one.why] = frames.get(one.why, 0) + (one.frames or 0)
        wholes[one.why] = wholes.get(one.why, 0) + one.whole
    return sorted(((why, frames[why], wholes[why]) for why in frames), key=lambda row: (-row[1], row[0]))
