"""Claim: the paper's findings show on networks of its three families that one processor core can
train.

Simple Baselines, IPR and RLE with a ResNet-18 at 128x96, as training/train_mini.py trains them, beside
MoveNet and RTMPose: raw confidence, closed form and CCNet by the paper's recipe. The heads are
trained on the networks' own training people, as in the paper. `--test` is a split that nothing was
trained on or chosen by.

    python -m training.train_mini --data DATA --train train2017_256_train --train train2017 --out mini/
    python bench/paper_miniature.py --data DATA --mini mini/ --train train2017_256_train --train train2017
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from fitmesh.paper.cells import PaperRequest, given_models
from fitmesh.paper.tables import TABLES, run

MINI = ("sbl-r18-128x96", "ipr-r18-128x96", "rle-r18-128x96")
BESIDE = ("movenet-thunder", "rtmpose-s-halpe26")
OF_ONE = {"area": "sbl-r18-128x96", "losses": "rle-r18-128x96", "ablations": "rle-r18-128x96"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--mini", type=Path, required=True, help="folder with the miniature's weights"
    )
    parser.add_argument(
        "--train", action="append", required=True, help="split to train heads on; repeat for more"
    )
    parser.add_argument("--test", default="val2017")
    parser.add_argument("--recipe", default="paper")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=["coco", *OF_ONE])
    parser.add_argument("--out", type=Path, help="default: MINI/paper")
    options = parser.parse_args()
    out = (options.out or options.mini / "paper") / f"{options.test}-{options.recipe}"
    for name in options.tables:
        requested = (
            [OF_ONE[name]]
            if name in OF_ONE
            else [n for n in MINI if weights(options.mini, n).is_file()]
        )
        checkpoints = tuple(f"{model}={weights(options.mini, model)}" for model in requested)
        models, starts = given_models(() if name in OF_ONE else BESIDE, checkpoints, ())
        request = PaperRequest(
            table=name,
            data=options.data,
            out=out,
            models=models,
            starts=starts,
            train=tuple(options.train),
            test=options.test,
            recipe=options.recipe,
            flip_test=False,
            device="cpu",
            threads=1,
        )
        table = run(request)
        Console().print_markdown(f"**{table.title}**\n\n{table.as_markdown()}")


def weights(folder: Path, name: str) -> Path:
    return folder / f"{name}.safetensors"


if __name__ == "__main__":
    claim(main)
