"""The cells of a table: evaluated networks and trained heads. Finished cells are cached in files,
so a table resumes."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import ccnet
import pose2d
from ccnet.data.datasets import read_split, usual_split
from fitmesh.coco import eval_coco, train_ccnet
from fitmesh.options.measure import EvalCocoOptions, PaperOptions, TrainCcnetOptions
from fitting.init import REGRESSORS
from pose2d.base.caching import CacheKey, code_digest, content_digest, weights_digest
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import plain_value, read_json
from pose2d.skeletons import Skeleton


@dataclass(frozen=True)
class GivenModel:
    """A pose network, its weights and its calibration head."""

    name: str
    checkpoint: Path | None = None  # None: embedded
    head: str | None = None  # file, or the name of an embedded head; None: to be trained

    @cached_property
    def weights(self) -> str:
        """Return a digest for cache keys, of embedded weights too, since another release may embed
        others.
        """
        if self.checkpoint is not None:
            return content_digest([self.checkpoint])
        return weights_digest(pose2d.load(self.name).state_dict())


@dataclass(frozen=True)
class PaperRequest(PaperOptions):
    """The options with the networks that they name."""

    data: Path = Path()
    models: tuple[GivenModel, ...] = ()
    # Checkpoints of body regressors (spin, cliff-hr48, ..).
    starts: Mapping[str, Path] = field(default_factory=dict)


def given_models(
    names: tuple[str, ...], checkpoints: tuple[str, ...], heads: tuple[str, ...]
) -> tuple[tuple[GivenModel, ...], dict[str, Path]]:
    """Return the pose networks of NAME and NAME=FILE, and checkpoints of body regressors by name."""
    files = {name: Path(file) for name, file in map(_pair, checkpoints)}
    head_of = dict(map(_pair, heads))
    for path in (*files.values(), *map(Path, head_of.values())):
        if not path.exists():
            raise UserError(f"no file at {path}.")
    starts = {name: files.pop(name) for name in list(files) if name in REGRESSORS}
    models = []
    for name in dict.fromkeys((*names, *files)):
        card = pose2d.card(name)
        if name not in files and card.embedded is None:
            raise UserError(
                f"{name} ships no weights: pass --checkpoint {name}=FILE, from {card.source}."
            )
        embedded = name if name not in files and name in ccnet.embedded() else None
        models.append(GivenModel(name, files.get(name), head_of.pop(name, embedded)))
    if head_of:
        raise OptionError(
            f"--head names {next(iter(head_of))}, but no --model or --checkpoint does."
        )
    return tuple(models), starts


def _pair(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise UserError(
            f"{text!r} is not NAME=FILE, for example "
            "sbl-resnet50-256x192=pose_resnet_50_256x192.pth.tar."
        )
    return name, file


Found = Mapping[str, Any]  # the content of metrics.json for one split


class Cells:
    """The cells of a table on COCO, MPII or COCO-WholeBody. The constructor raises UserError for
    names, checkpoints, heads, annotations and images that do not fit, before any work is done.
    """

    def __init__(
        self, request: PaperRequest, skeletons: tuple[Skeleton, ...], trains: bool
    ) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError(
                "`fitmesh paper` runs in one process. Under torchrun train the heads (`fitmesh "
                "train-ccnet --recipe paper`), then pass them here by --head NAME=FILE."
            )
        self.request = request
        self.models = [
            model for model in request.models if pose2d.card(model.name).skeleton in skeletons
        ]
        if not self.models:
            names = " or ".join(skeleton.name for skeleton in skeletons)
            raise UserError(
                f"no network with the keypoints of {names}: pass --checkpoint NAME=FILE, or "
                "--model NAME for one that ships with its weights. `fitmesh models` lists the names."
            )
        for model in self.models:
            network = pose2d.load(model.name, model.checkpoint)
            if model.head is not None:
                ccnet.check_fits(ccnet.load(model.head), network, model.name)
        trains = trains or any(model.head is None for model in self.models)
        self.annotations: dict[Skeleton, str] = {}  # digests of those that figures rest on
        for skeleton in dict.fromkeys(pose2d.card(model.name).skeleton for model in self.models):
            train = (request.train or (usual_split("train", skeleton),)) if trains else ()
            splits = (request.test or usual_split("test", skeleton), *train)
            sources = [read_split(request.data, name, skeleton).source for name in splits]
            self.annotations[skeleton] = content_digest(sources)

    def head(self, model: GivenModel) -> str:
        """Return the head of the request or the embedded one; else one trained by the recipe."""
        return model.head or str(self.trained(model, self.request.recipe)[1])

    def trained(self, model: GivenModel, label: str, **changes: Any) -> tuple[Found, Path]:
        """Train a head by the recipe with changes. Returns its figures on the test split and its
        file.
        """
        request = self.request
        folder = self.request.out / "heads" / model.name / label
        settings = train_ccnet.settings_of(request.recipe, **changes)

        def make() -> Found:
            options = TrainCcnetOptions(
                data=request.data,
                model=model.name,
                checkpoint=model.checkpoint,
                plugin=request.plugin,
                out=folder,
                train=request.train,
                test=request.test,
                cache=request.out / "cache",
                occlusion_test=False,
                report=False,
                device=request.device,
                threads=request.threads,
            )
            return train_ccnet.run(options, settings)["test"].as_dict()

        file = folder / "ccnet.safetensors"
        plain = {key: value for key, value in asdict(settings).items() if key != "cache_bytes"}
        return self.cached(
            folder / "cell.json", model, plain, train_ccnet.__name__, make, file
        ), file

    def evaluated(
        self,
        model: GivenModel,
        head: str,
        confidence: tuple[str, ...] = (),
        plots: Path | None = None,
    ) -> Found:
        """Evaluate a network with a head on the test split; `plots` is the folder of its images."""
        request = self.request
        options = EvalCocoOptions(
            data=request.data,
            model=model.name,
            checkpoint=model.checkpoint,
            split=request.test,
            head=head,
            confidence=confidence,
            area_split=request.train[0]
            if request.train and eval_coco.PREDICTED in confidence
            else None,
            flip_test=request.flip_test,
            raw_threshold=request.raw_threshold,
            plugin=request.plugin,
            occlusion_test=False,
            out=plots,
            device=request.device,
            threads=request.threads,
        )
        digest = weights_digest(
            ccnet.load(head).state_dict()
        )  # by content: another release may embed another head
        settings = {
            "head": digest,
            "confidence": confidence,
            "flip_test": request.flip_test,
            "raw_threshold": request.raw_threshold,
            "plots": str(plots),
        }
        name = "-".join(["eval", model.name, digest, *confidence, *(["plots"] if plots else [])])
        path = request.out / "cells" / f"{name}.json"
        return self.cached(
            path,
            model,
            settings,
            eval_coco.__name__,
            lambda: eval_coco.run(options).as_dict(),
            plots,
        )

    def cached(
        self,
        path: Path,
        model: GivenModel,
        settings: Mapping[str, Any],
        code: str,
        make: Callable[[], Found],
        beside: Path | None = None,
    ) -> Found:
        """Return the content of `path` while nothing that it depends on has changed and `beside`
        exists; otherwise make it again.
        """
        inputs = {
            "weights": model.weights,
            "annotations": self.annotations[pose2d.card(model.name).skeleton],
        }
        key = CacheKey("paper", plain_value(settings), inputs, code_digest(code)).digest
        if path.is_file() and (beside is None or beside.exists()):
            content = read_json(path, "Delete it and run again.")
            if content.get("cache_key", "").value == key:
                return content.item("measured").object()
        measured = plain_value(make())
        with atomic_file(path) as temporary:
            temporary.write_text(
                json.dumps({"cache_key": key, "measured": measured}, indent=1) + "\n"
            )
        return dict(measured)
