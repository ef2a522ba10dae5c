"""What every 2D pose network offers, whatever is inside; its weights from a file; and how a name
becomes a network.

Names come from the families in this folder, from `register` (a network of your own,
docs/own-network.md) and from installed packages: their entry points of the group `fitmesh.models`
are cards, by name.

No code in such a file is executed. Torch's pickled checkpoints are read by torch's own restricted
unpickler. Trainers leave other things beside the weights: plain NumPy values are let through; the
loss curves that mmengine keeps are replaced by empty objects; anything else in the file is refused
by name."""

import difflib
import importlib.util
import logging
import pickle
import re
import sys
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from pose2d import decode
from pose2d.base.caching import code_files
from pose2d.base.errors import UserError
from pose2d.base.files import read_npz
from pose2d.skeletons import Skeleton
from pose2d.types import Prediction

CropConvention = Literal["sbl", "udp", "square"]


@dataclass(frozen=True)
class Normalization:
    """(crop / 255 - mean) / std, per channel in the network's own order."""

    mean: tuple[float, float, float]  # per input channel, on a scale of 0..1
    std: tuple[float, float, float]
    bgr: bool = False  # the network takes blue first

    def __call__(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255, uint8 or float -> the network's input, float."""
        x = crops if torch.is_floating_point(crops) else crops.float()
        if self.bgr:
            x = x.flip(1)
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(3, 1, 1)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(3, 1, 1)
        return torch.addcmul(-mean / std, x, 1 / (255 * std))


_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)
IMAGENET_RGB = Normalization(_MEAN, _STD)
# The official Simple Baselines read images with OpenCV and never turned them round: blue gets red's
# mean.
IMAGENET_BGR = Normalization(_MEAN, _STD, bgr=True)
# Official RLE: a mean of its own, and nothing scaled.
RLE_RGB = Normalization((0.406, 0.457, 0.480), (1.0, 1.0, 1.0))


# What may happen to a batch between `features` and `predict` without touching channels or space.
_KEEP_TRUNK = {
    *(
        getattr(torch, name)
        for name in ("index_select", "split", "chunk", "cat", "concat", "detach", "clone")
    ),
    *(
        getattr(Tensor, name)
        for name in ("__getitem__", "index_select", "narrow", "split", "chunk", "detach", "clone")
    ),
    *(
        getattr(Tensor, name)
        for name in ("contiguous", "to", "cpu", "cuda", "float", "half", "bfloat16", "double")
    ),
    Tensor.pin_memory,
}


class FeaturesWithTrunk(Tensor):
    """Features [N, ...] that carry a second map of the network with them, one row a crop. Slicing,
    concatenating, copying or casting a batch keeps both in step. Any other operation gives a plain
    tensor."""

    trunk: Tensor  # [N, ...]

    @classmethod
    def join(cls, hidden: Tensor, trunk: Tensor) -> "FeaturesWithTrunk":
        features = hidden.as_subclass(cls)
        features.trunk = trunk
        return features

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
            if func not in _KEEP_TRUNK:
                return result
            parts = args[0] if isinstance(args[0], (tuple, list)) else args[:1]
            outputs = result if isinstance(result, (tuple, list)) else (result,)
            whole = all(isinstance(part, cls) for part in parts)
            if not whole or any(out.shape[1:] != parts[0].shape[1:] for out in outputs):
                return result
            carried = [part.trunk for part in parts] if parts is args[0] else parts[0].trunk
            trunks = func(carried, *args[1:], **kwargs)
            if isinstance(result, Tensor):
                return cls.join(result, trunks)
            return type(result)(
                cls.join(out, trunk) for out, trunk in zip(result, trunks, strict=True)
            )


def trunk_of(features: Tensor) -> Tensor:
    """The map that travels with features, or a UserError where an operation has lost it."""
    if isinstance(features, FeaturesWithTrunk):
        return features.trunk
    raise UserError(
        "this needs what the network's features() returned: arithmetic on it or a round trip through numpy loses the "
        "map that comes with it. Call it before changing the features, or slice, concatenate and copy only the batch."
    )


