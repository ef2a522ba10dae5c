"""`fitmesh train-ccnet`: train a calibration head for a frozen pose model."""

from fitmesh.options.record import command, shared
from fitmesh.options.training import TrainCcnetOptions
from fitmesh.ui.trouble import working


@command(TrainCcnetOptions)
def train_ccnet(asked: TrainCcnetOptions) -> None:
    """Train a calibration head for a frozen pose model, and evaluate it.

    A killed run resumes when started again with the same options. Start with
    `torchrun --nproc-per-node N -m fitmesh train-ccnet ...` to use N processes or GPUs.
    """
    from fitmesh.ui.events import starting

    with starting():
        from ccnet.recipes import TrainingSettings
        from fitmesh.coco.train_ccnet import run, settings_of

    given = shared(asked, TrainingSettings)
    settings = settings_of(asked.recipe, **given, plain_passes=int(asked.plain), cache_bytes=int(asked.cache_gb * 1e9))
    with working():
        run(asked, settings)
