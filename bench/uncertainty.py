"""Claim: the stated standard deviations of 3D joints hold.

Held-out CMU motion on the open body, random cameras and shapes, keypoint noise drawn from the
stated sigmas; over time it lasts as a real network's does, or is drawn anew in every frame. Of
every joint and axis the error of the fit is compared with the standard deviation that the fit
states: 68 % intervals (one sigma) should hold 60 to 76 % of the errors, 95 % intervals (1.96 sigma)
90 to 98 %. Constants are chosen with --subjects training, never on the held-out. Further rows:
errors stated as mixtures; only dance, jumps, flips and rolls; with --poses, kinds of motion that
neither prior nor lifter ever saw (`LEFT_OUT_KINDS` of eval3dpw/captured/motion.py); bodies whose bones have
lengths that no shape of the fit reaches, with keypoints marked some millimetres from the body's
own. These are the Gauss-Newton deviations of `fitting.fit`. With --synth, rendered people read by
the real network, with the deviations that `run` states (`fitting.stated`): coverage at four levels,
lengths of intervals, likelihood, Spearman, risk-coverage, ROC-AUC, and the calibration error of the
probability that a frame can be used.

    python bench/uncertainty.py --clips clips_30fps.npz --poses poses_5fps.npz [--tracks 36 --frames 90] [--synth DATA]
"""

import argparse
import resource
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.rendered_fits import rendered_fits
from bench.lib.simulation import Noise, scene
from eval3dpw.captured.motion import Motion, load_motion
from eval3dpw.stated import Stated, figures, text_rows
from eval3dpw.stated import rows as by_kind
from fitting.body.rotations import matrix_to_axis_angle, quaternion_to_matrix
from fitting.fits import Fit
from fitting.solver.unknowns import SHAPE_SIZE
from pose2d.skeletons import HALPE26
from training.motion.bank import bank

# standard deviation of where keypoints are marked, per axis: as far as COCO's are from the body's
# own
MARK_M = 0.012
ATHLETIC = (
    "dance",
    "jump",
    "flip",
    "roll",
    "kick",
    "hopscotch",
    "bend",
)  # in the clips' descriptions
NOISES = {
    "as stated": Noise(outliers=0.0),
    "as stated, sharp keypoints": Noise(confidence=(0.9, 0.99), outliers=0.0),
    "as stated, blurred keypoints": Noise(confidence=(0.3, 0.9), outliers=0.0),
    "as stated, half of the keypoints missing": Noise(outliers=0.0, missing=0.5),
    "with 3 % outliers": Noise(outliers=0.03),
    "as stated, mixtures": Noise(outliers=0.0, mixtures=True),
    "as stated, anew in every frame": Noise(outliers=0.0, constant_share=0.0, memory_s=0.0),
}


def ratios(
    track_fit: Fit, truth: fitting.BodyParams, body: fitting.Body, true_body: fitting.Body
) -> tuple[Tensor, Tensor]:
    """Error over stated deviation, per joint and axis: in the camera frame [T, 24, 3], from the
    pelvis [T, 23, 3].
    """
    joints = body.at(track_fit.params).joints * 1000
    exact = true_body.at(truth).joints * 1000
    assert track_fit.joint_std_mm is not None
    assert track_fit.joint_std_relative_mm is not None
    away = joints - exact
    relative = away - away[:, :1]
    observed = track_fit.observed
    return (away / track_fit.joint_std_mm)[observed], (relative / track_fit.joint_std_relative_mm)[
        observed
    ][:, 1:]


def measure(
    motion: Motion,
    body: fitting.Body,
    noise: Noise,
    clips: np.ndarray,
    frames: int,
    over_time: bool,
    remaining: bool = False,
) -> tuple[Tensor, Tensor]:
    """others: people who are not the fit's own body."""
    generator = torch.Generator().manual_seed(7)
    place = []
    pose = []
    for clip in clips:
        true_body = other_body(body, generator) if remaining else body
        marks_m = MARK_M * torch.randn(HALPE26.size, 3, generator=generator) if remaining else None
        truth = scene(motion, int(clip), true_body, generator, noise, frames, marks_m)
        solve = fitting.fit if over_time else fitting.fit_frames
        a, b = ratios(solve(truth.keypoints, truth.camera, body), truth.truth, body, true_body)
        place.append(a)
        pose.append(b)
    return torch.cat(place), torch.cat(pose)


def other_body(body: fitting.Body, generator: torch.Generator) -> fitting.Body:
    """The body with random amounts of the shape directions that a fit does not use."""
    inputs = {entry.name: getattr(body, entry.name) for entry in fields(body) if entry.init}
    amount = torch.randn(body.shape_size - SHAPE_SIZE, generator=generator)
    inputs["v_template"] = body.v_template + body.shapedirs[..., SHAPE_SIZE:] @ amount
    return fitting.Body(**inputs)


