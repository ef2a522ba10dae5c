"""A data set in 3DPW's layout: sequences in parallel, each written atomically, complete ones skipped.

3DPW's pickles have protocol 2; these hold nothing but plain values and numpy arrays."""

import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.sequences import image_path, sequence_path
from eval3dpw.synth.clothed_people import SyntheticPerson
from eval3dpw.synth.motion import KINDS, SPLITS, Clip, Kind, Split, clips_by_kind, load_clips
from eval3dpw.synth.scripted import SCRIPTS, SceneScript, ScriptedPlan, ScriptedShot, build_shots, scripted_plan
from eval3dpw.synth.sequence import (
    BEHIND_SELF,
    BY_NOBODY,
    FrameTruth,
    SyntheticSequence,
    build_sequence,
    draw_plan,
    render_frames,
)
from eval3dpw.synth.staging import contacts
from fitting.body import Body
from fitting.body.kinematics import axis_angle_to_quaternion, quaternion_to_axis_angle
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

_SETTINGS = "synth.json"
# OpenPose's 18 keypoints by COCO's numbers, but for the second: the neck, between the shoulders.
_OPENPOSE17 = (0, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
_CONFIDENCE = np.array([0.0, 0.2, 0.6, 0.9])  # OUTSIDE, HIDDEN, BEHIND_SELF, SEEN
WORKER_PATIENCE_S = 5.0  # how long a worker may take to end
_FEWEST_SEEN = 4  # with fewer keypoints visible a 2D network would detect nobody


@dataclass(frozen=True)
class SynthSettings:
    """Everything that a data set's bytes depend on."""

    split: Split = "test"
    sequences: int = 26
    frames: int = 100  # at most, of each sequence; a clip may be shorter
    size: tuple[int, int] = (640, 360)  # width, height of the images
    seed: int = 0
    motion: Path | None = None  # a file of CMU clips; None: the embedded ones
    scenes: tuple[SceneScript, ...] = ()  # scripted scenes in turn; none: people who walk about
    seconds: float | None = None  # of a scripted sequence; None: as each script has it


@dataclass(frozen=True)
class MadeSequence:
    name: str
    frames: int
    people: int
    skipped: bool  # it was complete before


def make_dataset(out: Path, settings: SynthSettings, jobs: int = 1) -> Iterator[MadeSequence]:
    """Write the data set into a folder; yields every sequence when it is complete."""
    splits, unknown = SPLITS[1:] if settings.scenes else SPLITS, [s for s in settings.scenes if s not in SCRIPTS]
    if unknown:  # fail before hours are spent
        raise UserError(f"unknown --scenes {', '.join(unknown)}: choose from {', '.join(SCRIPTS)}.")
    if settings.split not in splits:
        raise UserError(f"unknown split {settings.split!r}: choose {', '.join(splits)}.")
    if settings.sequences < 1 or settings.frames < 2:
        raise UserError(f"nothing to make: {settings.sequences} sequences of at most {settings.frames} frames.")
    if min(settings.size) < 64:
        raise UserError(f"images of {settings.size[0]}x{settings.size[1]} are too small: at least 64 pixels a side.")
    if settings.scenes:
        clips = _clips_by_kind(load_body(), settings)
        needed: tuple[Kind, ...] = KINDS if "world" in settings.scenes else ("walking",)
        if missing := [kind for kind in needed if not clips[kind]]:
            raise UserError(
                f"there is no captured {' or '.join(missing)} for --split {settings.split}: give a file of CMU clips "
                "with --motion."
            )
    else:
        load_clips(load_body(), settings.split, settings.motion)
    record_settings(out, settings)
    make = make_scripted_sequence if settings.scenes else make_sequence
    yield from in_processes(make, out, settings, range(settings.sequences), jobs)


def _clips_by_kind(body: Body, settings: SynthSettings) -> dict[Kind, list[Clip]]:
    return clips_by_kind(body, reporting=settings.split == "test", motion=settings.motion)


def in_processes(
    make: Callable[[Path, SynthSettings, int], MadeSequence], out: Path, settings: SynthSettings, numbers: range,
    jobs: int,
) -> Iterator[MadeSequence]:  # fmt: skip
    """Make sequences by their numbers, so many at a time."""
    if jobs == 1:
        yield from (make(out, settings, number) for number in numbers)
        return
    # A fresh interpreter for each worker: forking a process that runs torch's threads can hang.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker)
    finished = False
    try:
        waiting = [pool.submit(make, out, settings, number) for number in numbers]
        for done in as_completed(waiting):
            yield done.result()
        finished = True
    finally:
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=finished, cancel_futures=True)
        if not finished:  # an error, or Ctrl-C: what is half made is thrown away anyway
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(WORKER_PATIENCE_S)
            for folder in ("imageFiles", "synthFiles", f"sequenceFiles/{settings.split}"):
                for left in (out / folder).glob(".*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)


def _start_worker() -> None:
    """One thread each. Ctrl-C reaches every process of a terminal; the first one decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def make_sequence(out: Path, settings: SynthSettings, number: int) -> MadeSequence:
    """One sequence. Its pickle is written last: where there is one, the sequence is complete."""
    body = load_body()
    clips = load_clips(body, settings.split, settings.motion)
    plan = draw_plan(settings.seed, number, len(clips), settings.size[0])
    pickle_path = sequence_path(out, settings.split, plan.name)
    if pickle_path.is_file():
        frames = len(list(image_path(out, plan.name, 0).parent.iterdir()))
        return MadeSequence(plan.name, frames, len(plan.people), skipped=True)
    made = build_sequence(plan, body, clips, settings.size, settings.frames)
    truths = write_images(out, plan.name, render_frames(made))
    # The truth that has no field in 3DPW's pickles, see docs/synth.md: [P, T, ..]
    kept = ("keypoints_px", "visibility", "boxes_px", "area_px2", "seen_px2")
    arrays = {name: np.stack([getattr(truth, name) for truth in truths], 1) for name in kept}
    arrays |= {
        "keypoints_m": torch.stack([p.keypoints[:, :17] for p in made.people]).numpy(),  # [P, T, 17, 3] in the world
        "occlusion": np.array(plan.occlusion),
        "scene": np.array(plan.scene),
        "camera": np.array(plan.view.motion),
        "clips": np.array([p.clip for p in made.people]),
    }
    with atomic_file(truth_path(out, plan.name)) as temporary:
        np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    content = sequence_content(made, arrays["keypoints_px"], arrays["visibility"])
    with atomic_file(pickle_path) as temporary:
        temporary.write_bytes(pickle.dumps(content, protocol=2))
    return MadeSequence(plan.name, len(truths), len(made.people), skipped=False)


def write_images(out: Path, sequence: str, rendered: Iterable[tuple[bytes, FrameTruth]]) -> list[FrameTruth]:
    """JPEGs into the sequence's folder, which appears once all are written; the truth of each."""
    folder = image_path(out, sequence, 0).parent
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir(parents=True)
    truths = []
    for frame, (jpeg, truth) in enumerate(rendered):
        (partial / image_path(out, sequence, frame).name).write_bytes(jpeg)
        truths.append(truth)
    os.replace(partial, folder)
    return truths


def record_settings(out: Path, settings: SynthSettings) -> None:
    """Write the settings into the folder; refuse a folder with a data set of other settings."""
    path = out / _SETTINGS
    recorded = asdict(settings) | {"motion": settings.motion and settings.motion.name}
    del recorded["sequences"]  # more may be asked for later
    if settings.scenes:  # only the length in seconds counts
        recorded["frames"] = 0
    else:
        del recorded["scenes"], recorded["seconds"]
    text = json.dumps(recorded, indent=1)
    if path.is_file():
        if path.read_bytes() != text.encode():
            raise UserError(
                f"{out} holds a data set made with other settings (see {path}). Use the same ones to continue it, "
                "or another folder."
            )
        return
    if (out / "sequenceFiles").exists():
        raise UserError(f"{out} holds a data set that was not made here; choose another folder.")
    with atomic_file(path) as temporary:
        temporary.write_text(text)


def truth_path(root: Path, sequence: str) -> Path:
    return root / "synthFiles" / f"{sequence}.npz"


def sequence_content(made: SyntheticSequence, keypoints_px: np.ndarray, visibility: np.ndarray) -> dict[str, Any]:
    """What a pickle of 3DPW holds, by its names. keypoints_px [P, T, 17, 2] and visibility [P, T, 17]."""
    people, templates = made.people, [f.rest[:, : f.body_vertices].T.numpy() for f in made.clothed[: len(made.people)]]
    points2d = [openpose18(xy_px, state) for xy_px, state in zip(keypoints_px, visibility, strict=True)]
    return {
        "sequence": made.plan.name, "betas": [p.shape.double().numpy() for p in people],
        "poses": [p.pose.flatten(1).double().numpy() for p in people],
        "trans": [p.translation.double().numpy() for p in people], "poses_60Hz": [_at_60_hz(p)[0] for p in people],
        "trans_60Hz": [_at_60_hz(p)[1] for p in people], "betas_clothed": [p.shape.double().numpy() for p in people],
        "v_template_clothed": [template.astype(np.float64) for template in templates],
        "genders": ["m" for _ in people], "texture_maps": [np.zeros((1, 1, 3), np.uint8) for _ in people],
        "poses2d": points2d, "jointPositions": [p.joints.flatten(1).double().numpy() for p in people],
        "img_frame_ids": 2 * np.arange(made.frames), "cam_poses": made.cam_poses().astype(np.float64),
        "campose_valid": [(points[:, 2] > 0).any(1).astype(np.int64) for points in points2d],
        "cam_intrinsics": made.camera.intrinsics.astype(np.float64),
    }  # fmt: skip


def openpose18(keypoints_px: np.ndarray, visibility: np.ndarray) -> np.ndarray:
    """COCO points [T, 17, 2] -> 3DPW's poses2d [T, 3, 18]: x, y, confidence; zeros where a keypoint is not detected."""
    scores = _CONFIDENCE[visibility]
    scores[(visibility >= BEHIND_SELF).sum(1) < _FEWEST_SEEN] = 0
    neck = np.concatenate((keypoints_px[:, 5:7].mean(1), scores[:, 5:7].min(1)[:, None]), 1)
    points = np.insert(np.concatenate((keypoints_px, scores[..., None]), 2)[:, _OPENPOSE17], 1, neck, axis=1)
    return (points * (points[..., 2:] > 0)).transpose(0, 2, 1)


def _at_60_hz(person: SyntheticPerson) -> tuple[np.ndarray, np.ndarray]:
    """Poses [2 T - 1, 72] and translations [2 T - 1, 3], interpolated to twice the frame rate."""
    rotation = axis_angle_to_quaternion(person.pose)
    flip = (rotation[1:] * rotation[:-1]).sum(-1, keepdim=True) < 0
    between = rotation[:-1] + torch.where(flip, -rotation[1:], rotation[1:])
    half = quaternion_to_axis_angle(between / between.norm(dim=-1, keepdim=True))
    middle = (person.translation[1:] + person.translation[:-1]) / 2
    between, both = torch.cat((half.flatten(1), middle), 1), torch.cat((person.pose.flatten(1), person.translation), 1)
    interleaved = np.insert(both.double().numpy(), np.arange(1, len(both)), between.double().numpy(), axis=0)
    return interleaved[:, :72], interleaved[:, 72:]


_SUBFRAMES = 2  # renderings of an image: half the usual, for scenes with up to six people


def make_scripted_sequence(out: Path, settings: SynthSettings, number: int) -> MadeSequence:
    """One sequence. Its truth is written last: where there is one, the sequence is complete."""
    plan = scripted_plan(settings.seed, number, settings.scenes)
    folder = image_path(out, plan.name, 0).parent
    if truth_path(out, plan.name).is_file():
        return MadeSequence(plan.name, len(list(folder.iterdir())), plan.people, skipped=True)
    body = load_body()
    shots = build_shots(plan, body, _clips_by_kind(body, settings), settings.size, settings.seconds)
    rendered = (frame for shot in shots for frame in render_frames(shot.sequence, 26, _SUBFRAMES))
    truths = write_images(out, plan.name, rendered)
    with atomic_file(truth_path(out, plan.name)) as temporary:
        np.savez_compressed(temporary, **truth_arrays(plan, shots, truths, body))
    return MadeSequence(plan.name, len(truths), plan.people, skipped=False)


def truth_arrays(plan: ScriptedPlan, shots: list[ScriptedShot], truths: list[FrameTruth], body: Body) -> dict[str, Any]:
    """Arrays [P, T, ..] by identity and frame: NaN, or 0 for what counts, where somebody is not in the shot."""
    lengths = [shot.sequence.frames for shot in shots]
    first = np.cumsum([0, *lengths[:-1]])
    frames, size = sum(lengths), (plan.people, sum(lengths))
    arrays: dict[str, np.ndarray] = {
        "in_shot": np.zeros(size, bool), "boxes_px": np.zeros((*size, 4)), "area_px2": np.zeros(size),
        "seen_px2": np.zeros(size), "halpe_px": np.full((*size, 26, 2), np.nan),
        "halpe_visibility": np.zeros((*size, 26), np.uint8),
        "halpe_hidden_by": np.full((*size, 26), BY_NOBODY, np.int16),
        "halpe_m": np.full((*size, 26, 3), np.nan, np.float32), "joints_m": np.full((*size, 24, 3), np.nan, np.float32),
        "pose_rad": np.full((*size, 24, 3), np.nan, np.float32),
        "translation_m": np.full((*size, 3), np.nan, np.float32), "contact": np.zeros((*size, 4), bool),
        "still": np.zeros((*size, 4), bool),
    }  # fmt: skip
    sizes, shapes = np.ones(plan.people), np.zeros((plan.people, 10), np.float32)
    for start, shot in zip(first, shots, strict=True):
        span, who = slice(start, start + shot.sequence.frames), np.array(shot.identities)
        seen = truths[span]
        for place, (person, identity) in enumerate(zip(shot.sequence.people, shot.identities, strict=True)):
            sizes[identity], shapes[identity] = person.size, person.shape.numpy()
            stands, still = contacts(body, person, plan.fps, shot.has_steps[place])
            own = {f.name: np.stack([getattr(truth, f.name)[place] for truth in seen]) for f in fields(FrameTruth)}
            by = own["hidden_by"]
            values = {
                **{name: own[name] for name in ("boxes_px", "area_px2", "seen_px2")}, "in_shot": True,
                "halpe_px": own["keypoints_px"], "halpe_visibility": own["visibility"],
                "halpe_hidden_by": np.where(by < 0, by, who[np.maximum(by, 0)]), "halpe_m": person.keypoints.numpy(),
                "joints_m": person.joints.numpy(), "pose_rad": person.pose.numpy(),
                "translation_m": person.translation.numpy(), "contact": stands, "still": still,
            }  # fmt: skip
            for name, value in values.items():
                arrays[name][identity, span] = value
    return {
        **arrays, "keypoints_px": arrays["halpe_px"][:, :, :17], "visibility": arrays["halpe_visibility"][:, :, :17],
        "hidden_by": arrays["halpe_hidden_by"][:, :, :17], "shot_first_frame": first,
        "shot_camera": np.array([shot.camera_kind for shot in shots]),
        "shot_focal_px": np.array([shot.sequence.camera.focal_px[0] for shot in shots]),
        "shot_scene": np.array([shot.sequence.plan.scene for shot in shots]),
        "camera_from_world": np.concatenate([shot.sequence.cam_poses() for shot in shots]), "frames": np.array(frames),
        "fps": np.array(plan.fps), "size_px": np.array(shots[0].sequence.camera.size),
        "identity": np.arange(plan.people), "size": sizes, "shape": shapes,
        "height_m": sizes * [body.height_m(shape) for shape in shapes],
        "uniforms": np.array(plan.uniforms), "script": np.array(plan.script), "kind": np.array(plan.kind),
    }  # fmt: skip
