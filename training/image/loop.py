"""Train the image network: any number of shards, resumable at any moment.

The folder of a training holds `checkpoint.pt` (weights, their running mean, optimiser, step),
`curve.csv` (losses while it learns) and `held_out.csv` (figures on other subjects). The random
numbers of a step come from the seed and the step's number alone.
"""

import csv
import math
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

from fitting.body import Body
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.models.rtmpose import RTMPose
from training.crops.shards import Shard, load_shard
from training.image.batches import (
    Draw,
    crop_inputs,
    draw_crops,
    real_batch,
    rendered_batch,
    unchanged,
)
from training.image.losses import image_losses, real_loss
from training.image.maps import MapCache
from training.image.network import ImageLifter
from training.image.real_people import PseudoTruth, RealShard, load_fits, load_real
from training.image.validation import validate, validate_measured

SHARD_STEPS = 40  # steps on one shard before the next one is read
LOG_STEPS = 20
RECENT = 50  # steps over which the printed losses are averaged


@dataclass(frozen=True)
class ImageSettings:
    """What a training depends on. Only `steps` may change when it goes on."""

    steps: int = 200_000
    batch: int = 64
    real: int = 16  # real people in every step, if there are any
    rate: float = 3e-4  # of the decoder, at its highest
    stage_rate: float = 0.3  # of it for the last stage, which starts from trained weights
    warmup: int = 500  # steps
    level: float = 0.6  # share of the steps before the rate falls along a cosine
    decay: float = 0.02  # of weights
    clip: float = 1.0  # longest gradient
    memory: float = 0.9995  # of the running mean of weights, which is what is measured and shipped
    seed: int = 0


class Reader:
    """Read the frozen network's maps of crops: from pixels, or from files that keep them."""

    def __init__(self, network: ImageLifter, model: RTMPose, cache: MapCache | None) -> None:
        self.network = network
        self.model = model
        self.cache = cache

    def early(self, name: str, shard: Shard | RealShard, draw: Draw) -> Tensor:
        """Return maps [B, 256, 16, 12] of the drawn crops; name: of the shard's file."""
        if self.cache is None:
            return self.network.early_features(crop_inputs(shard, draw, self.model))

        def compute(rows: Tensor) -> Tensor:
            return self.network.early_features(crop_inputs(shard, unchanged(rows), self.model))

        return self.cache.maps(name, len(shard), draw.rows, compute)


