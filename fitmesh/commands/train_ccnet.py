"""`fitmesh train-ccnet`: train a calibration head for a frozen pose model."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh import limits
from fitmesh.commands.coco_options import Checkpoint, Data, Device, Model, OcclusionTest, Threads
from fitmesh.ui.signals import working


def train_ccnet(
    data: Data,
    model: Model,
    out: Annotated[Path, typer.Option(help="Folder for ccnet.safetensors, metrics.json and the images.")],
    checkpoint: Checkpoint = None,
    train: Annotated[
        list[str] | None,
        typer.Option(help="Split to train on; repeat for more.", show_default="train2017, or MPII's train"),
    ] = None,
    validation: Annotated[str | None, typer.Option(help="Split to compare settings on.")] = None,
    test: Annotated[
        str | None, typer.Option(help="Split to report on, once.", show_default="val2017, or MPII's valid, if there")
    ] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="Defaults of the options below: fitmesh's own, or paper's (one layer, 2 epochs, no augmentation)."
        ),
    ] = "fitmesh",
    head: Annotated[
        str | None,
        typer.Option(
            help="simcc, movenet, peaks, conv, gap-fc, fc, query, or paper (one layer).",
            show_default="what fits the model",
        ),
    ] = None,
    head_width: Annotated[
        int | None,
        typer.Option(help="Width of a hidden layer in conv, gap-fc or fc.", show_default="none"),
        limits.WIDTH,
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="What the head reads: penultimate, shallow, output, or copy (the crop, by a copied trunk). `run` "
            "takes heads on penultimate features only.",
            show_default="penultimate",
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="likelihood, mse, cross-entropy, aleatoric, ensemble or soap.",
            show_default="likelihood for simcc, mse for other heads",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(help="What the confidence means: oks (expected OKS), or for MPII pck (probability of PCKh@0.5)."),
    ] = "oks",
    epochs: Annotated[int | None, typer.Option(show_default="8; paper: 2"), limits.COUNT] = None,
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate before it decays.", show_default="0.001"),
        limits.LEARNING_RATE,
    ] = None,
    batch: Annotated[int | None, typer.Option(show_default="128; paper: 32"), limits.COUNT] = None,
    weight_decay: Annotated[float | None, typer.Option(show_default="0.001; paper: 0"), limits.WEIGHT_DECAY] = None,
    person_weight: Annotated[
        float | None,
        typer.Option(help="Weight of the person's confidence beside the keypoints'.", show_default="3; paper: 0"),
        limits.LOSS_WEIGHT,
    ] = None,
    augment: Annotated[
        int | None,
        typer.Option(
            help="Passes over randomly augmented crops, beside one over the crops as they are.",
            show_default="1; paper: 0",
        ),
        limits.PASSES,
    ] = None,
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
    occlusion_test: OcclusionTest = True,
    device: Device = None,
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
    from fitmesh.ui.sinks import starting

    with starting():
        from fitmesh.coco.request import TrainCcnetRequest
        from fitmesh.coco.train_ccnet import run, settings_of

    settings = settings_of(
        recipe,
        head=head,
        head_width=head_width,
        features=features,
        loss=loss,
        target=target,
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
        train=tuple(train or ()),
        validation=validation,
        test=test,
        cache=cache or out / "cache",
        occlusion_test=occlusion_test,
        device=device,
        threads=threads,
        jobs=jobs,
        ray=ray,
    )
    with working():
        run(request, settings)
