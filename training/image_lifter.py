"""Train the network that reads a crop's pixels besides its keypoints.

    python -m training.image_lifter --crops crops/ --out image_lifter/ [--steps 200000]

A training that was stopped (also by Ctrl-C or SIGTERM) goes on from its checkpoint in --out.
Shards that appear in --crops while it runs are used as well. `curve.csv` has the losses,
`held_out.csv` figures on rendered people of other subjects.
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
    settings = ImageSettings(steps=options.steps, batch=options.batch, seed=options.seed)
    schedule = Schedule(validate_s=60 * options.validate_minutes)
    train(options.crops, options.out, model, load_body(), settings, schedule)


if __name__ == "__main__":
    main()
