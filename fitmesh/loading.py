"""Read a result back: `fitmesh.load("out/")`."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import fitting
from fitmesh.person import Person, Shot, View
from fitmesh.result import FIT_FILE, RUN_FILE, Result
from fitmesh.schema import check_fit
from pose2d.base.caching import read_npz
from pose2d.base.errors import UserError
from pose2d.base.json_files import read_json
from pose2d.events import Event


def load(folder: str | Path) -> Result:
    """Read the result that `fitmesh run` wrote to `folder`."""
    folder = Path(folder)
    if folder.is_file() and folder.name == FIT_FILE:
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder of results: expected the --out folder of `fitmesh run`.",
            file=folder,
        )
    arrays = read_npz(folder / FIT_FILE)
    check_fit(arrays, folder / FIT_FILE)
    try:
        run = read_json(folder / RUN_FILE).object()
    except UserError:
        run = {}  # the fit can be read without it
    clip = run.get("clip")
    body_path = str(arrays["body_path"])
    frame_index = np.searchsorted(arrays["frame"], arrays["row_frame"])
    people = Person.from_groups(
        arrays,
        time_s=arrays["time_s"][frame_index],
        world_from_camera=arrays["world_from_camera"][frame_index],
    )
    return Result(
        folder=folder,
        people=[
            replace(person, world_from_camera=_none_if_unknown(person.world_from_camera))
            for person in people
        ],
        shots=[
            replace(shot, up_cam=_none_if_unknown(shot.up_cam))
            for shot in Shot.from_arrays(arrays).each()
        ],
        camera=fitting.Camera(
            tuple(arrays["focal_px"].astype(float).tolist()),
            tuple(arrays["center_px"].astype(float).tolist()),
            (int(arrays["width_px"]), int(arrays["height_px"])),
            tuple(arrays.get("distortion", np.zeros(0)).tolist()),
        ),
        frames=arrays["frame"],
        time_s=arrays["time_s"],
        focal_px=arrays["frame_focal_px"],
        world_from_camera=arrays["world_from_camera"],
        events=Event.from_arrays(arrays).each(),
        views=View.from_arrays(arrays).each() if "view_name" in arrays else [],
        rate=Fraction(*map(int, arrays["rate"])),
        body_name=str(arrays["body"]),
        body_path=Path(body_path) if body_path else None,
        clip_path=Path(clip) if isinstance(clip, str) and clip else None,
        settings=run["settings"] if isinstance(run.get("settings"), dict) else {},
        timings_s=finite_numbers(run.get("timings_s")),
        **{
            name: str(arrays[name])
            for name in ("body_digest", "weighting", "init", "source", "pose_model")
        },
    )


def _none_if_unknown(values: np.ndarray | None) -> np.ndarray | None:
    """Return None for values that are NaN."""
    return values if values is not None and np.isfinite(values).all() else None


def finite_numbers(content: Any) -> dict[str, float]:
    """Return the finite numbers of an object in run.json, which a user may have edited."""
    entries = content.items() if isinstance(content, dict) else ()
    return {
        name: float(value)
        for name, value in entries
        if type(value) in (int, float) and 0 <= value < 1e9
    }
