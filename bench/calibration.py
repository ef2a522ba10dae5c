"""Claim: CCNet's confidence ranks people better, and means more, than the network's own score.

One run, one set of predictions per model, the confidence of four sources: raw score, closed form,
CCNet, and the oracle, which is the true OKS; with paired bootstrap intervals over images. And what
the head's two outputs leave to be gained: how much of the gap would be closed if it knew which
keypoints are labelled, or the OKS of those that are.

    python bench/calibration.py --data COCO [--split val2017] [--model movenet-thunder ...] [--flip-test] [--out DIR]
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ccnet
import pose2d
from bench.lib.claim import Console, claim
from ccnet.comparison import compare_sources, draw_plots
from ccnet.data.datasets import read_split
from ccnet.predicted_people import USUAL_SOURCES, Predictions, SourceConfidence, predict_split
from pose2d.base.threads import use_threads


def with_parts_known(predictions: Predictions) -> Mapping[str, Predictions]:
    """Return the same predictions with one of the head's two outputs replaced by the truth."""
    head_confidence = predictions.confidence["ccnet"]
    labelled = ~np.isnan(predictions.keypoint_oks)
    true = np.where(labelled, predictions.keypoint_oks, head_confidence.keypoint)
    known_parts = {
        "which are labelled": SourceConfidence(head_confidence.keypoint, labelled.astype(float)),
        "their OKS": SourceConfidence(true, head_confidence.presence),
    }
    return {
        name: replace(predictions, confidence={**predictions.confidence, "ccnet": confidence})
        for name, confidence in known_parts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="val2017")
    parser.add_argument(
        "--model", action="append", help="default: every model with an embedded head"
    )
    parser.add_argument("--head", help="head file instead of the embedded one (with one --model)")
    parser.add_argument("--flip-test", action="store_true")
    parser.add_argument("--out", type=Path, help="folder for metrics and images")
    parser.add_argument("--threads", type=int)
    chosen = parser.parse_args()
    use_threads(chosen.threads)
    console = Console()
    for name in chosen.model or ccnet.embedded():
        model = pose2d.load(name)
        head = ccnet.load(chosen.head or name)
        split = read_split(chosen.data, chosen.split, model.skeleton)
        started = time.perf_counter()
        predictions = predict_split(model, head, split, flip_test=chosen.flip_test).only(
            USUAL_SOURCES
        )
        seconds = time.perf_counter() - started
        result = compare_sources(split, predictions)
        for table in result.as_rich(
            f"{name} on {split.name}, {len(split.people)} people, annotated boxes"
        ):
            console.print(table)
        for label, interval in result.intervals.items():
            console.print(
                f"{label:>26}: {interval.value:+.4f}  95 % [{interval.low:+.4f}, {interval.high:+.4f}]"
            )
        for label, better in with_parts_known(predictions).items():
            share = compare_sources(split, better).intervals["ccnet gap closed"]
            console.print(
                f"{'knowing ' + label:>26}: {share.value:.0%} of the gap, [{share.low:.0%}, {share.high:.0%}]"
            )
        raw, calibrated = (result.figures[source]["keypoint"] for source in ("raw", "ccnet"))
        if raw and calibrated:
            gain = calibrated["pearson"] - raw["pearson"]
            console.print(
                f"keypoint Pearson {raw['pearson']:.3f} -> {calibrated['pearson']:.3f} ({gain:+.3f})"
            )
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        console.print(f"{len(split.people) / seconds:.1f} people/s, peak memory {memory:.2f} GB\n")
        if chosen.out:
            draw_plots(chosen.out / name, predictions, result)
            (chosen.out / name / "metrics.json").write_text(json.dumps(result.as_dict(), indent=1))


if __name__ == "__main__":
    claim(main)
