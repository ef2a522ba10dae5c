"""Learn the table of stated errors from fitted people."""

from collections.abc import Sequence
from dataclasses import replace
from unittest import mock

import numpy as np
import torch

from bench.lib.stated_people import NEUTRAL, Person
from eval3dpw.stated import (
    freedom_of,
)
from fitmesh.eval_3dpw.eval_settings import FPS
from fitmesh.exports.angles import ANGLE_JOINTS
from fitting import stated
from fitting.fits import TrackFit
from fitting.stated import AXIS, COUNTED, KIND, KINDS, ONE_STD, StatedErrors

SHRINK = 4.0  # people: a cell that few show takes most of what it is from the others
FOLDS, INNER_FOLDS = 8, 4
PERSON_FRAMES = 30.0  # of one person's frames hardly more is learnt than of one of them
LIMITS_MM = (
    50.0,
    75.0,
    100.0,
    150.0,
    200.0,
    300.0,
    450.0,
)  # at which the largest error's distribution is fitted


# Learning.
def learnt(people: Sequence[Person]) -> StatedErrors:
    table = _factors(people)
    table = replace(
        table,
        factor=table.factor * _inflation(people),
        shape=float(np.quantile(np.concatenate([one.shape_ratio for one in people]), ONE_STD)),
        rotation=_by_kind(
            people, [one.rotation_deg / one.track.fit.rotation_std_deg.numpy() for one in people]
        ),
    )
    tracks = [calibrated(one, table) for one in people]
    lengths_m = [
        stated.moving_std_m(track.fit.joint_std_relative_mm.norm(dim=-1).numpy())
        for track in tracks
    ]
    speeds = [one.speed_m_s / length for one, length in zip(people, lengths_m, strict=True)]
    table = replace(table, speed_per_s=_by_kind(people, speeds), angle=_angles(people, tracks))
    return _worst(people, tracks, table)


def _factors(people: Sequence[Person]) -> StatedErrors:
    fitted = _spread(people)
    factor = np.ones_like(NEUTRAL.factor)
    freedom = np.ones_like(NEUTRAL.freedom)
    for place in (0, 1):
        ratios = [_ratio(one, place, fitted) for one in people]
        for scene in (0, 1):
            for axis in (0, 1):
                for seen in (0, 1):
                    factor[place, :, seen, axis, scene], freedom[place, :, seen, axis, scene] = (
                        _cells(people, ratios, axis, seen, bool(scene))
                    )
    return replace(fitted, factor=factor, freedom=freedom)


def _inflation(people: Sequence[Person]) -> np.ndarray:
    """[2, 1, 1, 2, 1] on factors: what is learnt of some people is a little too narrow for others
    (cross-conformal).
    """
    found = np.ones((2, 1, 1, 2, 1))
    parts: dict[tuple[int, int], list[np.ndarray]] = {}
    for fold in range(INNER_FOLDS):
        table = _factors([one for one in people if one.sequence % INNER_FOLDS != fold])
        for one in (
            one for one in people if one.sequence % INNER_FOLDS == fold and not one.left_out
        ):
            for place in (0, 1):
                cells = table.factor[place][KIND, one.track.joint_observed.astype(int)][
                    :, :, AXIS, int(one.scene)
                ]
                ratio = (_ratio(one, place, table) / cells)[:, COUNTED]
                for axis in (0, 1):
                    parts.setdefault((place, axis), []).append(ratio[..., axis == AXIS].ravel())
    for (place, axis), values in parts.items():
        found[place, ..., axis, 0] = max(
            1.0, float(np.nanquantile(np.concatenate(values), ONE_STD))
        )
    return found


def _ratio(one: Person, place: int, table: StatedErrors) -> np.ndarray:
    """[T, 24, 3] |error| over deviation before factors; NaN where a frame shows too little."""
    std = table.apply_exponent(_raw_mm(one, place), place)
    if place == 0:
        std = std * np.exp((one.away - table.spread_mean) @ table.spread.T)[..., AXIS]
    with np.errstate(all="ignore"):
        ratio = np.abs(one.error_mm[place]) / std
    if not one.left_out:  # there frames without keypoints are to be learnt from, too
        ratio[~one.track.fit.observed.numpy()] = np.nan
    return ratio


