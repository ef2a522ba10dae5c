"""`fitting/data/stated_errors.json`: how large errors are beside what a fit states, learnt from
rendered people.

    fitmesh synth --out cal --split validation --seed 41 --sequences 16 --frames 30     (and more seeds)
    python bench/tuning/stated_errors.py --data cal --data cal2 --data cal3 [--keep stated_cache]     (learns)
    python bench/tuning/stated_errors.py --data test --check                                          (judges)

Everybody of the sets is read by the default network and fitted as `run` does, without a scene, and,
where the camera stands, also with one (`fitting.shot`). Ratios of errors to raw Gauss-Newton
deviations give the factors of `fitting.stated`: quantiles at 68 % and 95 %, by cell, shrunk towards
those of all joints of the cell's row as if SHRINK more people had been like them. Everybody is
fitted once more with an arm or a leg, single keypoints and spans of frames left out (as in
bench/left_out.py): that nothing was seen is another doubt than that something wrong was. Every part
is first judged on sequences that it was not learnt from, and the figures are printed; then it is
learnt from all of them. --check only prints. Keypoints are kept in --keep.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.left_out import LIMBS
from eval3dpw.bodies import body_set
from eval3dpw.sequences import camera_params
from eval3dpw.stated import (
    FRAME_LIMITS_MM,
    Stated,
    calibration_error,
    figures,
    freedom_of,
    rows,
    text_rows,
)
from fitmesh.eval_3dpw.eval_settings import FPS, EvalSettings
from fitmesh.eval_3dpw.keypoints import cache_key
from fitmesh.eval_3dpw.pipeline import Evaluation
from fitmesh.eval_3dpw.sequences import eval_sequences
from fitmesh.exports.angles import ANGLE_JOINTS, joint_angles_deg
from fitmesh.ui.events import Reporter
from fitting import stated
from fitting.body import Body, BodyParams
from fitting.body.kinematics import SEGMENTS
from fitting.body.rotations import rotation_matrices
from fitting.camera.focal import focal_from_user
from fitting.fits import TrackFit
from fitting.shot import SceneOptions, ShotPerson, fit_shot
from fitting.stated import AXIS, COUNTED, KIND, KINDS, ONE_STD, TABLE, StatedErrors
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import plain_value
from pose2d.types import Keypoints

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
# Leaves deviations as they are.
NEUTRAL = StatedErrors(
    np.ones((2, len(KINDS), 2, 2, 2)),
    np.full((2, len(KINDS), 2, 2, 2), 1e3),
    np.zeros(2),
    np.zeros((2, 2)),
    np.ones((2, 2)),
    np.ones((2, 2)),
    np.ones((len(KINDS), 2)),
    {},
    np.ones((len(KINDS), 2)),
    1.0,
    np.zeros(8),
    np.zeros(8),
    float(np.log(200.0)),
    0.3,
)


@dataclass(frozen=True)
class Person:
    """One fitted person of T frames beside the truth; deviations are raw."""

    sequence: int
    name: str
    scene: bool
    left_out: bool  # keypoints were
    track: TrackFit
    away: np.ndarray  # [T, 24, 2] `spread_features`
    error_mm: np.ndarray  # [2, T, 24, 3] relative to the pelvis, in the camera frame
    rotation_deg: np.ndarray  # [T, 24] angle between the joint's rotation and the true one
    angle_deg: dict[str, np.ndarray]  # by name [T]
    speed_m_s: np.ndarray  # [T, 24] length of the velocity's error
    shape_ratio: (
        np.ndarray
    )  # [1 + segments] errors of height and segments over what the raw shape states


def people_of(data: Sequence[Path], keep: Path) -> Iterator[Person]:
    number = 0
    for folder in data:
        split = next(path.name for path in sorted((folder / "sequenceFiles").iterdir()))
        settings = EvalSettings(folder, confidence=("ccnet",), split=split)
        bodies = body_set(None, None)
        evaluation = Evaluation(settings, keep / folder.name, bodies, Reporter())
        for sequence in eval_sequences(settings, []):
            people = evaluation.keypoints(sequence, cache_key(sequence, settings, bodies))
            for truth, person in zip(sequence.tracks, people, strict=True):
                body = bodies.load(truth.gender)
                at = np.flatnonzero(person.detected)
                points = person.keypoints("ccnet")
                kinds = [(points, False, False), (_without_some(points, number), True, False)]
                for given, left_out, scene in kinds + [(points, False, True)] * (
                    "_fixed_" in sequence.name
                ):
                    found = _fitted(
                        ShotPerson(0, given, person.frame[at]), sequence.camera, body, scene
                    )
                    if found is not None:
                        exact = camera_params(truth, body).rows(at)
                        yield _beside(
                            number, sequence.name, left_out, *found, person.frame[at], exact, body
                        )
            number += 1
            print(sequence.name, flush=True)


def _without_some(points: Keypoints, seed: int) -> Keypoints:
    """Left out: an arm or a leg, some keypoints for half a second, and now and then all for a third
    of one.
    """
    time_s = np.arange(len(points)) / FPS
    rng = np.random.default_rng(seed)
    hidden = (rng.random((100, points.skeleton.size)) < 0.15)[(2 * time_s).astype(int)]
    hidden[:, [list(side) for limb in LIMBS.values() for side in limb][seed % 4]] = True
    hidden[(3 * time_s).astype(int) % 4 == 1] = True
    mask = torch.from_numpy(hidden)
    return replace(
        points,
        presence=points.presence.masked_fill(mask, 0),
        confidence=points.confidence.masked_fill(mask, 0),
    )


def _fitted(
    person: ShotPerson, camera, body: Body, scene: bool
) -> tuple[TrackFit, np.ndarray, bool] | None:
    """Return the track with raw deviations, its features, and whether the scene was used."""
    made: list[tuple[TrackFit, np.ndarray, bool]] = []

    def raw(track, guess, body, scene, fps):  # in place of `calibrate`
        made.append((track, stated.spread_features(track, guess, body), scene))
        return stated.calibrate(track, guess, body, scene, fps, NEUTRAL)

    with mock.patch("fitting.track.calibrate", raw):
        focal = focal_from_user(camera.mean_focal_px, camera.size)
        shot = fit_shot([person], camera, focal, body, fps=FPS, options=SceneOptions(ground=scene))
    if not shot.people:
        return None
    track = shot.people[0]
    turn = track.fit.params.pose[
        :, 0
    ]  # arms differ where palms were laid flat, places by the person's size
    away, used = next(
        (one[1:]) for one in reversed(made) if torch.equal(one[0].fit.params.pose[:, 0], turn)
    )
    return (track, away, used) if used == scene else None


def _beside(
    number: int,
    name: str,
    left_out: bool,
    track: TrackFit,
    away: np.ndarray,
    scene: bool,
    frame: np.ndarray,
    truth: BodyParams,
    body: Body,
) -> Person:
    rows = track.index(frame)
    track = track.rows(rows)
    away = away[rows]
    params = track.fit.params
    fit = track.fit
    joints, exact = (body.at(one).joints.double().numpy() for one in (params, truth))
    camera = 1000 * (joints - exact)
    turned = rotation_matrices(params.pose).mT @ rotation_matrices(truth.pose.float())
    cosine = ((turned.diagonal(dim1=-2, dim2=-1).sum(-1) - 1) / 2).clamp(-1, 1)
    angles, true_angles = (
        joint_angles_deg(one.pose.double().numpy(), at)
        for one, at in ((params, joints), (truth, exact))
    )
    velocity = (
        np.gradient(joints - exact, axis=0) * FPS if len(joints) > 1 else np.zeros_like(joints)
    )
    return Person(
        number,
        name,
        scene,
        left_out,
        track,
        away,
        np.stack((camera - camera[:, :1], camera)),
        np.degrees(cosine.arccos().numpy()),
        {n: np.abs((angles[n] - true_angles[n] + 180) % 360 - 180) for n in angles},
        np.linalg.norm(velocity, axis=-1),
        _shape_ratio(fit, truth, body),
    )


def _shape_ratio(fit, truth: BodyParams, body: Body) -> np.ndarray:
    """Errors of height and segments, over what the raw covariance of the shape states of them."""
    size = float(fit.params.size)
    shape = fit.params.shape
    true = truth.shape.float()
    pairs = [
        (
            size * body.height_m(shape),
            body.height_m(true),
            size * body.height_std_m(fit.shape_covariance),
        )
    ]
    lengths, stds = body.segments_m(shape, list(SEGMENTS.values()), fit.shape_covariance)
    pairs += list(
        zip(
            size * lengths,
            body.segments_m(true, list(SEGMENTS.values()))[0],
            size * stds,
            strict=True,
        )
    )
    return np.array([abs(a - b) / std for a, b, std in pairs])


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
    tracks = [_calibrated(one, table) for one in people]
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


def _calibrated(one: Person, table: StatedErrors) -> TrackFit:
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


# Judging.


def judged(people: Sequence[Person], table: StatedErrors) -> tuple[np.ndarray, Stated]:
    """Errors relative to the pelvis and what the table states of them, of frames that show enough."""
    errors = []
    found = []
    with mock.patch.object(stated, "stated_errors", return_value=table):
        for one in people:
            track = _calibrated(one, table)
            seen = track.fit.observed.numpy()
            errors.append(one.error_mm[0][seen])
            said = Stated.of(track, one.scene)
            assert said is not None
            found.append(said.rows(seen))
    return np.concatenate(errors), Stated.concat(found)


def report(title: str, people: Sequence[Person], tables: Sequence[StatedErrors]) -> None:
    """tables: one for each person. Those whose keypoints were left out stand in a line of their
    own.
    """
    pairs = [(o, t) for o, t in zip(people, tables, strict=True) if o.left_out]
    if pairs:
        print(
            f"\n{title}, joints without keypoints: {', '.join(_left_out_ratio(pairs))} % inside one deviation"
        )
    people, tables = zip(
        *[(o, t) for o, t in zip(people, tables, strict=True) if not o.left_out], strict=True
    )
    print(f"\n{title}: {len(people)} people")
    parts = [judged([one], table) for one, table in zip(people, tables, strict=True)]
    error = np.concatenate([part[0] for part in parts])
    said = Stated.concat([part[1] for part in parts])
    with mock.patch("eval3dpw.stated.probability_within", _within(tables[0])):
        for what, value in text_rows(figures(error, said)):
            print(f"  {what}: {value}")
    # Frames of a sequence err alike: standard errors by leaving out one sequence after the other
    # (jackknife), and what ECE would be if a sequence were right or wrong as a whole, with exactly
    # the stated probability.
    sequence = np.concatenate(
        [np.full(len(part[0]), o.sequence) for o, part in zip(people, parts, strict=True)]
    )
    known, number = np.unique(sequence, return_inverse=True)
    without = [rows(error[sequence != one], said.rows(sequence != one)) for one in known]
    for name, part in rows(error, said).items():
        each = np.array([left[name]["inside_68"] for left in without if name in left])
        deviation = 100 * np.sqrt((len(each) - 1) * each.var())
        print(
            f"  {name}: {100 * part['inside_68']:.0f} +- {deviation:.0f} / {100 * part['inside_95']:.0f}"
        )
    rng = np.random.default_rng(0)
    for limit in FRAME_LIMITS_MM[1:]:
        stated_share = _within(tables[0])(said.worst_error_mm, limit)
        made = [
            calibration_error(stated_share, rng.random(len(known))[number] < stated_share)
            for _ in range(200)
        ]
        print(f"  ECE at {limit:.0f} mm if what is stated were exact: {np.mean(made):.3f}")
    for what, ratio in _others(people, tables).items():
        print(f"  {what}: {100 * np.mean(ratio < 1):.0f} % inside one deviation")


def _left_out_ratio(pairs) -> list[str]:
    found = []
    for place, name in enumerate(("relative", "camera frame")):
        ratios = []
        for one, table in pairs:
            fit = _calibrated(one, table).fit
            std = (fit.joint_std_relative_mm, fit.joint_std_mm)[place].numpy()
            some = ~one.track.joint_observed & np.isin(np.arange(24), COUNTED)
            with np.errstate(invalid="ignore"):  # absences
                ratios.append((np.abs(one.error_mm[place]) / std)[some])
        every = np.concatenate(ratios)
        axes = every[..., :2], every[..., 2]
        found += [f"{name} {100 * np.nanmean(v < 1):.0f}" for v in axes]
    return found


def _within(table: StatedErrors):
    return lambda worst, limit: 1 / (1 + (worst / limit) ** (1 / table.worst_spread))


def _others(people, tables) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for one, table in zip(people, tables, strict=True):
        track = _calibrated(one, table)
        seen = track.fit.observed.numpy()
        fit = track.fit
        with mock.patch.object(stated, "stated_errors", return_value=table):
            speed = stated.speed_std_m_s(
                fit.joint_std_relative_mm.norm(dim=-1).numpy(), track.joint_observed
            )
            angles = stated.angle_std_deg(fit.rotation_std_deg.numpy(), ANGLE_JOINTS)
        place = np.abs(one.error_mm[1]) / fit.joint_std_mm.numpy()
        parts = {
            "camera frame, across": place[seen][..., :2],
            "camera frame, along": place[seen][..., 2],
            "rotations": (one.rotation_deg / fit.rotation_std_deg.numpy())[seen][:, COUNTED],
            "angles": np.stack([one.angle_deg[name][seen] / angles[name][seen] for name in angles]),
            "speeds": (one.speed_m_s / speed)[seen],
            "height and segments": one.shape_ratio / table.shape,
        }
        for name, part in parts.items():
            found.setdefault(name, []).append(part.ravel())
    return {
        name: (values := np.concatenate(parts))[np.isfinite(values)]
        for name, parts in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, action="append", required=True, help="a set made by `fitmesh synth`"
    )
    parser.add_argument("--keep", type=Path, default=Path("stated_cache"), help="of the keypoints")
    parser.add_argument(
        "--check", action="store_true", help="judge what is embedded on these sets; change nothing"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    people = list(people_of(arguments.data, arguments.keep))
    if not people:
        raise UserError("nobody of these sets could be fitted.")
    if arguments.check:
        report("as embedded", people, [stated.stated_errors()] * len(people))
        return
    report(
        "raw Gauss-Newton",
        people,
        [replace(NEUTRAL, angle=dict.fromkeys(KIND_OF_ANGLE, 1.0))] * len(people),
    )
    folds = [
        learnt([one for one in people if one.sequence % FOLDS != fold]) for fold in range(FOLDS)
    ]
    report("sequences that were left out", people, [folds[one.sequence % FOLDS] for one in people])
    table = asdict(learnt(people))
    content = {field.name: _short(table[field.name]) for field in fields(StatedErrors)}
    with atomic_file(TABLE) as temporary:
        temporary.write_text(json.dumps(content, indent=None) + "\n")
    print(f"{TABLE}: {TABLE.stat().st_size} bytes; now `python tools/embedded_digests.py`")


KIND_OF_ANGLE = tuple({name.removeprefix("left_").removeprefix("right_") for name in ANGLE_JOINTS})


def _short(value: object) -> object:
    """Four digits are enough."""
    if isinstance(value, np.ndarray):
        return _short(value.tolist())
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    return float(f"{plain_value(value):.4g}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
