"""Claim: what calibrated confidence is worth to model fitting, the paper's last table in its form.

Every frame is fitted by itself from the same start (the lifter, every keypoint alike), and the
weight of a keypoint is its confidence: raw, closed form, CCNet, or the true OKS (oracle). Nothing
else differs between the rows. Differences are paired with raw.

- `--data`: rendered people of `fitmesh synth`, intervals over sequences.
- `--real`: one man before four calibrated cameras, each camera alone with its lens known.
  The truth is triangulated, 12 limb joints, good to about 4 cm. Intervals are over 16 clusters (25
  frames of one camera): they say how much these clips scatter, nothing of other people. The
  oracle knows the OKS of the 12 joints only, and takes CCNet's confidence for head and feet.

    fitmesh synth --out synth_test --seed 43 --sequences 26 --frames 30
    python bench/model_fitting.py --data synth_test --every 3 --real DATA/pose2sim
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import torch
from rich.table import Table
from scipy.spatial.transform import Rotation

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib.claim import Console, claim
from ccnet.confidence import confidence_function
from eval3dpw.scoring import pa_mpjpe_mm
from fitmesh.eval_3dpw.eval_settings import EvalSettings, Row
from fitmesh.eval_3dpw.pipeline import run
from fitmesh.eval_3dpw.score_table import NAMES, cell, lines
from fitmesh.ui.events import Reporter, on_stderr
from fitting.body.load import load_body
from fitting.camera import Camera
from fitting.fits import FitOptions
from fitting.optimise import fit_frames
from fitting.problem_setup import initial_guess
from pose2d.base.resampling import clustered_means, draws, interval
from pose2d.crops import estimate_people
from pose2d.types import AREA_OF_BOX, Keypoints, keypoint_oks, l_squared

MODEL = "rtmpose-s-halpe26"
ROWS = {"raw": "raw", "closed form": "closed-form", "CCNet": "ccnet", "oracle": "oracle"}
METRICS = ("pa_mpjpe_mm", "mpjpe_mm", "mve_mm")
LIMBS = ("LShoulder", "RShoulder", "LElbow", "RElbow", "LWrist", "RWrist")
LIMBS += ("LHip", "RHip", "LKnee", "RKnee", "LAnkle", "RAnkle")
FIRST_LIMB = 5  # COCO's keypoints 5 to 16 are the same joints in the same order
HIPS = slice(6, 8)  # among LIMBS
CLUSTER_FRAMES = 25
RESAMPLES = 2000
BOX_MARGIN = 0.15  # of the box around the limb joints, which has no head, hands and feet


def read_truth(folder: Path) -> np.ndarray:
    """Return the limb joints [T, 12, 3] in metres, z up."""
    text = (folder / "truth.trc").read_text().splitlines()
    names = [name for name in text[3].split("\t")[2:] if name]
    numbers = [line.split("\t")[2 : 2 + 3 * len(names)] for line in text[5:] if line.strip()]
    points = np.array(numbers, float).reshape(-1, len(names), 3)
    return points[:, [names.index(name) for name in LIMBS]][..., [2, 0, 1]]


def read_cameras(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return rotation, translation and intrinsics of each camera, by the name of its video."""
    try:
        import tomllib
    except ImportError:
        import tomli as tomllib
    content = tomllib.loads((folder / "Calib_qualisys.toml").read_text())
    cameras = {}
    for name, entry in content.items():
        if name.startswith("cam_"):
            rotation = Rotation.from_rotvec(entry["rotation"]).as_matrix()
            translation = np.array(entry["translation"])
            cameras[name.replace("_", "")] = (rotation, translation, np.array(entry["matrix"]))
    return cameras