class PoseModel(nn.Module):
    """A frozen network in two halves, so that the pose head and CCNet share one forward pass. crops
    -> `normalize` -> `features` -> `predict`; CCNet reads what `features` returns."""

    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height of a crop in pixels
    feature_shape: tuple[
        int, ...
    ]  # of one crop's features: (C, h, w), or (C,) for a vector, (K, C) per keypoint
    crop: ClassVar[CropConvention] = "sbl"  # how a box becomes a crop (pose2d/crops.py)
    box_scale: ClassVar[float] = 1.25  # the box is grown by this before cropping
    features_name: str = (
        "penultimate"  # what `features` returns; others for comparison only (ccnet/heads/head.py)
    )
    normalization: Normalization = IMAGENET_RGB
    has_heatmap_score: ClassVar[bool] = (
        False  # whether predictions have a `heatmap_score` beside the score
    )

    def normalize(self, crops: Tensor) -> Tensor:
        """RGB crops [N, 3, H, W], 0..255, uint8 or float -> the network's input (colour order,
        scale, mean).
        """
        return self.normalization(crops)

    @abstractmethod
    def features(self, crops: Tensor) -> Tensor:
        """Normalised crops [N, 3, H, W] -> penultimate features [N, *feature_shape]."""

    @abstractmethod
    def predict(self, features: Tensor) -> Prediction:
        """Features -> keypoints in crop pixels."""

    @abstractmethod
    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        """Flip test: features of the crops and of their mirror images -> one merged prediction."""

    def forward(self, crops: Tensor) -> Prediction:
        return self.predict(self.features(crops))

    def convert(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A published checkpoint under this module's own names of tensors. Override where formats
        differ.
        """
        return dict(state)

    def use_graph(self, graph: str) -> None:
        """Compute features on the CPU by ONNX Runtime from now on, with the weights as they are
        now.
        """
        raise NotImplementedError(f"{type(self).__name__} has no graph.")

    def plain(self, features: Tensor) -> Tensor:
        """Features without what travels with them, refused where their shape is not this network's."""
        if tuple(features.shape[1:]) != self.feature_shape:
            expected = ", ".join(map(str, self.feature_shape))
            raise UserError(
                f"features must have shape [N, {expected}], got {list(features.shape)}."
            )
        return features.as_subclass(Tensor)

    def size_px(self, like: Tensor) -> Tensor:
        """Width and height of a crop, [2], of the type and on the device of `like`."""
        return torch.tensor(self.input_wh, dtype=like.dtype, device=like.device)

    def check_input(self, crops: Tensor) -> None:
        """Refuse a batch that this network cannot read, in words."""
        width, height = self.input_wh
        if crops.ndim != 4 or tuple(crops.shape[1:]) != (3, height, width):
            raise UserError(
                f"crops must have shape [N, 3, {height}, {width}], got {list(crops.shape)}."
            )
        if not torch.is_floating_point(crops):
            raise UserError(
                f"crops must be floating point, got {crops.dtype}: call model.normalize(crops) first."
            )


def named(**layers: nn.Module) -> Any:
    """Layers in a row, an `nn.Sequential`, under the names that published weights have."""
    return nn.Sequential(OrderedDict(layers))


@dataclass(frozen=True)
class ModelCard:
    """One name that `pose2d.load` knows; `pose2d.register` adds one."""

    name: str
    build: Callable[[], PoseModel]  # the architecture, weights not yet loaded
    skeleton: Skeleton
    input_wh: tuple[int, int]  # width, height in pixels
    parameters: int = 0  # number of weights, normalisation statistics not counted; 0: not stated
    licence: str = "your own"  # of the published weights
    source: str = "your own"  # where the checkpoint comes from, for a person to read
    embedded: str | None = None  # file in pose2d/weights, when the weights ship with the package
    graph: str | None = None  # file in pose2d/graphs, when ONNX Runtime can compute its features


# Licence and source of checkpoints
MMPOSE = ("Apache-2.0", "open-mmlab/mmpose")
UNPUBLISHED = ("your own", "your own training: no checkpoint is published")
MINIATURE = (
    "your own",
    "your own training with tools/train_mini.py",
)  # docs/paper.md: for one processor core


Build = Callable[[tuple[int, int], Skeleton], PoseModel]


def sized_card(
    name: str, build: Build, skeleton: Skeleton, parameters: int, origin: tuple[str, str]
) -> ModelCard:
    """A card whose name states the crop's height and width, as in "hrnet-w32-256x192"; origin:
    licence and source.
    """
    height, width = (int(side) for side in re.findall(r"(\d+)x(\d+)", name)[0])
    return ModelCard(
        name,
        partial(build, (width, height), skeleton),
        skeleton,
        (width, height),
        parameters,
        *origin,
    )


Decoder = Callable[[Tensor], tuple[Tensor, Tensor]]  # maps -> xy_cells, score (pose2d/decode.py)


class HeatmapModel(PoseModel):
    """Features -> one map per keypoint -> its peak. The raw confidence is the height of the peak.
    `decode` may be replaced on a loaded model, for a checkpoint whose recipe says so: `model.decode
    = functools.partial(pose2d.decode.dark, kernel=17)`."""

    decode: Decoder = staticmethod(decode.quarter_offset)
    shift_mirrored: bool = True  # in the flip test, move the un-mirrored map one cell to the right

    final_layer: nn.Module  # makes the maps, unless `maps` says otherwise

    def maps(self, features: Tensor) -> Tensor:
        """Features -> heatmaps [N, K, h, w]."""
        return self.final_layer(features)

    def predict(self, features: Tensor) -> Prediction:
        return self.decode_maps(self.maps(features))

    def predict_flip(self, features: Tensor, mirrored: Tensor) -> Prediction:
        back = decode.maps_back(self.maps(mirrored), self.skeleton.flip_order)
        if self.shift_mirrored:
            back = decode.shift_right(back)
        return self.decode_maps((self.maps(features) + back) / 2)

    def decode_maps(self, maps: Tensor) -> Prediction:
        """Heatmaps -> keypoints in crop pixels."""
        xy_cells, score = self.decode(maps)
        return Prediction(xy_px=xy_cells * self.cell_px(maps), score=score, maps=maps)

    def cell_px(self, maps: Tensor) -> Tensor:
        """Crop pixels per cell, [2]. UDP measures from the first pixel's centre to the last one's."""
        size = self.size_px(maps)
        cells = maps.new_tensor([maps.shape[-1], maps.shape[-2]])
        return (size - 1) / (cells - 1) if self.crop == "udp" else size / cells


CONTAINERS = (
    "state_dict",
    "model",
    "network",
)  # where trainers put the weights among their other things
SHOWN = 4  # keys named in an error, of each kind


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.npz`, `.safetensors` or torch checkpoint, under the file's own key names;
    of an `.onnx` file under those of `ordered_weights`. Containers are opened, `module.` of
    data-parallel training is taken off, and floats become float32."""
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a checkpoint file" if path.is_dir() else "does not exist"
        raise UserError(f"checkpoint {path} {what}.")
    if path.suffix == ".npz":
        arrays = read_npz(path, "Expected a checkpoint: named arrays of numbers.")
        wrong = [
            name
            for name, value in arrays.items()
            if value.dtype.kind not in "fiub" or value.dtype.itemsize > 8
        ]
        if wrong:
            raise UserError(
                f"{path} is not a checkpoint: {few(wrong)} hold something other than numbers."
            )
        whole = {
            name: value.astype(np.int64)
            for name, value in arrays.items()
            if value.dtype.kind == "u"
        }
        state = {name: torch.from_numpy(value) for name, value in {**arrays, **whole}.items()}
    elif path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            state = load_file(path)
        except (SafetensorError, OSError, ValueError, KeyError, RuntimeError, TypeError) as error:
            raise UserError(f"{path} is not a readable .safetensors file: {error}") from error
    elif path.suffix == ".onnx":
        from pose2d.base.onnx_weights import ordered_weights, read_onnx

        state = {
            key: torch.from_numpy(value) for key, value in ordered_weights(read_onnx(path)).items()
        }
    else:
        state = _weights_in(read_torch(path), path)
    if all(key.startswith("module.") for key in state):
        state = {key.removeprefix("module."): value for key, value in state.items()}
    return {
        key: value.float() if torch.is_floating_point(value) else value
        for key, value in state.items()
    }


def _weights_in(content: object, path: Path) -> dict[str, Tensor]:
    """The state dict inside whatever a trainer saved."""
    inner = content
    for _ in range(2):  # a container may sit in another one
        if isinstance(inner, Mapping):  # a trainer may keep tensors of its own beside the container
            inner = next(
                (inner[key] for key in CONTAINERS if isinstance(inner.get(key), Mapping)), inner
            )
    if isinstance(inner, Mapping) and any(isinstance(value, Tensor) for value in inner.values()):
        return {key: value for key, value in inner.items() if isinstance(value, Tensor)}
    holds = (
        few(map(str, content), 8)
        if isinstance(content, Mapping)
        else f"one {type(content).__name__}"
    )
    raise UserError(
        f"{path} is no checkpoint: it holds {holds}. Expected named tensors, or a dictionary with them under "
        f"{', '.join(map(repr, CONTAINERS))}."
    )


def few(words: Iterable[str], shown: int = SHOWN, separator: str = ", ") -> str:
    words = list(words)
    return separator.join(words[:shown]) + (f"{separator}..." if len(words) > shown else "")


def compare(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """How `state` differs from a network's own state dict, in words; empty where it does not. Batch
    counters may lack: old files have none."""
    missing = [
        key for key in wanted if key not in state and not key.endswith("num_batches_tracked")
    ]
    shapes = {
        key: (list(state[key].shape), list(value.shape))
        for key, value in wanted.items()
        if key in state
    }
    reshaped = [
        f"{key} is {got}, expected {want}" for key, (got, want) in shapes.items() if got != want
    ]
    unknown = [key for key in state if key not in wanted]
    parts = (
        f"{len(missing)} tensors are missing ({few(missing)})" if missing else "",
        f"{len(reshaped)} have another shape ({few(reshaped, separator='; ')})" if reshaped else "",
        f"{len(unknown)} are unknown ({few(unknown)})" if unknown else "",
    )
    return ", ".join(part for part in parts if part)


# What trainers keep beside the weights: mmpose's image normalisation and the grid of its
# soft-argmax; the flow of RLE and Poseur, a density that only their losses need.
_BYSTANDERS = re.compile(
    r"^data_preprocessor\.|\.linspace_[xy]$|(^|\.)((enc|dec)_)?flow(_model)?\."
)


def is_mmpose(state: Mapping[str, Tensor]) -> bool:
    """mmpose puts every network under `backbone.` and `head.` (0.x: `keypoint_head.`)."""
    return any(key.startswith(("head.", "keypoint_head.")) for key in state) and any(
        key.startswith("backbone.") for key in state
    )


def renamed(state: Mapping[str, Tensor], *rules: tuple[str, str]) -> dict[str, Tensor]:
    """The same tensors, every rule (pattern, replacement) applied to their names; bystanders are
    left out.
    """
    names = {key: key for key in state if not _BYSTANDERS.search(key)}
    for pattern, replacement in rules:
        names = {key: re.sub(pattern, replacement, name) for key, name in names.items()}
    return {name: state[key] for key, name in names.items()}


def _stand_in(full_name: str, make: Callable[..., Any] = object) -> type:
    """A class that answers to the full name a pickle asks for. Of it comes what `make` makes, or an
    object that keeps nothing and does nothing."""
    module, _, name = full_name.rpartition(".")
    members = {
        "__new__": lambda cls, *given: object.__new__(cls) if make is object else make(*given),
        "__init__": lambda self, *_: None,
        "__setstate__": lambda self, _: None,
    }
    return type(name, (), {"__module__": module, "__qualname__": name, **members})


def _numpy_values() -> list[Any]:
    """Arrays, scalars and their types: plain data, whose construction runs no code of the file's."""
    multiarray = importlib.import_module(
        ("numpy._core" if hasattr(np, "_core") else "numpy.core") + ".multiarray"
    )
    makers = [
        _stand_in(f"numpy.{core}.multiarray.{name}", getattr(multiarray, name))
        for core in ("core", "_core")  # NumPy 1's and NumPy 2's name of the same module
        for name in ("_reconstruct", "scalar")
    ]
    kinds = {
        type(np.dtype(code))
        for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?SU"
    }
    return [*makers, np.ndarray, np.dtype, *kinds]


_HARMLESS = [
    *_numpy_values(),
    _stand_in("mmengine.logging.history_buffer.HistoryBuffer"),
    _stand_in(
        "builtins.getattr"
    ),  # a HistoryBuffer names its methods so; the real one is never called
]


def read_torch(path: Path) -> object:
    """What `torch.save` wrote, tensors on the CPU. Torch's list of safe names is longer for a
    moment.
    """
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals(_HARMLESS)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # a foreign or cut file fails in many ways: zip, pickle, storage, end of file
        refused = (
            re.search(r"GLOBAL ([\w.]+)", str(error))
            if isinstance(error, pickle.UnpicklingError)
            else None
        )
        if refused is None:
            raise UserError(
                f"{path} is not a torch checkpoint, or it is damaged or cut off."
            ) from error
        raise UserError(
            f"{path} was refused: beside tensors it holds {refused[1]}, and loading that could run code. "
            "If you know where the file comes from, open it there and save its weights alone: "
            "torch.save(file['state_dict'], ...)."
        ) from error
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)


Engine = Literal["onnx", "torch"]
Network = TypeVar("Network", bound=nn.Module)
_log = logging.getLogger(__name__)

# The first part of every name -> the module in pose2d/models that has it; in the order `fitmesh
# models` shows.
FAMILIES = {
    name: name for name in ("rtmpose", "movenet", "sbl", "hrnet", "vitpose", "rle", "ipr", "poseur")
}
FAMILIES["ipr"] = "sbl"

WEIGHTS = Path(__file__).parents[1] / "weights"  # of what ships with the package
_registered: dict[str, ModelCard] = {}
ENTRY_POINTS = "fitmesh.models"


def register(card: ModelCard) -> None:
    """Make a network of your own known by its name, everywhere in this process; again replaces it.
    Other processes (`--jobs`, Ray) know it when the file that registers it is named as a plug-in
    (`use_plugin`)."""
    if not isinstance(card, ModelCard):
        raise UserError(f"pose2d.register takes a pose2d.ModelCard; got {type(card).__name__}.")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", card.name):
        raise UserError(
            f"a model's name has letters, digits, '-', '_' and '.' only; got {card.name[:80]!r}."
        )
    if _shipped(card.name) is not None:
        raise UserError(
            f"{card.name} is the name of a network that ships with fitmesh: choose another one."
        )
    _registered[card.name] = card


def use_plugin(path: str | Path | None) -> None:
    """Run a Python file that calls `register`, once in a process. Its folder can be imported from,
    as in a script.
    """
    if path is None:
        return
    file = Path(path).resolve()
    if file.suffix != ".py" or not file.is_file():
        raise UserError(
            f"{path}: expected a Python file (.py) that calls pose2d.register(card) (docs/own-network.md)."
        )
    name = file.stem
    loaded = [getattr(sys.modules.get(one), "__file__", None) or "/" for one in ("__main__", name)]
    if file in [Path(one).resolve() for one in loaded]:
        return  # the script itself, or run before
    other = None if name in sys.modules else importlib.util.find_spec(name)
    if name in sys.modules or (other is not None and other.origin != str(file)):
        raise UserError(
            f"{path}: there is a module called {name} already. Give the file another name."
        )
    sys.path.append(str(file.parent))
    importlib.invalidate_caches()
    before = dict(_registered)
    try:
        importlib.import_module(name)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{path} does not run: {type(error).__name__}: {error}") from error
    if _registered == before:
        raise UserError(
            f"{path} registers no network: call pose2d.register(card) in it (docs/own-network.md)."
        )


@cache
def _installed() -> dict[str, Any]:
    """Entry points by name, not loaded yet."""
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _entry_point(name: str) -> ModelCard | None:
    point = _installed().get(name)
    if point is None or name in _registered:
        return _registered.get(name)
    try:
        loaded = point.load()
    except Exception as error:
        raise UserError(
            f"the installed model {name} ({point.value}) does not load: {error}"
        ) from error
    if not isinstance(loaded, ModelCard) or loaded.name != name:
        raise UserError(
            f"the entry point {name} ({point.value}) must be a pose2d.ModelCard of that name."
        )
    register(loaded)
    return loaded


def _shipped(name: str) -> ModelCard | None:
    family = name.split("-")[0]
    return _family(family).get(name) if family in FAMILIES else None


@cache
def _family(name: str) -> dict[str, ModelCard]:
    cards: list[ModelCard] = importlib.import_module(f"pose2d.models.{FAMILIES[name]}").CARDS
    return {card.name: card for card in cards if card.name.startswith(f"{name}-")}


def cards() -> dict[str, ModelCard]:
    """Every model, by name. Imports all of them."""
    for name in _installed():
        _entry_point(name)
    return {
        name: card for family in FAMILIES for name, card in _family(family).items()
    } | _registered


def names() -> list[str]:
    """Every model name."""
    return list(cards())


def card(name: str) -> ModelCard:
    """The facts of one model: skeleton, input size, parameters, licence, source."""
    known = _shipped(name) or _entry_point(name)
    if known is None:
        close = difflib.get_close_matches(name, names(), n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise UserError(
            f"unknown pose model {name!r}.{hint} `fitmesh models` lists every name; a network of your own needs "
            "--plugin FILE.py, in worker processes too."
        )
    return known


def module_of(name: str) -> str:
    """The module that has a model's code, for cache keys."""
    if _shipped(name) is not None:
        return f"pose2d.models.{FAMILIES[name.split('-')[0]]}"
    build: Any = card(name).build
    while isinstance(build, partial):
        build = build.func
    try:
        code_files(build.__module__)
    except ValueError as error:
        raise UserError(
            f"the network {name} was typed in, and results state the code they were made with: write it to a file, "
            "such as my_network.py, and import that."
        ) from error
    return str(build.__module__)


def load(name: str, checkpoint: str | Path | None = None, engine: Engine = "onnx") -> PoseModel:
    """The network of that name in eval mode, with embedded or fetched weights (`pose2d.hub`), or
    those of `checkpoint`. engine: what computes the features on a CPU, ONNX Runtime where there is
    a graph; other devices always use torch."""
    wanted = card(name)
    checkpoint = checkpoint or fetched(name)
    if checkpoint is None and wanted.embedded is None:
        raise UserError(
            f"{name} ships no weights: pass a checkpoint, from {wanted.source} (licence: {wanted.licence})."
        )
    start = time.perf_counter()
    path = WEIGHTS / str(wanted.embedded) if checkpoint is None else checkpoint
    model = _built(wanted)
    fill(model, path, name)
    model.eval().requires_grad_(False)
    if engine == "onnx" and wanted.graph is not None:
        model.use_graph(wanted.graph)
    _log.debug("%s loaded from %s in %.2f s", name, path, time.perf_counter() - start)
    return model


def _built(wanted: ModelCard) -> PoseModel:
    if wanted.name in _registered:  # may compute tensors that no checkpoint has
        model = wanted.build()
        if not isinstance(model, PoseModel):
            raise UserError(
                f"build() of the card {wanted.name} must return a pose2d.PoseModel; got {type(model).__name__}."
            )
        for name in ("skeleton", "input_wh"):
            if getattr(model, name, None) != getattr(wanted, name):
                raise UserError(f"the network {wanted.name} and its card differ in {name}.")
        return model
    return unfilled(wanted.build)


def unfilled(build: Callable[[], Network]) -> Network:
    """A network of zeros, which a file will fill: no time is spent on random numbers."""
    with torch.device("meta"):
        model = build()
    # As `to_empty`, whose `empty_like` of a meta tensor imports a computer algebra system, for half
    # a second.
    return model._apply(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))


def fetched(name: str) -> Path | None:
    """The checkpoint that `fitmesh models get` left for a network that ships none; None: there is
    none, or no need.
    """
    if card(name).embedded is not None:
        return None
    from pose2d.hub import cached

    kept = cached(name)
    return None if kept is None else kept[0]


def fill(model: Any, path: str | Path, name: str) -> None:
    """Load `path` into `model`, which has a `convert` as `PoseModel` has, or say which keys do not
    fit and what the file looks like instead."""
    state = read_state(path)
    converted = model.convert(state)
    if mismatch := compare(model.state_dict(), converted):
        names = recognize(state)
        looks = f"It looks like no model known here; its {len(state)} keys begin with {few(state)}."
        if names:
            looks = f"The file looks like {' or '.join(names)}: load it under that name."
        raise UserError(f"{path} does not fit {name}: {mismatch}. {looks}")
    model.load_state_dict(converted, strict=False)  # batch counters may lack


def recognize(state: Mapping[str, Tensor]) -> list[str]:
    """Every model whose tensors are exactly those of a file, by names and shapes. Only models of
    about the file's size are tried. Statistics do not count, nor what ViTPose+ has beside one data
    set."""
    beside = re.compile(r"running_|num_batches_tracked|\.experts\.|^associate_")
    weights = sum(value.numel() for key, value in state.items() if not beside.search(key))
    shipped = (card for family in FAMILIES for card in _family(family).values())
    near = [card for card in shipped if abs(card.parameters - weights) < 0.1 * weights]
    with torch.device("meta"):
        models = ((card.name, card.build()) for card in near)
        return [
            name for name, model in models if not compare(model.state_dict(), model.convert(state))
        ]
