"""A run from the side and from above: all people at several times, the floor, the camera.

    python tools/scene_views.py out/ --out views.png --times 6 --shot 1

Where gravity is known this is the world frame, and people who stand should be upright on the line y
= 0; where it is not, the camera frame turned until y is up. Early times are pale. A line follows
each pelvis; squares mark feet that stand.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

import fitmesh
from fitmesh.exports.draw import RGB, identity_colour
from fitmesh.exports.scene import SceneFrame, about_frame, foot_points, scene_frame
from fitmesh.person import Person
from fitmesh.result import Result
from fitting import Camera
from fitting.render import Mesh, render_onto
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

FAR_M = 300.0  # distance of the viewer: perspective is then below 1 % for a scene of 3 m
MARGIN_M, CAPTION_PX = 0.5, 30
PAPER = 250
GRID = (222, 222, 222)
INK = (60, 60, 60)
FLOOR: RGB = (120, 90, 60)
LENS: RGB = (91, 75, 183)
STANDS = 0.5  # probability of contact
CAMERA_SIZE_M = 0.35


@dataclass(frozen=True)
class View:
    """Looking along one axis of the scene from far away."""

    name: str
    axes: tuple[int, int]  # of the scene: to the right, up on paper
    signs: tuple[int, int]
    low_m: np.ndarray  # [2] left, bottom
    high_m: np.ndarray  # [2] right, top
    px_per_m: float

    @property
    def size(self) -> tuple[int, int]:
        width, height = np.ceil((self.high_m - self.low_m) * self.px_per_m).astype(int).tolist()
        return width, height

    def flat(self, points_m: np.ndarray) -> np.ndarray:
        """Convert points [..., 3] of the scene to metres to the right and up, [..., 2]."""
        return points_m[..., list(self.axes)] * np.array(self.signs)

    def px(self, points_m: np.ndarray) -> np.ndarray:
        """Convert points [..., 3] of the scene to pixels [..., 2]."""
        right, up = np.moveaxis(self.flat(points_m), -1, 0)
        return np.stack(
            ((right - self.low_m[0]) * self.px_per_m, (self.high_m[1] - up) * self.px_per_m), -1
        )

    def seen(self, points_m: np.ndarray) -> tuple[np.ndarray, Camera]:
        """Return points [V, 3] in the frame of the far viewer, and its camera."""
        axis = np.eye(3)
        right = self.signs[0] * axis[self.axes[0]]
        up = self.signs[1] * axis[self.axes[1]]
        towards = np.cross(right, up)
        rotation = np.stack((right, -up, -towards))
        middle = (self.low_m + self.high_m) / 2
        moved = points_m @ rotation.T - np.array([middle[0], -middle[1], -FAR_M])
        width, height = self.size
        return moved, Camera(
            (FAR_M * self.px_per_m,) * 2, ((width - 1) / 2, (height - 1) / 2), (width, height)
        )


def draw_views(result: Result, times: int, shot: int, width: int) -> np.ndarray:
    """Draw RGB [H, W, 3]: the side view above the top view, both to one scale."""
    scene = scene_frame(result)
    people = [person for person in result.people if person.shot == shot]
    frames = result.frames[[result.shot_at(int(frame)) == shot for frame in result.frames]]
    chosen = frames[np.unique(np.linspace(0, len(frames) - 1, times).round().astype(int))]
    joints = {person.identity: scene.points(person.joints_m, person.frame) for person in people}
    eyes = scene.at(frames)[:, :3, 3]
    everything = np.concatenate(
        [eyes, *(j.reshape(-1, 3) for j in joints.values()), np.zeros((1, 3))]
    )
    low = everything.min(0) - MARGIN_M
    high = everything.max(0) + MARGIN_M
    across = max(high[2] - low[2], high[0] - low[0])
    side = View(
        "side: the camera looks to the right",
        (2, 1),
        (-1, 1),
        *_box(low, high, (2, 1), (-1, 1)),
        width / across,
    )
    top = View(
        "top: the camera looks to the right",
        (2, 0),
        (-1, -1),
        *_box(low, high, (2, 0), (-1, -1)),
        width / across,
    )
    panels = [_draw(view, result, scene, people, joints, frames, chosen) for view in (side, top)]
    panels = [
        _caption(panel, view.name, width) for view, panel in zip((side, top), panels, strict=True)
    ]
    return np.vstack(
        [
            _caption(
                np.zeros((0, panels[0].shape[1], 3), np.uint8), _about(result, scene, shot), width
            ),
            *panels,
        ]
    )


def _box(
    low: np.ndarray, high: np.ndarray, axes: tuple[int, int], signs: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    ends = np.stack((low, high))[:, list(axes)] * np.array(signs)
    return ends.min(0), ends.max(0)


def _draw(
    view: View,
    result: Result,
    scene: SceneFrame,
    people: list[Person],
    joints: dict[int, np.ndarray],
    frames: np.ndarray,
    chosen: np.ndarray,
) -> np.ndarray:
    width, height = view.size
    rgb = np.full((height, width, 3), PAPER, np.uint8)
    _grid(rgb, view)
    for number, frame in enumerate(chosen.tolist()):
        share = (number + 1) / len(chosen)
        meshes = []
        for person in people:
            (rows,) = np.nonzero(person.frame == frame)
            for row in rows.tolist():
                vertices = scene.points(
                    result.vertices(person, row)[None].astype(float), person.frame[row : row + 1]
                )[0]
                observed, camera = view.seen(vertices)
                colour = np.array(identity_colour(person.identity)) / 255
                meshes.append(
                    Mesh(
                        observed,
                        result.body.faces,
                        tuple((share * colour + (1 - share) * 0.8).tolist()),
                    )
                )
        if meshes:
            render_onto(rgb, meshes, camera, alpha=0.85)
    for person in people:
        line = view.px(joints[person.identity][:, 0])
        cv2.polylines(
            rgb,
            [line.round().astype(np.int32)],
            False,
            identity_colour(person.identity),
            1,
            cv2.LINE_AA,
        )
        _standing(rgb, view, result, scene, person)
    for frame in np.unique(np.concatenate([frames[:1], chosen])).tolist():
        _camera(rgb, view, result.camera_at(frame), scene.at(np.array([frame]))[0])
    return rgb


def _grid(rgb: np.ndarray, view: View) -> None:
    """Draw one line a metre; in the side view the floor is thick."""
    width, height = view.size
    corner = np.zeros(3)
    for axis, sign, side in zip(view.axes, view.signs, (0, 1), strict=True):
        for metre in range(int(np.ceil(view.low_m[side])), int(np.floor(view.high_m[side])) + 1):
            point = corner.copy()
            point[axis] = sign * metre
            x, y = view.px(point).round().astype(int).tolist()
            ends = ((x, 0), (x, height)) if side == 0 else ((0, y), (width, y))
            floor = axis == 1 and metre == 0
            cv2.line(rgb, *ends, FLOOR if floor else GRID, 2 if floor else 1)
            label = f"{sign * metre}"
            index = (x + 2, height - 4) if side == 0 else (2, y - 2)
            cv2.putText(
                rgb, label, index, cv2.FONT_HERSHEY_SIMPLEX, 0.35, (150, 150, 150), 1, cv2.LINE_AA
            )


def _standing(
    rgb: np.ndarray, view: View, result: Result, scene: SceneFrame, person: Person
) -> None:
    """Draw a square at heels and toes that stand."""
    if not (person.contact >= STANDS).any():
        return
    places = foot_points(result, person, scene)[person.contact >= STANDS]
    for x, y in view.px(places).round().astype(int).tolist():
        cv2.rectangle(rgb, (x - 2, y - 2), (x + 2, y + 2), INK, cv2.FILLED)


def _camera(rgb: np.ndarray, view: View, camera: Camera, scene_from_camera: np.ndarray) -> None:
    """Draw a pyramid from the lens to the corners of the image."""
    fx, fy = camera.focal_px
    cx, cy = camera.center_px
    width, height = camera.size
    corners = np.array(
        [
            [(x - cx) / fx, (y - cy) / fy, 1]
            for x, y in ((0, 0), (width, 0), (width, height), (0, height))
        ]
    )
    points = (
        np.concatenate([np.zeros((1, 3)), CAMERA_SIZE_M * corners]) @ scene_from_camera[:3, :3].T
    )
    eye, *remaining = view.px(points + scene_from_camera[:3, 3]).round().astype(int).tolist()
    for number, second in enumerate(remaining):
        cv2.line(rgb, eye, second, LENS, 1, cv2.LINE_AA)
        cv2.line(rgb, second, remaining[(number + 1) % 4], LENS, 1, cv2.LINE_AA)


def _about(result: Result, scene: SceneFrame, shot: int) -> str:
    details = result.shots[shot]
    tall = "  ".join(f"{p.identity}: {p.height_m:.2f} m" for p in result.people if p.shot == shot)
    lens = f"{details.camera} camera, f {details.focal_px:.0f} px ({details.focal_source})"
    return f"{about_frame(details, scene.upright[shot]).replace('±', '+-').replace('°', ' deg')}; {lens}   {tall}"


def _caption(panel: np.ndarray, text: str, width: int) -> np.ndarray:
    head = np.full((CAPTION_PX, panel.shape[1], 3), 255, np.uint8)
    cv2.putText(head, text, (6, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.45, INK, 1, cv2.LINE_AA)
    full = np.vstack([head, panel])
    missing = max(0, width - full.shape[1])
    return np.pad(full, ((0, 0), (0, missing), (0, 0)), constant_values=255)[:, :width]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="the --out folder of `fitmesh run`")
    parser.add_argument("--out", type=Path, default=Path("views.png"))
    parser.add_argument(
        "--times", type=int, default=6, help="how many frames, spread evenly over the shot"
    )
    parser.add_argument("--shot", type=int, default=1, help="number of the shot, from 1")
    parser.add_argument("--width", type=int, default=1200, help="of the image, in pixels")
    arguments = parser.parse_args()
    try:
        result = fitmesh.load(arguments.run)
        if not 1 <= arguments.shot <= len(result.shots):
            raise UserError(
                f"there is no shot {arguments.shot}: {arguments.run} has {len(result.shots)}."
            )
        rgb = draw_views(result, arguments.times, arguments.shot - 1, arguments.width)
        encoded, data = cv2.imencode(arguments.out.suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
        assert encoded
        with atomic_file(arguments.out) as temporary:
            temporary.write_bytes(data.tobytes())
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
