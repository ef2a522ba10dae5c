"""Compare the outlines of fitted bodies with people's masks in images."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import fitting
from fitmesh.tracks import edited_keypoints
from fitting.camera import Camera
from fitting.fits import TrackFit
from fitting.render.raster import rasterize
from fitting.shot import ShotFit
from pose2d.masks import CROP, LEAST_SURE, segment_person
from pose2d.video.frames import Span
from pose2d.video.images import ImageFolder
from pose2d.video.video_file import Video

# every third of 90 frames at 30 frames/s
SIZE = (960, 540)
IOU_FRAMES = 12  # of a person
WHOLE = [5, 6, *range(11, 17)]  # keypoints of shoulders, hips and legs


@dataclass(frozen=True)
class MaskedImage:
    """A person with the mask that a run would use."""

    identity: int
    frame: int
    region: np.ndarray  # [3] centre and side, px
    mask: np.ndarray  # [256, 256]
    inside: np.ndarray  # [256, 256] pixels that lie in the image


def masked_images(out: Path, clip: Path) -> list[MaskedImage]:
    """Return masked images of frames from which no shape was found."""
    observed = edited_keypoints(out)
    images = []
    requested: dict[int, list[tuple[int, int]]] = {}
    for identity, person in observed.people.items():
        outlines = observed.outlines_of(identity)
        sure = person.sure
        assert outlines is not None
        free = np.setdiff1d(np.arange(len(person)), outlines.row)
        free = free[sure[free][:, WHOLE].min(1) >= LEAST_SURE]  # who is cut off has no whole mask
        for row in free[
            np.linspace(0, len(free) - 1, min(IOU_FRAMES, len(free))).astype(int)
        ].tolist():
            requested.setdefault(int(person.frame[row]), []).append((identity, row))
    for frame in (ImageFolder if clip.is_dir() else Video)(clip).frames(Span()):
        for identity, row in requested.get(frame.index, ()):
            points = observed.people[identity].rows(slice(row, row + 1))
            xy = points.xy_px[0].astype(np.float64)
            sure = points.sure[0]
            segmented = segment_person(frame.rgb, xy[sure >= LEAST_SURE], xy[[11, 12]].mean(0))
            if segmented is not None:
                region, _, mask = segmented
                pixel = (np.arange(CROP) - (CROP - 1) / 2) * region[2] / CROP
                x, y = (
                    (pixel + index >= 0) & (pixel + index < n)
                    for index, n in zip(region[:2], frame.rgb.shape[1::-1], strict=True)
                )
                images.append(MaskedImage(identity, frame.index, region, mask, y[:, None] & x))
    return images


def seen_whole(folder: Path) -> list[MaskedImage]:
    """Return masked images of the rendered person."""
    result = masked_images(folder / "found", folder / "images")
    most = max(Counter(masked.identity for masked in result).values(), default=0)
    return [
        masked
        for masked in result
        if sum(second.identity == masked.identity for second in result) == most
    ]


def true_camera(folder: Path) -> Camera:
    with np.load(folder / "truth.npz") as file:
        return Camera.from_focal(float(file["focal"]), SIZE)


def true_vertices(folder: Path) -> np.ndarray:
    """[T, V, 3] in the camera."""
    with np.load(folder / "truth.npz") as file:
        pose, shape, translation = (
            torch.from_numpy(file[name]) for name in ("pose", "shape", "translation")
        )
        camera = file["cam_poses"].astype(np.float32)
    vertices = fitting.load_body()(pose, shape, translation, vertices=True).vertices
    assert vertices is not None
    return np.einsum("tij,tnj->tni", camera[:, :3, :3], vertices.numpy()) + camera[:, None, :3, 3]


def posed(track: TrackFit, frame: int) -> np.ndarray:
    """[V, 3] in the camera."""
    vertices = (
        fitting.load_body()
        .at(track.fit.params.rows(track.index(np.array([frame]))), vertices=True)
        .vertices
    )
    assert vertices is not None
    return vertices[0].numpy()


def iou(vertices: np.ndarray, image: MaskedImage, camera: Camera) -> float:
    ratio = CROP / image.region[2]
    x, y = ((np.array(camera.center_px) - image.region[:2]) * ratio + (CROP - 1) / 2).tolist()
    crop = Camera.from_focal(
        (camera.focal_px[0] * ratio, camera.focal_px[1] * ratio), (CROP, CROP), (x, y)
    )
    mesh = (rasterize(vertices, fitting.load_body().faces.numpy(), crop).face >= 0) & image.inside
    mask = image.mask & image.inside
    return float((mesh & mask).sum() / max((mesh | mask).sum(), 1))


def camera_at(shot: ShotFit, frame: int) -> Camera:
    zoom = None
    if shot.motion is not None:
        zoom = shot.motion.zooming(np.searchsorted(shot.motion.frames, [frame]))
    ratio = 1.0 if zoom is None else float(zoom[0])
    x, y = shot.camera.focal_px
    return Camera.from_focal((ratio * x, ratio * y), shot.camera.size, shot.camera.center_px)


def silhouettes(out: Path, clip: Path, shots: list[list[ShotFit]]) -> np.ndarray:
    """[n, variants] IoU of meshes and masks; shots: of each variant."""
    results = []
    for masked in masked_images(out, clip):
        current = [
            next((shot for shot in variant if masked.identity in shot.people), None)
            for variant in shots
        ]
        fitted = [shot for shot in current if shot is not None]
        if len(fitted) == len(shots):
            results.append(
                [
                    iou(
                        posed(s.people[masked.identity], masked.frame),
                        masked,
                        camera_at(s, masked.frame),
                    )
                    for s in fitted
                ]
            )
    return np.array(results).reshape(-1, len(shots))
