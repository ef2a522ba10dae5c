"""Where the confidence of a keypoint comes from, by name: ccnet, closed-form, raw, raw-heatmap or
ones.

`closed-form` is expected OKS without training, from the network's own spread: s = l^2 / (sigma^2 +
l^2). A heatmap trained to show a Gaussian of width w wherever the keypoint is will, if the keypoint
is uncertain by sigma, show the blur of both: variance sigma^2 + w^2 and height w^2 / (sigma^2 +
w^2). Either gives sigma back. So a network that fits a Gaussian to its heatmaps states its error by
the width of the peak, one that only makes heatmaps by the height of the peak, and one that
regresses, such as RLE, states sigma itself. All of them need l^2, hence the person's area: the
annotated one, one predicted from the features (`AreaFit`), or the mean share of the crop that
training people fill.

`ccnet` is a calibration head from disk: weights in a safetensors file with the record of the pose
model that they belong to (`load`, `save`)."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from scipy.optimize import minimize_scalar
from torch import Tensor

from ccnet.heads.head import BY_DIMENSIONS, PLAIN, CalibrationHead, Ensemble, FeatureShape
from pose2d.base.caching import weights_digest
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import Json
from pose2d.crops import PoseEstimate
from pose2d.models.base import PoseModel
from pose2d.models.registry import card
from pose2d.models.rtmpose import BINS, RTMPose
from pose2d.skeletons import BY_NAME as SKELETONS
from pose2d.types import ConfidenceSource, Keypoints, expected_oks, expected_oks_per_axis, l_squared

FORMAT = "fitmesh-ccnet-1"
KINDS = ("conv", "gap-fc", "fc", "query", "peaks", "movenet", "simcc")
COPY = "copy"  # nothing that a user runs needs it
WIDTH = ("conv", "fc", "gap-fc")  # kinds that may have a hidden layer


def _fresh(
    kind: str, shape: FeatureShape, keypoints: int, channels: int, members: int, options: Any
) -> CalibrationHead:
    """A head of a kind with random weights, or an ensemble of several."""
    heads = [_head_class(kind)(shape, keypoints, channels, **options) for _ in range(members)]
    for head in heads:
        head.options = dict(options)
    return heads[0] if members == 1 else Ensemble(heads)


def _head_class(kind: str) -> type[CalibrationHead]:
    if kind in ("peaks", "movenet"):  # these bring the networks of MoveNet with them
        from ccnet.heads.peaks import MoveNetHead, PeaksHead

        return PeaksHead if kind == "peaks" else MoveNetHead
    return {head.kind: head for head in PLAIN}[kind]


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
    training: dict[str, Any] = field(
        default_factory=dict
    )  # settings it was trained with, for the record
    area_share: float = 0.25  # mean share of the crop that a person fills, for the closed form
    target_cells: float = (
        2.0  # width of the heatmaps' target in cells that fits best, for the closed form
    )


def fitting_kinds(model: PoseModel) -> tuple[str, ...]:
    """The kinds of head that can read the network's features, the one that suits them best first."""
    from ccnet.heads.peaks import readout_of
    from pose2d.models.movenet import SinglePose

    if model.features_name == COPY:
        return (COPY,)
    own = {
        "simcc": isinstance(model, RTMPose),
        "movenet": isinstance(model, SinglePose),
        "peaks": readout_of(model) is not None,
    }
    pooled = ("gap-fc",) if len(model.feature_shape) == 3 else ()
    return (*(kind for kind, fits in own.items() if fits), paper_kind(model), *pooled)


def paper_kind(model: PoseModel) -> str:
    """The paper's head: one layer on the features as they are."""
    return COPY if model.features_name == COPY else BY_DIMENSIONS[len(model.feature_shape)].kind


def build(
    model: PoseModel, kind: str, channels: int = 2, members: int = 1, width: int = 0, card: str = ""
) -> CalibrationHead:
    """A fresh head for the network's features. width: of a hidden layer; card: the model's name,
    for a copied trunk.
    """
    if kind not in (*KINDS, COPY):
        raise UserError(f"unknown head {kind!r}: choose one of {', '.join(KINDS)}.")
    fitting = fitting_kinds(model)
    if kind not in fitting:
        others = " or ".join(map(repr, fitting))
        raise UserError(
            f"head {kind!r} does not fit the features of {type(model).__name__}: use {others}."
        )
    if width and kind not in WIDTH:
        raise UserError(
            f"head {kind!r} has no hidden layer to choose the width of; {', '.join(WIDTH)} have."
        )
    options: dict[str, Any] = {"width": width} if width else {}
    if isinstance(model, RTMPose) and kind == "simcc":
        options = {
            "bins": [BINS * side for side in model.input_wh],
            "map_channels": model.backbone.channels,
        }
    elif kind == COPY:
        options = {"card": card}
    head = _fresh(kind, model.feature_shape, model.skeleton.size, channels, members, options)
    for member in head.heads:
        member.copy_weights(model)
    return head


