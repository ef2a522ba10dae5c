"""Claim: what the paper's tables cost on one processor core.

Each network runs a few batches of random crops with random weights; processor time on one thread,
which other programs hardly touch. Hours are for COCO: `val` evaluates 6,352 people with the flip
test, `train` runs the network once over 149,813 training people. `disk` is what the recipe `paper`
keeps of one pass, in half precision; where that exceeds 20 GB the network runs again in each of the
two epochs, and `train` is twice as long.

    python bench/paper_cost.py [--models sbl-resnet50-256x192 ...]
"""

import argparse
import math
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.table import Table

import pose2d
from bench.lib.claim import Console, claim
from fitmesh.paper.published import published

TRAIN, VAL = 149_813, 6_352
MINI = ("sbl-r18-128x96", "ipr-r18-128x96", "rle-r18-128x96")
CACHE_GB = 20


@torch.inference_mode()
def ms_a_crop(name: str, batch: int = 4, rounds: int = 2) -> tuple[float, tuple[int, ...]]:
    """Processor milliseconds of features and prediction, the best round; and the shape of the
    features.
    """
    model = pose2d.card(name).build().eval()
    width, height = model.input_wh
    crops = model.normalize(torch.randint(0, 256, (batch, 3, height, width)))
    best = math.inf
    for _ in range(rounds + 1):
        started = time.process_time()
        model.predict(model.features(crops))
        best = min(best, time.process_time() - started)
    return 1000 * best / batch, model.feature_shape


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models",
        nargs="+",
        default=[*MINI, *dict.fromkeys(name for name, _ in published("coco"))],
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(
        "network",
        "ms a crop",
        "val, h",
        "train, h",
        "disk, GB",
        title="one core, no GPU; full COCO",
    )
    for name in options.models:
        ms, shape = ms_a_crop(name)
        disk = 2 * math.prod(shape) * TRAIN / 1e9
        passes = 1 if disk <= CACHE_GB else 2
        val, train = (people * ms / 3.6e6 for people in (2 * VAL, passes * TRAIN))
        selected = f"{disk:.1f}" if passes == 1 else f"{disk:.0f}: not kept"
        table.add_row(name, f"{ms:.0f}", f"{val:.1f}", f"{train:.1f}", selected)
    Console().print(table)


if __name__ == "__main__":
    claim(main)
