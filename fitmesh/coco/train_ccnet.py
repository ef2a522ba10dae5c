"""`fitmesh train-ccnet`: read people, run the network, train the head, evaluate it, write the
files.
"""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import ccnet
import pose2d
from ccnet import confidence, losses
from ccnet.comparison import Evaluation, check_plots, compare_sources, draw_plots
from ccnet.data.datasets import Split, read_split, split_names, usual_split
from ccnet.heads.head import with_features
from ccnet.predicted_people import USUAL_SOURCES, fit_width, predict_split
from ccnet.train import (
    RECIPES,
    TrainingSettings,
    bytes_per_person,
    make_examples,
    new_head,
    passes,
    train,
)
from fitmesh.coco.eval_coco import describe, with_occlusion_test, write_metrics
from fitmesh.options.measure import TrainCcnetOptions
from fitmesh.ui.events import Reporter, on_stderr, print_tables, to_log
from fitmesh.ui.trouble import count
from pose2d.base.distributed import ProcessGroup, process_group
from pose2d.base.errors import UserError
from pose2d.base.files import check_writable
from pose2d.base.folder_lock import folder_lock
from pose2d.base.threads import use_threads
from pose2d.models.base import PoseModel
from pose2d.models.registry import use_plugin
from pose2d.skeletons import MPII16

# (0.3 / 0.02)^2 people in each tenth of the confidence: OKS scatters by 0.3 between people whose
# confidence is alike, and the closed form is off by 0.04, half of which a head must tell. (A trial
# with 225: ECE 0.050, untrained 0.038.)
FEW_PEOPLE = 2000


def settings_of(recipe: str, **given: Any) -> TrainingSettings:
    """The recipe's settings, but for what was given: whatever is not None."""
    if recipe not in RECIPES:
        raise UserError(f"unknown recipe {recipe!r}: choose one of {', '.join(RECIPES)}.")
    return replace(
        RECIPES[recipe], **{name: value for name, value in given.items() if value is not None}
    )


def run(request: TrainCcnetOptions, settings: TrainingSettings) -> dict[str, Evaluation]:
    """Train, save, evaluate: what was found on each split, by role. Under torchrun every process
    returns them.
    """
    use_plugin(request.plugin)
    if request.report or request.occlusion_test:
        check_plots()
    use_threads(request.threads)
    with process_group(request.device) as group:
        reporter = Reporter(on_stderr() if group.is_main else to_log)
        model = with_features(
            pose2d.load(request.model, request.checkpoint).to(group.device), settings.features
        )
        # Other features than the penultimate are read by one layer always.
        one_layer = not settings.head and (
            settings.features != "penultimate" or settings.head_width
        )
        if settings.head == "paper" or one_layer:
            settings = replace(settings, head=confidence.paper_kind(model))
        settings = replace(settings, head=settings.head or confidence.fitting_kinds(model)[0])
        settings = replace(settings, loss=settings.loss or losses.default(settings.head))
        if settings.target == "pck" and model.skeleton != MPII16:
            raise UserError(
                f"--target pck is for MPII, whose people have head sizes; {request.model} finds other keypoints."
            )
        names = request.train or (usual_split("train", model.skeleton),)
        splits = [read_split(request.data, name, model.skeleton) for name in names]
        wanted = {"validation": request.validation, "test": request.test}  # by role
        if request.test is None and request.validation is None:
            usual = usual_split("test", model.skeleton)
            wanted["test"] = usual if usual in split_names(request.data, model.skeleton) else None
        eval_splits = {
            role: read_split(request.data, name, model.skeleton)
            for role, name in wanted.items()
            if name
        }
        everybody = [person for split in splits for person in split.people]
        people = [p for p in everybody if settings.target == "oks" or math.isfinite(p.head_px)]
        if not people:
            raise UserError(
                "--target pck: nobody to train on has a head size (upper neck and head top labelled)."
            )
        if len(people) < len(everybody):
            reporter.say(
                f"{len(everybody) - len(people)} of {len(everybody)} people have no head size: left out."
            )
        head = new_head(model, settings, request.model).to(group.device)
        every = passes(settings)
        if group.is_main:
            check_writable(request.out)
        need = bytes_per_person(model, head, people)
        reporter.say(
            f"{count(len(people), 'people')}, {count(len(every), 'passes')}, {need / 1e3:.1f} kB a crop: "
            f"{need * len(people) * len(every) / 1e9:.2f} GB on disk (budget {settings.cache_bytes / 1e9:.0f} GB)."
        )
        with folder_lock(request.out) if group.is_main else nullcontext():
            with reporter.stage(
                "pose network", len(people) * len(every) // group.world_size, "people"
            ) as step:
                examples = make_examples(
                    model, head, people, settings, group, request.cache_folder, step
                )
            if examples.streamed:
                reporter.say("The features exceed --cache-gb: the network runs in every epoch.")
            steps = settings.epochs * examples.batches(settings.batch)
            with reporter.stage("calibration head", steps, "steps") as advance:
                checkpoint = request.out / "training.pt"
                train(
                    head, examples, settings, group, checkpoint, lambda steps, loss: advance(steps)
                )
            if group.is_main:
                typical = examples.sample()
                share = float(typical.area_share.mean())
                request.out.mkdir(parents=True, exist_ok=True)
                confidence.save(
                    head,
                    request.out / "ccnet.safetensors",
                    model,
                    request.model
                    + (
                        f" ({settings.features} features)"
                        if settings.features != "penultimate"
                        else ""
                    ),
                    training={**asdict(settings), "splits": list(names), "people": len(people)},
                    area_share=share,
                    target_cells=fit_width(typical, share, model),
                )
            group.barrier()
            evaluations = _evaluate(reporter, model, eval_splits, request, group)
            group.barrier()
        _say_how(reporter, request, settings, len(people), evaluations)
    return evaluations


