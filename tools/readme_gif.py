"""The animation at the top of the README: the video, its overlay, and the 3D scene turning,
coloured by uncertainty.

fitmesh run --video examples/park.mp4 --out out/park
    python tools/readme_gif.py out/park --out docs/img/park.gif

The video is shown twice while the scene turns once. Frames hold pixels that hardly change, which is
what makes a GIF of a static camera small.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

import fitmesh
from fitmesh.exports.scene import SceneFrame, scene_frame
from fitmesh.person import Person
from fitmesh.result import Result
from fitting import Camera
from fitting.render import Mesh, render_onto
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.video.frames import Span
from pose2d.video.video_file import Video

RGB = tuple[int, int, int]
PAPER = (244, 243, 239)
INK = (50, 52, 60)
GRID = (214, 215, 220)
SHADOW = (216, 214, 208)
LENS = (91, 75, 183)
RAMP = (
    np.array([(53, 102, 201), (47, 174, 154), (242, 197, 61), (215, 53, 43)]) / 255
)  # as fitmesh/viewer/page/colours.js
UNKNOWN = np.array((154, 158, 168)) / 255
SCALE_MM = 200.0  # the last colour of the ramp, as in the viewer
GAP_PX, LABEL_PX = 4, 0.42
LEFT = 0.4  # share of the width that the photographs take
NEAR_M = 0.3  # what is closer to the viewer is left out
DISTANCE_M, START_DEG = (
    7.4,
    35.0,
)  # of the viewer: to the middle of the scene; where its turn begins
PHOTO_COLOURS, SCENE_COLOURS = 150, 90  # of the GIF
HOLD = 24  # levels of 255: a pixel that changes by less keeps its colour
FLOOR_M = 7  # the grid reaches this far from its middle


@dataclass(frozen=True)
class Eye:
    """A viewer that looks at a point of the scene from the side and a little from above."""

    rotation: np.ndarray  # [3, 3] scene -> viewer: x right, y down, z forward
    place_m: np.ndarray  # [3] in the scene
    camera: Camera

    @classmethod
    def at(
        cls, target_m: np.ndarray, azimuth_rad: float, distance_m: float, size: tuple[int, int]
    ) -> "Eye":
        elevation = np.radians(14)
        away = np.array(
            [
                np.sin(azimuth_rad) * np.cos(elevation),
                np.sin(elevation),
                np.cos(azimuth_rad) * np.cos(elevation),
            ]
        )
        right = np.cross(np.array([0.0, 1.0, 0.0]), away)
        right /= np.linalg.norm(right)
        rotation = np.stack((right, -np.cross(away, right), -away))
        return cls(
            rotation,
            target_m + distance_m * away,
            Camera.from_field_of_view(42, size, across="width"),
        )

    def seen(self, points_m: np.ndarray) -> np.ndarray:
        """Convert points [N, 3] of the scene to the viewer's frame, metres."""
        return (points_m - self.place_m) @ self.rotation.T

    def px(self, points_m: np.ndarray) -> np.ndarray:
        """Project points [N, 3] of the scene to pixels [N, 2]; NaN where a point is behind the
        viewer or too close.
        """
        observed = self.seen(points_m)
        observed[observed[:, 2] < NEAR_M] = np.nan
        return observed[:, :2] / observed[:, 2:] * np.array(self.camera.focal_px) + np.array(
            self.camera.center_px
        )

    def line(self, rgb: np.ndarray, a_m: np.ndarray, b_m: np.ndarray, colour: RGB) -> None:
        px = self.px(np.stack((a_m, b_m)))
        if np.abs(px).max() < 1e4:  # false where one is NaN
            a, b = (16 * px).round().astype(int).tolist()
            cv2.line(rgb, a, b, colour, 1, cv2.LINE_AA, 4)


def uncertainty_colours(std_mm: np.ndarray) -> np.ndarray:
    """Convert millimetres [J] to colours [J, 3] in 0..1, blue (certain) to red; grey where the
    error is not known.
    """
    place = np.clip(np.nan_to_num(std_mm) / SCALE_MM, 0, 1) * (len(RAMP) - 1)
    stop = np.minimum(place.astype(int), len(RAMP) - 2)
    colours = RAMP[stop] + (place - stop)[:, None] * (RAMP[stop + 1] - RAMP[stop])
    return np.where(np.isfinite(std_mm)[:, None], colours, UNKNOWN)


