"""What `fitmesh run` found, read back: `fitmesh.load("out/")`.

`Manifest`: is a file in that folder ours, and still what we wrote? Names, sizes and digests are
kept in run.json."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import fitting
from pose2d.base.arrays import Array, check_arrays
from pose2d.base.caching import content_digest, read_cache_key, read_npz
from pose2d.base.columns import column
from pose2d.base.errors import UserError
from pose2d.base.files import file_sha256
from pose2d.base.json_files import read_json
from pose2d.base.table import Table
from pose2d.events import Event
from pose2d.skeletons import BY_NAME, COCO17

SCHEMA_VERSION = 5
# no joint turns further, nobody is farther away
MOST_RAD = 100.0
FAR_M = 1e6
FAR_PX = 1e7
FIT_FILE = "fit.npz"
OVERLAY_FILE = "overlay.mp4"
RUN_FILE = "run.json"
EDITS_FILE = "tracks_edits.json"  # by `fitmesh tracks`


@dataclass(frozen=True)
class Shot(Table):
    """Frames between two cuts: one camera, one world frame. A person lives in one shot."""

    PREFIX = "shot_"
    first_frame: int = column((), "i", "number of its first frame", low=0)
    camera: str = column((), "U", "how it moves: static, rotating, moving or unknown")
    # [3]; None: not known
    up_cam: np.ndarray | None = column(
        (3,), "f", "against gravity, in its first camera", low=-2, high=2, fill=np.nan
    )
    up_std_deg: float = column((), "f", "std of that; NaN: not known", unit="deg", low=0)
    floor_known: bool = column((), "b", "false: the world's y = 0 is the lowest foot")
    camera_height_m: float = column(
        (),
        "f",
        "of its first camera above the floor; NaN: not known",
        unit="m",
        low=-FAR_M,
        high=FAR_M,
    )
    focal_px: float = column(
        (), "d", "along x, of its first frame", unit="px", low=1e-3, high=FAR_PX, finite=True
    )
    focal_log_std: float = column((), "d", "std of log(focal_px); NaN: not known", low=0)
    focal_source: str = column((), "U", "where the focal length comes from")
    scene: str = column(
        (), "U", "gravity, floor and contacts: used, softened, dropped or not known", default=str
    )
    scene_reason: str = column(
        (), "U", "what they rest on, or why not, and whom they do not suit", default=str
    )


@dataclass(frozen=True)
class View(Table):
    """One of several cameras that a result was made from; its own keypoints and overlay are in
    cameras/NAME.
    """

    PREFIX = "view_"
    name: str = column((), "U", "of the camera")
    # [4, 4] x_view = R x + t
    from_camera: np.ndarray = column(
        (4, 4), "d", "from this result's camera frame", unit="m", finite=True
    )
    focal_px: np.ndarray = column(
        (2,), "d", "along x, along y", unit="px", low=1e-3, high=FAR_PX, finite=True
    )
    center_px: np.ndarray = column(
        (2,), "d", "principal point", unit="px", low=-FAR_PX, high=FAR_PX, finite=True
    )
    size_px: np.ndarray = column(
        (2,), "i", "width, height of its images", unit="px", low=1, high=FAR_PX
    )
    offset_s: float = column(
        (), "d", "what its clock lacks to the first camera's", unit="s", finite=True
    )
    offset_std_s: float = column((), "d", "std of that; 0: stated, NaN: not known", unit="s", low=0)


@dataclass(frozen=True)
class Person(Table):
    """One identity over the T frames of one shot in which the person is there: seen, or filled in
    over half a second.

    `frame` may have gaps: no row means that the person is absent. Camera frame: x right, y down, z
    forward. World frame: metres, y up, floor at 0, the shot's first camera above the origin looking
    along -z (`fitting.camera`). Pixels: x right, y down, (0, 0) is the top left pixel's centre.
    Keypoints in Halpe-26's order (COCO's 17 first), joints in SMPL's (`fitting.body.kinematics`).
    The columns that are the same for all rows have one entry a person in fit.npz; docs/run.md says
    more of each.
    """

    identity: int = column((), "i", "the person's number", each="people")
    frame: np.ndarray = column((), "i", "frame number in the clip", low=0)
    time_s: np.ndarray = column((), "d", "when each is shown", unit="s", in_files=False)
    observed: np.ndarray = column(
        (), "b", "false: too little was seen, filled in from the frames around"
    )
    # [T, 24, 3] each joint relative to its parent; joint 0 turns the body
    pose_rad: np.ndarray = column(
        (24, 3), "f", "axis-angle", unit="rad", finite=True, low=-MOST_RAD, high=MOST_RAD
    )
    translation_m: np.ndarray = column(
        (3,), "f", "added to every point", unit="m", finite=True, low=-FAR_M, high=FAR_M
    )
    shape: np.ndarray = column(
        ("directions",),
        "f",
        "in standard deviations",
        each="people",
        finite=True,
        low=-1e3,
        high=1e3,
    )
    joints_m: np.ndarray = column(
        (24, 3), "f", "camera frame", unit="m", finite=True, low=-FAR_M, high=FAR_M
    )
    # [T, 24] length of the standard deviations along x, y, z
    joint_std_mm: np.ndarray = column((24,), "f", "error to expect; NaN: unknown", unit="mm", low=0)
    joint_std_relative_mm: np.ndarray = column(
        (24,), "f", "the same relative to the pelvis", unit="mm", low=0
    )
    joint_observed: np.ndarray = column(
        (24,), "b", "a confident keypoint lies at the joint or farther out on its limb"
    )
    # [T, 26]
    keypoint_observed: np.ndarray = column(
        (26,), "f", "probability that it is near the truth", low=0, high=1
    )
    keypoints_px: np.ndarray = column(
        (26, 2),
        "f",
        "as the 2D network saw them; NaN: no detection",
        unit="px",
        low=-FAR_PX,
        high=FAR_PX,
    )
    swapped: np.ndarray = column(
        (26,), "b", "the network had called it by the name of the other side"
    )
    confidence: np.ndarray = column((26,), "f", "from `source`", low=0, high=1)
    presence: np.ndarray = column(
        (26,), "f", "probability that the keypoint is in the image", low=0, high=1
    )
    raw: np.ndarray = column((26,), "f", "the 2D network's own confidence")
    used: np.ndarray = column((26,), "b", "keypoints that pulled on the body")
    # [T, 26] of the body's keypoint
    reprojection_px: np.ndarray = column(
        (26,), "f", "distance to the seen one; NaN: it did not pull", unit="px", low=0
    )
    box_px: np.ndarray = column(
        (4,), "f", "x1, y1, x2, y2; NaN: no detection", unit="px", low=-FAR_PX, high=FAR_PX
    )
    converged: np.ndarray = column((), "b", "the search converged")
    stopped: str = column((), "U", "why the search ended", each="people")
    shot: int = column((), "i", "number of its shot", each="people", low=0)
    same_as: int = column(
        (), "i", "the earliest identity of the same person, or its own", each="people"
    )
    size: float = column(
        (), "f", "multiplies the posed body", each="people", finite=True, low=1e-3, high=1e3
    )
    height_m: float = column(
        (), "f", "standing, with its size", unit="m", each="people", finite=True, low=0, high=1e3
    )
    # [T, 4] left heel, left toes, right heel, right toes
    contact: np.ndarray = column((4,), "f", "probability that heels and toes stand", low=0, high=1)
    # [T, 24, 3] x right, y down, z along the optical axis: 68 % of errors are below
    joint_std_axes_mm: np.ndarray = column(
        (24, 3), "f", "std relative to the pelvis along the camera's axes", unit="mm", low=0
    )
    pose_std_deg: np.ndarray = column((24,), "f", "std of joints' rotations", unit="deg", low=0)
    # [T] of its joints relative to the pelvis (`reliable`)
    worst_error_mm: np.ndarray = column(
        (), "f", "median of the largest joint error; NaN: unknown", unit="mm", low=0
    )
    height_std_m: float = column(
        (), "f", "std of that; NaN: unknown", unit="m", each="people", default=lambda: np.nan
    )
    shape_covariance: np.ndarray = column(
        ("fitted", "fitted"),
        "f",
        "of the shape's first directions; NaN: unknown",
        each="people",
        default=lambda: np.full((10, 10), np.nan),
    )
    scene_used: bool = column(
        (), "b", "gravity and floor pulled on the body", each="people", default=bool
    )
    masks: int = column(
        (),
        "i",
        "masks that the shape was found from; 0: keypoints only",
        each="people",
        default=int,
    )
    # [T, 30, 3] SMPL-H's joints, zeros: flat hands; a hand that is not seen relaxes. None: hands
    # were not looked for
    hand_pose_rad: np.ndarray | None = column(
        (30, 3),
        "f",
        "axis-angle of finger joints",
        unit="rad",
        finite=True,
        low=-MOST_RAD,
        high=MOST_RAD,
        optional=True,
    )
    hand_std_deg: np.ndarray | None = column(
        (30,), "f", "std of their rotations", unit="deg", low=0, optional=True
    )
    hand_seen: np.ndarray | None = column(
        (2,), "b", "the left, the right hand is seen", optional=True
    )  # [T, 2]
    # [T, 4, 4] of its frames; None: gravity is not known
    world_from_camera: np.ndarray | None = column(
        (4, 4), "f", "to the world frame", optional=True, in_files=False
    )

    @property
    def confident(self) -> np.ndarray:
        """[T, 26] bool: keypoints that pulled and are probably in the image and close to the truth."""
        from fitting.keypoints.observed import OBSERVED_PROBABILITY

        return self.used & (self.keypoint_observed >= OBSERVED_PROBABILITY)

    def reliable(self, limit_mm: float = 50.0) -> np.ndarray:
        """[T] probability that no joint is off by more than limit_mm relative to the pelvis (hands
        apart); 0 in frames that were filled in, NaN where nothing is known."""
        from fitting.stated import probability_within

        if not limit_mm > 0:
            raise UserError(f"reliable({limit_mm}): give a limit in millimetres above 0.")
        return np.where(self.observed, probability_within(self.worst_error_mm, limit_mm), 0.0)

    def bounds_mm(self, level: float = 0.95) -> np.ndarray:
        """[T, 24, 3] how far a joint may be off along the camera's axes, relative to the pelvis: so
        large a share of errors is smaller. NaN where nothing is known."""
        from fitting.stated import level_factor

        if not 0 < level < 1:
            raise UserError(f"bounds_mm({level}): give a share of errors between 0 and 1.")
        return self.joint_std_axes_mm * level_factor(level, self.joint_observed, self.scene_used)

    def speeds_m_s(self) -> tuple[np.ndarray, np.ndarray]:
        """[T, 24] speed of every joint, in the world where it is known, else seen from the camera,
        and one standard deviation; NaN beside absences."""
        from fitting.stated import speed_std_m_s

        joints = self.joints_m if self.joints_world_m is None else self.joints_world_m
        speed = np.full(joints.shape[:2], np.nan)
        if len(self) > 2:
            step = np.diff(self.frame)
            even = np.flatnonzero(step[1:] == step[:-1]) + 1
            apart_s = (self.time_s[even + 1] - self.time_s[even - 1])[:, None]
            speed[even] = np.linalg.norm(joints[even + 1] - joints[even - 1], axis=-1) / apart_s
        return speed, speed_std_m_s(self.joint_std_relative_mm, self.joint_observed)

    @property
    def joints_world_m(self) -> np.ndarray | None:
        """[T, 24, 3] world frame, or None when there is none."""
        from fitting.camera.world import points_to_world

        if self.world_from_camera is None:
            return None
        return points_to_world(self.joints_m, self.world_from_camera).astype(np.float32)


@dataclass(frozen=True)
class Result:
    """Everyone in a clip. Numbers are float32 unless they count something."""

    folder: Path  # where it was read from
    people: list[Person]  # by rising identity
    shots: list[Shot]  # in order of time; at least one
    camera: "fitting.Camera"  # of the whole image, in the first frame
    frames: np.ndarray  # [F] numbers of the frames looked at
    time_s: np.ndarray  # [F] when each is shown
    focal_px: np.ndarray  # [F] along x; lenses differ by shot and may zoom
    world_from_camera: np.ndarray  # [F, 4, 4] metres; NaN in shots whose gravity is not known
    rate: Fraction  # frames per second of the clip
    body_name: str  # "open", or the name of the body file
    body_path: Path | None  # None: the open body that ships with fitmesh
    body_digest: str  # SHA-256 of the body file
    weighting: str  # how confidence became weight
    init: str  # what the search started from
    source: str  # where confidence comes from: ccnet, closed-form, raw or ones
    pose_model: str  # the 2D network
    clip_path: Path | None  # the video, image or folder of images, if the folder knows it
    settings: Mapping[str, Any]  # the run's options by name
    timings_s: Mapping[str, float]  # seconds per stage, of the run that made it
    events: list[Event] = field(default_factory=list)  # in order of time
    views: list[View] = field(
        default_factory=list
    )  # of several cameras, this one first; empty: there is one

    @property
    def size(self) -> tuple[int, int]:
        """Width, height of the images in pixels."""
        return self.camera.size

    @property
    def overlay_path(self) -> Path:
        return self.folder / OVERLAY_FILE

    @cached_property
    def body(self) -> "fitting.Body":
        """The body that was fitted; read when first asked for."""
        if self.body_path is None:
            return fitting.load_body()
        if not self.body_path.is_file():
            raise UserError(
                f"the body file {self.body_path} is no longer there: put it back, or run again."
            )
        if content_digest([self.body_path]) != self.body_digest:
            raise UserError(
                f"{self.body_path} is not the body that was fitted any more: put it back, or run again."
            )
        return fitting.load_body(self.body_path)

    def person(self, identity: int) -> Person:
        for person in self.people:
            if person.identity == identity:
                return person
        names = ", ".join(str(person.identity) for person in self.people)
        raise UserError(
            f"there is no person {identity} in {self.folder}: there are {names or 'none'}."
        )

    def camera_at(self, frame: int) -> "fitting.Camera":
        """The camera of one frame number."""
        row = int(np.searchsorted(self.frames, frame))
        if row == len(self.frames) or self.frames[row] != frame:
            raise UserError(f"frame {frame} is not among the frames of {self.folder}.")
        x, y = self.camera.focal_px
        focal = float(self.focal_px[row])
        return replace(self.camera, focal_px=(focal, focal * y / x))

    def shot_at(self, frame: int) -> int:
        """The number in `shots` of the shot that a frame number belongs to."""
        return (
            int(np.searchsorted([shot.first_frame for shot in self.shots], frame, side="right")) - 1
        )

    def params(
        self, person: Person, rows: slice | np.ndarray = slice(None)
    ) -> "fitting.BodyParams":
        """Of some rows of a person, as tensors."""
        import torch

        return fitting.BodyParams(
            torch.from_numpy(person.pose_rad[rows]),
            torch.from_numpy(person.shape),
            torch.from_numpy(person.translation_m[rows]),
            torch.tensor(person.size, dtype=torch.float32),
            None if person.hand_pose_rad is None else torch.from_numpy(person.hand_pose_rad[rows]),
        )

    def world_std_mm(self, person: Person) -> np.ndarray:
        """[T, 24] length of the error to expect in the world frame: that in the camera frame, and
        gravity's; NaN where one of them is not known."""
        lean = (
            np.radians(self.shots[person.shot].up_std_deg)
            if person.world_from_camera is not None
            else np.nan
        )
        return np.hypot(person.joint_std_mm, 1000 * lean * np.linalg.norm(person.joints_m, axis=-1))

    def segments_m(self, person: Person) -> dict[str, tuple[float, float]]:
        """Lengths of limbs from joint to joint, and one standard deviation (NaN: unknown)."""
        from fitting.body.kinematics import SEGMENTS

        covariance = self.params(person).shape.new_tensor(person.shape_covariance)
        lengths, stds = self.body.segments_m(person.shape, list(SEGMENTS.values()), covariance)
        pairs = zip(person.size * lengths, person.size * stds, strict=True)
        return {name: (float(a), float(b)) for name, (a, b) in zip(SEGMENTS, pairs, strict=True)}

    def girths_m(self, person: Person) -> dict[str, tuple[float, float]]:
        """Round chest, waist, hip and thigh of the body without clothes, and one standard deviation
        (NaN: unknown).
        """
        from fitting.body.body import GIRTHS

        covariance = self.params(person).shape.new_tensor(person.shape_covariance)
        lengths, stds = self.body.girths_m(person.shape, covariance)
        return {
            name: (person.size * a, person.size * b)
            for name, a, b in zip(GIRTHS, lengths, stds, strict=True)
        }

    def vertex_std_mm(self, person: Person) -> np.ndarray:
        """[V] how far each vertex of the body at rest may be off because its shape is not known:
        without masks, girth is only guessed from bones. NaN: unknown."""
        covariance = person.shape_covariance.astype(np.float64)
        directions = self.body.shapedirs[..., : len(covariance)].double().numpy()
        variance = np.einsum("vcs,sr,vcr->v", directions, covariance, directions)
        return 1000 * person.size * np.sqrt(variance.clip(0))

    def vertices(self, person: Person, row: int) -> np.ndarray:
        """The mesh [V, 3] in metres, camera frame, of one row; faces are `body.faces`."""
        posed = self.body.at(self.params(person, np.array([row])), vertices=True)
        assert posed.vertices is not None
        return posed.vertices[0].numpy()


