"""Rendered people read by the default network and fitted as `run` does, beside their exact truth;
shared by benches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import fitting
from eval3dpw.bodies import body_set
from eval3dpw.sequences import camera_params
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings
from fitmesh.eval_3dpw.keypoints import PersonKeypoints, cache_key
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.sequences import EvalSequence, eval_sequences
from fitmesh.ui.events import Reporter
from fitting.camera.focal import focal_from_user
from fitting.fits import TrackFit
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from fitting.track import fit_track


def fitted_together(
    sequence: EvalSequence, people: list[PersonKeypoints], body: fitting.Body, every: int = 1
) -> dict[int, TrackFit]:
    """Everyone of a sequence, by place in `people`; each is fitted alone, and then it is known who
    hides whom.
    """
    visible = [
        ShotPerson(n, p.keypoints("ccnet"), p.frame[p.detected])
        for n, p in enumerate(people)
        if p.detected.any()
    ]
    focal = focal_from_user(sequence.camera.mean_focal_px, sequence.camera.size)
    shot = fit_shot(
        visible,
        sequence.camera,
        focal,
        body,
        fps=FPS / every,
        every=every,
        options=SceneOptions(ground=False),
    )
    return shot.people


@dataclass(frozen=True)
class RenderedFit:
    """One rendered person over T frames."""

    track: TrackFit
    rows: Tensor  # [T] of the frames that have a truth, in the arrays of `track`
    found: fitting.BodyParams  # of these frames
    truth: fitting.BodyParams
    body: fitting.Body

    @property
    def observed(self) -> Tensor:
        """[T] the frame showed enough of the person."""
        return self.track.fit.observed[self.rows]


def rendered_fits(data: Path, cache: Path, only: str = "") -> Iterator[RenderedFit]:
    """Yield all people of a set made by `fitmesh synth`; `cache` keeps their keypoints. only: a part of
    sequences' names.
    """
    settings = EvalSettings(data, confidence=("ccnet",))
    bodies = body_set(None, None)
    evaluation = Evaluation(settings, cache, bodies, Reporter())
    for sequence in eval_sequences(settings, []):
        if only not in sequence.name:
            continue
        people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
        for track, person in zip(sequence.tracks, people, strict=True):
            body = bodies.load(track.gender)
            index = person.detected.nonzero()[0]
            fitted = fit_track(
                person.keypoints("ccnet"), person.frame[index], sequence.camera, body, fps=FPS
            )
            rows = torch.from_numpy(fitted.index(person.frame[index]))
            yield RenderedFit(
                fitted,
                rows,
                fitted.fit.params.rows(rows),
                camera_params(track, body).rows(index),
                body,
            )
