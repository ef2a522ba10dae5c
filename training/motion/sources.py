"""Load all motion that is learned from, by the options that training commands share."""

import argparse
from pathlib import Path

import torch

from eval3dpw.captured.motion import Motion, load_motion
from fitting.body import Body
from training.motion.accad import load_accad
from training.motion.kinds import STANDING, UPRIGHT, pose_kinds
from training.motion.rare_poses import rare_motion
from training.motion.ui_prmd import load_ui_prmd

RARE_CLIPS, RARE_SEED = 6000, 0
# How often each is drawn from: there is more variety in CMU's many subjects than in the others.
MOTION_SHARES = (0.2, 0.42, 0.13, 0.07, 0.18)
HELD_OUT = ("clips", "poses", "exercises")  # motions with subjects that nothing is learned from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the files of motion."""
    for name, description in (
        ("--clips", "CMU motion at 30 frames a second"),
        ("--poses", "CMU poses at 5 frames a second"),
        ("--exercises", "UI-PRMD's markers"),
        ("--woman", "ACCAD's Female1"),
    ):
        parser.add_argument(name, type=Path, required=True, help=f"{description} (.npz)")


def load_motions(options: argparse.Namespace, body: Body) -> dict[str, Motion]:
    """Load all motion in the order of MOTION_SHARES.

    CMU at 30 and at 5 frames a second, UI-PRMD, ACCAD, and rare poses made on learned upper bodies.
    """
    clips = load_motion(options.clips, body, 30.0)
    poses = load_motion(options.poses, body, 5.0, options.clips)
    exercises = load_ui_prmd(options.exercises, body)
    woman = load_accad(options.woman, body)
    captured = torch.cat([motion.poses_of(motion.learned) for motion in (poses, woman)])
    kind = torch.cat([pose_kinds(body(part).joints) for part in captured.split(8192)])
    rare = rare_motion(
        captured[(kind == STANDING) | (kind == UPRIGHT)], body, RARE_CLIPS, RARE_SEED
    )
    return {"clips": clips, "poses": poses, "exercises": exercises, "woman": woman, "rare": rare}
