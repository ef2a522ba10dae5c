"""Claim: the losses that the paper starts from, trained in miniature, fall: Eq. 2 (heatmaps, squared
error) and Eq. 4 (regression, negative log-likelihood).

ResNet-18 at 128x96 from random weights, as `training.train_mini` trains it, on drawn people (17
coloured discs around a random pose) or, with --data, on people of a COCO split. Prints the mean
loss of every tenth of the steps.

    python bench/learning_curve.py [--steps 150] [--data COCO --train train2017_256_holdout]
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib.claim import Console, claim
from training.mini.batches import batches
from training.mini.families import NAMES, loss, new_model
from training.mini.people import CroppedPeople, cropped_people

EQUATIONS = {"sbl": "Eq. 2, heatmaps", "rle": "Eq. 4, regression"}
STORED_WH = (144, 192)  # crops are stored with a margin for rotation and shift
BATCH = 16
LEARNING_RATE = 1e-3
PARTS = 10


def draw_people(count: int, seed: int = 0) -> CroppedPeople:
    """Return people of 17 coloured discs, each at its place in a template that shifts and grows."""
    random = np.random.default_rng(seed)
    width, height = STORED_WH
    template = random.uniform((-0.16, -0.2), (0.16, 0.2), (17, 2)) * (width, height)
    colours = random.integers(80, 256, (17, 3))
    rows, columns = np.mgrid[:height, :width]
    pixels = random.integers(0, 60, (count, height, width, 3)).astype(np.uint8)
    xy = np.zeros((count, 17, 2), np.float32)
    for person in range(count):
        centre = np.array([width, height]) / 2 + random.normal(0, 4, 2)
        xy[person] = centre + template * random.uniform(0.8, 1.2) + random.normal(0, 1.5, (17, 2))
        for keypoint, (x, y) in enumerate(xy[person]):
            pixels[person, (columns - x) ** 2 + (rows - y) ** 2 <= 9] = colours[keypoint]
    return CroppedPeople(pixels, xy, np.ones((count, 17), np.float32))


def learning_curve(family: str, people: CroppedPeople, steps: int, seed: int = 0) -> np.ndarray:
    """Train a family from random weights and return the loss of every step [steps]."""
    torch.manual_seed(seed)
    model = new_model(family, None).train()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    losses: list[float] = []
    epoch = 0
    while len(losses) < steps:
        for batch in batches(people, BATCH, model.input_wh, model.input_wh, (seed, epoch)):
            value = loss(model, batch)
            optimizer.zero_grad()
            value.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(value.detach()))
            if len(losses) == steps:
                break
        epoch += 1
    return np.array(losses)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--people", type=int, default=256, help="drawn people")
    parser.add_argument("--data", type=Path, help="data set folder in COCO's layout")
    parser.add_argument("--train", action="append", default=[], help="split of --data")
    parser.add_argument("--out", type=Path, default=Path("learning_curve"), help="folder for crops")
    options = parser.parse_args()
    torch.set_num_threads(1)
    people = draw_people(options.people)
    if options.data is not None:
        input_wh = pose2d.card(NAMES["sbl"]).input_wh
        people = cropped_people(options.data, options.train, input_wh, options.out)
    title = f"loss by tenths of {options.steps} steps, {len(people)} people"
    table = Table("", *(str(part + 1) for part in range(PARTS)), title=title)
    for family, equation in EQUATIONS.items():
        curve = learning_curve(family, people, options.steps)
        parts = np.array_split(curve, PARTS)
        table.add_row(f"{equation} ({NAMES[family]})", *(f"{part.mean():.2f}" for part in parts))
    Console().print(table)


if __name__ == "__main__":
    claim(main)
