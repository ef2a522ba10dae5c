"""Claim: how people stand does not depend on where the camera is.

Signed bend of both knees, the trunk's lean towards the camera and the hips' bend, by facing, of
what the lifter and the fit find:

- simulated: held-out people who stand quietly, the same ones seen from the front, the side and
  behind by cameras that
  look down by 0, 15 and 30 degrees, keypoints with noise of the stated size; beside the truth.
- real clips (--real): frames that a person saw standing with straight legs; there is no truth but
  that.
- COCO's annotated people (--coco): those who show all keypoints and whose legs are straight in the
  image.

    python bench/view_independence.py --clips clips_30fps.npz [--real real_keypoints] [--coco person_keypoints.json]

Targets: knees of straight-legged people within 4 degrees of each other over facings and of the
truth, lean within 3.
"""

import argparse
import csv
import json
import math
import os
import sys
from pathlib import Path

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fitting
from bench.lib.claim import Console, claim
from bench.lib.simulation import Noise, noisy
from eval3dpw.captured.knees import signed_flexion_deg
from eval3dpw.captured.motion import load_motion
from fitting.body import BodyParams
from fitting.body.rotations import matrix_to_axis_angle, rotation_matrices
from fitting.camera import Camera
from fitting.init.lifter import lift
from pose2d.skeletons import COCO17, HALPE26
from pose2d.types import ErrorDistribution, Keypoints
from training.motion.standing import stands_quietly

FACINGS = {"front": 0.0, "side": math.pi / 2, "back": math.pi}
PITCHES_DEG = (0, 15, 30)
FRAMES, STRAIGHT_DEG = 12, 8.0
FOCAL_PX = 1400.0
SIZE_PX = (1280, 960)
DISTANCE_M = 4.5


def lean_deg(joints_m: Tensor, up: Tensor | None = None) -> Tensor:
    """[T, 24, 3] in the camera frame -> [T] lean of hips -> neck towards the camera, against `up`
    [3] (default -y).
    """
    trunk = joints_m[:, 12] - joints_m[:, (1, 2)].mean(1)
    up = torch.tensor([0.0, -1.0, 0.0]) if up is None else up
    ahead = torch.tensor([0.0, 0.0, -1.0])
    ahead = torch.nn.functional.normalize(ahead - (ahead @ up) * up, dim=0)
    return torch.atan2(trunk @ ahead, trunk @ up).rad2deg()


def hip_bend_deg(joints_m: Tensor) -> Tensor:
    """[T, 2] between the trunk's line and the thighs."""
    trunk = (joints_m[:, 12] - joints_m[:, (1, 2)].mean(1))[:, None]
    thigh = joints_m[:, (1, 2)] - joints_m[:, (4, 5)]
    return torch.acos(torch.cosine_similarity(trunk, thigh, dim=-1).clamp(-1, 1)).rad2deg()


def row(joints: list[Tensor], lean: list[Tensor]) -> list[str]:
    """Medians, and for the knees 10 and 90 %."""
    knees = torch.cat([signed_flexion_deg(joint).flatten() for joint in joints])
    low, median, high = (float(knees.quantile(q)) for q in (0.1, 0.5, 0.9))
    hips = torch.cat([hip_bend_deg(joint).flatten() for joint in joints]).median()
    return [
        f"{median:.1f} ({low:.0f} .. {high:.0f})",
        f"{float(hips):.0f}",
        f"{float(torch.cat(lean).median()):.1f}",
    ]


def new_table(title: str) -> Table:
    table = Table(title=title)
    for column in ("seen", "method", "people", "knees, degrees", "hips", "lean to the camera"):
        table.add_column(column, justify="left" if column in ("seen", "method") else "right")
    return table


