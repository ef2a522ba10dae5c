"""The road of `fitmesh train-ccnet`: read people, run the network, train the head, measure it, leave the files."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

import ccnet
import pose2d
from ccnet import losses
from ccnet.closed_form_source import fit_closed_form
from ccnet.data.datasets import Split, read_split, split_names
from ccnet.data.examples import Examples, Kept, Streamed
from ccnet.data.gather import bytes_per_person, gather, observe_once, passes
from ccnet.data.observe import use_threads
from ccnet.data.processes import Crew, crew
from ccnet.heads import files
from ccnet.heads.head import Head
from ccnet.settings import Settings
from ccnet.sources import answers_of, draw, table
from ccnet.train import new_head, train
from fitmesh.coco.occlusion import show_occlusion
from fitmesh.progress_bar import bar
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.models.base import PoseModel


@dataclass(frozen=True)
class Request:
    """Where everything is."""

    data: Path
    model: str
    checkpoint: Path | None
    out: Path
    train: tuple[str, ...]
    choose: str | None
    test: str | None
    cache: Path
    device: str | None = None
    threads: int | None = None


def run(request: Request, settings: Settings) -> None:
    """Train, measure, save."""
    if settings.loss not in losses.NAMES:
        raise UserError(f"unknown loss {settings.loss!r}: choose one of {', '.join(losses.NAMES)}.")
    use_threads(request.threads)
    with crew(request.device) as here:
        console = Console(quiet=not here.leads, stderr=True)
        model = pose2d.load(request.model, request.checkpoint).to(here.device)
        settings = replace(settings, head=settings.head or files.default_kind(model))
        splits = [read_split(request.data, name, model.skeleton) for name in request.train]
        judges = _judges(request, model)
        people = [person for split in splits for person in split.people]
        head = new_head(model, settings).to(here.device)
        every = passes(settings)
        need = bytes_per_person(model, head, people, here.device)
        _say_plan(console, need, len(people), len(every), settings)
        with bar(console, "pose network", len(people) * len(every) // here.world) as step:
            examples = gather(model, head, people, settings, here, request.cache, step)
        if isinstance(examples, Streamed):
            console.print("The features do not fit the disk budget: the network runs in every epoch.")
        _teach(console, head, examples, settings, here, request.out)
        if here.leads:
            width, share = fit_closed_form(examples.observed, model) if isinstance(examples, Kept) else (2.0, 0.25)
            about = files.describe(
                head,
                model,
                request.model,
                training={**asdict(settings), "splits": list(request.train), "people": len(people)},
                area_share=share,
                target_cells=width,
            )
            request.out.mkdir(parents=True, exist_ok=True)
            files.save(head, request.out / "ccnet.safetensors", about)
            _measure(console, model, judges, request, here)
        here.wait()


def _judges(request: Request, model: PoseModel) -> dict[str, Split]:
    """The splits to measure on, by what they are for."""
    wanted = {"choose": request.choose, "test": request.test}
    if request.test is None and request.choose is None:
        usual = "valid" if model.skeleton == pose2d.MPII16 else "val2017"
        wanted["test"] = usual if usual in split_names(request.data, model.skeleton) else None
    return {role: read_split(request.data, name, model.skeleton) for role, name in wanted.items() if name}


def _say_plan(console: Console, need: int, people: int, times: int, settings: Settings) -> None:
    total = need * people * times
    console.print(
        f"{people} people, {times} passes, {need / 1e3:.1f} kB a crop: {total / 1e9:.2f} GB on disk "
        f"(budget {settings.cache_bytes / 1e9:.0f} GB)."
    )


def _teach(console: Console, head: Head, examples: Examples, settings: Settings, here: Crew, out: Path) -> None:
    steps = settings.epochs * examples.batches(settings.batch)
    last = 0
    with bar(console, "calibration head", steps) as advance:

        def progress(step: int, steps: int, loss: float) -> None:
            nonlocal last
            advance(step - last)
            last = step

        train(head, examples, settings, here, out / "training.safetensors", progress)


def _measure(console: Console, model: PoseModel, judges: dict[str, Split], request: Request, here: Crew) -> None:
    """The saved head, read back, on every split that was asked for."""
    head = ccnet.load(request.out / "ccnet.safetensors").to(here.device)
    metrics = {}
    for role, split in judges.items():
        with bar(console, split.name, len(split.people)) as step:
            observed = observe_once(model, head, split.people, here.device, request.cache, step)
        answers = answers_of(split, observed, head, model)
        found = table(split, answers)
        metrics[role] = {"split": split.name, "people": len(split.people), **found.as_dict()}
        console.print(found.as_rich(f"{request.model} on {split.name}"))
        draw(request.out / role, split, answers)
        metrics[role]["occlusion"] = show_occlusion(model, head, split, request.out / role)
    with atomic_file(request.out / "metrics.json") as path:
        path.write_text(json.dumps(metrics, indent=1) + "\n")