def _raw_mm(one: Person, place: int) -> np.ndarray:
    """Return Gauss-Newton's deviations [T, 24, 3]."""
    std = (one.track.fit.joint_std_relative_mm, one.track.fit.joint_std_mm)[place]
    assert std is not None
    return std.numpy()


def _cells(people, ratios, axis: int, seen: int, scene: bool) -> tuple[np.ndarray, np.ndarray]:
    """[kinds] factor and degrees of freedom. Cells with a scene are shrunk to those of everybody."""
    everyone = _quantiles(people, ratios, axis, (0, 1), None, np.arange(24))[0]
    row = _shrunk(*_quantiles(people, ratios, axis, (seen,), None, np.arange(24)), everyone)
    found = []
    for kind in range(len(KINDS)):
        joints = np.flatnonzero(kind == KIND)
        whole = _shrunk(*_quantiles(people, ratios, axis, (seen,), None, joints), row)
        found.append(_shrunk(*_quantiles(people, ratios, axis, (seen,), scene, joints), whole))
    log = np.array(found)
    return np.exp(log[:, 0]), freedom_of(np.exp(log[:, 1] - log[:, 0]))


def _quantiles(
    people, ratios, axis: int, seen, scene: bool | None, joints: np.ndarray
) -> tuple[np.ndarray, float]:
    """[2] logarithms of the quantiles of 68 and 95 %, and how many people they are of."""
    parts = []
    for one, ratio in zip(people, ratios, strict=True):
        if scene in (None, one.scene):
            chosen = (
                np.isin(one.track.joint_observed, seen)[:, :, None]
                & (axis == AXIS)
                & np.isfinite(ratio)
            )
            chosen &= np.isin(np.arange(24), joints[joints > 0])[:, None]
            if chosen.any():
                parts.append(ratio[chosen])
    if not parts:
        return np.zeros(2), 0.0
    values = np.concatenate(parts)
    return np.log(np.quantile(values, (ONE_STD, 0.95)) + 1e-6), sum(
        min(len(part) / PERSON_FRAMES, 1.0) for part in parts
    )


def _shrunk(own: np.ndarray, count: float, others: np.ndarray) -> np.ndarray:
    return (count * own + SHRINK * others) / (count + SHRINK)


def _by_kind(people, ratios) -> np.ndarray:
    """[kinds, 2] quantile of ratios [T, 24] by kind and visibility, shrunk."""
    found = np.ones((len(KINDS), 2))

    def quantile(kind: int | None, seen: int) -> tuple[np.ndarray, float]:
        parts = []
        for one, each in zip(people, ratios, strict=True):
            chosen = (
                (one.track.joint_observed == seen)
                & np.isfinite(each)
                & one.track.fit.observed.numpy()[:, None]
            )
            chosen &= True if kind is None else kind == KIND
            parts.append(each[chosen])
        some = np.concatenate(parts)
        count = sum(min(len(part) / PERSON_FRAMES, 1.0) for part in parts)
        return (
            (np.log(np.quantile(some, ONE_STD) + 1e-6), count) if len(some) else (np.zeros(()), 0.0)
        )

    for seen in (0, 1):
        everybody = quantile(None, seen)[0]
        for kind in range(len(KINDS)):
            found[kind, seen] = np.exp(_shrunk(*quantile(kind, seen), everybody))
    return found


def _angles(people, tracks) -> dict[str, float]:
    ratios: dict[str, list[np.ndarray]] = {}
    for one, track in zip(people, tracks, strict=True):
        std = track.fit.rotation_std_deg.numpy()
        for name, joints in ANGLE_JOINTS.items():
            kind = name.removeprefix("left_").removeprefix("right_")
            ratio = one.angle_deg[name] / np.sqrt((std[:, list(joints)] ** 2).sum(1))
            ratios.setdefault(kind, []).append(ratio[track.fit.observed.numpy()])
    return {
        kind: float(np.quantile(np.concatenate(parts), ONE_STD)) for kind, parts in ratios.items()
    }


