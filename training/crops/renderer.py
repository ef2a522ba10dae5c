"""Render crops of people before photographs, as a camera's sensor gives them."""

from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import cv2
import numpy as np
import torch

from eval3dpw.synth import rendering, sensors, textures
from eval3dpw.synth.light import draw_light
from eval3dpw.synth.solids import Solid, assign_textures, box
from eval3dpw.synth.surroundings import Scene
from fitting.body import Body
from fitting.camera import Camera
from pose2d import crops as cropping
from pose2d.models.base import PoseModel
from training.crops.draws import BATCH, Crowd
from training.crops.scene import ArrangedScene, arrange, truth_in_camera
from training.crops.wardrobe import Wardrobe

HEIGHT_PX = (110.0, 340.0)  # of the person's box: what a crop of 256 pixels is made of
MARGIN = 0.52  # of the region that is cropped, rendered to each side of its centre
LEAST_PX = 24  # smallest side of what is rendered
MOTION_BLUR = 0.15  # share of crops
BLUR_PX = (2, 9)
LIGHTS_OUTDOORS = 0.6
SENSOR_WIDTH_PX = 380  # the width of image that noise and blur of the sensor are drawn for


@dataclass(frozen=True)
class RenderedPerson:
    """One person in a part of an image, with the truth in that image's camera."""

    image: np.ndarray  # [h, w, 3] uint8 RGB, the part that the crop needs
    first_px: np.ndarray  # [2] its corner in the image
    box_px: np.ndarray  # [4] x1, y1, x2, y2 in the image, a little off as a detector's are
    camera: Camera  # of the full image
    truth: dict[str, torch.Tensor]  # turn [24, 4], shape [S], pelvis_m [3], contacts [12]


class CropRenderer:
    """Yield rendered people without end."""

    def __init__(
        self,
        crowd: Crowd,
        body: Body,
        model: PoseModel,
        photos: Iterator[np.ndarray],
        rng: np.random.Generator,
    ) -> None:
        self.crowd = crowd
        self.body = body
        self.model = model
        self.photos = photos
        self.rng = rng
        self.wardrobe = Wardrobe(body, rng)
        # Drawing textures takes longer than everything else: all crops share one set.
        self.texture_kinds = sorted(textures.TEXTURES)
        cubes = [box((1, 1, 1), kind) for kind in self.texture_kinds]
        self.atlas, _ = assign_textures(cubes, rng)

    def __iter__(self) -> Iterator[RenderedPerson]:
        self.wardrobe.renew()
        while True:
            self.wardrobe.renew()
            draws = self.crowd.draw()
            for row in range(BATCH):
                scene = arrange(draws, row, self.body, self.wardrobe, self.rng)
                if scene is None:
                    continue
                person = self._render(scene)
                if person is not None:
                    person.truth.update(truth_in_camera(draws, row))
                    person.truth["contacts"] = draws.contacts[row].float()
                    yield person

    def _render(self, scene: ArrangedScene) -> RenderedPerson | None:
        """Choose a resolution and render the part of the image that the crop needs."""
        rng = self.rng
        height_px = np.exp(rng.uniform(*np.log(HEIGHT_PX)))
        focal = float(height_px / (scene.high - scene.low).max())
        size = np.maximum(np.round(2 * scene.half * focal), 16).astype(int)
        corners = np.concatenate((scene.low, scene.high)) * focal + np.tile(size / 2, 2)
        box_px = _shake_box(corners, rng)
        centers, regions = cropping.regions(box_px[None], self.model.input_wh, self.model.box_scale)
        first = np.clip(np.floor(centers[0] - regions[0] * MARGIN), 0, size).astype(int)
        end = np.clip(np.ceil(centers[0] + regions[0] * MARGIN), 0, size).astype(int)
        if (end - first).min() < LEAST_PX:
            return None
        width, height = (int(side) for side in end - first)
        part_camera = Camera.from_focal(focal, (width, height), tuple(size / 2 - first))
        light = self._light(scene, part_camera, size, first, end)
        image = self._sensor_image(light)
        camera = Camera.from_focal(focal, (int(size[0]), int(size[1])))
        return RenderedPerson(image, first, box_px, camera, {})

    def _light(
        self,
        scene: ArrangedScene,
        camera: Camera,
        size: np.ndarray,
        first: np.ndarray,
        end: np.ndarray,
    ) -> np.ndarray:
        """Return linear light [h, w, 3] of the scene before a photograph."""
        rng = self.rng
        azimuth = float(np.arctan2(-scene.ahead[0], -scene.ahead[2]))
        sunlight = draw_light(rng, azimuth, indoors=rng.random() > LIGHTS_OUTDOORS)
        sky = np.zeros((2, 4, 3), np.float32)
        with mock.patch.object(rendering, "assign_textures", self._shared_textures):
            mesh = rendering.build_scene_mesh(
                scene.clothed, Scene(scene.solids, sunlight, sky), rng
            )
        vertices = mesh.vertices_m(scene.posed_m)
        shadows = mesh.shadows(vertices, scene.posed_m[0].mean(0))
        light = mesh.light(vertices, camera, scene.to_camera, shadows, np.zeros(2))
        raster = rendering.seen_by(vertices, mesh.faces, camera, scene.to_camera)
        behind = mesh.owner(raster) == -2
        backdrop = cv2.resize(next(self.photos), (int(size[0]), int(size[1])))
        light[behind] = backdrop[first[1] : end[1], first[0] : end[0]][behind]
        return _blur_by_motion(light, rng) if rng.random() < MOTION_BLUR else light

    def _shared_textures(
        self, solids: list[Solid], rng: np.random.Generator
    ) -> tuple[textures.Atlas, list[int]]:
        """Stand in for `assign_textures`: pick tiles of the atlas that all crops share."""
        tiles = [
            2 * self.texture_kinds.index(solid.texture) + int(rng.integers(2)) for solid in solids
        ]
        return self.atlas, tiles

    def _sensor_image(self, light: np.ndarray) -> np.ndarray:
        """Return uint8 RGB as a camera's sensor and its JPEG compression give it."""
        rng = self.rng
        sensor = sensors.draw_sensor(rng, SENSOR_WIDTH_PX)
        bright = rng.uniform(0.7, 2) / float(np.quantile(light, 0.97))
        gain = min(sensors.exposure_gain(sensor, light), bright)
        image = sensors.sensor_image(sensor, light, gain, rng)
        quality = [cv2.IMWRITE_JPEG_QUALITY, sensor.quality]
        jpeg = cv2.imencode(".jpg", image[..., ::-1], quality)[1]
        decoded = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
        assert decoded is not None
        return cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)


def _shake_box(box_px: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a box [4] that is a little off, as a detector's is."""
    extent = box_px[2:] - box_px[:2]
    shift = np.tile(rng.normal(0, 0.03, 2) * extent, 2)
    growth = np.tile(extent / 2 * rng.normal(0.02, 0.06, 2), 2)
    return box_px + shift + np.array([-1, -1, 1, 1]) * growth


def _blur_by_motion(light: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Smear light [h, w, 3] along a random direction."""
    length = int(rng.integers(*BLUR_PX)) | 1
    kernel = np.zeros((length, length), np.float32)
    kernel[length // 2] = 1 / length
    turn = cv2.getRotationMatrix2D((length / 2 - 0.5, length / 2 - 0.5), rng.uniform(0, 180), 1)
    turned = cv2.warpAffine(kernel, turn, (length, length))
    return cv2.filter2D(light, -1, turned / turned.sum())
