"""Keypoints that another program found (`--keypoints`): our npz, json of COCO, OpenPose, mmpose or
MediaPipe, or npy.

They stand in for stage 1: the same two files come out. docs/run.md shows each format."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ccnet.confidence import SOURCES
from fitmesh.result import FAR_PX
from fitmesh.stages import people
from fitmesh.stages.settings import Job
from pose2d.base.arrays import read_npy
from pose2d.base.caching import CacheKey, code_digest, content_digest
from pose2d.base.errors import UserError
from pose2d.base.json_files import Json, read_json
from pose2d.base.threads import prefetch
from pose2d.keypoint_layouts import HALPE26_IN, OPENPOSE18_TO_COCO17, to_halpe26
from pose2d.skeletons import COCO17, HALPE26
from pose2d.tracking.appearance import describe
from pose2d.tracking.identity import People, collect_people, tracked_rows
from pose2d.tracking.tracker import Tracker
from pose2d.types import AREA_OF_BOX, NOBODY, Detections, Keypoints
from pose2d.video.shots import ShotMarker

Layout = tuple[
    int | None, ...
]  # for each of Halpe's 26 keypoints its place in a file, None where it is not there
_OPENPOSE18: Layout = (*OPENPOSE18_TO_COCO17, *(None,) * (HALPE26.size - COCO17.size))
COCO_LAYOUTS = {
    17: HALPE26_IN["coco17"],
    26: HALPE26_IN["halpe26"],
    133: HALPE26_IN["wholebody133"],
}
ARRAY_LAYOUTS = COCO_LAYOUTS | {33: HALPE26_IN["mediapipe33"]}
OPENPOSE_LAYOUTS = {25: HALPE26_IN["body_25"], 18: _OPENPOSE18}
LAYOUTS = ("auto", "body_25b")  # of --keypoint-layout: BODY_25 and BODY_25B both have 25 keypoints
SEEN = 0.05  # confidence from which a keypoint helps to say where the person is
# keypoints that leave an image by less than this share of it are still shares of it, not pixels
NORMALISED = 0.5
MARGIN = 0.1  # a person reaches so far beyond the keypoints, as a share of their extent


def cache_key(job: Job) -> CacheKey:
    file = _file(job)
    settings, inputs = people.key_parts(job)
    return CacheKey(
        stage="people",
        settings={
            **settings,
            "boxes": "given keypoints",
            "name": file.name,
            "layout": job.settings.keypoint_layout,
        },
        inputs={**inputs, "keypoints": content_digest(files_of(file))},
        code=code_digest(
            "pose2d.people", "pose2d.hands", "pose2d.masks", "fitmesh.stages.given_keypoints"
        ),
    )


def make(job: Job, key: CacheKey) -> None:
    """Who is where as the file says, or found by tracking the boxes and keypoints."""
    info = job.clip.info
    given = read_given(_file(job), job.settings.keypoint_layout, (info.width_px, info.height_px))
    tracker = Tracker((info.width_px, info.height_px), job.settings.tracker)
    shots = ShotMarker()
    first_frames = []
    everyone = given.rows
    parts: list[Detections] = []
    frames: list[int] = []
    times: list[float] = []
    with job.reporter.stage("people", job.settings.span.expected_frames(info)) as tick:
        for frame, starts_shot in shots.mark(prefetch(job.clip.frames(job.settings.span))):
            if starts_shot:
                tracker.cut()
                first_frames.append(frame.index)
            here = everyone.rows(everyone.frame == frame.index)
            here = replace(here, time_s=np.full(len(here), float(frame.time_s)))
            if not given.named:  # the people of one frame under the numbers of the tracker's tracks
                looks = describe(frame.rgb, here.xy_px, here.sure, HALPE26)
                here = replace(here, appearance=looks)
                here = tracked_rows(
                    replace(here, identity=tracker.update(float(frame.time_s), here))
                )
            parts.append(here)
            frames.append(frame.index)
            times.append(float(frame.time_s))
            tick(1)
    if len(everyone) and not np.isin(everyone.frame, frames).any():
        raise UserError(
            f"{_file(job)} speaks of frames {everyone.frame.min()} to {everyone.frame.max()}, none of which is read "
            f"from {job.clip.path} (frames {frames[0]} to {frames[-1]}). Frame numbers count from 0."
        )
    cuts = np.unique([*first_frames, *shots.late]).astype(np.int64)
    numbers = np.array(frames, np.int64)
    seconds = np.array(times)
    if not given.named:
        seen_people = collect_people(parts, tracker, numbers, seconds, cuts, job.settings.identity)
    else:
        seen_people = _as_named(Detections.concat(parts), numbers, seconds, cuts)
    people.write(
        job,
        key,
        seen_people,
        pose_model=given.pose_model,
        skeleton=HALPE26.name,
        source=given.rows.points.source,
    )


def _as_named(
    seen: Detections, frames: np.ndarray, times: np.ndarray, shot_first_frame: np.ndarray
) -> People:
    """Everybody as the file names them. A track lies within one shot, so who is seen in several has
    a new number in every later one, and `same_as` says who it is."""
    name = seen.identity
    shot = np.searchsorted(shot_first_frame, seen.frame, side="right")
    fresh = int(name.max(initial=0)) + 1
    identity = name.copy()
    same_as = dict[int, int]()
    for where, who in sorted({(int(s), int(n)) for s, n in zip(shot, name, strict=True)}):
        number = who
        if who in same_as:
            number = fresh
            fresh = fresh + 1
            identity[(name == who) & (shot == where)] = number
        same_as[number] = who
    return People(
        detections=replace(seen, identity=identity).by_person(),
        frames=frames,
        time_s=times,
        detected=np.zeros(len(frames), np.bool_),
        shot_first_frame=shot_first_frame,
        same_as=same_as,
        events=[],
    )


def _file(job: Job) -> Path:
    assert job.settings.keypoints is not None
    return job.settings.keypoints


@dataclass(frozen=True)
class GivenKeypoints:
    """What a file says."""

    rows: Detections  # with keypoints in Halpe's order
    named: bool  # whether it says who is who
    pose_model: str  # who found them
    openpose: bool = False  # the file is in OpenPose's format


def files_of(path: Path) -> list[Path]:
    """The files that `path` stands for: itself, or what OpenPose leaves in a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*_keypoints.json"))
    if not files:
        raise UserError(
            f"{path} holds no file that ends in _keypoints.json, as OpenPose writes one per frame."
        )
    return files


