"""Train the network that reads a crop's pixels besides its keypoints.

    python -m training.image_lifter --crops crops/ --out image_lifter/ [--steps 200000]

A training that was stopped (also by Ctrl-C or SIGTERM) goes on from its checkpoint in --out.
Shards that appear in --crops while it runs are used as well. `curve.csv` has the losses,
`held_out.csv` figures on rendered people of other subjects and, with `measured.npz` among the
crops, on real people, for the network and for the lifter alone. Files `real_*.npz` of
`training.real_crops` put real people into every batch.
"""

import argparse
from pathlib import Path

import torch

from fitting.body.load import load_body
from pose2d.models.loading import load as load_model
from pose2d.models.rtmpose import RTMPose
from training.image.loop import ImageSettings, Schedule, train

POSE_MODEL = "rtmpose-s-halpe26"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--crops", type=Path, nargs="+", required=True, help="folders of training.rendered_crops"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the training")
    parser.add_argument("--steps", type=int, default=ImageSettings.steps)
    parser.add_argument("--batch", type=int, default=ImageSettings.batch)
    parser.add_argument(
        "--real", type=int, default=ImageSettings.real, help="real people in every step"
    )
    parser.add_argument(
        "--maps", type=Path, help="keep the frozen network's maps here, 98 kB a crop"
    )
    parser.add_argument(
        "--bfloat16", action="store_true", help="faster on CPUs with instructions for it only"
    )
    parser.add_argument("--seed", type=int, default=ImageSettings.seed)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--validate-minutes", type=float, default=30.0, help="time between held-out measurements"
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    model = load_model(POSE_MODEL)
    assert isinstance(model, RTMPose)
    settings = ImageSettings(
        steps=options.steps, batch=options.batch, real=options.real, seed=options.seed
    )
    schedule = Schedule(validate_s=60 * options.validate_minutes)
    body = load_body()
    train(
        options.crops, options.out, model, body, settings, schedule, options.maps, options.bfloat16
    )


if __name__ == "__main__":
    main()
