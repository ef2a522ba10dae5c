"""What every source of images offers: its facts first, then its frames one by one.

images.py reads photos and folders of images, video_file.py reads videos."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from pose2d.base.errors import OptionError


@dataclass(frozen=True)
class Frame:
    """One image, upright, with square pixels."""

    index: int  # number in the source, from 0; frames left out by a Span keep their number
    time_s: Fraction  # when it is shown, on the source's own clock; strictly increasing
    rgb: np.ndarray  # [H, W, 3] uint8


@dataclass(frozen=True)
class ClipInfo:
    """The facts of a source that are known before its frames are read."""

    width_px: int  # as shown: after rotation and after making pixels square
    height_px: int
    rate: Fraction  # frames per second, the mean where they come unevenly
    tick_s: Fraction  # every `time_s` is a multiple of this
    frames: int | None  # as the source states it; None where it does not
    duration_s: float | None
    has_audio: bool


@dataclass(frozen=True)
class Span:
    """Which frames to read."""

    start_s: float = 0.0  # from the first frame at or after this time
    end_s: float | None = None  # up to, not including
    every: int = 1  # 1: all; 3: every third

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise OptionError(f"--every must be a whole number of 1 or more, got {self.every}.")
        if not 0 <= self.start_s < math.inf:  # NaN fails too
            raise OptionError(f"--start must be 0 seconds or more, got {self.start_s}.")
        if self.end_s is not None and not self.start_s < self.end_s < math.inf:
            raise OptionError(f"--end ({self.end_s} s) must come after --start ({self.start_s} s).")

    def too_early(self, time_s: Fraction) -> bool:
        """Return whether a time lies before the span. `start_s` counts as the decimal number that
        was written: 1.3 means 13/10, not the binary float just above it.
        """
        return time_s < Fraction(str(self.start_s))

    def too_late(self, time_s: Fraction) -> bool:
        """Return whether a time lies at or after the end of the span."""
        return self.end_s is not None and time_s >= Fraction(str(self.end_s))

    def expected_frames(self, info: ClipInfo) -> int | None:
        """Return about how many frames the span has, for progress bars, not for allocating; None if
        the source does not state its length.
        """
        total = info.frames
        if total is None:
            total = round((info.duration_s or 0) * info.rate)
        if not total:
            return None
        first = min(total, round(self.start_s * info.rate))
        end = total if self.end_s is None else min(total, round(self.end_s * info.rate))
        return max(1, -(-(end - first) // self.every))

    def expected_s(self, info: ClipInfo) -> float:
        """Return about how many seconds the span has; 0 if the source does not state its length."""
        total_s = info.duration_s
        if total_s is None:
            total_s = float((info.frames or 0) / info.rate)
        end_s = total_s if self.end_s is None else min(total_s, self.end_s)
        return max(0.0, end_s - self.start_s)


WHOLE = Span()


class Clip(ABC):
    """A source of frames. `frames` may be called any number of times; each call reads the source
    again.
    """

    path: Path
    info: ClipInfo
    warnings: list[str]  # damage that the last reading met and could work around

    @abstractmethod
    def frames(self, span: Span = WHOLE) -> Iterator[Frame]:
        """Yield frames in order of time, one in memory at a time."""

    @abstractmethod
    def files(self) -> list[Path]:
        """Return the files that it reads: what a result depends on."""
