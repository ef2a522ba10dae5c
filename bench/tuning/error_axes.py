"""Claim: fits that weigh the two axes of an error apart are not worse than fits with one sigma for
both.

    python bench/tuning/error_axes.py --data synth_dev --split validation [--every 2] [--single-frames] [--head FILE]

CCNet's keypoints on rendered people, fitted by `likelihood` from the lifter's start: with the
stated ratio of sigma x to sigma y, and with their geometric mean on both axes. Nothing else
differs. Intervals are over sequences, paired.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.lib.claim import Console, claim
from eval3dpw.bodies import body_set
from eval3dpw.scoring import protocol_named
from fitmesh.eval_3dpw import fits, keypoints
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.score_table import Scores, lines, metrics_of, score_fits, show
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter

ONE, EACH = "one sigma", "a sigma for each axis"
ROW = Row("ccnet", "likelihood")


def scores_of(settings: EvalSettings, cache: Path) -> Scores:
    """Errors of both ways to fit on the same person-frames."""
    bodies = body_set(None)
    evaluation = Evaluation(settings, cache, bodies, Reporter())
    body = bodies.load("neutral")
    protocol = protocol_named(settings.protocol)
    scores = []
    for sequence in eval_sequences(settings, []):
        people = evaluation.keypoints(sequence, keypoints.cache_key(sequence, settings, bodies))
        starts = [
            fits.start_person(person, sequence, body, ROW.source, settings) for person in people
        ]
        isotropic = [
            replace(
                person,
                by_source={
                    s: replace(k, error=k.error and replace(k.error, log_ratio=None))
                    for s, k in person.by_source.items()
                },
            )
            for person in people
        ]
        for number, (track, start) in enumerate(zip(sequence.tracks, starts, strict=True)):
            keep = protocol.counts(track) & people[number].readable
            pair = {
                label: fits.fit_person(stated_value[number], sequence, body, start, ROW, settings)
                for label, stated_value in ((ONE, isotropic), (EACH, people))
            }
            if keep.any():
                scores.append((sequence.name, score_fits(track, keep, pair, protocol, bodies)))
    return Scores.gather(scores)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="a set made by `fitmesh synth`")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--single-frames", action="store_true", help="every frame for itself")
    parser.add_argument("--head", type=Path, help="head file instead of the embedded one")
    parser.add_argument(
        "--cache", type=Path, default=Path("out/error_axes"), help="where keypoints are kept"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    settings = EvalSettings(
        chosen.data,
        split=chosen.split,
        every=chosen.every,
        single_frames=chosen.single_frames,
        ccnet=chosen.head,
        confidence=(ROW.source,),
        named_rows=((EACH, ROW),),
    )
    scores = scores_of(settings, chosen.cache)
    result = lines(scores, ONE)
    console = Console(width=110)
    show(
        console,
        f"{len(scores)} person-frames of {chosen.data.name}",
        result,
        ONE,
        metrics_of(scores),
    )
    (values,) = (line for line in result if line.label == EACH)
    for metric, difference in values.difference.items():
        console.print(
            f"{metric}: {difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
        )


if __name__ == "__main__":
    claim(main)
