"""Stage 2: boxes -> keypoints with their confidence, in `keypoints.npz`."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch

from fitmesh.confidence import head_digest
from fitmesh.stages import tracks
from fitmesh.stages.settings import Job
from fitmesh.stages.tracks import track_rows
from pose2d.base.caching import CacheKey, code_digest, content_digest, npz_is_current, read_npz, write_npz
from pose2d.estimate import BATCH, estimate_frames
from pose2d.oks import AREA_OF_BOX
from pose2d.registry import module_of
from pose2d.skeletons import BY_NAME
from pose2d.types import ConfidenceSource, Keypoints

FILE = "keypoints.npz"
is_current = npz_is_current


@dataclass(frozen=True)
class KeypointsFile:
    """What `keypoints.npz` holds."""

    people: dict[int, Keypoints]  # by identity; row t of a person's arrays belongs to `frames[identity][t]`
    frames: dict[int, np.ndarray]  # [T] frame numbers
    boxes_px: dict[int, np.ndarray]  # [T, 4] the boxes the crops were cut around
    raw: dict[int, np.ndarray]  # [T, K] the network's own confidence, whatever `source` the calibrated one has
    pose_model: str
    source: ConfidenceSource


def cache_key(job: Job) -> CacheKey:
    settings = job.settings.keypoints
    inputs = {"clip": job.clip_digest, "tracks": tracks.cache_key(job).digest}
    if settings.checkpoint is not None:
        inputs["checkpoint"] = content_digest([settings.checkpoint])
    if head := head_digest(settings.confidence, settings.pose_model, settings.ccnet):
        inputs["ccnet"] = head
    return CacheKey(
        stage="keypoints",
        settings={"pose_model": settings.pose_model, "confidence": settings.confidence, "batch": BATCH},
        inputs=inputs,
        code=code_digest("pose2d.estimate", module_of(settings.pose_model), "fitmesh.confidence"),
    )


def make(job: Job, key: CacheKey) -> None:
    """Estimate the keypoints of everyone in `tracks.npz`, batches of crops at a time."""
    found = tracks.read(job.out / tracks.FILE).tracks
    rows = track_rows(found)
    frame, boxes_px = rows["row_frame"], rows["row_box_px"]
    networks = job.networks.take()
    count, size = len(frame), networks.pose.skeleton.size
    xy_px, sigma_px = (np.full((count, size, 2), np.nan, np.float32) for _ in range(2))
    raw, confidence, presence = (np.zeros((count, size), np.float32) for _ in range(3))
    images = ((image.index, image.rgb) for image in job.clip.frames(job.settings.span))
    with job.reporter.stage("keypoints", count, "people") as tick, torch.inference_mode():
        for batch, estimate in estimate_frames(networks.pose, images, frame, boxes_px):
            calibrated, present = networks.confidence(estimate)
            xy_px[batch], sigma_px[batch] = estimate.xy_px.numpy(), estimate.sigma_px.numpy()
            raw[batch] = estimate.score.numpy()
            confidence[batch], presence[batch] = calibrated.cpu().numpy(), present.cpu().numpy()
            tick(len(batch))
    write_npz(
        job.out / FILE,
        key,
        {
            "pose_model": job.settings.keypoints.pose_model,
            "skeleton": networks.pose.skeleton.name,
            "source": job.settings.keypoints.confidence,
            **rows,
            "row_area_px2": AREA_OF_BOX * (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1),
            "row_xy_px": xy_px,
            "row_raw": raw,
            "row_confidence": confidence,
            "row_presence": presence,
            "row_sigma_px": sigma_px,  # NaN where the network states none
        },
    )


def read(path: Path) -> KeypointsFile:
    arrays = read_npz(path)
    first = arrays["first_row"]
    spans = {int(i): slice(a, b) for i, a, b in zip(arrays["identity"], first[:-1], first[1:], strict=True)}
    source = cast(ConfidenceSource, str(arrays["source"]))
    everyone = Keypoints(
        xy_px=torch.from_numpy(arrays["row_xy_px"]),
        confidence=torch.from_numpy(arrays["row_confidence"]),
        presence=torch.from_numpy(arrays["row_presence"]),
        source=source,
        area_px2=torch.from_numpy(arrays["row_area_px2"]),
        skeleton=BY_NAME[str(arrays["skeleton"])],
    )

    def of_each(values: np.ndarray) -> dict[int, np.ndarray]:
        return {identity: values[rows] for identity, rows in spans.items()}

    return KeypointsFile(
        people={identity: everyone.rows(rows) for identity, rows in spans.items()},
        frames=of_each(arrays["row_frame"]),
        boxes_px=of_each(arrays["row_box_px"]),
        raw=of_each(arrays["row_raw"]),
        pose_model=str(arrays["pose_model"]),
        source=source,
    )
