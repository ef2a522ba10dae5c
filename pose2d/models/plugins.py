"""Check the networks that plug-ins and installed packages bring.

Their code is outside this project, so what `build`, `convert`, `normalize`, `features`, `maps` and
`predict` return is checked for kind, shape and finite numbers. The error names the network, the
method, what was expected and what it returned. Without the check, wrong shapes fail far from their
cause, and NaN passes for a result."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, get_args

import torch
from torch import Tensor

from pose2d.base.errors import UserError
from pose2d.models.base import CropConvention, HeatmapModel, Normalization, PoseModel
from pose2d.models.cards import ModelCard
from pose2d.skeletons import Skeleton
from pose2d.types import Prediction

if TYPE_CHECKING:
    _Network = PoseModel
    _HeatmapNetwork = HeatmapModel
else:  # mix-ins: the network's own class stands beside them
    _Network = object
    _HeatmapNetwork = object


def check_card(card: ModelCard) -> None:
    """Refuse a card of a plug-in whose fields have the wrong kind."""
    width_height = card.input_wh
    is_size = isinstance(width_height, tuple) and len(width_height) == 2
    is_size = is_size and all(_is_count(side) for side in width_height)
    problems = {
        "build must be a function without arguments": callable(card.build),
        "skeleton must be a pose2d.Skeleton": isinstance(card.skeleton, Skeleton),
        "input_wh must be (width, height), two positive integers": is_size,
        "parameters must be an integer": type(card.parameters) is int and card.parameters >= 0,
        "licence must be text": isinstance(card.licence, str),
        "source must be text": isinstance(card.source, str),
        "graph is only for networks that ship with fitmesh": card.graph is None,
    }
    for problem, is_right in problems.items():
        if not is_right:
            raise UserError(f"the card {card.name}: {problem}.")


def build_checked(card: ModelCard) -> PoseModel:
    """Build the network of a plug-in's card, which checks its own answers from then on."""
    with _explain_failure(card.name, "build"):
        model = card.build()
    if not isinstance(model, PoseModel):
        raise _wrong_answer(card.name, "build", "a pose2d.PoseModel", model)
    _check_facts(model, card)
    checks = _CheckedHeatmaps if isinstance(model, HeatmapModel) else _Checked
    own_class = type(model)
    # The class keeps its module, which cache keys name, and its tensors keep their names.
    members = {"__module__": own_class.__module__, "plugin_name": card.name}
    try:
        model.__class__ = type(own_class.__name__, (checks, own_class), members)
    except TypeError as error:  # such as a class with __slots__
        raise UserError(
            f"the network {card.name}: {own_class.__name__} must be an ordinary subclass of "
            f"pose2d.PoseModel ({error})."
        ) from error
    return model


def _check_facts(model: PoseModel, card: ModelCard) -> None:
    """Refuse a network whose attributes are missing, of the wrong kind, or not those of its card."""
    if "_parameters" not in vars(model):
        raise UserError(f"the network {card.name}: call super().__init__() first in __init__.")
    if not any(True for _ in model.parameters()):
        raise UserError(f"the network {card.name} has no weights: expected at least one parameter.")
    for name in ("skeleton", "input_wh"):
        value = getattr(model, name, None)
        if type(value) is not type(getattr(card, name)) or value != getattr(card, name):
            raise UserError(f"the network {card.name} and its card differ in {name}.")
    shape = getattr(model, "feature_shape", None)
    is_shape = isinstance(shape, tuple) and 1 <= len(shape) <= 3
    if not is_shape or not all(_is_count(side) for side in shape or ()):
        raise UserError(
            f"the network {card.name}: feature_shape must be a tuple of 1 to 3 positive integers, "
            f"such as (channels, height, width); got {_describe(shape)}."
        )
    conventions = get_args(CropConvention)
    if model.crop not in conventions:
        raise UserError(
            f"the network {card.name}: crop must be one of {', '.join(conventions)}; "
            f"got {_describe(model.crop)}."
        )
    scale = model.box_scale
    if not isinstance(scale, int | float) or not math.isfinite(scale) or not 0.1 <= scale <= 10:
        raise UserError(
            f"the network {card.name}: box_scale must be a number from 0.1 to 10; "
            f"got {_describe(scale)}."
        )
    if not isinstance(model.normalization, Normalization):
        raise UserError(f"the network {card.name}: normalization must be a Normalization.")