# What the arrays of tracks.npz, keypoints.npz and fit.npz look like; docs/run.md says what they
# mean. Files may come from another machine or be damaged: nothing reads them before they have been
# checked here.

_TEXT = Array("U", ())
_SIDE = Array("i", (), low=1, high=1 << 20)  # of an image, pixels
_CLIP = {
    "width_px": _SIDE,
    "height_px": _SIDE,
    "rate": Array("i", (2,), low=1, high=2**53),
    "frame": Array("i", ("frames",), low=0, high=2**53),
    "time_s": Array("f", ("frames",), finite=True, low=-1e9, high=1e9),
}
_ROWS = {
    "identity": Array("i", ("people",)),
    "first_row": Array("i", ("people + 1",), low=0),
    "row_frame": Array("i", ("rows",), low=0, high=2**53),
}
_EVENTS = Event.schema(rows="events")
TRACKS = {
    **_CLIP,
    **_ROWS,
    "row_box_px": Array("f", ("rows", 4), finite=True, low=-FAR_PX, high=FAR_PX),
    "row_score": Array("f", ("rows",)),
    "warnings": Array("U", ("warnings",)),
    "shot_first_frame": Array("i", ("shots",), low=0),
    "same_as": Array("i", ("people",)),
    **_EVENTS,
    "camera_kind": Array("U", ("shots",), optional=True),
    "camera_reason": Array("U", ("shots",), optional=True),
    "camera_focal_px": Array("f", ("shots",), low=1, high=FAR_PX, finite=True, optional=True),
    "camera_first_from_frame": Array(
        "f", ("frames", 3, 3), finite=True, optional=True, low=-1.1, high=1.1
    ),
    "camera_zoom": Array("f", ("frames",), low=1e-3, high=1e3, finite=True, optional=True),
    "camera_turning_focal_px": Array("f", ("shots",), optional=True, low=1e-3),
    "camera_turning_focal_log_std": Array("f", ("shots",), optional=True, low=0),
    "camera_vertical": Array("f", ("shots", 3), optional=True, low=-1.1, high=1.1),
}


