"""Calibration heads on disk: weights in a safetensors file with the record of the pose model that
they belong to."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ccnet.heads.head import CalibrationHead
from ccnet.heads.kinds import COPY, KINDS, fresh_head
from pose2d.base.caching import weights_digest
from pose2d.base.embedded import check_embedded
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import Json
from pose2d.models.base import PoseModel
from pose2d.skeletons import BY_NAME as SKELETONS

FORMAT = "fitmesh-ccnet-1"


@dataclass(frozen=True)
class About:
    """The record of a trained head."""

    model: str  # name in `pose2d.names()`
    model_fingerprint: str  # `weights_digest` of the pose model
    skeleton: str
    kind: str
    members: int = 1  # more than one: an ensemble
    channels: int = 2
    options: dict[str, Any] = field(default_factory=dict)  # of the head's own constructor
    training: dict[str, Any] = field(default_factory=dict)  # settings it was trained with
    # For the closed form: the mean share of the crop that a person fills, and the width of the
    # heatmaps' target, in cells, that fits best.
    area_share: float = 0.25
    target_cells: float = 2.0


def save(
    head: CalibrationHead, path: str | Path, model: PoseModel, name: str, **fields: Any
) -> None:
    """Write a head for the pose model `name` with its record (`fields`: further fields of `About`).

    Trained weights are stored in half precision; copied weights and scales in single precision,
    unless half is exact.
    """
    if not all(bool(torch.isfinite(tensor).all()) for tensor in head.state_dict().values()):
        raise UserError(
            f"training left a weight that is not finite (NaN or infinity), so {path} is not "
            "written. Train on more people, or with a smaller --lr."
        )
    learnt = {key for key, _ in head.named_parameters()}
    tensors = {}
    for key, tensor in head.state_dict().items():
        half = tensor.detach().cpu().half()
        lossless = torch.equal(half.float(), tensor.cpu().float())
        stored = half if key in learnt or lossless else tensor.detach().cpu().float()
        tensors[key] = stored.contiguous()
    first = head.heads[0]
    digest = weights_digest(model.state_dict())
    skeleton = model.skeleton.name
    about = About(
        name, digest, skeleton, first.kind, len(head.heads), head.channels, first.options, **fields
    )
    record = {"format": FORMAT, **asdict(about), "feature_shape": list(head.feature_shape)}
    with atomic_file(path) as temporary:
        mode = temporary.stat().st_mode
        # One metadata entry, since safetensors stores several in random order.
        save_file(tensors, temporary, {"about": json.dumps(record, sort_keys=True)})
        temporary.chmod(mode)  # safetensors makes its files private


def load(name_or_path: str | Path) -> CalibrationHead:
    """Return a head ready to use, with its record in `.about`: an embedded one by the name of its
    pose model, or one from a file.
    """
    path = Path(str(files("ccnet") / "weights" / f"{name_or_path}.safetensors"))
    if path.is_file():
        check_embedded(path)
    else:
        path = Path(name_or_path)
    if path.is_dir():
        path = path / "ccnet.safetensors"
    if not path.is_file():
        raise UserError(
            f"no calibration head {str(name_or_path)!r}: expected an embedded one "
            f"({', '.join(embedded())}) or a file. Train one with `fitmesh train-ccnet`."
        )
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise UserError(
            f"{path} is not a safetensors file, or it is damaged: {error}.", file=path
        ) from error
    about, shape = _read_record(metadata, path)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise UserError(
            f"{path} has a weight that is not finite (NaN or infinity): train it again.", file=path
        )
    try:
        keypoints = SKELETONS[about.skeleton].size
        channels = about.channels
        head = fresh_head(about.kind, shape, keypoints, channels, about.members, about.options)
        head.load_state_dict(tensors)
    except Exception as error:  # a record and tensors that contradict each other fail in many ways
        raise UserError(
            f"the tensors in {path} are not those of a {about.kind} head: train it again."
        ) from error
    head.about = about
    return head.eval().requires_grad_(False)


# Limits on the shape of features, far above those of any network.
_MOST_SIDE = 8192
_MOST_NUMBERS = 1 << 24
OPTIONS = ("bins", "map_channels", "width", "card", "log_odds")  # of any head's constructor


def _read_record(metadata: Mapping[str, str], path: Path) -> tuple[About, tuple[int, ...]]:
    """Return the record and the shape of the features. Everything that decides how much memory is
    allocated has limits.
    """
    expected = "Expected a calibration head made by `fitmesh train-ccnet`."
    try:
        content = Json(json.loads(metadata.get("about", "{}")), path, expected=expected)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} has a damaged record. {expected}", file=path) from error
    if content.get("format", "").value != FORMAT:
        raise UserError(
            f"{path} is not a calibration head made by `fitmesh train-ccnet`.", file=path
        )
    shape = tuple(side.integer(1, _MOST_SIDE) for side in content.item("feature_shape").items())
    if not 1 <= len(shape) <= 3 or math.prod(shape) > _MOST_NUMBERS:
        raise content.item("feature_shape").refuse("is not a shape of features")
    for name, allowed in (("kind", (*KINDS, COPY)), ("skeleton", SKELETONS)):
        if content.item(name).text() not in allowed:
            raise content.item(name).refuse(f"must be one of {', '.join(allowed)}")
    options = dict(content.get("options", {}).object())
    for name, value in options.items():
        values = value if isinstance(value, list) else [value]
        sizes = [size for size in values if not isinstance(size, bool | str)]
        possible = all(isinstance(size, int) and 0 < size <= _MOST_SIDE for size in sizes)
        if name not in OPTIONS or not possible:
            raise content.item("options").refuse(f"has an unknown or impossible {name!r}")
    names = ("model", "model_fingerprint", "skeleton", "kind")
    about = About(
        **{name: content.item(name).text() for name in names},
        members=content.get("members", 1).integer(1, 64),
        channels=content.get("channels", 2).integer(1, 64),
        options=options,
        training=dict(content.get("training", {}).object()),
        area_share=content.get("area_share", About.area_share).number(0, 1e3),
        target_cells=content.get("target_cells", About.target_cells).number(0, 1e3),
    )
    return about, shape


def embedded() -> list[str]:
    """Return the names of the pose models whose heads ship with the package."""
    return sorted(path.stem for path in Path(str(files("ccnet") / "weights")).glob("*.safetensors"))


def about_of(head: CalibrationHead, model: str | None = None) -> About:
    """Return the record of a loaded head. Raises UserError if it was trained for another model than
    `model`.
    """
    about = getattr(head, "about", None)
    if not isinstance(about, About):
        raise UserError(
            "this head was not loaded from a file, so it has no record of its pose model."
        )
    if model is not None and about.model != model:
        raise UserError(
            f"this calibration head was trained for {about.model}, not for {model}. "
            f"Pass one for {model}."
        )
    return about


def check_fits(head: CalibrationHead, model: PoseModel, name: str) -> None:
    """Raise UserError if the head was trained on the features of other weights."""
    if about_of(head, name).model_fingerprint != weights_digest(model.state_dict()):
        raise UserError(
            f"this calibration head was trained for other weights of {name} than those loaded. "
            "Pass the checkpoint it was trained with, or train a head for this one."
        )
