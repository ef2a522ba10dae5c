"""`fitmesh train-ccnet`: read people, run the network, train the head, evaluate it, write files."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import ccnet
import pose2d
from ccnet import losses
from ccnet.areas import fit_width
from ccnet.comparison import Evaluation, check_plots, compare_sources, draw_plots
from ccnet.data.datasets import AnnotatedPerson, Split, read_split, split_names, usual_split
from ccnet.heads.files import save
from ccnet.heads.head import CalibrationHead
from ccnet.heads.kinds import fitting_kinds, paper_kind
from ccnet.paper.other_features import with_features
from ccnet.predicted_people import USUAL_SOURCES, predict_split
from ccnet.train import (
    RECIPES,
    Examples,
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
from pose2d.base.errors import OptionError, UserError
from pose2d.base.files import check_writable
from pose2d.base.folder_lock import folder_lock
from pose2d.base.threads import use_threads
from pose2d.models.base import PoseModel
from pose2d.models.registry import use_plugin
from pose2d.skeletons import MPII16

# (0.3 / 0.02)^2 people in each tenth of the confidence: OKS of equal confidence scatters by 0.3,
# and the closed form is off by 0.04, half of which a head must resolve. (A trial with 225: ECE 0.050,
# untrained 0.038.)
FEW_PEOPLE = 2000


def settings_of(recipe: str, **changes: Any) -> TrainingSettings:
    """Return the recipe's settings with the changes that are not None."""
    if recipe not in RECIPES:
        raise UserError(f"unknown recipe {recipe!r}: choose one of {', '.join(RECIPES)}.")
    changed = {name: value for name, value in changes.items() if value is not None}
    return replace(RECIPES[recipe], **changed)


def run(request: TrainCcnetOptions, settings: TrainingSettings) -> dict[str, Evaluation]:
    """Train a head, save it and evaluate it. Returns the figures of each split by its role; under
    torchrun in every process.
    """
    use_plugin(request.plugin)
    if request.report or request.occlusion_test:
        check_plots()
    use_threads(request.threads)
    with process_group(request.device) as group:
        reporter = Reporter(on_stderr() if group.is_main else to_log)
        network = pose2d.load(request.model, request.checkpoint).to(group.device)
        model = with_features(network, settings.features)
        settings = _complete_settings(settings, model)
        if settings.target == "pck" and model.skeleton != MPII16:
            raise OptionError(
                "--target pck is for MPII, whose people have head sizes; "
                f"{request.model} finds other keypoints."
            )
        train_names = request.train or (usual_split("train", model.skeleton),)
        people = _read_people(request, settings, model, train_names, reporter)
        eval_splits = _read_eval_splits(request, model)
        head = new_head(model, settings, request.model).to(group.device)
        all_passes = passes(settings)
        if group.is_main:
            check_writable(request.out)
        person_bytes = bytes_per_person(model, head, people)
        total_gb = person_bytes * len(people) * len(all_passes) / 1e9
        reporter.say(
            f"{count(len(people), 'people')}, {count(len(all_passes), 'passes')}, "
            f"{person_bytes / 1e3:.1f} kB a crop: {total_gb:.2f} GB on disk "
            f"(budget {settings.cache_bytes / 1e9:.0f} GB)."
        )
        with folder_lock(request.out) if group.is_main else nullcontext():
            crops = len(people) * len(all_passes) // group.world_size
            with reporter.stage("pose network", crops, "people") as step:
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
                training = {
                    **asdict(settings),
                    "splits": list(train_names),
                    "people": len(people),
                }
                _save_head(head, request, settings, model, examples, training)
            group.barrier()
            evaluations = _evaluate(reporter, model, eval_splits, request, group)
            group.barrier()
        _say_result(reporter, request, settings, len(people), evaluations)
    return evaluations


def _complete_settings(settings: TrainingSettings, model: PoseModel) -> TrainingSettings:
    """Return the settings with the kind of head and the loss that fit the model."""
    # Features other than the penultimate ones are always read by one layer.
    reads_others = settings.features != "penultimate" or settings.head_width
    if settings.head == "paper" or (not settings.head and reads_others):
        settings = replace(settings, head=paper_kind(model))
    settings = replace(settings, head=settings.head or fitting_kinds(model)[0])
    return replace(settings, loss=settings.loss or losses.default(settings.head))


def _read_people(
    request: TrainCcnetOptions,
    settings: TrainingSettings,
    model: PoseModel,
    names: Sequence[str],
    reporter: Reporter,
) -> list[AnnotatedPerson]:
    """Return the people of the training splits; for --target pck those with a head size."""
    splits = [read_split(request.data, name, model.skeleton) for name in names]
    annotated = [person for split in splits for person in split.people]
    if settings.target == "oks":
        return annotated
    people = [person for person in annotated if math.isfinite(person.head_px)]
    if not people:
        raise OptionError(
            "--target pck needs people with a head size (upper neck and head top labelled), and "
            f"{', '.join(names)} has none."
        )
    if len(people) < len(annotated):
        without = len(annotated) - len(people)
        reporter.say(f"{without} of {len(annotated)} people have no head size: left out.")
    return people