def fit_schema() -> dict[str, Array]:
    """Of fit.npz: what its tables declare, and what is the same for the whole clip."""
    return {
        **_CLIP,
        **_ROWS,
        **{
            name: _TEXT
            for name in (
                "body",
                "body_path",
                "body_digest",
                "weighting",
                "init",
                "source",
                "pose_model",
            )
        },
        "focal_px": Array("f", (2,), finite=True, low=1e-3, high=FAR_PX),
        "center_px": Array("f", (2,), finite=True, low=-FAR_PX, high=FAR_PX),
        "distortion": Array("f", ("coefficients",), finite=True, optional=True, low=-1e3, high=1e3),
        "frame_focal_px": Array("f", ("frames",), finite=True, low=1e-3, high=FAR_PX),
        "world_from_camera": Array("f", ("frames", 4, 4), low=-1e6, high=1e6),
        **_EVENTS,
        **Shot.schema(rows="shots"),
        **Person.schema(),
        **View.schema(rows="views", optional=True),
    }


def check_tracks(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    check_arrays(arrays, TRACKS, path, "a tracks.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)


def keypoints_schema(names: Iterable[str] = ()) -> dict[str, Array]:
    """Of a keypoints.npz that has arrays of these names: those of hands and masks come together, or
    not at all.
    """
    from pose2d.types import HandKeypoints, Keypoints, Outlines  # bring torch with them

    schema = {
        **_ROWS,
        "pose_model": _TEXT,
        "skeleton": _TEXT,
        "source": _TEXT,
        "row_box_px": Array("f", ("rows", 4), low=-FAR_PX, high=FAR_PX),
        **Keypoints.schema(),
        "row_xy_px": Array("f", ("rows", "keypoints", 2), low=-FAR_PX, high=FAR_PX),
        "row_area_px2": Array("f", ("rows",), low=0),
        "row_raw": Array("f", ("rows", "keypoints")),
    }
    for table, rows in ((HandKeypoints, "rows"), (Outlines, "masks")):
        schema |= table.schema(
            rows=rows, optional=not any(name.startswith(table.PREFIX) for name in names)
        )
    return schema


def check_keypoints(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    check_arrays(arrays, keypoints_schema(arrays), path, "a keypoints.npz of fitmesh")
    _check_rows(arrays, path)
    masks = arrays.get("mask_row", np.zeros(0))
    _demand((masks < len(arrays["row_frame"])).all(), path, "a mask belongs to nobody's row")
    name = str(arrays["skeleton"])
    if name not in BY_NAME:
        raise UserError(
            f"{path} has keypoints of {name[:80]!r}; expected one of {', '.join(BY_NAME)}."
        )
    skeleton = BY_NAME[name]
    if skeleton.keypoints[: COCO17.size] != COCO17.keypoints:
        raise UserError(
            f"{path} has keypoints of {name}; expected COCO's 17 or a set that begins with them."
        )
    if arrays["row_xy_px"].shape[1] != skeleton.size:
        raise UserError(
            f"{path} has {arrays['row_xy_px'].shape[1]} keypoints a person; {name} has {skeleton.size}."
        )


def check_fit(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    stated = arrays.get("schema_version")
    number = (
        int(stated)
        if stated is not None and stated.shape == () and stated.dtype.kind in "iu"
        else 0
    )
    if number != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema {number}, and this fitmesh reads {SCHEMA_VERSION}: make it anew with `fitmesh run`."
        )
    check_arrays(arrays, fit_schema(), path, "a fit.npz of fitmesh")
    _check_rows(arrays, path)
    _check_clip(arrays, path)
    _demand(
        (arrays["shot"] < len(arrays["shot_first_frame"])).all(),
        path,
        "a person is in a shot that is not there",
    )


def _demand(is_so: bool | np.bool_, path: Path, otherwise: str) -> None:
    if not is_so:
        raise UserError(f"{path} is damaged: {otherwise}.")


def _check_rows(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Everyone's rows, one after the other, frames rising."""
    first = arrays["first_row"].astype(np.int64)
    frame = arrays["row_frame"].astype(np.int64)
    people = len(arrays["identity"])
    rising = (
        len(first) == people + 1
        and first[0] == 0
        and first[-1] == len(frame)
        and (np.diff(first) > 0).all()
    )
    _demand(rising, path, "first_row does not say which rows belong to whom")
    _demand(len(np.unique(arrays["identity"])) == people, path, "two people have one identity")
    within = np.ones(max(len(frame) - 1, 0), np.bool_)
    within[first[1:-1] - 1] = False  # from one person to the next
    _demand((np.diff(frame)[within] > 0).all(), path, "the frames of a person do not rise")


def _check_clip(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Frames, shots and people of a clip."""
    for name in ("frame", "time_s"):
        _demand((np.diff(arrays[name]) > 0).all(), path, f"{name} does not rise")
    known = np.isin(arrays["row_frame"], arrays["frame"]).all()
    _demand(known, path, "it has somebody in a frame that was not looked at")
    first = arrays["shot_first_frame"].astype(np.int64)
    rising = (np.diff(first) > 0).all() and (len(first) > 0 or not len(arrays["frame"]))
    _demand(rising, path, "shot_first_frame does not say where shots begin")
    _demand(
        np.isin(arrays["same_as"], arrays["identity"]).all(),
        path,
        "same_as names somebody who is not there",
    )


def load(folder: str | Path) -> Result:
    """What a run left in `folder`."""
    folder = Path(folder)
    if folder.is_file() and folder.name == FIT_FILE:
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder of results. Give the --out folder of `fitmesh run`."
        )
    arrays = read_npz(folder / FIT_FILE)
    check_fit(arrays, folder / FIT_FILE)
    try:
        about = read_json(
            folder / RUN_FILE
        ).object()  # what the run said of itself; the fit can be read without it
    except UserError:
        about = {}
    body_path = str(arrays["body_path"])
    at = np.searchsorted(arrays["frame"], arrays["row_frame"])
    people = Person.from_groups(
        arrays,
        time_s=arrays["time_s"][at],
        world_from_camera=arrays["world_from_camera"][at],
    )
    return Result(
        folder=folder,
        people=[
            replace(person, world_from_camera=_known(person.world_from_camera)) for person in people
        ],
        shots=[
            replace(shot, up_cam=_known(shot.up_cam)) for shot in Shot.from_arrays(arrays).each()
        ],
        camera=fitting.Camera(
            tuple(arrays["focal_px"].astype(float).tolist()),
            tuple(arrays["center_px"].astype(float).tolist()),
            (int(arrays["width_px"]), int(arrays["height_px"])),
            tuple(arrays.get("distortion", np.zeros(0)).tolist()),
        ),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        focal_px=arrays["frame_focal_px"],
        world_from_camera=arrays["world_from_camera"],
        events=Event.from_arrays(arrays).each(),
        views=View.from_arrays(arrays).each() if "view_name" in arrays else [],
        rate=Fraction(*map(int, arrays["rate"])),
        body_name=str(arrays["body"]),
        body_path=Path(body_path) if body_path else None,
        clip_path=Path(about["clip"])
        if isinstance(about.get("clip"), str) and about["clip"]
        else None,
        settings=about["settings"] if isinstance(about.get("settings"), dict) else {},
        timings_s=numbers_of(about.get("timings_s")),
        **{
            name: str(arrays[name])
            for name in ("body_digest", "weighting", "init", "source", "pose_model")
        },
    )


def _known(values: np.ndarray | None) -> np.ndarray | None:
    return values if values is not None and np.isfinite(values).all() else None


def numbers_of(stated: Any) -> dict[str, float]:
    """The finite numbers of an object in run.json, which anyone may have edited."""
    given = stated.items() if isinstance(stated, dict) else ()
    return {
        name: float(value)
        for name, value in given
        if type(value) in (int, float) and 0 <= value < 1e9
    }


MOST_FILES = 200
CACHE_FOLDER = ".cache_keys"  # of exports


@dataclass
class Manifest:
    """Digests of the files that a run left in a folder, by name. A file without one is not vouched
    for by anybody.
    """

    out: Path
    digests: dict[str, str] = field(default_factory=dict)  # "BYTES SHA-256"
    entries: set[str] = field(
        default_factory=set
    )  # names in the folder that runs have written or begun to write

    @classmethod
    def read(cls, out: Path) -> "Manifest":
        """As the last run recorded them. Where that is lost, a folder with cache keys of ours is
        ours as a whole.
        """
        try:
            stated = read_json(out / RUN_FILE)
            digests = stated.item("files").object()
            entries = stated.item("entries").items()
        except UserError:
            is_ours = (out / CACHE_FOLDER).is_dir() or any(map(read_cache_key, out.glob("*.npz")))
            return cls(out, entries={path.name for path in out.iterdir()} if is_ours else set())
        known = {name: value for name, value in digests.items() if isinstance(value, str)}
        return cls(out, known, {str(entry.value) for entry in entries})

    def claim(self, names: Sequence[str], inputs: Iterable[Path], overwrite: bool) -> None:
        """These names are written from now on. UserError where one is an input, or what no run has
        written.
        """
        places = {self.out.resolve() / name for name in names}
        for path in inputs:
            if any(
                not places.isdisjoint((p, *p.parents))
                for p in (path.resolve(), path.parent.resolve() / path.name)
            ):
                raise UserError(
                    f"{path} is an input of this run, which would write over it: choose another --out."
                )
        foreign = [
            name for name in names if name not in self.entries and os.path.lexists(self.out / name)
        ]
        if foreign and not overwrite:
            raise UserError(
                f"{self.out} holds {', '.join(foreign)}, which fitmesh has not written and would replace: choose "
                "another --out, or --overwrite."
            )
        self.entries |= {*names}

    def changed(self, names: Iterable[str]) -> list[str]:
        """Files that are there and differ from what was written."""
        return [
            name
            for name in names
            if name in self.digests
            and (self.out / name).is_file()
            and _digest(self.out / name) != self.digests[name]
        ]

    def is_whole(self) -> bool:
        """Whether every file that was written is there as it was; not so where nothing is recorded."""
        there = all((self.out / name).is_file() for name in self.digests)
        return bool(self.digests) and there and not self.changed(self.digests)

    def record(self, names: Iterable[str]) -> None:
        """Of an export of more files than MOST_FILES (an .obj a frame) only the sizes are known, in
        its own note.
        """
        known = [name for name in names if (self.out / name).is_file()]
        if len(known) <= MOST_FILES:
            self.digests |= {name: _digest(self.out / name) for name in known}

    def forget(self, names: Iterable[str]) -> bool:
        """Whether there was anything to forget."""
        return any([self.digests.pop(name, "") for name in names])


def _digest(path: Path) -> str:
    digest = file_sha256(path)  # first: it says so where the file cannot be read
    return f"{path.stat().st_size} {digest}"
