"""Run all steps of `fitmesh eval-3dpw`, one sequence at a time. Files whose cache key has not
changed are reused."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ccnet.confidence import check_source
from eval3dpw.bodies import BodySet, body_set, read_predictions, write_predictions
from eval3dpw.scoring import protocol_named
from eval3dpw.sequences import TruthTrack
from fitmesh.eval_3dpw import fits, keypoints, score_table, sequences
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.fits import PersonFit, Start
from fitmesh.eval_3dpw.keypoints import KeypointEstimator, PersonKeypoints, stored_keypoints
from fitmesh.eval_3dpw.score_table import Score, Scores
from fitmesh.eval_3dpw.sequences import EvalSequence, Skipped
from fitmesh.ui.events import Reporter
from fitmesh.ui.trouble import count
from fitting.body import BodyParams
from pose2d.base.caching import CacheKey, npz_is_current
from pose2d.base.distributed import ALONE, ProcessGroup
from pose2d.base.errors import UserError
from pose2d.models.registry import use_plugin
from pose2d.types import ConfidenceSource

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The errors of all rows, and what was left out."""

    scores: Scores
    skipped: tuple[Skipped, ...]
    base: str  # the row that others are compared with


def run(
    settings: EvalSettings, out: Path, reporter: Reporter, group: ProcessGroup = ALONE
) -> Outcome:
    """Measure the errors on a data set. `out` caches each sequence's keypoints and fits. Several
    processes share the sequences, then each of them reads all results from `out`.
    """
    settings.check()
    use_plugin(settings.plugin)
    protocol_named(settings.protocol)
    bodies = body_set(settings.body_model, settings.regressor)
    if settings.predictions is not None:
        return _score_predictions(settings, bodies)
    if settings.has_network:
        for source in settings.confidence:
            if source != "oracle":
                head = settings.ccnet if source == "ccnet" else None
                check_source(source, settings.pose_model, head)
    total = sequences.sequence_count(settings)
    skipped: list[Skipped] = []
    for source in settings.replaced:
        reporter.warn(
            f"{source} is not calibrated, so it is weighted by `confidence`, not by "
            f"{settings.weighting[0]}."
        )
    evaluation = Evaluation(settings, out, bodies, reporter)
    # Load the user's weights before any work, so that a wrong file is reported at once.
    if settings.has_network and (settings.pose_checkpoint or settings.ccnet):
        _ = evaluation.estimator
    _ = evaluation.regressor
    if group.world_size > 1:
        for number, sequence in enumerate(sequences.eval_sequences(settings, [])):
            if number % group.world_size == group.rank:
                evaluation.scores(sequence, [])
        group.barrier()
        # The loop below visits every sequence again; each person is written once.
        evaluation.fitted.clear()
    people: list[tuple[str, dict[str, Score]]] = []
    for number, sequence in enumerate(sequences.eval_sequences(settings, skipped), 1):
        person_frames = count(sum(map(len, sequence.tracks)), "person-frames")
        reporter.say(f"{sequence.name} ({number} of {total}): {person_frames}")
        people += ((sequence.name, score) for score in evaluation.scores(sequence, skipped))
    scores = Scores.gather(people)
    if not len(scores):
        raise UserError(f"nothing of {settings.data} could be measured: {_reasons(skipped)}")
    if group.is_main:
        evaluation.write_predictions()
    rows = settings.rows()
    base = next((label for label, row in rows.items() if row.source == "raw"), next(iter(rows)))
    return Outcome(scores, tuple(skipped), base)


