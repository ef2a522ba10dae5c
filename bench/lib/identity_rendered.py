"""Rendered people for bench/identity.py: what detector and pose network see in them, with exact
identities.

DIR is made by `fitmesh synth`; sequences with several people are used. The detector looks at every
frame, so that all trackers get the same boxes.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bench.lib.identity_metrics import FrameBoxes
from bench.lib.identity_scenes import SeenFrame, find_cuts
from fitmesh.stages import people
from fitmesh.stages.settings import Job, RunSettings
from fitmesh.ui.events import Reporter
from pose2d.skeletons import HALPE26
from pose2d.tracking.appearance import describe
from pose2d.types import Appearance
from pose2d.video.images import ImageFolder
from pose2d.video.shots import shrink

LEAST_SEEN = 0.3  # share of a person that must be visible to be expected


@dataclass(frozen=True)
class Rendered:
    """One sequence."""

    name: str
    wh: tuple[int, int]
    frames: list[
        SeenFrame
    ]  # `is_cut` as pose2d/video/shots.py finds it; a person in another shot counts as another one
    cuts: list[int]  # where they really are
    keypoints_px: np.ndarray  # [T, P, 17, 2] truth; NaN: not in the shot


def sequences(folder: Path, cache: Path | None = None) -> list[Rendered]:
    """Every sequence of a data set with more than one person."""
    stored = dict(np.load(cache)) if cache and cache.is_file() else {}
    out = []
    for path in sorted((folder / "synthFiles").glob("*.npz")):
        with np.load(path) as truth:
            if len(truth["boxes_px"]) < 2:
                continue
            if f"{path.stem}/boxes" not in stored:
                stored |= {
                    f"{path.stem}/{name}": value for name, value in _look(folder, path.stem).items()
                }
                if cache:
                    np.savez(cache, **stored)  # type: ignore[arg-type]
            observed = {
                name.split("/")[1]: value
                for name, value in stored.items()
                if name.split("/")[0] == path.stem
            }
            out.append(_rendered(path.stem, observed, truth))
    return out


def _rendered(
    name: str, observed: dict[str, np.ndarray], truth: Mapping[str, np.ndarray]
) -> Rendered:
    people, count = truth["boxes_px"].shape[:2]
    fps = float(truth["fps"]) if "fps" in truth else 30.0
    starts = truth["shot_first_frame"] if "shot_first_frame" in truth else np.zeros(1, int)
    visible = truth["seen_px2"] > LEAST_SEEN * np.maximum(truth["area_px2"], 1)
    result = set(find_cuts((n, n / fps, rgb) for n, rgb in enumerate(observed["small"])))
    frames = []
    for number in range(count):
        shot = int(np.searchsorted(starts, number, side="right")) - 1
        person = np.flatnonzero(visible[:, number])
        current = FrameBoxes(person + people * shot, truth["boxes_px"][person, number])
        frames.append(_frame(observed, number, current, number / fps, number in result))
    wh = int(observed["wh"][0]), int(observed["wh"][1])
    return Rendered(name, wh, frames, starts[1:].tolist(), truth["keypoints_px"].swapaxes(0, 1))


def _look(folder: Path, name: str) -> dict[str, np.ndarray]:
    """What the networks of `fitmesh run` say of every frame."""
    with tempfile.TemporaryDirectory() as out, torch.inference_mode():
        clip = ImageFolder(folder / "imageFiles" / name)
        job = Job(clip, RunSettings(threads=1), Path(out), Reporter())
        detect = people._detect(job)
        estimate = people._estimate(job)
        names = ("frame", "boxes", "scores", "xy", "sure", "colours", "weight")
        rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
        small = []
        for frame in clip.frames():
            result = detect(frame)
            boxes, keypoints = estimate([frame.rgb] * len(result), result.boxes_px)
            xy = keypoints.xy_px.numpy()
            sure = (keypoints.confidence * keypoints.presence).numpy()
            observed = describe(frame.rgb, xy, sure, keypoints.skeleton)
            current = (
                np.full(len(boxes), frame.index),
                boxes,
                result.scores,
                xy,
                sure,
                observed.colours,
            )
            for column, value in zip(rows, (*current, observed.weight), strict=True):
                rows[column].append(value)
            small.append(shrink(frame.rgb))
    wh = np.array([clip.info.width_px, clip.info.height_px])
    return {n: np.concatenate(v) for n, v in rows.items()} | {"small": np.stack(small), "wh": wh}


def _frame(
    observed: dict[str, np.ndarray], number: int, truth: FrameBoxes, time_s: float, is_cut: bool
) -> SeenFrame:
    current = observed["frame"] == number
    return SeenFrame(
        boxes_px=observed["boxes"][current],
        scores=observed["scores"][current],
        xy_px=observed["xy"][current].astype(float),
        sure=observed["sure"][current],
        appearance=Appearance(observed["colours"][current], observed["weight"][current]),
        is_cut=is_cut,
        truth=truth,
        time_s=time_s,
        skeleton=HALPE26,
    )
