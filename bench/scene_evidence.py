"""Does the scene earn its place: with gravity, floor and contacts against without, on real and
simulated people?

    python bench/scene_evidence.py [--clips real_keypoints] [--choose | --report] [--only NAME,NAME] [--simulated N]

Real clips have no truth in 3D but a weak one: what a person saw (`labels.csv`), and the keypoints
themselves. The ratio of misfit is the mean distance to the keypoints with the scene over that
without. Simulated scenes have a truth and are wrong on purpose: lunges only, people who sit,
mannequins, a treadmill, a swing, an escalator, a trampoline.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.scene_clips import CHOOSING, Label, RealClip, posture_holds, read_clip, read_labels
from bench.lib.scene_staged import SCENES, staged_scene
from bench.lib.staged_figures import show_staged, staged_figures
from eval3dpw.synth.motion import clips_by_kind
from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import focal_prior
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot

DATA = Path(__file__).resolve().parents[2] / "shared/data/real_keypoints"
CHOOSING_SEED, REPORTING_SEED = 1, 2


@dataclass(frozen=True)
class ClipFigures:
    """One clip with and without its scene."""

    name: str
    misfit: float  # % of the box's diagonal, with the scene
    misfit_off: float
    pitch_deg: float  # the camera looks down; NaN: gravity not known
    pitch_std_deg: float
    camera_height_m: float  # NaN: floor not known
    heights_m: tuple[float, ...]
    postures: tuple[int, int]  # right, of so many labelled frames
    postures_off: tuple[int, int]
    standing_cm_s: float  # median speed of feet while they are held to stand
    seconds: float
    seconds_off: float
    reason: str

    @property
    def ratio(self) -> float:
        return self.misfit / self.misfit_off


def fitted(clip: RealClip, body: Body, options: SceneOptions) -> ShotFit:
    focal = focal_prior(clip.size_px)
    people = [ShotPerson(i, points, clip.frame[i]) for i, points in clip.keypoints.items()]
    camera = Camera.from_focal(focal.focal_px, clip.size_px)
    return fit_shot(
        people,
        camera,
        focal,
        body,
        fps=clip.fps,
        motion=clip.motion.with_focal(focal.focal_px),
        options=options,
    )


def misfit_percent(clip: RealClip, shot: ShotFit) -> float:
    """Mean distance of the keypoints that counted, in % of the box's diagonal."""
    shares = []
    for identity, track in shot.people.items():
        diagonal = np.full(len(track.frame), np.nan)
        diagonal[np.searchsorted(track.frame, clip.frame[identity])] = clip.diagonal_px[identity]
        shares.append((track.fit.reprojection_px.numpy() / diagonal[:, None]).ravel())
    return 100 * float(np.nanmean(np.concatenate(shares)))


def up_of(shot: ShotFit, frame: np.ndarray) -> np.ndarray:
    """[T, 3] up in each frame's camera; a camera of which nothing is known is taken for level."""
    up = np.array([0.0, -1.0, 0.0]) if shot.ground is None else shot.ground.up_cam
    if shot.motion is None or shot.motion.kind in ("static", "unknown"):
        return np.broadcast_to(up, (len(frame), 3))
    motion_row = np.searchsorted(shot.motion.frames, frame).clip(0, len(shot.motion.frames) - 1)
    return np.einsum("tij,i->tj", shot.motion.first_from_camera[motion_row], up)


def postures(
    clip: RealClip, shot: ShotFit, body: Body, labels: list[Label]
) -> tuple[int, int, dict[str, float]]:
    right = count = 0
    by_posture: dict[str, float] = {}
    for label in labels:
        for identity, track in shot.people.items():
            if label.clip != clip.name or label.identity not in (None, identity):
                continue
            time_s = track.frame / clip.fps
            rows = (time_s >= label.from_s - 1e-6) & (time_s <= label.to_s + 1e-6) & track.detected
            joints = body.at(track.fit.params).joints.double().numpy()[rows]
            holds = posture_holds(
                label.posture, joints, up_of(shot, track.frame[rows]), label.must_hold
            )
            if holds is None or not len(holds):
                continue
            right = right + int(holds.sum())
            count = count + len(holds)
            by_posture[f"{identity} {label.posture} {label.from_s:g}"] = float(holds.mean())
    return right, count, by_posture


def standing_speed(shot: ShotFit, body: Body, fps: float) -> float:
    """cm/s, median over feet that the fit says are in contact, in the shot's axes."""
    speeds = []
    for track in shot.people.values():
        feet = body.at(track.fit.params).keypoints[:, (24, 20, 25, 21)].double().numpy()
        if shot.motion is not None and shot.motion.kind in ("rotating", "moving"):
            motion_row = np.searchsorted(shot.motion.frames, track.frame).clip(
                0, len(shot.motion.frames) - 1
            )
            feet = np.einsum("tij,tnj->tni", shot.motion.first_from_camera[motion_row], feet)
        stands = (track.contact[1:] > 0.5) & (track.contact[:-1] > 0.5)
        speeds.append((100 * fps * np.linalg.norm(np.diff(feet, axis=0), axis=-1))[stands])
    values = np.concatenate([np.zeros(0), *speeds])
    return float(np.median(values)) if len(values) else math.nan


