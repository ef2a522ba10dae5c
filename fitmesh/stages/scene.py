"""The scene of a run, as stated and as found: lens, gravity, floor, and their arrays in `fit.npz`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.options import ranges
from fitmesh.person import Shot
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate, focal_from_user, focal_prior
from fitting.camera.pinhole import COUNTS
from fitting.camera.world import world_from_camera
from fitting.scene.ground import describe_tilt
from fitting.scene.ground_problem import GivenGround
from fitting.shot import SceneOptions, ShotFit
from pose2d.base.json_files import read_json
from pose2d.video.lens_metadata import read_lens_metadata

OFF, AUTO = "off", "auto"
MOST_DISTORTION = 1e4  # of a coefficient; those of OpenCV's rational model reach hundreds
CAMERA_HEIGHT_M = (0.01, 1000.0)


@dataclass(frozen=True)
class Lens:
    """The camera of a clip before the fit."""

    camera: Camera
    focal: FocalEstimate
    known: bool  # stated by the user or by the file
    warning: str  # what is wrong with the file's own statement; empty: nothing


def lens_of(
    clip: Path,
    size: tuple[int, int],
    focal_px: float | None = None,
    fov_deg: float | None = None,
    intrinsics: Path | None = None,
) -> Lens:
    """Return the lens as the user states it, else as the file does, else a usual one."""
    if intrinsics is not None:
        camera = _read_intrinsics(intrinsics, size)
        return Lens(camera, focal_from_user(camera.mean_focal_px, size), True, "")
    if focal_px is not None:
        return _known_lens(focal_from_user(focal_px, size), size)
    if fov_deg is not None:
        camera = Camera.from_field_of_view(fov_deg, size, across="width")
        return _known_lens(focal_from_user(camera.mean_focal_px, size), size)
    metadata = read_lens_metadata(clip, size) if clip.is_file() else None
    if metadata is not None and metadata.focal_px is not None:
        source = f"metadata: {metadata.source}"
        return _known_lens(FocalEstimate(metadata.focal_px, metadata.log_sigma, source), size)
    prior = focal_prior(size)
    warning = ""
    if metadata is not None and "not believable" in metadata.reason:
        warning = metadata.reason
    return Lens(Camera.from_focal(prior.focal_px, size), prior, False, warning)


def scene_options(floor: str) -> SceneOptions:
    """Return how gravity and floor are found; floor: off, auto, or a json file that states them."""
    if floor in (OFF, AUTO):
        return SceneOptions(ground=floor == AUTO)
    return SceneOptions(user_ground=read_floor(Path(floor)))


def _known_lens(focal: FocalEstimate, size: tuple[int, int]) -> Lens:
    return Lens(Camera.from_focal(focal.focal_px, size), focal, True, "")


def _read_intrinsics(path: Path, size: tuple[int, int]) -> Camera:
    content = read_json(
        path,
        'Expected "matrix" [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels and, if any, '
        '"distortion" [k1, k2, p1, p2, ..].',
    )
    rows = [row.finite_numbers(3) for row in content.item("matrix").items()]
    distortion = content.get("distortion", []).finite_numbers(*COUNTS)
    camera = Camera.from_intrinsics(np.array(rows), size, distortion)
    for focal_px in camera.focal_px:
        if problem := ranges.FOCAL_PX.problem(focal_px):
            raise content.item("matrix").refuse(f"has a focal length that {problem}")
    x, y = camera.center_px
    if not (0 < x < size[0] and 0 < y < size[1]):
        raise content.item("matrix").refuse(
            f"has the principal point ({x:g}, {y:g}), which lies outside of the {size[0]}x{size[1]} image"
        )
    if np.abs(distortion).max(initial=0) > MOST_DISTORTION:
        raise content.item("distortion").refuse(
            f"has a number beyond +-{MOST_DISTORTION:g}, which no lens has"
        )
    return camera


def read_floor(path: Path) -> GivenGround:
    """Return the up direction, the camera height or both, as a json file states them."""
    content = read_json(
        path,
        'Expected "up" [x, y, z] (against gravity, in the camera frame: x right, y down, '
        'z forward), "camera_height_m" (metres over the floor) or both; or, instead of a file, '
        f"one of the words {OFF} and {AUTO}.",
    )
    up = content.item("up").finite_numbers(3) if "up" in content else None
    height = (
        content.item("camera_height_m").number(*CAMERA_HEIGHT_M)
        if "camera_height_m" in content
        else None
    )
    if up is None:
        if height is None:
            raise content.refuse("states no floor")
        return GivenGround(None, height)
    length = float(np.abs(up).max())
    if not 1e-6 < length < 1e6:
        raise content.item("up").refuse(
            f"has {length:g} as its largest number, which is no direction"
        )
    length = float(np.linalg.norm(up))
    x, y, z = (up / length).tolist()
    return GivenGround((x, y, z), height)


def scene_arrays(
    fits: Sequence[ShotFit], first_frames: np.ndarray, frames: np.ndarray, lowest_m: Sequence[float]
) -> Mapping[str, Any]:
    """Return the arrays of `fit.npz` about shots, gravity, floor and lens.

    first_frames [S] and fits: of each shot; frames [F]: all that were read; lowest_m: up . x of the
    lowest foot of each shot, where gravity is known.
    """
    world = np.full((len(frames), 4, 4), np.nan, np.float32)
    focal = np.zeros(len(frames))
    shots: list[Shot] = []
    ends = [*first_frames[1:].tolist(), np.inf]
    for fit, first, end, lowest in zip(fits, first_frames.tolist(), ends, lowest_m, strict=True):
        in_shot = (frames >= first) & (frames < end)
        ground = fit.ground
        motion = fit.motion
        rows = np.arange(int(in_shot.sum()))
        turned = None if motion is None else motion.turning(rows)
        zoom = 1.0 if motion is None else motion.zooming(rows)
        is_floor_known = _knows_floor(fit)
        camera_height_m = np.nan
        if ground is not None:
            if is_floor_known:
                camera_height_m = ground.camera_height_m
            height_m = ground.camera_height_m if is_floor_known else -lowest
            world[in_shot] = world_from_camera(ground.up_cam, height_m, turned, len(rows))
        focal[in_shot] = fit.camera.focal_px[0] * (1.0 if zoom is None else zoom)
        shots.append(
            Shot(
                first_frame=first,
                camera="unknown" if motion is None else motion.kind,
                up_cam=None if ground is None else ground.up_cam,
                up_std_deg=np.nan if ground is None else ground.up_sigma_deg,
                floor_known=is_floor_known,
                camera_height_m=camera_height_m,
                focal_px=fit.camera.focal_px[0],
                focal_log_std=fit.focal.log_sigma,
                focal_source=fit.focal.source,
                scene=fit.verdict,
                scene_reason=fit.reason + _exceptions(fit),
            )
        )
    return {**Shot.stack(shots).to_arrays(), "world_from_camera": world, "frame_focal_px": focal}


def describe(fit: ShotFit, when: str) -> str:
    """Return one shot's scene in words."""
    camera = "camera motion not examined"
    if fit.motion is not None:
        camera = f"{fit.motion.kind} camera ({fit.motion.reason})"
    lens = (
        f"focal length {fit.focal.focal_px:.0f} px +- {100 * fit.focal.log_sigma:.0f} % "
        f"({fit.focal.source})"
    )
    if fit.ground is None:
        return f"{when}: {camera}; {lens}; gravity and floor not known: {fit.reason}"
    tilt = f"looking {describe_tilt(fit.ground.up_cam)} +- {fit.ground.up_sigma_deg:.0f}"
    over = f"{fit.ground.camera_height_m:.1f} m over the floor, " if _knows_floor(fit) else ""
    return f"{when}: {camera}; {lens}; camera {over}{tilt} ({fit.reason}){_exceptions(fit)}"


def _knows_floor(fit: ShotFit) -> bool:
    """Return whether a shot has a floor: a camera that goes somewhere leaves none in its place."""
    is_moving = fit.motion is not None and fit.motion.kind == "moving"
    return fit.ground is not None and fit.ground.floor_known and not is_moving


def _exceptions(fit: ShotFit) -> str:
    """Return in words for which people the scene was softened, and which are fitted without."""
    parts = []
    for verdict, words in (("softened", "softened for"), ("dropped", "not used for")):
        names = [str(identity) for identity, own in fit.decisions.items() if own.verdict == verdict]
        if names:
            people = "person" if len(names) == 1 else "people"
            parts.append(f"; {words} {people} {', '.join(names)}, whose keypoints contradict it")
    return "".join(parts)
