"""Stage 1: frames -> who is where, and their keypoints with confidence, in `tracks.npz` and
`keypoints.npz`.

Both files come out of one pass over the video (`pose2d.people`); a second one finds the hands of
imported keypoints, and outlines."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ccnet.confidence import head_digest
from fitmesh.schema import check_keypoints, check_tracks
from fitmesh.stages.settings import AUTO, Job
from fitmesh.ui.trouble import count
from fitting.camera.focal import focal_prior
from pose2d.base.caching import (
    CacheKey,
    code_digest,
    content_digest,
    npz_is_current,
    read_npz,
    write_npz,
)
from pose2d.base.errors import UserError
from pose2d.base.threads import prefetch, torch_threads
from pose2d.detect.boxes import Boxes, read_detections, whole_image
from pose2d.detect.detector import DETECTORS
from pose2d.events import Event
from pose2d.hand_sides import keep_sides
from pose2d.hand_tracks import HandFollower, find_hands
from pose2d.hands import HAND_CONSTANTS, LEAST_PX, arms_of
from pose2d.masks import MaskFinder
from pose2d.models.registry import card, module_of
from pose2d.people import Detect, PeopleFinder
from pose2d.readings import KeypointReader
from pose2d.skeletons import BY_NAME
from pose2d.tracking.identity import People
from pose2d.tracking.tracker import Tracker
from pose2d.types import (
    AREA_OF_BOX,
    ConfidenceSource,
    Detections,
    HandKeypoints,
    Keypoints,
    Outlines,
)
from pose2d.video.camera_motion.background import BackgroundMotion
from pose2d.video.frames import Frame

TRACKS_FILE, KEYPOINTS_FILE = "tracks.npz", "keypoints.npz"


@dataclass(frozen=True)
class SeenPeople:
    """Who is where in a clip: `tracks.npz`, and `keypoints.npz` where it was asked for."""

    width_px: int
    height_px: int
    rate: Fraction  # frames per second of the source
    frames: np.ndarray  # [F] numbers of the frames that were read
    time_s: np.ndarray  # [F] when each is shown
    rows: Detections  # track after track, each within one shot, frames rising
    shot_first_frame: np.ndarray  # [S] number of the first frame of each shot
    same_as: dict[int, int]  # identity -> the earliest identity of the same person (--relink)
    events: list[Event]  # what a person should look at, in order of time
    warnings: list[str]  # about the video
    # From keypoints.npz, which also gives `rows` their keypoints and hands.
    pose_model: str = ""
    outlines: Outlines | None = None  # None: masks were not searched

    def times(self, frame: np.ndarray | int) -> np.ndarray:
        """Return the times at which frames that were read are shown."""
        return self.time_s[np.searchsorted(self.frames, frame)]

    @property
    def every(self) -> int:
        """Return the step between the frames that were read."""
        return int(np.diff(self.frames).min()) if len(self.frames) > 1 else 1

    @property
    def fps(self) -> float:
        """Return the frames per second that were read, which `--every` makes fewer."""
        return float(self.rate / Fraction(self.every))

    @cached_property
    def people(self) -> dict[int, Detections]:
        """Return each person's rows, by identity."""
        return self.rows.people()

    def outlines_of(self, identity: int) -> Outlines | None:
        """Return a person's outlines; their rows are counted from the person's first."""
        if self.outlines is None:
            return None
        own = np.flatnonzero(self.rows.identity == identity)
        outlines = self.outlines.rows(np.isin(self.outlines.row, own))
        return replace(outlines, row=outlines.row - own[0])