def _spread(people) -> StatedErrors:
    """Exponents, mean of z, and w by axis: least squares of the logarithm of |error| / deviation,
    within kinds.
    """
    seen = [
        np.ones(len(one.track), bool) if one.left_out else one.track.fit.observed.numpy()
        for one in people
    ]
    z = np.concatenate([one.away[some] for one, some in zip(people, seen, strict=True)])
    table = replace(NEUTRAL, spread_mean=z[:, COUNTED].mean((0, 1)))
    spread = np.zeros((2, 2))
    exponent = np.ones((2, 2))
    reference = np.ones((2, 2))
    for place in (0, 1):
        ratios = np.concatenate(
            [_ratio(one, place, table)[some] for one, some in zip(people, seen, strict=True)]
        )
        stds = np.concatenate(
            [_raw_mm(one, place)[some] for one, some in zip(people, seen, strict=True)]
        )
        for axis in (0, 1):
            y = np.log(ratios[..., axis == AXIS].mean(-1) + 0.05)[:, COUNTED]
            size = np.log(stds[..., axis == AXIS].mean(-1) + 1e-3)[:, COUNTED]
            x = np.concatenate((z[:, COUNTED], size[..., None]), -1)[
                ..., [0, 1, 2] if place == 0 else [2]
            ]
            known = np.isfinite(y) & np.isfinite(x).all(-1)
            count = known.sum(0)
            x, y = (
                np.where(known.reshape(known.shape + (1,) * (v.ndim - 2)), v, 0) for v in (x, y)
            )
            x = x - (x.sum(0) / count[:, None])
            y = y - y.sum(0) / count
            x = x * known[..., None]
            y = y * known
            gram = np.einsum("tjk,tjl->kl", x, x)
            found = np.linalg.solve(
                gram * (1 + 0.05 * np.eye(len(gram))), np.einsum("tjk,tj->k", x, y)
            )
            exponent[place, axis] = 1 + found[-1].clip(-0.7, 0)
            reference[place, axis] = np.exp(np.nanmean(size))
            if place == 0:
                spread[axis] = found[:2].clip(0, 1)
    return replace(table, spread=spread, exponent=exponent, reference_mm=reference)


def calibrated(one: Person, table: StatedErrors) -> TrackFit:
    with mock.patch.object(stated, "spread_features", return_value=one.away):
        return stated.calibrate(one.track, None, None, one.scene, FPS, table)  # type: ignore[arg-type]


def _worst(people, tracks, table: StatedErrors) -> StatedErrors:
    """Logistic regression of "the largest error is below a limit" on log limit and features, for
    all limits at once.
    """
    x = []
    worst = []
    for one, track in [pair for pair in zip(people, tracks, strict=True) if not pair[0].left_out]:
        seen = track.fit.observed.numpy()
        x.append(stated.frame_features(track, one.away, one.scene)[seen])
        worst.append(np.linalg.norm(one.error_mm[0][:, COUNTED], axis=-1).max(1)[seen])
    features = np.concatenate(x)
    log_worst = torch.from_numpy(np.log(np.concatenate(worst)))
    mean = features.mean(0)
    scale = features.std(0) + 1e-6
    given = torch.from_numpy((features - mean) / scale)
    weight = torch.zeros(features.shape[1] + 2, dtype=torch.float64)
    weight[-2] = log_worst.mean()
    weight[-1] = np.log(0.3)
    weight.requires_grad_(True)
    limits = torch.tensor(np.log(LIMITS_MM))
    people_count = len(features) / PERSON_FRAMES
    solver = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        logit = (limits - (given @ weight[:-2] + weight[-2])[:, None]) / weight[-1].exp()
        right = (log_worst[:, None] <= limits).double()
        value = torch.nn.functional.binary_cross_entropy_with_logits(logit, right)
        value = (
            value + 2.0 / people_count * weight[:-2].square().sum()
        )  # a prior of standard deviation 1/2
        value.backward()
        return value

    solver.step(loss)
    found = weight.detach().numpy()
    return replace(
        table,
        worst_mean=mean,
        worst_weight=found[:-2] / scale,
        worst_log_mm=float(found[-2]),
        worst_spread=float(np.exp(found[-1])),
    )
