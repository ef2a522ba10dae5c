"""Crops for the lifter's training: rendered people with truth, as the embedded 2D network reads
them.

    python -m training.rendered_crops --clips clips_30fps.npz --poses poses_5fps.npz --exercises ui_prmd_25hz.npz \
        --woman accad_female1.npz --photos train2017 --annotations person_keypoints_train2017.json \
        --count 60000 --out crops.npz

Every crop has a pose of the lifter's training motion, a body, camera, light and sensor of its own
before a photograph with few people in it; things in hands, something in front, and now and then
another person. Clothes are the slow part, so sixty outfits are shared and replaced one by one. About
0.03 s a crop on one core.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import cv2
import numpy as np
import torch
from rich.progress import track
from scipy.spatial.transform import Rotation

from ccnet.confidence import confidence_function
from eval3dpw.synth import rendering, sensors, textures
from eval3dpw.synth.light import draw_light
from eval3dpw.synth.solids import Solid, assign_textures, box, floor
from eval3dpw.synth.surroundings import Scene
from fitting.body import Body
from fitting.body.load import load_body
from fitting.body.rotations import quaternion_to_matrix
from fitting.camera import Camera
from fitting.init.lifter import make_observation
from fitting.init.lifter_inputs import Observation
from pose2d import crops as cropping
from pose2d.base.files import atomic_file
from pose2d.models.loading import load as load_model
from pose2d.types import AREA_OF_BOX
from training.crops.photographs import photographs
from training.crops.props import held, in_front
from training.crops.wardrobe import Wardrobe
from training.examples.crop_examples import Crops
from training.examples.views import draw_views
from training.motion.bank import Bank, bank, cut_windows, vary
from training.motion.sources import MOTION_SHARES, add_arguments, load_motions

POSE_MODEL = "rtmpose-s-halpe26"
BATCH = 32
HEIGHT_PX = (110.0, 340.0)  # of the person's box: what a crop of 256 pixels is made of
# shares of crops
OTHER_PERSON = 0.3
HOLDS = 0.35
IN_FRONT = 0.22
HANDS = (22, 23)


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
    one_of_each = [box((1, 1, 1), kind) for kind in kinds]
    atlas, _ = assign_textures(one_of_each, rng)

    def tiles(solids: list[Solid], rng: np.random.Generator) -> tuple[textures.Atlas, list[int]]:
        return atlas, [2 * kinds.index(solid.texture) + int(rng.integers(2)) for solid in solids]

    wardrobe.renew()
    while True:
        wardrobe.renew()
        motion = vary(
            cut_windows(banks, list(MOTION_SHARES[: len(banks)]), torch.zeros(BATCH, 1), generator),
            generator,
        )
        turn = motion.turn[:, 0]
        shape = torch.randn(BATCH, body.shape_size, generator=generator).clamp(-2.3, 2.3)
        view = draw_views(BATCH, generator)
        place = body.placement(quaternion_to_matrix(turn), shape)
        for n in range(BATCH):
            others = [int(rng.integers(BATCH))] if rng.random() < OTHER_PERSON else []
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
            ground = floor(60, "concrete")
            solids = [ground.moved((0, -40, 0)) if camera_m[1] < 0.15 else ground]
            if rng.random() < HOLDS:
                which = (HANDS[:1], HANDS[1:], HANDS)[rng.integers(3)]
                solids += [held(joints[hand] + rng.normal(0, 0.02, 3), rng) for hand in which]
            if rng.random() < IN_FRONT:
                solids += in_front(pelvis, ahead, side, rng)

            focal = float(np.exp(rng.uniform(*np.log(HEIGHT_PX))) / (high - low).max())
            size = np.maximum(np.round(2 * half * focal), 16).astype(int)
            person_box = np.concatenate((low, high)) * focal + np.tile(size / 2, 2)
            extent = person_box[2:] - person_box[:2]  # a detector's box is a little off
            person_box = person_box + np.tile(rng.normal(0, 0.03, 2) * extent, 2)
            person_box = person_box + np.array([-1, -1, 1, 1]) * np.tile(
                extent / 2 * rng.normal(0.02, 0.06, 2), 2
            )
            center, region = (
                part[0]
                for part in cropping.regions(person_box[None], model.input_wh, model.box_scale)
            )
            first = np.clip(np.floor(center - region * 0.52), 0, size).astype(int)
            end = np.clip(np.ceil(center + region * 0.52), 0, size).astype(int)
            if (end - first).min() < 24:
                continue
            camera = Camera.from_focal(
                focal, (int(end[0] - first[0]), int(end[1] - first[1])), tuple(size / 2 - first)
            )
            azimuth = float(np.arctan2(-ahead[0], -ahead[2]))
            sunlight = draw_light(rng, azimuth, indoors=rng.random() > 0.6)
            photo = next(photos)
            scene = Scene(solids, sunlight, np.zeros((2, 4, 3), np.float32))
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
            sensor = sensors.draw_sensor(rng, 380)
            gain = min(
                sensors.exposure_gain(sensor, bright),
                rng.uniform(0.7, 2) / float(np.quantile(bright, 0.97)),
            )
            image = sensors.sensor_image(sensor, bright, gain, rng)
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
            yield image, np.concatenate((person_box, first)), whole, truth


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
    options = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    body = load_body()
    rng = np.random.default_rng([options.seed, 5])
    generator = torch.Generator()
    generator.manual_seed(options.seed)
    banks = [bank(motion, body, motion.learned) for motion in load_motions(options, body).values()]
    model = load_model(POSE_MODEL)
    confidence = confidence_function("ccnet", POSE_MODEL, model, None)
    people = rendered(
        banks, body, photographs(options.photos, options.annotations, rng), rng, generator
    )
    columns: dict[str, list[torch.Tensor]] = {
        name: [] for name in (*Observation._fields, *Crops._fields[1:])
    }
    for _ in track(range(options.count), "crops"):
        image, place, camera, truth = next(people)
        person_box = place[:4]
        first = place[4:]
        crop = cropping.crop_people(model, image, (person_box - np.tile(first, 2))[None])
        with torch.inference_mode():
            keypoints = confidence(cropping.estimate_crops(model, crop))
        area = torch.tensor(
            [AREA_OF_BOX * (person_box[2] - person_box[0]) * (person_box[3] - person_box[1])],
            dtype=torch.float32,
        )
        moved = keypoints.xy_px + torch.from_numpy(first).float()
        observed = make_observation(replace(keypoints, xy_px=moved, area_px2=area), [camera])
        for name, value in (
            observed._asdict() | {name: value[None] for name, value in truth.items()}
        ).items():
            columns[name].append(value)
    arrays: dict[str, Any] = {
        name: torch.cat(values).float().numpy() for name, values in columns.items()
    }
    with atomic_file(options.out) as temporary:
        np.savez(temporary, **arrays)


if __name__ == "__main__":
    main()
