"""Stage 2: crops -> keypoints and how far each can be trusted, in `keypoints.npz`."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

import pose2d
from fitmesh import confidence as trust
from fitmesh.progress import Reporter
from fitmesh.stages import tracks
from pose2d.base.caching import CacheKey, content_digest, npz_is_current, read_npz, write_npz
from pose2d.base.prefetch import Background
from pose2d.estimate import BATCH, estimate_frames
from pose2d.io.clip import Clip, Span
from pose2d.models.base import PoseModel
from pose2d.oks import AREA_OF_BOX
from pose2d.skeletons import BY_NAME
from pose2d.types import ConfidenceSource, Keypoints, Track

FILE = "keypoints.npz"


@dataclass(frozen=True)
class KeypointSettings:
    """Which network reads the crops, and who says how far to trust it."""

    pose_model: str = "movenet-thunder"
    checkpoint: Path | None = None
    confidence: ConfidenceSource = "raw"
    ccnet: Path | None = None  # a calibration head other than the embedded one
    device: str = "cpu"  # where the network runs; the same keypoints come out


@dataclass(frozen=True)
class KeypointsFile:
    """What `keypoints.npz` holds."""

    people: dict[int, Keypoints]  # by identity; row t of a person's arrays belongs to `frames[identity][t]`
    frames: dict[int, np.ndarray]  # [T] frame numbers
    boxes_px: dict[int, np.ndarray]  # [T, 4] the boxes the crops were cut around
    raw: dict[int, np.ndarray]  # [T, K] the network's own confidence, whatever `source` the calibrated one has
    pose_model: str
    source: ConfidenceSource


def cache_key(clip_digest: str, tracks_key: CacheKey, settings: KeypointSettings) -> CacheKey:
    inputs = {"clip": clip_digest, "tracks": tracks_key.digest}
    if settings.checkpoint is not None:
        inputs["checkpoint"] = content_digest([settings.checkpoint])
    if head := trust.digest(settings.confidence, settings.pose_model, settings.ccnet):
        inputs["ccnet"] = head
    return CacheKey(
        stage="keypoints",
        settings={"pose_model": settings.pose_model, "confidence": settings.confidence, "batch": BATCH},
        inputs=inputs,
    )


def load_networks(settings: KeypointSettings) -> tuple[PoseModel, trust.Judge]:
    """The one that reads keypoints and the one that says how far to trust them."""
    model = pose2d.load(settings.pose_model, settings.checkpoint)
    judge = trust.judge(settings.confidence, settings.pose_model, model, settings.ccnet, settings.device)
    return model.to(settings.device), judge


def make(
    clip: Clip,
    span: Span,
    tracks_file: Path,
    path: Path,
    key: CacheKey,
    settings: KeypointSettings,
    networks: Background[tuple[PoseModel, trust.Judge]],
    reporter: Reporter,
) -> None:
    """Read the keypoints of everyone in `tracks_file`, batches of crops at a time, and write them."""
    known = tracks.read(tracks_file)
    frame = np.concatenate([np.zeros(0, np.int64), *(track.frames for track in known.tracks)])
    boxes_px = np.concatenate([np.zeros((0, 4)), *(track.boxes_px for track in known.tracks)])
    area_px2 = AREA_OF_BOX * (boxes_px[:, 2:] - boxes_px[:, :2]).prod(1)
    model, judge = networks.get()
    count, size = len(frame), model.skeleton.size
    xy_px, sigma_px = (np.full((count, size, 2), np.nan, np.float32) for _ in range(2))
    raw, confidence, presence = (np.zeros((count, size), np.float32) for _ in range(3))
    frames = ((image.index, image.rgb) for image in clip.frames(span))
    with reporter.stage("keypoints", count, "people") as tick, torch.inference_mode():
        for rows, found in estimate_frames(model, frames, frame, boxes_px):
            trusted, present = judge(found.features, found.score, found.sigma_px, found.crop_area_px2)
            xy_px[rows], sigma_px[rows], raw[rows] = found.xy_px.numpy(), found.sigma_px.numpy(), found.score.numpy()
            confidence[rows], presence[rows] = trusted.cpu().numpy(), present.cpu().numpy()
            tick(len(rows))
    write_npz(
        path,
        key,
        {
            "pose_model": settings.pose_model,
            "skeleton": model.skeleton.name,
            "source": settings.confidence,
            **by_person(known.tracks),
            "row_area_px2": area_px2,
            "row_xy_px": xy_px,
            "row_raw": raw,
            "row_confidence": confidence,
            "row_presence": presence,
            "row_sigma_px": sigma_px,  # NaN where the network states none
        },
    )


def by_person(known: list[Track]) -> dict[str, np.ndarray]:
    """Whose the rows are, which frames and boxes they come from."""
    return {
        "identity": np.array([track.identity for track in known], np.int64),
        "first_row": np.cumsum([0, *(len(track.frames) for track in known)]),
        "row_frame": np.concatenate([np.zeros(0, np.int64), *(track.frames for track in known)]),
        "row_box_px": np.concatenate([np.zeros((0, 4)), *(track.boxes_px for track in known)]),
    }


def read(path: Path) -> KeypointsFile:
    arrays = read_npz(path)
    first = arrays["first_row"]
    spans = {int(i): slice(a, b) for i, a, b in zip(arrays["identity"], first[:-1], first[1:], strict=True)}
    source = cast(ConfidenceSource, str(arrays["source"]))

    def tensor(name: str, rows: slice) -> Tensor:
        return torch.from_numpy(arrays[name][rows])

    return KeypointsFile(
        people={
            identity: Keypoints(
                xy_px=tensor("row_xy_px", rows),
                confidence=tensor("row_confidence", rows),
                presence=tensor("row_presence", rows),
                source=source,
                area_px2=tensor("row_area_px2", rows),
                skeleton=BY_NAME[str(arrays["skeleton"])],
            )
            for identity, rows in spans.items()
        },
        frames={identity: arrays["row_frame"][rows] for identity, rows in spans.items()},
        boxes_px={identity: arrays["row_box_px"][rows] for identity, rows in spans.items()},
        raw={identity: arrays["row_raw"][rows] for identity, rows in spans.items()},
        pose_model=str(arrays["pose_model"]),
        source=source,
    )


matches = npz_is_current
