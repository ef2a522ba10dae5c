"""Make docs/img/keypoints26.png: Halpe's 26 keypoints on the open body from the front, the side,
and on a foot.

    python tools/render_keypoints26.py [OUT.png]
"""

import sys
from pathlib import Path

import cv2
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fitting import Camera, load_body
from fitting.body.kinematics import JOINT_NAMES
from fitting.body.open_body import OPEN_BODY
from fitting.body.rotations import rotation_matrices
from fitting.render import Mesh, render
from pose2d.base.files import atomic_file

SCALE = 2  # drawn larger and shrunk, so that lines are smooth
SKIN = (0.80, 0.74, 0.68)
# RGB
COCO = (40, 90, 200)
EXTRA = (215, 60, 40)
ANKLE_M = -0.875  # what is higher is left out of the view from above
DOWN = np.diag((1.0, -1.0, -1.0))  # the body's frame, y up, to a camera that looks at its front


def main() -> None:
    out = Path(
        sys.argv[1]
        if len(sys.argv) > 1
        else Path(__file__).parents[1] / "docs" / "img" / "keypoints26.png"
    )
    body = load_body()
    with np.load(OPEN_BODY) as file:
        regressor = file["J_regressor_halpe26"]
    pose = torch.zeros(1, 24, 3)
    pose[0, JOINT_NAMES.index("left_shoulder"), 2] = -0.9
    pose[0, JOINT_NAMES.index("right_shoulder"), 2] = 0.9
    vertices = body(pose, vertices=True).vertices
    assert vertices is not None
    mesh = vertices[0].numpy()
    points = regressor @ vertices[0].numpy()
    faces = body.faces.numpy()
    foot = (0.115, -0.94, 0.04)
    everything = range(26)
    left_foot = (15, 20, 22, 24)
    left_side = [n for n in everything if points[n, 0] > -0.005]
    view = (mesh, points, faces)
    full = [
        _panel(*view, (440, 640), (0, -0.13, 0.03), 0.0, 0.0, 1.85, everything),
        _panel(*view, (300, 640), (0, -0.13, 0.03), -90.0, 0.0, 1.85, left_side),
    ]
    low = faces[(mesh[faces, 1] < ANKLE_M).all(1)]
    feet = np.concatenate(
        [
            _panel(*view, (340, 214), foot, -90.0, 0.0, 0.20, left_foot),
            _panel(*view, (340, 213), foot, 0.0, 12.0, 0.20, left_foot),
            _panel(mesh, points, low, (340, 213), foot, -90.0, 90.0, 0.20, left_foot),
        ]
    )
    image = cv2.cvtColor(np.concatenate([*full, feet], 1), cv2.COLOR_RGB2BGR)
    with atomic_file(out) as temporary:
        temporary.write_bytes(
            cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1].tobytes()
        )
    print(f"wrote {out}, {out.stat().st_size // 1000} kB")


def _panel(
    mesh: np.ndarray,
    points: np.ndarray,
    faces: np.ndarray,
    size: tuple[int, int],
    center_m: tuple[float, float, float],
    turn_deg: float,
    pitch_deg: float,
    height_m: float,
    visible: range | list[int] | tuple[int, ...],
) -> np.ndarray:
    """Draw RGB [H, W, 3], seen from `turn_deg` round the vertical and `pitch_deg` above, `height_m`
    from top to bottom.
    """
    width = size[0] * SCALE
    height = size[1] * SCALE
    far_m = 12.0
    camera = Camera.from_focal(height * far_m / height_m, (width, height))
    angles = torch.tensor([np.radians(pitch_deg), np.radians(turn_deg)], dtype=torch.float64)
    turned = rotation_matrices(torch.tensor([angles[0], 0.0, 0.0])) @ rotation_matrices(
        torch.tensor([0.0, angles[1], 0.0])
    )
    rotation = DOWN @ turned.numpy()

    def seen(places: np.ndarray) -> np.ndarray:
        return (places - np.array(center_m)) @ rotation.T + (0, 0, far_m)

    image = render([Mesh(seen(mesh), faces, SKIN)], camera, alpha=1.0)
    in_cam = seen(points)
    pixels = in_cam[:, :2] / in_cam[:, 2:] * camera.focal_px + camera.center_px
    for number in visible:
        color = EXTRA if number >= 17 else COCO
        x, y = (round(float(v)) for v in pixels[number])
        cv2.circle(image, (x, y), 4 * SCALE, (255, 255, 255), -1, cv2.LINE_AA)
        cv2.circle(image, (x, y), 3 * SCALE, color, -1, cv2.LINE_AA)
        for thickness, ink in ((4 * SCALE, (255, 255, 255)), (SCALE, color)):
            place = (x + 5 * SCALE, y - 4 * SCALE)
            cv2.putText(
                image,
                str(number),
                place,
                cv2.FONT_HERSHEY_SIMPLEX,
                0.4 * SCALE,
                ink,
                thickness,
                cv2.LINE_AA,
            )
    image[-1:], image[:, -1:] = 200, 200
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


if __name__ == "__main__":
    main()
