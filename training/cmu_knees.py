"""Make eval3dpw/captured/cmu_knees.json: the median bend of each CMU subject's knees in quiet standing,
left and right.

    python -m training.cmu_knees --poses poses_5fps.npz --skeleton clips_30fps.npz

Subjects who never stand quietly get the median of all. `eval3dpw/captured/`
says what it is for.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from eval3dpw.captured.knees import TABLE, signed_flexion_deg
from eval3dpw.captured.motion import load_captured
from fitting import load_body
from pose2d.base.files import atomic_file
from training.motion.standing import stands_quietly

FEWEST = 5  # frames of quiet standing that tell of a subject


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--poses", type=Path, required=True, help="CMU poses at 5 frames a second (.npz)"
    )
    parser.add_argument(
        "--skeleton", type=Path, required=True, help="CMU motion at 30 frames a second (.npz)"
    )
    options = parser.parse_args()
    body = load_body()
    motion = load_captured(options.poses, body, 5.0, options.skeleton)
    joints = torch.cat([body(part).joints for part in motion.pose.split(8192)])
    quiet = stands_quietly(joints, None, motion.clip_start, motion.fps)
    bend = signed_flexion_deg(joints)
    subject = torch.from_numpy(np.repeat(motion.clip_subject, np.diff(motion.clip_start)))
    table = {}
    for number in np.unique(motion.clip_subject).tolist():
        own = bend[quiet & (subject == number)]
        standing = (own if len(own) >= FEWEST else bend[quiet]).median(0).values
        table[number] = [round(float(value), 1) for value in standing]
    with atomic_file(TABLE) as path:
        path.write_text(json.dumps({"standing_deg": table}) + "\n")
    print(f"{len(table)} subjects -> {TABLE}")


if __name__ == "__main__":
    main()