def _read_eval_splits(request: TrainCcnetOptions, model: PoseModel) -> dict[str, Split]:
    """Return the splits to evaluate on by role. The usual test split is the default, if it
    exists.
    """
    names = {"validation": request.validation, "test": request.test}
    if request.test is None and request.validation is None:
        test_split = usual_split("test", model.skeleton)
        if test_split in split_names(request.data, model.skeleton):
            names["test"] = test_split
    return {
        role: read_split(request.data, name, model.skeleton) for role, name in names.items() if name
    }


def _save_head(
    head: CalibrationHead,
    request: TrainCcnetOptions,
    settings: TrainingSettings,
    model: PoseModel,
    examples: Examples,
    training: Mapping[str, Any],
) -> None:
    """Write the head with its record, which holds what the closed form needs."""
    typical = examples.sample()
    share = float(typical.area_share.mean())
    name = request.model
    if settings.features != "penultimate":
        name += f" ({settings.features} features)"
    request.out.mkdir(parents=True, exist_ok=True)
    save(
        head,
        request.out / "ccnet.safetensors",
        model,
        name,
        training=training,
        area_share=share,
        target_cells=fit_width(typical, share, model),
    )


def _say_result(
    reporter: Reporter,
    request: TrainCcnetOptions,
    settings: TrainingSettings,
    people: int,
    evaluations: Mapping[str, Evaluation],
) -> None:
    """Say where the head is and how to use it; warn if another confidence is better."""
    if people < FEW_PEOPLE:
        reporter.warn(
            f"trained on {count(people, 'people')}: a head needs about {FEW_PEOPLE:,} to be better "
            "calibrated than the closed form, which needs none (--confidence closed-form)."
        )
    for evaluation in evaluations.values():
        for text in worse_than_untrained(evaluation):
            reporter.warn(text)
    if not evaluations:
        reporter.warn("the head was not measured: name a split of held-out people with --test.")
    head = request.out / "ccnet.safetensors"
    values = {
        "plugin": request.plugin,
        "pose-model": request.model,
        "checkpoint": request.checkpoint,
        "ccnet": head,
    }
    options = " ".join(f"--{name} {value}" for name, value in values.items() if value is not None)
    usage = "`run` takes penultimate features only"
    if settings.features == "penultimate":
        usage = f"use it: fitmesh run {options} --video clip.mp4"
    reporter.say(f"the head is {head}; {usage}")


def worse_than_untrained(evaluation: Evaluation) -> list[str]:
    """Return a warning for each untrained confidence that is better calibrated than the head."""
    levels = ("pck_keypoint", "keypoint", "person")
    ece = {
        name: next(source[level]["ece"] for level in levels if source.get(level))
        for name, source in evaluation.figures.items()
    }
    return [
        f"on {evaluation.split} the head's confidence is worse than {name}: ECE "
        f"{ece['ccnet']:.3f} against {error:.3f}. Train on more people, or use --confidence {name}."
        for name, error in ece.items()
        if name in ("closed-form", "raw") and error < ece["ccnet"]
    ]


def _evaluate(
    reporter: Reporter,
    model: PoseModel,
    splits: dict[str, Split],
    request: TrainCcnetOptions,
    group: ProcessGroup,
) -> dict[str, Evaluation]:
    """Evaluate the saved head, loaded again, on every split: all figures first, then the occlusion
    tests.
    """
    head = ccnet.load(request.out / "ccnet.safetensors").to(group.device)
    about = describe(request.model, request.checkpoint, model, head)
    evaluations: dict[str, Evaluation] = {}
    for role, split in splits.items():
        with reporter.stage(split.name, len(group.share(split.people)), "people") as step:
            predictions = predict_split(model, head, split, progress=step, group=group)
        predictions = predictions.only(USUAL_SOURCES)
        evaluations[role] = compare_sources(split, predictions)
        if request.report and group.is_main:
            print_tables(evaluations[role].as_rich(f"{request.model} on {split.name}"))
            draw_plots(request.out / role, predictions, evaluations[role])

    def write() -> None:
        """Write metrics.json: what was trained, and the figures of each split by its role."""
        by_role = {role: evaluation.as_dict() for role, evaluation in evaluations.items()}
        write_metrics(request.out, {**about, **by_role})

    if group.is_main:
        write()
        if request.occlusion_test:
            for role, split in splits.items():
                evaluations[role] = with_occlusion_test(
                    evaluations[role], split, model, head, request.out / role, reporter
                )
            write()
    return evaluations
