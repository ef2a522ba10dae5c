"""Claim: with masks rendered people's shapes are nearer to the truth than from keypoints alone,
with girths within 8 % at the median and joints no worse, and on real clips the mesh covers more of
the person (IoU with the mask).

    python bench/masks.py --rendered DIR [--people 28] [--choose]    # renders what is not there yet, 30 frames a person
    python bench/masks.py --clips DIR_OF_VIDEOS --out DIR
    python bench/masks.py --cost VIDEO

Rendered people have random shapes and clothes, and nothing hides them; the focal length is given.
People with even numbers are for choosing constants (--choose tries some), those with odd numbers
are reported. Errors are of the body without clothes: at rest (T-pose), and posed (all vertices,
relative to the pelvis). IoU of mesh and mask is measured in frames that the shape was not found
from, within the image, against masks that a run would use, of people whose legs and trunk are seen.
Of rendered people the true body has one, too: that is what a body without clothes can reach.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.mask_errors import errors
from bench.lib.masked_people import (
    SIZE,
    iou,
    posed,
    seen_whole,
    silhouettes,
    true_camera,
    true_vertices,
)
from eval3dpw.synth.camera_paths import CameraPath
from eval3dpw.synth.motion import load_clips
from eval3dpw.synth.plans import draw_plan
from eval3dpw.synth.scripted import build_shots
from eval3dpw.synth.sequence import render_frames
from fitmesh.stages.people import TRACKS_FILE
from fitmesh.stages.scene import lens_of
from fitmesh.tracks import edited_keypoints
from fitting.body.body import GIRTHS
from fitting.body.rotations import rotation_matrices
from fitting.fits import TrackFit
from fitting.shot import ShotFit, ShotPerson, fit_shot
from fitting.solver.terms import silhouette
from pose2d.base.caching import read_npz
from pose2d.video.camera_motion.motion import read_motion

SEED = 77
STEP = 3
FPS = 10.0
FRAMES = 90
LOOSE_M = 0.015  # clothes thicker than this, and skirts, are loose


def render(root: Path, people: int) -> None:
    """Images and truth of people who are not there yet."""
    body = fitting.load_body()
    clips = load_clips(body, "test")
    for number in range(people):
        folder = root / f"{number:02d}"
        if (folder / "truth.npz").exists():
            continue
        plan = replace(
            draw_plan(SEED, number), people=1, bystanders=0, occlusion="none", camera="pan"
        )
        (rendered_shot,) = build_shots(plan, body, {"any": clips}, SIZE, FRAMES)
        sensor = replace(rendered_shot.sensor, shutter=rendered_shot.sensor.shutter / STEP)
        (rendered_person,) = rendered_shot.people
        rows = np.arange(0, len(rendered_person.pose), STEP)
        names = ("pose", "translation", "joints", "keypoints")
        person = replace(
            rendered_person, **{name: getattr(rendered_person, name)[rows] for name in names}
        )
        shape = torch.nn.functional.pad(person.shape, (0, body.shape_size - len(person.shape)))
        person = replace(person, placement=body.placement(rotation_matrices(person.pose), shape))
        path = CameraPath(rendered_shot.path.camera_from_world[rows])
        rendered_shot = replace(rendered_shot, people=[person], path=path, sensor=sensor)
        (folder / "images").mkdir(parents=True, exist_ok=True)
        for frame, (jpeg, _) in enumerate(render_frames(rendered_shot, subframes=2)):
            (folder / "images" / f"{frame:05d}.jpg").write_bytes(jpeg)
        outfit = plan.outfit(0)
        np.savez(
            folder / "truth.npz",
            shape=person.shape,
            pose=person.pose,
            translation=person.translation,
            cam_poses=path.camera_from_world,
            focal=rendered_shot.camera.focal_px[0],
            skirt=outfit.skirt_end_y_m is not None,
            thick=[outfit.top.thickness_m, outfit.bottom.thickness_m],
        )


def found_in(clip: Path, out: Path, fps: float | None = None) -> None:
    """Keypoints and masks of a clip, kept in `out`."""
    command = ["--images", str(clip), "--fps", str(fps)] if fps else ["--video", str(clip)]
    command = [
        sys.executable,
        "-m",
        "fitmesh",
        "run",
        *command,
        "--out",
        str(out),
        "--only",
        "people",
        "--quiet",
    ]
    subprocess.run([*command, "--shape", "masks"], check=True)


def fits(
    out: Path,
    clip: Path,
    *,
    masks: bool,
    focal_px: float | None = None,
    height_m: float | None = None,
) -> Iterator[ShotFit]:
    """Fit the person as `run` fits what it found."""
    observed = edited_keypoints(out)
    arrays = read_npz(out / TRACKS_FILE)
    lens = lens_of(clip, (observed.width_px, observed.height_px), focal_px)
    for shot, first in enumerate(observed.shot_first_frame):
        end = (
            observed.shot_first_frame[shot + 1]
            if shot + 1 < len(observed.shot_first_frame)
            else np.inf
        )
        current = [
            ShotPerson(
                i,
                rows.points,
                rows.frame,
                height_m=height_m,
                outlines=observed.outlines_of(i) if masks else None,
            )
            for i, rows in observed.people.items()
            if first <= rows.frame[0] < end
        ]
        motion = read_motion(arrays, shot)
        motion = None if motion is None else motion.with_focal(lens.focal.focal_px)
        yield fit_shot(
            current,
            lens.camera,
            lens.focal,
            fitting.load_body(),
            fps=observed.fps,
            every=observed.every,
            motion=motion,
        )


def person_of(folder: Path, *, masks: bool, height: bool) -> TrackFit:
    """Fit the rendered person, the one who is visible longest. height: state it to the fit."""
    with np.load(folder / "truth.npz") as file:
        focal = float(file["focal"])
        height_m = fitting.load_body().height_m(file["shape"]) if height else None
    shots = fits(
        folder / "found",
        folder / "images" / "0.jpg",
        masks=masks,
        focal_px=focal,
        height_m=height_m,
    )
    return max(
        (track for shot in shots for track in shot.people.values()),
        key=lambda track: int(track.detected.sum()),
    )


def rendered(root: Path, people: int, choose: bool, console: Console) -> None:
    render(root, people)
    numbers = [n for n in range(people) if n % 2 == (0 if choose else 1)]
    folders = [root / f"{n:02d}" for n in numbers]
    for folder in folders:
        if not (folder / "found" / "keypoints.npz").exists():
            found_in(folder / "images", folder / "found", FPS)
    loose = []
    for folder in folders:
        with np.load(folder / "truth.npz") as file:
            loose.append(bool(file["skirt"]) or bool(file["thick"].max() > LOOSE_M))
    tight = ~np.array(loose)
    tried: dict[str, dict[str, object]] = {"keypoints": {}, "masks": {}}
    tried |= {f"{name}, height known": {} for name in ("keypoints", "masks")}
    for name, values in CHOICES.items() if choose else ():
        tried |= {f"{name} {value}, height known": {name: value} for value in values}
    images = [seen_whole(folder) for folder in folders]
    table = Table(
        "shape from",
        "T-pose MVE",
        "posed MVE",
        "MPJPE",
        "PA-MPJPE",
        "height",
        *GIRTHS,
        "within 1 std",
        "tight",
        "IoU",
        title=f"{len(folders)} rendered people ({int(tight.sum())} in tight clothes): mm; girths: median error, %",
    )
    for name, changed in tried.items():
        before = {key: getattr(silhouette, key) for key in changed}
        for key, value in changed.items():
            setattr(silhouette, key, value)
        known_parts = {"masks": not name.startswith("keypoints"), "height": name.endswith("known")}
        tracks = [person_of(folder, **known_parts) for folder in folders]
        all_of = [errors(folder, track) for folder, track in zip(folders, tracks, strict=True)]
        ious = [
            iou(posed(track, person_errors.frame), person_errors, true_camera(folder))
            for folder, track, ones in zip(folders, tracks, images, strict=True)
            for person_errors in ones
        ]
        for key, value in before.items():
            setattr(silhouette, key, value)
        girth, std = (
            np.stack([getattr(person_errors, part) for person_errors in all_of])
            for part in ("girth", "girth_std")
        )
        means = [
            np.mean([getattr(person_errors, part) for person_errors in all_of])
            for part in ("rest_mm", "posed_mm")
        ]
        means += [
            np.mean([getattr(person_errors, part) for person_errors in all_of])
            for part in ("joints_mm", "pa_joints_mm")
        ]
        means.append(np.mean([abs(person_errors.height_mm) for person_errors in all_of]))
        table.add_row(
            name,
            *(f"{value:.1f}" for value in means),
            *(
                f"{100 * np.median(np.abs(girth[:, n])):.1f} ({100 * np.median(girth[:, n]):+.1f})"
                for n in range(4)
            ),
            f"{100 * np.mean(np.abs(girth) < std):.0f} %",
            f"{100 * np.median(np.abs(girth[tight])):.1f}" if tight.any() else "",
            f"{np.mean(ious):.3f}",
        )
    truths = [
        iou(true_vertices(folder)[person_errors.frame], person_errors, true_camera(folder))
        for folder, ones in zip(folders, images, strict=True)
        for person_errors in ones
    ]
    table.add_row("the true body", *[""] * (len(table.columns) - 2), f"{np.mean(truths):.3f}")
    console.print(table)


CHOICES: dict[str, tuple[object, ...]] = {
    "CLOTHES_M": ((0.008, 0.006, 0.003), (0.015, 0.012, 0.008)),
    "CLOTHES_UNSURE_M": (1e-5, 0.008, 0.025),
    "CLOTHES_STD_M": (0.005, 0.02),
    "OUTLINE_INDEPENDENT": (24.0, 48.0, 192.0),
    "OUTLINE_ROBUST": (3.0, 12.0),
}


def clips(root: Path, out: Path, console: Console) -> None:
    table = Table(
        "clip",
        "people-frames",
        "keypoints",
        "masks",
        title="IoU of mesh and mask, in frames not fitted to",
    )
    every = []
    for clip in sorted(root.iterdir()):
        if clip.suffix not in (".mp4", ".mkv"):
            continue
        if not (out / clip.stem / "keypoints.npz").exists():
            found_in(clip, out / clip.stem)
        shots = [list(fits(out / clip.stem, clip, masks=masks)) for masks in (False, True)]
        iou = silhouettes(out / clip.stem, clip, shots)
        every.append(iou)
        if len(iou):
            table.add_row(clip.name, str(len(iou)), *(f"{value:.3f}" for value in iou.mean(0)))
    table.add_row(
        "mean of clips",
        "",
        *(f"{v:.3f}" for v in np.mean([iou.mean(0) for iou in every if len(iou)], 0)),
    )
    console.print(table)


def cost(video: Path, console: Console) -> None:
    used: dict[str, list[float]] = {"keypoints": [], "masks": []}
    for _ in range(3):
        for shape, seconds in used.items():
            with tempfile.TemporaryDirectory() as folder:
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                command = [
                    sys.executable,
                    "-m",
                    "fitmesh",
                    "run",
                    "--video",
                    str(video),
                    "--out",
                    folder,
                    "--quiet",
                ]
                subprocess.run(
                    [*command, "--shape", shape],
                    check=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    best = {shape: min(seconds) for shape, seconds in used.items()}
    console.print(
        f"{video.name}: {best['keypoints']:.1f} s of processor time with --shape keypoints, {best['masks']:.1f} s with "
        f"masks: {100 * (best['masks'] / best['keypoints'] - 1):+.1f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rendered", type=Path)
    parser.add_argument("--people", type=int, default=28)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--cost", type=Path)
    options = parser.parse_args()
    console = Console()
    torch.set_num_threads(1)
    if options.rendered:
        rendered(options.rendered, options.people, options.choose, console)
    if options.clips:
        if options.out is None:
            parser.error("--clips needs --out, where keypoints and masks are kept")
        clips(options.clips, options.out, console)
    if options.cost:
        cost(options.cost, console)


if __name__ == "__main__":
    claim(main)
