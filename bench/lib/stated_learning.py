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
        shape=float(
            np.quantile(np.concatenate([person.shape_ratio for person in people]), ONE_STD)
        ),
        rotation=_by_kind(
            people,
            [person.rotation_deg / person.track.fit.rotation_std_deg.numpy() for person in people],
        ),
    )
    tracks = [calibrated(person, table) for person in people]
    lengths_m = [
        stated.moving_std_m(track.fit.joint_std_relative_mm.norm(dim=-1).numpy())
        for track in tracks
    ]
    speeds = [person.speed_m_s / length for person, length in zip(people, lengths_m, strict=True)]
    table = replace(table, speed_per_s=_by_kind(people, speeds), angle=_angles(people, tracks))
    return _worst(people, tracks, table)


def _factors(people: Sequence[Person]) -> StatedErrors:
    fitted = _spread(people)
    factor = np.ones_like(NEUTRAL.factor)
    freedom = np.ones_like(NEUTRAL.freedom)
    for place in (0, 1):
        ratios = [_ratio(person, place, fitted) for person in people]
        for scene in (0, 1):
            for axis in (0, 1):
                for observed in (0, 1):
                    (
                        factor[place, :, observed, axis, scene],
                        freedom[place, :, observed, axis, scene],
                    ) = _cells(people, ratios, axis, observed, bool(scene))
    return replace(fitted, factor=factor, freedom=freedom)


def _inflation(people: Sequence[Person]) -> np.ndarray:
    """[2, 1, 1, 2, 1] on factors: what is learnt of some people is a little too narrow for others
    (cross-conformal).
    """
    result = np.ones((2, 1, 1, 2, 1))
    parts: dict[tuple[int, int], list[np.ndarray]] = {}
    for fold in range(INNER_FOLDS):
        table = _factors([person for person in people if person.sequence % INNER_FOLDS != fold])
        for person in (
            person
            for person in people
            if person.sequence % INNER_FOLDS == fold and not person.left_out
        ):
            for place in (0, 1):
                cells = table.factor[place][KIND, person.track.joint_observed.astype(int)][
                    :, :, AXIS, int(person.scene)
                ]
                ratio = (_ratio(person, place, table) / cells)[:, COUNTED]
                for axis in (0, 1):
                    parts.setdefault((place, axis), []).append(ratio[..., axis == AXIS].ravel())
    for (place, axis), values in parts.items():
        result[place, ..., axis, 0] = max(
            1.0, float(np.nanquantile(np.concatenate(values), ONE_STD))
        )
    return result


def _ratio(fitted_person: Person, place: int, table: StatedErrors) -> np.ndarray:
    """[T, 24, 3] |error| over deviation before factors; NaN where a frame shows too little."""
    std = table.apply_exponent(_raw_mm(fitted_person, place), place)
    if place == 0:
        std = std * np.exp((fitted_person.away - table.spread_mean) @ table.spread.T)[..., AXIS]
    with np.errstate(all="ignore"):
        ratio = np.abs(fitted_person.error_mm[place]) / std
    if not fitted_person.left_out:  # there frames without keypoints are to be learnt from, too
        ratio[~fitted_person.track.fit.observed.numpy()] = np.nan
    return ratio


def _raw_mm(fitted_person: Person, place: int) -> np.ndarray:
    """Return Gauss-Newton's deviations [T, 24, 3]."""
    std = (fitted_person.track.fit.joint_std_relative_mm, fitted_person.track.fit.joint_std_mm)[
        place
    ]
    assert std is not None
    return std.numpy()


def _cells(people, ratios, axis: int, observed: int, scene: bool) -> tuple[np.ndarray, np.ndarray]:
    """[kinds] factor and degrees of freedom. Cells with a scene are shrunk to those of all people."""
    everyone = _quantiles(people, ratios, axis, (0, 1), None, np.arange(24))[0]
    row = _shrunk(*_quantiles(people, ratios, axis, (observed,), None, np.arange(24)), everyone)
    results = []
    for kind in range(len(KINDS)):
        joints = np.flatnonzero(kind == KIND)
        full = _shrunk(*_quantiles(people, ratios, axis, (observed,), None, joints), row)
        results.append(_shrunk(*_quantiles(people, ratios, axis, (observed,), scene, joints), full))
    log = np.array(results)
    return np.exp(log[:, 0]), freedom_of(np.exp(log[:, 1] - log[:, 0]))


