"""Which keypoints does a result call observed, and are they? On a set made by `fitmesh synth`,
which knows.

A keypoint is called observed when the stated probability that it is in the image and within NEAR
sqrt(area) of the truth is at least OBSERVED_PROBABILITY (`fitting.keypoints.observed`). The table
has, for several NEAR, the share of keypoints called observed among those that

seen     are visible, or behind the own body
hidden   are hidden by an object or by another person, though inside the image
outside  are outside the image
right    are visible and within 0.1 sqrt(area) of the truth (7 cm)
wrong    are outside the image, or farther than 0.25 sqrt(area) from the truth (19 cm)

and the balanced error, the mean of (1 - right) and wrong. `stated` and `true` are the mean stated
probability and the share of keypoints that are in the image and within NEAR. The first row is
confidence times presence of at least 0.25.

    fitmesh synth --split validation --sequences 12 --frames 24 --seed 31 --out val
    python bench/observed.py val
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.rendered_fits import fitted_together
from eval3dpw.bodies import body_set
from eval3dpw.synth.dataset import truth_path
from fitmesh.eval_3dpw.eval_settings import EvalSettings
from fitmesh.eval_3dpw.keypoints import cache_key, true_keypoints_px
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter
from fitting.keypoints.observed import NEAR, OBSERVED_PROBABILITY, probability_observed
from pose2d.types import Keypoints

OUTSIDE = 0
HIDDEN = 1
BEHIND_SELF = 2
LEGS = slice(13, 17)  # knees and ankles
RIGHT, WRONG = 0.1, 0.25  # of sqrt(area)


def measured(
    data: Path, split: str, every: int, cache: Path
) -> tuple[list[Keypoints], np.ndarray, np.ndarray]:
    """Keypoints after the fit, what is visible of each [N, 17], its distance from the truth in
    sqrt(area) [N, 17].
    """
    settings = EvalSettings(data, confidence=("ccnet",), split=split, every=every)
    bodies = body_set(None, None)
    evaluation = Evaluation(settings, cache, bodies, Reporter())
    after = []
    visibility = []
    distance = []
    for sequence in eval_sequences(settings, []):
        people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
        with np.load(truth_path(data, sequence.name)) as file:
            states = file["visibility"]  # [P, T, 17]
        for number, result in fitted_together(
            sequence, people, bodies.load("neutral"), every
        ).items():
            track = sequence.tracks[number]
            person = people[number]
            state = states[track.person]
            frame = person.frame[person.detected]
            points = result.keypoints.rows(result.rows(frame))
            exact = true_keypoints_px(track, sequence.camera, bodies)[person.detected]
            assert points.area_px2 is not None
            scale = points.area_px2.double().sqrt().numpy()[:, None]
            after.append(points)
            visibility.append(state[frame])
            distance.append(np.linalg.norm(points.xy_px[:, :17].numpy() - exact, axis=-1) / scale)
    return after, np.concatenate(visibility), np.concatenate(distance)


def row(
    name: str,
    called: np.ndarray,
    stated_value: np.ndarray | None,
    near: float,
    state: np.ndarray,
    d: np.ndarray,
) -> list[str]:
    def share(kind: np.ndarray) -> float:
        return float(called[kind].mean()) if kind.any() else float("nan")

    present = state >= BEHIND_SELF
    right = share(present & (d <= RIGHT))
    wrong = share((state == OUTSIDE) | (d > WRONG))
    legs = np.zeros_like(present)
    legs[:, LEGS] = True
    cells = [
        share(present),
        share(state == HIDDEN),
        share(state == OUTSIDE),
        share(legs & (state == HIDDEN)),
        right,
        wrong,
    ]
    texts = [name, *(f"{100 * cell:.1f}" for cell in cells), f"{50 * (1 - right + wrong):.1f}"]
    if stated_value is None:
        return [*texts, "", ""]
    return [*texts, f"{stated_value.mean():.3f}", f"{((state > OUTSIDE) & (d <= near)).mean():.3f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="validation")
    parser.add_argument("--every", type=int, default=1, help="use every n-th frame")
    parser.add_argument(
        "--cache", type=Path, default=Path("observed_cache"), help="of the keypoints"
    )
    parser.add_argument("--thresholds", type=float, nargs="*", default=[OBSERVED_PROBABILITY])
    arguments = parser.parse_args()
    thresholds: list[float] = arguments.thresholds
    after, state, distance = measured(
        arguments.data, arguments.split, arguments.every, arguments.cache
    )
    table = Table(title=f"{arguments.data.name}: {len(state)} person-frames; called observed, %")
    for column in (
        "NEAR",
        "seen",
        "hidden",
        "outside",
        "hidden legs",
        "right",
        "wrong",
        "error",
        "stated",
        "true",
    ):
        table.add_column(column, justify="right")
    before = torch.cat([k.confidence[:, :17] * k.presence[:, :17] for k in after]).numpy() >= 0.25
    table.add_row(*row("0.25", before, None, 0, state, distance))
    for near in (0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25):
        stated_value = torch.cat([probability_observed(k, near)[:, :17] for k in after]).numpy()
        name = f"{near:g}{' (used)' if near == NEAR else ''}"
        for least in thresholds:
            index = "" if least == OBSERVED_PROBABILITY else f" at {least:g}"
            table.add_row(
                *row(f"{name}{index}", stated_value >= least, stated_value, near, state, distance)
            )
    Console(width=140).print(table)


if __name__ == "__main__":
    claim(main)
