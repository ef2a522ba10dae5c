"""Claim: how far each joint and each joint angle is off, and what the fit says of it, on rendered
people.

Rendered people (`fitmesh synth`) are read by the default network and fitted as `run` does. Joints
are compared with the truth after both pelvises are put on top of each other. A joint is seen when
the fit calls it observed. "Stated" is the median of the fit's own standard deviation (the length
over x, y and z), "inside" the share of errors that are shorter.

    fitmesh synth --out synth_test --seed 23
    python bench/joint_errors.py --data synth_test [--only _none]
"""

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from bench.lib.rendered_fits import RenderedFit, rendered_fits
from fitmesh.exports.angles import ANGLE_NAMES, joint_angles_deg
from fitting.body.kinematics import JOINT_NAMES

LEFT_OUT = (
    "pelvis",
    "spine1",
    "spine2",
    "left_hand",
    "right_hand",
)  # the origin; joints without keypoints of their own


def joint_rows(people: list[RenderedFit]) -> list[str]:
    """Markdown rows: one kind of joint, both sides together."""
    errors = defaultdict(list)
    for person in people:
        away = (person.body.at(person.found).joints - person.body.at(person.truth).joints) * 1000
        error = (away - away[:, :1]).norm(dim=-1)[person.observed].numpy()
        stated_std_mm = person.track.fit.joint_std_relative_mm
        assert stated_std_mm is not None
        std = stated_std_mm[person.rows].norm(dim=-1)[person.observed].numpy()
        observed = np.asarray(person.track.joint_observed)[person.rows][person.observed]
        for number, name in enumerate(JOINT_NAMES):
            if name not in LEFT_OUT:
                kind = name.removeprefix("left_").removeprefix("right_")
                errors[kind].append(
                    np.stack((error[:, number], std[:, number], observed[:, number]), 1)
                )
    rows = []
    for kind, parts in errors.items():
        error, std, observed = np.concatenate(parts).T
        visible = observed > 0.5
        hidden = observed <= 0.5
        rows.append(
            f"| {kind} | {np.median(error[visible]):.0f} | {np.percentile(error[visible], 90):.0f} "
            f"| {_median(error[hidden])} | {np.median(std[visible]):.0f} | {100 * np.mean(error < std):.0f} % |"
        )
    return rows


def angle_rows(people: list[RenderedFit]) -> list[str]:
    """Markdown rows: one angle, both sides together, in frames that show enough of the person."""
    errors = defaultdict(list)
    for person in people:
        result, true = (
            joint_angles_deg(
                params.pose.double().numpy(), person.body.at(params).joints.double().numpy()
            )
            for params in (person.found, person.truth)
        )
        for name in ANGLE_NAMES:
            kind = name.removeprefix("left_").removeprefix("right_")
            off = (result[name] - true[name] + 180) % 360 - 180
            errors[kind].append(off[person.observed.numpy()])
    rows = []
    for kind, parts in errors.items():
        off = np.concatenate(parts)
        rows.append(
            f"| {kind} | {np.median(np.abs(off)):.0f} | {np.percentile(np.abs(off), 90):.0f} | {np.median(off):+.0f} |"
        )
    return rows


def share_in_depth(people: list[RenderedFit]) -> float:
    """Return how much of the squared error relative to the pelvis lies along the optical axis."""
    squared = np.zeros(3)
    for person in people:
        away = person.body.at(person.found).joints - person.body.at(person.truth).joints
        squared += (away - away[:, :1])[person.observed].square().sum((0, 1)).double().numpy()
    return float(squared[2] / squared.sum())


def _median(values: np.ndarray) -> str:
    return f"{np.median(values):.0f}" if len(values) >= 30 else "too few"


JOINT_HEAD = "| joint | median, mm | 90 % below | not seen: median | stated, seen | inside |\n|---|---:|---:|---:|---:|---:|"
ANGLE_HEAD = "| angle | median error, degrees | 90 % below | bias |\n" + "|---" * 4 + "|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a set made by `fitmesh synth`")
    parser.add_argument(
        "--cache", type=Path, default=Path("joint_errors_cache"), help="of the keypoints"
    )
    parser.add_argument(
        "--only",
        default="",
        help="sequences whose name has this in it: _none, nothing hides a person",
    )
    arguments = parser.parse_args()
    people = list(rendered_fits(arguments.data, arguments.cache, arguments.only))
    frames = sum(int(person.observed.sum()) for person in people)
    console = Console()
    console.print(f"{len(people)} people, {frames} person-frames")
    console.print_markdown("\n".join([JOINT_HEAD, *joint_rows(people)]))
    console.print(
        f"{100 * share_in_depth(people):.0f} % of the squared error lies along the optical axis"
    )
    console.print_markdown("\n".join([ANGLE_HEAD, *angle_rows(people)]))


if __name__ == "__main__":
    claim(main)
