"""Measure fitted bodies against the rendered truth."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import fitting
from fitting.fits import TrackFit


@dataclass(frozen=True)
class Errors:
    """Hold the errors of one rendered person."""

    # mean over vertices in the T-pose, both with their soles on the floor and the pelvis above 0
    rest_mm: float
    posed_mm: float  # mean over vertices and frames, relative to the pelvis
    joints_mm: float
    pa_joints_mm: float
    height_mm: float
    girth: np.ndarray  # [4] found / true - 1
    girth_std: np.ndarray  # [4] stated, as a share


def errors(folder: Path, track: TrackFit) -> Errors:
    body = fitting.load_body()
    with np.load(folder / "truth.npz") as file:
        truth = {name: file[name] for name in file.files}
    params = track.fit.params
    true_shape = torch.from_numpy(truth["shape"])
    shape = params.shape
    size = float(params.size)
    rest_vertices = [
        (scale * (body.v_template + body.shapedirs[..., :10] @ person_shape[:10])).numpy()
        for scale, person_shape in ((1.0, true_shape), (size, shape))
    ]
    rest_vertices = [part - [0, part[:, 1].min(), 0] for part in rest_vertices]
    world = body(
        torch.from_numpy(truth["pose"]),
        true_shape,
        torch.from_numpy(truth["translation"]),
        vertices=True,
    )
    turn = torch.from_numpy(truth["cam_poses"][:, :3, :3]).float()
    result = body.at(params, vertices=True)
    assert result.vertices is not None
    assert world.vertices is not None
    rows = track.frame
    true_joints, true_vertices = (
        torch.einsum("tij,tnj->tni", turn, part)[rows] for part in (world.joints, world.vertices)
    )
    present = torch.from_numpy(track.present)
    difference = (result.vertices - result.joints[:, :1]) - (true_vertices - true_joints[:, :1])
    joints, true_joints = (part - part[:, :1] for part in (result.joints, true_joints))
    girths = [
        body.girths_m(person_shape)[0] * scale
        for scale, person_shape in ((1.0, true_shape), (size, shape))
    ]
    stated_value = size * body.girths_m(shape, track.fit.shape_covariance)[1]
    aligned = _aligned(joints[:, :22].double().numpy(), true_joints[:, :22].double().numpy())
    return Errors(
        1000 * float(np.linalg.norm(rest_vertices[0] - rest_vertices[1], axis=1).mean()),
        1000 * float(difference.norm(dim=-1).mean(1)[present].mean()),
        1000 * float((joints - true_joints)[:, :22].norm(dim=-1).mean(1)[present].mean()),
        1000 * float(aligned[track.present].mean()),
        1000 * (size * body.height_m(shape) - body.height_m(true_shape)),
        girths[1] / girths[0] - 1,
        stated_value / girths[0],
    )


def _aligned(result: np.ndarray, true: np.ndarray) -> np.ndarray:
    """[T] mean distance after the best similarity."""
    a, b = (part - part.mean(1, keepdims=True) for part in (result, true))
    u, s, vt = np.linalg.svd(np.einsum("tni,tnj->tij", a, b))
    sign = np.sign(np.linalg.det(u @ vt))
    s[:, 2] *= sign
    vt[:, 2] *= sign[:, None]
    scale = s.sum(1) / (a**2).sum((1, 2))
    return np.linalg.norm(scale[:, None, None] * a @ (u @ vt) - b, axis=-1).mean(1)
