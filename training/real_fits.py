"""Fit bodies to the annotated keypoints of real crops, from the image network's answers.

    python -m training.real_fits --crops crops/real_00000.npz --training image_lifter/ \\
        --out crops/fits_00000.npz

The image network learns from these fits as if they were true (SPIN's loop): a training reads
`fits_00000.npz` beside `real_00000.npz` whenever it changes, so make it again from time to time.
Make it first when the network has learned from rendered people: before, its depth is the lifter's.
"""

import argparse
from pathlib import Path

import torch

from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.models.loading import load as load_model
from pose2d.models.rtmpose import RTMPose
from training.image.network import ImageLifter
from training.image.pseudo_truth import fit_marks
from training.image.real_people import load_real

POSE_MODEL = "rtmpose-s-halpe26"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--crops", type=Path, required=True, help="a file of training.real_crops")
    parser.add_argument(
        "--training", type=Path, required=True, help="folder of training.image_lifter"
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write (.npz)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = options.training / "checkpoint.pt"
    if not checkpoint.is_file():
        raise UserError(f"{checkpoint} is missing: python -m training.image_lifter makes it.")
    model = load_model(POSE_MODEL)
    assert isinstance(model, RTMPose)
    body = load_body()
    network = ImageLifter(model, body)
    network.load_state_dict(torch.load(checkpoint, weights_only=True)["mean"])
    fits = fit_marks(load_real(options.crops), network.eval(), model, body)
    fits.save(options.out)
    print(f"{options.out}: {int(fits.is_good.sum())} of {len(fits.is_good)} fits are used")


if __name__ == "__main__":
    main()
