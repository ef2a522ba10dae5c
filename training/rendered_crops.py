"""Crops for the lifter's training: rendered people with truth, as the embedded 2D network reads
them.

    python -m training.rendered_crops --clips clips_30fps.npz --poses poses_5fps.npz --exercises ui_prmd_25hz.npz \
        --woman accad_female1.npz --photos train2017 --annotations person_keypoints_train2017.json \
        --count 60000 --out crops.npz

Every crop has a pose of the lifter's training motion, a body, camera, light and sensor of its own
before a photograph with few people in it; things in hands, something in front, and now and then
somebody else. Clothes are the slow part, so sixty outfits are shared and replaced one by one. About
0.03 s a crop on one core.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch
from rich.progress import track
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from ccnet.confidence import confidence_function
from eval3dpw.synth import light, rendering, solids, staging, textures
from eval3dpw.synth import surroundings as around
from eval3dpw.synth.clothed_people import ClothedBody, clothed_body
from eval3dpw.synth.outfits import draw_outfit
from fitting.body import Body
from fitting.body.kinematics import quaternion_to_matrix
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.init.lifter import Observation, observation
from pose2d import crops as cropping
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.models.loading import load as load_model
from pose2d.types import AREA_OF_BOX
from training.lifter_examples import Crops, views
from training.motion_bank import (
    MOTION_SHARES,
    Bank,
    add_arguments,
    bank,
    load_motions,
    varied,
    windows,
)

POSE_MODEL = "rtmpose-s-halpe26"
OUTFITS, BATCH = 60, 32
HEIGHT_PX = (110.0, 340.0)  # of the person's box: what a crop of 256 pixels is made of
MOST_COVERED = 0.25  # of a photograph, by its annotated people
# shares of crops
SOMEBODY_ELSE = 0.3
HOLDS = 0.35
IN_FRONT = 0.22
HANDS = (22, 23)


class Wardrobe:
    """Clothed bodies of the mean shape; each vertex follows the shape of the body's nearest one."""

    def __init__(self, body: Body, rng: np.random.Generator) -> None:
        self.body = body
        self.rng = rng
        self.tree = cKDTree(body.v_template.numpy())
        self.outfits: list[tuple[ClothedBody, torch.Tensor]] = []

    def renew(self) -> None:
        clothed = clothed_body(self.body, torch.zeros(10), draw_outfit(self.rng), self.rng)
        own = np.arange(clothed.body_vertices)
        extra = clothed.rest[:, clothed.body_vertices :].T.numpy()
        follows = np.concatenate((own, self.tree.query(extra)[1])) if len(extra) else own
        if len(self.outfits) < OUTFITS:
            self.outfits.append((clothed, torch.from_numpy(follows)))
        else:
            self.outfits[self.rng.integers(OUTFITS)] = clothed, torch.from_numpy(follows)

    def dress(self, shape: torch.Tensor) -> ClothedBody:
        clothed, follows = self.outfits[self.rng.integers(len(self.outfits))]
        moved = torch.einsum("vcs,s->vc", self.body.shapedirs, shape)
        return replace(clothed, rest=clothed.rest + moved[follows].T.float())


