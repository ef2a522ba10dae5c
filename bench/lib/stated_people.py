"""Fit rendered people and keep their errors beside what the fit states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from bench.left_out import LIMBS
from eval3dpw.bodies import body_set
from eval3dpw.sequences import camera_params
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings
from fitmesh.eval_3dpw.keypoints import cache_key
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.exports.angles import joint_angles_deg
from fitmesh.ui.events import Reporter
from fitting import stated
from fitting.body import Body, BodyParams
from fitting.body.kinematics import SEGMENTS
from fitting.body.rotations import rotation_matrices
from fitting.camera.focal import focal_from_user
from fitting.fits import TrackFit
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from fitting.stated import KINDS, StatedErrors
from pose2d.types import Keypoints

# Leaves deviations as they are.
NEUTRAL = StatedErrors(
    np.ones((2, len(KINDS), 2, 2, 2)),
    np.full((2, len(KINDS), 2, 2, 2), 1e3),
    np.zeros(2),
    np.zeros((2, 2)),
    np.ones((2, 2)),
    np.ones((2, 2)),
    np.ones((len(KINDS), 2)),
    {},
    np.ones((len(KINDS), 2)),
    1.0,
    np.zeros(8),
    np.zeros(8),
    float(np.log(200.0)),
    0.3,
)


@dataclass(frozen=True)
class Person:
    """One fitted person of T frames beside the truth; deviations are raw."""

    sequence: int
    name: str
    scene: bool
    left_out: bool  # keypoints were
    track: TrackFit
    away: np.ndarray  # [T, 24, 2] `spread_features`
    error_mm: np.ndarray  # [2, T, 24, 3] relative to the pelvis, in the camera frame
    rotation_deg: np.ndarray  # [T, 24] angle between the joint's rotation and the true one
    angle_deg: dict[str, np.ndarray]  # by name [T]
    speed_m_s: np.ndarray  # [T, 24] length of the velocity's error
    shape_ratio: (
        np.ndarray
    )  # [1 + segments] errors of height and segments over what the raw shape states


def people_of(data: Sequence[Path], keep: Path) -> Iterator[Person]:
    number = 0
    for folder in data:
        split = next(path.name for path in sorted((folder / "sequenceFiles").iterdir()))
        settings = EvalSettings(folder, confidence=("ccnet",), split=split)
        bodies = body_set(None, None)
        evaluation = Evaluation(settings, keep / folder.name, bodies, Reporter())
        for sequence in eval_sequences(settings, []):
            people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
            for truth, person in zip(sequence.tracks, people, strict=True):
                body = bodies.load(truth.gender)
                index = np.flatnonzero(person.detected)
                points = person.keypoints("ccnet")
                kinds = [(points, False, False), (_without_some(points, number), True, False)]
                for inputs, left_out, scene in kinds + [(points, False, True)] * (
                    "_fixed_" in sequence.name
                ):
                    result = _fitted(
                        ShotPerson(0, inputs, person.frame[index]), sequence.camera, body, scene
                    )
                    if result is not None:
                        exact = camera_params(truth, body).rows(index)
                        yield _beside(
                            number,
                            sequence.name,
                            left_out,
                            *result,
                            person.frame[index],
                            exact,
                            body,
                        )
            number += 1
            print(sequence.name, flush=True)


def _without_some(points: Keypoints, seed: int) -> Keypoints:
    """Left out: an arm or a leg, some keypoints for half a second, and now and then all for a third
    of one.
    """
    time_s = np.arange(len(points)) / FPS
    rng = np.random.default_rng(seed)
    hidden = (rng.random((100, points.skeleton.size)) < 0.15)[(2 * time_s).astype(int)]
    hidden[:, [list(side) for limb in LIMBS.values() for side in limb][seed % 4]] = True
    hidden[(3 * time_s).astype(int) % 4 == 1] = True
    mask = torch.from_numpy(hidden)
    return replace(
        points,
        presence=points.presence.masked_fill(mask, 0),
        confidence=points.confidence.masked_fill(mask, 0),
    )


def _fitted(
    person: ShotPerson, camera, body: Body, scene: bool
) -> tuple[TrackFit, np.ndarray, bool] | None:
    """Return the track with raw deviations, its features, and whether the scene was used."""
    raw_tracks: list[tuple[TrackFit, np.ndarray, bool]] = []

    def raw(track, guess, body, scene, fps):  # in place of `calibrate`
        raw_tracks.append((track, stated.spread_features(track, guess, body), scene))
        return stated.calibrate(track, guess, body, scene, fps, NEUTRAL)

    with mock.patch("fitting.track.calibrate", raw):
        focal = focal_from_user(camera.mean_focal_px, camera.size)
        shot = fit_shot([person], camera, focal, body, fps=FPS, options=SceneOptions(ground=scene))
    if not shot.people:
        return None
    track = shot.people[0]
    turn = track.fit.params.pose[
        :, 0
    ]  # arms differ where palms were laid flat, places by the person's size
    away, used = next(
        (fitted_person[1:])
        for fitted_person in reversed(raw_tracks)
        if torch.equal(fitted_person[0].fit.params.pose[:, 0], turn)
    )
    return (track, away, used) if used == scene else None


def _beside(
    number: int,
    name: str,
    left_out: bool,
    track: TrackFit,
    away: np.ndarray,
    scene: bool,
    frame: np.ndarray,
    truth: BodyParams,
    body: Body,
) -> Person:
    rows = track.index(frame)
    track = track.rows(rows)
    away = away[rows]
    params = track.fit.params
    fit = track.fit
    joints, exact = (
        body.at(fitted_person).joints.double().numpy() for fitted_person in (params, truth)
    )
    camera = 1000 * (joints - exact)
    turned = rotation_matrices(params.pose).mT @ rotation_matrices(truth.pose.float())
    cosine = ((turned.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-1, 1)
    angles, true_angles = (
        joint_angles_deg(fitted_person.pose.double().numpy(), index)
        for fitted_person, index in ((params, joints), (truth, exact))
    )
    velocity = (
        np.gradient(joints - exact, axis=0) * FPS if len(joints) > 1 else np.zeros_like(joints)
    )
    return Person(
        number,
        name,
        scene,
        left_out,
        track,
        away,
        np.stack((camera - camera[:, :1], camera)),
        np.degrees(cosine.arccos().numpy()),
        {n: np.abs((angles[n] - true_angles[n] + 180) % 360 - 180) for n in angles},
        np.linalg.norm(velocity, axis=-1),
        _shape_ratio(fit, truth, body),
    )


def _shape_ratio(fit, truth: BodyParams, body: Body) -> np.ndarray:
    """Errors of height and segments, over what the raw covariance of the shape states of them."""
    size = float(fit.params.size)
    shape = fit.params.shape
    true = truth.shape.float()
    pairs = [
        (
            size * body.height_m(shape),
            body.height_m(true),
            size * body.height_std_m(fit.shape_covariance),
        )
    ]
    lengths, stds = body.segments_m(shape, list(SEGMENTS.values()), fit.shape_covariance)
    pairs += list(
        zip(
            size * lengths,
            body.segments_m(true, list(SEGMENTS.values()))[0],
            size * stds,
            strict=True,
        )
    )
    return np.array([abs(a - b) / std for a, b, std in pairs])
