"""Found bodies against the truth: errors per person-frame."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from eval3dpw.bodies import Bodies, BodySet
from eval3dpw.scoring import Protocol, evaluate
from eval3dpw.sequences import TruthTrack, camera_params
from fitting.body import BodyParams
from pose2d.base.caching import CacheKey, code_digest

METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm", "acceleration_mm")
Score = dict[str, np.ndarray]  # METRICS [N], NaN where not known; person [N], frame [N]


def true_bodies(track: TruthTrack, protocol: Protocol, bodies: BodySet) -> Bodies:
    """The truth on the body that the protocol asks for."""
    gender = "neutral" if protocol.truth_body == "neutral" else track.gender
    truth = bodies.place(camera_params(track, bodies.load(gender)), gender)
    person = torch.zeros(len(track), dtype=torch.long)
    return replace(truth, track=person, frame=torch.from_numpy(track.frame))


def score_track(track: TruthTrack, predicted: Bodies, truth: Bodies, protocol: Protocol) -> Score:
    """Errors of all T frames of a track."""
    report = evaluate(predicted, truth, protocol.name).per_frame
    score = {name: _array(getattr(report, name), len(track)) for name in METRICS}
    return score | {"person": np.full(len(track), track.person), "frame": track.frame}


class SequenceScorer:
    """Scores many fits of the same sequence; its true meshes are made once."""

    def __init__(
        self, tracks: Sequence[TruthTrack], readable: Sequence[np.ndarray], protocol: Protocol, bodies: BodySet
    ) -> None:
        """readable [T] of each track: frames whose image could be read."""
        self.rows: dict[int, Tensor] = {}  # frames [T] that count, by person
        self.tracks: dict[int, TruthTrack] = {}  # those frames
        for track, one_readable in zip(tracks, readable, strict=True):
            keep = protocol.counts(track) & one_readable
            if keep.any():
                self.rows[track.person], self.tracks[track.person] = torch.from_numpy(keep), track.rows(keep)
        self.protocol, self.bodies = protocol, bodies
        self._truth: dict[int, Bodies] = {}

    def score(self, fits: Mapping[int, BodyParams]) -> Score:
        """Everyone who was fitted, by person."""
        scores = [empty()]
        for person, track in self.tracks.items():
            if person in fits:
                if person not in self._truth:
                    self._truth[person] = true_bodies(track, self.protocol, self.bodies)
                predicted = self.bodies.place(fits[person].rows(self.rows[person]))
                scores.append(score_track(track, predicted, self._truth[person], self.protocol))
        return joined(scores)


def cache_key(fits: CacheKey, protocol: str, bodies: BodySet) -> CacheKey:
    return CacheKey(
        stage="eval-3dpw score",
        settings={"protocol": protocol},
        inputs={"fits": fits.digest, "regressor": hashlib.sha256(bodies.regressor.numpy().tobytes()).hexdigest()},
        code=code_digest("fitmesh.eval_3dpw.scoring"),
    )


def empty() -> Score:
    score = {name: np.zeros(0) for name in METRICS}
    return score | {"person": np.zeros(0, np.int64), "frame": np.zeros(0, np.int64)}


def joined(scores: Sequence[Score]) -> Score:
    return {name: np.concatenate([score[name] for score in scores]) for name in scores[0]}


def _array(value: Tensor | None, count: int) -> np.ndarray:
    return np.full(count, np.nan) if value is None else value.double().numpy()