def _quantiles(
    people, ratios, axis: int, observed, scene: bool | None, joints: np.ndarray
) -> tuple[np.ndarray, float]:
    """[2] logarithms of the quantiles of 68 and 95 %, and how many people they are of."""
    parts = []
    for fitted_person, ratio in zip(people, ratios, strict=True):
        if scene in (None, fitted_person.scene):
            chosen = (
                np.isin(fitted_person.track.joint_observed, observed)[:, :, None]
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


def _shrunk(own: np.ndarray, count: float, remaining: np.ndarray) -> np.ndarray:
    return (count * own + SHRINK * remaining) / (count + SHRINK)


def _by_kind(people, ratios) -> np.ndarray:
    """[kinds, 2] quantile of ratios [T, 24] by kind and visibility, shrunk."""
    result = np.ones((len(KINDS), 2))

    def quantile(kind: int | None, observed: int) -> tuple[np.ndarray, float]:
        parts = []
        for fitted_person, by_sequence in zip(people, ratios, strict=True):
            chosen = (
                (fitted_person.track.joint_observed == observed)
                & np.isfinite(by_sequence)
                & fitted_person.track.fit.observed.numpy()[:, None]
            )
            chosen &= True if kind is None else kind == KIND
            parts.append(by_sequence[chosen])
        subset = np.concatenate(parts)
        count = sum(min(len(part) / PERSON_FRAMES, 1.0) for part in parts)
        return (
            (np.log(np.quantile(subset, ONE_STD) + 1e-6), count)
            if len(subset)
            else (np.zeros(()), 0.0)
        )

    for observed in (0, 1):
        overall = quantile(None, observed)[0]
        for kind in range(len(KINDS)):
            result[kind, observed] = np.exp(_shrunk(*quantile(kind, observed), overall))
    return result


def _angles(people, tracks) -> dict[str, float]:
    ratios: dict[str, list[np.ndarray]] = {}
    for fitted_person, track in zip(people, tracks, strict=True):
        std = track.fit.rotation_std_deg.numpy()
        for name, joints in ANGLE_JOINTS.items():
            kind = name.removeprefix("left_").removeprefix("right_")
            ratio = fitted_person.angle_deg[name] / np.sqrt((std[:, list(joints)] ** 2).sum(1))
            ratios.setdefault(kind, []).append(ratio[track.fit.observed.numpy()])
    return {
        kind: float(np.quantile(np.concatenate(parts), ONE_STD)) for kind, parts in ratios.items()
    }


def _spread(people) -> StatedErrors:
    """Exponents, mean of z, and w by axis: least squares of the logarithm of |error| / deviation,
    within kinds.
    """
    observed = [
        np.ones(len(person.track), bool) if person.left_out else person.track.fit.observed.numpy()
        for person in people
    ]
    z = np.concatenate(
        [person.away[subset] for person, subset in zip(people, observed, strict=True)]
    )
    table = replace(NEUTRAL, spread_mean=z[:, COUNTED].mean((0, 1)))
    spread = np.zeros((2, 2))
    exponent = np.ones((2, 2))
    reference = np.ones((2, 2))
    for place in (0, 1):
        ratios = np.concatenate(
            [
                _ratio(person, place, table)[subset]
                for person, subset in zip(people, observed, strict=True)
            ]
        )
        stds = np.concatenate(
            [
                _raw_mm(person, place)[subset]
                for person, subset in zip(people, observed, strict=True)
            ]
        )
        for axis in (0, 1):
            y = np.log(ratios[..., axis == AXIS].mean(-1) + 0.05)[:, COUNTED]
            size = np.log(stds[..., axis == AXIS].mean(-1) + 1e-3)[:, COUNTED]
            x = np.concatenate((z[:, COUNTED], size[..., None]), -1)[
                ..., [0, 1, 2] if place == 0 else [2]
            ]
            known_parts = np.isfinite(y) & np.isfinite(x).all(-1)
            count = known_parts.sum(0)
            x, y = (
                np.where(known_parts.reshape(known_parts.shape + (1,) * (v.ndim - 2)), v, 0)
                for v in (x, y)
            )
            x = x - (x.sum(0) / count[:, None])
            y = y - y.sum(0) / count
            x = x * known_parts[..., None]
            y = y * known_parts
            gram = np.einsum("tjk,tjl->kl", x, x)
            result = np.linalg.solve(
                gram * (1 + 0.05 * np.eye(len(gram))), np.einsum("tjk,tj->k", x, y)
            )
            exponent[place, axis] = 1 + result[-1].clip(-0.7, 0)
            reference[place, axis] = np.exp(np.nanmean(size))
            if place == 0:
                spread[axis] = result[:2].clip(0, 1)
    return replace(table, spread=spread, exponent=exponent, reference_mm=reference)


def calibrated(fitted_person: Person, table: StatedErrors) -> TrackFit:
    with mock.patch.object(stated, "spread_features", return_value=fitted_person.away):
        return stated.calibrate(fitted_person.track, None, None, fitted_person.scene, FPS, table)  # type: ignore[arg-type]


def _worst(people, tracks, table: StatedErrors) -> StatedErrors:
    """Logistic regression of "the largest error is below a limit" on log limit and features, for
    all limits at once.
    """
    x = []
    worst = []
    for fitted_person, track in [
        pair for pair in zip(people, tracks, strict=True) if not pair[0].left_out
    ]:
        observed = track.fit.observed.numpy()
        x.append(stated.frame_features(track, fitted_person.away, fitted_person.scene)[observed])
        worst.append(
            np.linalg.norm(fitted_person.error_mm[0][:, COUNTED], axis=-1).max(1)[observed]
        )
    features = np.concatenate(x)
    log_worst = torch.from_numpy(np.log(np.concatenate(worst)))
    mean = features.mean(0)
    scale = features.std(0) + 1e-6
    inputs = torch.from_numpy((features - mean) / scale)
    weight = torch.zeros(features.shape[1] + 2, dtype=torch.float64)
    weight[-2] = log_worst.mean()
    weight[-1] = np.log(0.3)
    weight.requires_grad_(True)
    limits = torch.tensor(np.log(LIMITS_MM))
    people_count = len(features) / PERSON_FRAMES
    solver = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        logit = (limits - (inputs @ weight[:-2] + weight[-2])[:, None]) / weight[-1].exp()
        right = (log_worst[:, None] <= limits).double()
        value = torch.nn.functional.binary_cross_entropy_with_logits(logit, right)
        value = (
            value + 2.0 / people_count * weight[:-2].square().sum()
        )  # a prior of standard deviation 1/2
        value.backward()
        return value

    solver.step(loss)
    result = weight.detach().numpy()
    return replace(
        table,
        worst_mean=mean,
        worst_weight=result[:-2] / scale,
        worst_log_mm=float(result[-2]),
        worst_spread=float(np.exp(result[-1])),
    )
