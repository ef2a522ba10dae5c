"""`fitmesh train-ccnet`: train a calibration head for a frozen pose model."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.commands.coco_options import Checkpoint, Data, Model, Threads
from fitmesh.signals import working


def train_ccnet(
    data: Data,
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for ccnet.safetensors, metrics.json and the images.")],
    checkpoint: Checkpoint = None,
    train: Annotated[
        list[str] | None, typer.Option(help="Split to train on; repeat for more.", show_default="train2017")
    ] = None,
    validation: Annotated[str | None, typer.Option(help="Split to compare settings on.")] = None,
    test: Annotated[str | None, typer.Option(help="Split to report on, once.", show_default="val2017 if there")] = None,
    head: Annotated[
        str | None,
        typer.Option(help="simcc, movenet, peaks, conv, gap-fc, fc or query.", show_default="what fits the model"),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="likelihood, mse, cross-entropy, aleatoric, ensemble or soap.",
            show_default="likelihood for simcc, mse for other heads",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(), limits.COUNT] = 8,
    lr: Annotated[float, typer.Option(help="Learning rate before it decays."), limits.LEARNING_RATE] = 1e-3,
    batch: Annotated[int, typer.Option(), limits.COUNT] = 128,
    weight_decay: Annotated[float, typer.Option(), limits.WEIGHT_DECAY] = 1e-3,
    person_weight: Annotated[
        float,
        typer.Option(help="Weight of the person's confidence beside the keypoints'; 0 as in the paper."),
        limits.LOSS_WEIGHT,
    ] = 3.0,
    augment: Annotated[
        int,
        typer.Option(help="Passes over randomly augmented crops, beside one over the crops as they are."),
        limits.PASSES,
    ] = 1,
    plain: Annotated[bool, typer.Option(help="Train on the crops as they are, too.")] = True,
    seed: Annotated[int, typer.Option(), limits.SEED] = 0,
    cache_gb: Annotated[
        float,
        typer.Option(help="Disk for features; if they take more, the network runs in every epoch."),
        limits.CACHE_GB,
    ] = 20.0,
    cache: Annotated[
        Path | None, typer.Option(help="Folder for features, to share between runs.", show_default="OUT/cache")
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 ...", show_default="cuda if present")] = None,
    threads: Threads = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Processes that run the pose network on shards of the people; they share --threads.",
            show_default="none but this one",
        ),
        limits.JOBS,
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Or the Ray cluster at this address; auto finds it, or starts Ray here (docs/scale.md)."),
    ] = None,
) -> None:
    """Train a calibration head for a frozen pose model, and evaluate it.

    A killed run resumes when started again with the same options. Start with
    `torchrun --nproc-per-node N -m fitmesh train-ccnet ...` to use N processes or GPUs.
    """
    from ccnet.settings import TrainingSettings
    from fitmesh.coco.request import TrainCcnetRequest
    from fitmesh.coco.train_ccnet import run

    settings = TrainingSettings(
        head=head or "",
        loss=loss or "",
        epochs=epochs,
        learning_rate=lr,
        batch=batch,
        weight_decay=weight_decay,
        person_weight=person_weight,
        seed=seed,
        plain_passes=int(plain),
        augmented_passes=augment,
        cache_bytes=int(cache_gb * 1e9),
    )
    request = TrainCcnetRequest(
        data=data,
        model=model,
        checkpoint=checkpoint,
        out=out,
        train=tuple(train or ("train2017",)),
        validation=validation,
        test=test,
        cache=cache or out / "cache",
        device=device,
        threads=threads,
        jobs=jobs,
        ray=ray,
    )
    with working():
        run(request, settings)
