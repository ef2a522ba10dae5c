"""Keypoint files of other programs: our npz, json of COCO, OpenPose, mmpose or MediaPipe, and npy.

docs/run.md shows each format.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ccnet.confidence import SOURCES
from fitmesh.person import FAR_PX
from fitmesh.stages import people
from pose2d.base.arrays import read_npy
from pose2d.base.errors import OptionError, UserError
from pose2d.base.json_files import Json, read_json
from pose2d.keypoint_layouts import HALPE26_IN, OPENPOSE18_TO_COCO17, to_halpe26
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import AREA_OF_BOX, NOBODY, Detections, Keypoints

# For each of Halpe's 26 keypoints its place in a file; None: the layout has no such keypoint.
Layout = tuple[int | None, ...]
_OPENPOSE18: Layout = (*OPENPOSE18_TO_COCO17, *(None,) * (HALPE26.size - COCO17.size))
COCO_LAYOUTS = {
    17: HALPE26_IN["coco17"],
    26: HALPE26_IN["halpe26"],
    133: HALPE26_IN["wholebody133"],
}
ARRAY_LAYOUTS = COCO_LAYOUTS | {33: HALPE26_IN["mediapipe33"]}
OPENPOSE_LAYOUTS = {25: HALPE26_IN["body_25"], 18: _OPENPOSE18}
LAYOUTS = ("auto", "body_25b")  # of --keypoint-layout: BODY_25 and BODY_25B both have 25 keypoints
VISIBLE = 0.05  # confidence from which a keypoint counts for the bounding box
# Coordinates within this share of the unit square are shares of the image, not pixels.
NORMALISED = 0.5
MARGIN = 0.1  # of the bounding box around the keypoints, as a share of their extent


@dataclass(frozen=True)
class GivenKeypoints:
    """The keypoints of a file."""

    rows: Detections  # with keypoints in Halpe's order
    named: bool  # whether it has identities
    pose_model: str  # the network, or the name of the file
    openpose: bool = False  # the file is in OpenPose's format


def files_of(path: Path) -> list[Path]:
    """Return the files of `path`: itself, or the files of OpenPose in a folder."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*_keypoints.json"))
    if not files:
        raise UserError(
            f"{path} holds no file that ends in _keypoints.json, as OpenPose writes one per frame.",
            file=path,
        )
    return files


def read_given(
    path: Path, layout: str = "auto", size: tuple[int, int] = (1000, 1000)
) -> GivenKeypoints:
    """Return the keypoints of a file or a folder in Halpe's order.

    layout: "body_25b" for files with 25 keypoints in OpenPose's BODY_25B order instead of BODY_25.
    size: the image's width and height, of which MediaPipe's landmarks are shares.
    """
    if layout not in LAYOUTS:
        raise OptionError(f"unknown --keypoint-layout {layout!r}: choose {' or '.join(LAYOUTS)}.")
    openpose = OPENPOSE_LAYOUTS | ({25: HALPE26_IN["body_25b"]} if layout == "body_25b" else {})
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    if path.suffix.lower() == ".npy":
        return _join_persons(_read_array(path), path)
    files = files_of(path)
    persons = list[Person]()
    for number, file in enumerate(files):
        content = read_json(file, _FORMATS)
        if "people" in content:
            match = re.search(r"(\d+)_keypoints\.json$", file.name)
            if match is None and len(files) > 1:
                expected = "expected a name that ends in a number and _keypoints.json"
                raise UserError(f"{file} does not tell its frame: {expected}.", file=file)
            # More than 18 digits are no number of a frame.
            frame = int(match[1][-18:]) if match and len(files) > 1 else 0
            persons += _openpose(content, frame, openpose)
        elif number == 0 and len(files) == 1:
            persons += _one_file(content, size)
        else:
            raise UserError(
                f'{file} has no "people": expected a file as OpenPose writes it.', file=file
            )
    return replace(_join_persons(persons, path), openpose="people" in content)


_FORMATS = (
    "Expected COCO keypoint results (image_id: the frame's number from 0; keypoints: x, y, "
    "confidence of COCO's 17, Halpe's 26 or COCO-WholeBody's 133; track_id where it is known), or "
    "files of OpenPose (people, pose_keypoints_2d), mmpose (instances) or MediaPipe "
    "(pose_landmarks): docs/run.md."
)
# Frame, identity where it is known, and [26, 3] x, y, confidence; NaN where the layout has no such
# keypoint.
Person = tuple[int, int | None, np.ndarray]


