"""All steps in order, a sequence at a time; what is there and still matches is kept."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from eval3dpw.bodies import BodySet, body_set
from eval3dpw.predictions import read_predictions, write_predictions
from eval3dpw.scoring import protocol_named
from fitmesh import confidence as trust
from fitmesh.eval_3dpw import caches, scoring
from fitmesh.eval_3dpw import keypoints as reading
from fitmesh.eval_3dpw.fits import Starter, fit_track, starter
from fitmesh.eval_3dpw.keypoints import Read
from fitmesh.eval_3dpw.scoring import Score
from fitmesh.eval_3dpw.sequences import NO_CAMERA, Work, sequence_count, works
from fitmesh.eval_3dpw.settings import STORED, EvalSettings, Row
from fitmesh.eval_3dpw.skipped import BROKEN_IMAGE, NO_PREDICTION, Skipped
from fitmesh.eval_3dpw.table import Scores
from fitmesh.progress import Reporter
from fitting.body import BodyParams
from fitting.init.guess import Guess
from pose2d.base.caching import CacheKey, npz_is_current, write_npz
from pose2d.base.errors import UserError
from pose2d.types import ConfidenceSource

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Everything that was measured."""

    scores: Scores
    skipped: tuple[Skipped, ...]
    base: str  # the row that others are compared with


def run(settings: EvalSettings, out: Path, reporter: Reporter) -> Outcome:
    """From a data set to errors; `out` keeps each sequence's keypoints, fits and errors."""
    settings.check()
    protocol_named(settings.protocol)
    bodies = body_set(settings.body_model, settings.regressor)
    if settings.predictions is not None:
        return _score_predictions(settings, bodies)
    if settings.pose_model != STORED:
        for source in settings.confidence:
            if source != "oracle":
                trust.check(source, settings.pose_model, settings.ccnet if source == "ccnet" else None)
    total = sequence_count(settings)
    skipped: list[Skipped] = []
    road = Road(settings, out, bodies, reporter)
    by_sequence: dict[str, dict[str, Score]] = {}
    for number, work in enumerate(works(settings, skipped), 1):
        reporter.say(f"{work.name} ({number} of {total}): {sum(map(len, work.tracks))} person-frames")
        by_sequence[work.name] = road.sequence(work, skipped)
    scores = Scores.gather(by_sequence)
    if not len(scores):
        raise UserError(f"nothing of {settings.data} could be measured: {_why(skipped)}")
    road.write_predictions()
    rows = settings.rows()
    base = next((label for label, row in rows.items() if row.source == "raw"), next(iter(rows)))
    return Outcome(scores, tuple(skipped), base)


