"""A data set in 3DPW's layout: each sequence is written atomically, complete ones are skipped.

3DPW's pickles have protocol 2; these hold nothing but plain values and numpy arrays."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial.transform import Rotation, Slerp

from eval3dpw.sequences import image_path, sequence_path
from eval3dpw.synth.motion import KINDS, SPLITS, Clip, Kind, Split, clips_by_kind, load_clips
from eval3dpw.synth.plans import CAMERA_NAMES, SCRIPTS, Plan, SceneScript, draw_plan
from eval3dpw.synth.scripted import build_shots
from eval3dpw.synth.sequence import (
    BEHIND_SELF,
    BY_NOBODY,
    SUBFRAMES,
    FrameTruth,
    Shot,
    render_frames,
)
from eval3dpw.synth.staging import SyntheticPerson, contacts
from fitting.body import Body
from fitting.body.load import load_body
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file, atomic_folder

_SETTINGS = "synth.json"
# OpenPose's 18 keypoints by COCO's numbers, but for the second: the neck, between the shoulders.
_OPENPOSE17 = (0, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
_CONFIDENCE = np.array([0.0, 0.2, 0.6, 0.9])  # OUTSIDE, HIDDEN, BEHIND_SELF, SEEN
_FEWEST_SEEN = 4  # with fewer keypoints visible a 2D network would detect no person


@dataclass(frozen=True)
class SynthSettings:
    """Hold everything that a data set's bytes depend on."""

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


def make_dataset(
    out: Path, settings: SynthSettings, run: Callable[..., Iterable[MadeSequence]] = map
) -> Iterator[MadeSequence]:
    """Write the data set into a folder; yields every sequence when it is complete. run: as `map`,
    which makes one sequence after the other; in any order."""
    splits = SPLITS[1:] if settings.scenes else SPLITS
    unknown = [s for s in settings.scenes if s not in SCRIPTS]
    if unknown:  # fail before hours are spent
        raise OptionError(
            f"unknown --scenes {', '.join(unknown)}: choose from {', '.join(SCRIPTS)}."
        )
    if settings.split not in splits:
        raise UserError(f"unknown split {settings.split!r}: choose {', '.join(splits)}.")
    if settings.sequences < 1 or settings.frames < 2:
        raise UserError(
            f"nothing to make: {settings.sequences} sequences of at most {settings.frames} frames."
        )
    if min(settings.size) < 64:
        raise UserError(
            f"images of {settings.size[0]}x{settings.size[1]} are too small: at least 64 pixels a side."
        )
    clips = _clips(load_body(), settings)
    kinds: tuple[Kind, ...] = (
        () if not settings.scenes else KINDS if "world" in settings.scenes else ("walking",)
    )
    if missing := [kind for kind in kinds if not clips[kind]]:
        raise UserError(
            f"there is no captured {' or '.join(missing)} for --split {settings.split}: give a file of CMU clips "
            "with --motion."
        )
    record_settings(out, settings)
    yield from run(partial(make_sequence, out, settings), range(settings.sequences))


def _clips(body: Body, settings: SynthSettings) -> Mapping[str, Sequence[Clip]]:
    if not settings.scenes:
        return {"any": load_clips(body, settings.split, settings.motion)}
    return clips_by_kind(body, reporting=settings.split == "test", motion=settings.motion)


def make_sequence(out: Path, settings: SynthSettings, number: int) -> MadeSequence:
    """Make one sequence.

    Its pickle (or its truth, where there is no pickle) is written last and marks a complete
    sequence.
    """
    plan = draw_plan(settings.seed, number, settings.scenes)
    scripted = bool(settings.scenes)
    folder = image_path(out, plan.name, 0).parent
    pickle_path = sequence_path(out, settings.split, plan.name)
    if (truth_path(out, plan.name) if scripted else pickle_path).is_file():
        return MadeSequence(plan.name, len(list(folder.iterdir())), plan.people, skipped=True)
    body = load_body()
    frames = None if scripted else settings.frames
    if scripted and settings.seconds is not None:
        frames = round(settings.seconds * plan.fps)
    shots = build_shots(plan, body, _clips(body, settings), settings.size, frames)
    truths = list[FrameTruth]()
    subframes = (
        SUBFRAMES // 2 if scripted else SUBFRAMES
    )  # half of them for scenes with up to six people
    with atomic_folder(folder) as partial_folder:
        written = 0
        for shot in shots:
            of_shot = []
            for jpeg, truth in render_frames(shot, subframes):
                (partial_folder / image_path(out, plan.name, written).name).write_bytes(jpeg)
                of_shot.append(truth)
                written += 1
            truths.append(FrameTruth.over_time(of_shot))
    arrays = truth_arrays(plan, shots, truths, body)
    with atomic_file(truth_path(out, plan.name)) as temporary:
        np.savez_compressed(temporary, **arrays)
    if not scripted:
        content = sequence_content(
            plan.name, shots[0], arrays["keypoints_px"], arrays["visibility"]
        )
        with atomic_file(pickle_path) as temporary:
            temporary.write_bytes(pickle.dumps(content, protocol=2))
    return MadeSequence(plan.name, written, plan.people, skipped=False)


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


