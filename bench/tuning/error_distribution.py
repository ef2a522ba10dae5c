"""Claim: the stated distributions of keypoint errors hold.

    python bench/tuning/error_distribution.py --data COCO [--split val2017] [--head ccnet.safetensors]

Of every labelled keypoint inside its crop: the mean log-likelihood of its error along x and y (in
units of l, a density over the plane, so distributions with and without a ratio of the axes
compare), and which share of the errors lies under the stated 10, 50, 90 and 97 % quantiles of their
size, in all and by keypoint. Beside it the same distribution without the ratio of its axes, and the
Gaussian that the same expected OKS implies. The last column is the middle of sigma x over sigma y.
"""

import argparse
import math
import sys
from pathlib import Path

import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import ccnet
import pose2d
from bench.lib.claim import Console, claim
from ccnet.data.datasets import read_split
from ccnet.data.observations import observe
from ccnet.heads.mixture import distribution_of
from pose2d.skeletons import COCO17
from pose2d.types import ErrorDistribution

QUANTILES = (0.1, 0.5, 0.9, 0.97)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val2017")
    parser.add_argument("--model", default="rtmpose-s-halpe26")
    parser.add_argument("--head", help="head file instead of the embedded one")
    arguments = parser.parse_args()
    model = pose2d.load(arguments.model)
    head = ccnet.load(arguments.head or arguments.model)
    split = read_split(arguments.data, arguments.split, model.skeleton)
    with torch.inference_mode():
        observed = observe(model, head.inputs, split.people)
        logits = head.logits(observed.features)
    present = observed.present > 0
    distance2 = observed.error.square().sum(-1)
    stated_value = distribution_of(logits)
    oks = stated_value.expected_oks().clamp(1e-3, 0.999)
    gaussian = ErrorDistribution(
        torch.ones_like(oks)[..., None], ((1 - oks) / oks).sqrt()[..., None]
    )
    table = Table(
        "keypoints", "count", "log-likelihood", *(f"under {q:.0%}" for q in QUANTILES), "x : y"
    )

    def row(name: str, distribution: ErrorDistribution, place: torch.Tensor) -> None:
        likelihood = distribution.log_likelihood(observed.error)[place]
        below = distribution.cdf(distance2)[place]
        shares = (f"{float((below < q).float().mean()):.1%}" for q in QUANTILES)
        ratio = (
            "1"
            if distribution.log_ratio is None
            else f"{float(distribution.log_ratio[place].median().exp()):.2f}"
        )
        table.add_row(
            name, str(int(place.sum())), f"{float(likelihood.mean()):.3f}", *shares, ratio
        )

    row("all, stated", stated_value, present)
    row("all, as if isotropic", ErrorDistribution(stated_value.weight, stated_value.sigma), present)
    row("all, Gaussian of the expected OKS", gaussian, present)
    for name in ("nose", "eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle"):
        kind = torch.tensor([keypoint.endswith(name) for keypoint in model.skeleton.keypoints])
        kind[COCO17.size :] = False
        row(name, stated_value, present & kind)
    assert math.isfinite(float(distance2[present].mean()))
    Console(width=110).print(table)


if __name__ == "__main__":
    claim(main)