def measure_synth(data: Path, cache: Path) -> tuple[tuple[Tensor, Tensor], np.ndarray, Stated]:
    """Rendered people, their keypoints read by the default network, fitted as `run` does: ratios,
    and errors [T, 24, 3] relative to the pelvis beside what is stated of them."""
    place = []
    pose = []
    errors = []
    said = []
    for person in rendered_fits(data, cache):
        away = (person.body.at(person.found).joints - person.body.at(person.truth).joints) * 1000
        result = person.track.fit
        observed = person.observed
        assert result.joint_std_mm is not None
        assert result.joint_std_relative_mm is not None
        relative = away - away[:, :1]
        place.append((away / result.joint_std_mm[person.rows])[observed])
        pose.append((relative / result.joint_std_relative_mm[person.rows])[observed][:, 1:])
        statement = Stated.of(person.track)
        assert statement is not None
        errors.append(relative[observed].numpy())
        said.append(statement.rows(person.rows.numpy()[observed.numpy()]))
    return (torch.cat(place), torch.cat(pose)), np.concatenate(errors), Stated.concat(said)


def left_out_motion(poses: Path, skeleton: Path, body: fitting.Body) -> Motion:
    """Clips of kinds that nothing is learned from, of all subjects, at 15 frames a second; the
    lower foot stands.
    """
    motion = load_motion(poses, body, 5.0, skeleton)
    selected = bank(motion, body, motion.left_out)
    pose = matrix_to_axis_angle(quaternion_to_matrix(selected.turn))
    names = tuple(
        name for name, left in zip(motion.clip_name, motion.left_out, strict=True) if left
    )
    return Motion(pose, selected.root_m, selected.clip_start.numpy(), names, selected.fps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument(
        "--poses", type=Path, help="more captured motion, for kinds that are not among --clips"
    )
    parser.add_argument("--tracks", type=int, default=36)
    parser.add_argument("--frames", type=int, default=90)
    parser.add_argument("--subjects", choices=("held-out", "training"), default="held-out")
    parser.add_argument("--synth", type=Path, help="a set made by `fitmesh synth`")
    parser.add_argument(
        "--cache", type=Path, default=Path("uncertainty_cache"), help="of the keypoints of --synth"
    )
    arguments = parser.parse_args()
    body = fitting.load_body()
    motion = load_motion(arguments.clips, body, 30.0)
    owner = np.flatnonzero(motion.held_out == (arguments.subjects == "held-out"))
    clips = owner[
        np.linspace(0, len(owner) - 1, min(arguments.tracks, len(owner))).round().astype(int)
    ]
    console = Console(width=150)
    table = Table(
        title=f"{len(clips)} {arguments.subjects} clips, up to {arguments.frames} frames: errors inside the interval, %"
    )
    for column in ("noise", "fit", "joints", "68 %", "95 %", "68 % x y z", "95 % x y z", "holds"):
        table.add_column(
            column, justify="left" if column in ("noise", "fit", "joints") else "right"
        )

    def add(name: str, fit: str, pairs: tuple[Tensor, Tensor]) -> None:
        for label, ratio in zip(("in the camera frame", "relative to pelvis"), pairs, strict=True):
            within_one, two = (
                (ratio.abs() < limit).double().mean((0, 1)) * 100 for limit in (1.0, 1.96)
            )
            holds = 60 <= within_one.mean() <= 76 and 90 <= two.mean() <= 98
            table.add_row(
                name,
                fit,
                label,
                f"{within_one.mean():.1f}",
                f"{two.mean():.1f}",
                " ".join(f"{v:.0f}" for v in within_one),
                " ".join(f"{v:.0f}" for v in two),
                "yes" if holds else "no",
            )
            print(name, fit, label, f"{within_one.mean():.1f} {two.mean():.1f}", flush=True)

    for over_time, fit in ((False, "single frames"), (True, "track")):
        for name, noise in NOISES.items():
            add(name, fit, measure(motion, body, noise, clips, arguments.frames, over_time))
        plain = NOISES["as stated"]
        words = np.array(
            [any(word in text.lower() for word in ATHLETIC) for text in motion.clip_description]
        )
        athletic = owner[words[owner]]
        add(
            "as stated, dance, jumps, rolls",
            fit,
            measure(motion, body, plain, athletic, arguments.frames, over_time),
        )
        if arguments.poses is not None:
            new = left_out_motion(arguments.poses, arguments.clips, body)
            numbers = np.linspace(0, len(new.clip_name) - 1, arguments.tracks).round().astype(int)
            add(
                "as stated, kinds never seen",
                fit,
                measure(new, body, plain, numbers, arguments.frames, over_time),
            )
        add(
            "as stated, other bodies",
            fit,
            measure(motion, body, plain, clips, arguments.frames, over_time, True),
        )
    if arguments.synth is not None:
        pairs, error, said = measure_synth(arguments.synth, arguments.cache)
        add(f"the network's, {arguments.synth.name}", "track", pairs)
        measures = Table(
            "relative to the pelvis", f"{len(error)} person-frames", title=str(arguments.synth.name)
        )
        for label, value in text_rows(figures(error, said)):
            measures.add_row(label, value)
        for name, part in by_kind(error, said).items():
            measures.add_row(
                f"inside 68 / 95 %, {name}",
                f"{100 * part['inside_68']:.0f} / {100 * part['inside_95']:.0f}",
            )
        console.print(measures)
    console.print(table)
    console.print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    claim(main)