class Road:
    """What is loaded once and used for every sequence."""

    def __init__(self, settings: EvalSettings, out: Path, bodies: BodySet, reporter: Reporter) -> None:
        self.settings, self.out, self.bodies, self.reporter = settings, out, bodies, reporter
        self.protocol = protocol_named(settings.protocol)
        self._reader: reading.Reader | None = None
        self._starter: Starter | None = None
        self._why: dict[str, str] = {}  # of people who could not be fitted
        self._found: dict[str, list[tuple[Work, dict[int, BodyParams]]]] = {}

    def sequence(self, work: Work, skipped: list[Skipped]) -> dict[str, Score]:
        """Errors of every row; a person who cannot be fitted under one row is left out of all."""
        cache_key = caches.keypoints_key(work, self.settings, self.bodies)
        reads = self.reads(work, cache_key)
        for track, read in zip(work.tracks, reads, strict=True):
            if not read.readable.all():
                skipped.append(Skipped(work.name, BROKEN_IMAGE, int((~read.readable).sum())))
            ignored = int((~self.protocol.counts(track) & read.readable).sum())
            if ignored:
                skipped.append(Skipped(work.name, self.protocol.left_out, ignored))
        fits: dict[str, tuple[CacheKey, dict[int, BodyParams]]] = {}
        starts: dict[ConfidenceSource | None, dict[int, Guess]] = {}
        rows = self.settings.rows()
        for source in dict.fromkeys(row.start_source for row in rows.values()):
            if self.settings.init != "none":
                name = f"start {source}" if source else "start"
                key = caches.fit_key(cache_key, self.settings, name)
                starts[source] = self._starts(work, reads, source, name, key)
                found = {person: guess.params for person, guess in starts[source].items()}
                fits[self.settings.start_label(source)] = key, found
        for label, row in rows.items():
            key = caches.fit_key(cache_key, self.settings, row.key)
            fits[label] = key, self._fits(work, reads, starts.get(row.start_source), row, key)
        return self._scores(work, reads, fits, skipped)

    def reads(self, work: Work, cache_key: CacheKey) -> list[Read]:
        """Keypoints of everyone."""
        path = self.out / "keypoints" / f"{work.name}.npz"
        if not npz_is_current(path, cache_key):
            with self.reporter.stage("keypoints", sum(map(len, work.tracks)), "people") as tick:
                if self.settings.pose_model == STORED:
                    reads = reading.stored(work, self.bodies, self.settings)
                else:
                    self._reader = self._reader or reading.Reader(self.settings)
                    reads = self._reader.read(work, self.bodies, tick)
            caches.write_reads(path, cache_key, work, reads)
        return caches.read_reads(path, work)

    def _starts(
        self, work: Work, reads: list[Read], source: ConfidenceSource | None, name: str, key: CacheKey
    ) -> dict[int, Guess]:
        path = self._path("fits", name, work)
        if npz_is_current(path, key):
            return caches.read_starts(path)
        self._starter = self._starter or starter(self.settings)
        start, body = self._starter, self.bodies.load("neutral")
        found = self._each(work, "start", lambda n: start(work, reads[n], body, source))
        if len(found) == len(work.tracks):
            caches.write_starts(path, key, found)
        return found

    def _fits(
        self, work: Work, reads: list[Read], starts: dict[int, Guess] | None, row: Row, key: CacheKey
    ) -> dict[int, BodyParams]:
        path = self._path("fits", row.key, work)
        if npz_is_current(path, key):
            return caches.read_fits(path)
        found = self._each(work, row.key, partial(self._fit, work, reads, starts, row))
        if len(found) == len(work.tracks):
            caches.write_fits(path, key, found)
        return found

    def _each(self, work: Work, name: str, make: Callable[[int], T]) -> dict[int, T]:
        """By person; whoever cannot be fitted is not there, and `_why` says why (so such a result is not kept)."""
        found = {}
        with self.reporter.stage(name, sum(map(len, work.tracks)), "person-frames") as tick:
            for number, track in enumerate(work.tracks):
                try:
                    found[track.person] = make(number)
                except UserError as error:
                    self._why.setdefault(track.name, str(error))
                tick(len(track))
        return found

    def _fit(self, work: Work, reads: list[Read], starts: dict[int, Guess] | None, row: Row, number: int) -> BodyParams:
        person = work.tracks[number].person
        if starts is not None and person not in starts:
            raise UserError("there is no start for this person.")
        start, body = None if starts is None else starts[person], self.bodies.load("neutral")
        every, single = self.settings.every, self.settings.single_frames
        try:
            return fit_track(reads[number], work.camera, body, start, row, every, single)
        except UserError:
            if start is None:
                raise
            return start.params  # this row trusts nothing that it was shown, so it has nothing to add

    def _path(self, kind: str, name: str, work: Work) -> Path:
        folder = "frames" if self.settings.single_frames else "tracks"
        return self.out / kind / folder / _plain(name) / f"{work.name}.npz"

    def _scores(
        self,
        work: Work,
        reads: list[Read],
        fits: dict[str, tuple[CacheKey, dict[int, BodyParams]]],
        skipped: list[Skipped],
    ) -> dict[str, Score]:
        everywhere = set.intersection(*(set(found) for _, found in fits.values()))
        for track, read in zip(work.tracks, reads, strict=True):
            if track.person not in everywhere:
                lost = int((self.protocol.counts(track) & read.readable).sum())
                skipped.append(Skipped(work.name, self._why[track.name], lost))
        scores: dict[str, Score] = {}
        judge = scoring.Judge(work.tracks, [read.readable for read in reads], self.protocol, self.bodies)
        for name, (key, found) in fits.items():
            kept = {person: params for person, params in found.items() if person in everywhere}
            cache_key = caches.score_key(key, self.settings, self.bodies)
            path = self._path("scores", name, work)
            if not npz_is_current(path, cache_key):
                write_npz(path, cache_key, judge.score(found))
            score = caches.read_score(path)
            keep = np.isin(score["person"], list(kept))
            scores[name] = {key: value[keep] for key, value in score.items()}
            self._found.setdefault(name, []).append((work, kept))
        return scores

    def write_predictions(self) -> None:
        """What each row found, as files that `--predictions` reads."""
        for name, found in self._found.items():
            by_person = [({t.person: t for t in work.tracks}, fits) for work, fits in found]
            pairs = [(tracks[person], params) for tracks, fits in by_person for person, params in fits.items()]
            if pairs:
                write_predictions(self.out / "predictions" / f"{_plain(name)}.npz", pairs)


def _score_predictions(settings: EvalSettings, bodies: BodySet) -> Outcome:
    """`--predictions`: no images, no keypoints, no fits."""
    assert settings.predictions is not None
    predictions, protocol = read_predictions(settings.predictions), protocol_named(settings.protocol)
    name = settings.predictions.stem
    skipped: list[Skipped] = []
    by_sequence: dict[str, dict[str, Score]] = {}
    for work in works(settings, skipped):
        scores = [scoring.empty()]
        for track in work.tracks:
            counts, has = protocol.counts(track), predictions.has(track)
            for lost, why in ((~counts, protocol.left_out), (counts & ~has, NO_PREDICTION)):
                if lost.any():
                    skipped.append(Skipped(work.name, why, int(lost.sum())))
            if (counts & has).any():
                part = track.rows(counts & has)
                truth = scoring.true_bodies(part, protocol, bodies)
                scores.append(scoring.score_track(part, predictions.bodies(part, bodies), truth, protocol))
        by_sequence[work.name] = {name: scoring.joined(scores)}
    found = Scores.gather(by_sequence)
    if not len(found):
        raise UserError(f"{settings.predictions} says nothing of {settings.data}: {_why(skipped)}")
    return Outcome(found, tuple(skipped), name)


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-." else "_" for c in name).strip("_")


def _why(skipped: list[Skipped]) -> str:
    reasons = dict.fromkeys(one.why for one in skipped)
    return "; ".join(reasons) or NO_CAMERA
