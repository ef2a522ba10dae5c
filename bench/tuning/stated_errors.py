"""`fitting/data/stated_errors.json`: how large errors are beside what a fit states, learnt from
rendered people.

    fitmesh synth --out cal --split validation --seed 41 --sequences 16 --frames 30     (and more seeds)
    python bench/tuning/stated_errors.py --data cal --data cal2 --data cal3 [--keep stated_cache]     (learns)
    python bench/tuning/stated_errors.py --data test --check                                          (judges)

All people of the sets are read by the default network and fitted as `run` does, without a scene, and,
where the camera stands, also with one (`fitting.shot`). Ratios of errors to raw Gauss-Newton
deviations give the factors of `fitting.stated`: quantiles at 68 % and 95 %, by cell, shrunk towards
those of all joints of the cell's row as if SHRINK more people had been like them. Each person is
fitted once more with an arm or a leg, single keypoints and spans of frames left out (as in
bench/left_out.py): that nothing was seen is another doubt than that something wrong was. Every part
is first judged on sequences that it was not learnt from, and the figures are printed; then it is
learnt from all of them. --check only prints. Keypoints are kept in --keep.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.lib.stated_learning import FOLDS, calibrated, learnt
from bench.lib.stated_people import NEUTRAL, Person, people_of
from eval3dpw.stated import (
    FRAME_LIMITS_MM,
    Stated,
    calibration_error,
    figures,
    rows,
    text_rows,
)
from fitmesh.exports.angles import ANGLE_JOINTS
from fitting import stated
from fitting.stated import COUNTED, TABLE, StatedErrors
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import plain_value


# Judging.
def judged(people: Sequence[Person], table: StatedErrors) -> tuple[np.ndarray, Stated]:
    """Errors relative to the pelvis and what the table states of them, of frames that show enough."""
    errors = []
    results = []
    with mock.patch.object(stated, "stated_errors", return_value=table):
        for person in people:
            track = calibrated(person, table)
            observed = track.fit.observed.numpy()
            errors.append(person.error_mm[0][observed])
            said = Stated.of(track, person.scene)
            assert said is not None
            results.append(said.rows(observed))
    return np.concatenate(errors), Stated.concat(results)


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
    parts = [
        judged([fitted_person], table) for fitted_person, table in zip(people, tables, strict=True)
    ]
    error = np.concatenate([part[0] for part in parts])
    said = Stated.concat([part[1] for part in parts])
    with mock.patch("eval3dpw.stated.probability_within", _within(tables[0])):
        for label, value in text_rows(figures(error, said)):
            print(f"  {label}: {value}")
    # Frames of a sequence err alike: standard errors by leaving out one sequence after the other
    # (jackknife), and what ECE would be if a sequence were right or wrong as a whole, with exactly
    # the stated probability.
    sequence = np.concatenate(
        [np.full(len(part[0]), o.sequence) for o, part in zip(people, parts, strict=True)]
    )
    known_parts, number = np.unique(sequence, return_inverse=True)
    without = [
        rows(error[sequence != fitted_person], said.rows(sequence != fitted_person))
        for fitted_person in known_parts
    ]
    for name, part in rows(error, said).items():
        shares = np.array([left[name]["inside_68"] for left in without if name in left])
        deviation = 100 * np.sqrt((len(shares) - 1) * shares.var())
        print(
            f"  {name}: {100 * part['inside_68']:.0f} +- {deviation:.0f} / {100 * part['inside_95']:.0f}"
        )
    rng = np.random.default_rng(0)
    for limit in FRAME_LIMITS_MM[1:]:
        stated_share = _within(tables[0])(said.worst_error_mm, limit)
        rendered = [
            calibration_error(stated_share, rng.random(len(known_parts))[number] < stated_share)
            for _ in range(200)
        ]
        print(f"  ECE at {limit:.0f} mm if what is stated were exact: {np.mean(rendered):.3f}")
    for label, ratio in _others(people, tables).items():
        print(f"  {label}: {100 * np.mean(ratio < 1):.0f} % inside one deviation")


def _left_out_ratio(pairs) -> list[str]:
    results = []
    for place, name in enumerate(("relative", "camera frame")):
        ratios = []
        for fitted_person, table in pairs:
            fit = calibrated(fitted_person, table).fit
            std = (fit.joint_std_relative_mm, fit.joint_std_mm)[place].numpy()
            subset = ~fitted_person.track.joint_observed & np.isin(np.arange(24), COUNTED)
            with np.errstate(invalid="ignore"):  # absences
                ratios.append((np.abs(fitted_person.error_mm[place]) / std)[subset])
        every = np.concatenate(ratios)
        axes = every[..., :2], every[..., 2]
        results += [f"{name} {100 * np.nanmean(v < 1):.0f}" for v in axes]
    return results


def _within(table: StatedErrors):
    return lambda worst, limit: 1 / (1 + (worst / limit) ** (1 / table.worst_spread))


def _others(people, tables) -> dict[str, np.ndarray]:
    results: dict[str, list[np.ndarray]] = {}
    for fitted_person, table in zip(people, tables, strict=True):
        track = calibrated(fitted_person, table)
        observed = track.fit.observed.numpy()
        fit = track.fit
        with mock.patch.object(stated, "stated_errors", return_value=table):
            speed = stated.speed_std_m_s(
                fit.joint_std_relative_mm.norm(dim=-1).numpy(), track.joint_observed
            )
            angles = stated.angle_std_deg(fit.rotation_std_deg.numpy(), ANGLE_JOINTS)
        place = np.abs(fitted_person.error_mm[1]) / fit.joint_std_mm.numpy()
        parts = {
            "camera frame, across": place[observed][..., :2],
            "camera frame, along": place[observed][..., 2],
            "rotations": (fitted_person.rotation_deg / fit.rotation_std_deg.numpy())[observed][
                :, COUNTED
            ],
            "angles": np.stack(
                [
                    fitted_person.angle_deg[name][observed] / angles[name][observed]
                    for name in angles
                ]
            ),
            "speeds": (fitted_person.speed_m_s / speed)[observed],
            "height and segments": fitted_person.shape_ratio / table.shape,
        }
        for name, part in parts.items():
            results.setdefault(name, []).append(part.ravel())
    return {
        name: (values := np.concatenate(parts))[np.isfinite(values)]
        for name, parts in results.items()
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
        raise UserError("no person of these sets could be fitted.")
    if arguments.check:
        report("as embedded", people, [stated.stated_errors()] * len(people))
        return
    report(
        "raw Gauss-Newton",
        people,
        [replace(NEUTRAL, angle=dict.fromkeys(KIND_OF_ANGLE, 1.0))] * len(people),
    )
    folds = [
        learnt([person for person in people if person.sequence % FOLDS != fold])
        for fold in range(FOLDS)
    ]
    report(
        "sequences that were left out",
        people,
        [folds[person.sequence % FOLDS] for person in people],
    )
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
        return [_short(fitted_person) for fitted_person in value]
    if isinstance(value, dict):
        return {name: _short(fitted_person) for name, fitted_person in value.items()}
    return float(f"{plain_value(value):.4g}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(str(error)) from None