def read_given(
    path: Path, layout: str = "auto", size: tuple[int, int] = (1000, 1000)
) -> GivenKeypoints:
    """layout: "body_25b" where files with 25 keypoints are in that order of OpenPose's, not in
    BODY_25's. size: the image's width and height, for MediaPipe's landmarks, which are shares of
    them."""
    if layout not in LAYOUTS:
        raise UserError(f"unknown --keypoint-layout {layout!r}: choose {' or '.join(LAYOUTS)}.")
    openpose = OPENPOSE_LAYOUTS | ({25: HALPE26_IN["body_25b"]} if layout == "body_25b" else {})
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    if path.suffix.lower() == ".npy":
        return _given(_array(path), path)
    files = files_of(path)
    persons = list[Person]()
    for number, file in enumerate(files):
        content = read_json(file, _FORMATS)
        if "people" in content:
            match = re.search(r"(\d+)_keypoints\.json$", file.name)
            if match is None and len(files) > 1:
                expected = "expected a name that ends in a number and _keypoints.json"
                raise UserError(f"{file} does not tell its frame: {expected}.")
            frame = (
                int(match[1][-18:]) if match and len(files) > 1 else 0
            )  # more digits are no number of a frame
            persons += _openpose(content, frame, openpose)
        elif number == 0 and len(files) == 1:
            persons += _one_file(content, size)
        else:
            raise UserError(f'{file} has no "people": expected a file as OpenPose writes it.')
    return replace(_given(persons, path), openpose="people" in content)


_FORMATS = (
    "Expected COCO keypoint results (image_id: the frame's number from 0; keypoints: x, y, confidence of COCO's 17, "
    "Halpe's 26 or COCO-WholeBody's 133; track_id where it is known), or files of OpenPose (people, "
    "pose_keypoints_2d), mmpose (instances) or MediaPipe (pose_landmarks): docs/run.md."
)
# Frame, identity where it is known, and [26, 3] x, y, confidence; NaN where the layout has no such
# keypoint.
Person = tuple[int, int | None, np.ndarray]


