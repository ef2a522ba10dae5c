"""The images of docs/animation.md and docs/biomechanics.md: how to record, and where the joints
are.

    python tools/guide_images.py        writes docs/img/recording.png and docs/img/joints.png
"""

from pathlib import Path

import cv2
import numpy as np
import torch

from fitting import Body, Camera, load_body
from fitting.body.kinematics import JOINT_NAMES, PARENTS
from fitting.render import Mesh, render_onto
from pose2d.base.files import atomic_file

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "img"
PAPER = (232, 236, 240)
FLOOR = (206, 205, 198)
INK = (45, 47, 54)
GOOD = (36, 128, 78)
BAD = (190, 60, 48)
SKIN = (0.36, 0.55, 0.78)
PANEL = (300, 400)  # width, height of one example, pixels
FONT = cv2.FONT_HERSHEY_SIMPLEX
# Words, whether it works, distance of the camera and height of its lens over the floor in metres,
# downward tilt in degrees, whether something hides the legs.
EXAMPLES = (
    ("whole body, some room around", True, 2.6, 1.1, 5.0, False),
    ("feet cut off", False, 1.7, 1.35, 0.0, False),
    ("too small", False, 12.0, 1.2, 1.0, False),
    ("legs hidden", False, 2.6, 1.1, 5.0, True),
)


def standing(body: Body) -> torch.Tensor:
    """Return a body [1, V, 3] that stands on y = 0 with its arms down, x to the right of the
    viewer, y up, z to the viewer.
    """
    pose = torch.zeros(1, 24, 3)
    pose[0, 16, 2] = -1.15
    pose[0, 17, 2] = 1.15
    # one foot in front
    pose[0, 1, 0] = -0.25
    pose[0, 4, 0] = 0.3
    vertices = body(pose, torch.zeros(10), torch.zeros(1, 3), vertices=True).vertices
    assert vertices is not None
    vertices[..., 1] -= vertices[..., 1].min()
    return vertices


def seen_from(
    points: np.ndarray, distance_m: float, height_m: float, tilt_deg: float
) -> np.ndarray:
    """Return points [N, 3] of the scene in the frame of a camera in front of it: x right, y down, z
    forward.
    """
    moved = points - np.array([0, height_m, distance_m])
    tilt = np.radians(tilt_deg)
    down = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    return (moved * np.array([1, -1, -1])) @ down.T


def recording(body: Body) -> np.ndarray:
    """RGB: examples of framing beside each other, good ones green."""
    vertices = standing(body)[0].numpy()
    panels = []
    for text, good, distance, height, tilt, hidden in EXAMPLES:
        camera = Camera.from_field_of_view(62, PANEL, across="height")
        rgb = np.full((PANEL[1], PANEL[0], 3), PAPER, np.uint8)
        horizon = camera.center_px[1] - camera.focal_px[1] * np.tan(np.radians(tilt))
        rgb[max(0, round(horizon)) :] = FLOOR
        mesh = Mesh(seen_from(vertices, distance, height, tilt), body.faces, SKIN, softness=16)
        render_onto(rgb, [mesh], camera, alpha=1.0)
        if hidden:
            cv2.rectangle(
                rgb, (30, 235), (PANEL[0] - 30, PANEL[1] - 30), (150, 120, 92), cv2.FILLED
            )
        colour = GOOD if good else BAD
        cv2.rectangle(rgb, (0, 0), (PANEL[0] - 1, PANEL[1] - 1), colour, 5)
        panel = np.vstack([rgb, np.full((44, PANEL[0], 3), 255, np.uint8)])
        cv2.putText(
            panel,
            ("Yes: " if good else "No: ") + text,
            (4, PANEL[1] + 28),
            FONT,
            0.6,
            colour,
            1,
            cv2.LINE_AA,
        )
        panels += [panel, np.full((PANEL[1] + 44, 14, 3), 255, np.uint8)]
    return np.hstack(panels[:-1])


