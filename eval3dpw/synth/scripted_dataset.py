"""Scripted scenes as files: images, and the truth of every identity in every frame. See docs/synth.md."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval3dpw.sequences import image_path
from eval3dpw.synth.clip_kinds import Kind, clips_by_kind
from eval3dpw.synth.dataset import MadeSequence, SynthSettings, in_processes, record_settings, truth_path, write_images
from eval3dpw.synth.motion import Clip
from eval3dpw.synth.scripted import SCRIPTS, SceneScript, ScriptedPlan, ScriptedShot, build_shots, scripted_plan
from eval3dpw.synth.sequence import BY_NOBODY, FrameTruth, render_frames
from eval3dpw.synth.staging import contacts
from fitting.body import Body
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

_SUBFRAMES = 2  # renderings of an image: half the usual, for scenes with up to six people


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
        "in_shot": np.zeros(size, bool),
        "boxes_px": np.zeros((*size, 4)),
        "area_px2": np.zeros(size),
        "seen_px2": np.zeros(size),
        "halpe_px": np.full((*size, 26, 2), np.nan),
        "halpe_visibility": np.zeros((*size, 26), np.uint8),
        "halpe_hidden_by": np.full((*size, 26), BY_NOBODY, np.int16),
        "halpe_m": np.full((*size, 26, 3), np.nan, np.float32),
        "joints_m": np.full((*size, 24, 3), np.nan, np.float32),
        "pose_rad": np.full((*size, 24, 3), np.nan, np.float32),
        "translation_m": np.full((*size, 3), np.nan, np.float32),
        "contact": np.zeros((*size, 4), bool),
        "still": np.zeros((*size, 4), bool),
    }
    sizes, shapes = np.ones(plan.people), np.zeros((plan.people, 10), np.float32)
    for start, shot in zip(first, shots, strict=True):
        span, who = slice(start, start + shot.sequence.frames), np.array(shot.identities)
        seen = truths[span]
        for place, (person, identity) in enumerate(zip(shot.sequence.people, shot.identities, strict=True)):
            sizes[identity], shapes[identity] = person.size, person.shape.numpy()
            stands, still = contacts(body, person, plan.fps, shot.has_steps[place])
            by = np.stack([truth.hidden_by[place] for truth in seen])
            values = {
                "in_shot": True,
                "boxes_px": np.stack([truth.boxes_px[place] for truth in seen]),
                "area_px2": np.array([truth.area_px2[place] for truth in seen]),
                "seen_px2": np.array([truth.seen_px2[place] for truth in seen]),
                "halpe_px": np.stack([truth.keypoints_px[place] for truth in seen]),
                "halpe_visibility": np.stack([truth.visibility[place] for truth in seen]),
                "halpe_hidden_by": np.where(by < 0, by, who[np.maximum(by, 0)]),
                "halpe_m": person.keypoints.numpy(),
                "joints_m": person.joints.numpy(),
                "pose_rad": person.pose.numpy(),
                "translation_m": person.translation.numpy(),
                "contact": stands,
                "still": still,
            }
            for name, value in values.items():
                arrays[name][identity, span] = value
    heights = [_height_m(body, torch.from_numpy(shape)) for shape in shapes]
    return {
        **arrays,
        "keypoints_px": arrays["halpe_px"][:, :, :17],
        "visibility": arrays["halpe_visibility"][:, :, :17],
        "hidden_by": arrays["halpe_hidden_by"][:, :, :17],
        "shot_first_frame": first,
        "shot_camera": np.array([shot.camera_kind for shot in shots]),
        "shot_focal_px": np.array([shot.sequence.camera.focal_px[0] for shot in shots]),
        "shot_scene": np.array([shot.sequence.plan.scene for shot in shots]),
        "camera_from_world": np.concatenate([shot.sequence.cam_poses() for shot in shots]),
        "frames": np.array(frames),
        "fps": np.array(plan.fps),
        "size_px": np.array(shots[0].sequence.camera.size),
        "identity": np.arange(plan.people),
        "size": sizes,
        "shape": shapes,
        "height_m": sizes * heights,
        "uniforms": np.array(plan.uniforms),
        "script": np.array(plan.script),
        "kind": np.array(plan.kind),
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
