"""Make pose2d/weights/hand_error.json: how far off hand keypoints are, and how probable a hand is.

    python -m training.calibrate_hands --cameras DIR --coco DIR [--check]

Error: a hand recorded by two calibrated cameras (TemugeB/handpose3d, MIT: cam0_test.mp4, c0.dat,
rot_trans_c0.dat, ..). A keypoint in one image says on which line the other camera must see it. How
far it lies from that line is the error of both, so their stated errors are chosen to make those
distances most likely. They are as they would be if the error were the same along the line; what
both cameras get wrong alike stays unseen. Hands of all sizes are made by shrinking the images;
hands that are cut, blurred or covered, by doing so to one camera's image.

Presence: people of COCO in their annotated boxes. A hand is seen where the wrist is annotated as
visible, the hand's wrist is near it, and the network finds the same hand in the mirrored image; it
is not where the wrist is not annotated, or one of the others fails. Hidden wrists are left out.
Feet that are taken for hands are added, a quarter as heavy.

Fitted on the first half of the recording and on train2017; what is printed is of the second half
and of val2017. The form of both models was chosen while looking at those too, so the figures are
not of untouched data (docs/hands.md). --check prints it for the numbers that are there.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from pose2d.base.files import atomic_file
from pose2d.hands import (
    HAND_CONSTANTS,
    SEEN,
)
from training.hands.errors import Epipolar, error_rows, fit_error, recording, standardised
from training.hands.presence import fit_presence, presence_rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cameras", type=Path, required=True)
    parser.add_argument("--coco", type=Path, required=True)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = error_rows(recording(options.cameras), Epipolar(options.cameras))
    middle = max(int(part["frame"].max()) for part in rows.values()) // 2
    halves = [
        {
            name: {key: value[(part["frame"] > middle) == late] for key, value in part.items()}
            for name, part in rows.items()
        }
        for late in (False, True)
    ]
    if options.check:
        constants = {
            name: np.array(values)
            for name, values in json.loads(HAND_CONSTANTS.read_text()).items()
        }
    else:
        error, floor = fit_error(list(halves[0].values()))
        sets = [
            presence_rows(options.coco, "train2017", 1000),
            presence_rows(options.coco, "train2017_256_train", 150),
        ]
        constants = {"error": error, "floor": floor}
        constants["presence"] = fit_presence(
            *(np.concatenate([part[n] for part in sets]) for n in range(3))
        )
        with atomic_file(HAND_CONSTANTS) as temporary:
            temporary.write_text(
                json.dumps(
                    {name: values.round(4).tolist() for name, values in constants.items()}, indent=1
                )
                + "\n"
            )
    print(
        "the second half of the recording      within 1 std   2 std   median error, % of the hand's length"
    )
    for name, part in (
        *halves[1].items(),
        ("all", {k: np.concatenate([p[k] for p in halves[1].values()]) for k in halves[1]["cut"]}),
    ):
        z = np.abs(standardised(part, constants["error"], constants["floor"])[0])
        typical = np.median(np.abs(part["residual"]) / np.sqrt((part["slope"] ** 2).sum(1)))
        print(
            f"{name:>12}: {len(z):6} keypoints {(z < 1).mean():20.1%} {(z < 1.96).mean():8.1%} {typical:14.1%}"
        )
    features, is_hand, weight = presence_rows(options.coco, "val2017", 10_000)
    probability = 1 / (1 + np.exp(-features @ constants["presence"]))
    print("arms of val2017")
    for low, high in ((0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.001)):
        in_bin = (probability >= low) & (probability < high) & (weight == 1)
        means = (
            f"{probability[in_bin].mean():.2f} stated, {is_hand[in_bin].mean():.2f} seen"
            if in_bin.any()
            else ""
        )
        print(f"presence {low:.2f} to {high:.2f}: {in_bin.sum():4} arms, {means}")
    feet = weight < 1
    print(
        f"feet taken for hands: {(probability[feet] >= SEEN).sum()} of {feet.sum()} that could be one"
    )


if __name__ == "__main__":
    main()
