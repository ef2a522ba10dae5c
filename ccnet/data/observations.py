"""The frozen network on annotated people: what it predicts, what a head reads of it, and the true OKS.

Computed once and cached on disk, in shards, so that a killed run loses at most one of them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment, degrade, jitter_box
from ccnet.data.datasets import AnnotatedPerson, load_image
from ccnet.heads.head import CalibrationHead, Ensemble
from ccnet.losses import Targets
from ccnet.recipes import Target, TrainingSettings
from pose2d import crops
from pose2d.base.caching import CacheKey, code_digest, weights_digest
from pose2d.base.distributed import ALONE, ProcessGroup
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file, read_npz
from pose2d.base.threads import prefetch
from pose2d.crops import Crops, crop_people, estimate_crops
from pose2d.models.base import PoseModel
from pose2d.types import keypoint_oks, l_squared

BATCH = 32  # crops through the network at once
SHARD = 512  # people per file
HALF_MAX = 65504.0  # the largest half-precision number
Progress = Callable[[int], None]  # so many more people are done


@dataclass(frozen=True)
class Observations:
    """N people: the network's prediction, the head's inputs, and the true OKS."""

    inputs: Tensor  # [N, *input_shape] of the head's trained layers
    xy_px: Tensor  # [N, K, 2] image pixels; left and right are the person's own, in a mirrored crop too
    score: Tensor  # [N, K] the network's own confidence, in the crop's order of keypoints (as all below)
    heatmap_score: Tensor  # [N, K] the second score of networks that have one; NaN for others
    sigma_px: Tensor  # [N, K, 2] the network's own standard deviation in image pixels; NaN if it states none
    error: Tensor  # [N, K, 2] prediction less truth along the crop's x and y, in units of l; 0 where not labelled
    oks: Tensor  # [N, K] 0 where not labelled
    pck: Tensor  # [N, K] 1 if within half a head size (PCKh@0.5), 0 if not or not labelled; NaN: head size not known
    present: Tensor  # [N, K] 1 if labelled and inside the crop
    labelled: Tensor  # [N, K] 1 if labelled
    crop_area_px2: Tensor  # [N] of the crop, in image pixels
    area_share: Tensor  # [N] the person's area over the crop's

    def __len__(self) -> int:
        return len(self.oks)

    @property
    def labelled_oks(self) -> np.ndarray:
        """[N, K] NaN where not labelled."""
        return np.where(self.labelled.numpy() > 0, self.oks.double().numpy(), np.nan)


def join(parts: Iterable[Observations], progress: Progress = lambda people: None) -> Observations:
    """All parts as one; `progress` counts their people as they come."""
    come = []
    for part in parts:
        come.append(part)
        progress(len(part))
    return Observations(*(torch.cat([getattr(part, f.name) for part in come]) for f in fields(Observations)))


def observe(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], augment: Augment | None = None,
    seed: Sequence[int] = (0,),
) -> Iterator[Observations]:  # fmt: skip
    """One batch after another, on the CPU, in the order of `people`. The next crops are cut while the network runs. The
    randomness of one person's crop depends on `seed` and the person's id alone."""

    def batches() -> Iterator[tuple[Sequence[AnnotatedPerson], Crops, np.ndarray]]:
        """People, their crops, and which of those are mirrored, [N]. People come sorted by image: each is read once."""
        path, image = None, np.zeros((0, 0, 3), np.uint8)
        for first in range(0, len(people), BATCH):
            part, cut = people[first : first + BATCH], []
            for person in part:
                if person.image != path:
                    path, image = person.image, load_image(person)
                cut.append(_crop(model, person, image, augment, np.random.default_rng([*seed, person.id])))
            pixels, affines = [one.pixels for one, _ in cut], [one.affine for one, _ in cut]
            yield part, Crops(torch.cat(pixels), np.concatenate(affines)), np.array([mirror for _, mirror in cut])

    for part, cropped, mirrored in prefetch(batches(), depth=1):
        yield _observe_batch(model, head, part, cropped, mirrored)


def _crop(
    model: PoseModel, person: AnnotatedPerson, image: np.ndarray, augment: Augment | None, random: np.random.Generator,
) -> tuple[Crops, bool]:  # fmt: skip
    """The network's crop of one person, augmented if asked for; and whether it is mirrored."""
    box_px = np.asarray(person.box_px)
    if augment is None:
        return crop_people(model, image, box_px[None]), False
    box_px = jitter_box(box_px, augment, random)
    cropped = crop_people(model, image, box_px[None])
    pixels, affine = cropped.pixels, cropped.affine
    shown_px = np.array([0, 0, *model.input_wh])
    if random.random() < augment.surroundings:
        pixels = crops.cut(image, affine, model.input_wh)
    elif model.crop == "square":
        (shown_px,) = crops.grown_boxes(box_px[None], model.box_scale, affine)
    mirror = random.random() < augment.flip
    labelled = torch.from_numpy(person.keypoints[person.keypoints[:, 2] > 0, :2])
    person_px = crops.move(affine, labelled[None])[0].numpy()
    degraded = degrade(pixels[0].permute(1, 2, 0).numpy(), shown_px, person_px, augment, random)
    pixels = torch.from_numpy(degraded).permute(2, 0, 1)[None]
    if not mirror:
        return Crops(pixels, affine), False
    mirrored_from_crop = np.array([[-1.0, 0, model.input_wh[0] - 1], [0, 1, 0]])
    return Crops(pixels.flip(-1), mirrored_from_crop @ np.vstack([affine[0], [0, 0, 1]])[None]), True