def _one_file(content: Json, size: tuple[int, int]) -> Iterable[Person]:
    """Told apart by the words of the first entry."""
    entries = content
    for name in ("instance_info", "frames"):
        entries = content.item(name) if name in content else entries
    if isinstance(entries.value, list) and entries.value:
        first = next(iter(entries.items()))
        if "instances" in first:
            return _mmpose(entries)
        if "keypoint_scores" in first:
            return (_mmpose_person(person, 0) for person in entries.items())
        if "pose_landmarks" in first:
            return _mediapipe(entries, size)
    return _coco(content)


def _mmpose(frames: Json) -> Iterator[Person]:
    """An entry a frame, counted from the first one: mmpose's scripts differ in where they begin."""
    begin = None
    for number, frame in enumerate(frames.items()):
        index = frame.get("frame_id", number).integer()
        begin = index if begin is None else begin
        for person in frame.item("instances").items():
            yield _mmpose_person(person, index - begin)


def _mmpose_person(person: Json, frame: int) -> Person:
    xy = [one.numbers(2) for one in person.item("keypoints").items()]
    scores = person.item("keypoint_scores").numbers(len(xy))
    flat = [
        float(value) for point, score in zip(xy, scores, strict=True) for value in (*point, score)
    ]
    points = _points(
        Json(flat, person.path, f"{person.where}.keypoints", person.expected), COCO_LAYOUTS
    )
    named = next((name for name in ("track_id", "instance_id") if name in person), None)
    return frame, None if named is None else person.item(named).integer(), points


def _mediapipe(frames: Json, size: tuple[int, int]) -> Iterator[Person]:
    """An entry a frame: {"pose_landmarks": ..} of one person ({"landmark": [..]}, legacy) or of
    several (Tasks).
    """
    for number, frame in enumerate(frames.items()):
        given = frame.get("pose_landmarks", [])
        several = [given.item("landmark")] if "landmark" in given else list(given.items())
        if several and not isinstance(several[0].value, list):
            several = [given]  # the landmarks themselves
        for person in several:
            flat: list[float] = []
            for one in person.items():
                x = one.item("x").number() * size[0]
                y = one.item("y").number() * size[1]
                flat += [x, y, one.get("visibility", 1.0).number(0, 1)]
            points = _points(
                Json(flat, person.path, person.where, person.expected), {33: ARRAY_LAYOUTS[33]}
            )
            yield frame.get("frame", number).integer(), None, points


def _array(path: Path) -> list[Person]:
    """[T, K, 2 or 3] of one person, or [T, P, K, 2 or 3] of P: pixels and, in the third place,
    confidence (else 1).
    """
    values = read_npy(path, "Expected keypoints.").astype(np.float64)
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim != 4 or values.shape[2] not in ARRAY_LAYOUTS or values.shape[3] not in (2, 3):
        counts = ", ".join(map(str, ARRAY_LAYOUTS))
        raise UserError(
            f"{path} has shape {list(values.shape)}; expected [T, K, 3] or [T, P, K, 3] for T frames, P people and K "
            f"keypoints ({counts}): x, y in pixels and a confidence, which may be left out."
        )
    if values.shape[3] == 2:
        values = np.concatenate([values, np.ones_like(values[..., :1])], -1)
    out = _in_halpe(values, ARRAY_LAYOUTS[values.shape[2]])
    return [
        (frame, who, out[frame, who])
        for frame, who in zip(*np.nonzero(np.isfinite(out).all(-1).any(-1)), strict=True)
    ]


def _coco(content: Json) -> Iterator[Person]:
    labelled = isinstance(
        content.value, Mapping
    )  # there the third number says: 0 not labelled, 1 hidden, 2 visible
    for entry in (content.item("annotations") if labelled else content).items():
        points = _points(entry.item("keypoints"), COCO_LAYOUTS)
        if labelled:
            points[:, 2] = np.where(np.isnan(points[:, 2]), np.nan, points[:, 2] > 0)
        identity = (
            None if entry.get("track_id", None).value is None else entry.item("track_id").integer()
        )
        yield entry.item("image_id").integer(), identity, points


def _openpose(content: Json, frame: int, layouts: Mapping[int, Layout]) -> Iterator[Person]:
    for person in content.item("people").items():
        identity = next((one.integer() for one in person.get("person_id", []).items()), -1)
        yield (
            frame,
            identity if identity >= 0 else None,
            _points(person.item("pose_keypoints_2d"), layouts),
        )


