"""All the motion that the pose prior and the lifter learn from, and what is kept apart for measuring."""

import argparse
from dataclasses import dataclass
from pathlib import Path

import torch

from fitting.body import Body
from fitting.training.markers import load_ui_prmd
from fitting.training.motion_capture import Motion, load_accad, load_motion
from fitting.training.pose_kinds import STANDING, UPRIGHT, pose_kinds
from fitting.training.rare_poses import rare_motion

RARE_CLIPS, RARE_SEED = 6000, 0
# How often each is drawn from: there is more variety in CMU's many subjects than in the others.
SHARES = (0.2, 0.42, 0.13, 0.07, 0.18)


@dataclass(frozen=True)
class Motions:
    clips: Motion  # CMU at 30 frames a second
    poses: Motion  # CMU at 5
    exercises: Motion  # UI-PRMD
    woman: Motion  # ACCAD
    rare: Motion  # made, on learned upper bodies

    @property
    def all(self) -> tuple[Motion, ...]:
        return self.clips, self.poses, self.exercises, self.woman, self.rare

    @property
    def held_out(self) -> tuple[Motion, ...]:
        """Those with subjects that nothing is learned from."""
        return self.clips, self.poses, self.exercises


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clips", type=Path, required=True, help="CMU motion at 30 frames a second (.npz)")
    parser.add_argument("--poses", type=Path, required=True, help="CMU poses at 5 frames a second (.npz)")
    parser.add_argument("--exercises", type=Path, required=True, help="UI-PRMD's markers (.npz)")
    parser.add_argument("--woman", type=Path, required=True, help="ACCAD's Female1 (.npz)")


def load_motions(given: argparse.Namespace, body: Body) -> Motions:
    clips, poses = load_motion(given.clips, body, 30.0), load_motion(given.poses, body, 5.0, given.clips)
    exercises, woman = load_ui_prmd(given.exercises, body), load_accad(given.woman, body)
    captured = torch.cat([motion.poses_of(motion.learned) for motion in (poses, woman)])
    kind = torch.cat([pose_kinds(body(part).joints) for part in captured.split(8192)])
    rare = rare_motion(captured[(kind == STANDING) | (kind == UPRIGHT)], body, RARE_CLIPS, RARE_SEED)
    return Motions(clips, poses, exercises, woman, rare)