def draw_scene(
    result: Result,
    scene: SceneFrame,
    frame: int,
    azimuth_rad: float,
    target_m: np.ndarray,
    size: tuple[int, int],
) -> np.ndarray:
    """Draw RGB [H, W, 3]: floor, camera, and all people of one frame coloured by the uncertainty of
    the pose.
    """
    rgb = np.full((size[1], size[0], 3), PAPER, np.uint8)
    eye = Eye.at(target_m, azimuth_rad, DISTANCE_M, size)
    bodies = [
        (_vertices(result, scene, person, row), person, row) for person, row in _rows(result, frame)
    ]
    _floor(rgb, eye, target_m)
    for vertices, *_ in bodies:
        _shadow(rgb, eye, vertices)
    _camera(rgb, eye, result.camera_at(frame), scene.at(np.array([frame]))[0])
    meshes = [
        _mesh(result, eye, vertices, person.joint_std_relative_mm[row])
        for vertices, person, row in bodies
    ]
    if meshes:
        render_onto(rgb, meshes, eye.camera, alpha=1.0)
    _legend(rgb)
    return rgb


def _rows(result: Result, frame: int) -> Iterator[tuple[Person, int]]:
    for person in result.people:
        for row in np.nonzero(person.frame == frame)[0].tolist():
            yield person, row


def _vertices(result: Result, scene: SceneFrame, person: Person, row: int) -> np.ndarray:
    """Return the mesh [V, 3] in the scene, metres."""
    return scene.points(
        result.vertices(person, row)[None].astype(float), person.frame[row : row + 1]
    )[0]


def _mesh(result: Result, eye: Eye, vertices_m: np.ndarray, std_mm: np.ndarray) -> Mesh:
    colours = result.body.weights.numpy() @ uncertainty_colours(std_mm)
    return Mesh(eye.seen(vertices_m), result.body.faces, np.clip(colours, 0, 1), softness=8)


def _shadow(rgb: np.ndarray, eye: Eye, vertices_m: np.ndarray) -> None:
    """Draw what is straight below a person, which shows how high above the floor they are."""
    px = eye.px(vertices_m * np.array([1, 0, 1]))
    for x, y in px[np.isfinite(px).all(1) & (np.abs(px) < 1e4).all(1)].round().astype(int).tolist():
        cv2.circle(rgb, (x, y), 2, SHADOW, cv2.FILLED)


def _floor(rgb: np.ndarray, eye: Eye, middle_m: np.ndarray) -> None:
    """Draw one line a metre, in pieces of a metre, so that what is behind the viewer can be left
    out.
    """
    x = round(float(middle_m[0]))
    z = round(float(middle_m[2]))
    steps = range(-FLOOR_M, FLOOR_M + 1)
    for across in steps:
        for along in steps[:-1]:
            eye.line(
                rgb,
                np.array([x + across, 0, z + along]),
                np.array([x + across, 0, z + along + 1]),
                GRID,
            )
            eye.line(
                rgb,
                np.array([x + along, 0, z + across]),
                np.array([x + along + 1, 0, z + across]),
                GRID,
            )


def _camera(rgb: np.ndarray, eye: Eye, camera: Camera, scene_from_camera: np.ndarray) -> None:
    """Draw a pyramid from the lens to the corners of the image."""
    fx, fy = camera.focal_px
    cx, cy = camera.center_px
    width, height = camera.size
    corners = [
        [0.6 * (x - cx) / fx, 0.6 * (y - cy) / fy, 0.6] for x in (0, width) for y in (0, height)
    ]
    points = (
        np.array([[0.0, 0.0, 0.0], *corners]) @ scene_from_camera[:3, :3].T
        + scene_from_camera[:3, 3]
    )
    for corner in range(1, 5):
        eye.line(rgb, points[0], points[corner], LENS)
    for a, b in ((1, 2), (2, 4), (4, 3), (3, 1)):
        eye.line(rgb, points[a], points[b], LENS)


def _legend(rgb: np.ndarray) -> None:
    left = 12
    top = rgb.shape[0] - 32
    wide = 150
    ramp = uncertainty_colours(np.linspace(0, SCALE_MM, wide))
    rgb[top : top + 7, left : left + wide] = (255 * ramp).round().astype(np.uint8)
    for text, x in (
        ("0", left),
        ("standard deviation", left + 20),
        (f"{SCALE_MM:.0f} mm", left + wide - 18),
    ):
        cv2.putText(rgb, text, (x, top + 21), cv2.FONT_HERSHEY_SIMPLEX, 0.36, INK, 1, cv2.LINE_AA)


