"""What several exports need to know of a result."""

from collections.abc import Iterator
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np

from fitmesh.exports.rest_body import rest_body
from fitmesh.exports.scene_frame import SceneFrame, standing_on_floor
from fitmesh.result import Person, Result


def scene_frame(result: Result) -> SceneFrame:
    """The frame of all exports of this result."""
    if not result.people:
        return SceneFrame(0.0)
    joints_cam_m = np.concatenate([person.joints_m for person in result.people])
    sole_m = float(np.mean([rest_body(result.body, person.shape).sole_m for person in result.people]))
    return standing_on_floor(joints_cam_m, sole_m)


def clip_time_s(result: Result, person: Person) -> np.ndarray:
    """[T] seconds since the first frame looked at, which is where overlay.mp4 starts."""
    return person.time_s - result.time_s[0]


def frame_rate(result: Result) -> Fraction:
    """Frames looked at per second: the video's rate, or a part of it where only every n-th frame was used."""
    every = int(np.diff(result.frames).min()) if len(result.frames) > 1 else 1
    return result.rate / every


def pieces(person: Person, rows: int = 500) -> Iterator[Person]:
    """The same person, some frames at a time: what is made of a long track then never lies in memory whole."""
    constant = {"identity", "shape", "stopped"}
    by_row = [field.name for field in fields(person) if field.name not in constant]
    for first in range(0, len(person), rows):
        part = slice(first, first + rows)
        yield replace(person, **{name: getattr(person, name)[part] for name in by_row})
