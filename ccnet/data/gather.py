"""From annotated people to training examples: through the frozen network, onto the disk or not."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from ccnet.data.cache import Pass, Store, fingerprint
from ccnet.data.datasets import Person
from ccnet.data.examples import Examples, Kept, Streamed
from ccnet.data.observe import Observed, join, observe
from ccnet.data.processes import Crew
from ccnet.heads.head import Ensemble, Head
from ccnet.settings import Settings
from pose2d.base.errors import UserError
from pose2d.models.base import PoseModel

READ_VERSION = 3  # of what heads read and networks decode; a change makes old caches useless
Progress = Callable[[int], None]  # so many more people are done


def passes(settings: Settings) -> list[Pass]:
    """Plain first, then the augmented ones."""
    plain = [Pass(0, None)] if settings.plain_passes else []
    every = [*plain, *(Pass(1 + n, settings.augment) for n in range(settings.augmented_passes))]
    if not every:
        raise UserError("nothing to train on: ask for at least one pass, plain or augmented.")
    return every


def bytes_per_person(model: PoseModel, head: Head, people: Sequence[Person], device: torch.device) -> int:
    """What keeping one person's crop costs on disk, measured on the first one."""
    (first,) = observe(model, head, people[:1])
    rest = sum(value.nbytes for name, value in vars(first).items() if name != "read")
    return 2 * first.read.numel() + rest


def store(folder: Path, model: PoseModel, head: Head, people: Sequence[Person], one: Pass, seed: int) -> Store:
    """Where these observations are kept; the folder's name hangs on everything they depend on."""
    reader = head.members[0] if isinstance(head, Ensemble) else head
    what = {
        "weights": fingerprint(model.state_dict()),
        "crop": [model.crop, model.box_scale, *model.input_wh],
        "reads": [getattr(reader, "kind", ""), READ_VERSION],
        "augment": None if one.augment is None else asdict(one.augment),
        "pass": [one.number, seed if one.augment is not None else 0],
    }
    return Store(folder, people, what)


def gather(
    model: PoseModel,
    head: Head,
    people: Sequence[Person],
    settings: Settings,
    crew: Crew,
    folder: Path,
    progress: Progress = lambda people: None,
) -> Examples:
    """Examples from disk if they fit into `settings.cache_bytes`, else worked out anew in every epoch."""
    every = passes(settings)
    need = bytes_per_person(model, head, people, crew.device) * len(people) * len(every)
    if need > settings.cache_bytes:
        augment = settings.augment if settings.augmented_passes else None
        return Streamed(model, head, people, augment, settings.seed, crew.device)
    stores = [store(folder, model, head, people, one, settings.seed) for one in every]
    for one, kept in zip(every, stores, strict=True):
        kept.fill(model, head, one, settings.seed, crew.device, crew.rank, crew.world, progress)
    crew.wait()
    loaded = [kept.load() for kept in stores]
    return Kept([observed for observed, _ in loaded], [rows for _, rows in loaded], settings.seed)


def observe_once(
    model: PoseModel,
    head: Head,
    people: Sequence[Person],
    device: torch.device,
    folder: Path,
    progress: Progress = lambda people: None,
) -> Observed:
    """The plain crops of people to evaluate on, kept on disk too."""
    plain = Pass(0, None)
    kept = store(folder, model, head, people, plain, 0)
    kept.fill(model, head, plain, 0, device, progress=progress)
    rest, rows = kept.load()
    values = {**vars(rest), "read": rows.take(torch.arange(len(rest)).numpy())}
    return join([Observed(**values)])
