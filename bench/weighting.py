"""Claim: calibrated confidence makes better bodies than a network's own.

The network sees the images once; then the same keypoints and the same solver fit everyone again and
again, and nothing differs but how hard each keypoint pulls. In three of five ways to fit, all rows
share the lifter's start that CCNet's confidence gave; in the last two, the lifter too is fed with
each row's own confidence. Every weighting gets the one number it is free to choose, the pixel error
that a weight of one stands for, from a development set (--tune), so that none wins by pulling
harder beside the priors. Differences are paired, intervals are over sequences.

    python bench/weighting.py --tune synth_dev --every 3  # choose each weighting's scale: bench/weighting_scales.json
    python bench/weighting.py --data synth_test           # the tables; --plot draws docs/img/weighting.png
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.rendered_fits import fitted_together
from bench.lib.weighting_page import METRICS, by_occlusion, plot
from bench.lib.weighting_rows import (
    CCNET,
    CCNET_LIKELIHOOD,
    CCNET_PRECISION,
    MODES,
    RAW,
    ROWS,
    SCALES_OF,
    Mode,
)
from ccnet.metrics import reliability
from eval3dpw.bodies import body_set
from eval3dpw.synth.dataset import truth_path
from eval3dpw.synth.sequence import BEHIND_SELF, HIDDEN, SEEN
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.keypoints import cache_key
from fitmesh.eval_3dpw.pipeline import Evaluation, run
from fitmesh.eval_3dpw.score_table import NAMES, Line, Scores, lines, show
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter
from pose2d.base.files import atomic_file
from pose2d.base.resampling import RESAMPLES, clustered_means, draws, interval
from pose2d.skeletons import COCO17

SCALES = Path(__file__).parent / "weighting_scales.json"
GRID = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
# hidden keypoints (behind something else, or outside) of a person in an image
OCCLUSION = {"none hidden": (0, 0), "1 to 4 hidden": (1, 4), "5 or more hidden": (5, 17)}


@dataclass(frozen=True)
class Study:
    """What is common to all fits."""

    data: Path
    split: str
    init: str
    cache: Path
    pose_model: str
    sequences: tuple[str, ...] = ()
    every: int = 1

    def settings(self, rows: Mapping[str, Row], single_frames: bool) -> EvalSettings:
        return EvalSettings(
            self.data,
            split=self.split,
            init=self.init,
            pose_model=self.pose_model,
            sequences=self.sequences,
            every=self.every,
            single_frames=single_frames,
            confidence=("ones", "raw", "closed-form", "ccnet", "oracle"),
            named_rows=tuple(rows.items()),
        )

    def fit(self, rows: Mapping[str, Row], single_frames: bool) -> Scores:
        """Errors of every row on the same person-frames."""
        return run(self.settings(rows, single_frames), self.folder, Reporter()).scores

    @property
    def folder(self) -> Path:
        return self.cache / f"{self.data.name}-{self.pose_model}-{self.every}"


def tune(study: Study, console: Console, picked: Sequence[str], modes: Mapping[str, Mode]) -> None:
    """The scale with the least PA-MPJPE, for each weighting and mode; kept in a file that the final
    run reads.
    """
    known_parts = json.loads(SCALES.read_text()) if SCALES.is_file() else {}
    for name_of_mode, mode in (
        (name, mode) for name, mode in modes.items() if name not in SCALES_OF
    ):
        table = Table(
            title=f"{study.data.name}, {name_of_mode}: PA-MPJPE by scale of the stated pixel error, mm"
        )
        for column in ("", *(f"x{scale:g}" for scale in GRID), "chosen"):
            table.add_column(column, justify="right" if column else "left")
        for name in (name for name in picked if name in mode.rows):
            scaled = {f"{name} x{scale:g}": mode.row(name, scale) for scale in GRID}
            scores = study.fit(scaled, mode.single_frames)
            error = [float(scores.rows[label]["pa_mpjpe_mm"].mean()) for label in scaled]
            best = GRID[int(np.argmin(error))]
            known_parts.setdefault(study.pose_model, {}).setdefault(name_of_mode, {})[name] = best
            table.add_row(name, *(f"{value:.2f}" for value in error), f"x{best:g}")
            with atomic_file(SCALES) as temporary:
                temporary.write_text(json.dumps(known_parts, indent=1) + "\n")
        console.print(table)


def chosen(pose_model: str, mode: str, picked: Sequence[str]) -> dict[str, Row]:
    """Rows with the scales that were chosen on the development set with the same network; 1 where
    none was.
    """
    known_parts = json.loads(SCALES.read_text()) if SCALES.is_file() else {}
    scales = known_parts.get(pose_model, {}).get(SCALES_OF.get(mode, mode), {})
    return {
        name: MODES[mode].row(name, float(scales.get(name, 1.0)))
        for name in picked
        if name in MODES[mode].rows
    }


def hidden(study: Study, scores: Scores) -> np.ndarray:
    """How many keypoints of each person-frame [N] are hidden, by the files that `fitmesh synth`
    leaves.
    """
    counts = {}
    for name in scores.names:
        with np.load(truth_path(study.data, name)) as file:
            counts[name] = (file["visibility"] < BEHIND_SELF).sum(-1)  # [P, T]
    score = next(iter(scores.rows.values()))
    owner = zip(scores.sequence, score["person"], score["frame"], strict=True)
    return np.array([counts[scores.names[s]][person, frame] for s, person, frame in owner])


VISIBILITY = {
    "all": (HIDDEN, BEHIND_SELF, SEEN),
    "seen": (SEEN,),
    "behind oneself": (BEHIND_SELF,),
    "behind something else": (HIDDEN,),
}


@dataclass(frozen=True)
class KeypointConfidence:
    """Keypoints inside the image, and what each source says of them."""

    confidence: Mapping[str, np.ndarray]  # [M] by source
    oks: np.ndarray  # [M] the true one
    visibility: np.ndarray  # [M] as in the sidecar

    def lines(self) -> list[list[str]]:
        """How well each source says what the OKS will be, over all keypoints and by what hides
        them.
        """
        rows = []
        for group, values in VISIBILITY.items():
            current = np.isin(self.visibility, values)
            oks = self.oks[current]
            cells = [f"{group} ({current.sum():,})", f"{oks.mean():.2f}"]
            for source in CALIBRATED:
                s = self.confidence[source][current]
                ece = reliability(s, oks, bins=10).expected_error
                cells.append(f"{s.mean():.2f}, {np.corrcoef(s, oks)[0, 1]:.2f}, {ece:.3f}")
            rows.append(cells)
        return rows


AFTER_FIT = "ccnet, after the fit"
CALIBRATED = ("raw", "closed-form", "ccnet", AFTER_FIT)
CALIBRATION_HEAD = (
    "keypoints",
    "true OKS",
    *(f"{source}: mean, Pearson, ECE" for source in CALIBRATED),
)


def keypoint_confidence(study: Study) -> KeypointConfidence:
    """Every keypoint of the study."""
    settings = study.settings({}, single_frames=True)
    bodies = body_set(None, None)
    evaluation = Evaluation(settings, study.folder, bodies, Reporter())
    parts: dict[str, list[np.ndarray]] = {
        name: [] for name in (*CALIBRATED, "oracle", "visibility")
    }
    for sequence in eval_sequences(settings, []):
        people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
        with np.load(truth_path(study.data, sequence.name)) as file:
            visibility = file["visibility"]
        fits = fitted_together(sequence, people, bodies.load("neutral"), study.every)
        for number, (track, person) in enumerate(zip(sequence.tracks, people, strict=True)):
            inside = (person.by_source["oracle"].presence.numpy() > 0) & np.isfinite(
                person.xy_px
            ).all(-1)
            inside = inside[:, : COCO17.size]  # what is true is known of these
            after = np.zeros(person.xy_px.shape[:2], np.float32)
            if number in fits:
                rows = fits[number].rows(person.frame[person.detected])
                after[person.detected] = fits[number].keypoints.confidence[rows].numpy()
            for source in (*CALIBRATED, "oracle"):
                confidence = (
                    after if source == AFTER_FIT else person.by_source[source].confidence.numpy()
                )
                parts[source].append(confidence[:, : COCO17.size][inside])
            parts["visibility"].append(visibility[track.person, person.frame][inside])
    flat = {name: np.concatenate(values) for name, values in parts.items()}
    return KeypointConfidence(
        {source: flat[source] for source in CALIBRATED}, flat["oracle"], flat["visibility"]
    )


def differences(result: Sequence[Line], scores: Scores) -> list[str]:
    """The claims, each with its paired interval over sequences."""
    counts = draws(len(scores.names), RESAMPLES)
    samples = {
        line.label: {
            m: clustered_means(scores.rows[line.label][m], scores.sequence, counts) for m in METRICS
        }
        for line in result
    }
    claims = (
        ("start (lifter, ccnet)", "start (lifter, raw)"),
        (CCNET, RAW),
        (CCNET_PRECISION, RAW),
        (CCNET_PRECISION, CCNET),
        (CCNET_PRECISION, "raw squared"),
        (CCNET_PRECISION, "oracle precision"),
        (CCNET_LIKELIHOOD, RAW),
        (CCNET_LIKELIHOOD, CCNET_PRECISION),
    )
    texts = []
    for better, worse in claims:
        if better in samples and worse in samples:
            text = []
            for metric in ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm"):
                d = interval(samples[better][metric] - samples[worse][metric])
                text.append(f"{NAMES[metric]} {d.value:+.2f} [{d.low:+.2f}, {d.high:+.2f}]")
            texts.append(f"{better} - {worse}: {', '.join(text)}")
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a set made by `fitmesh synth`")
    parser.add_argument(
        "--tune", type=Path, help="the set to choose scales on; not the one that is reported"
    )
    parser.add_argument("--split", default="test")
    parser.add_argument("--init", default="lifter")
    parser.add_argument("--pose-model", default=EvalSettings.pose_model)
    parser.add_argument("--rows", help="only these, with commas")
    parser.add_argument("--sequences", default="", help="only these, with commas")
    parser.add_argument("--every", type=int, default=1, help="every n-th frame only")
    parser.add_argument("--modes", default="", help="only these, with semicolons")
    parser.add_argument(
        "--cache", type=Path, default=Path("weighting_cache"), help="kept between runs"
    )
    parser.add_argument("--plot", action="store_true", help="draw docs/img/weighting.png, too")
    arguments = parser.parse_args()
    console = Console(width=150)
    began = time.monotonic()
    picked = [name.strip() for name in arguments.rows.split(",")] if arguments.rows else list(ROWS)
    modes = {
        name: MODES[name]
        for name in MODES
        if not arguments.modes or name in arguments.modes.split(";")
    }
    only = tuple(name for name in arguments.sequences.split(",") if name)

    def study_of(data: Path, split: str) -> Study:
        return Study(
            data,
            split,
            arguments.init,
            arguments.cache,
            arguments.pose_model,
            only,
            arguments.every,
        )

    if arguments.tune is not None:
        tune(study_of(arguments.tune, "validation"), console, picked, modes)
    if arguments.data is None:
        return
    study = study_of(arguments.data, arguments.split)
    tables: dict[str, list[Line]] = {}
    by_level: dict[str, dict[str, list[Line]]] = {}
    notes: list[str] = []
    for mode, fit_mode in modes.items():
        scores = study.fit(chosen(study.pose_model, mode, picked), fit_mode.single_frames)
        tables[mode] = lines(scores, RAW)
        count = hidden(study, scores)
        masks = {
            level: (count >= low) & (count <= high) for level, (low, high) in OCCLUSION.items()
        }
        by_level[mode] = {
            f"{level} ({int(mask.sum()):,})": lines(scores.where(mask), RAW)
            for level, mask in masks.items()
            if mask.any()
        }
        title = f"{mode}: {len(scores):,} person-frames in {len(scores.names)} sequences"
        show(console, title, tables[mode], RAW, METRICS)
        console.print(by_occlusion(mode, by_level[mode]))
        notes += [f"{mode}: {text}" for text in differences(tables[mode], scores)]
    confidences = keypoint_confidence(study)
    for text in notes:
        console.print(text, highlight=False)
    visible = Table(title="the confidences themselves, over keypoints inside the image")
    for head in CALIBRATION_HEAD:
        visible.add_column(head)
    for row in confidences.lines():
        visible.add_row(*row)
    console.print(visible)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(
        f"{time.monotonic() - began:.0f} s (what was kept from earlier runs not counted), peak {peak:.0f} MB"
    )
    if arguments.plot:
        title = f"{len(scores):,} rendered person-frames in {len(scores.names)} sequences, {arguments.pose_model}"
        plot(tables, by_level, f"{title}, start: {arguments.init}")


if __name__ == "__main__":
    claim(main)