def _label(rgb: np.ndarray, text: str) -> None:
    (wide, high), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, LABEL_PX, 1)
    cv2.rectangle(rgb, (0, 0), (wide + 12, high + 10), (255, 255, 255), cv2.FILLED)
    cv2.putText(rgb, text, (6, high + 5), cv2.FONT_HERSHEY_SIMPLEX, LABEL_PX, INK, 1, cv2.LINE_AA)


def _small(
    path: Path, frames: set[int], size: tuple[int, int], label: str
) -> dict[int, np.ndarray]:
    """Frame number -> RGB [H, W, 3]; pixels that hardly change from frame to frame are held."""
    results: dict[int, np.ndarray] = {}
    held_part: np.ndarray | None = None
    for frame in Video(path).frames(Span()):
        if frame.index in frames:
            rgb = cv2.resize(frame.rgb, size, interpolation=cv2.INTER_AREA)
            _label(rgb, label)
            if held_part is not None:
                still = np.abs(rgb.astype(int) - held_part).max(-1, keepdims=True) < HOLD
                rgb = np.where(still, held_part, rgb)
            held_part = results[frame.index] = rgb
    return results


def animation(
    result: Result, video: Path, width: int, frames_per_second: float
) -> list[np.ndarray]:
    """Return RGB frames [H, W, 3]: source above overlay on the left, the scene on the right."""
    left = (round(LEFT * width), round(LEFT * width * result.size[1] / result.size[0]))
    right = (width - left[0] - GAP_PX, 2 * left[1] + GAP_PX)
    step = max(1, round(float(result.rate) / frames_per_second))
    chosen = result.frames[::step].tolist()
    source = _small(video, set(chosen), left, "video")
    first = result.frames[0]  # the overlay begins with the first processed frame
    overlay = _small(result.overlay_path, {frame - first for frame in chosen}, left, "bodies")
    scene = scene_frame(result)
    joints = np.concatenate(
        [scene.points(p.joints_m, p.frame).reshape(-1, 3) for p in result.people]
    )
    target = (joints.min(0) + joints.max(0)) / 2
    played = chosen * 2
    pages = []
    for number, frame in enumerate(played):
        view = draw_scene(
            result, scene, frame, np.radians(START_DEG + 360 * number / len(played)), target, right
        )
        _label(view, "scene, coloured by uncertainty")
        page = np.full((right[1], width, 3), 255, np.uint8)
        page[: left[1], : left[0]] = source[frame]
        page[left[1] + GAP_PX :, : left[0]] = overlay[frame - first]
        page[:, left[0] + GAP_PX :] = view
        pages.append(page)
    return pages


def write_gif(
    pages: list[np.ndarray], photo_width: int, path: Path, frames_per_second: float
) -> None:
    """Write frames with one palette and no dithering, so that pixels that do not change are stored
    as transparent. photo_width: columns on the left that hold photographs, which get colours of
    their own.
    """
    sample = np.vstack(pages[:: max(1, len(pages) // 8)])
    photo = Image.fromarray(np.ascontiguousarray(sample[:, :photo_width])).quantize(PHOTO_COLOURS)
    scene = Image.fromarray(np.ascontiguousarray(sample[:, photo_width:])).quantize(SCENE_COLOURS)
    colours = [
        c
        for part, n in ((photo, PHOTO_COLOURS), (scene, SCENE_COLOURS))
        for c in (part.getpalette() or [])[: 3 * n]
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette(colours)
    images = [
        Image.fromarray(page).quantize(palette=palette, dither=Image.Dither.NONE) for page in pages
    ]
    with atomic_file(path) as temporary:
        images[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            loop=0,
            duration=round(1000 / frames_per_second),
            optimize=True,
            disposal=1,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the --out folder of `fitmesh run`")
    parser.add_argument(
        "--video", type=Path, help="the source, if it is not where the run found it"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/img/park.gif"))
    parser.add_argument("--width", type=int, default=900, help="of the animation, in pixels")
    parser.add_argument(
        "--fps", type=float, default=10.0, help="frames per second of the animation"
    )
    arguments = parser.parse_args()
    try:
        result = fitmesh.load(arguments.run)
        video = arguments.video or result.clip_path
        if video is None or not Path(video).is_file():
            raise UserError(f"the video of {arguments.run} was not found: give it with --video.")
        if not result.people:
            raise UserError(f"no person was found in {arguments.run}: there is nothing to show.")
        pages = animation(result, Path(video), arguments.width, arguments.fps)
        write_gif(pages, round(LEFT * arguments.width), arguments.out, arguments.fps)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