def simulated(clips: Path, people: int, body: fitting.Body) -> Table:
    motion = load_motion(clips, body, 30.0)
    joints = torch.cat([body(part).joints for part in motion.pose.split(8192)])
    quiet = stands_quietly(joints, motion.root_m, motion.clip_start, motion.fps)
    straight = signed_flexion_deg(joints).abs().amax(1) < STRAIGHT_DEG
    held_out_frames = torch.from_numpy(motion.frames_of(motion.held_out))
    chosen = motion.pose[quiet & straight & held_out_frames]
    chosen = chosen[:: max(1, len(chosen) // people)][:people]
    table = new_table(
        f"{len(chosen)} held-out people who stand with straight legs, simulated keypoints"
    )
    for pitch in PITCHES_DEG:
        for facing, yaw in FACINGS.items():
            results: dict[str, list[Tensor]] = {"truth": [], "lifter": [], "fit": []}
            for number, pose in enumerate(chosen):
                truth, keypoints, camera, up = _seen(pose, yaw, pitch, body, number)
                results["truth"].append(body.at(truth).joints[:1])
                results["lifter"].append(
                    body.at(lift(keypoints, camera, body, fps=30.0).params).joints[-1:]
                )
                results["fit"].append(
                    body.at(fitting.fit(keypoints, camera, body, fps=30.0).params).joints[-1:]
                )
            for method, every in results.items():
                cells = row(every, [lean_deg(clip_joints, up) for clip_joints in every])
                table.add_row(f"{facing}, {pitch} down", method, str(len(chosen)), *cells)
    return table


def _seen(
    pose: Tensor, yaw: float, pitch_deg: float, body: fitting.Body, seed: int
) -> tuple[BodyParams, Keypoints, Camera, Tensor]:
    """One person who stands still before a camera: truth, keypoints, camera and where up is."""
    generator = torch.Generator().manual_seed(seed)
    ahead = rotation_matrices(pose[0])[:, 2]
    turn = (
        yaw
        + 0.2 * float(torch.randn((), generator=generator))
        - math.atan2(float(ahead[0]), float(ahead[2]))
    )
    flip = torch.diag(torch.tensor([1.0, -1.0, -1.0]))  # y up, z to us -> y down, z away
    down = rotation_matrices(torch.tensor([math.radians(pitch_deg), 0.0, 0.0]))
    world = down @ flip @ rotation_matrices(torch.tensor([0.0, turn, 0.0]))
    pose = pose.clone()
    pose[0] = matrix_to_axis_angle(world @ rotation_matrices(pose[0]))
    shape = torch.randn(10, generator=generator).clamp(-2, 2)
    place = torch.tensor([0.0, 0.0, DISTANCE_M])
    truth = BodyParams(pose.expand(FRAMES, 24, 3), shape, place.expand(FRAMES, 3))
    camera = Camera.from_focal(FOCAL_PX, SIZE_PX)
    keypoints = noisy(camera.project(body.at(truth).keypoints), generator, Noise(missing=0.0))
    return truth, keypoints, camera, world[:, 1]


def real(folder: Path, body: fitting.Body) -> Table:
    """Labels that say "stands" with a facing and straight legs."""
    table = new_table("real clips: frames in which a viewer saw a person stand upright")
    fits: dict[tuple[str, int], tuple[np.ndarray, Tensor]] = {}
    with (folder / "labels.csv").open() as stream:
        labels = [label for label in csv.DictReader(stream) if label["posture"] == "stands"]
    for label in labels:
        if label["facing"] not in FACINGS or "upright" not in label["must hold"]:
            continue
        with np.load(folder / label["clip"] / "keypoints.npz") as file:
            identities = [int(i) for i in file["identity"]]
        for identity in identities if label["identity"] == "all" else [int(label["identity"])]:
            key = (label["clip"], identity)
            if key not in fits:
                fits[key] = _real_fit(folder / label["clip"], identity, body)
            time_s, joints = fits[key]
            inside = torch.from_numpy(
                (time_s >= float(label["from_s"])) & (time_s <= float(label["to_s"]))
            )
            if inside.any():
                observed = f"{label['facing']}: {label['clip']} {identity}, {label['from_s']} s"
                table.add_row(
                    observed, "fit", "1", *row([joints[inside]], [lean_deg(joints[inside])])
                )
    return table


def _real_fit(folder: Path, identity: int, body: fitting.Body) -> tuple[np.ndarray, Tensor]:
    """Times [T] and joints [T, 24, 3] of one track, in the layout of release 0.1.0."""
    with np.load(folder / "keypoints.npz") as file, np.load(folder / "tracks.npz") as tracks:
        number = [int(i) for i in file["identity"]].index(identity)
        rows = slice(int(file["first_row"][number]), int(file["first_row"][number + 1]))
        columns = ("xy_px", "confidence", "presence", "area_px2", "error_weight", "error_sigma")
        xy, confidence, presence, area, weight, sigma = (
            torch.from_numpy(file[f"row_{c}"][rows]) for c in columns
        )
        time_s = tracks["time_s"][np.searchsorted(tracks["frame"], file["row_frame"][rows])]
        size = int(tracks["width_px"]), int(tracks["height_px"])
        camera = Camera.from_focal(float(tracks["camera_focal_px"][0]), size)
    error = ErrorDistribution(weight, sigma)
    keypoints = Keypoints(xy, confidence, presence, "ccnet", area.float(), HALPE26, error=error)
    fps = 1 / float(np.median(np.diff(time_s)))
    return time_s, body.at(fitting.fit(keypoints, camera, body, fps=fps).params).joints


def coco(annotations: Path, people: int, body: fitting.Body) -> Table:
    with annotations.open() as stream:
        content = json.load(stream)
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    table = new_table("COCO's annotated people with straight legs in the image")
    observed: dict[str, list[tuple[np.ndarray, tuple[int, int], float]]] = {
        name: [] for name in FACINGS
    }
    for person in content["annotations"]:
        points = np.array(person["keypoints"], float).reshape(-1, 3)
        facing = _facing(points)
        if facing is not None and person["area"] > 60**2 and len(observed[facing]) < people:
            observed[facing].append((points, sizes[person["image_id"]], person["area"]))
    for facing, result in observed.items():
        if not result:
            continue
        xy = torch.tensor(np.stack([p[:, :2] for p, _, _ in result]), dtype=torch.float32)
        present = torch.tensor(np.stack([p[:, 2] > 0 for p, _, _ in result]), dtype=torch.float32)
        area = torch.tensor([a for _, _, a in result], dtype=torch.float32)
        cameras = [Camera.from_focal(math.hypot(*size), size) for _, size, _ in result]
        keypoints = Keypoints(xy, 0.9 * torch.ones_like(present), present, "oracle", area, COCO17)
        joints = body.at(fitting.fit_frames(keypoints, cameras, body).params).joints
        table.add_row(facing, "fit", str(len(result)), *row([joints], [lean_deg(joints)]))
    return table


def _facing(points: np.ndarray) -> str | None:
    """Of somebody who stands with straight legs, by the shoulders and the face; None of everybody
    else.
    """
    xy = points[:, :2]
    present = points[:, 2] > 0
    if not present[5:17].all():
        return None
    torso = np.linalg.norm(xy[[5, 6]].mean(0) - xy[[11, 12]].mean(0))
    for hip, knee, ankle in ((11, 13, 15), (12, 14, 16)):
        thigh = xy[knee] - xy[hip]
        shank = xy[ankle] - xy[knee]
        upright = (
            min(thigh[1] / np.linalg.norm(thigh), shank[1] / np.linalg.norm(shank))
            if torso > 0
            else 0
        )
        if upright < 0.97 or np.linalg.norm(thigh) < 0.5 * torso:
            return None
    width = (xy[5, 0] - xy[6, 0]) / torso
    if abs(width) < 0.3:
        return "side"
    if abs(width) < 0.5:
        return None
    return "front" if width > 0 and present[0] else "back" if width < 0 and not present[0] else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--coco", type=Path)
    parser.add_argument("--people", type=int, default=16)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    body = fitting.load_body()
    console = Console()
    if arguments.clips:
        console.print(simulated(arguments.clips, arguments.people, body))
    if arguments.real:
        console.print(real(arguments.real, body))
    if arguments.coco:
        console.print(coco(arguments.coco, 8 * arguments.people, body))


if __name__ == "__main__":
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    claim(main)
