"""Which keypoints were reliable, and why the others were not.

The solver weights keypoints and removes none; these statuses are for readers of a report."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from fitmesh.result import Person, Result
from fitting.keypoints.weights import Weighting, keypoint_weights
from pose2d.skeletons import HALPE26
from pose2d.types import AREA_OF_BOX, ConfidenceSource, Keypoints

MIN_PRESENCE = 0.5  # a keypoint with a lower probability is called not present ..
MIN_CONFIDENCE = 0.5  # .. one with a lower expected OKS low in confidence ..
OUTLIER_SIGMAS = 3.0  # .. and one from which the body is farther away than so many standard deviations an outlier


@dataclass(frozen=True)
class KeypointStatus:
    """One colour of the report."""

    key: str  # class name in report.css
    title: str
    about: str


STATUSES = (
    KeypointStatus(
        "reliable",
        "reliable",
        f"confidence of at least {MIN_CONFIDENCE:g}, and the body within {OUTLIER_SIGMAS:g} standard deviations of it",
    ),
    KeypointStatus(
        "unobserved", "frame not observed", "nobody was detected, or too little was visible: the frame was filled in"
    ),
    KeypointStatus("absent", "not present", f"probability of being in the image below {MIN_PRESENCE:g}"),
    KeypointStatus("uncertain", "low confidence", f"confidence below {MIN_CONFIDENCE:g}"),
    KeypointStatus(
        "outlier", "outlier", f"the body ended up more than {OUTLIER_SIGMAS:g} standard deviations away from it"
    ),
    KeypointStatus("swapped", "side swapped", "the network gave it the name of the other side, which was corrected"),
    KeypointStatus("away", "person absent", "nobody was seen for more than half a second: there is no body"),
)
RELIABLE, UNOBSERVED, ABSENT, UNCERTAIN, OUTLIER, SWAPPED, AWAY = range(len(STATUSES))


def keypoint_status(result: Result, person: Person) -> np.ndarray:
    """[T, 26] numbers of STATUSES; where several apply, the last of the list below."""
    with np.errstate(invalid="ignore"):
        far = person.reprojection_px > OUTLIER_SIGMAS * _sigma_px(result, person)
    status = np.full(person.confidence.shape, RELIABLE, np.uint8)
    for number, applies in (
        (SWAPPED, person.swapped),
        (OUTLIER, far),
        (UNCERTAIN, person.confidence < MIN_CONFIDENCE),
        (ABSENT, person.presence < MIN_PRESENCE),
        (UNOBSERVED, ~person.observed[:, None] | ~np.isfinite(person.keypoints_px).all(-1)),
    ):
        status[np.broadcast_to(applies, status.shape)] = number
    return status


def _sigma_px(result: Result, person: Person) -> np.ndarray:
    """[T, 26] the standard deviation of the pixel error that the solver assumed."""
    sides = person.box_px[:, 2:] - person.box_px[:, :2]
    area = np.nan_to_num(AREA_OF_BOX * sides.prod(1), nan=1.0).astype(np.float32)
    keypoints = Keypoints(
        xy_px=torch.from_numpy(np.nan_to_num(person.keypoints_px)),
        confidence=torch.from_numpy(person.confidence),
        presence=torch.from_numpy(person.presence),
        source=cast(ConfidenceSource, result.source),
        area_px2=torch.from_numpy(area),
        skeleton=HALPE26,
    )
    return keypoint_weights(keypoints, cast(Weighting, result.weighting)).sigma_px.numpy()
