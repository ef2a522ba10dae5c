"""A whole data set: sequences in parallel, each written whole or not at all, finished ones left alone."""

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np
import torch

from eval3dpw.synth import layout, plan, sequence
from eval3dpw.synth.motion import SPLITS, Split, load_clips
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

_SETTINGS = "synth.json"
_IMAGES = (".jpg", ".jpeg", ".png")


@dataclass(frozen=True)
class Settings:
    """What decides every byte of a data set."""

    split: Split = "test"
    sequences: int = 26
    frames: int = 100  # at most, of each sequence; a clip may be shorter
    size: tuple[int, int] = (640, 360)  # width, height of the images
    seed: int = 0
    motion: Path | None = None  # a file of CMU clips; None: the embedded ones
    backgrounds: Path | None = None  # a folder of photographs; None: built scenes


@dataclass(frozen=True)
class Made:
    """A finished sequence."""

    name: str
    frames: int
    people: int
    skipped: bool  # it was there already


def make(out: Path, settings: Settings, jobs: int = 1) -> Iterator[Made]:
    """Write the data set into a folder, yielding every sequence as it is finished."""
    _check(settings)
    _claim(out, settings)
    numbers = range(settings.sequences)
    if jobs == 1:
        yield from (make_sequence(out, settings, number) for number in numbers)
        return
    # A fresh interpreter for each worker: forking a process that runs torch's threads can hang.
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        waiting = [pool.submit(make_sequence, out, settings, number) for number in numbers]
        for done in as_completed(waiting):
            yield done.result()


def make_sequence(out: Path, settings: Settings, number: int) -> Made:
    """One sequence. Its pickle is written last: where there is one, the sequence is complete."""
    body = load_body()
    clips = load_clips(body, settings.split, settings.motion)
    drawn = plan.draw(settings.seed, number, len(clips), settings.size[0], settings.backgrounds is not None)
    pickle_path = layout.sequence_path(out, settings.split, drawn.name)
    if pickle_path.is_file():
        frames = len(list(layout.image_path(out, drawn.name, 0).parent.iterdir()))
        return Made(drawn.name, frames, len(drawn.roles), skipped=True)
    photo = None if settings.backgrounds is None else _photograph(settings.backgrounds, drawn)
    made = sequence.prepare(drawn, body, clips, settings.size, settings.frames, photo)
    folder = layout.image_path(out, drawn.name, 0).parent
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir(parents=True)
    truths = []
    for frame, (jpeg, truth) in enumerate(sequence.shoot(made)):
        (unfinished / layout.image_path(out, drawn.name, frame).name).write_bytes(jpeg)
        truths.append(truth)
    os.replace(unfinished, folder)
    keypoints = np.stack([t.keypoints_px for t in truths], 1)
    visibility = np.stack([t.visibility for t in truths], 1)
    _write(layout.truth_path(out, drawn.name), _truth_arrays(made, truths))
    templates = [f.rest[:, : f.body_vertices].T.numpy() for f in made.figures[: len(made.people)]]
    content = layout.content(
        drawn.name, made.people, templates, made.cam_poses(), made.camera.intrinsics, keypoints, visibility
    )
    with atomic_file(pickle_path) as temporary:
        temporary.write_bytes(layout.dumps(content))
    return Made(drawn.name, len(truths), len(made.people), skipped=False)


def _truth_arrays(made: sequence.Sequence, truths: list[sequence.FrameTruth]) -> dict[str, np.ndarray]:
    """What 3DPW has no place for, person by person and frame by frame: see docs/synth.md."""
    return {
        "keypoints_px": np.stack([t.keypoints_px for t in truths], 1),  # [P, T, 17, 2]
        "visibility": np.stack([t.visibility for t in truths], 1),  # [P, T, 17]
        "boxes_px": np.stack([t.boxes_px for t in truths], 1),  # [P, T, 4]
        "area_px2": np.stack([t.area_px2 for t in truths], 1),  # [P, T]
        "seen_px2": np.stack([t.seen_px2 for t in truths], 1),  # [P, T]
        "keypoints_m": torch.stack([p.keypoints for p in made.people]).numpy(),  # [P, T, 17, 3] in the world
        "occlusion": np.array(made.plan.occlusion),
        "scene": np.array(made.plan.scene),
        "camera": np.array(made.plan.view.kind),
        "clips": np.array([p.clip for p in made.people]),
    }


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with atomic_file(path) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]


def _photograph(folder: Path, drawn: plan.Plan) -> np.ndarray:
    """One of the folder's images, the same for the same seed and folder."""
    images = photographs(folder)
    path = images[int(drawn.rng("photograph").integers(len(images)))]
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise UserError(f"{path} is not a readable image; take it out of the folder of backgrounds.")
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def photographs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; expected one with photographs for backgrounds.")
    images = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _IMAGES)
    if not images:
        raise UserError(f"{folder} holds no photograph ({', '.join(_IMAGES)}).")
    return images


def _check(settings: Settings) -> None:
    """See that everything is there before hours are spent."""
    if settings.split not in SPLITS:
        raise UserError(f"unknown split {settings.split!r}: choose {', '.join(SPLITS)}.")
    if settings.sequences < 1 or settings.frames < 2:
        raise UserError(f"nothing to make: {settings.sequences} sequences of at most {settings.frames} frames.")
    if min(settings.size) < 64:
        raise UserError(f"images of {settings.size[0]}x{settings.size[1]} are too small: at least 64 pixels a side.")
    load_clips(load_body(), settings.split, settings.motion)
    if settings.backgrounds is not None:
        photographs(settings.backgrounds)


def _claim(out: Path, settings: Settings) -> None:
    """Note the settings in the folder; refuse one that holds a data set made with others."""
    path = out / _SETTINGS
    noted = {**asdict(settings), "motion": _named(settings.motion), "backgrounds": _named(settings.backgrounds)}
    text = json.dumps({k: noted[k] for k in noted if k != "sequences"}, indent=1)  # more may be added later
    if path.is_file():
        if path.read_text() != text:
            raise UserError(
                f"{out} holds a data set made with other settings (see {path}). Use the same ones to go on with it, "
                "or another folder."
            )
        return
    if (out / "sequenceFiles").exists():
        raise UserError(f"{out} holds a data set that was not made here; choose another folder.")
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def _named(path: Path | None) -> str | None:
    return None if path is None else path.name
