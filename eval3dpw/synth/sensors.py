"""Draw cameras' sensors, and turn light into their images."""

from dataclasses import dataclass

import cv2
import numpy as np


@dataclass(frozen=True)
class Sensor:
    shutter: float  # share of the time between frames that the shutter is open
    brightness: float  # mean of the image that the exposure aims for, linear
    shot_noise: float  # variance per unit of light
    read_noise: float  # standard deviation
    blur_px: float  # of the lens
    tint: np.ndarray  # [3] error of the white balance
    contrast: float
    saturation: float
    vignette: float  # share of light lost in the corners
    quality: int  # of the JPEG


def draw_sensor(rng: np.random.Generator, width: int) -> Sensor:
    dim = rng.random() < 0.3
    return Sensor(
        shutter=rng.uniform(0.5, 0.95) if dim else rng.uniform(0.1, 0.8),
        brightness=rng.uniform(0.05, 0.10) if dim else rng.uniform(0.14, 0.27),
        shot_noise=rng.uniform(1.5e-3, 6e-3) if dim else rng.uniform(1e-4, 1.2e-3),
        read_noise=rng.uniform(0.004, 0.012) if dim else rng.uniform(0.001, 0.004),
        blur_px=rng.uniform(0.4, 1.3) * width / 640,
        tint=np.exp(rng.normal(0, 0.05, 3)),
        contrast=rng.uniform(0.9, 1.2),
        saturation=rng.uniform(0.75, 1.15),
        vignette=rng.uniform(0, 0.35),
        quality=int(rng.integers(72, 95)),
    )


def exposure_gain(sensor: Sensor, light: np.ndarray) -> float:
    """Return the factor for light [H, W, 3]; it is set once for a sequence, by its first image."""
    grey = light.mean(2)
    return sensor.brightness / max(float(np.minimum(grey, 4 * np.median(grey)).mean()), 1e-6)


def sensor_image(
    sensor: Sensor, light: np.ndarray, gain: float, rng: np.random.Generator
) -> np.ndarray:
    """Turn linear light [H, W, 3] into uint8 RGB: lens blur, vignette, noise and tone curve."""
    height, width = light.shape[:2]
    y, x = np.ogrid[:height, :width]
    corner = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2
    exposed: np.ndarray = cv2.GaussianBlur(light, (0, 0), sensor.blur_px)
    exposed *= (gain * (1 - sensor.vignette * corner)).astype(np.float32)[..., None]
    exposed *= sensor.tint.astype(np.float32)
    np.maximum(exposed, 0, out=exposed)
    exposed += np.sqrt(sensor.shot_noise * exposed + sensor.read_noise**2) * rng.standard_normal(
        exposed.shape, np.float32
    )
    np.maximum(exposed, 0, out=exposed)
    exposed *= (1 + exposed / 4) / (1 + exposed)  # highlights roll off; 4 is white
    toned = np.sqrt(exposed) * 1.1  # about the inverse of a screen's gamma
    grey = cv2.transform(toned, np.full((1, 3), 1 / 3, np.float32))[..., None]
    toned = (grey + sensor.saturation * (toned - grey) - 0.45) * sensor.contrast + 0.45
    return (np.clip(toned, 0, 1) * 255 + 0.5).astype(np.uint8)
