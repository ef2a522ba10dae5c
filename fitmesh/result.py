"""What `fitmesh run` found, read back: `fitmesh.load("out/")`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import fitting
from fitmesh.schemas import check_fit
from pose2d.base.caching import content_digest, read_npz
from pose2d.base.errors import UserError
from pose2d.base.json_files import read_json
from pose2d.events import Event

SCHEMA_VERSION = 3
FIT_FILE, OVERLAY_FILE, RUN_FILE = "fit.npz", "overlay.mp4", "run.json"
EDITS_FILE = "tracks_edits.json"  # by `fitmesh tracks`


@dataclass(frozen=True)
class Shot:
    """Frames between two cuts: one camera, one world frame. A person lives in one shot."""

    first_frame: int  # number of its first frame
    camera: str  # how it moves: static, rotating, moving or unknown
    up_cam: np.ndarray | None  # [3] against gravity, in the frame of its first camera; None: not known
    up_std_deg: float  # how well; NaN: not known
    floor_known: bool  # False: the world's y = 0 is the lowest foot
    camera_height_m: float  # of its first camera above the floor; NaN: not known
    focal_px: float  # along x, of its first frame
    focal_log_std: float  # standard deviation of log(focal_px); NaN: not known
    focal_source: str  # where the focal length comes from


@dataclass(frozen=True)
class Person:
    """One identity over the T frames of one shot in which the person is there: seen, or filled in over half a second.

    `frame` may have gaps: no row means that the person is absent.
    Camera frame: x right, y down, z forward. World frame: metres, y up, floor at 0, the shot's first camera above the
    origin looking along -z (`fitting.scene.world`). Pixels: x right, y down, (0, 0) is the top left pixel's centre.
    Keypoints in Halpe-26's order (COCO's 17 first), joints in SMPL's (`fitting.body.kinematics`).
    """

    identity: int
    frame: np.ndarray  # [T] frame numbers in the clip
    time_s: np.ndarray  # [T] when each is shown
    observed: np.ndarray  # [T] bool; false: too little was seen, filled in from the frames around
    pose_rad: np.ndarray  # [T, 24, 3] axis-angle, each joint relative to its parent; joint 0 turns the body
    translation_m: np.ndarray  # [T, 3] added to every point, camera frame
    shape: np.ndarray  # [S] standard deviations, one shape for all frames
    joints_m: np.ndarray  # [T, 24, 3] camera frame
    joint_std_mm: np.ndarray  # [T, 24] error to expect (length of the standard deviations along x, y, z); NaN: unknown
    joint_std_relative_mm: np.ndarray  # [T, 24] the same relative to the pelvis
    joint_observed: np.ndarray  # [T, 24] bool; a confident keypoint lies at the joint or farther out on its limb
    keypoint_observed: np.ndarray  # [T, 26] probability that a keypoint is in the image and close to the truth
    keypoints_px: np.ndarray  # [T, 26, 2] as the 2D network saw them, NaN in frames without a detection
    swapped: np.ndarray  # [T, 26] bool; the network had called it by the name of the other side
    confidence: np.ndarray  # [T, 26] in 0..1, from `Result.source`
    presence: np.ndarray  # [T, 26] probability that the keypoint is in the image
    raw: np.ndarray  # [T, 26] the 2D network's own confidence
    used: np.ndarray  # [T, 26] bool, keypoints that pulled on the body
    reprojection_px: np.ndarray  # [T, 26] distance of the body's keypoint to the seen one, NaN where it did not pull
    box_px: np.ndarray  # [T, 4] x1, y1, x2, y2, NaN in frames without a detection
    converged: np.ndarray  # [T] bool
    stopped: str  # why the search ended
    shot: int  # number of its shot in `Result.shots`
    same_as: int  # identity of the earliest track judged to be the same person, or its own
    size: float  # multiplies the posed body before it is moved; 1: an adult of this shape
    height_m: float  # standing, with its size
    contact: np.ndarray  # [T, 4] probability that left heel, left toes, right heel, right toes stand
    world_from_camera: np.ndarray | None  # [T, 4, 4] of its frames; None: gravity is not known

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def confident(self) -> np.ndarray:
        """[T, 26] bool: keypoints that pulled and are probably in the image and close to the truth."""
        from fitting.keypoints.observed import OBSERVED_PROBABILITY

        return self.used & (self.keypoint_observed >= OBSERVED_PROBABILITY)

    @property
    def joints_world_m(self) -> np.ndarray | None:
        """[T, 24, 3] world frame, or None when there is none."""
        from fitting.scene.world import points_to_world

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
            raise UserError(f"the body file {self.body_path} is no longer there: put it back, or run again.")
        if content_digest([self.body_path]) != self.body_digest:
            raise UserError(f"{self.body_path} is not the body that was fitted any more: put it back, or run again.")
        return fitting.load_body(self.body_path)

    def person(self, identity: int) -> Person:
        for person in self.people:
            if person.identity == identity:
                return person
        names = ", ".join(str(person.identity) for person in self.people)
        raise UserError(f"there is no person {identity} in {self.folder}: there are {names or 'none'}.")

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
        return int(np.searchsorted([shot.first_frame for shot in self.shots], frame, side="right")) - 1

    def params(self, person: Person, rows: slice | np.ndarray = slice(None)) -> "fitting.BodyParams":
        """Of some rows of a person, as tensors."""
        import torch

        return fitting.BodyParams(
            torch.from_numpy(person.pose_rad[rows]),
            torch.from_numpy(person.shape),
            torch.from_numpy(person.translation_m[rows]),
            torch.tensor(person.size, dtype=torch.float32),
        )

    def vertices(self, person: Person, row: int) -> np.ndarray:
        """The mesh [V, 3] in metres, camera frame, of one row; faces are `body.faces`."""
        posed = self.body.at(self.params(person, slice(row, row + 1) if row != -1 else slice(row, None)), vertices=True)
        assert posed.vertices is not None
        return posed.vertices[0].numpy()


def load(folder: str | Path) -> Result:
    """What a run left in `folder`."""
    folder = Path(folder)
    if folder.is_file() and folder.name == FIT_FILE:
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of results. Give the --out folder of `fitmesh run`.")
    arrays = read_npz(folder / FIT_FILE)
    check_fit(arrays, folder / FIT_FILE, SCHEMA_VERSION)
    about = _about(folder)
    body_path = str(arrays["body_path"])
    return Result(
        folder=folder,
        people=_people(arrays),
        shots=_shots(arrays),
        camera=fitting.Camera(
            (float(arrays["focal_px"][0]), float(arrays["focal_px"][1])),
            (float(arrays["center_px"][0]), float(arrays["center_px"][1])),
            (int(arrays["width_px"]), int(arrays["height_px"])),
            tuple(arrays.get("distortion", np.zeros(0)).tolist()),
        ),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        focal_px=arrays["frame_focal_px"],
        world_from_camera=arrays["world_from_camera"],
        events=[Event.from_line(str(line)) for line in arrays["events"]],
        rate=Fraction(*map(int, arrays["rate"])),
        body_name=str(arrays["body"]),
        body_path=Path(body_path) if body_path else None,
        body_digest=str(arrays["body_digest"]),
        weighting=str(arrays["weighting"]),
        init=str(arrays["init"]),
        source=str(arrays["source"]),
        pose_model=str(arrays["pose_model"]),
        clip_path=Path(about["clip"]) if isinstance(about.get("clip"), str) and about["clip"] else None,
        settings=about["settings"] if isinstance(about.get("settings"), dict) else {},
        timings_s=numbers_of(about.get("timings_s")),
    )


def _people(arrays: Mapping[str, np.ndarray]) -> list[Person]:
    first = arrays["first_row"]
    times = dict(zip(arrays["frame"].tolist(), arrays["time_s"].tolist(), strict=True))
    people = []
    for number, (a, b) in enumerate(pairwise(first.tolist())):
        world = arrays["world_from_camera"][np.searchsorted(arrays["frame"], arrays["row_frame"][a:b])]
        rows = {name.removeprefix("row_"): arrays[name][a:b] for name in arrays if name.startswith("row_")}
        people.append(
            Person(
                identity=int(arrays["identity"][number]),
                time_s=np.array([times[frame] for frame in rows["frame"].tolist()]),
                shape=arrays["shape"][number],
                stopped=str(arrays["stopped"][number]),
                shot=int(arrays["shot"][number]),
                same_as=int(arrays["same_as"][number]),
                size=float(arrays["size"][number]),
                height_m=float(arrays["height_m"][number]),
                world_from_camera=world if np.isfinite(world).all() else None,
                **rows,
            )
        )
    return people


def _shots(arrays: Mapping[str, np.ndarray]) -> list[Shot]:
    return [
        Shot(
            first_frame=int(arrays["shot_first_frame"][number]),
            camera=str(arrays["shot_camera"][number]),
            up_cam=up if np.isfinite(up).all() else None,
            up_std_deg=float(arrays["shot_up_std_deg"][number]),
            floor_known=bool(arrays["shot_floor_known"][number]),
            camera_height_m=float(arrays["shot_camera_height_m"][number]),
            focal_px=float(arrays["shot_focal_px"][number]),
            focal_log_std=float(arrays["shot_focal_log_std"][number]),
            focal_source=str(arrays["shot_focal_source"][number]),
        )
        for number, up in enumerate(arrays["shot_up_cam"])
    ]


def numbers_of(stated: Any) -> dict[str, float]:
    """The finite numbers of an object in run.json, which anyone may have edited."""
    given = stated.items() if isinstance(stated, dict) else ()
    return {name: float(value) for name, value in given if type(value) in (int, float) and 0 <= value < 1e9}


def _about(folder: Path) -> Mapping[str, Any]:
    """What the run said of itself; the fit can be read without it."""
    try:
        return read_json(folder / RUN_FILE).object()
    except UserError:
        return {}
