"""From light to a file as a camera would make it: exposure time, lens, sensor noise, tone, JPEG."""

from dataclasses import dataclass

import cv2
import numpy as np

SHIFTS_PX = np.array([(-0.375, -0.125), (0.125, -0.375), (0.375, 0.125), (-0.125, 0.375)])  # moments of an exposure
MOMENTS = len(SHIFTS_PX)


@dataclass(frozen=True)
class Sensor:
    """One camera's settings."""

    shutter: float  # share of the time between frames that the shutter is open
    brightness: float  # mean of the image that exposure aims for, linear
    shot_noise: float  # variance per unit of light
    read_noise: float  # standard deviation
    blur_px: float  # of the lens
    tint: np.ndarray  # [3] error of the white balance
    contrast: float
    saturation: float
    vignette: float  # share of light lost in the corners
    quality: int  # of the JPEG


def draw(rng: np.random.Generator, width: int) -> Sensor:
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


def moments(sensor: Sensor) -> np.ndarray:
    """[MOMENTS] times of the exposure in frames, around 0."""
    return sensor.shutter * ((np.arange(MOMENTS) + 0.5) / MOMENTS - 0.5)


def exposure(sensor: Sensor, light: np.ndarray) -> float:
    """What to multiply light [H, W, 3] by; set once for a sequence, by its first image."""
    grey = light.mean(2)
    return sensor.brightness / max(float(np.minimum(grey, 4 * np.median(grey)).mean()), 1e-6)


def develop(sensor: Sensor, light: np.ndarray, gain: float, rng: np.random.Generator) -> np.ndarray:
    """Light [H, W, 3] linear -> uint8 RGB."""
    height, width = light.shape[:2]
    y, x = np.ogrid[:height, :width]
    corner = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2
    seen: np.ndarray = cv2.GaussianBlur(light, (0, 0), sensor.blur_px)
    seen *= (gain * (1 - sensor.vignette * corner)).astype(np.float32)[..., None]
    seen *= sensor.tint.astype(np.float32)
    np.maximum(seen, 0, out=seen)
    seen += np.sqrt(sensor.shot_noise * seen + sensor.read_noise**2) * rng.standard_normal(seen.shape, np.float32)
    np.maximum(seen, 0, out=seen)
    seen *= (1 + seen / 4) / (1 + seen)  # highlights roll off; 4 is white
    toned = np.sqrt(seen) * 1.1  # about what screens undo
    grey = cv2.transform(toned, np.full((1, 3), 1 / 3, np.float32))[..., None]
    toned = (grey + sensor.saturation * (toned - grey) - 0.45) * sensor.contrast + 0.45
    return (np.clip(toned, 0, 1) * 255 + 0.5).astype(np.uint8)


def encode(sensor: Sensor, image: np.ndarray) -> bytes:
    """A JPEG of an RGB image."""
    done, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, sensor.quality])
    assert done
    return data.tobytes()
