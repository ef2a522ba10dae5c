"""First guesses of everyone's body by networks that read pixels (SPIN, CLIFF), in one pass over the video."""

from collections.abc import Mapping

import numpy as np
import torch

import fitting
from fitmesh.progress import Reporter
from fitting.body import BodyParams
from fitting.init import regressors
from fitting.init.regressors import BodyRegressor
from pose2d.base.prefetch import prefetch
from pose2d.io.clip import Clip, Span


def guesses(
    network: BodyRegressor,
    clip: Clip,
    span: Span,
    camera: fitting.Camera,
    people: Mapping[int, tuple[np.ndarray, np.ndarray]],
    reporter: Reporter,
) -> dict[int, BodyParams]:
    """people: identity -> frame numbers [N] and boxes [N, 4] -> a guess for each row."""
    wanted: dict[int, list[tuple[int, int]]] = {}  # frame number -> identity and row
    for identity, (frames, boxes) in people.items():
        for row in range(len(boxes)):
            wanted.setdefault(int(frames[row]), []).append((identity, row))
    found: dict[int, list[BodyParams]] = {identity: [] for identity in people}
    with reporter.stage("first guess", span.expected_frames(clip.info)) as tick:
        for frame in prefetch(clip.frames(span)):
            here = wanted.get(frame.index, [])
            if here:
                boxes = np.stack([people[identity][1][row] for identity, row in here]).astype(np.float64)
                answer = regressors.initialise(network, frame.rgb, boxes, camera)
                for number, (identity, row) in enumerate(here):
                    assert len(found[identity]) == row  # rows and frames both come in order of time
                    found[identity].append(answer.rows(slice(number, number + 1)))
            tick(1)
    return {
        identity: BodyParams(
            torch.cat([one.pose for one in rows]),
            torch.cat([one.shape for one in rows]),
            torch.cat([one.translation for one in rows]),
        )
        for identity, rows in found.items()
    }
