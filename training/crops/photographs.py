"""Draw photographs with few people in them as backdrops."""

import json
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from eval3dpw.synth import textures
from pose2d.base.errors import UserError

MOST_COVERED = 0.25  # of a photograph, by its annotated people


def photographs(folder: Path, annotations: Path, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield linear light [H, W, 3] of photographs with few people in them, without end."""
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
