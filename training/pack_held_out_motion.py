"""Make eval3dpw/synth/data/held_out_motion.npz: the clips of held-out CMU subjects, turned onto the
24 joints.

    python -m training.pack_held_out_motion path/to/clips_30fps.npz

The source (see eval3dpw/captured/motion.py) is not part of the project; nothing is learned
from these subjects.
"""

import sys
from pathlib import Path

import numpy as np

from eval3dpw.captured.motion import load_motion
from eval3dpw.synth.motion import RADIANS_PER_STEP
from fitting import load_body
from pose2d.base.files import atomic_file

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "eval3dpw" / "synth" / "data" / "held_out_motion.npz"


def main() -> None:
    motion = load_motion(sys.argv[1], load_body(), fps=30)
    assert motion.root_m is not None
    held_out = motion.held_out
    frames = motion.frames_of(motion.held_out)
    steps = np.round(motion.pose.numpy()[frames] / RADIANS_PER_STEP)
    assert np.abs(steps).max() < 2**15
    with atomic_file(OUT) as temporary:
        np.savez_compressed(
            temporary,
            pose_steps=steps.astype(np.int16),
            root_m=motion.root_m.numpy()[frames].astype(np.float32),
            clip_start=np.concatenate(([0], np.cumsum(np.diff(motion.clip_start)[held_out]))),
            clip_name=np.array(motion.clip_name)[held_out],
        )
    print(
        f"{held_out.sum()} clips, {frames.sum()} frames, {OUT.stat().st_size / 1e3:.0f} kB -> {OUT.relative_to(ROOT)}"
    )


if __name__ == "__main__":
    main()
