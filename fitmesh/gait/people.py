"""A person of a result as gait analysis reads it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fitmesh.exports.angles import person_angle_std_deg, person_angles_deg
from fitmesh.exports.scene import SceneFrame, clip_time_s, foot_points, segments
from fitmesh.gait.cycles import Cycles, normalize_cycles
from fitmesh.gait.events import GaitEvent, find_gait_events
from fitmesh.gait.motion import BodyMotion
from fitmesh.gait.movements import Jump, Squat, find_jumps, find_squats
from fitmesh.gait.steps import Step, find_steps
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.body.kinematics import JOINT_NAMES

FEWEST_FRAMES = 10  # of a segment
_ANKLES = [JOINT_NAMES.index(f"{side}_ankle") for side in ("left", "right")]


@dataclass(frozen=True)
class Movement:
    """What one person does in frames without an absence."""

    person: Person  # the rows of the segment
    motion: BodyMotion

    @cached_property
    def events(self) -> list[GaitEvent]:
        """Return foot strikes and toe-offs."""
        return find_gait_events(self.motion)

    @cached_property
    def steps(self) -> list[Step]:
        """Return the steps."""
        return find_steps(self.motion, self.events)

    @cached_property
    def cycles(self) -> dict[str, Cycles]:
        """Return the cycles of every angle."""
        return normalize_cycles(
            self.motion.time_s,
            person_angles_deg(self.person),
            person_angle_std_deg(self.person),
            self.events,
        )

    @cached_property
    def squats(self) -> list[Squat]:
        """Return the squats."""
        return find_squats(self.motion)

    @cached_property
    def jumps(self) -> list[Jump]:
        """Return the jumps."""
        return find_jumps(self.motion)


def movements(result: Result, scene: SceneFrame, person: Person) -> Iterator[Movement]:
    """Yield the movement of a person segment by segment; nothing without a known gravity."""
    if not scene.upright[person.shot]:
        return
    for rows in segments(result, person):
        part = person.rows(rows)
        if len(part) < FEWEST_FRAMES:
            continue
        feet_m = foot_points(result, part, scene)
        angles = person_angles_deg(part)
        _, speed_std = person.speeds_m_s()
        motion = BodyMotion(
            time_s=clip_time_s(result, part),
            pelvis_m=scene.points(part.joints_m[:, :1].astype(np.float64), part.frame)[:, 0],
            heels_m=feet_m[:, [0, 2]],
            toes_m=feet_m[:, [1, 3]],
            knee_flexion_deg=np.stack(
                [angles[f"{side}_knee_flexion"] for side in ("left", "right")], -1
            ),
            foot_std_m=part.joint_std_relative_mm[:, _ANKLES] / (1000 * np.sqrt(3)),
            foot_speed_std_m_s=speed_std[rows][:, _ANKLES],
        )
        yield Movement(part, motion)


def join_cycles(parts: list[dict[str, Cycles]]) -> dict[str, Cycles]:
    """Return the cycles of all segments by angle."""
    joined: dict[str, Cycles] = {}
    for part in parts:
        for name, cycles in part.items():
            if name in joined:
                before = joined[name]
                cycles = replace(
                    before,
                    values=np.concatenate([before.values, cycles.values]),
                    std=np.concatenate([before.std, cycles.std]),
                )
            joined[name] = cycles
    return joined