def _say_how(
    reporter: Reporter,
    request: TrainCcnetOptions,
    settings: TrainingSettings,
    people: int,
    evaluations: Mapping[str, Evaluation],
) -> None:
    """Where the head is, how to use it, and whether to."""
    if people < FEW_PEOPLE:
        reporter.warn(
            f"trained on {count(people, 'people')}: a head needs some {FEW_PEOPLE:,} to be sure of better calibration "
            "than the closed form, which needs none (--confidence closed-form)."
        )
    for one in evaluations.values():
        for text in worse_than_untrained(one):
            reporter.warn(text)
    if not evaluations:
        reporter.warn(
            "nobody was held out, so the head was not measured: name a split with --test."
        )
    head = request.out / "ccnet.safetensors"
    given = [
        ("plugin", request.plugin),
        ("pose-model", request.model),
        ("checkpoint", request.checkpoint),
    ]
    options = " ".join(
        f"--{name} {value}" for name, value in [*given, ("ccnet", head)] if value is not None
    )
    usable = settings.features == "penultimate"
    use = (
        f"use it: fitmesh run {options} --video clip.mp4"
        if usable
        else "`run` takes penultimate features only"
    )
    reporter.say(f"the head is {head}; {use}")


def worse_than_untrained(evaluation: Evaluation) -> list[str]:
    """Which confidence that needs no training is better calibrated on the held-out people."""
    levels = ("pck_keypoint", "keypoint", "person")
    ece = {
        name: next(of[x]["ece"] for x in levels if of.get(x))
        for name, of in evaluation.figures.items()
    }
    return [
        f"on {evaluation.split} the head's confidence is worse than {name}: ECE {ece['ccnet']:.3f} against {of:.3f}"
        f". Train on more people, or use --confidence {name}."
        for name, of in ece.items()
        if name in ("closed-form", "raw") and of < ece["ccnet"]
    ]


def _evaluate(
    reporter: Reporter,
    model: PoseModel,
    splits: dict[str, Split],
    request: TrainCcnetOptions,
    group: ProcessGroup,
) -> dict[str, Evaluation]:
    """The saved head, loaded again, on every split that was asked for; all figures first, then the
    occlusion tests.
    """
    head = ccnet.load(request.out / "ccnet.safetensors").to(group.device)
    about = describe(request.model, request.checkpoint, model, head)
    evaluations: dict[str, Evaluation] = {}
    for role, split in splits.items():
        with reporter.stage(split.name, len(group.share(split.people)), "people") as step:
            predictions = predict_split(model, head, split, progress=step, group=group).only(
                USUAL_SOURCES
            )
        evaluations[role] = compare_sources(split, predictions)
        if request.report and group.is_main:
            print_tables(evaluations[role].as_rich(f"{request.model} on {split.name}"))
            draw_plots(request.out / role, predictions, evaluations[role])

    def write() -> None:
        """metrics.json: what was trained, and the figures of each split by its role."""
        write_metrics(
            request.out, {**about, **{role: one.as_dict() for role, one in evaluations.items()}}
        )

    if group.is_main:
        write()
        if request.occlusion_test:
            for role, split in splits.items():
                evaluations[role] = with_occlusion_test(
                    evaluations[role], split, model, head, request.out / role, reporter
                )
            write()
    return evaluations
