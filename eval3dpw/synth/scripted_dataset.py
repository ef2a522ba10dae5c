"""Scripted scenes as files: images, and one row of truth for every person of every frame. See docs/synth.md."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.sequences import image_path
from eval3dpw.synth.clip_kinds import Kind, clips_by_kind
from eval3dpw.synth.dataset import MadeSequence, SynthSettings, in_processes, record_settings, truth_path
from eval3dpw.synth.motion import Clip
from eval3dpw.synth.scripted import SCRIPTS, SceneScript, ScriptedPlan, ScriptedShot, build_shots, scripted_plan
from eval3dpw.synth.sequence import BY_OBJECT, FrameTruth, render_frames
from eval3dpw.synth.staging import contacts
from fitting.body import Body
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file


@dataclass(frozen=True)
class ScriptedSettings:
    """Everything that a set of scripted scenes depends on."""

    scripts: tuple[SceneScript, ...]
    sequences: int = 8
    seconds: float | None = None  # of a sequence; None: as each script has it
    size: tuple[int, int] = (640, 360)
    seed: int = 0
    split: str = "test"  # "validation": other captured subjects, for choosing
    motion: Path | None = None


def make_scripted(out: Path, settings: ScriptedSettings, jobs: int = 1) -> Iterator[MadeSequence]:
    """Write the sequences into a folder; yields each when it is complete."""
    _check(settings)
    record_settings(out, SynthSettings(
        split=settings.split, frames=0, size=settings.size, seed=settings.seed, motion=settings.motion,  # type: ignore[arg-type]
    ), {"scenes": list(settings.scripts), "seconds": settings.seconds})  # fmt: skip
    yield from in_processes(make_scripted_sequence, out, settings, range(settings.sequences), jobs)


def make_scripted_sequence(out: Path, settings: ScriptedSettings, number: int) -> MadeSequence:
    """One sequence. Its truth is written last: where there is one, the sequence is complete."""
    plan = scripted_plan(settings.seed, number, settings.scripts)
    folder = image_path(out, plan.name, 0).parent
    if truth_path(out, plan.name).is_file():
        return MadeSequence(plan.name, len(list(folder.iterdir())), plan.people, skipped=True)
    body = load_body()
    shots = build_shots(plan, body, _clips(body, settings), settings.size, settings.seconds)
    partial = folder.with_name(f".{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.mkdir(parents=True)
    truths: list[list[FrameTruth]] = []
    frame = 0
    for shot in shots:
        truths.append([])
        for jpeg, truth in render_frames(shot.sequence, keypoint_count=26):
            (partial / image_path(out, plan.name, frame).name).write_bytes(jpeg)
            truths[-1].append(truth)
            frame += 1
    os.replace(partial, folder)
    with atomic_file(truth_path(out, plan.name)) as temporary:
        np.savez_compressed(temporary, **truth_arrays(plan, shots, truths, body))
    return MadeSequence(plan.name, frame, plan.people, skipped=False)


def truth_arrays(
    plan: ScriptedPlan, shots: list[ScriptedShot], truths: list[list[FrameTruth]], body: Body
) -> dict[str, Any]:
    """One row for each person of each frame whose body is in the image, hidden or not; frames in order."""
    lengths = [shot.sequence.frames for shot in shots]
    first = np.cumsum([0, *lengths[:-1]])
    rows: dict[str, list[Any]] = {}
    sizes = np.ones(plan.people)
    shapes = np.zeros((plan.people, 10), np.float32)
    for number, (shot, seen) in enumerate(zip(shots, truths, strict=True)):
        people = shot.sequence.people
        stands = [contacts(body, p, plan.fps, steps) for p, steps in zip(people, shot.has_steps, strict=True)]
        for person, identity in zip(people, shot.identities, strict=True):
            sizes[identity], shapes[identity] = person.size, person.shape.numpy()
        for frame, truth in enumerate(seen):
            for place, (person, identity) in enumerate(zip(people, shot.identities, strict=True)):
                if truth.area_px2[place] == 0:
                    continue
                by = truth.hidden_by[place]
                whom = np.array(shot.identities)[np.maximum(by, 0)]
                row = {
                    "row_frame": first[number] + frame,
                    "row_shot": number,
                    "row_identity": identity,
                    "row_box_px": truth.boxes_px[place],
                    "row_keypoints_px": truth.keypoints_px[place],
                    "row_visibility": truth.visibility[place],
                    "row_hidden_by": np.where(by < 0, by, whom).astype(np.int16),
                    "row_area_px2": truth.area_px2[place],
                    "row_seen_px2": truth.seen_px2[place],
                    "row_keypoints_m": person.keypoints[frame].numpy(),
                    "row_joints_m": person.joints[frame].numpy(),
                    "row_pose_rad": person.pose[frame].numpy(),
                    "row_translation_m": person.translation[frame].numpy(),
                    "row_contact": stands[place][0][frame],
                    "row_still": stands[place][1][frame],
                }
                for name, value in row.items():
                    rows.setdefault(name, []).append(value)
    heights = [_height_m(body, torch.from_numpy(shape)) for shape in shapes]
    return {
        **{name: np.array(values) for name, values in rows.items()},
        "shot_first_frame": first,
        "shot_camera": np.array([shot.camera_kind for shot in shots]),
        "shot_focal_px": np.array([shot.sequence.camera.focal_px[0] for shot in shots]),
        "shot_scene": np.array([shot.sequence.plan.scene for shot in shots]),
        "camera_from_world": np.concatenate([shot.sequence.cam_poses() for shot in shots]),
        "frames": sum(lengths),
        "fps": plan.fps,
        "size_px": np.array(shots[0].sequence.camera.size),
        "identity": np.arange(plan.people),
        "size": sizes,
        "shape": shapes,
        "height_m": sizes * heights,
        "uniforms": plan.uniforms,
        "script": plan.script,
        "kind": plan.kind,
    }


def _height_m(body: Body, shape: torch.Tensor) -> float:
    rest = body(torch.zeros(1, 24, 3), shape, vertices=True).vertices
    assert rest is not None
    return float(rest[0, :, 1].max() - rest[0, :, 1].min())


def _clips(body: Body, settings: ScriptedSettings) -> dict[Kind, list[Clip]]:
    return clips_by_kind(body, reporting=settings.split == "test", motion=settings.motion)


def _check(settings: ScriptedSettings) -> None:
    unknown = [name for name in settings.scripts if name not in SCRIPTS]
    if unknown or not settings.scripts:
        raise UserError(f"unknown --scenes {', '.join(unknown) or '(none)'}: choose from {', '.join(SCRIPTS)}.")
    if settings.sequences < 1 or min(settings.size) < 64:
        raise UserError("nothing to make: ask for at least one sequence, of at least 64 pixels a side.")
    if settings.split not in ("test", "validation"):
        raise UserError(f"scripted scenes have the splits test and validation, not {settings.split!r}.")
    clips = _clips(load_body(), settings)
    needed: tuple[Kind, ...] = ("walking",)
    if "world" in settings.scripts:
        needed = ("walking", "standing", "jumping", "sitting", "stairs")
    missing = [kind for kind in needed if not clips[kind]]
    if missing:
        raise UserError(
            f"there is no captured {' or '.join(missing)} for --split {settings.split}: give a file of CMU clips with "
            "--motion."
        )


__all__ = ["BY_OBJECT", "ScriptedSettings", "make_scripted", "make_scripted_sequence"]