def photographs(folder: Path, annotations: Path, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Linear light [H, W, 3] of photographs in which few people are, without end."""
    listing = json.loads(annotations.read_text())
    covered: dict[int, float] = {}
    for person in listing["annotations"]:
        covered[person["image_id"]] = (
            covered.get(person["image_id"], 0) + person["bbox"][2] * person["bbox"][3]
        )
    empty = [
        i
        for i in listing["images"]
        if covered.get(i["id"], 0) < MOST_COVERED * i["width"] * i["height"]
    ]
    while True:
        path = folder / empty[rng.integers(len(empty))]["file_name"]
        image = cv2.imread(str(path))
        if image is None:
            raise UserError(f"{path} cannot be read as an image.")
        light = textures.linear_rgb(cv2.cvtColor(image, cv2.COLOR_BGR2RGB)).astype(np.float32)
        light = light[:, ::-1] if rng.random() < 0.5 else light
        # A dark photograph at full exposure would be white around a window.
        yield np.ascontiguousarray(
            light * min(rng.uniform(0.2, 0.45) / max(float(light.mean()), 0.02), 3.0)
        )


def held(at_m: np.ndarray, rng: np.random.Generator) -> solids.Solid:
    """A stick, box, ball or telephone in a hand."""
    texture = str(rng.choice(["painted", "planks", "posters", "bark", "concrete"]))
    kind = rng.integers(4)
    if kind == 0:
        length = rng.uniform(0.3, 1.3)
        solid = solids.cylinder(rng.uniform(0.008, 0.03), length, texture)
        grip = length * rng.uniform(0.05, 0.5)
    elif kind == 1:
        size = rng.uniform(0.06, 0.4, 3)
        solid = solids.box(tuple(size), texture)
        grip = size[1] * rng.uniform(0, 1)
    elif kind == 2:
        radius = rng.uniform(0.04, 0.16)
        solid = solids.bush((radius, radius, radius), texture, rng)
        grip = radius
    else:
        height = rng.uniform(0.1, 0.18)
        solid = solids.box((rng.uniform(0.05, 0.1), height, 0.012), texture)
        grip = height * 0.4
    turn = Rotation.random(random_state=int(rng.integers(2**31))).as_matrix()
    return replace(solid, vertices_m=(solid.vertices_m - (0, grip, 0)) @ turn.T + at_m)


def in_front(
    pelvis_m: np.ndarray, ahead: np.ndarray, side: np.ndarray, rng: np.random.Generator
) -> list[solids.Solid]:
    """Furniture, a post or a bush between person and camera."""
    texture = str(rng.choice(["painted", "planks", "concrete", "posters", "foliage"]))
    high = rng.uniform(0.4, 1.1)
    kind = rng.integers(4)
    if kind == 0:
        parts = [solids.box((rng.uniform(0.3, 1.2), high, 0.3), texture)]
    elif kind == 1:
        parts = solids.table((rng.uniform(0.6, 1.5), high * 0.9, 0.5), texture)
    elif kind == 2:
        parts = [solids.cylinder(rng.uniform(0.04, 0.2), 2.5, texture)]
    else:
        parts = [solids.bush((0.4, high / 2, 0.3), "foliage", rng)]
    at = pelvis_m * (1, 0, 1) - ahead * rng.uniform(0.35, 1.0) + side * rng.uniform(-0.6, 0.6)
    yaw = float(np.arctan2(ahead[0], ahead[2]) + rng.normal(0, 0.3))
    return [part.moved(at, yaw) for part in parts]


def rendered(
    banks: list[Bank],
    body: Body,
    photos: Iterator[np.ndarray],
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Iterator[tuple[np.ndarray, np.ndarray, Camera, dict[str, torch.Tensor]]]:
    """Image (only what the crop needs), the person's box in it, its camera, and the truth in that
    camera; no end.
    """
    wardrobe = Wardrobe(body, rng)
    model = load_model(POSE_MODEL)
    kinds = sorted(textures.TEXTURES)
    one_of_each = [solids.box((1, 1, 1), kind) for kind in kinds]
    atlas, _ = solids.assign_textures(one_of_each, rng)

    def tiles(
        solids: list[solids.Solid], rng: np.random.Generator
    ) -> tuple[textures.Atlas, list[int]]:
        return atlas, [2 * kinds.index(solid.texture) + int(rng.integers(2)) for solid in solids]

    wardrobe.renew()
    while True:
        wardrobe.renew()
        motion = varied(
            windows(banks, list(MOTION_SHARES[: len(banks)]), torch.zeros(BATCH, 1), generator),
            generator,
        )
        turn = motion.turn[:, 0]
        shape = torch.randn(BATCH, body.shape_size, generator=generator).clamp(-2.3, 2.3)
        view = views(BATCH, generator)
        place = body.placement(quaternion_to_matrix(turn), shape)
        for n in range(BATCH):
            others = [int(rng.integers(BATCH))] if rng.random() < SOMEBODY_ELSE else []
            clothed = [wardrobe.dress(shape[m]) for m in (n, *others)]
            posed = []
            for who, m in zip(clothed, (n, *others), strict=True):
                one = type(place)(*(column[m : m + 1] for column in place))
                posed.append(who.posed(one, -place.joints[m, 0][None])[0])
            rotation = view.turn[n].double().numpy()
            target = view.target_m[n].double().numpy()
            half = view.half[n].double().numpy()
            pelvis = np.array([0, -posed[0][:, 1].min(), 0])
            posed[0] = (posed[0] + pelvis).astype(np.float32)
            to_camera = np.eye(4)
            to_camera[:3, :3] = rotation
            to_camera[:3, 3] = target - rotation @ pelvis
            camera_m = -rotation.T @ to_camera[:3, 3]
            ahead = (pelvis - camera_m) * (1, 0, 1)
            ahead /= np.linalg.norm(ahead) + 1e-9
            side = np.array([ahead[2], 0, -ahead[0]])
            if others:
                spot = side * rng.uniform(-1, 1)
                spot = spot + ahead * rng.uniform(0.45, 2.5) * (1 if rng.random() < 0.75 else -0.5)
                posed[1] = (posed[1] + [spot[0], -posed[1][:, 1].min(), spot[2]]).astype(np.float32)
                if (posed[1] @ rotation.T + to_camera[:3, 3])[:, 2].min() < 0.6:
                    clothed = clothed[:1]
                    posed = posed[:1]
            in_camera = posed[0] @ rotation.T + to_camera[:3, 3]
            if in_camera[:, 2].min() < 0.25:
                continue
            seen = in_camera[:, :2] / in_camera[:, 2:]
            low = np.maximum(seen.min(0), -half)
            high = np.minimum(seen.max(0), half)
            if (high - low).min() <= 0.02 * half.min():
                continue
            joints = (place.joints[n] - place.joints[n, :1]).double().numpy() + pelvis
            floor = solids.floor(60, "concrete")
            solids = [floor.moved((0, -40, 0)) if camera_m[1] < 0.15 else floor]
            if rng.random() < HOLDS:
                which = (HANDS[:1], HANDS[1:], HANDS)[rng.integers(3)]
                solids += [held(joints[hand] + rng.normal(0, 0.02, 3), rng) for hand in which]
            if rng.random() < IN_FRONT:
                solids += in_front(pelvis, ahead, side, rng)

            focal = float(np.exp(rng.uniform(*np.log(HEIGHT_PX))) / (high - low).max())
            size = np.maximum(np.round(2 * half * focal), 16).astype(int)
            box = np.concatenate((low, high)) * focal + np.tile(size / 2, 2)
            extent = box[2:] - box[:2]  # a detector's box is a little off
            box = box + np.tile(rng.normal(0, 0.03, 2) * extent, 2)
            box = box + np.array([-1, -1, 1, 1]) * np.tile(
                extent / 2 * rng.normal(0.02, 0.06, 2), 2
            )
            center, region = (
                part[0] for part in cropping.regions(box[None], model.input_wh, model.box_scale)
            )
            first = np.clip(np.floor(center - region * 0.52), 0, size).astype(int)
            end = np.clip(np.ceil(center + region * 0.52), 0, size).astype(int)
            if (end - first).min() < 24:
                continue
            camera = Camera.from_focal(
                focal, (int(end[0] - first[0]), int(end[1] - first[1])), tuple(size / 2 - first)
            )
            azimuth = float(np.arctan2(-ahead[0], -ahead[2]))
            sunlight = light.draw_light(rng, azimuth, indoors=rng.random() > 0.6)
            photo = next(photos)
            scene = around.Scene(solids, sunlight, np.zeros((2, 4, 3), np.float32))
            # Drawing textures takes longer than everything else: all crops share one set.
            with mock.patch.object(rendering, "assign_textures", tiles):
                mesh = rendering.build_scene_mesh(clothed, scene, rng)
            vertices = mesh.vertices_m(posed)
            bright = mesh.light(
                vertices, camera, to_camera, mesh.shadows(vertices, posed[0].mean(0)), np.zeros(2)
            )
            behind = mesh.owner(rendering.seen_by(vertices, mesh.faces, camera, to_camera)) == -2
            backdrop = cv2.resize(photo, tuple(map(int, size)))[
                first[1] : end[1], first[0] : end[0]
            ]
            bright[behind] = backdrop[behind]
            sensor = staging.draw_sensor(rng, 380)
            gain = min(
                staging.exposure_gain(sensor, bright),
                rng.uniform(0.7, 2) / float(np.quantile(bright, 0.97)),
            )
            image = staging.sensor_image(sensor, bright, gain, rng)
            jpeg = cv2.imencode(
                ".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, sensor.quality]
            )[1]
            decoded = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
            assert decoded is not None
            image = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
            root = Rotation.from_matrix(rotation) * Rotation.from_quat(turn[n, 0].numpy())
            truth = {"turn": turn[n].clone(), "shape": shape[n], "pelvis_m": view.target_m[n]}
            truth["turn"][0] = torch.from_numpy(root.as_quat())
            # Where the image ends is where the whole one would, not where it was cut for speed.
            whole = Camera.from_focal(focal, (int(size[0]), int(size[1])))
            yield image, np.concatenate((box, first)), whole, truth


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("--photos", type=Path, required=True, help="folder of COCO's images")
    parser.add_argument(
        "--annotations", type=Path, required=True, help="COCO's person keypoints of these images"
    )
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    body = load_body()
    rng = np.random.default_rng([given.seed, 5])
    generator = torch.Generator()
    generator.manual_seed(given.seed)
    banks = [bank(motion, body, motion.learned) for motion in load_motions(given, body).values()]
    model = load_model(POSE_MODEL)
    confidence = confidence_function("ccnet", POSE_MODEL, model, None)
    people = rendered(
        banks, body, photographs(given.photos, given.annotations, rng), rng, generator
    )
    columns: dict[str, list[torch.Tensor]] = {
        name: [] for name in (*Observation._fields, *Crops._fields[1:])
    }
    for _ in track(range(given.count), "crops"):
        image, place, camera, truth = next(people)
        box = place[:4]
        first = place[4:]
        crop = cropping.crop_people(model, image, (box - np.tile(first, 2))[None])
        with torch.inference_mode():
            keypoints = confidence(cropping.estimate_crops(model, crop))
        area = torch.tensor(
            [AREA_OF_BOX * (box[2] - box[0]) * (box[3] - box[1])], dtype=torch.float32
        )
        moved = keypoints.xy_px + torch.from_numpy(first).float()
        seen = observation(replace(keypoints, xy_px=moved, area_px2=area), [camera])
        for name, value in (
            seen._asdict() | {name: value[None] for name, value in truth.items()}
        ).items():
            columns[name].append(value)
    arrays: dict[str, Any] = {
        name: torch.cat(values).float().numpy() for name, values in columns.items()
    }
    with atomic_file(given.out) as temporary:
        np.savez(temporary, **arrays)


if __name__ == "__main__":
    main()
