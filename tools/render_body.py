"""Make docs/img/body.png: the open body in four poses and two shapes.

python tools/render_body.py [OUT.png]
"""

import sys
from pathlib import Path

import cv2
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fitting import Body, Camera, load_body
from fitting.render import Mesh, render
from fitting.render.raster import rasterize
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

CELL = Camera.from_field_of_view(24, (400, 520), across="height")
# where the viewer stands (body at the origin, y up) and how he looks down
EYE_M = (0.0, 1.6, 5.2)
PITCH_DEG = -7.9
SUN = np.array((0.22, -1.0, -0.30))  # direction the shadow's light travels, y up
GROUND, SHADE = 244.0, 0.30  # grey of the paper; how dark a shadow is

JOINTS = (
    "pelvis",
    "left_hip",
    "right_hip",
    "spine1",
    "left_knee",
    "right_knee",
    "spine2",
    "left_ankle",
    "right_ankle",
    "spine3",
    "left_foot",
    "right_foot",
    "neck",
    "left_collar",
    "right_collar",
    "head",
    "left_shoulder",
    "right_shoulder",
    "left_elbow",
    "right_elbow",
    "left_wrist",
    "right_wrist",
    "left_hand",
    "right_hand",
)

# Degrees about the body's axes (x to its left, y up, z to the front), one after the other as
# written.
Turns = tuple[tuple[str, float], ...]
POSES: dict[str, dict[str, Turns]] = {
    "standing": {
        "pelvis": (("y", 25),),
        "left_shoulder": (("z", -66),),
        "right_shoulder": (("z", 66),),
        "left_elbow": (("y", -14),),
        "right_elbow": (("y", 14),),
    },
    "walking": {
        "pelvis": (("y", 50),),
        "left_hip": (("x", -26),),
        "left_knee": (("x", 6),),
        "left_ankle": (("x", 2),),
        "right_hip": (("x", 22),),
        "right_knee": (("x", 14),),
        "right_ankle": (("x", 0),),
        "right_foot": (("x", -28),),
        "spine1": (("y", -5),),
        "spine3": (("y", 8),),
        "left_shoulder": (("z", -70), ("x", 26)),
        "right_shoulder": (("z", 70), ("x", -26)),
        "left_elbow": (("y", -14),),
        "right_elbow": (("y", 24),),
    },
    "squatting": {
        "pelvis": (("x", 32), ("y", -40)),
        "left_hip": (("x", -112), ("y", 14)),
        "right_hip": (("x", -112), ("y", -14)),
        "left_knee": (("x", 108),),
        "right_knee": (("x", 108),),
        "left_ankle": (("x", -28),),
        "right_ankle": (("x", -28),),
        "spine1": (("x", 6),),
        "neck": (("x", -14),),
        "head": (("x", -8),),
        "left_shoulder": (("z", -10), ("y", -78)),
        "right_shoulder": (("z", 10), ("y", 78)),
    },
    "throwing": {
        "pelvis": (("y", 20),),
        "left_hip": (("x", -31), ("z", 8)),
        "left_knee": (("x", 30),),
        "left_ankle": (("x", -1),),
        "right_hip": (("x", 20), ("z", -10)),
        "right_knee": (("x", 8),),
        "right_ankle": (("x", -16),),
        "spine1": (("y", -12),),
        "spine2": (("x", -6), ("y", -12)),
        "spine3": (("y", -10),),
        "neck": (("y", 16),),
        "head": (("y", 10),),
        "left_shoulder": (("z", 8), ("y", -50)),
        "left_elbow": (("y", -16),),
        "right_shoulder": (("x", -20), ("z", -18), ("y", -14)),
        "right_elbow": (("z", -70), ("y", 20)),
    },
}
SHAPES: dict[
    str, tuple[tuple[float, ...], tuple[float, float, float]]
] = {  # directions in standard deviations, colour
    "tall and lean": ((1.3, 0.0, 0.0, -1.0), (0.50, 0.68, 0.90)),
    "short and heavy": ((-1.1, 0.0, 0.0, 1.6), (0.95, 0.62, 0.48)),
}


def main() -> None:
    out = Path(
        sys.argv[1]
        if len(sys.argv) > 1
        else Path(__file__).parents[1] / "docs" / "img" / "body.png"
    )
    body = load_body()
    rows = [
        np.concatenate([_cell(body, turns, shape, color) for turns in POSES.values()], axis=1)
        for shape, color in SHAPES.values()
    ]
    _save_labelled(np.concatenate(rows), out)
    print(f"wrote {out}")


def pose_of(turns: dict[str, Turns]) -> Tensor:
    """Named turns -> axis-angle [1, 24, 3] radians."""
    pose = torch.zeros(1, 24, 3)
    for joint, steps in turns.items():
        full = torch.eye(3)
        for axis, degrees in steps:
            vector = torch.tensor([float(axis == a) for a in "xyz"])
            full = rotation_matrices(vector * np.deg2rad(degrees)) @ full
        pose[0, JOINTS.index(joint)] = matrix_to_axis_angle(full)
    return pose


def _cell(
    body: Body, turns: dict[str, Turns], shape: tuple[float, ...], color: tuple[float, float, float]
) -> np.ndarray:
    """Draw one body on the ground, seen from a little above."""
    vertices = body(pose_of(turns), torch.tensor(shape), vertices=True).vertices
    assert vertices is not None
    world = vertices[0].numpy()
    middle = (world.min(axis=0) + world.max(axis=0)) / 2
    world = world - (middle[0], world[:, 1].min(), middle[2])
    faces = body.faces.numpy()
    shadow = (
        world - world[:, 1:2] / SUN[1] * SUN
    )  # every vertex slides along the light down to y = 0
    lit = rasterize(_seen(shadow), faces, CELL).face < 0
    soft = cv2.GaussianBlur(lit.astype(np.float32), (0, 0), 5)
    paper = np.repeat(np.rint(GROUND * (1 - SHADE * (1 - soft)))[..., None], 3, axis=2).astype(
        np.uint8
    )
    return render([Mesh(_seen(world), faces, color)], CELL, paper, alpha=1)


def _seen(world: np.ndarray) -> np.ndarray:
    """Convert points [V, 3] with y up to the viewer's camera frame [V, 3]."""
    pitch = np.deg2rad(PITCH_DEG)
    right = np.array((1, 0, 0))
    forward = np.array((0, np.sin(pitch), -np.cos(pitch)))
    down = np.cross(forward, right)
    return (world - EYE_M) @ np.stack((right, down, forward)).T


def _save_labelled(image: np.ndarray, out: Path) -> None:
    height, width = image.shape[:2]
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(image, interpolation="none")
    axes.set_axis_off()
    cell_width, cell_height = CELL.size
    for row, shape in enumerate(SHAPES):
        for column, pose in enumerate(POSES):
            x = (column + 0.5) * cell_width
            y = (row + 1) * cell_height - 14
            axes.text(x, y, f"{pose}, {shape}", ha="center", fontsize=11, color="0.35")
    with atomic_file(out) as temporary:
        figure.savefig(temporary)
    plt.close(figure)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"Error: {error}")
