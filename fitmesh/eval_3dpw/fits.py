"""Keypoints of one person -> the start, and a fit for each row of the table."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import fitting
from fitmesh.eval_3dpw.keypoints import Read
from fitmesh.eval_3dpw.sequences import Work
from fitmesh.eval_3dpw.settings import FPS, EvalSettings, Row
from fitmesh.eval_3dpw.time_grid import grid
from fitting.body import Body, BodyParams
from fitting.camera import Camera
from fitting.init import regressors
from fitting.init.guess import InitialGuess, nearest, with_default_errors
from fitting.optimise import INITIALISERS
from pose2d.base.errors import UserError
from pose2d.io.images import read_image
from pose2d.types import ConfidenceSource, Keypoints

# (the sequence, keypoints of one of its tracks, the body, whose confidence) -> where fits start
Starter = Callable[[Work, Read, Body, ConfidenceSource | None], InitialGuess]


def starter(settings: EvalSettings) -> Starter:
    """What gives the first guess. Without a source it is made from the best calibrated keypoints at hand."""
    if settings.init.startswith(("spin", "cliff")):
        network = regressors.load(settings.init, settings.checkpoint)
        return lambda work, read, body, source: with_default_errors(_from_pixels(network, work, read))
    if settings.init not in INITIALISERS:
        raise UserError(f"unknown initialiser {settings.init!r}: choose {', '.join(['none', *INITIALISERS])}.")
    best: ConfidenceSource = "ccnet" if "ccnet" in settings.confidence else settings.confidence[0]
    return lambda work, read, body, source: _lifted(settings, read, work.camera, body, source or best)


def _lifted(settings: EvalSettings, read: Read, camera: Camera, body: Body, source: ConfidenceSource) -> InitialGuess:
    keypoints, lift = _finite(read, source), INITIALISERS[settings.init]
    if settings.single_frames:
        return lift(keypoints, [camera], body, None)
    fps = FPS / settings.every
    places = grid(read.frame, settings.every, fps)
    return places.take(lift(places.keypoints(keypoints), [camera], body, fps))


def fit_track(
    read: Read, camera: Camera, body: Body, start: InitialGuess | None, row: Row, every: int, single_frames: bool
) -> BodyParams:
    """One row's fit, T frames. Raises UserError where there is nothing to fit."""
    keypoints = _finite(read, row.source)
    assert keypoints.area_px2 is not None
    keypoints = replace(keypoints, area_px2=keypoints.area_px2 * row.sigma_scale**2)  # sigmas go with sqrt(area)
    how: dict[str, Any] = {"weighting": row.weighting, "gate": row.gate, "robust_sigmas": row.robust_sigmas}
    if single_frames:
        return fitting.fit_frames(keypoints, camera, body, "none" if start is None else start, **how).params
    places = grid(read.frame, every, FPS / every)
    init = "none" if start is None else places.spread(start)
    found = fitting.fit(places.keypoints(keypoints), camera, body, init, fps=FPS / every, **how)
    return places.take_params(found.params)


def _finite(read: Read, source: ConfidenceSource) -> Keypoints:
    """Keypoints with 0 where nothing was read; presence is 0 there too."""
    keypoints = read.keypoints(source)
    known = torch.isfinite(keypoints.xy_px).all(-1)
    return replace(
        keypoints,
        xy_px=torch.nan_to_num(keypoints.xy_px),
        confidence=keypoints.confidence * known,
        presence=keypoints.presence * known,
    )


def _from_pixels(network: regressors.BodyRegressor, work: Work, read: Read) -> BodyParams:
    """SPIN's or CLIFF's answer; where the person is not inside the image, that of the nearest frame that has one."""
    known = np.flatnonzero(read.readable & np.isfinite(read.boxes_px).all(1))
    if not len(known):
        raise UserError(f"{work.name}: no frame shows the person, so there is no first guess.")

    def images() -> Iterator[np.ndarray]:
        for row in known:
            yield read_image(work.image(int(read.frame[row])))

    found = regressors.initialise_track(network, images(), read.boxes_px[known], work.camera)
    return found.rows(nearest(read.frame[known], read.frame))