@torch.inference_mode()
def _observe_batch(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], cropped: Crops, mirrored: np.ndarray,
) -> Observations:  # fmt: skip
    pose = estimate_crops(model, cropped)
    keypoints = torch.from_numpy(np.stack([person.keypoints for person in people]))
    area = torch.tensor([person.area_px2 for person in people], dtype=torch.float32)
    order = torch.tensor(model.skeleton.flip_order)

    def swapped(values: Tensor) -> Tensor:  # left and right trade places where the crop is mirrored
        choose = torch.from_numpy(mirrored).reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(choose, values[:, order], values)

    xy_px = swapped(pose.xy_px)
    labelled = keypoints[..., 2] > 0
    truth_crop = crops.move(cropped.affine, keypoints[..., :2])
    inside = ((truth_crop >= 0) & (truth_crop <= torch.tensor(model.input_wh) - 1.0)).all(-1)
    l2 = l_squared(area, model.skeleton)
    difference = xy_px - keypoints[..., :2]
    distance2 = difference.square().sum(-1)
    oks = keypoint_oks(distance2, l2).float() * labelled
    along_x = torch.from_numpy(np.where(mirrored, -1.0, 1.0))[:, None]
    error = torch.stack([difference[..., 0] * along_x, difference[..., 1]], -1) / l2.sqrt()[..., None]
    head_px = torch.tensor([person.head_px for person in people], dtype=torch.float32)
    right = (distance2.sqrt() <= 0.5 * head_px[:, None]).float() * labelled
    return Observations(
        inputs=head.inputs(pose.features.float()).cpu(), xy_px=xy_px, score=pose.score,
        heatmap_score=torch.full_like(pose.score, torch.nan) if pose.heatmap_score is None else pose.heatmap_score,
        sigma_px=pose.sigma_px, error=swapped(torch.where(labelled[..., None], error, 0).float()), oks=swapped(oks),
        pck=swapped(torch.where(head_px.isnan()[:, None], torch.nan, right)),
        present=swapped((labelled & inside).float()), labelled=swapped(labelled.float()),
        crop_area_px2=pose.crop_area_px2, area_share=area / pose.crop_area_px2,
    )  # fmt: skip


# On disk -------------------------------------------------------------------------------------------------------------


_REST = tuple(f.name for f in fields(Observations) if f.name != "inputs")