def joints(body: Body) -> np.ndarray:
    """RGB: the T-pose with the 24 joints, their names and the axes of the body's own frame."""
    size = (1000, 820)
    posed = body(torch.zeros(1, 24, 3), torch.zeros(10), torch.zeros(1, 3), vertices=True)
    assert posed.vertices is not None
    vertices = posed.vertices[0].numpy()
    places = posed.joints[0].numpy()
    middle = (vertices.max(0) + vertices.min(0)) / 2
    camera = Camera.from_field_of_view(18.4, size, across="height")
    distance = 6.0
    rgb = np.full((size[1], size[0], 3), 255, np.uint8)
    mesh = Mesh(
        seen_from(vertices - middle, distance, 0, 0), body.faces, (0.75, 0.78, 0.82), softness=8
    )
    render_onto(rgb, [mesh], camera, alpha=0.55)
    observed = seen_from(places - middle, distance, 0, 0)
    px = (
        (observed[:, :2] / observed[:, 2:] * camera.focal_px[0] + np.array(camera.center_px))
        .round()
        .astype(int)
    )
    for joint, parent in enumerate(PARENTS):
        if parent >= 0:
            cv2.line(rgb, px[joint].tolist(), px[parent].tolist(), (91, 75, 183), 2, cv2.LINE_AA)
    for joint, (x, y) in enumerate(px.tolist()):
        cv2.circle(rgb, (x, y), 5, (91, 75, 183), cv2.FILLED, cv2.LINE_AA)
        _name(rgb, f"{joint} {JOINT_NAMES[joint]}", x, y, size[0])
    _axes(rgb)
    return rgb


def _name(rgb: np.ndarray, text: str, x: int, y: int, width: int) -> None:
    """Place a name: alternately above and below for arms, beside for trunk and legs."""
    (wide, high), _ = cv2.getTextSize(text, FONT, 0.42, 1)
    number = int(text.split()[0])
    line = (170, 170, 180)
    if number >= 13 and number != 15:
        above = number in (13, 14, 18, 19, 22, 23)
        shift = {13: 62, 14: -62}.get(number, 0)
        index = (min(max(4, x - wide // 2 + shift), width - wide - 4), y - 26 if above else y + 36)
        cv2.line(
            rgb,
            (x, y),
            (index[0] + wide // 2, index[1] + (4 if above else -high)),
            line,
            1,
            cv2.LINE_AA,
        )
    elif number in (0, 3, 6, 9, 15):
        index = (x + 70, y + 5)
        cv2.line(rgb, (x, y), (x + 66, y), line, 1, cv2.LINE_AA)
    elif number == 12:
        index = (x - 40 - wide, y - 30)
        cv2.line(rgb, (x, y), (x - 36, y - 33), line, 1, cv2.LINE_AA)
    else:  # the body's left is the viewer's right
        low = 22 if number in (10, 11) else 6
        index = (x + 26, y + low) if "left" in text else (x - wide - 26, y + low)
    cv2.putText(rgb, text, index, FONT, 0.42, INK, 1, cv2.LINE_AA)


def _axes(rgb: np.ndarray) -> None:
    x = 70
    y = rgb.shape[0] - 70
    length = 60
    for end, colour, text in (
        ((x + length, y), (200, 50, 50), "x: to its left"),
        ((x, y - length), (40, 150, 60), "y: up"),
    ):
        cv2.arrowedLine(rgb, (x, y), end, colour, 2, cv2.LINE_AA, tipLength=0.2)
        cv2.putText(rgb, text, (end[0] + 6, end[1] + 4), FONT, 0.42, colour, 1, cv2.LINE_AA)
    cv2.circle(rgb, (x, y), 6, (50, 80, 200), 2, cv2.LINE_AA)
    cv2.circle(rgb, (x, y), 2, (50, 80, 200), cv2.FILLED, cv2.LINE_AA)
    cv2.putText(
        rgb,
        "z: to the front, towards you",
        (x - 50, y + 26),
        FONT,
        0.42,
        (50, 80, 200),
        1,
        cv2.LINE_AA,
    )


def main() -> None:
    body = load_body()
    for name, rgb in (("recording.png", recording(body)), ("joints.png", joints(body))):
        encoded, data = cv2.imencode(".png", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))
        assert encoded
        with atomic_file(IMAGES / name) as temporary:
            temporary.write_bytes(data.tobytes())


if __name__ == "__main__":
    main()