def save(head: CalibrationHead, path: str | Path, model: PoseModel, name: str, **more: Any) -> None:
    """A head for a pose model of that name, and its record; `more`: other fields of it. Trained
    weights in half precision; copied weights and scales in single, unless half is exact."""
    if not all(bool(torch.isfinite(tensor).all()) for tensor in head.state_dict().values()):
        raise UserError(
            f"training left a weight that is not finite (NaN or infinity), so {path} is not written. Give more people "
            "to train on, or a smaller --lr."
        )
    learnt = {key for key, _ in head.named_parameters()}
    tensors = {}
    for key, tensor in head.state_dict().items():
        half = tensor.detach().cpu().half()
        lossless = torch.equal(half.float(), tensor.cpu().float())
        tensors[key] = (
            half if key in learnt or lossless else tensor.detach().cpu().float()
        ).contiguous()
    first = head.heads[0]
    digest = weights_digest(model.state_dict())
    skeleton = model.skeleton.name
    about = About(
        name, digest, skeleton, first.kind, len(head.heads), head.channels, first.options, **more
    )
    record = {"format": FORMAT, **asdict(about), "feature_shape": list(head.feature_shape)}
    with atomic_file(
        path
    ) as temporary:  # one metadata entry, since safetensors keeps several in random order
        mode = temporary.stat().st_mode
        save_file(tensors, temporary, {"about": json.dumps(record, sort_keys=True)})
        temporary.chmod(mode)  # safetensors makes its files private


def load(name_or_path: str | Path) -> CalibrationHead:
    """An embedded head by the name of its pose model, or one from a file, ready to use, with its
    record in `.about`.
    """
    path = Path(str(files("ccnet") / "weights" / f"{name_or_path}.safetensors"))
    if not path.is_file():
        path = Path(name_or_path)
    if path.is_dir():
        path = path / "ccnet.safetensors"
    if not path.is_file():
        raise UserError(
            f"no calibration head {str(name_or_path)!r}: neither embedded ({', '.join(embedded())}) nor a file. "
            "Train one with `fitmesh train-ccnet`."
        )
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise UserError(f"{path} is not a safetensors file, or it is damaged: {error}.") from error
    about, shape = _about(metadata, path)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise UserError(
            f"{path} has a weight that is not finite (NaN or infinity): train it again."
        )
    try:
        keypoints = SKELETONS[about.skeleton].size
        head = _fresh(about.kind, shape, keypoints, about.channels, about.members, about.options)
        head.load_state_dict(tensors)
    except Exception as error:  # a record and tensors that contradict each other fail in many ways
        raise UserError(
            f"the tensors in {path} are not those of a {about.kind} head: train it again."
        ) from error
    head.about = about
    return head.eval().requires_grad_(False)


# of features; no head comes near
_MOST_SIDE = 8192
_MOST_NUMBERS = 1 << 24
OPTIONS = ("bins", "map_channels", "width", "card", "log_odds")  # of any head's constructor


def _about(metadata: Mapping[str, str], path: Path) -> tuple[About, tuple[int, ...]]:
    """The record and the shape of the features, with limits on everything that decides what is
    allocated.
    """
    expected = "Expected a calibration head made by `fitmesh train-ccnet`."
    try:
        content = Json(json.loads(metadata.get("about", "{}")), path, expected=expected)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} has a damaged record. {expected}") from error
    if content.get("format", "").value != FORMAT:
        raise UserError(f"{path} is not a calibration head made by `fitmesh train-ccnet`.")
    shape = tuple(side.integer(1, _MOST_SIDE) for side in content.item("feature_shape").items())
    if not 1 <= len(shape) <= 3 or math.prod(shape) > _MOST_NUMBERS:
        raise content.item("feature_shape").refuse("is no shape of features")
    for name, known in (("kind", (*KINDS, COPY)), ("skeleton", SKELETONS)):
        if content.item(name).text() not in known:
            raise content.item(name).refuse(f"is none of {', '.join(known)}")
    options = dict(content.get("options", {}).object())
    for name, value in options.items():
        whole = [
            n
            for n in (value if isinstance(value, list) else [value])
            if not isinstance(n, bool | str)
        ]
        if name not in OPTIONS or not all(
            isinstance(n, int) and 0 < n <= _MOST_SIDE for n in whole
        ):
            raise content.item("options").refuse(f"has an unknown or impossible {name!r}")
    names = ("model", "model_fingerprint", "skeleton", "kind")
    return About(
        **{name: content.item(name).text() for name in names},
        members=content.get("members", 1).integer(1, 64),
        channels=content.get("channels", 2).integer(1, 64),
        options=options,
        training=dict(content.get("training", {}).object()),
        area_share=content.get("area_share", About.area_share).number(0, 1e3),
        target_cells=content.get("target_cells", About.target_cells).number(0, 1e3),
    ), shape


