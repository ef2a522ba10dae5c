"""Measure the scene on simulated people with known truth."""

import math
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from bench.lib.claim import Console
from bench.lib.scene_staged import StagedScene
from fitting.body import Body
from fitting.camera import Camera
from fitting.camera.focal import focal_prior
from fitting.shot import SceneOptions, ShotFit, ShotPerson, fit_shot
from pose2d.video.camera_motion.motion import CameraMotion

# --- simulated
# ------------------------------------------------------------------------------------------------------

# Gravity within so many degrees, camera height within such a share or so many metres.
RIGHT_DEG = 10.0
RIGHT_HEIGHT = 0.25
RIGHT_HEIGHT_M = 0.3


@dataclass(frozen=True)
class StagedFigures:
    """One simulated scene, with its truth."""

    name: str
    known: bool
    gravity_deg: float  # off; NaN: not known
    stated_deg: float
    camera_height_m: float  # NaN: no floor is claimed
    true_height_m: float
    heights: tuple[float, ...]  # log of found over true
    ratio: float  # of misfit
    mpjpe_mm: float  # relative to the pelvis
    mpjpe_off_mm: float
    reason: str

    @property
    def right(self) -> bool:
        apart = abs(self.camera_height_m - self.true_height_m)  # NaN: no floor is claimed
        return self.gravity_deg < RIGHT_DEG and not apart > max(
            RIGHT_HEIGHT * self.true_height_m, RIGHT_HEIGHT_M
        )


def staged_figures(scene: StagedScene, body: Body) -> StagedFigures:
    focal = focal_prior(scene.camera.size)
    camera = Camera.from_focal(focal.focal_px, scene.camera.size)
    frames = len(scene.keypoints[0].xy_px)
    people = [ShotPerson(n, points, np.arange(frames)) for n, points in enumerate(scene.keypoints)]
    motion = still_motion(frames, focal.focal_px)
    result, off = (
        fit_shot(
            people,
            camera,
            focal,
            body,
            fps=scene.fps,
            motion=motion,
            options=SceneOptions(ground=on),
        )
        for on in (True, False)
    )
    ground = result.ground
    misfit, misfit_off = (
        np.nanmean(
            np.concatenate([p.fit.reprojection_px.numpy().ravel() for p in fit.people.values()])
        )
        for fit in (result, off)
    )
    cosine = math.nan if ground is None else float(np.clip(ground.up_cam @ scene.up_cam, -1, 1))
    return StagedFigures(
        scene.name,
        ground is not None,
        math.degrees(math.acos(cosine)) if ground is not None else math.nan,
        ground.up_sigma_deg if ground is not None else math.nan,
        ground.camera_height_m if ground is not None else math.nan,
        scene.camera_height_m,
        tuple(
            math.log(
                body.height_m(p.fit.params.shape) * float(p.fit.params.size) / scene.heights_m[n]
            )
            for n, p in result.people.items()
        ),
        float(misfit / misfit_off),
        _mpjpe(result, scene, body),
        _mpjpe(off, scene, body),
        result.reason,
    )


def still_motion(frames: int, focal_px: float) -> CameraMotion:
    turns = np.broadcast_to(np.eye(3), (frames, 3, 3)).copy()
    return CameraMotion("static", np.arange(frames), turns, np.ones(frames), focal_px, "")


def _mpjpe(fit: ShotFit, scene: StagedScene, body: Body) -> float:
    """Scaled to the true height: of the pose, not of the size."""
    errors = []
    for number, person in fit.people.items():
        joints = body.at(person.fit.params).joints.double().numpy()
        true = scene.joints_cam_m[number][person.frame]
        joints = joints - joints[:, :1]
        true = true - true[:, :1]
        scale = (joints * true).sum() / (joints * joints).sum()
        errors.append(np.linalg.norm(scale * joints - true, axis=-1).mean())
    return 1000 * float(np.mean(errors)) if errors else math.nan


def show_staged(console: Console, rows: list[StagedFigures]) -> None:
    table = Table(title="simulated scenes")
    for head in (
        "scene",
        "known",
        "right",
        "gravity off",
        "stated",
        "camera x",
        "people x",
        "ratio",
        "mm",
        "off mm",
    ):
        table.add_column(head)
    kinds = list(dict.fromkeys(row.name.split()[0] for row in rows))
    for kind in kinds:
        scene_kind = [row for row in rows if row.name.split()[0] == kind]
        known_parts = [row for row in scene_kind if row.known]

        def median(values: list[float]) -> str:
            return f"{np.nanmedian(values):.2f}" if np.isfinite(values).any() else "-"

        table.add_row(
            kind,
            f"{len(known_parts)}/{len(scene_kind)}",
            f"{sum(r.right for r in known_parts)}/{len(known_parts)}",
            " ".join(f"{r.gravity_deg:.0f}" for r in known_parts),
            " ".join(f"{r.stated_deg:.0f}" for r in known_parts),
            " ".join(f"{r.camera_height_m / r.true_height_m:.2f}" for r in known_parts),
            " ".join(f"{math.exp(max(r.heights, key=abs)):.2f}" for r in scene_kind),
            median([r.ratio for r in scene_kind]),
            median([r.mpjpe_mm for r in scene_kind]),
            median([r.mpjpe_off_mm for r in scene_kind]),
        )
    console.print(table)
    known_parts = [row for row in rows if row.known]
    floors = [row for row in known_parts if math.isfinite(row.camera_height_m)]
    inside = [r.gravity_deg < 1.645 * math.sqrt(2) * r.stated_deg for r in known_parts]
    console.print(
        f"{len(known_parts)} of {len(rows)} scenes accepted, {sum(r.right for r in known_parts)} of these right; gravity within "
        f"10 degrees in {sum(r.gravity_deg < RIGHT_DEG for r in known_parts)}, within its stated 90 % in {sum(inside)}; "
        f"{len(floors)} floors claimed, gravity within 10 degrees in {sum(r.gravity_deg < RIGHT_DEG for r in floors)}"
    )
