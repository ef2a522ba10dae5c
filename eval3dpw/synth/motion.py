"""The motion of rendered people: CMU clips, split by subject so that no two splits share a captured
person.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from eval3dpw.captured.feet import FEET_KEYPOINTS, feet_over_sole_m, speeds_m_s
from eval3dpw.captured.motion import COPIES_OF_HELD_OUT, HELD_OUT_EVERY, Motion, load_motion
from fitting.body import Body
from fitting.body.kinematics import MIRROR
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
FPS = 30
RADIANS_PER_STEP = 1e-4  # resolution of the embedded file's angles
VALIDATION_SUBJECTS = (
    20,
    75,
    85,
    125,
    135,
)  # of the held-out ones; the other held-out subjects are for the test
SHORTEST_CLIP = 40  # frames


@dataclass(frozen=True)
class Clip:
    """Hold one recording on the mean body, in the capture's frame: y up, metres."""

    name: str  # subject_take
    pose: Tensor  # [T, 24, 3] axis-angle
    root_m: Tensor  # [T, 3] pelvis

    @property
    def subject(self) -> int:
        return int(self.name.split("_")[0])

    def mirrored(self) -> "Clip":
        """Return the clip with left and right exchanged."""
        pose = self.pose[:, MIRROR] * self.pose.new_tensor([1, -1, -1])
        return Clip(self.name + "m", pose, self.root_m * self.root_m.new_tensor([-1, 1, 1]))


def load_clips(body: Body, split: Split, path: Path | None = None) -> tuple[Clip, ...]:
    """Return the clips of a split, from a file of CMU clips or, without one, the embedded clips."""
    if path is None:
        embedded = Path(str(files("eval3dpw.synth").joinpath("data/held_out_motion.npz")))
        with np.load(check_embedded(embedded)) as file:
            pose = torch.from_numpy(file["pose_steps"].astype(np.float32) * RADIANS_PER_STEP)
            names = tuple(str(name) for name in file["clip_name"])
            motion = Motion(pose, torch.from_numpy(file["root_m"]), file["clip_start"], names, FPS)
    else:
        motion = load_motion(path, body, FPS)
    if motion.root_m is None:
        raise UserError(
            f"{path} has no root positions (root_pos); which place people on the ground.", file=path
        )
    clips = []
    for number, name in enumerate(motion.clip_name):
        span = motion.clip(number)
        subject = int(name.split("_")[0])
        held_out: Split = "validation" if subject in VALIDATION_SUBJECTS else "test"
        own = held_out if motion.held_out[number] else "train"
        if (
            own == split
            and subject not in COPIES_OF_HELD_OUT
            and span.stop - span.start >= SHORTEST_CLIP
        ):
            clips.append(Clip(name, motion.pose[span], motion.root_m[span]))
    if clips:
        return tuple(clips)
    if path is None:
        raise UserError(
            f"the embedded motion has no clips for the split {split!r}: it holds the subjects kept for validation and "
            "test only. Give a file of CMU clips with --motion."
        )
    raise UserError(
        f"{path} has no clip of at least {SHORTEST_CLIP} frames for the split {split!r}.", file=path
    )


Kind = Literal["walking", "standing", "jumping", "sitting", "stairs"]
KINDS: tuple[Kind, ...] = ("walking", "standing", "jumping", "sitting", "stairs")
SHORTEST = 60  # frames


def clip_kind(clip: Clip, body: Body) -> Kind | None:
    """Return what a clip shows; None: something else, or a capture that sinks into the floor."""
    over_sole = feet_over_sole_m(body)
    posed = body(clip.pose, translation=clip.root_m - body.rest_joints[0])
    feet = posed.keypoints[:, list(FEET_KEYPOINTS)].double().numpy()
    pelvis = posed.joints[:, 0].double().numpy()
    floor = np.quantile((feet[..., 1] - over_sole).min(1), 0.1)
    height = feet[..., 1] - over_sole - floor
    lowest = height.min(1)
    slow = speeds_m_s(feet, FPS) < 0.15
    if len(feet) < SHORTEST or -lowest.min() > 0.06:
        return None
    lowest_is_slow = np.take_along_axis(slow, height.argmin(1)[:, None], 1)[:, 0]
    stands = (slow & (height < 0.05)).any(1).mean()  # share of frames with a standing foot
    flies = ((lowest > 0.06) & ~slow.any(1)).mean()  # with both feet in the air
    raised = (
        (lowest > 0.10) & lowest_is_slow
    ).mean()  # with the whole weight on something higher than the floor
    speed_m_s = np.median(np.linalg.norm(np.gradient(pelvis, axis=0)[:, ::2], axis=1)) * FPS
    lowest_pelvis_m = pelvis[:, 1].min() - floor
    pelvis_m = np.median(pelvis[:, 1]) - floor
    if lowest_pelvis_m > 0.4 and pelvis_m < 0.62:
        return "sitting"
    if raised > 0.25 and flies < 0.12:
        return "stairs"
    if raised > 0.03 or lowest_pelvis_m < 0.7:
        return None
    if 0.5 < speed_m_s < 1.6 and flies < 0.03 and pelvis_m > 0.8:
        return "walking"
    if speed_m_s < 0.12 and flies < 0.02 and stands > 0.9 and lowest_pelvis_m > 0.8:
        return "standing"
    return "jumping" if 0.08 < flies < 0.5 and speed_m_s < 1.0 and stands > 0.35 else None


def clips_by_kind(body: Body, reporting: bool, motion: Path | None = None) -> dict[str, list[Clip]]:
    """Return clips of a file (or the embedded ones) by kind, to report on (`reporting`: held-out
    subjects) or to choose with. Where no held-out subject shows a kind (sitting, stairs), every
    other subject is for reporting, so that choosing and reporting still share no subject, though
    the pose prior has learned from them. The embedded clips are all of held-out subjects; those of
    the validation split are for choosing.
    """
    every: tuple[Split, ...] = ("test", "train", "validation")
    own = {
        split: load_clips(body, split, motion)
        for split in every
        if split != "train" or motion is not None
    }
    test = {clip.subject for clip in own["test"]}
    by_kind: dict[str, list[Clip]] = {kind: [] for kind in KINDS}
    for clip in (clip for clips in own.values() for clip in clips):
        if (kind := clip_kind(clip, body)) is not None:
            by_kind[kind].append(clip)
    for name, clips in by_kind.items():
        subjects = sorted({clip.subject for clip in clips})
        held_out = {subject for subject in subjects if subject % HELD_OUT_EVERY == 0}
        reported = test if motion is None else held_out or set(subjects[1::2])
        by_kind[name] = [clip for clip in clips if (clip.subject in reported) == reporting]
    return by_kind