def embedded() -> list[str]:
    """The pose models whose heads ship with the package."""
    return sorted(path.stem for path in Path(str(files("ccnet") / "weights")).glob("*.safetensors"))


def about_of(head: CalibrationHead, model: str | None = None) -> About:
    """The record of a loaded head; refuses one that was trained for another model than that of this
    name.
    """
    about = getattr(head, "about", None)
    if not isinstance(about, About):
        raise UserError(
            "this head was not loaded from a file, so it has no record of its pose model."
        )
    if model is not None and about.model != model:
        raise UserError(
            f"this calibration head was trained for {about.model}, not for {model}. Pass one for {model}."
        )
    return about


def check_fits(head: CalibrationHead, model: PoseModel, name: str) -> None:
    """Refuse a head that was trained on other features."""
    if about_of(head, name).model_fingerprint != weights_digest(model.state_dict()):
        raise UserError(
            f"this calibration head was trained for other weights of {name} than those loaded. "
            "Pass the checkpoint it was trained with, or train a head for this one."
        )


SOURCES: tuple[ConfidenceSource, ...] = ("ccnet", "closed-form", "raw", "raw-heatmap", "ones")


ConfidenceFunction = Callable[[PoseEstimate], Keypoints]


def confidence_function(
    source: ConfidenceSource, pose_model: str, model: PoseModel, head_path: Path | None
) -> ConfidenceFunction:
    """From what a network found to keypoints with the confidence of a source. Only CCNet knows
    whether a keypoint is in the image at all; the other sources give a presence of 1."""
    head, about = None, None
    if source == "ccnet":
        head = load(head_path or pose_model)
        check_fits(head, model, pose_model)
        head.to(next(model.parameters()).device)
    elif source == "closed-form" and pose_model in embedded():
        about = about_of(load(pose_model))
    share, width = area_and_width(model, about)

    def keypoints(e: PoseEstimate) -> Keypoints:
        confidence = e.score
        presence = torch.ones_like(e.score)
        error = None
        if head is not None:
            confidence, presence, error = head.state(e.features)
        elif source == "closed-form":
            confidence = closed_form(e, e.crop_area_px2 * share, model, width)
        elif source == "raw-heatmap":
            assert e.heatmap_score is not None, "`check_heatmap_score` comes first"
            confidence = e.heatmap_score
        elif source == "ones":
            confidence = presence
        confidence, presence = (part.float().clamp(0, 1).cpu() for part in (confidence, presence))
        error = error and error.along("keypoints", lambda value, _: value.float().cpu())
        return Keypoints(
            e.xy_px, confidence, presence, source, skeleton=model.skeleton, error=error, raw=e.score
        )

    return keypoints


def default_source(
    pose_model: str, checkpoint: Path | None, head_path: Path | None
) -> ConfidenceSource:
    """CCNet where a head is at hand (the embedded heads fit the embedded weights only), else the
    network's own.
    """
    at_hand = head_path is not None or (checkpoint is None and pose_model in embedded())
    return "ccnet" if at_hand else "raw"


def check_source(source: str, pose_model: str, head_path: Path | None) -> None:
    """Refuse early what would otherwise be refused after the people have been found."""
    if source not in SOURCES:
        raise UserError(
            f"unknown source of confidence {source!r}: expected one of {', '.join(SOURCES)}."
        )
    if source == "raw-heatmap":
        with torch.device("meta"):
            check_heatmap_score(pose_model, card(pose_model).build())
    if head_path is not None and source != "ccnet":
        raise UserError(
            f"--ccnet {head_path} has no effect with --confidence {source}: leave one of them out."
        )
    if source == "ccnet":
        about_of(load(head_path or pose_model), pose_model)