def _one_file(content: Json, size: tuple[int, int]) -> Iterable[Person]:
    """Return the persons of one json file, whose format its first entry tells."""
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
    """Yield the persons of mmpose, whose scripts differ in the number of the first frame."""
    begin = None
    for number, frame in enumerate(frames.items()):
        index = frame.get("frame_id", number).integer()
        begin = index if begin is None else begin
        for person in frame.item("instances").items():
            yield _mmpose_person(person, index - begin)


def _mmpose_person(person: Json, frame: int) -> Person:
    xy = [point.numbers(2) for point in person.item("keypoints").items()]
    scores = person.item("keypoint_scores").numbers(len(xy))
    flat = [
        float(value) for point, score in zip(xy, scores, strict=True) for value in (*point, score)
    ]
    points = _points(
        Json(flat, person.path, f"{person.where}.keypoints", person.expected), COCO_LAYOUTS
    )
    key = next((name for name in ("track_id", "instance_id") if name in person), None)
    return frame, None if key is None else person.item(key).integer(), points


def _mediapipe(frames: Json, size: tuple[int, int]) -> Iterator[Person]:
    """Yield the persons of MediaPipe, an entry a frame.

    {"pose_landmarks": ..} is of one person ({"landmark": [..]}, legacy) or of several (Tasks).
    """
    for number, frame in enumerate(frames.items()):
        landmarks = frame.get("pose_landmarks", [])
        if "landmark" in landmarks:
            persons = [landmarks.item("landmark")]
        else:
            persons = list(landmarks.items())
        if persons and not isinstance(persons[0].value, list):
            persons = [landmarks]  # of one person, without a list around them
        for person in persons:
            flat: list[float] = []
            for landmark in person.items():
                x = landmark.item("x").number() * size[0]
                y = landmark.item("y").number() * size[1]
                flat += [x, y, landmark.get("visibility", 1.0).number(0, 1)]
            points = _points(
                Json(flat, person.path, person.where, person.expected), {33: ARRAY_LAYOUTS[33]}
            )
            yield frame.get("frame", number).integer(), None, points


def _read_array(path: Path) -> list[Person]:
    """Return the persons of an array [T, K, 2 or 3] or [T, P, K, 2 or 3].

    The last axis holds pixels and, in the third place, confidence (1 where it is left out).
    """
    values = read_npy(path, "Expected keypoints.").astype(np.float64)
    if values.ndim == 3:
        values = values[:, None]
    if values.ndim != 4 or values.shape[2] not in ARRAY_LAYOUTS or values.shape[3] not in (2, 3):
        counts = ", ".join(map(str, ARRAY_LAYOUTS))
        raise UserError(
            f"{path} has shape {list(values.shape)}; expected [T, K, 3] or [T, P, K, 3] for T "
            f"frames, P people and K keypoints ({counts}): x, y in pixels and a confidence, which "
            "may be left out.",
            file=path,
        )
    if values.shape[3] == 2:
        values = np.concatenate([values, np.ones_like(values[..., :1])], -1)
    points = _in_halpe(values, ARRAY_LAYOUTS[values.shape[2]])
    frames, people_numbers = np.nonzero(np.isfinite(points).all(-1).any(-1))
    return [
        (frame, person, points[frame, person])
        for frame, person in zip(frames.tolist(), people_numbers.tolist(), strict=True)
    ]


def _coco(content: Json) -> Iterator[Person]:
    # In annotations the third number is 0 (not labelled), 1 (hidden) or 2 (visible).
    labelled = isinstance(content.value, Mapping)
    for entry in (content.item("annotations") if labelled else content).items():
        points = _points(entry.item("keypoints"), COCO_LAYOUTS)
        if labelled:
            points[:, 2] = np.where(np.isnan(points[:, 2]), np.nan, points[:, 2] > 0)
        track_id = entry.get("track_id", None)
        identity = None if track_id.value is None else track_id.integer()
        yield entry.item("image_id").integer(), identity, points


def _openpose(content: Json, frame: int, layouts: Mapping[int, Layout]) -> Iterator[Person]:
    for person in content.item("people").items():
        person_ids = person.get("person_id", []).items()
        identity = next((number.integer() for number in person_ids), -1)
        points = _points(person.item("pose_keypoints_2d"), layouts)
        yield frame, identity if identity >= 0 else None, points


