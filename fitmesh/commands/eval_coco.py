"""`fitmesh eval-coco`: AP and calibration of any model, confidence source and box source."""

from pathlib import Path
from typing import Annotated

import typer

from fitmesh.commands.coco_options import Checkpoint, Data, Device, Model, OcclusionTest, Threads


def eval_coco(
    data: Data,
    model: Model = "rtmpose-s-halpe26",
    checkpoint: Checkpoint = None,
    split: Annotated[
        str | None, typer.Option(help="Split to evaluate.", show_default="val2017, or MPII's valid")
    ] = None,
    head: Annotated[
        str | None, typer.Option(help="Calibration head file.", show_default="the embedded one, if there is one")
    ] = None,
    boxes: Annotated[
        str, typer.Option(help="gt (annotated), yolox-tiny, multipose, or a COCO detection file (.json).")
    ] = "gt",
    confidence: Annotated[
        list[str] | None,
        typer.Option(
            help="ones, raw, raw-heatmap (IPR), closed-form (mean area), closed-form-predicted, closed-form-annotated "
            "(area), ccnet or oracle; repeat for more.",
            show_default="all but closed-form-predicted and -annotated",
        ),
    ] = None,
    area_split: Annotated[
        str | None,
        typer.Option(
            help="Training people from whom closed-form-predicted learns areas.",
            show_default="train2017, or MPII's train",
        ),
    ] = None,
    evaluator: Annotated[
        str, typer.Option(help="Of AP and AR: ours, or pycocotools (the reference: slower, the same numbers).")
    ] = "ours",
    flip_test: Annotated[bool, typer.Option(help="Average over each crop and its mirror image.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for metrics.json and the images.")] = None,
    occlusion_test: OcclusionTest = True,
    device: Device = None,
    threads: Threads = None,
) -> None:
    """Measure keypoints and every kind of confidence in them on COCO, MPII or COCO-WholeBody.

    Start with `torchrun --nproc-per-node N -m fitmesh eval-coco ...` to use N processes or GPUs.
    """
    from fitmesh.ui.sinks import starting

    with starting():
        from fitmesh.coco.eval_coco import EvalCocoRequest, run, show
        from pose2d.base.distributed import is_main_process

    request = EvalCocoRequest(
        data=data,
        model=model,
        checkpoint=checkpoint,
        split=split,
        head=head,
        boxes=boxes,
        confidence=tuple(confidence or ()),
        area_split=area_split,
        evaluator=evaluator,
        flip_test=flip_test,
        occlusion_test=occlusion_test,
        out=out,
        device=device,
        threads=threads,
    )
    found = run(request)
    if is_main_process():
        show(request, found)
