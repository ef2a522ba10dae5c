"""Predicted bodies against true ones, by a published protocol."""

from dataclasses import dataclass

import torch
from torch import Tensor

from eval3dpw.bodies import Bodies
from eval3dpw.protocols import Errors, protocol_named
from pose2d.base.errors import UserError


@dataclass(frozen=True)
class PerFrame:
    """Of N bodies, in millimetres."""

    mpjpe_mm: Tensor  # [N]
    pa_mpjpe_mm: Tensor  # [N]
    mve_mm: Tensor | None  # [N]; None: the protocol has none, or no mesh was given
    acceleration_mm: Tensor | None  # [N] per frame^2, NaN where a neighbour is missing; None: no tracks were given


@dataclass(frozen=True)
class Report:
    """Means over frames, and every frame."""

    protocol: str
    frames: int
    mpjpe_mm: float
    pa_mpjpe_mm: float
    mve_mm: float | None
    acceleration_mm: float | None  # per frame^2
    per_frame: PerFrame


def evaluate(predicted: Bodies, truth: Bodies, protocol: str = "spin") -> Report:
    """Score N predicted bodies, row n against row n of the truth.

    protocol: spin, vibe, wham or challenge (`eval3dpw.protocols`). What each needs besides `joints`: spin `pelvis`,
    vibe `translation` if there are meshes, challenge `kinematic`. MVE needs `vertices`, acceleration `track` and
    `frame` of the truth.
    """
    _check(predicted, truth)
    errors = protocol_named(protocol).errors(predicted, truth)
    acceleration = _acceleration(errors, truth)
    return Report(
        protocol=protocol,
        frames=len(truth),
        mpjpe_mm=float(errors.mpjpe_mm.mean()),
        pa_mpjpe_mm=float(errors.pa_mpjpe_mm.mean()),
        mve_mm=None if errors.mve_mm is None else float(errors.mve_mm.mean()),
        acceleration_mm=None if acceleration is None else float(acceleration.nanmean()),
        per_frame=PerFrame(errors.mpjpe_mm, errors.pa_mpjpe_mm, errors.mve_mm, acceleration),
    )


def _acceleration(errors: Errors, truth: Bodies) -> Tensor | None:
    """Size of the second difference over time of what is left, as VIBE counts; [N], NaN at the ends of a track."""
    if truth.track is None or truth.frame is None:
        return None
    found = torch.full_like(errors.mpjpe_mm, torch.nan)
    if len(truth) < 3:
        return found
    same, step = truth.track[1:] == truth.track[:-1], torch.diff(truth.frame)
    if not bool(same.any()):
        return found
    next_one = same & (step == step[same].min())
    even = next_one[1:] & next_one[:-1]
    second = torch.diff(errors.away_m, n=2, dim=0).norm(dim=-1).mean(-1)
    found[1:-1] = torch.where(even, 1000 * second, torch.nan)
    return found


def _check(predicted: Bodies, truth: Bodies) -> None:
    if not len(truth):
        raise UserError("there are no bodies to score.")
    for field in ("joints", "pelvis", "vertices", "kinematic", "translation"):
        found, true = getattr(predicted, field), getattr(truth, field)
        if found is not None and true is not None and found.shape != true.shape:
            raise UserError(
                f"{field} of the prediction have size {list(found.shape)}, of the truth {list(true.shape)}; rows and "
                "body must be the same."
            )
        for whose, value in (("prediction", found), ("truth", true)):
            if value is not None and not torch.isfinite(value).all():
                raise UserError(f"{field} of the {whose} have a number that is not finite (NaN or infinity).")