def _points(numbers: Json, layouts: Mapping[int, Layout]) -> np.ndarray:
    """Return keypoints [26, 3] in Halpe's order from a flat list x, y, confidence, ..

    NaN where the layout has no such keypoint.
    """
    points = numbers.numbers(*(3 * count for count in layouts)).reshape(-1, 3)
    return _in_halpe(points, layouts[len(points)])


def _in_halpe(points: np.ndarray, layout: Layout) -> np.ndarray:
    """Return keypoints [.., K, 3] of a layout in Halpe's order [.., 26, 3]."""
    has = np.array([index is not None for index in layout])
    out = np.full((*points.shape[:-2], HALPE26.size, 3), np.nan)
    out[..., has, :] = points[..., [index for index in layout if index is not None], :]
    return out


def _join_persons(persons: list[Person], path: Path) -> GivenKeypoints:
    """Return the rows of all persons of a file, checked, with bounding boxes around keypoints."""
    points = np.zeros((0, HALPE26.size, 3))
    if persons:
        points = np.stack([points for *_, points in persons])
    finite = np.asarray(np.isfinite(points).all(-1))
    if (farthest := np.abs(points[finite][:, :2]).max(initial=0.0)) > FAR_PX:
        raise UserError(
            f"{path} has a keypoint at {farthest:.3g} px: no image is so large.", file=path
        )
    if (points[finite][:, 2] < 0).any():
        raise UserError(f"{path} has confidences below 0; expected 0 to 1.", file=path)
    confidence = np.where(finite, points[..., 2].clip(0, 1), 0)
    xy = points[confidence >= VISIBLE][:, :2]
    if len(xy) > 1 and xy.min() > -NORMALISED and xy.max() < 1 + NORMALISED:
        raise UserError(
            f"{path} has coordinates from {xy.min():.2f} to {xy.max():.2f}: shares of the image, "
            "not pixels. Multiply x by the image's width and y by its height.",
            file=path,
        )
    visible_persons = np.flatnonzero((confidence >= VISIBLE).sum(1))
    persons = [persons[row] for row in visible_persons]
    points = points[visible_persons]
    confidence = confidence[visible_persons]
    finite = finite[visible_persons]
    visible = confidence >= VISIBLE
    identities = [identity for _, identity, _ in persons]
    if None in identities and any(identity is not None for identity in identities):
        raise UserError(
            f"{path} has an identity for some people and none for others: give all of them one, or "
            "none.",
            file=path,
        )
    named = bool(identities) and None not in identities
    low = np.where(visible[..., None], points[..., :2], np.inf).min(1, initial=np.inf)
    high = np.where(visible[..., None], points[..., :2], -np.inf).max(1, initial=-np.inf)
    edge = MARGIN * (high - low).max(1, keepdims=True, initial=1)
    box = np.concatenate([low - edge, high + edge], 1)
    frames = np.array([frame for frame, *_ in persons], np.int64)
    names = np.array(identities if named else [NOBODY] * len(frames), np.int64)
    pairs, count = np.unique(np.stack([frames, names], 1), axis=0, return_counts=True)
    if named and (count > 1).any():
        frame, identity = pairs[count > 1][0]
        raise UserError(f"{path} has person {identity} twice in frame {frame}.", file=path)
    keypoints = Keypoints(
        xy_px=torch.from_numpy(points[..., :2].astype(np.float32)),
        confidence=torch.from_numpy(confidence.astype(np.float32)),
        presence=torch.from_numpy(finite.astype(np.float32)),
        source="raw",
        area_px2=torch.from_numpy(AREA_OF_BOX * (box[:, 2:] - box[:, :2]).prod(1)),
        skeleton=HALPE26,
        raw=torch.from_numpy(confidence.astype(np.float32)),
    )
    rows = Detections(frames, names, box, np.ones(len(frames)), keypoints)
    return GivenKeypoints(rows, named, path.name)


def _from_npz(path: Path) -> GivenKeypoints:
    rows, _, pose_model = people.read_keypoint_rows(path)
    source = rows.points.source
    skeleton = rows.points.skeleton.name
    if source not in SOURCES:
        raise UserError(
            f"{path} has confidence from {source[:80]!r}; expected one of {', '.join(SOURCES)}.",
            file=path,
        )
    keypoints = replace(rows.points, skeleton=HALPE26).along(
        "keypoints",
        lambda value, stated: torch.from_numpy(to_halpe26(value.numpy(), skeleton, stated.fill)),
    )
    rows = replace(rows, score=np.ones(len(rows)), keypoints=keypoints, hands=None)
    return GivenKeypoints(rows, True, pose_model)
