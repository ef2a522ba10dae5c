"""What a run is told and finds about its scene: lens, gravity, floor, people's heights; its arrays
in `fit.npz`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitmesh.result import Shot
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate, focal_from_user, focal_prior
from fitting.camera.pinhole import COUNTS
from fitting.camera.world import world_from_camera
from fitting.scene.ground_problem import GivenGround
from fitting.shot import SceneOptions, ShotFit
from pose2d.base.json_files import read_json
from pose2d.video.lens_metadata import read_lens_metadata

OFF, AUTO = "off", "auto"


@dataclass(frozen=True)
class Lens:
    """The camera of a clip before anybody was fitted."""

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
    """The user's word, then the file's, then what cameras have."""
    if intrinsics is not None:
        camera = _read_intrinsics(intrinsics, size)
        return Lens(camera, focal_from_user(camera.mean_focal_px, size), True, "")
    if focal_px is not None:
        return _stated(focal_from_user(focal_px, size), size)
    if fov_deg is not None:
        camera = Camera.from_field_of_view(fov_deg, size, across="width")
        return _stated(focal_from_user(camera.mean_focal_px, size), size)
    metadata = read_lens_metadata(clip, size) if clip.is_file() else None
    if metadata is not None and metadata.focal_px is not None:
        return _stated(
            FocalEstimate(metadata.focal_px, metadata.log_sigma, f"metadata: {metadata.source}"),
            size,
        )
    prior = focal_prior(size)
    warning = (
        metadata.reason if metadata is not None and "not believable" in metadata.reason else ""
    )
    return Lens(Camera.from_focal(prior.focal_px, size), prior, False, warning)


def scene_options(floor: str) -> SceneOptions:
    """Of gravity and floor: off, auto, or a json file with up and camera_height_m."""
    if floor in (OFF, AUTO):
        return SceneOptions(ground=floor == AUTO)
    return SceneOptions(given=read_floor(Path(floor)))


def _stated(focal: FocalEstimate, size: tuple[int, int]) -> Lens:
    return Lens(Camera.from_focal(focal.focal_px, size), focal, True, "")


def _read_intrinsics(path: Path, size: tuple[int, int]) -> Camera:
    content = read_json(
        path,
        'Expected "matrix" [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels and, if any, "distortion" '
        "[k1, k2, p1, p2, ..].",
    )
    matrix = np.array([row.finite_numbers(3) for row in content.item("matrix").items()])
    return Camera.from_intrinsics(
        matrix, size, content.get("distortion", []).finite_numbers(*COUNTS)
    )


def read_floor(path: Path) -> GivenGround:
    """Up direction and camera height of a json file, either of them alone or both."""
    content = read_json(
        path,
        'Expected "up" [x, y, z] (against gravity, in the camera frame: x right, y down, z forward), "camera_height_m" '
        f"(metres over the floor) or both; or, instead of a file, one of the words {OFF} and {AUTO}.",
    )
    up = content.item("up").finite_numbers(3) if "up" in content else None
    height = (
        content.item("camera_height_m").number(1e-3, 1e4) if "camera_height_m" in content else None
    )
    if up is None:
        if height is None:
            raise content.refuse("states no floor")
        return GivenGround(None, height)
    length = float(np.linalg.norm(up))
    if not length > 1e-6:
        raise content.item("up").refuse("has no direction")
    x, y, z = (up / length).tolist()
    return GivenGround((x, y, z), height)


# --- fit.npz
# --------------------------------------------------------------------------------------------------------


def scene_arrays(
    fits: Sequence[ShotFit], first_frames: np.ndarray, frames: np.ndarray, lowest_m: Sequence[float]
) -> Mapping[str, Any]:
    """The arrays about shots, gravity, floor and lens. first_frames [S] and fits: of each shot;
    frames [F]: all that were read; lowest_m: up . x of the lowest foot of each shot, where gravity
    is known."""
    world = np.full((len(frames), 4, 4), np.nan, np.float32)
    focal = np.zeros(len(frames))
    shots: list[Shot] = []
    ends = [*first_frames[1:].tolist(), np.inf]
    for fit, first, end, lowest in zip(fits, first_frames.tolist(), ends, lowest_m, strict=True):
        here = (frames >= first) & (frames < end)
        ground = fit.ground
        motion = fit.motion
        moving = motion is not None and motion.kind == "moving"
        every = np.arange(int(here.sum()))
        turned, zoom = (
            (None, None) if motion is None else (motion.turning(every), motion.zooming(every))
        )
        floor = ground is not None and ground.floor_known and not moving
        if ground is not None:
            height = ground.camera_height_m if floor else -lowest
            world[here] = world_from_camera(ground.up_cam, height, turned, len(every))
        focal[here] = fit.camera.focal_px[0] * (1.0 if zoom is None else zoom)
        shots.append(
            Shot(
                first_frame=first,
                camera="unknown" if motion is None else motion.kind,
                up_cam=None if ground is None else ground.up_cam,
                up_std_deg=np.nan if ground is None else ground.up_sigma_deg,
                floor_known=floor,
                camera_height_m=ground.camera_height_m if ground is not None and floor else np.nan,
                focal_px=fit.camera.focal_px[0],
                focal_log_std=fit.focal.log_sigma,
                focal_source=fit.focal.source,
                scene=fit.verdict,
                scene_reason=fit.reason + _exceptions(fit),
            )
        )
    return {**Shot.stack(shots).to_arrays(), "world_from_camera": world, "frame_focal_px": focal}


def describe(fit: ShotFit, when: str) -> str:
    """One shot's scene in words."""
    camera = (
        "camera not looked at"
        if fit.motion is None
        else f"{fit.motion.kind} camera ({fit.motion.reason})"
    )
    lens = f"focal length {fit.focal.focal_px:.0f} px +- {100 * fit.focal.log_sigma:.0f} % ({fit.focal.source})"
    if fit.ground is None:
        return f"{when}: {camera}; {lens}; gravity and floor not known: {fit.reason}"
    pitch = math.degrees(math.asin(np.clip(-fit.ground.up_cam[2], -1, 1)))
    over = f"{fit.ground.camera_height_m:.1f} m over the floor, " if fit.ground.floor_known else ""
    words = f"{when}: {camera}; {lens}; camera {over}looking {pitch:.0f} degrees down +- {fit.ground.up_sigma_deg:.0f}"
    return f"{words} ({fit.reason}){_exceptions(fit)}"


def _exceptions(fit: ShotFit) -> str:
    """Whom the scene was softened for, and who is fitted without."""
    parts = []
    for verdict, what in (("softened", "softened for"), ("dropped", "not used for")):
        who = [
            str(identity)
            for identity, decision in fit.decisions.items()
            if decision.verdict == verdict
        ]
        if who:
            people = "person" if len(who) == 1 else "people"
            parts.append(f"; {what} {people} {', '.join(who)}, whose keypoints contradict it")
    return "".join(parts)
