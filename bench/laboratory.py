"""Several calibrated cameras in a laboratory: how far off joints and knee angles are, nothing aligned.

    python bench/laboratory.py DIR [--keep FOLDER] [--cameras 12 34 1234] [--opensim PYTHON]

DIR has the videos cam01.mp4 .. cam04.mp4 of one man on a balance beam, their calibration
Calib_qualisys.toml and truth.trc, the triangulation of 12 limb joints (Pose2Sim's demonstration,
100 frames at 60 frames/s). Every row is `fitmesh run --together` over some of the cameras with the
defaults. Errors are distances in the laboratory's frame; the truth itself is good to about 40 mm.
Coverage is the share of errors within once and twice the stated length of the deviation. The knee's
error is that of the exported angle against the angle at the true hip, knee and ankle; the second
column is without the mean difference. Truth and video are matched by time: keypoints in all four
images agree that the file's first row, 1/60 s, is the second frame. Results are kept in --keep.
With --opensim, a Python that has the package opensim: our angles beside those of OpenSim's scaling
and inverse kinematics on the markers of the last row's body.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitmesh
from bench.lib.claim import Console, claim
from fitmesh.exports.angles import joint_angles_deg
from fitmesh.opensim import comparison, setup_files, tools
from fitmesh.person import Person
from fitmesh.stages.people import KEYPOINTS_FILE, TRACKS_FILE
from fitmesh.ui.events import Reporter

CALIBRATION = "Calib_qualisys.toml"
SAME_TIME_S = 0.004
SIDES = ("L", "R")
PARTS = ("Shoulder", "Elbow", "Wrist", "Hip", "Knee", "Ankle")
BODY_KEYPOINTS = slice(5, 17)  # the same joints among the 26 keypoints
SMPL_JOINTS = [16, 17, 18, 19, 20, 21, 1, 2, 4, 5, 7, 8]


@dataclass(frozen=True)
class Answer:
    """Hold the figures of one run."""

    error_mm: np.ndarray  # [T, 12, 3] in the laboratory's frame
    stated_mm: np.ndarray  # [T, 12] length of the stated deviation
    knee_deg: np.ndarray  # [T, 2] exported minus true
    height_m: float
    height_std_m: float
    people: int
    identity: int

    @property
    def length_mm(self) -> np.ndarray:
        """Return the distances [T, 12]."""
        return np.linalg.norm(self.error_mm, axis=-1)

    def coverage(self, factor: float) -> float:
        """Return the share of errors within so many stated deviations."""
        return float(np.mean(self.length_mm <= factor * self.stated_mm))


def read_truth(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the times [N] of the truth and its joints [N, 12, 3] in metres, y up as in the file."""
    lines = (folder / "truth.trc").read_text().splitlines()
    names = [name for name in lines[3].split("\t")[2:] if name]
    numbers = [line.split("\t")[1 : 2 + 3 * len(names)] for line in lines[5:] if line.strip()]
    rows = np.array(numbers, float)
    wanted = [names.index(f"{side}{part}") for part in PARTS for side in SIDES]
    return rows[:, 0], rows[:, 1:].reshape(-1, len(names), 3)[:, wanted]


def run(folder: Path, keep: Path, cameras: Sequence[int]) -> fitmesh.Result:
    """Return the result of one run over some cameras, with people that were looked for before."""
    videos = [folder / f"cam0{number}.mp4" for number in cameras]
    out = keep / "-".join(video.stem for video in videos)
    targets = [out, *(out / "cameras" / video.stem for video in videos[1:])]
    for video, target in zip(videos, targets, strict=True):
        if (keep / video.stem).is_dir() and not (target / KEYPOINTS_FILE).is_file():
            shutil.copytree(keep / video.stem, target, dirs_exist_ok=True)
    result = fitmesh.run(videos, out, cameras=folder / CALIBRATION, outputs=("fit",))
    for video, target in zip(videos, targets, strict=True):
        (keep / video.stem).mkdir(exist_ok=True)
        for name in (TRACKS_FILE, KEYPOINTS_FILE):
            shutil.copy(target / name, keep / video.stem / name)
    return result


