"""First guesses of everyone's body by networks that read pixels (SPIN, CLIFF), in one pass over the video."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

import fitting
from fitmesh.progress import Reporter
from fitting.body import BodyParams
from fitting.init import regressors
from fitting.init.regressors import BodyRegressor
from pose2d.base.errors import UserError
from pose2d.base.prefetch import prefetch
from pose2d.io.clip import Clip, Span

FAMILIES = {"spin": ("spin",), "cliff": ("cliff-res50", "cliff-hr48")}  # a name on the command line -> networks
NAMES = (*FAMILIES, *FAMILIES["cliff"])


def load(name: str, checkpoint: Path) -> BodyRegressor:
    """ "cliff" is whichever of the two the checkpoint fits."""
    names = FAMILIES.get(name, (name,))
    for candidate in names[:-1]:
        try:
            return regressors.load(candidate, checkpoint)
        except UserError:
            continue
    return regressors.load(names[-1], checkpoint)


def guesses(
    network: BodyRegressor,
    clip: Clip,
    span: Span,
    camera: fitting.Camera,
    people: Mapping[int, tuple[np.ndarray, np.ndarray]],
    reporter: Reporter,
) -> dict[int, BodyParams]:
    """people: identity -> frame numbers [T] and boxes [T, 4], NaN where there is none. A frame without a box gets the
    guess of the nearest frame that has one."""
    wanted: dict[int, list[tuple[int, int]]] = {}  # frame number -> identity and row
    for identity, (frames, boxes) in people.items():
        for row in np.flatnonzero(np.isfinite(boxes).all(1)).tolist():
            wanted.setdefault(int(frames[row]), []).append((identity, row))
    found: dict[int, dict[int, BodyParams]] = {identity: {} for identity in people}
    with reporter.stage("first guess", span.expected_frames(clip.info)) as tick:
        for frame in prefetch(clip.frames(span)):
            here = wanted.get(frame.index, [])
            if here:
                boxes = np.stack([people[identity][1][row] for identity, row in here]).astype(np.float64)
                answer = regressors.initialise(network, frame.rgb, boxes, camera)
                for number, (identity, row) in enumerate(here):
                    one = slice(number, number + 1)
                    found[identity][row] = BodyParams(answer.pose[one], answer.shape[one], answer.translation[one])
            tick(1)
    return {identity: _everywhere(rows, len(people[identity][0])) for identity, rows in found.items()}


def _everywhere(rows: Mapping[int, BodyParams], count: int) -> BodyParams:
    known = np.array(sorted(rows))
    nearest = [rows[int(known[np.abs(known - row).argmin()])] for row in range(count)]
    return BodyParams(
        torch.cat([guess.pose for guess in nearest]),
        torch.cat([guess.shape for guess in nearest]),
        torch.cat([guess.translation for guess in nearest]),
    )
