"""Arrange one crop's scene: the person, perhaps another one, a camera, and things around them.

World frame: y up, metres, the person's lowest point on y = 0.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.spatial.transform import Rotation

from eval3dpw.synth.clothed_people import ClothedBody
from eval3dpw.synth.solids import Solid, floor
from fitting.body import Body
from fitting.body.rotations import quaternion_to_matrix
from training.crops.draws import Draws
from training.crops.props import bar_between, held, in_front
from training.crops.wardrobe import Wardrobe

# shares of crops
OTHER_PERSON = 0.3
HOLDS = 0.35
IN_FRONT = 0.22
HANDS = (22, 23)
NEAREST_M = 0.25  # no part of the person is closer to the camera
OTHER_NEAREST_M = 0.6
LEAST_VISIBLE = 0.02  # of half the image: a person who shows less is passed over
LOWEST_CAMERA_M = 0.03  # a camera below the floor sees none
_FAR_BELOW = (0.0, -40.0, 0.0)


@dataclass(frozen=True)
class ArrangedScene:
    """Everything that a crop is rendered from, before its resolution is chosen."""

    clothed: list[ClothedBody]  # the person first
    posed_m: list[np.ndarray]  # vertices [V, 3] of each, in the world
    to_camera: np.ndarray  # [4, 4] from the world
    half: np.ndarray  # [2] half width and height of the image on the plane z = 1
    low: np.ndarray  # [2] corners of the person's bounding box on the plane z = 1
    high: np.ndarray  # [2]
    ahead: np.ndarray  # [3] level unit vector from the camera to the person
    solids: list[Solid]  # the ground first


def arrange(
    draws: Draws, row: int, body: Body, wardrobe: Wardrobe, rng: np.random.Generator
) -> ArrangedScene | None:
    """Return the scene of one of the draws; None where the camera does not show the person."""
    rows = [row]
    if rng.random() < OTHER_PERSON:
        rows.append(int(rng.integers(len(draws.turn))))
    clothed = [wardrobe.dress(draws.shape[number]) for number in rows]
    placement = body.placement(quaternion_to_matrix(draws.turn[rows]), draws.shape[rows])
    posed = []
    for number, person in enumerate(clothed):
        own = type(placement)(*(column[number : number + 1] for column in placement))
        posed.append(person.posed(own, -placement.joints[number, 0][None])[0])
    pelvis = np.array([0, -posed[0][:, 1].min(), 0])
    posed[0] = (posed[0] + pelvis).astype(np.float32)

    rotation = draws.view.turn[row].double().numpy()
    half = draws.view.half[row].double().numpy()
    to_camera = np.eye(4)
    to_camera[:3, :3] = rotation
    to_camera[:3, 3] = draws.view.target_m[row].double().numpy() - rotation @ pelvis
    camera_m = -rotation.T @ to_camera[:3, 3]
    ahead = (pelvis - camera_m) * (1, 0, 1)
    ahead = ahead / (np.linalg.norm(ahead) + 1e-9)
    side = np.array([ahead[2], 0, -ahead[0]])

    in_camera = posed[0] @ rotation.T + to_camera[:3, 3]
    if in_camera[:, 2].min() < NEAREST_M:
        return None
    projected = in_camera[:, :2] / in_camera[:, 2:]
    low = np.maximum(projected.min(0), -half)
    high = np.minimum(projected.max(0), half)
    if (high - low).min() <= LEAST_VISIBLE * half.min():
        return None
    if len(rows) > 1:
        place = _other_place(posed[1], ahead, side, rng)
        posed[1] = (posed[1] + place).astype(np.float32)
        depth = (posed[1] @ rotation.T + to_camera[:3, 3])[:, 2]
        if depth.min() < OTHER_NEAREST_M:
            clothed = clothed[:1]
            posed = posed[:1]

    joints = (placement.joints[0] - placement.joints[0, :1]).double().numpy() + pelvis
    ground = floor(60, "concrete")
    solids = [ground.moved(_FAR_BELOW) if camera_m[1] < LOWEST_CAMERA_M else ground]
    if draws.holds_bar[row]:
        solids.append(bar_between(joints[HANDS[0]], joints[HANDS[1]], rng))
    elif rng.random() < HOLDS and not draws.in_contact[row]:
        hands = (HANDS[:1], HANDS[1:], HANDS)[rng.integers(3)]
        solids += [held(joints[hand] + rng.normal(0, 0.02, 3), rng) for hand in hands]
    if rng.random() < IN_FRONT:
        solids += in_front(pelvis, ahead, side, rng)
    return ArrangedScene(clothed, posed, to_camera, half, low, high, ahead, solids)


def _other_place(
    posed_m: np.ndarray, ahead: np.ndarray, side: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw where another person stands: mostly behind the person, on the same floor."""
    depth = rng.uniform(0.45, 2.5) * (1 if rng.random() < 0.75 else -0.5)
    spot = side * rng.uniform(-1, 1) + ahead * depth
    return np.array([spot[0], -posed_m[:, 1].min(), spot[2]])


def truth_in_camera(draws: Draws, row: int) -> dict[str, torch.Tensor]:
    """Return rotations (the root's in the camera), shape and pelvis of the person."""
    to_camera = Rotation.from_matrix(draws.view.turn[row].double().numpy())
    root = to_camera * Rotation.from_quat(draws.turn[row, 0].numpy())
    turn = draws.turn[row].clone()
    turn[0] = torch.from_numpy(root.as_quat())
    return {"turn": turn, "shape": draws.shape[row], "pelvis_m": draws.view.target_m[row]}