def check_heatmap_score(pose_model: str, model: PoseModel) -> None:
    """Refuse `raw-heatmap` for a network that has no score beside its own."""
    if not model.has_heatmap_score:
        raise UserError(
            f"{pose_model} has one score of its own: use --confidence raw (raw-heatmap is the second score of IPR)."
        )


def head_digest(source: ConfidenceSource, pose_model: str, head_path: Path | None) -> str:
    """Of the head's weights that `confidence_function` reads; empty where it reads none."""
    if source != "ccnet" and (source != "closed-form" or pose_model not in embedded()):
        return ""
    return weights_digest(load((source == "ccnet" and head_path) or pose_model).state_dict())


SMALLEST_PEAK = 1e-6  # a peak at or below zero carries no information


def closed_form(e: PoseEstimate, area_px2: Tensor, model: PoseModel, width_cells: float) -> Tensor:
    """Expected OKS [N, K] without a trained head, in double precision. area_px2 [N]: of the people,
    annotated, predicted, or a share of their crops; width_cells: of the heatmaps' target. Both:
    `area_and_width`, if not known."""
    l2 = l_squared(area_px2.double(), model.skeleton)
    stated = not bool(torch.isnan(e.sigma_px).all())
    if len(model.feature_shape) != 3 and stated:
        return expected_oks_per_axis(e.sigma_px.double(), l2)
    crop_width_px = (e.crop_area_px2.double() * model.input_wh[0] / model.input_wh[1]).sqrt()
    sigma_px = e.sigma_px.double() if stated else None
    return heatmap_confidence(
        e.score.double(), sigma_px, width_cells, crop_width_px / cells_across(model), l2
    )


def heatmap_confidence(
    peak: Tensor,  # [N, K] its height
    sigma_px: Tensor | None,  # [N, K, 2] of the Gaussian fitted to each heatmap, image pixels
    width_cells: float,  # of the heatmaps' target
    px_per_cell: Tensor,  # [N] image pixels
    l2_px2: Tensor,  # [N, K]
) -> Tensor:
    """Expected OKS [N, K] from the width of each heatmap's peak: error variance sigma^2 - w^2, at
    least 0; or, without one, from its height: w^2 (1 / peak - 1)."""
    if sigma_px is not None:
        variance = (
            sigma_px.square().mean(-1) - (width_cells * px_per_cell)[:, None] ** 2
        ).clamp_min(0)
        return expected_oks(variance, l2_px2)
    cells2 = peak.new_tensor(width_cells) ** 2 * (1 / peak.clamp(SMALLEST_PEAK, 1) - 1)
    return expected_oks(cells2 * px_per_cell[:, None] ** 2, l2_px2)


def area_and_width(model: PoseModel, about: About | None) -> tuple[float, float]:
    """Which share of its crop a person fills, and how wide the heatmaps' target is in cells: on
    average over a head's training people and as fits them best, or as usual and as published."""
    if about is not None:
        return about.area_share, about.target_cells
    if model.has_heatmap_score:  # the maps are probabilities of their own, taught by no target
        return About.area_share, 0.0
    # SimpleBaseline, HRNet, ViTPose: 2 for inputs of 192 or 256 pixels (48 or 64 cells), 3 for 288
    # or 384.
    return About.area_share, 3.0 if cells_across(model) > 64 else 2.0


def cells_across(model: PoseModel) -> float:
    """Cells of the heatmap across the crop's width; a quarter of the input's for a network without
    maps.
    """
    return float(model.feature_shape[2] if len(model.feature_shape) == 3 else model.input_wh[0] / 4)


def best_width(confidence_at: Callable[[float], np.ndarray], oks: np.ndarray) -> float:
    """The width between 0.01 and 100 cells whose confidence is closest to the true OKS [N, K], NaN
    if not labelled. For networks whose training target was never published."""
    labelled = ~np.isnan(oks)

    def loss(log_width: float) -> float:
        return (
            float(np.mean((confidence_at(float(np.exp(log_width))) - oks)[labelled] ** 2))
            if labelled.any()
            else 0.0
        )

    # coarse first: far from the minimum the loss is flat
    grid = np.linspace(np.log(1e-2), np.log(1e2), 60)
    near = grid[np.argmin([loss(g) for g in grid])]
    step = grid[1] - grid[0]
    return float(
        np.exp(minimize_scalar(loss, bounds=(near - step, near + step), method="bounded").x)
    )
