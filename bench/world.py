"""Does the world come out right: gravity, floor, standing feet, sizes, depths, lens and camera?

    python bench/world.py --clips clips_30fps.npz [--shots 24 --seconds 10 --choose] [--rendered DIR]

Simulated shots with exact truth (bench/world_scenes.py): captured motion of one to four people,
adults and children, on one floor, cameras that stand, pan or are held in a hand, lenses of 0.55 to
1.3 diagonals that the fit is not told. Every column is one call of `fitting.shot.fit_shot`, which is
what `fitmesh run` calls. Held-out subjects and their own seed are reported; --choose takes the
other subjects and another seed, for choosing constants.

With --rendered also the rendered sequences of `fitmesh synth --scenes world`, from images, through
`fitmesh.run`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.world_background import camera_motion
from bench.lib.world_metrics import PersonEstimate, ShotEstimate, shot_metrics, standing_speed_cm_s
from bench.lib.world_page import groups, medians
from bench.lib.world_rendered import boxes, read_truth, run
from bench.lib.world_rendered import estimate as rendered_estimate
from bench.lib.world_scenes import ShotTruth, simulated_shot
from eval3dpw.captured.feet import feet_over_sole_m
from eval3dpw.synth.motion import clips_by_kind
from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import FocalEstimate, focal_prior
from fitting.fits import TrackFit
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from pose2d.video.camera_motion.motion import CameraMotion

CHOOSING_SEED, REPORTING_SEED = 1, 2


def fitted(
    shot: ShotTruth,
    body: Body,
    focal: FocalEstimate,
    motion: CameraMotion | None,
    options: SceneOptions,
) -> ShotEstimate:
    keypoints = [person.keypoints for person in shot.people if person.keypoints is not None]
    people = [ShotPerson(n, read, np.arange(shot.frames)) for n, read in enumerate(keypoints)]
    camera = Camera.from_focal(focal.focal_px, shot.camera.size)
    shot_result = fit_shot(
        people, camera, focal, body, fps=shot.fps, motion=motion, options=options
    )
    return estimate(shot_result, body, len(people))


def estimate(shot_result: ShotFit, body: Body, people: int) -> ShotEstimate:
    turns = shot_result.motion is not None and shot_result.motion.kind in ("rotating", "moving")
    return ShotEstimate(
        people=[
            _person(shot_result.people[n], body) if n in shot_result.people else None
            for n in range(people)
        ],
        up_cam=None if shot_result.ground is None else shot_result.ground.up_cam,
        camera_height_m=np.nan
        if shot_result.ground is None
        else shot_result.ground.camera_height_m,
        focal_px=shot_result.focal.focal_px,
        kind=None if shot_result.motion is None else shot_result.motion.kind,
        first_from_camera=shot_result.motion.first_from_camera
        if shot_result.motion is not None and turns
        else None,
    )


def _person(shot_result: TrackFit, body: Body) -> PersonEstimate:
    params = shot_result.fit.params
    posed = body.at(params)
    size = float(params.size)
    return PersonEstimate(
        rows=shot_result.frame,
        joints_cam_m=posed.joints.double().numpy(),
        keypoints_cam_m=posed.keypoints.double().numpy(),
        over_sole_m=size * feet_over_sole_m(body, params.shape),
        height_m=size * body.height_m(params.shape),
        contact=None
        if shot_result.contact is None or not shot_result.contact.any()
        else shot_result.contact,
    )


# Each column: what is known and looked for.
Column = Callable[[ShotTruth, Body, CameraMotion], ShotEstimate]


def _everything_off(shot: ShotTruth, body: Body, motion: CameraMotion) -> ShotEstimate:
    """Everyone alone in the camera frame, the lens taken for the diagonal."""
    diagonal = FocalEstimate(float(np.hypot(*shot.camera.size)), 0.3, "diagonal")
    return fitted(shot, body, diagonal, None, SceneOptions(ground=False))


def _floor_off(shot: ShotTruth, body: Body, motion: CameraMotion) -> ShotEstimate:
    return fitted(shot, body, focal_prior(shot.camera.size), None, SceneOptions(ground=False))


def _new(shot: ShotTruth, body: Body, motion: CameraMotion) -> ShotEstimate:
    return fitted(shot, body, focal_prior(shot.camera.size), motion, SceneOptions())


COLUMNS: dict[str, Column] = {
    "everything off": _everything_off,
    "only the lens's prior": _floor_off,
    "new": _new,
}


def measure(
    shots: list[ShotTruth],
    body: Body,
    columns: dict[str, Column],
    console: Console,
    log: Path | None,
) -> dict[str, list[dict[str, float]]]:
    """The figures of every shot, by column."""
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in columns}
    for shot in shots:
        began = time.monotonic()
        motion = camera_motion(shot, focal_prior(shot.camera.size).focal_px)
        looked_s = time.monotonic() - began
        spent = {}
        for name, column in columns.items():
            began = time.monotonic()
            rows[name].append(shot_metrics(shot, column(shot, body, motion)))
            spent[name] = time.monotonic() - began
        last = rows[list(columns)[-1]][-1]
        console.print(
            f"{shot.name}: gravity {last['gravity, deg']:.1f} deg, feet {last['standing feet, cm/s']:.1f} cm/s, depth "
            f"{last['depth, %']:.0f} %, height {last['height, %']:.0f} %, focal {last['focal length, %']:.0f} %, "
            f"camera {motion.kind}; {looked_s:.0f} s + "
            + " + ".join(f"{s:.0f}" for s in spent.values()),
            highlight=False,
        )
        if log is not None:
            text = {name: rows[name][-1] for name in columns}
            with log.open("a") as stream:
                stream.write(json.dumps({"shot": shot.name, **text}) + "\n")
    return rows


def measure_rendered(
    root: Path, body: Body, out: Path, console: Console
) -> tuple[list[ShotTruth], dict[str, list[dict[str, float]]]]:
    """Measure from images, through the real network."""
    shots = read_truth(root)
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in COLUMNS}
    for shot in shots:
        diagonal = float(np.hypot(*shot.camera.size))
        mode = {
            "everything off": ("off", diagonal),
            "only the lens's prior": ("off", None),
            "new": ("auto", None),
        }
        for name, (floor, focal_px) in mode.items():
            result = run(root, shot, out, floor, focal_px)
            shot_result = rendered_estimate(
                result, shot, boxes(root, shot.name), body, looked=name == "new"
            )
            rows[name].append(shot_metrics(shot, shot_result))
            observed = sum(person is not None for person in shot_result.people)
        last = rows["new"][-1]
        console.print(
            f"{shot.name}: {observed} of {len(shot.people)} people, gravity {last['gravity, deg']:.1f} deg, camera "
            f"{result.shots[0].camera}",
            highlight=False,
        )
    return shots, rows


def show(
    console: Console, title: str, rows: dict[str, list[dict[str, float]]], truth: dict[str, float]
) -> None:
    table = Table(title=title)
    for head in ("median", "of the truth", *rows):
        table.add_column(head, justify="left" if head == "median" else "right")
    for name, values in medians(rows).items():
        table.add_row(name, f"{truth[name]:.1f}" if name in truth else "", *values)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, help="CMU clips at 30 frames/s")
    parser.add_argument("--shots", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument(
        "--choose", action="store_true", help="the subjects and the seed to choose constants with"
    )
    parser.add_argument(
        "--only", default="", help="only shots with one of these numbers, with commas"
    )
    parser.add_argument("--columns", default="", help="only these, with semicolons")
    parser.add_argument(
        "--rendered", type=Path, help="a set made by `fitmesh synth --scenes world`"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("world_rendered"), help="for the runs of --rendered"
    )
    parser.add_argument("--log", type=Path, help="every shot's figures, a line of JSON each")
    arguments = parser.parse_args()
    console = Console(width=150)
    began = time.monotonic()
    body = fitting.load_body()
    requested = arguments.columns.split(";") if arguments.columns else list(COLUMNS)
    picked = {name: column for name, column in COLUMNS.items() if name in requested}
    parts: dict[str, dict[str, list[dict[str, float]]]] = {}
    truth: dict[str, float] = {}
    if arguments.clips is not None:
        clips = clips_by_kind(body, reporting=not arguments.choose, motion=arguments.clips)
        seed = CHOOSING_SEED if arguments.choose else REPORTING_SEED
        numbers = [int(n) for n in arguments.only.split(",") if n] or list(range(arguments.shots))
        shots = [simulated_shot(clips, body, seed, n, arguments.seconds) for n in numbers]
        rows = measure(shots, body, picked, console, arguments.log)
        truth = truth_figures(shots)
        for title, index in groups(shots).items():
            parts[title] = {
                name: [shot_result[i] for i in index] for name, shot_result in rows.items()
            }
    if arguments.rendered is not None:
        rendered, rows = measure_rendered(arguments.rendered, body, arguments.out, console)
        parts["rendered, through the network"] = rows
        truth = truth or truth_figures(rendered)
    for title, part in parts.items():
        show(console, title, part, truth if title == "all" else {})
    console.print(f"{time.monotonic() - began:.0f} s")


def truth_figures(shots: list[ShotTruth]) -> dict[str, float]:
    """The truth's own figures, where they are not zero."""
    speeds = [
        standing_speed_cm_s(person.feet_m, person.still, np.arange(shot.frames), shot.fps)
        for shot in shots
        for person in shot.people
    ]
    return {"standing feet, cm/s": float(np.nanmedian(speeds))}


if __name__ == "__main__":
    claim(main)