@dataclass
class ImageTraining:
    """A network with its optimiser and the running mean of its weights."""

    network: ImageLifter
    optimiser: torch.optim.AdamW
    mean: dict[str, Tensor]
    step: int = 0
    seconds: float = 0.0  # of training, over all runs
    recent: dict[str, float] = field(default_factory=dict)  # losses, averaged over recent steps
    bfloat16: bool = False

    @staticmethod
    def begin(model: RTMPose, body: Body, settings: ImageSettings) -> "ImageTraining":
        """Start from RTMPose-s's last stage and a random decoder."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            network = ImageLifter(model, body)
        stage = list(network.last_stage.parameters())
        members = {id(parameter) for parameter in stage}
        decoder = [p for p in network.parameters() if id(p) not in members]
        groups = [
            {"params": decoder, "share": 1.0},
            {"params": stage, "share": settings.stage_rate},
        ]
        optimiser = torch.optim.AdamW(groups, lr=settings.rate, weight_decay=settings.decay)
        mean = {name: value.clone() for name, value in network.state_dict().items()}
        return ImageTraining(network, optimiser, mean)

    @staticmethod
    def resume(path: Path, model: RTMPose, body: Body, settings: ImageSettings) -> "ImageTraining":
        """Go on from a checkpoint of the same settings; the number of steps may differ."""
        content = torch.load(path, weights_only=True)
        if content["settings"] | {"steps": 0} != asdict(settings) | {"steps": 0}:
            raise UserError(
                f"{path} belongs to a training with other settings: {content['settings']}. "
                "Use the same options, or another --out."
            )
        training = ImageTraining.begin(model, body, settings)
        training.network.load_state_dict(content["network"])
        training.optimiser.load_state_dict(content["optimiser"])
        training.mean = content["mean"]
        training.step = content["step"]
        training.seconds = content["seconds"]
        return training

    def save(self, path: Path, settings: ImageSettings) -> None:
        """Write the checkpoint atomically."""
        content = {
            "network": self.network.state_dict(),
            "mean": self.mean,
            "optimiser": self.optimiser.state_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "settings": asdict(settings),
        }
        with atomic_file(path) as temporary:
            torch.save(content, temporary)

    def advance(
        self, people: "People", reader: Reader, body: Body, settings: ImageSettings
    ) -> None:
        """Take one step on rendered and real people."""
        started = time.monotonic()
        generator = torch.Generator().manual_seed((settings.seed << 32) + self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.step, settings) * group["share"]
        as_is = reader.cache is not None
        name, shard = people.rendered(self.step)
        draw = draw_crops(len(shard), settings.batch, as_is, generator)
        batch = rendered_batch(shard, draw, reader.model, body)
        early = reader.early(name, shard, draw)
        features = batch.features
        points = batch.points
        real = people.real(self.step) if settings.real else None
        if real is not None:
            real_name, real_shard, fits = real
            real_draw = draw_crops(len(real_shard), settings.real, as_is, generator)
            marked = real_batch(real_shard, real_draw, reader.model, body, fits)
            early = torch.cat((early, reader.early(real_name, real_shard, real_draw)))
            features = torch.cat((features, marked.features))
            points = torch.cat((points, marked.points))
        with torch.autocast("cpu", torch.bfloat16) if self.bfloat16 else nullcontext():
            output = self.network(early, features, points)
        losses = image_losses(output.rows(slice(settings.batch)), batch, body)
        total = losses.total()
        figures = {"loss": float(total.detach()), **losses.figures(), "marks": math.nan}
        if real is not None:
            of_marks = real_loss(output.rows(slice(settings.batch, None)), marked, body)
            total = total + settings.real / settings.batch * of_marks
            figures["marks"] = float(of_marks.detach())
        self.optimiser.zero_grad()
        torch.autograd.backward(total)
        length = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        if bool(torch.isfinite(length)):  # one impossible example must not end a training
            self.optimiser.step()
            self._note(figures)
        self.step += 1
        memory = min(settings.memory, self.step / (self.step + 10))
        for name, value in self.network.state_dict().items():
            self.mean[name].lerp_(value, 1 - memory)
        self.seconds += time.monotonic() - started

    def _note(self, figures: Mapping[str, float]) -> None:
        """Average losses over recent steps."""
        for name, value in figures.items():
            before = self.recent.get(name, value)
            self.recent[name] = before + (value - before) / RECENT

    def averaged(self, model: RTMPose, body: Body) -> ImageLifter:
        """Return a network with the running mean of the weights."""
        network = ImageLifter(model, body)
        network.load_state_dict(self.mean)
        return network


def learning_rate(step: int, settings: ImageSettings) -> float:
    """Return the rate: up in a line, level, and in the last part down along a cosine."""
    if step < settings.warmup:
        return settings.rate * (step + 1) / settings.warmup
    level = settings.level * settings.steps
    done = min(max(step - level, 0) / max(settings.steps - level, 1), 1.0)
    return settings.rate * (0.01 + 0.99 * (1 + math.cos(math.pi * done)) / 2)


def shards_in(folders: list[Path], name: str) -> list[Path]:
    """Return the shards `name`_00000.npz, .. of folders; more may appear while a training runs."""
    return sorted(path for folder in folders for path in folder.glob(f"{name}_*.npz"))


class People:
    """The shards of folders; more rendered ones may appear while a training runs."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
        self._rendered = lru_cache(maxsize=2)(load_shard)
        self._real = [(path, load_real(path)) for path in shards_in(folders, "real")]
        self._fits = lru_cache(maxsize=8)(lambda path, written_ns: load_fits(path))
        self.held_out = [load_shard(path) for path in shards_in(folders, "held_out")]
        measured = [path for folder in folders for path in folder.glob("measured.npz")]
        self.measured = load_real(measured[0]) if measured else None

    def rendered(self, step: int) -> tuple[str, Shard]:
        """Return the shard of rendered people of a step, with its name."""
        paths = shards_in(self.folders, "train")
        if not paths:
            raise UserError(f"no shards train_*.npz in {', '.join(map(str, self.folders))}.")
        path = paths[step // SHARD_STEPS % len(paths)]
        return path.stem, self._rendered(path)

    def real(self, step: int) -> tuple[str, RealShard, PseudoTruth | None] | None:
        """Return the real people of a step with their newest fits, or None without people."""
        if not self._real:
            return None
        path, shard = self._real[step // SHARD_STEPS % len(self._real)]
        fits = path.with_name(path.name.replace("real_", "fits_"))
        if not fits.is_file():
            return path.stem, shard, None
        return path.stem, shard, self._fits(fits, fits.stat().st_mtime_ns)


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of ending, so that the checkpoint can be written."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Schedule:
    """How often a training is saved and measured."""

    save_s: float = 300.0
    validate_s: float = 1800.0
    held_out_crops: int = 2000  # of each held-out shard


def train(
    folders: list[Path],
    out: Path,
    model: RTMPose,
    body: Body,
    settings: ImageSettings,
    schedule: Schedule = Schedule(),
    maps: Path | None = None,
    bfloat16: bool = False,
) -> ImageTraining:
    """Train until the steps are done or a signal asks to stop; go on from `out` if it holds one.

    maps: folder that keeps the frozen network's maps (`maps.MapCache`). bfloat16: compute in it,
    which is slower on CPUs without instructions for it.
    """
    checkpoint = out / "checkpoint.pt"
    if checkpoint.is_file():
        training = ImageTraining.resume(checkpoint, model, body, settings)
    else:
        training = ImageTraining.begin(model, body, settings)
    training.bfloat16 = bfloat16
    people = People(folders)
    reader = Reader(training.network, model, MapCache(maps) if maps else None)
    saved = measured = time.monotonic()
    with stop_requests() as stops:
        while training.step < settings.steps and not stops:
            training.advance(people, reader, body, settings)
            if training.step % LOG_STEPS == 0:
                _append(out / "curve.csv", training, training.recent)
            now = time.monotonic()
            if now - saved > schedule.save_s:
                training.save(checkpoint, settings)
                saved = now
            if now - measured > schedule.validate_s:
                _measure(training, people, model, body, out, schedule)
                measured = time.monotonic()
    training.save(checkpoint, settings)
    if training.step >= settings.steps:
        _measure(training, people, model, body, out, schedule)
    return training


def _measure(
    training: ImageTraining,
    people: People,
    model: RTMPose,
    body: Body,
    out: Path,
    schedule: Schedule,
) -> None:
    """Add a row of held-out figures."""
    network = training.averaged(model, body)
    figures: dict[str, float] = {}
    if people.held_out:
        figures |= validate(network, people.held_out, model, body, schedule.held_out_crops)
    if people.measured is not None:
        figures |= validate_measured(network, people.measured, model, body)
    if figures:
        _append(out / "held_out.csv", training, figures)


def _append(path: Path, training: ImageTraining, figures: Mapping[str, float]) -> None:
    """Add a row to a table of figures, with a heading if it is the first."""
    row = {"step": training.step, "minutes": round(training.seconds / 60, 1)}
    row |= {name: round(value, 5) for name, value in figures.items()}
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, row)
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(time.strftime("%H:%M:%S"), row, flush=True)