class _Checked(_Network):
    """Methods of a plug-in's network with their answers checked."""

    plugin_name: str

    def normalize(self, crops: Tensor) -> Tensor:
        with _explain_failure(self.plugin_name, "normalize"):
            inputs = super().normalize(crops)
        return self._check_tensor("normalize", inputs, tuple(crops.shape))

    def features(self, crops: Tensor) -> Tensor:
        with _explain_failure(self.plugin_name, "features"):
            features = super().features(crops)  # type: ignore[safe-super]
        return self._check_tensor("features", features, (len(crops), *self.feature_shape))

    def predict(self, features: Tensor) -> Prediction:
        with _explain_failure(self.plugin_name, "predict"):
            prediction = super().predict(features)  # type: ignore[safe-super]
        return self._check_prediction("predict", prediction, len(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        with _explain_failure(self.plugin_name, "predict_flip"):
            prediction = super().predict_flip(features, mirrored)  # type: ignore[safe-super]
        return self._check_prediction("predict_flip", prediction, len(features))

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        with _explain_failure(self.plugin_name, "convert"):
            converted = super().convert(state)
        is_state = isinstance(converted, dict) and all(
            isinstance(key, str) and isinstance(value, Tensor) for key, value in converted.items()
        )
        if not is_state:
            expected = "a dict of tensors by name"
            raise _wrong_answer(self.plugin_name, "convert", expected, converted)
        return converted

    def _check_prediction(self, method: str, prediction: object, count: int) -> Prediction:
        if not isinstance(prediction, Prediction):
            raise _wrong_answer(self.plugin_name, method, "a pose2d.Prediction", prediction)
        scores = (count, self.skeleton.size)
        self._check_tensor(f"{method}().xy_px", prediction.xy_px, (*scores, 2))
        self._check_tensor(f"{method}().score", prediction.score, scores)
        if prediction.sigma_px is not None:
            sigma = self._check_tensor(f"{method}().sigma_px", prediction.sigma_px, (*scores, 2))
            if bool((sigma < 0).any()):
                expected = "standard deviations of at least 0"
                raise _wrong_answer(self.plugin_name, f"{method}().sigma_px", expected, sigma)
        if prediction.heatmap_score is not None or self.has_heatmap_score:
            self._check_tensor(f"{method}().heatmap_score", prediction.heatmap_score, scores)
        return prediction

    def _check_tensor(self, place: str, value: object, shape: tuple[int | str, ...]) -> Tensor:
        """Return a floating-point tensor of finite numbers with this shape; text: any length."""
        expected = f"a floating-point tensor [{', '.join(map(str, shape))}]"
        if not isinstance(value, Tensor) or not torch.is_floating_point(value):
            raise _wrong_answer(self.plugin_name, place, expected, value)
        lengths = [length for length in value.shape]
        fits = len(lengths) == len(shape) and all(
            length == side or (isinstance(side, str) and length > 0)
            for length, side in zip(lengths, shape, strict=True)
        )
        if not fits:
            raise _wrong_answer(self.plugin_name, place, expected, value)
        if not bool(torch.isfinite(value).all()):
            raise _wrong_answer(self.plugin_name, place, f"{expected} of finite numbers", value)
        return value


class _CheckedHeatmaps(_Checked, _HeatmapNetwork):
    """Methods of a plug-in's heatmap network with their answers checked."""

    def maps(self, features: Tensor) -> Tensor:
        with _explain_failure(self.plugin_name, "maps"):
            maps = super().maps(features)
        return self._check_tensor(
            "maps", maps, (len(features), self.skeleton.size, "height", "width")
        )


@contextmanager
def _explain_failure(network: str, method: str) -> Iterator[None]:
    """Turn an exception of a plug-in's method into an error that names both."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        lines = str(error).splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0][:200]}".rstrip(": ")
        raise UserError(f"the network {network}: {method}() failed with {reason}.") from error


def _wrong_answer(network: str, place: str, expected: str, value: object) -> UserError:
    """Return the error for an answer that is not what was expected."""
    method = place if "(" in place else f"{place}()"
    return UserError(
        f"the network {network}: {method} must be {expected}; got {_describe(value)}. "
        "See docs/own-network.md."
    )


def _describe(value: object) -> str:
    """Describe an answer in a few words."""
    if isinstance(value, Tensor):
        kind = f"{value.dtype} {list(value.shape)}".removeprefix("torch.")
        is_real = torch.is_floating_point(value)
        if is_real and not bool(torch.isfinite(value).all()):
            return f"{kind} with NaN or infinite numbers"
        return kind
    if value is None or isinstance(value, bool | int | float | str | tuple | list):
        return repr(value)[:80]
    return type(value).__name__


def _is_count(value: object) -> bool:
    """Tell whether a value is a positive integer."""
    return type(value) is int and value > 0
