"""`fitmesh eval-coco`: AP and calibration of any model, confidence source and box source."""

from fitmesh.options.record import command
from fitmesh.options.training import EvalCocoOptions


@command(EvalCocoOptions)
def eval_coco(asked: EvalCocoOptions) -> None:
    """Measure keypoints and every kind of confidence in them on COCO, MPII or COCO-WholeBody.

    Start with `torchrun --nproc-per-node N -m fitmesh eval-coco ...` to use N processes or GPUs.
    """
    from fitmesh.ui.events import starting

    with starting():
        from fitmesh.coco.eval_coco import run, run_hands, show
        from pose2d.base.distributed import is_main_process

    if asked.hands:
        run_hands(asked)
        return
    found = run(asked)
    if is_main_process():
        show(asked, found)