def key_parts(job: Job) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the cache-key settings and inputs shared by detected and imported keypoints."""
    settings = job.settings
    key_settings = {
        "span": asdict(settings.span),
        "rate": str(job.clip.info.rate),
        "tracker": asdict(settings.tracker),
        "max_people": settings.max_people,
        "identity": asdict(settings.identity),
        "hands": settings.hands,
        "shape": settings.shape,
    }
    return key_settings, {"clip": job.clip_digest, "hands": content_digest([HAND_CONSTANTS])}


def cache_key(job: Job) -> CacheKey:
    """Return the key of people and keypoints."""
    settings = job.settings
    key_settings, inputs = key_parts(job)
    key_settings |= {"pose_model": settings.pose_model, "confidence": settings.confidence}
    if settings.whole_image:
        key_settings["boxes"] = "whole"
    elif settings.detections is not None:
        key_settings["boxes"] = "given"
        inputs["detections"] = content_digest([settings.detections])
    else:
        key_settings["boxes"] = "detector"
        key_settings["detector"] = [settings.detector, asdict(settings.detector_options)]
    if settings.checkpoint is not None:
        inputs["checkpoint"] = content_digest([settings.checkpoint])
    if head := head_digest(settings.confidence, settings.pose_model, settings.ccnet):
        inputs["ccnet"] = head
    return CacheKey(
        "people",
        key_settings,
        inputs,
        code_digest(
            "pose2d.people",
            f"pose2d.detect.{DETECTORS[settings.detector][0]}",
            "pose2d.models.loading",
            "pose2d.readings",
            module_of(settings.pose_model),
            "ccnet.confidence",
            "pose2d.hand_sides",
            "pose2d.masks",
            "pose2d.video.camera_motion.background",
            "fitting.camera.focal",
        ),
    )


def is_current(out: Path, key: CacheKey) -> bool:
    """Say whether both files have this key."""
    return all(npz_is_current(out / name, key) for name in (TRACKS_FILE, KEYPOINTS_FILE))


def make(job: Job, key: CacheKey) -> None:
    """Find everyone in the frames of the span."""
    info = job.clip.info
    settings = job.settings
    size_px = (info.width_px, info.height_px)
    tracker = Tracker(size_px, settings.tracker)
    background = BackgroundMotion(size_px, focal_prior(size_px).focal_px)
    fps = float(info.rate / settings.span.every)
    has_given_boxes = settings.detections is not None
    with job.reporter.stage("people", settings.span.expected_frames(info)) as tick:
        reader = _estimate(job)
        finder = PeopleFinder(
            _detect(job),
            reader,
            has_given_boxes,
            watch=background,
            find_hands=HandFollower().find if settings.hands == AUTO else None,
        )
        with torch.inference_mode():
            found_people = finder.find(
                job.clip.frames(settings.span),
                fps,
                tracker,
                settings.workers,
                tick,
                settings.identity,
            )
    _say_extra_crops(job, finder, reader)
    write(
        job,
        key,
        found_people,
        pose_model=settings.pose_model,
        skeleton=card(settings.pose_model).skeleton.name,
        source=settings.confidence,
        background=background,
    )
    if job.shared_loader is None and not job.cameras:  # no other clip or camera needs them
        job.loader.release()


def _estimate(job: Job) -> KeypointReader:
    return KeypointReader(*job.loader.networks)


def _say_extra_crops(job: Job, finder: PeopleFinder, reader: KeypointReader) -> None:
    """Say how many crops were made beyond one for each person and frame."""
    extra = finder.expected_crops + reader.second_readings
    if extra:
        share = extra / (reader.first_readings + reader.second_readings)
        job.reporter.say(
            f"people: {share:.1%} of the crops were extra: {finder.expected_crops} where the "
            f"detector lost a person, {reader.second_readings} turned ones for doubtful poses",
            "people",
        )


def _detect(job: Job) -> Detect:
    settings = job.settings
    if settings.whole_image:
        return lambda frame: whole_image(frame.rgb)
    if settings.detections is not None:
        boxes_by_frame = read_detections(settings.detections)
        no_boxes = Boxes(np.zeros((0, 4)), np.zeros(0))
        return lambda frame: boxes_by_frame.get(frame.index, no_boxes)
    detector = job.loader.detector
    return lambda frame: detector.detect(frame.rgb)


def write(
    job: Job,
    key: CacheKey,
    found_people: People,
    pose_model: str,
    skeleton: str,
    source: str,
    background: BackgroundMotion | None = None,
) -> None:
    """Write both files, of at most `max_people`: those visible in the most frames."""
    info = job.clip.info
    limit = job.settings.max_people
    rows = found_people.detections
    # Warnings of the first pass: hands are searched in a part of the clip only.
    warnings = np.array(job.clip.warnings, dtype=np.str_)
    identities, counts = np.unique(rows.identity, return_counts=True)
    chosen = np.sort(identities[np.argsort(-counts, kind="stable")[:limit]])
    if len(chosen) < len(identities):
        rows = rows.pick(np.flatnonzero(np.isin(rows.identity, chosen)))
    keypoints = rows.keypoints
    if keypoints is None:
        keypoints = Keypoints.empty(
            {"keypoints": BY_NAME[skeleton].size}, source=cast(ConfidenceSource, source)
        )
        keypoints = replace(keypoints, raw=keypoints.confidence)
    if keypoints.area_px2 is None:
        area = AREA_OF_BOX * (rows.box_px[:, 2:] - rows.box_px[:, :2]).prod(1)
        keypoints = replace(keypoints, area_px2=torch.from_numpy(area))
    rows = replace(rows, keypoints=keypoints)
    hands, outlines = _second_pass(job, rows)
    events = [event for event in found_people.events if event.identity in chosen]
    motion: Mapping[str, Any] = {}
    if background is not None:
        motion = background.arrays(found_people.frames, found_people.shot_first_frame)
    people = {
        "identity": chosen,
        "first_row": np.searchsorted(rows.identity, [*chosen, np.inf]),
        "row_frame": rows.frame,
        "row_box_px": rows.box_px,
    }
    write_npz(
        job.out / KEYPOINTS_FILE,
        key,
        {
            "pose_model": pose_model,
            "skeleton": skeleton,
            "source": source,
            **people,
            **keypoints.to_arrays(),
            **({} if hands is None else hands.to_arrays()),
            **({} if outlines is None else outlines.to_arrays()),
        },
    )
    write_npz(
        job.out / TRACKS_FILE,
        key,
        {
            "width_px": info.width_px,
            "height_px": info.height_px,
            "rate": [info.rate.numerator, info.rate.denominator],
            "frame": found_people.frames,
            "time_s": found_people.time_s,
            "detected": found_people.detected,
            **people,
            "row_score": rows.score,
            "shot_first_frame": found_people.shot_first_frame,
            "same_as": _same_as(found_people.same_as, chosen),
            **Event.stack(events).to_arrays(),
            "warnings": warnings,
            **motion,
        },
    )


def _second_pass(job: Job, rows: Detections) -> tuple[HandKeypoints | None, Outlines | None]:
    """Return hands and outlines, found in a second pass over the video with known identities."""
    settings = job.settings
    info = job.clip.info
    masks = MaskFinder(rows, (info.width_px, info.height_px)) if settings.shape == "masks" else None
    frames = prefetch(job.clip.frames(settings.span))
    frames = frames if masks is None else masks.watch(frames)
    hands = _hands(job, rows, frames) if settings.hands == AUTO else None
    while masks and next(frames, None) is not None:  # frames after the last hand
        pass
    return hands, None if masks is None else masks.outlines


def _hands(job: Job, rows: Detections, video: Iterator[Frame]) -> HandKeypoints:
    """Return both hands of all people, found in `video` unless the rows have them."""
    arms = arms_of(rows)
    frames = np.unique(rows.frame[arms.row[arms.seen & arms.large]])
    if rows.hands is not None:
        hands = rows.hands
    elif len(frames):
        with job.reporter.stage("hands", len(frames)) as tick, torch_threads(job.settings.workers):
            hands = find_hands(video, rows, tick)
    else:
        hands = HandKeypoints.unseen(len(rows))
    if small := int((arms.seen & ~arms.large).sum()):
        total = count(int(arms.seen.sum()), "hands")
        job.reporter.say(
            f"hands: {small} of {total} are under {LEAST_PX:.0f} px long and were not searched",
            "hands",
        )
    return keep_sides(rows, hands, float(job.clip.info.rate))


def _same_as(same_as: Mapping[int, int], chosen: np.ndarray) -> np.ndarray:
    """Return for each chosen identity the earliest chosen identity of the same person."""
    earliest: dict[int, int] = {}
    for identity in sorted(chosen.tolist()):
        earliest.setdefault(same_as[identity], identity)
    return np.array([earliest[same_as[identity]] for identity in chosen.tolist()], np.int64)


def read_tracks(out: Path) -> SeenPeople:
    """Return the tracks as found; later stages read them with corrections (`fitmesh.tracks`)."""
    arrays = read_npz(out / TRACKS_FILE)
    check_tracks(arrays, out / TRACKS_FILE)
    return SeenPeople(
        width_px=int(arrays["width_px"]),
        height_px=int(arrays["height_px"]),
        rate=Fraction(*map(int, arrays["rate"])),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        rows=Detections(
            arrays["row_frame"], _identities(arrays), arrays["row_box_px"], arrays["row_score"]
        ),
        shot_first_frame=arrays["shot_first_frame"],
        same_as=dict(zip(arrays["identity"].tolist(), arrays["same_as"].tolist(), strict=True)),
        events=Event.from_arrays(arrays).each(),
        warnings=[str(text) for text in arrays["warnings"]],
    )


def read_keypoints(out: Path) -> SeenPeople:
    """Return tracks and keypoints as found; later stages read them with corrections."""
    tracks = read_tracks(out)
    rows, outlines, pose_model = read_keypoint_rows(out / KEYPOINTS_FILE)
    same_identities = np.array_equal(tracks.rows.identity, rows.identity)
    if not same_identities or not np.array_equal(tracks.rows.frame, rows.frame):
        raise UserError(
            f"{out / KEYPOINTS_FILE} has other people or frames than {out / TRACKS_FILE}: "
            "`fitmesh run` makes both anew."
        )
    return replace(tracks, rows=rows, outlines=outlines, pose_model=pose_model)


def read_keypoint_rows(path: Path) -> tuple[Detections, Outlines | None, str]:
    """Return all rows, outlines where there are any, and the name of the network."""
    arrays = read_npz(path)
    check_keypoints(arrays, path)
    source = cast(ConfidenceSource, str(arrays["source"]))
    points = Keypoints.from_arrays(arrays, source=source, skeleton=BY_NAME[str(arrays["skeleton"])])
    hands = HandKeypoints.from_arrays(arrays) if HandKeypoints.PREFIX + "xy_px" in arrays else None
    outlines = Outlines.from_arrays(arrays) if Outlines.PREFIX + "row" in arrays else None
    frame = arrays["row_frame"]
    box_px = arrays["row_box_px"]
    rows = Detections(
        frame, _identities(arrays), box_px, np.full(len(frame), np.nan), points, hands=hands
    )
    return rows, outlines, str(arrays["pose_model"])


def _identities(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the identity of every row."""
    first = arrays["first_row"].astype(np.int64)
    return np.repeat(arrays["identity"].astype(np.int64), first[1:] - first[:-1])
