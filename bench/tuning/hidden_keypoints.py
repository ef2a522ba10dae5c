"""Does the stated confidence of a hidden keypoint hold? On a set made by `fitmesh synth`, which
knows what hides what.

Of keypoints inside the image, by what hides them: the true OKS, and of three confidences the mean,
the correlation with the OKS, the calibration error (10 bins) and the mean log-likelihood of the
true errors under the stated mixture (errors in units of l, a density over the plane).

head        what the head states of the image alone       once the person's own body is fitted
(`fitting.keypoints.after_fit`) together    once it is known who hides others
(`fitting.keypoints.hidden`); what `run` writes

Below: how often the person's own fitted body covers keypoints that are seen, and that are behind
the own body.

    python bench/tuning/hidden_keypoints.py synth_dev --split validation --choose   # fit COVERED and TAKEN
    python bench/tuning/hidden_keypoints.py synth_test
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.lib.claim import Console, claim
from ccnet.metrics import reliability
from eval3dpw.bodies import body_set
from eval3dpw.synth.dataset import truth_path
from eval3dpw.synth.sequence import BEHIND_SELF, DEPTH_M, HIDDEN, SEEN
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings
from fitmesh.eval_3dpw.keypoints import cache_key, true_keypoints_px
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.ui.events import Reporter
from fitting.keypoints.after_fit import inflate_variance
from fitting.keypoints.hidden import (
    COVERED,
    TAKEN,
    FittedBody,
    find_hidden_keypoints,
    surface_in_front_m,
)
from fitting.track import fit_prepared, prepare_track
from pose2d.skeletons import COCO17
from pose2d.types import ErrorDistribution, l_squared

GROUPS = {
    "all": (HIDDEN, BEHIND_SELF, SEEN),
    "seen": (SEEN,),
    "behind oneself": (BEHIND_SELF,),
    "behind something else": (HIDDEN,),
}
# of the expected OKS, beside one of negative log-likelihood, when COVERED and TAKEN are chosen
SQUARED_ERROR = 20.0


@dataclass(frozen=True)
class Sample:
    """M keypoints inside the image."""

    weights: dict[str, Tensor]  # [M, 3] of the mixture, by what is known
    sigma: Tensor  # [M, 3] in units of l
    log_ratio: Tensor  # [M]
    error: Tensor  # [M, 2] the true one, in units of l
    visibility: Tensor  # [M]
    covered: Tensor  # [M] as in `fitting.keypoints.hidden.HiddenKeypoints`
    taken: Tensor  # [M]
    by_oneself: Tensor  # [M] bool: the own fitted body's surface is in front
    ms: float  # per person-frame with several people, to find who hides others

    @property
    def oks(self) -> Tensor:
        return torch.exp(-self.error.square().sum(-1) / 2)

    def stated(self, weight: Tensor) -> ErrorDistribution:
        """Return the error distribution with these weights [M, 3]."""
        return ErrorDistribution(weight.clamp_min(1e-9), self.sigma, self.log_ratio)


def measured(data: Path, split: str, cache: Path) -> Sample:
    settings = EvalSettings(data, confidence=("ccnet",), split=split)
    bodies = body_set(None, None)
    body = bodies.load("neutral")
    evaluation = Evaluation(settings, cache, bodies, Reporter())
    parts: dict[str, list[Tensor]] = {}
    seconds, person_frames = 0.0, 0
    for sequence in eval_sequences(settings, []):
        camera = sequence.camera
        people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
        with np.load(truth_path(data, sequence.name)) as file:
            states = file["visibility"]  # [P, T, 17]
        before = {}
        fitted = {}
        for number, person in enumerate(people):
            frame = person.frame[person.detected]
            prepared = prepare_track(
                person.keypoints("ccnet"), frame, camera, body, "lifter", fps=FPS
            )
            result = fit_prepared(prepared, camera, body)
            before[number] = prepared.keypoints
            fitted[number] = FittedBody(
                result.frame, result.present, result.keypoints, body.at(result.fit.params)
            )
        began = time.process_time()
        behind = {number: find_hidden_keypoints(fitted, number, camera) for number in fitted}
        if len(people) > 1:
            seconds += time.process_time() - began
            person_frames += sum(len(fitted_track.frame) for fitted_track in fitted.values())
        for number, fitted_track in fitted.items():
            track = sequence.tracks[number]
            person = people[number]
            frame = person.frame[person.detected]
            rows = torch.from_numpy(np.searchsorted(fitted_track.frame, frame))
            alone = fitted_track.keypoints
            together = inflate_variance(fitted_track.keypoints, behind[number].inflation)
            exact = torch.from_numpy(true_keypoints_px(track, camera, bodies)[person.detected])
            assert alone.area_px2 is not None
            assert alone.error is not None
            assert together.error is not None
            head = before[number].error
            assert head is not None
            scale = l_squared(alone.area_px2[rows].double(), COCO17).sqrt()
            error = (alone.xy_px[rows, : COCO17.size] - exact) / scale[..., None]
            inside = ((exact >= 0) & (exact <= exact.new_tensor(camera.size) - 1)).all(-1)
            inside &= torch.isfinite(error).all(-1)
            ratio = alone.error.log_ratio
            front = (
                surface_in_front_m(fitted_track.body.keypoints, fitted_track.body)
                - torch.from_numpy(DEPTH_M).float()
            )
            values = {
                "head": head.weight,
                "alone": alone.error.weight,
                "together": together.error.weight,
                "sigma": alone.error.sigma,
                "covered": behind[number].covered,
                "taken": behind[number].taken,
                "by_oneself": front > 0,
                "log_ratio": torch.zeros_like(alone.confidence) if ratio is None else ratio,
            }
            for name, value in values.items():
                parts.setdefault(name, []).append(value[rows, : COCO17.size][inside])
            parts.setdefault("error", []).append(error[inside])
            parts.setdefault("visibility", []).append(
                torch.from_numpy(states[track.person, frame])[inside]
            )
    flat = {name: torch.cat(values) for name, values in parts.items()}
    weights = {name: flat[name].double() for name in ("head", "alone", "together")}
    return Sample(
        weights,
        flat["sigma"].double(),
        flat["log_ratio"].double(),
        flat["error"].double(),
        flat["visibility"],
        flat["covered"].double(),
        flat["taken"].double(),
        flat["by_oneself"],
        1000 * seconds / max(person_frames, 1),
    )


def choose(sample: Sample, covariates: list[Tensor]) -> tuple[list[float], float]:
    """How much the errors widen with each covariate [M], and what is left of the loss: the negative
    log-likelihood of the true errors, and the squared error of the expected OKS.
    """
    numbers = torch.zeros(len(covariates), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([numbers], max_iter=30, line_search_fn="strong_wolfe")
    distribution = sample.weights["alone"].clamp_min(1e-9).log()
    wide = sample.sigma.log()
    known_parts = torch.stack(covariates, -1).double()

    def loss() -> Tensor:
        optimiser.zero_grad()
        logs = (distribution + (known_parts @ numbers)[:, None] * wide).log_softmax(-1)
        stated_now = sample.stated(logs.exp())
        error = (stated_now.expected_oks() - sample.oks).square()
        value = (
            SQUARED_ERROR * error - stated_now.log_likelihood(sample.error).clamp_min(-12)
        ).mean()
        value.backward()
        return value

    optimiser.step(loss)
    return numbers.tolist(), float(loss().detach())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--cache", type=Path, default=Path("hidden_cache"), help="of the keypoints")
    parser.add_argument("--choose", action="store_true", help="fit COVERED and TAKEN on this set")
    arguments = parser.parse_args()
    sample = measured(arguments.data, arguments.split, arguments.cache)
    console = Console(width=150)
    if arguments.choose:
        remaining = [sample.covered, sample.taken]
        trials = {
            "nothing": [0 * sample.taken],
            "COVERED, TAKEN": remaining,
            "COVERED, TAKEN, the own body": [*remaining, sample.by_oneself],
        }
        for name, covariates in trials.items():
            numbers, left = choose(sample, covariates)
            console.print(
                f"{name}: {', '.join(f'{number:.2f}' for number in numbers)}; loss {left:.4f}"
            )
        console.print(f"in use: {COVERED:g}, {TAKEN:g}")
    head = "mean, Pearson, ECE, log-likelihood"
    table = Table(
        "keypoints",
        "true OKS",
        *(f"{name}: {head}" for name in sample.weights),
        title=arguments.data.name,
    )
    for group, states in GROUPS.items():
        current = torch.isin(sample.visibility, torch.tensor(states, dtype=sample.visibility.dtype))
        oks = sample.oks[current].numpy()
        cells = []
        for weight in sample.weights.values():
            distribution = sample.stated(weight)
            s = distribution.expected_oks()[current].numpy()
            likelihood = float(distribution.log_likelihood(sample.error)[current].mean())
            ece = reliability(s, oks, bins=10).expected_error
            cells.append(
                f"{s.mean():.2f}, {np.corrcoef(s, oks)[0, 1]:.2f}, {ece:.3f}, {likelihood:.2f}"
            )
        table.add_row(f"{group} ({int(current.sum()):,})", f"{oks.mean():.2f}", *cells)
    console.print(table)
    own = {
        name: sample.by_oneself[sample.visibility == state]
        for name, state in (("seen", SEEN), ("behind", BEHIND_SELF))
    }
    shares = ", ".join(
        f"{name} {100 * float(value.double().mean()):.0f} %" for name, value in own.items()
    )
    console.print(f"covered by the own fitted body: {shares}")
    console.print(
        f"finding who hides others: {sample.ms:.2f} ms per person-frame of a sequence with several people"
    )


if __name__ == "__main__":
    claim(main)
