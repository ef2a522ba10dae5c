"""`fitmesh train-ccnet`: read people, run the network, train the head, evaluate it, write the files."""

import json
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path

from rich.console import Console

import ccnet
import pose2d
from ccnet import losses
from ccnet.closed_form import fit_closed_form
from ccnet.comparison import compare_sources, draw_occlusion, draw_plots
from ccnet.data.datasets import Split, read_split, split_names
from ccnet.data.examples import (
    CachedExamples,
    Examples,
    StreamedExamples,
    bytes_per_person,
    fits_on_disk,
    make_examples,
    passes,
)
from ccnet.data.observations import observe_cached
from ccnet.distributed import ProcessGroup, process_group
from ccnet.heads import files
from ccnet.heads.head import CalibrationHead
from ccnet.predictions import predictions_from
from ccnet.settings import TrainingSettings
from ccnet.train import new_head, train
from fitmesh.coco.features import fill_by_workers
from fitmesh.coco.request import TrainCcnetRequest
from fitmesh.progress_bar import bar
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.folder_lock import folder_lock
from pose2d.base.threads import use_threads
from pose2d.models.base import PoseModel


def run(request: TrainCcnetRequest, settings: TrainingSettings) -> None:
    """Train, save, evaluate."""
    if settings.loss and settings.loss not in losses.NAMES:
        raise UserError(f"unknown loss {settings.loss!r}: choose one of {', '.join(losses.NAMES)}.")
    if request.jobs is not None and request.ray is not None:
        raise UserError("--jobs is for processes of this machine; Ray has its own: leave one of --jobs and --ray out.")
    use_threads(request.threads)
    with process_group(request.device) as group:
        console = Console(quiet=not group.is_main, stderr=True)
        model = pose2d.load(request.model, request.checkpoint).to(group.device)
        settings = replace(settings, head=settings.head or files.default_kind(model))
        settings = replace(settings, loss=settings.loss or losses.default(settings.head))
        splits = [read_split(request.data, name, model.skeleton) for name in request.train]
        eval_splits = _eval_splits(request, model)
        people = [person for split in splits for person in split.people]
        head = new_head(model, settings).to(group.device)
        every = passes(settings)
        need = bytes_per_person(model, head, people)
        _print_plan(console, need, len(people), len(every), settings)
        with folder_lock(request.out) if group.is_main else nullcontext():
            if request.jobs is not None or request.ray is not None:
                if group.world_size > 1:
                    raise UserError("--jobs and --ray have no effect under torchrun, whose processes share the work.")
                if fits_on_disk(model, head, people, settings):
                    fill_by_workers(console, request, settings, len(people))
            with bar(console, "pose network", len(people) * len(every) // group.world_size) as step:
                examples = make_examples(model, head, people, settings, group, request.cache, step)
            if isinstance(examples, StreamedExamples):
                console.print("The features exceed --cache-gb: the network runs in every epoch.")
            _train(console, head, examples, settings, group, request.out)
            if group.is_main:
                about = files.describe(
                    head,
                    model,
                    request.model,
                    training={**asdict(settings), "splits": list(request.train), "people": len(people)},
                    **_closed_form_record(examples, model),
                )
                request.out.mkdir(parents=True, exist_ok=True)
                files.save(head, request.out / "ccnet.safetensors", about)
                _evaluate(console, model, eval_splits, request, group)
            group.barrier()


def _eval_splits(request: TrainCcnetRequest, model: PoseModel) -> dict[str, Split]:
    """The splits to evaluate on, by role."""
    wanted = {"validation": request.validation, "test": request.test}
    if request.test is None and request.validation is None:
        usual = "valid" if model.skeleton == pose2d.MPII16 else "val2017"
        wanted["test"] = usual if usual in split_names(request.data, model.skeleton) else None
    return {role: read_split(request.data, name, model.skeleton) for role, name in wanted.items() if name}


def _print_plan(console: Console, need: int, people: int, times: int, settings: TrainingSettings) -> None:
    total = need * people * times
    console.print(
        f"{people} people, {times} passes, {need / 1e3:.1f} kB a crop: {total / 1e9:.2f} GB on disk "
        f"(budget {settings.cache_bytes / 1e9:.0f} GB)."
    )


def _train(
    console: Console,
    head: CalibrationHead,
    examples: Examples,
    settings: TrainingSettings,
    group: ProcessGroup,
    out: Path,
) -> None:
    steps = settings.epochs * examples.batches(settings.batch)
    last = 0
    with bar(console, "calibration head", steps) as advance:

        def progress(step: int, steps: int, loss: float) -> None:
            nonlocal last
            advance(step - last)
            last = step

        train(head, examples, settings, group, out / "training.safetensors", progress)


def _closed_form_record(examples: Examples, model: PoseModel) -> dict[str, float]:
    """What the closed form needs, measured on the training people where their observations are at hand."""
    if not isinstance(examples, CachedExamples):
        return {}
    o = examples.observations
    width, share = fit_closed_form(o.score, o.sigma_px, o.crop_area_px2, o.area_share, o.labelled_oks, model)
    return {"area_share": share, "target_cells": width}


def _evaluate(
    console: Console, model: PoseModel, splits: dict[str, Split], request: TrainCcnetRequest, group: ProcessGroup
) -> None:
    """The saved head, loaded again, on every split that was asked for."""
    head = ccnet.load(request.out / "ccnet.safetensors").to(group.device)
    metrics = {}
    for role, split in splits.items():
        with bar(console, split.name, len(split.people)) as step:
            observations = observe_cached(model, head, split.people, request.cache, step)
        predictions = predictions_from(observations, split, head, model)
        table = compare_sources(split, predictions)
        metrics[role] = {"split": split.name, "people": len(split.people), **table.as_dict()}
        console.print(table.as_rich(f"{request.model} on {split.name}"))
        draw_plots(request.out / role, split, predictions)
        metrics[role]["occlusion"] = draw_occlusion(request.out / role, split, model, head)
    with atomic_file(request.out / "metrics.json") as path:
        path.write_text(json.dumps(metrics, indent=1) + "\n")
