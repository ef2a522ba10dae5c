"""Train the miniature networks of docs/paper.md: ResNet-18 at 128x96 as SBL, IPR and RLE.

    python -m training.train_mini --data DATA --train train2017_256_train --train train2017 --out mini/

About 100 minutes of one core with bfloat16 (64 of them for SBL), into OUT/NAME.safetensors. Labels
come from the data set, and from RTMPose-s where a keypoint has none. Simple Baselines starts from
random weights, IPR and RLE from its trunk. A killed run goes on after the last whole epoch.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

import pose2d
from pose2d.base.files import atomic_file
from pose2d.models.sbl import SimpleBaseline
from training.mini.families import NAMES, new_model
from training.mini.people import cropped_people
from training.mini.training import Plan, train

PLANS = {
    "sbl": Plan(small_epochs=10, epochs=12, learning_rate=1e-3),
    "rle": Plan(small_epochs=0, epochs=5, learning_rate=5e-4),
    "ipr": Plan(small_epochs=0, epochs=3, learning_rate=3e-4),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="data set folder in COCO's layout")
    parser.add_argument(
        "--train", action="append", required=True, help="split to train on; repeat for more"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for crops, checkpoints and weights"
    )
    parser.add_argument(
        "--family", choices=NAMES, action="append", help="only this one; repeat for more"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    input_wh = pose2d.card(NAMES["sbl"]).input_wh
    people = cropped_people(options.data, options.train, input_wh, options.out / "crops")
    print(
        f"{len(people)} people, {people.weight.astype(bool).sum() / len(people):.1f} keypoints each",
        flush=True,
    )
    for family, plan in PLANS.items():
        weights = options.out / f"{NAMES[family]}.safetensors"
        if weights.is_file() or family not in (options.family or NAMES):
            continue
        print(f"{NAMES[family]}: {plan}", flush=True)
        torch.manual_seed(plan.seed)
        model = new_model(family, None if family == "sbl" else trained_baseline(options.out))
        train(model, people, plan, options.out / f"{NAMES[family]}.training.pt")
        with atomic_file(weights) as path:
            save_file(
                {key: value.detach().contiguous() for key, value in model.state_dict().items()},
                path,
            )


def trained_baseline(folder: Path) -> SimpleBaseline:
    """Return the baseline that the other families start from."""
    model = pose2d.load(NAMES["sbl"], folder / f"{NAMES['sbl']}.safetensors")
    assert isinstance(model, SimpleBaseline)
    return model


if __name__ == "__main__":
    main()