class ObservationCache:
    """The observations of one pass over some people, one pair of files per SHARD, in a folder named by cache key."""

    def __init__(
        self, folder: Path, model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson],
        augment: Augment | None = None, seed: Sequence[int] = (0,),
    ) -> None:  # fmt: skip
        self.model, self.head, self.people, self.augment, self.seed = model, head, people, augment, seed
        self.key = cache_key(model, head, people, augment, seed)
        self.folder = folder / self.key.digest[:16]

    def fill(self, rank: int = 0, world_size: int = 1, progress: Progress = lambda people: None) -> None:
        """Compute what is missing; with several processes each does its share."""
        for number, first in enumerate(self.shards()):
            if number % world_size == rank:
                self.fill_shard(first, progress)
        if rank == 0:
            with atomic_file(self.folder / "cache_key.json") as path:
                path.write_text(self.key.text + "\n")

    def fill_shard(self, first: int, progress: Progress = lambda people: None) -> None:
        """The people from number `first` on, unless they are there."""
        people = self.people[first : first + SHARD]
        if self._is_complete(first, len(people)):
            progress(len(people))
            return
        whole = join(observe(self.model, self.head, people, self.augment, self.seed), progress)
        with atomic_file(self._file(first, "npz")) as path:
            np.savez(path, **{name: getattr(whole, name).numpy() for name in _REST})
        with atomic_file(self._file(first, "npy")) as path:  # last: a shard is complete once this file exists
            np.save(path, whole.inputs.clamp(-HALF_MAX, HALF_MAX).half().numpy())

    def load(self) -> tuple[Observations, "ShardedRows"]:
        """All but `inputs` in memory, and `inputs` left on disk."""
        parts, inputs = [], []
        for first in self.shards():
            parts.append(read_npz(self._file(first, "npz"), f"Delete {self.folder} and run again."))
            inputs.append(np.load(self._file(first, "npy"), mmap_mode="r", allow_pickle=False))
        rest = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
        return Observations(inputs=torch.zeros(len(rest["oks"]), 0), **rest), ShardedRows(inputs)

    def _is_complete(self, first: int, count: int) -> bool:
        """Whether both files of a shard are there and whole; a damaged one is made again."""
        try:
            rest = read_npz(self._file(first, "npz"), "")
            inputs = np.load(self._file(first, "npy"), mmap_mode="r", allow_pickle=False)  # refuses a wrong size
        except (UserError, OSError, ValueError, EOFError):
            return False
        return set(rest) == set(_REST) and all(len(value) == count for value in (*rest.values(), inputs))

    def shards(self) -> range:
        """The first person of each."""
        return range(0, len(self.people), SHARD)

    def _file(self, first: int, suffix: str) -> Path:
        return self.folder / f"{first:07d}.{suffix}"


def cache_key(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], augment: Augment | None,
    seed: Sequence[int],
) -> CacheKey:  # fmt: skip
    first = head.first if isinstance(head, Ensemble) else head
    annotated = hashlib.sha256()  # images are named, not read: a data set has too many bytes of them
    for person in people:
        text = f"{person.id} {person.image.name} {person.box_px} {person.area_px2} {person.head_px}"
        annotated.update(text.encode("utf-8", "surrogateescape") + person.keypoints.tobytes())
    return CacheKey(
        stage="observations",
        settings={
            "crop": [model.crop, model.box_scale, *model.input_wh], "head": getattr(first, "kind", ""),
            "features": model.features_name, "augment": None if augment is None else asdict(augment),
            "seed": None if augment is None else list(seed), "people": len(people),
        },
        inputs={"weights": weights_digest(model.state_dict()), "people": annotated.hexdigest()[:16]},
        code=code_digest(__name__, type(first).inputs.__module__, type(model).__module__),
    )  # fmt: skip


