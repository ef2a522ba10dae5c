"""What captured clips show (walking, standing, jumping, sitting, steps), measured on the mean body."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from eval3dpw.synth.motion import FPS, Clip, load_clips
from fitting.body import Body
from fitting.training.motion_capture import HELD_OUT_EVERY
from fitting.training.planted_feet import FEET_KEYPOINTS, feet_over_sole_m, speeds_m_s

Kind = Literal["walking", "standing", "jumping", "sitting", "stairs"]
KINDS: tuple[Kind, ...] = ("walking", "standing", "jumping", "sitting", "stairs")
SHORTEST = 60  # frames


@dataclass(frozen=True)
class ClipFacts:
    """What one clip shows."""

    frames: int
    speed_m_s: float  # median of the pelvis over the floor
    lowest_pelvis_m: float
    pelvis_m: float  # median
    stands: float  # share of frames with a standing foot
    flies: float  # share with both feet in the air
    raised: float  # share with the whole weight on something higher than the floor
    deepest_m: float  # below the floor: bad capture

    @property
    def kind(self) -> Kind | None:
        if self.frames < SHORTEST or self.deepest_m > 0.06:
            return None
        if self.lowest_pelvis_m > 0.4 and self.pelvis_m < 0.62:
            return "sitting"
        if self.raised > 0.25 and self.flies < 0.12:
            return "stairs"
        if self.raised > 0.03 or self.lowest_pelvis_m < 0.7:
            return None
        if 0.5 < self.speed_m_s < 1.6 and self.flies < 0.03 and self.pelvis_m > 0.8:
            return "walking"
        if self.speed_m_s < 0.12 and self.flies < 0.02 and self.stands > 0.9 and self.lowest_pelvis_m > 0.8:
            return "standing"
        return "jumping" if 0.08 < self.flies < 0.5 and self.speed_m_s < 1.0 and self.stands > 0.35 else None


def clip_facts(clip: Clip, body: Body) -> ClipFacts:
    over_sole = feet_over_sole_m(body)
    posed = body(clip.pose, translation=clip.root_m - body.rest_joints[0])
    feet, pelvis = posed.keypoints[:, list(FEET_KEYPOINTS)].double().numpy(), posed.joints[:, 0].double().numpy()
    floor = np.quantile((feet[..., 1] - over_sole).min(1), 0.1)
    height = feet[..., 1] - over_sole - floor
    lowest, slow = height.min(1), speeds_m_s(feet, FPS) < 0.15
    lowest_is_slow = np.take_along_axis(slow, height.argmin(1)[:, None], 1)[:, 0]
    return ClipFacts(
        frames=len(feet),
        speed_m_s=float(np.median(np.linalg.norm(np.gradient(pelvis, axis=0)[:, ::2], axis=1)) * FPS),
        lowest_pelvis_m=float(pelvis[:, 1].min() - floor),
        pelvis_m=float(np.median(pelvis[:, 1]) - floor),
        stands=float((slow & (height < 0.05)).any(1).mean()),
        flies=float(((lowest > 0.06) & ~slow.any(1)).mean()),
        raised=float(((lowest > 0.10) & lowest_is_slow).mean()),
        deepest_m=float(-lowest.min()),
    )


def is_held_out(clip: Clip) -> bool:
    """Whether neither the pose prior nor the lifter was trained on this subject."""
    return _subject(clip) % HELD_OUT_EVERY == 0


def _subject(clip: Clip) -> int:
    return int(clip.name.split("_")[0])


def clips_by_kind(body: Body, reporting: bool, motion: Path | None = None) -> dict[Kind, list[Clip]]:
    """Clips of a file (or the embedded ones) to report on: held-out subjects; or, not `reporting`, to choose with.

    Of a kind that no held-out subject shows (sitting, stairs), every other subject is for reporting, so that choices
    and reports still share no subject, though the pose prior has seen them. The embedded clips are all of held-out
    subjects: those of the validation split are for choosing.
    """
    found: dict[Kind, list[Clip]] = {kind: [] for kind in KINDS}
    splits = {"test", "validation"} if motion is None else {"test", "validation", "train"}
    every = [(split, clip) for split in sorted(splits) for clip in load_clips(body, split, motion)]  # type: ignore[arg-type]
    by_kind: dict[Kind, list[tuple[str, Clip]]] = {kind: [] for kind in KINDS}
    for split, clip in every:
        if (kind := clip_facts(clip, body).kind) is not None:
            by_kind[kind].append((split, clip))
    for kind, of_kind in by_kind.items():
        if motion is None:
            found[kind] = [clip for split, clip in of_kind if (split == "test") == reporting]
        elif any(is_held_out(clip) for _, clip in of_kind):
            found[kind] = [clip for _, clip in of_kind if is_held_out(clip) == reporting]
        else:
            subjects = sorted({_subject(clip) for _, clip in of_kind})
            mine = set(subjects[int(reporting) :: 2])
            found[kind] = [clip for _, clip in of_kind if _subject(clip) in mine]
    return found
