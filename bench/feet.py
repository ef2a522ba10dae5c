"""Do feet stand? Slide and floor of contacts as they were fitted and as `--plant-feet` exports them.

    python bench/feet.py RESULT [RESULT ..] [--rendered DIR]

RESULT is the --out folder of `fitmesh run`. With --rendered also the sequences of `fitmesh synth
--scenes world`, run through `fitmesh.run`, whose true joints tell whether planting makes legs
better or worse.

Slide: speed over the floor of heels and toes that stand in two frames in a row. Below: how far the
lowest vertex of the mesh is below the floor, over frames in which a foot stands on it. Moved: how far joints are from
where they were fitted, and the share of observed joints that moved by more than their stated error."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitmesh
from bench.lib.claim import Console, claim
from bench.lib.world_rendered import boxes, estimate, read_truth, run
from bench.lib.world_scenes import ShotTruth
from fitmesh.exports.feet import contact_points, plant_feet
from fitmesh.exports.foot_holds import STANDS
from fitmesh.exports.scene import scene_frame
from fitmesh.person import Person
from fitmesh.result import Result
from fitting.scene.contact import OFF_FLOOR_M

COLUMNS = (
    "slide, cm/s",
    "90 %",
    "below, cm",
    "95 %",
    "moved, mm",
    "95 %",
    "beyond, %",
    "legs' error, mm",
)
LEGS = [1, 2, 4, 5, 7, 8, 10, 11]  # hips, knees, ankles, feet


@dataclass
class Figures:
    """Figures of people, a number for each frame or point."""

    slide_cm_s: list[np.ndarray]
    below_cm: list[np.ndarray]

    def row(self) -> list[str]:
        """Return the cells of a table."""
        slide = np.concatenate([*self.slide_cm_s, np.zeros(0)])
        below = np.concatenate([*self.below_cm, np.zeros(0)])
        if not len(slide):
            return ["-"] * 4
        return [
            f"{slide.mean():.2f}",
            f"{np.percentile(slide, 90):.2f}",
            f"{below.mean():.2f}",
            f"{np.percentile(below, 95):.2f}",
        ]


def measure(result: Result) -> Figures:
    """Return slide and penetration of all people whose world frame is known."""
    scene = scene_frame(result)
    figures = Figures([], [])
    for person in result.people:
        if not scene.upright[person.shot] or result.shots[person.shot].camera == "moving":
            continue
        stands = person.contact >= STANDS
        points_m = contact_points(result, person, scene)
        steps_s = np.diff(person.time_s)
        follows = np.diff(person.frame) == np.diff(result.frames).min()
        level = points_m[..., [0, 2]]
        speed = 100 * np.linalg.norm(np.diff(level, axis=0), axis=-1) / steps_s[:, None]
        figures.slide_cm_s.append(speed[stands[1:] & stands[:-1] & follows[:, None]])
        on_floor = (stands & (np.abs(points_m[..., 1]) < OFF_FLOOR_M)).any(1)
        figures.below_cm.append(100 * np.maximum(0, -lowest_m(result, person)[on_floor]))
    return figures


def lowest_m(result: Result, person: Person) -> np.ndarray:
    """Return the height [T] of the lowest vertex of a person over the floor."""
    scene = scene_frame(result)
    heights = []
    for first in range(0, len(person), 64):
        rows = slice(first, first + 64)
        vertices = result.body.at(result.params(person, rows), vertices=True).vertices
        assert vertices is not None
        points_m = scene.points(vertices.double().numpy(), person.frame[rows])
        heights.append(points_m[..., 1].min(1))
    return np.concatenate(heights)


def moved(fitted: Result, planted: Result) -> list[str]:
    """Return cells: how far joints of legs moved, and the shares beyond their stated error."""
    return moved_in_all([(fitted, planted)])


def moved_in_all(pairs: list[tuple[Result, Result]]) -> list[str]:
    """Return the cells of `moved` over several results."""
    moved_mm = []
    beyond = []
    people = [pair for a, b in pairs for pair in zip(a.people, b.people, strict=True)]
    for before, after in people:
        change_m = after.joints_m - before.joints_m
        moved_mm.append(1000 * np.linalg.norm(change_m, axis=-1)[:, LEGS].ravel())
        relative_mm = 1000 * np.linalg.norm(change_m - change_m[:, :1], axis=-1)
        seen = before.joint_observed & np.isfinite(before.joint_std_relative_mm)
        too_far = relative_mm > before.joint_std_relative_mm
        beyond.append(too_far[:, LEGS][seen[:, LEGS]])
    far = np.concatenate([*moved_mm, np.zeros(0)])
    share = np.concatenate([*beyond, np.zeros(0)])
    if not len(far):
        return ["-"] * 3
    return [
        f"{far.mean():.0f}",
        f"{np.percentile(far, 95):.0f}",
        f"{100 * share.mean():.1f}",
    ]


def true_error_mm(
    result: Result, planted: Result, shot: ShotTruth, true_boxes: np.ndarray
) -> list[np.ndarray]:
    """Return the errors of legs relative to the pelvis, as fitted and as planted."""
    errors: list[np.ndarray] = []
    for answer in (result, planted):
        found = estimate(answer, shot, true_boxes, answer.body, True).people
        distances = [np.zeros(0)]
        for person, truth in zip(found, shot.people, strict=True):
            if person is not None:
                true_m = shot.in_camera(truth.joints_m)[person.rows]
                error_m = person.joints_cam_m - true_m
                error_m -= error_m[:, :1]
                distances.append(1000 * np.linalg.norm(error_m[:, LEGS], axis=-1).ravel())
        errors.append(np.concatenate(distances))
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="*", type=Path)
    parser.add_argument("--rendered", type=Path, help="output of `fitmesh synth --scenes world`")
    asked = parser.parse_args()
    table = Table(title="Feet, as fitted and as planted")
    for name in ("", "", *COLUMNS):
        table.add_column(name)
    for folder in asked.results:
        result = fitmesh.load(folder)
        planted = plant_feet(result)
        table.add_row(folder.name, "fitted", *measure(result).row(), "", "", "", "")
        cells = moved(result, planted)
        table.add_row("", "planted", *measure(planted).row(), *cells, "")
    if asked.rendered is not None:
        errors: list[list[np.ndarray]] = []
        sums = (Figures([], []), Figures([], []))
        pairs = []
        for shot in read_truth(asked.rendered):
            result = run(asked.rendered, shot, asked.rendered / "results", "auto", None)
            planted = plant_feet(result)
            pairs.append((result, planted))
            true_boxes = boxes(asked.rendered, shot.name)
            errors.append(true_error_mm(result, planted, shot, true_boxes))
            for total, answer in zip(sums, (result, planted), strict=True):
                figures = measure(answer)
                total.slide_cm_s += figures.slide_cm_s
                total.below_cm += figures.below_cm
        before, after = (np.concatenate([error[n] for error in errors]).mean() for n in (0, 1))
        cells = moved_in_all(pairs)
        title = f"{len(pairs)} rendered"
        table.add_row(title, "fitted", *sums[0].row(), "", "", "", f"{before:.1f}")
        table.add_row("", "planted", *sums[1].row(), *cells, f"{after:.1f}")
    Console().print(table)


if __name__ == "__main__":
    claim(main)