def _points(numbers: Json, layouts: Mapping[int, Layout]) -> np.ndarray:
    """[26, 3] in Halpe's order, of a flat list x, y, confidence, ..; NaN where the layout has no
    such keypoint.
    """
    points = numbers.numbers(*(3 * count for count in layouts)).reshape(-1, 3)
    return _in_halpe(points, layouts[len(points)])


def _in_halpe(points: np.ndarray, layout: Layout) -> np.ndarray:
    """[.., K, 3] -> [.., 26, 3]"""
    has = np.array([index is not None for index in layout])
    out = np.full((*points.shape[:-2], HALPE26.size, 3), np.nan)
    out[..., has, :] = points[..., [index for index in layout if index is not None], :]
    return out


def _given(persons: list[Person], path: Path) -> GivenKeypoints:
    points = (
        np.stack([points for *_, points in persons]) if persons else np.zeros((0, HALPE26.size, 3))
    )
    finite = np.asarray(np.isfinite(points).all(-1))
    if (farthest := np.abs(points[finite][:, :2]).max(initial=0.0)) > FAR_PX:
        raise UserError(f"{path} has a keypoint at {farthest:.3g} px: no image is so large.")
    if (points[finite][:, 2] < 0).any():
        raise UserError(f"{path} has confidences below 0; expected 0 to 1.")
    confidence = np.where(finite, points[..., 2].clip(0, 1), 0)
    seen = points[confidence >= SEEN][:, :2]
    if len(seen) > 1 and seen.min() > -NORMALISED and seen.max() < 1 + NORMALISED:
        raise UserError(
            f"{path} has coordinates from {seen.min():.2f} to {seen.max():.2f}: shares of the image, not pixels. "
            "Multiply x by the image's width and y by its height."
        )
    visible = np.flatnonzero((confidence >= SEEN).sum(1))
    persons = [persons[row] for row in visible]
    points = points[visible]
    confidence = confidence[visible]
    finite = finite[visible]
    seen = confidence >= SEEN
    identities = [identity for _, identity, _ in persons]
    if None in identities and any(identity is not None for identity in identities):
        raise UserError(
            f"{path} says of some people who they are and of others not: give all an identity, or none."
        )
    named = bool(identities) and None not in identities
    low = np.where(seen[..., None], points[..., :2], np.inf).min(1, initial=np.inf)
    high = np.where(seen[..., None], points[..., :2], -np.inf).max(1, initial=-np.inf)
    edge = MARGIN * (high - low).max(1, keepdims=True, initial=1)
    box = np.concatenate([low - edge, high + edge], 1)
    frames = np.array([frame for frame, *_ in persons], np.int64)
    names = np.array(identities if named else [NOBODY] * len(frames), np.int64)
    pairs, count = np.unique(np.stack([frames, names], 1), axis=0, return_counts=True)
    if named and (count > 1).any():
        frame, identity = pairs[count > 1][0]
        raise UserError(f"{path} has person {identity} twice in frame {frame}.")
    keypoints = Keypoints(
        xy_px=torch.from_numpy(points[..., :2].astype(np.float32)),
        confidence=torch.from_numpy(confidence.astype(np.float32)),
        presence=torch.from_numpy(finite.astype(np.float32)),
        source="raw",
        area_px2=torch.from_numpy(AREA_OF_BOX * (box[:, 2:] - box[:, :2]).prod(1)),
        skeleton=HALPE26,
        raw=torch.from_numpy(confidence.astype(np.float32)),
    )
    return GivenKeypoints(
        Detections(frames, names, box, np.ones(len(frames)), keypoints), named, path.name
    )


def _from_npz(path: Path) -> GivenKeypoints:
    rows, _, pose_model = people.read_keypoint_rows(path)
    source = rows.points.source
    skeleton = rows.points.skeleton.name
    if source not in SOURCES:
        raise UserError(
            f"{path} has confidence from {source[:80]!r}; expected one of {', '.join(SOURCES)}."
        )
    keypoints = replace(rows.points, skeleton=HALPE26).along(
        "keypoints",
        lambda value, stated: torch.from_numpy(to_halpe26(value.numpy(), skeleton, stated.fill)),
    )
    rows = replace(rows, score=np.ones(len(rows)), keypoints=keypoints, hands=None)
    return GivenKeypoints(rows, True, pose_model)