def read_frames(path: Path, count: int) -> list[np.ndarray]:
    """Return the first frames of a video, RGB."""
    video = cv2.VideoCapture(str(path))
    frames = []
    while len(frames) < count:
        ok, image = video.read()
        if not ok:
            break
        frames.append(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
    return frames


def boxes_around(joints_px: np.ndarray) -> np.ndarray:
    """Return boxes [T, 4] around limb joints [T, 12, 2], with a margin for head, hands and feet."""
    low = joints_px.min(1)
    high = joints_px.max(1)
    margin = BOX_MARGIN * (high - low).max(1, keepdims=True)
    return np.concatenate([low - margin, high + margin], 1)


def with_true_oks(keypoints: Keypoints, truth_px: np.ndarray) -> Keypoints:
    """Return the keypoints with the true OKS of the limb joints as confidence. Head and feet, whose
    truth is unknown, keep theirs.
    """
    assert keypoints.area_px2 is not None
    limbs = slice(FIRST_LIMB, FIRST_LIMB + len(LIMBS))
    distance2 = (keypoints.xy_px[:, limbs] - torch.from_numpy(truth_px)).square().sum(-1)
    l2 = l_squared(keypoints.area_px2, keypoints.skeleton)[:, limbs]
    confidence = keypoints.confidence.clone()
    confidence[:, limbs] = keypoint_oks(distance2, l2).to(confidence)
    presence = keypoints.presence.clone()
    presence[:, limbs] = 1
    return replace(keypoints, confidence=confidence, presence=presence, source="oracle")


def fit_camera(
    video: Path, truth: np.ndarray, intrinsics: np.ndarray
) -> dict[str, dict[str, np.ndarray]]:
    """Return the errors [T] of each row for one camera; truth [T, 12, 3] in the camera's frame."""
    projected = truth @ intrinsics.T
    truth_px = projected[..., :2] / projected[..., 2:]
    images = read_frames(video, len(truth))
    truth = truth[: len(images)]
    truth_px = truth_px[: len(images)]
    size = (images[0].shape[1], images[0].shape[0])
    camera = Camera.from_intrinsics(intrinsics, size)
    model = pose2d.load(MODEL)
    with torch.inference_mode():
        boxes, estimate = estimate_people(model, images, boxes_around(truth_px))
    area_px2 = torch.from_numpy(AREA_OF_BOX * (boxes[:, 2:] - boxes[:, :2]).prod(1)).float()
    by_source = {}
    for source in ("ones", "raw", "closed-form", "ccnet"):
        keypoints = confidence_function(source, MODEL, model, None)(estimate)  # type: ignore[arg-type]
        by_source[source] = replace(keypoints, area_px2=area_px2)
    by_source["oracle"] = with_true_oks(by_source["ccnet"], truth_px)
    body = load_body()
    start = initial_guess("lifter", by_source["ones"], [camera], body, None)
    bodies = {"start": start.params}
    for label, source in ROWS.items():
        fit = fit_frames(by_source[source], camera, body, start, FitOptions("confidence"))
        bodies[label] = fit.params
    errors = {}
    limbs = slice(FIRST_LIMB, FIRST_LIMB + len(LIMBS))
    true = torch.from_numpy(truth)
    for label, params in bodies.items():
        joints = body.at(params).keypoints[:, limbs].double()
        errors[label] = {
            "pa_mpjpe_mm": np.asarray(pa_mpjpe_mm(joints, true)),
            "mpjpe_mm": _root_relative_mm(joints, true),
        }
    return errors


def _root_relative_mm(joints: torch.Tensor, truth: torch.Tensor) -> np.ndarray:
    """Return the mean distance [T] of joints [T, 12, 3] in metres with the hips' middles together."""
    joints = joints - joints[:, HIPS].mean(1, keepdim=True)
    truth = truth - truth[:, HIPS].mean(1, keepdim=True)
    return 1000 * (joints - truth).norm(dim=-1).mean(1).numpy()


def real_table(folder: Path) -> Table:
    """Fit all four cameras and return errors with paired differences to raw."""
    truth = read_truth(folder)
    by_camera = {}
    for name, (rotation, translation, intrinsics) in read_cameras(folder).items():
        in_camera = truth @ rotation.T + translation
        by_camera[name] = fit_camera(folder / f"{name}.mp4", in_camera, intrinsics)
    cluster = []
    for number, errors in enumerate(by_camera.values()):
        frames = len(errors["start"]["mpjpe_mm"])
        cluster.append(1000 * number + np.arange(frames) // CLUSTER_FRAMES)
    _, clusters = np.unique(np.concatenate(cluster), return_inverse=True)
    counts = draws(int(clusters.max()) + 1, RESAMPLES)
    joined: dict[str, dict[str, np.ndarray]] = {
        label: {
            metric: np.concatenate([errors[label][metric] for errors in by_camera.values()])
            for metric in ("pa_mpjpe_mm", "mpjpe_mm")
        }
        for label in ("start", *ROWS)
    }
    frames = len(clusters)
    title = f"Real footage: 1 man, {len(by_camera)} cameras, {frames} frames; weight = confidence"
    table = Table("", "PA-MPJPE", "MPJPE", title=title)
    means = {
        label: {m: clustered_means(values[m], clusters, counts) for m in values}
        for label, values in joined.items()
    }
    for label, values in means.items():
        table.add_row(label, *(_text(values[m], means["raw"][m], label) for m in values))
    for name, errors in by_camera.items():
        shown = [
            " / ".join(f"{errors[label][m].mean():.1f}" for label in ROWS)
            for m in ("pa_mpjpe_mm", "mpjpe_mm")
        ]
        table.add_row(f"{name}: {', '.join(ROWS)}", *shown)
    return table


def _text(values: np.ndarray, base: np.ndarray, label: str) -> str:
    if label == "raw":
        return f"{values[0]:.1f}"
    difference = interval(values - base)
    return (
        f"{values[0]:.1f} ({difference.value:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}])"
    )


def rendered_table(data: Path, every: int, cache: Path) -> Table:
    """Fit rendered people and return errors with paired differences to raw."""
    rows: Mapping[str, Row] = {
        label: Row(source, "confidence", start_source="ones")  # type: ignore[arg-type]
        for label, source in ROWS.items()
    }
    settings = EvalSettings(
        data=data,
        every=every,
        confidence=("raw", "closed-form", "ccnet", "ones", "oracle"),
        named_rows=tuple(rows.items()),
        single_frames=True,
    )
    outcome = run(settings, cache, Reporter(on_stderr()))
    title = f"Rendered: {len(outcome.scores)} person-frames, {len(outcome.scores.names)} sequences"
    table = Table("", *(NAMES[metric] for metric in METRICS), title=f"{title}; weight = confidence")
    for line in lines(outcome.scores, "raw"):
        table.add_row(line.label, *(cell(line, metric, "raw") for metric in METRICS))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a set made by `fitmesh synth`")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--real", type=Path, help="folder with cam01.mp4 .. and truth.trc")
    parser.add_argument("--cache", type=Path, default=Path("model_fitting"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    console = Console()
    if options.real is not None:
        console.print(real_table(options.real))
    if options.data is not None:
        console.print(rendered_table(options.data, options.every, options.cache))


if __name__ == "__main__":
    claim(main)