def measure(result: fitmesh.Result, truth_s: np.ndarray, truth_m: np.ndarray) -> Answer:
    """Return the figures of the person nearest to the truth."""

    def keypoints_m(person: Person) -> np.ndarray:
        world = person.world_from_camera
        assert world is not None, "the run did not find the laboratory's frame"
        points = result.body.at(result.params(person)).keypoints.numpy()[:, BODY_KEYPOINTS]
        return np.einsum("tij,tnj->tni", world[:, :3, :3], points) + world[:, None, :3, 3]

    def matched(person: Person) -> tuple[Person, np.ndarray]:
        """Return the rows of a person at times of the truth, and the joints at these times."""
        nearest = np.abs(person.time_s[:, None] - truth_s).argmin(1)
        is_near = np.abs(person.time_s - truth_s[nearest]) < SAME_TIME_S
        return person.rows(np.flatnonzero(is_near)), truth_m[nearest[is_near]]

    def distance(person: Person) -> float:
        rows, exact_m = matched(person)
        return float(np.linalg.norm(keypoints_m(rows) - exact_m, axis=-1).mean())

    nearest_person = min(result.people, key=distance)
    person, exact_m = matched(nearest_person)
    angles = joint_angles_deg(person.pose_rad, person.joints_m)
    knees = np.stack([angles[f"{side}_knee_flexion"] for side in ("left", "right")], -1)
    thigh = exact_m[:, 8:10] - exact_m[:, 6:8]
    shank = exact_m[:, 10:12] - exact_m[:, 8:10]
    cross = np.linalg.norm(np.cross(thigh, shank), axis=-1)
    exact_knees = np.degrees(np.arctan2(cross, (thigh * shank).sum(-1)))
    return Answer(
        1000 * (keypoints_m(person) - exact_m),
        person.joint_std_mm[:, SMPL_JOINTS],
        knees - exact_knees,
        person.height_m,
        float(person.height_std_m),
        len(result.people),
        nearest_person.identity,
    )


def opensim_table(result: fitmesh.Result, identity: int, python: str) -> Table:
    """Return our angles beside OpenSim's on the markers of one person."""
    setup_files.write(result, result.folder, Reporter(lambda event: None))
    files = next(f for f in tools.segments(result.folder) if f.name == f"person_{identity}")
    errors = tools.run(files, python)
    comparisons = comparison.compare(files)
    comparison.write_page(files, comparisons, errors)
    table = Table(
        "coordinate",
        "mean difference deg",
        "RMS without mean deg",
        "range of motion deg",
        "correlation",
        title=f"fitmesh minus OpenSim; markers {errors.rms_mm:.0f} mm RMS, at most {errors.largest_mm:.0f} mm",
    )
    for one in comparisons:
        table.add_row(
            one.name,
            f"{one.offset_deg:+.1f}",
            f"{one.rms_without_offset_deg:.1f}",
            f"{one.range_deg:.0f}",
            f"{one.correlation:.2f}",
        )
    return table


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def table_of(answers: dict[str, Answer]) -> Table:
    """Return one row per choice of cameras."""
    table = Table(
        "cameras",
        "error mm",
        "90 % below",
        "stated mm",
        "within 1x / 2x",
        "knee RMSE deg",
        "without mean",
        "height m",
        "people",
        title="One man in the laboratory's frame, nothing aligned",
    )
    for name, answer in answers.items():
        changes = answer.knee_deg - answer.knee_deg.mean(0)
        table.add_row(
            " ".join(name),
            f"{answer.length_mm.mean():.1f}",
            f"{np.quantile(answer.length_mm, 0.9):.0f}",
            f"{answer.stated_mm.mean():.0f}",
            f"{100 * answer.coverage(1):.0f} / {100 * answer.coverage(2):.0f} %",
            f"{rms(answer.knee_deg):.1f}",
            f"{rms(changes):.1f}",
            f"{answer.height_m:.2f} +- {answer.height_std_m:.2f}",
            str(answer.people),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--cameras", nargs="+", default=None)
    parser.add_argument("--opensim", default=None, metavar="PYTHON")
    options = parser.parse_args()
    pairs = ["".join(pair) for pair in combinations("1234", 2)]
    truth = read_truth(options.folder)
    answers = {}
    with tempfile.TemporaryDirectory() as text:
        keep = options.keep or Path(text)
        for name in options.cameras or [*pairs, "1234"]:
            cameras = [int(number) for number in name]
            result = run(options.folder, keep, cameras)
            answers[name] = measure(result, *truth)
        console = Console()
        console.print(table_of(answers))
        if options.opensim:
            identity = answers[name].identity
            console.print(opensim_table(result, identity, options.opensim))


if __name__ == "__main__":
    claim(main)
