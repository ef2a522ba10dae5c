"""Which keypoints were not trusted, and why.

The solver weighs keypoints and never throws one away; these words are for people who read a report. Each keypoint gets
the first reason that applies.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from fitmesh.result import Person, Result
from fitting.keypoints.weights import Weighting, keypoint_weights
from pose2d.oks import AREA_OF_BOX
from pose2d.types import ConfidenceSource, Keypoints

LOW_PRESENCE = 0.5  # a keypoint is called out of the image below this probability
LOW_CONFIDENCE = 0.5  # and doubtful below this expected OKS
OUTLIER_SIGMAS = 3.0  # and an outlier when the body is farther away than so many of its own standard deviations


@dataclass(frozen=True)
class Reason:
    """Why a keypoint was not trusted."""

    key: str  # also the name of its colour in the page
    title: str
    about: str


REASONS = (
    Reason("trusted", "trusted", "it pulled on the body with the weight its confidence gives it"),
    Reason("unseen", "frame not observed", "nobody was detected, or too little was seen: the frame was filled in"),
    Reason(
        "absent",
        "not present",
        f"probability of being in the image, to be seen or guessed at, below {LOW_PRESENCE:g}",
    ),
    Reason("doubtful", "low confidence", f"confidence below {LOW_CONFIDENCE:g}"),
    Reason("outlier", "outlier", f"the body ended up more than {OUTLIER_SIGMAS:g} standard deviations away from it"),
    Reason("swapped", "side put back", "the network called it by the name of the other side, which was put right"),
)
TRUSTED, UNSEEN, ABSENT, DOUBTFUL, OUTLIER, SWAPPED = range(len(REASONS))


def reasons(result: Result, person: Person) -> np.ndarray:
    """[T, 17] numbers of REASONS."""
    with np.errstate(invalid="ignore"):
        far = person.reprojection_px > OUTLIER_SIGMAS * _sigma_px(result, person)
    found = np.full(person.confidence.shape, TRUSTED, np.uint8)
    for reason, applies in (
        (SWAPPED, person.swapped),
        (OUTLIER, far),
        (DOUBTFUL, person.confidence < LOW_CONFIDENCE),
        (ABSENT, person.presence < LOW_PRESENCE),
        (UNSEEN, ~person.observed[:, None] | ~np.isfinite(person.keypoints_px).all(-1)),
    ):
        found[np.broadcast_to(applies, found.shape)] = reason
    return found


def _sigma_px(result: Result, person: Person) -> np.ndarray:
    """[T, 17] the pixel error that the solver took for one standard deviation."""
    sides = person.box_px[:, 2:] - person.box_px[:, :2]
    area = np.nan_to_num(AREA_OF_BOX * sides.prod(1), nan=1.0).astype(np.float32)
    keypoints = Keypoints(
        xy_px=torch.from_numpy(np.nan_to_num(person.keypoints_px)),
        confidence=torch.from_numpy(person.confidence),
        presence=torch.from_numpy(person.presence),
        source=cast(ConfidenceSource, result.source),
        area_px2=torch.from_numpy(area),
    )
    return keypoint_weights(keypoints, cast(Weighting, result.weighting)).sigma_px.numpy()
