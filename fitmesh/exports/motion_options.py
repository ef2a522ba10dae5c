"""How motion is changed on its way into an export; apart from what changes it, which loads SciPy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Motion:
    """What becomes of a fit's motion in an export (`exports.motion`)."""

    fps: float | None = None  # None: the frames that were processed
    smooth: float = 0.0  # 0..1: share of the strongest filter
    in_place: bool = False  # the root stays over the origin, at its height


PLAIN = Motion()
