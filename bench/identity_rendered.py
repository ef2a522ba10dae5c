"""Rendered people for bench/identity.py: what detector and pose network see in them, with exact identities.

python bench/identity_rendered.py DIR --cache FILE     fills the cache alone: the networks run once

DIR is made by `fitmesh synth`; sequences with several people are used. The detector looks at every frame, so that all
trackers get the same boxes.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.identity_metrics import FrameBoxes
from bench.identity_scenes import SeenFrame
from fitmesh.progress import Reporter
from fitmesh.stages import people
from fitmesh.stages.settings import Job, RunSettings
from pose2d.detect.appearance import Appearances
from pose2d.detect.association import keypoint_l2
from pose2d.io.images import ImageFolder
from pose2d.io.shots import thumbnail
from pose2d.skeletons import COCO17, HALPE26

LEAST_SEEN = 0.15  # share of a person that must be visible to be expected


@dataclass(frozen=True)
class Rendered:
    """One sequence."""

    name: str
    wh: tuple[int, int]
    frames: list[SeenFrame]
    thumbnails: np.ndarray  # [T, 36, 64] float32, for shots
    keypoints_px: np.ndarray  # [T, P, 17, 2] truth


def sequences(folder: Path, cache: Path | None = None) -> list[Rendered]:
    """Every sequence of a data set with more than one person."""
    stored = dict(np.load(cache)) if cache and cache.is_file() else {}
    out = []
    for path in sorted((folder / "synthFiles").glob("*.npz")):
        with np.load(path) as truth:
            boxes, keypoints = truth["boxes_px"], truth["keypoints_px"]
            visible = truth["seen_px2"] > LEAST_SEEN * np.maximum(truth["area_px2"], 1)
        if len(boxes) < 2:
            continue
        if f"{path.stem}/boxes" not in stored:
            stored |= {f"{path.stem}/{name}": value for name, value in _look(folder, path.stem).items()}
            if cache:
                np.savez(cache, **stored)  # type: ignore[arg-type]
        seen = {name.split("/")[1]: value for name, value in stored.items() if name.split("/")[0] == path.stem}
        frames = [_frame(seen, number, boxes[:, number], visible[:, number]) for number in range(boxes.shape[1])]
        wh = int(seen["wh"][0]), int(seen["wh"][1])
        out.append(Rendered(path.stem, wh, frames, seen["thumbnails"], keypoints.swapaxes(0, 1)))
    return out


def _look(folder: Path, name: str) -> dict[str, np.ndarray]:
    """What the networks of `fitmesh run` say of every frame."""
    with tempfile.TemporaryDirectory() as out, torch.inference_mode():
        clip = ImageFolder(folder / "imageFiles" / name)
        job = Job(clip, RunSettings(threads=1), Path(out), Reporter(quiet=True))
        detect, estimate, describe = people._detect(job), people._estimate(job), people._describe(job)
        names = ("frame", "boxes", "scores", "xy", "sure", "colours", "weight")
        rows: dict[str, list[np.ndarray]] = {name: [] for name in names}
        small = []
        for frame in clip.frames():
            found = detect(frame)
            boxes, values = estimate([frame.rgb] * len(found), found.boxes_px)
            looks = describe(frame.rgb, boxes, values).looks
            sure = values["confidence"] * values["presence"]
            here = (np.full(len(boxes), frame.index), boxes, found.scores, values["xy_px"], sure, looks.colours)
            for column, value in zip(rows, (*here, looks.weight), strict=True):
                rows[column].append(value)
            small.append(thumbnail(frame.rgb))
    wh = np.array([clip.info.width_px, clip.info.height_px])
    return {n: np.concatenate(v) for n, v in rows.items()} | {"thumbnails": np.stack(small), "wh": wh}


def _frame(seen: dict[str, np.ndarray], number: int, boxes_px: np.ndarray, visible: np.ndarray) -> SeenFrame:
    here = seen["frame"] == number
    return SeenFrame(
        boxes_px=seen["boxes"][here],
        scores=seen["scores"][here],
        xy_px=seen["xy"][here].astype(float),
        sure=seen["sure"][here],
        looks=Appearances(seen["colours"][here], seen["weight"][here]),
        is_cut=False,
        truth=FrameBoxes(np.flatnonzero(visible), boxes_px[visible]),
        time_s=number / 30,
        skeleton=HALPE26,
    )


def wrong_owners(rendered: Rendered, found: list[FrameBoxes], sure: list[np.ndarray]) -> tuple[int, int]:
    """Sightings that count somebody else's limbs as their own, and all sightings.

    found: boxes of each frame with the true person they are on; sure [D, 26]: what counts, after owners. Somebody
    else's: three or more keypoints (of `sure` at least 0.25) within OKS's l of another person's keypoint and farther
    than that from their own.
    """
    wrong = total = 0
    for number, (frame, counts) in enumerate(zip(found, sure, strict=True)):
        truth = rendered.keypoints_px[number]
        seen = rendered.frames[number]
        l = np.sqrt(keypoint_l2(frame.boxes_px, COCO17))  # noqa: E741
        for row, person in enumerate(frame.identity):
            place = np.flatnonzero((seen.boxes_px == frame.boxes_px[row]).all(1))[0]
            away = np.linalg.norm(seen.xy_px[place, :17] - truth, axis=-1)  # [P, 17]
            mirrored = np.linalg.norm(seen.xy_px[place, :17][COCO17.flip_order] - truth, axis=-1)
            others = np.minimum(np.delete(away, person, 0), np.delete(mirrored, person, 0)).min(0)
            own = np.minimum(away[person], mirrored[person])
            wrong += int(((others < l[row]) & (own > l[row]) & (counts[row, :17] >= 0.25)).sum() >= 3)
            total += 1
    return wrong, total


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for one in sequences(arguments.folder, arguments.cache):
        print(one.name, len(one.frames), "frames", sum(len(f.boxes_px) for f in one.frames), "boxes")
