"""Limbs that nobody saw are paler than those that were, in the overlay and in the glb."""

from pathlib import Path

import cv2
import numpy as np
import torch

from fitmesh.exports import EXPORTERS
from fitmesh.exports.draw import PALE, draw_meshes, identity_colour, surface_colour
from fitmesh.result import Result
from fitmesh.ui.events import Reporter
from tests.fitmesh.test_export_glb import Glb
from tests.fitmesh.walkers import NUMBER, walkers

QUIET = Reporter()


def skin_of(result: Result, joint: str) -> np.ndarray:
    """Vertices that one joint moves alone."""
    return np.flatnonzero(result.body.weights[:, NUMBER[joint]].numpy() > 0.98)


def test_glb_colours_are_paler_the_fewer_frames_a_limb_was_seen_in(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=4)
    person = result.people[0]
    person.joint_observed[:] = True
    person.joint_observed[:, [NUMBER["left_wrist"], NUMBER["left_hand"]]] = False  # never
    person.joint_observed[:2, NUMBER["right_knee"]] = False  # in half of the frames
    EXPORTERS["glb"].write(result, tmp_path, QUIET)
    glb = Glb(tmp_path / "scene.glb")
    mesh = glb.json["meshes"][glb.json["nodes"][glb.node("person_1_mesh")]["mesh"]]["primitives"][0]
    accessor = glb.json["accessors"][mesh["attributes"]["COLOR_0"]]
    assert (accessor["normalized"], accessor["type"]) == (True, "VEC4")
    linear = glb.array(mesh["attributes"]["COLOR_0"])[:, :3] / 65535
    seen = {
        "left_elbow": 0.0,
        "right_hip": 0.5,
        "left_hip": 1.0,
    }  # the forearm, the right thigh, the left thigh
    for joint, share in seen.items():
        vertices = skin_of(result, joint)
        assert len(vertices) > 20
        colour = surface_colour(1, np.array([share]))[0]
        np.testing.assert_allclose(
            linear[vertices].mean(0), ((colour + 0.055) / 1.055) ** 2.4, atol=0.01
        )
    material = glb.json["materials"][mesh["material"]]["pbrMetallicRoughness"]
    assert material["baseColorFactor"] == [1, 1, 1, 1]  # importers multiply the two


def test_the_overlay_shows_unseen_limbs_pale_and_through_them_the_image(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=1)
    person = result.people[0]
    legs = [
        NUMBER[f"{side}_{name}"] for side in ("left", "right") for name in ("knee", "ankle", "foot")
    ]
    person.joint_observed[:] = True
    person.joint_observed[:, legs] = False
    person.keypoints_px[:] = np.nan
    images = []
    for background in (0, 120):
        rgb = np.full((result.size[1], result.size[0], 3), background, np.uint8)
        draw_meshes(rgb, result, result.camera_at(int(result.frames[0])), [(person, 0)])
        images.append(rgb.astype(int))
    pixels = result.camera.project(torch.from_numpy(result.vertices(person, 0))).numpy()

    def looks(joint: str) -> tuple[float, float]:
        """Colourfulness over black, and how much of the image shines through."""
        x, y = np.median(pixels[skin_of(result, joint)], axis=0).astype(int)
        over_black, over_grey = (image[y, x] for image in images)
        return float(np.ptp(over_black)) / float(over_black.max()), float(
            (over_grey - over_black).mean() / 120
        )

    grey, through = looks("left_hip")
    colourful, solid = looks("head")
    assert grey < 0.1 < 0.4 < colourful
    assert through > solid + 0.2
    assert np.ptp(identity_colour(1)) / max(identity_colour(1)) > 0.5
    assert 0 < PALE < 1


def test_a_smaller_overlay_shows_the_same_people_smaller(tmp_path: Path) -> None:
    result = walkers(tmp_path, frames=1)
    camera = result.camera_at(int(result.frames[0]))
    half_wh = (result.size[0] // 2, result.size[1] // 2)
    rows = [(result.people[0], 0)]
    large = np.full((result.size[1], result.size[0], 3), 120, np.uint8)
    small = np.full((half_wh[1], half_wh[0], 3), 120, np.uint8)
    draw_meshes(large, result, camera, rows)
    draw_meshes(small, result, camera.resized(half_wh), rows)
    is_drawn = (cv2.resize(large, half_wh, interpolation=cv2.INTER_AREA) != 120).any(-1)
    is_drawn_small = (small != 120).any(-1)
    common = (is_drawn & is_drawn_small).sum()
    assert common > 0.8 * max(is_drawn.sum(), is_drawn_small.sum())
    points = torch.tensor([[0.3, -0.4, 2.0], [-1.0, 0.2, 5.0]])
    whole_px = camera.project(points)
    torch.testing.assert_close(camera.resized(half_wh).project(points), (whole_px + 0.5) / 2 - 0.5)