def figures(
    clip: RealClip, body: Body, labels: list[Label]
) -> tuple[ClipFigures, dict[str, float]]:
    began = time.monotonic()
    off = fitted(clip, body, SceneOptions(ground=False))
    between = time.monotonic()
    auto = fitted(clip, body, SceneOptions())
    ended = time.monotonic()
    right, count, by_posture = postures(clip, auto, body, labels)
    right_off, count_off, each_off = postures(clip, off, body, labels)
    ground = auto.ground
    failed = {name: share for name, share in by_posture.items() if share < 0.95}
    return ClipFigures(
        clip.name,
        misfit_percent(clip, auto),
        misfit_percent(clip, off),
        math.nan if ground is None else math.degrees(math.asin(np.clip(-ground.up_cam[2], -1, 1))),
        math.nan if ground is None else ground.up_sigma_deg,
        math.nan if ground is None else ground.camera_height_m,
        tuple(
            body.height_m(p.fit.params.shape) * float(p.fit.params.size)
            for p in auto.people.values()
        ),
        (right, count),
        (right_off, count_off),
        standing_speed(auto, body, clip.fps),
        ended - between,
        between - began,
        f"{clip.motion.kind}; {auto.verdict}: {auto.reason}",
    ), {**failed, **{f"off: {name}": share for name, share in each_off.items() if share < 0.95}}


def show(console: Console, rows: list[ClipFigures]) -> None:
    table = Table(title="with the scene against without")
    for head in (
        "clip",
        "misfit %",
        "off",
        "ratio",
        "down",
        "camera m",
        "people m",
        "postures",
        "off",
        "feet",
        "s",
    ):
        table.add_column(head)
    for row in rows:
        table.add_row(
            row.name,
            f"{row.misfit:.2f}",
            f"{row.misfit_off:.2f}",
            f"{row.ratio:.2f}",
            f"{row.pitch_deg:.0f} +- {row.pitch_std_deg:.0f}",
            f"{row.camera_height_m:.1f}",
            " ".join(f"{h:.2f}" for h in row.heights_m),
            f"{row.postures[0]}/{row.postures[1]}",
            f"{row.postures_off[0]}/{row.postures_off[1]}",
            f"{row.standing_cm_s:.1f}",
            f"{row.seconds:.1f} ({row.seconds_off:.1f})",
        )
    console.print(table)
    for title, part in (
        ("all", rows),
        ("the other half of the clips", [row for row in rows if row.name not in CHOOSING]),
    ):
        if part:
            console.print(f"{title}: {_summary(part)}", highlight=False)


def _summary(rows: list[ClipFigures]) -> str:
    ratio = np.array([row.ratio for row in rows])
    right, count = np.sum([row.postures for row in rows], axis=0)
    right_off, count_off = np.sum([row.postures_off for row in rows], axis=0)
    return (
        f"ratio of misfit {np.median(ratio):.3f} in the median, {ratio.max():.2f} at most; postures right in "
        f"{100 * right / max(count, 1):.1f} % of {count} labelled moments ({100 * right_off / max(count_off, 1):.1f} % "
        f"without the scene); {sum(r.seconds for r in rows):.0f} s ({sum(r.seconds_off for r in rows):.0f} without)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, default=DATA)
    parser.add_argument("--only", default="", help="these clips, with commas")
    parser.add_argument(
        "--choose", action="store_true", help="only the clips that constants are chosen on"
    )
    parser.add_argument("--report", action="store_true", help="only the others")
    parser.add_argument(
        "--simulated", type=int, default=0, metavar="N", help="so many scenes of each kind"
    )
    parser.add_argument("--kinds", default="", help="of simulated scenes, with commas")
    parser.add_argument("--json", type=Path, help="every clip's figures")
    arguments = parser.parse_args()
    console = Console(width=160)
    body = fitting.load_body()
    if arguments.simulated:
        clips = clips_by_kind(body, reporting=not arguments.choose)
        seed = CHOOSING_SEED if arguments.choose else REPORTING_SEED
        kinds = [
            name for name in SCENES if not arguments.kinds or name in arguments.kinds.split(",")
        ]
        results = [
            staged_figures(staged_scene(name, clips, body, seed, number), body)
            for name in kinds
            for number in range(arguments.simulated)
        ]
        show_staged(console, results)
        if arguments.json is not None:
            arguments.json.write_text(json.dumps([row.__dict__ for row in results], indent=1))
        return
    if not arguments.clips.is_dir():
        sys.exit(
            f"{arguments.clips} is not here: keypoints of real clips are not part of the repository."
        )
    labels = read_labels(arguments.clips)
    names = sorted(path.parent.name for path in arguments.clips.glob("*/keypoints.npz"))
    if arguments.only:
        names = [name for name in names if name in arguments.only.split(",")]
    if arguments.choose or arguments.report:
        names = [name for name in names if (name in CHOOSING) == arguments.choose]
    rows = []
    for name in names:
        row, failed = figures(read_clip(arguments.clips / name), body, labels)
        rows.append(row)
        print(f"{name}: {row.ratio:.2f}; {row.reason}; {failed or ''}", file=sys.stderr)
    show(console, rows)
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps([{**row.__dict__, "ratio": row.ratio} for row in rows], indent=1)
        )


if __name__ == "__main__":
    claim(main)