class ShardedRows:
    """Rows of several arrays on disk as if they were one."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = list(arrays)
        self.start = np.cumsum([0, *(len(array) for array in self.arrays)])

    def __len__(self) -> int:
        return int(self.start[-1])

    def take(self, index: np.ndarray) -> Tensor:
        """Rows [M, ...] in single precision."""
        out = np.empty((len(index), *self.arrays[0].shape[1:]), np.float32)
        which = np.searchsorted(self.start, index, side="right") - 1
        for number in np.unique(which):
            rows = which == number
            out[rows] = self.arrays[number][index[rows] - self.start[number]]
        return torch.from_numpy(out)


def observe_cached(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], folder: Path,
    progress: Progress = lambda people: None, group: ProcessGroup = ALONE,
) -> Observations:  # fmt: skip
    """The crops of people to evaluate on, as they are; cached too. Several processes share the work."""
    cache = ObservationCache(folder, model, head, people)
    cache.fill(group.rank, group.world_size, progress)
    group.barrier()
    rest, inputs = cache.load()
    return Observations(**{**vars(rest), "inputs": inputs.take(np.arange(len(rest)))})


SCALE_EXAMPLES = 20_000  # examples that set the scale of a head's inputs,
SCALE_BYTES = 500_000_000  # or as many as fit
STREAMED_SCALE_EXAMPLES = 512  # the same where each one is a run of the network


class Examples(ABC):
    """Batches in an order that depends on seed and epoch alone, so that training can resume at any step."""

    def __init__(self, count: int, seed: int, target: Target) -> None:
        self.count = count  # examples in one epoch
        self.seed, self.target = seed, target
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, int))

    @abstractmethod
    def shuffled(self, random: np.random.Generator) -> np.ndarray:
        """The numbers of all examples in random order."""

    @abstractmethod
    def observed(self, index: np.ndarray, epoch: int) -> Observations:
        """Some of the examples."""

    @abstractmethod
    def sample(self) -> Tensor:
        """Typical inputs of the head, [M, *input_shape]."""

    def order(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            self._order = (epoch, self.shuffled(np.random.default_rng([self.seed, epoch])))
        return self._order[1]

    def batch(self, epoch: int, number: int, size: int, group: ProcessGroup) -> tuple[Tensor, Targets]:
        """This process's share of one batch: the head's inputs, and the targets."""
        index = self.order(epoch)[number * size : (number + 1) * size][group.rank :: group.world_size]
        o = self.observed(index, epoch)
        correct = o.oks if self.target == "oks" else o.pck  # what a keypoint's confidence is trained to be on average
        return o.inputs, Targets(correct, o.present, o.labelled, o.error, torch.from_numpy(index))

    def batches(self, size: int) -> int:
        return max(self.count // size, 1)


class CachedExamples(Examples):
    def __init__(self, caches: Sequence[ObservationCache], seed: int, target: Target = "oks") -> None:
        loaded = [cache.load() for cache in caches]
        self.observations = join([observations for observations, _ in loaded])
        self.inputs = ShardedRows([array for _, rows in loaded for array in rows.arrays])
        super().__init__(len(self.observations), seed, target)

    def shuffled(self, random: np.random.Generator) -> np.ndarray:
        return random.permutation(self.count)

    def observed(self, index: np.ndarray, epoch: int) -> Observations:
        rest = {name: getattr(self.observations, name)[torch.from_numpy(index)] for name in _REST}
        return Observations(inputs=self.inputs.take(index), **rest)

    def sample(self) -> Tensor:
        size = min(SCALE_EXAMPLES, self.count, max(SCALE_BYTES // (4 * self.inputs.arrays[0][0].size), 1))
        return self.inputs.take(np.sort(np.random.default_rng(self.seed).permutation(self.count)[:size]))


class StreamedExamples(Examples):
    """The network runs in every epoch, each time on differently augmented crops."""

    def __init__(
        self, model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], augment: Augment | None,
        seed: int, target: Target = "oks",
    ) -> None:  # fmt: skip
        super().__init__(len(people), seed, target)
        self.model, self.head, self.augment, self.annotated = model, head, augment, list(people)

    def shuffled(self, random: np.random.Generator) -> np.ndarray:
        """Images in random order, the people of one image together: each file is opened once."""
        groups = [list(g) for _, g in groupby(range(self.count), key=lambda i: self.annotated[i].image)]
        return np.array([i for g in random.permutation(len(groups)) for i in groups[g]])

    def observed(self, index: np.ndarray, epoch: int) -> Observations:
        people = [self.annotated[i] for i in index]
        return join(observe(self.model, self.head, people, self.augment, (self.seed, epoch)))

    def sample(self) -> Tensor:
        return self.observed(self.order(0)[:STREAMED_SCALE_EXAMPLES], 0).inputs


def passes(settings: TrainingSettings) -> list[tuple[int, Augment | None]]:
    """Passes over the training people, by number: the crops as they are first, then the augmented ones."""
    plain: list[tuple[int, Augment | None]] = [(0, None)] if settings.plain_passes else []
    every = [*plain, *((1 + n, settings.augment) for n in range(settings.augmented_passes))]
    if not every:
        raise UserError("nothing to train on: ask for at least one pass, plain or augmented.")
    return every


def bytes_per_person(model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson]) -> int:
    """What caching one person's crop takes on disk, measured on the first one."""
    (first,) = observe(model, head, people[:1])
    rest = sum(value.nbytes for name, value in vars(first).items() if name != "inputs")
    return 2 * first.inputs.numel() + rest


def make_examples(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], settings: TrainingSettings,
    group: ProcessGroup, folder: Path, progress: Progress = lambda people: None,
) -> Examples:  # fmt: skip
    """Cached on disk if all passes fit into `settings.cache_bytes`, else streamed."""
    if not fits_on_disk(model, head, people, settings):
        augment = settings.augment if settings.augmented_passes else None
        return StreamedExamples(model, head, people, augment, settings.seed, settings.target)
    caches = observation_caches(model, head, people, settings, folder)
    for cache in caches:
        cache.fill(group.rank, group.world_size, progress)
    group.barrier()
    return CachedExamples(caches, settings.seed, settings.target)


def fits_on_disk(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], settings: TrainingSettings
) -> bool:
    """Whether the features of all passes take no more than they may."""
    return bytes_per_person(model, head, people) * len(people) * len(passes(settings)) <= settings.cache_bytes


def observation_caches(
    model: PoseModel, head: CalibrationHead, people: Sequence[AnnotatedPerson], settings: TrainingSettings,
    folder: Path,
) -> list[ObservationCache]:  # fmt: skip
    return [
        ObservationCache(folder, model, head, people, augment, (settings.seed, number))
        for number, augment in passes(settings)
    ]
