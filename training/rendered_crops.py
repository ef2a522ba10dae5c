"""Render crops of people with exact truth, as the embedded 2D network reads them.

    python -m training.rendered_crops --clips clips_30fps.npz --poses poses_5fps.npz \\
        --exercises ui_prmd_25hz.npz --woman accad_female1.npz --photos train2017 \\
        --annotations person_keypoints_train2017.json --out crops/

Every crop has a pose, a body, a camera, light and sensor of its own before a photograph with few
people in it; things in hands, something in front, and sometimes another person. A third of the
people touch themselves with their hands (`motion/self_contact.py`); a fifth of the cameras are
near the floor or the ceiling. Crops go into numbered shards; a shard that exists is not made
again. A crop takes about 0.035 s on one core.
"""

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np
import torch

from eval3dpw.captured.motion import Motion
from fitting.body import Body
from fitting.body.load import load_body
from pose2d.models.loading import load as load_model
from training.crops.draws import Crowd
from training.crops.photographs import photographs
from training.crops.renderer import CropRenderer
from training.crops.shards import ShardWriter
from training.motion.bank import Bank, bank
from training.motion.self_contact import contact_motion
from training.motion.sources import HELD_OUT, add_arguments, load_motions

POSE_MODEL = "rtmpose-s-halpe26"
CONTACT_POSES = 5000
CONTACT_SEED = 3
HELD_OUT_SEED = 1_000_000  # held-out people are never drawn as others are
STOP = "STOP"  # a file of this name in the folder ends the rendering after the current shard


def shard_path(folder: Path, number: int, held_out: bool) -> Path:
    """Return where a shard is kept."""
    return folder / f"{'held_out' if held_out else 'train'}_{number:05d}.npz"


def selected_motions(motions: dict[str, Motion], held_out: bool) -> dict[str, np.ndarray]:
    """Return which clips [C] of each motion are used: learned ones, or those of other subjects."""
    if not held_out:
        return {name: motion.learned for name, motion in motions.items()}
    return {name: motions[name].held_out & ~motions[name].left_out for name in HELD_OUT}


def contact_bank(
    motions: dict[str, Motion], clips: dict[str, np.ndarray], body: Body, count: int, seed: int
) -> tuple[Bank, torch.Tensor]:
    """Make poses with self-contact on the selected clips; and which of them hold a bar [N]."""
    captured = torch.cat([motions[name].poses_of(chosen) for name, chosen in clips.items()])
    made = contact_motion(captured, body, count, seed)
    holds_bar = torch.tensor([name == "bar" for name in made.clip_description])
    return bank(made, body, np.ones(len(made.clip_name), bool)), holds_bar


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--photos", type=Path, required=True, help="folder of COCO's images")
    parser.add_argument(
        "--annotations", type=Path, required=True, help="COCO's person keypoints of these images"
    )
    parser.add_argument("--count", type=int, default=10_000, help="crops in a shard")
    parser.add_argument("--first", type=int, default=0, help="number of the first shard")
    parser.add_argument("--shards", type=int, default=6, help="shards to make")
    parser.add_argument(
        "--held-out", action="store_true", help="people of subjects that nothing is learned from"
    )
    parser.add_argument("--contact-poses", type=int, default=CONTACT_POSES)
    parser.add_argument("--out", type=Path, required=True, help="folder of the shards")
    options = parser.parse_args()
    numbers = range(options.first, options.first + options.shards)
    missing = [n for n in numbers if not shard_path(options.out, n, options.held_out).exists()]
    if not missing:
        sys.exit("all of these shards exist")
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    body = load_body()
    motions = load_motions(options, body)
    clips = selected_motions(motions, options.held_out)
    banks = [bank(motions[name], body, chosen) for name, chosen in clips.items()]
    contact_seed = CONTACT_SEED + missing[0] + (HELD_OUT_SEED if options.held_out else 0)
    touching = contact_bank(motions, clips, body, options.contact_poses, contact_seed)
    model = load_model(POSE_MODEL)
    writer = ShardWriter(model, POSE_MODEL)
    for number in missing:
        if (options.out / STOP).exists():
            break
        seed = number + (HELD_OUT_SEED if options.held_out else 0)
        rng = np.random.default_rng([seed, 5])
        photos = photographs(options.photos, options.annotations, rng)
        crowd = Crowd(banks, *touching, body, seed)
        path = shard_path(options.out, number, options.held_out)
        writer.write(path, iter(CropRenderer(crowd, body, model, photos, rng)), options.count)
        print(f"{path}: {options.count} crops, {path.stat().st_size >> 20} MB", flush=True)


if __name__ == "__main__":
    main()