def sequence_content(
    name: str, shot: Shot, keypoints_px: np.ndarray, visibility: np.ndarray
) -> dict[str, Any]:
    """Return what a pickle of 3DPW holds, by its names.

    keypoints_px [P, T, 17, 2] and visibility [P, T, 17].
    """
    people = shot.people
    templates = [f.rest[:, : f.body_vertices].T.numpy() for f in shot.clothed[: len(shot.people)]]
    points2d = [
        openpose18(xy_px, state) for xy_px, state in zip(keypoints_px, visibility, strict=True)
    ]
    return {
        "sequence": name,
        "betas": [p.shape.double().numpy() for p in people],
        "poses": [p.pose.flatten(1).double().numpy() for p in people],
        "trans": [p.translation.double().numpy() for p in people],
        "poses_60Hz": [_at_60_hz(p)[0] for p in people],
        "trans_60Hz": [_at_60_hz(p)[1] for p in people],
        "betas_clothed": [p.shape.double().numpy() for p in people],
        "v_template_clothed": [template.astype(np.float64) for template in templates],
        "genders": ["m" for _ in people],
        "texture_maps": [np.zeros((1, 1, 3), np.uint8) for _ in people],
        "poses2d": points2d,
        "jointPositions": [p.joints.flatten(1).double().numpy() for p in people],
        "img_frame_ids": 2 * np.arange(shot.frames),
        "cam_poses": shot.path.camera_from_world,
        "campose_valid": [(points[:, 2] > 0).any(1).astype(np.int64) for points in points2d],
        "cam_intrinsics": shot.camera.intrinsics.astype(np.float64),
    }


def openpose18(keypoints_px: np.ndarray, visibility: np.ndarray) -> np.ndarray:
    """Turn COCO points [T, 17, 2] into 3DPW's poses2d [T, 3, 18]: x, y, confidence; zeros if
    hidden.
    """
    scores = _CONFIDENCE[visibility]
    scores[(visibility >= BEHIND_SELF).sum(1) < _FEWEST_SEEN] = 0
    neck = np.concatenate((keypoints_px[:, 5:7].mean(1), scores[:, 5:7].min(1)[:, None]), 1)
    points = np.insert(
        np.concatenate((keypoints_px, scores[..., None]), 2)[:, _OPENPOSE17], 1, neck, axis=1
    )
    return (points * (points[..., 2:] > 0)).transpose(0, 2, 1)


def _at_60_hz(person: SyntheticPerson) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate to twice the frame rate: poses [2 T - 1, 72] and translations [2 T - 1, 3]."""
    frame = np.arange(len(person.pose))
    twice = np.linspace(0, frame[-1], 2 * len(frame) - 1)
    joints = person.pose.double().numpy().transpose(1, 0, 2)
    pose = np.stack(
        [Slerp(frame, Rotation.from_rotvec(joint))(twice).as_rotvec() for joint in joints], 1
    )
    place = person.translation.double().numpy()
    return pose.reshape(-1, 72), np.stack([np.interp(twice, frame, axis) for axis in place.T], 1)


def truth_arrays(
    plan: Plan, shots: list[Shot], truths: list[FrameTruth], body: Body
) -> dict[str, Any]:
    """Return arrays [P, T, ..] by identity and frame; NaN, or 0 for counts, where a person is
    absent.
    """
    lengths = [shot.frames for shot in shots]
    first = np.cumsum([0, *lengths[:-1]])
    frames = sum(lengths)
    size = (plan.people, sum(lengths))
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
    everyone: dict[int, SyntheticPerson] = {}
    for start, shot, truth in zip(first, shots, truths, strict=True):
        span = slice(start, start + shot.frames)
        identities = np.array(
            [*shot.identities, *(plan.people + n for n in range(len(shot.bystanders)))]
        )
        everyone |= dict(zip(shot.identities, shot.people, strict=True))
        for place, (person, identity) in enumerate(zip(shot.people, shot.identities, strict=True)):
            stands, still = contacts(body, person, plan.fps)
            by = truth.hidden_by[place]
            values = {
                **{
                    name: getattr(truth, name)[place]
                    for name in ("boxes_px", "area_px2", "seen_px2")
                },
                "in_shot": True,
                "halpe_px": truth.keypoints_px[place],
                "halpe_visibility": truth.visibility[place],
                "halpe_hidden_by": np.where(by < 0, by, identities[np.maximum(by, 0)]),
                "halpe_m": person.keypoints.numpy(),
                "joints_m": person.joints.numpy(),
                "pose_rad": person.pose.numpy(),
                "translation_m": person.translation.numpy(),
                "contact": stands,
                "still": still,
            }
            for name, value in values.items():
                arrays[name][identity, span] = value
    people = [everyone[identity] for identity in range(plan.people)]
    sizes = np.array([p.size for p in people])
    shapes = torch.stack([p.shape for p in people]).numpy()
    coco = {
        "keypoints_px": "halpe_px",
        "visibility": "halpe_visibility",
        "hidden_by": "halpe_hidden_by",
        "keypoints_m": "halpe_m",
    }
    return {
        **arrays,
        **{name: arrays[halpe][:, :, :17] for name, halpe in coco.items()},
        "shot_first_frame": first,
        "shot_camera": np.array([shot.camera_kind for shot in shots]),
        "shot_focal_px": np.array([shot.camera.focal_px[0] for shot in shots]),
        "shot_scene": np.array([shot.place for shot in shots]),
        "camera_from_world": np.concatenate([shot.path.camera_from_world for shot in shots]),
        "frames": np.array(frames),
        "fps": np.array(plan.fps),
        "size_px": np.array(shots[0].camera.size),
        "identity": np.arange(plan.people),
        "size": sizes,
        "shape": shapes,
        "height_m": sizes * [body.height_m(shape) for shape in shapes],
        "clips": np.array([p.clip for p in people]),
        "uniforms": np.array(plan.uniforms),
        "script": np.array(plan.script or ""),
        "kind": np.array(plan.kind),
        "occlusion": np.array(plan.occlusion),
        "scene": np.array(shots[0].place),
        "camera": np.array(CAMERA_NAMES.get(shots[0].camera_kind, shots[0].camera_kind)),
    }