class Evaluation:
    """Networks and bodies, loaded once and used for every sequence."""

    def __init__(
        self, settings: EvalSettings, out: Path, bodies: BodySet, reporter: Reporter
    ) -> None:
        self.settings = settings
        self.out = out
        self.bodies = bodies
        self.reporter = reporter
        self.protocol = protocol_named(settings.protocol)
        self._failures: dict[str, str] = {}  # why people could not be fitted
        self.fitted: dict[str, list[tuple[TruthTrack, BodyParams]]] = {}  # by row

    @cached_property
    def estimator(self) -> KeypointEstimator:
        """Return the keypoint network."""
        return KeypointEstimator(self.settings)

    @cached_property
    def regressor(self) -> Any:
        """Return the network that starts fits; None if the initialiser reads keypoints."""
        settings = self.settings
        if settings.checkpoint is None:
            return None
        from fitting.init import regressors  # slow to import

        return regressors.load_regressor(settings.init, settings.checkpoint).to(settings.device)

    def scores(self, sequence: EvalSequence, skipped: list[Skipped]) -> list[dict[str, Score]]:
        """Return the errors of every row for each person. A person who cannot be fitted under one
        row is left out of all.
        """
        settings = self.settings
        rows = self.settings.rows()
        keypoints_key = keypoints.cache_key(sequence, settings, self.bodies)
        people = self.keypoints(sequence, keypoints_key)
        fitted: dict[str, dict[int, PersonFit]] = {}
        starts: dict[ConfidenceSource | None, dict[int, Start]] = {}
        frame = {
            track.person: person.frame
            for track, person in zip(sequence.tracks, people, strict=True)
        }
        for source in dict.fromkeys(row.start_source for row in rows.values()):
            name = f"start {source}" if source else "start"
            key = fits.cache_key(keypoints_key, settings, name)
            start = partial(self._start, sequence, people, source)
            starts[source] = self._by_person(
                sequence, name, key, fits.read_starts, fits.write_starts, start
            )
            fitted[settings.start_label(source)] = {
                person: PersonFit(start.params(frame[person]))
                for person, start in starts[source].items()
            }
        for label, row in rows.items():
            key = fits.cache_key(keypoints_key, settings, row.key)
            fit = partial(self._fit, sequence, people, starts[row.start_source], row)
            fitted[label] = self._by_person(
                sequence, row.key, key, fits.read_fits, fits.write_fits, fit
            )
        scores = []
        for track, person in zip(sequence.tracks, people, strict=True):
            counts = self.protocol.counts(track)
            readable = person.readable
            own = {
                label: by_person[track.person]
                for label, by_person in fitted.items()
                if track.person in by_person
            }
            keep = counts & readable if len(own) == len(fitted) else np.zeros(len(track), bool)
            for lost, why in (
                (~readable, sequences.BROKEN_IMAGE),
                (~counts & readable, self.protocol.left_out),
                (counts & readable & ~keep, self._failures.get(track.name, "")),
            ):
                if lost.any():
                    skipped.append(Skipped(sequence.name, why, int(lost.sum())))
            if len(own) == len(fitted):
                for label, person_fit in own.items():
                    self.fitted.setdefault(label, []).append((track, person_fit.params))
            if keep.any():
                scores.append(score_table.score_fits(track, keep, own, self.protocol, self.bodies))
        return scores

    def keypoints(self, sequence: EvalSequence, key: CacheKey) -> list[PersonKeypoints]:
        """Return the keypoints of a sequence, from the cache if it is current."""
        path = self.out / "keypoints" / f"{sequence.name}.npz"
        if not npz_is_current(path, key):
            with self.reporter.stage("keypoints", sum(map(len, sequence.tracks)), "people") as tick:
                if not self.settings.has_network:
                    people = stored_keypoints(sequence, self.bodies, self.settings)
                else:
                    people = self.estimator.estimate(sequence, self.bodies, tick)
            keypoints.write(path, key, sequence, people)
        return keypoints.read(path, sequence, self.settings.confidence)

    def _by_person(
        self,
        sequence: EvalSequence,
        name: str,
        key: CacheKey,
        read: Callable[[Path], dict[int, T]],
        write: Callable[[Path, CacheKey, dict[int, T]], None],
        make: Callable[[int], T],
    ) -> dict[int, T]:
        """Return what `make` gives for each person, from a file if it is current.

        People who cannot be fitted are missing, and `_failures` says why. Then no file is written.
        """
        folder = "frames" if self.settings.single_frames else "tracks"
        path = self.out / "fits" / folder / _file_name(name) / f"{sequence.name}.npz"
        if npz_is_current(path, key):
            return read(path)
        by_person = {}
        with self.reporter.stage(name, sum(map(len, sequence.tracks)), "person-frames") as tick:
            for number, track in enumerate(sequence.tracks):
                try:
                    by_person[track.person] = make(number)
                except UserError as error:
                    self._failures.setdefault(track.name, str(error))
                tick(len(track))
        if len(by_person) == len(sequence.tracks):
            write(path, key, by_person)
        return by_person

    def _start(
        self,
        sequence: EvalSequence,
        people: list[PersonKeypoints],
        source: ConfidenceSource | None,
        number: int,
    ) -> Start:
        """Return a person's start. Without a source it reads the best calibrated confidence."""
        sources = self.settings.confidence
        body = self.bodies.load("neutral")
        start_source = source or ("ccnet" if "ccnet" in sources else sources[0])
        return fits.start_person(
            people[number], sequence, body, start_source, self.settings, self.regressor
        )

    def _fit(
        self,
        sequence: EvalSequence,
        people: list[PersonKeypoints],
        starts: dict[int, Start],
        row: Row,
        number: int,
    ) -> PersonFit:
        person = sequence.tracks[number].person
        body = self.bodies.load("neutral")
        if person not in starts:
            raise UserError("this person has no initial guess.")
        # A row with a start of its own is called with the same arguments as in `fitmesh run`.
        has_own_start = row.start_source == row.source and self.settings.checkpoint is None
        start: Start | str = self.settings.init if has_own_start else starts[person]
        try:
            return fits.fit_person(people[number], sequence, body, start, row, self.settings)
        except UserError:
            # No keypoint has a weight under this row, so the start stays as it is.
            return PersonFit(starts[person].params(people[number].frame))

    def write_predictions(self) -> None:
        """Write the bodies of each row as files that `--predictions` reads."""
        for label, people in self.fitted.items():
            write_predictions(self.out / "predictions" / f"{_file_name(label)}.npz", people)


def _score_predictions(settings: EvalSettings, bodies: BodySet) -> Outcome:
    """Measure the bodies in the file of `--predictions`, without images, keypoints or fits."""
    assert settings.predictions is not None
    predictions = read_predictions(settings.predictions)
    protocol = protocol_named(settings.protocol)
    name = settings.predictions.stem
    skipped: list[Skipped] = []
    people = []
    for sequence in sequences.eval_sequences(settings, skipped):
        for track in sequence.tracks:
            counts = protocol.counts(track)
            predicted = predictions.has(track)
            for lost, why in (
                (~counts, protocol.left_out),
                (counts & ~predicted, sequences.NO_PREDICTION),
            ):
                if lost.any():
                    skipped.append(Skipped(sequence.name, why, int(lost.sum())))
            if (counts & predicted).any():
                part = track.rows(counts & predicted)
                truth = score_table.true_bodies(part, protocol, bodies)
                score = score_table.score_track(
                    part, predictions.bodies(part, bodies), truth, protocol
                )
                people.append((sequence.name, {name: score}))
    gathered = Scores.gather(people)
    if not len(gathered):
        raise UserError(
            f"{settings.predictions} has no body for {settings.data}: {_reasons(skipped)}"
        )
    return Outcome(gathered, tuple(skipped), name)


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "_" for c in label).strip("_")


def _reasons(skipped: list[Skipped]) -> str:
    return "; ".join(dict.fromkeys(entry.why for entry in skipped)) or sequences.NO_CAMERA
