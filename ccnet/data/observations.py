"""Run the frozen network on annotated people: its predictions, the inputs of a head, and the true
OKS.

They are computed once and cached on disk in shards, so a killed run loses at most one shard."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment, degrade, jitter_box
from ccnet.data.datasets import AnnotatedPerson, load_image
from ccnet.heads.head import CalibrationHead
from pose2d import crops
from pose2d.base.arrays import read_npz
from pose2d.base.caching import CacheKey, code_digest, weights_digest
from pose2d.base.columns import column
from pose2d.base.distributed import ALONE, ProcessGroup
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.threads import prefetch
from pose2d.crops import Crops, PoseEstimate, crop_people, estimate_crops
from pose2d.models.base import PoseModel
from pose2d.types import keypoint_oks, l_squared

BATCH = 32  # crops through the network at once
SHARD = 512  # people per file
HALF_MAX = 65504.0  # the largest half-precision number
Progress = Callable[[int], None]  # called with the number of people just done
Read = Callable[[Tensor], Tensor]  # features -> inputs of a head's trained layers


@dataclass(frozen=True, kw_only=True)
class Observations(PoseEstimate):
    """The network's estimate of N people in their annotated boxes, and the truth. `features` are
    the inputs of a head's trained layers. Left and right are the crop's: in a mirrored crop the
    person's right hand is left.
    """

    TENSORS = True
    error: Tensor = column(
        ("keypoints", 2), "f", "less truth, along the crop's axes; 0 where not labelled", unit="l"
    )
    oks: Tensor = column(("keypoints",), "f", "0 where not labelled")  # [N, K]
    # [N, K] 0 where not labelled, too
    pck: Tensor = column(
        ("keypoints",),
        "f",
        "1 within half a head size (PCKh@0.5), else 0; NaN: head size not known",
    )
    present: Tensor = column(("keypoints",), "f", "1 if labelled and inside the crop")  # [N, K]
    labelled: Tensor = column(("keypoints",), "f", "1 if labelled")  # [N, K]
    area_share: Tensor = column((), "f", "the person's area over the crop's")  # [N]


# Cuts the crop of a person out of an image; may be random.
CropPerson = Callable[[PoseModel, AnnotatedPerson, np.ndarray, np.random.Generator], Crops]


def plain_crop(
    model: PoseModel, person: AnnotatedPerson, image: np.ndarray, random: np.random.Generator
) -> Crops:
    """Return the crop of the annotated box."""
    return crop_people(model, image, np.array([person.box_px]))


def augmented(augment: Augment | None) -> CropPerson:
    """Return a function that cuts augmented crops, or plain ones for None."""
    return plain_crop if augment is None else partial(_augmented_crop, augment)


def _augmented_crop(
    augment: Augment,
    model: PoseModel,
    person: AnnotatedPerson,
    image: np.ndarray,
    random: np.random.Generator,
) -> Crops:
    box_px = jitter_box(np.asarray(person.box_px), augment, random)
    cropped = crop_people(model, image, box_px[None])
    pixels = cropped.pixels
    affine = cropped.affine
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
        return Crops(pixels, affine)
    mirrored_from_crop = np.array([[-1.0, 0, model.input_wh[0] - 1], [0, 1, 0]])
    return Crops(pixels.flip(-1), mirrored_from_crop @ np.vstack([affine[0], [0, 0, 1]])[None])


def observe(
    model: PoseModel,
    read: Read,
    people: Sequence[AnnotatedPerson],
    crop: CropPerson = plain_crop,
    seed: Sequence[int] = (0,),
    progress: Progress = lambda people: None,
) -> Observations:
    """Return the observations of `people`, in their order, on the CPU.

    `read` turns features into a head's inputs. The next crops are cut while the network runs. The
    randomness of a person's crop depends on `seed` and the person's id alone.
    """

    def batches() -> Iterator[tuple[Sequence[AnnotatedPerson], Crops]]:
        """Yield people and their crops. People are sorted by image, so each image is read once."""
        path = None
        image = np.zeros((0, 0, 3), np.uint8)
        for first in range(0, len(people), BATCH):
            part = people[first : first + BATCH]
            cut = []
            for person in part:
                if person.image != path:
                    path = person.image
                    image = load_image(person)
                cut.append(crop(model, person, image, np.random.default_rng([*seed, person.id])))
            pixels = torch.cat([cropped.pixels for cropped in cut])
            affine = np.concatenate([cropped.affine for cropped in cut])
            yield part, Crops(pixels, affine)

    observed = []
    for part, cropped in prefetch(batches(), depth=1):
        observed.append(_observe_batch(model, read, part, cropped))
        progress(len(part))
    return Observations.concat(observed)


@torch.inference_mode()
def _observe_batch(
    model: PoseModel, read: Read, people: Sequence[AnnotatedPerson], cropped: Crops
) -> Observations:
    pose = estimate_crops(model, cropped)
    mirrored = np.linalg.det(cropped.affine[:, :, :2]) < 0
    keypoints = np.stack([person.keypoints for person in people])
    swapped = keypoints[:, model.skeleton.flip_order]
    truth = torch.from_numpy(np.where(mirrored[:, None, None], swapped, keypoints))
    labelled = truth[..., 2] > 0
    in_crop = crops.move(cropped.affine, truth[..., :2])
    inside = ((in_crop >= 0) & (in_crop <= torch.tensor(model.input_wh) - 1.0)).all(-1)
    area = torch.tensor([person.area_px2 for person in people], dtype=torch.float32)
    l2 = l_squared(area, model.skeleton)
    difference = pose.xy_px - truth[..., :2]
    distance2 = difference.square().sum(-1)
    along_x = torch.from_numpy(np.where(mirrored, -1.0, 1.0))[:, None]
    in_crop_axes = torch.stack([difference[..., 0] * along_x, difference[..., 1]], -1)
    error = in_crop_axes / l2.sqrt()[..., None]
    head_px = torch.tensor([person.head_px for person in people], dtype=torch.float32)[:, None]
    right = (distance2.sqrt() <= 0.5 * head_px).float() * labelled
    return Observations(
        **{**vars(pose), "features": read(pose.features.float()).cpu()},
        error=torch.where(labelled[..., None], error, 0).float(),
        oks=keypoint_oks(distance2, l2).float() * labelled,
        pck=torch.where(head_px.isnan(), torch.nan, right),
        present=(labelled & inside).float(),
        labelled=labelled.float(),
        area_share=area / pose.crop_area_px2,
    )


def observe_cached(
    folder: Path,
    model: PoseModel,
    head: CalibrationHead,
    people: Sequence[AnnotatedPerson],
    augment: Augment | None,
    seed: Sequence[int],
    group: ProcessGroup = ALONE,
    progress: Progress = lambda people: None,
) -> tuple[Observations, list[np.ndarray]]:
    """Return one pass over `people`: observations without features, and the features on disk.

    Features are stored in half precision. Each shard is a pair of files in a folder named by cache
    key. Several processes share the work.
    """
    folder = folder / cache_key(model, head, people, augment, seed).digest[:16]
    shards = {
        folder / f"{first:07d}": people[first : first + SHARD]
        for first in range(0, len(people), SHARD)
    }
    for path, shard in group.share(list(shards.items())):
        if _is_complete(path, len(shard)):
            progress(len(shard))
            continue
        observed = observe(model, head.inputs, shard, augmented(augment), seed, progress)
        without_features = replace(observed, features=observed.features[:, :0])
        arrays: dict[str, Any] = without_features.to_arrays()
        with atomic_file(path.with_suffix(".npz")) as temporary:
            np.savez(temporary, **arrays)
        # Last: a shard is complete once this file exists.
        with atomic_file(path.with_suffix(".npy")) as temporary:
            np.save(temporary, observed.features.clamp(-HALF_MAX, HALF_MAX).half().numpy())
    group.barrier()
    parts, features = zip(*map(_read_shard, shards), strict=True)
    return Observations.concat(parts), list(features)


def _read_shard(path: Path) -> tuple[Observations, np.ndarray]:
    arrays = read_npz(path.with_suffix(".npz"), f"Delete {path.parent} and run again.")
    return Observations.from_arrays(arrays), np.load(
        path.with_suffix(".npy"), mmap_mode="r", allow_pickle=False
    )


def _is_complete(path: Path, count: int) -> bool:
    """Return whether both files of a shard exist and are intact; a damaged shard is made again."""
    try:
        observed, features = _read_shard(path)  # refuses a wrong size
    except (UserError, OSError, ValueError, EOFError):
        return False
    return len(observed) == len(features) == count


def cache_key(
    model: PoseModel,
    head: CalibrationHead,
    people: Sequence[AnnotatedPerson],
    augment: Augment | None,
    seed: Sequence[int],
) -> CacheKey:
    """Return the cache key of one pass: everything that observations depend on."""
    first = head.heads[0]
    annotated = hashlib.sha256()  # image names, not contents: a data set has too many bytes
    for person in people:
        text = f"{person.id} {person.image.name} {person.box_px} {person.area_px2} {person.head_px}"
        annotated.update(text.encode("utf-8", "surrogateescape") + person.keypoints.tobytes())
    return CacheKey(
        stage="observations",
        settings={
            "crop": [model.crop, model.box_scale, *model.input_wh],
            "head": first.kind,
            "features": model.features_name,
            "augment": None if augment is None else asdict(augment),
            "seed": None if augment is None else list(seed),
            "people": len(people),
        },
        inputs={
            "weights": weights_digest(model.state_dict()),
            "people": annotated.hexdigest()[:16],
        },
        code=code_digest(__name__, type(first).inputs.__module__, type(model).__module__),
    )


def take(arrays: Sequence[np.ndarray], index: np.ndarray) -> Tensor:
    """Return rows [M, ...] of several arrays on disk as if they were one, in single precision."""
    start = np.cumsum([0, *map(len, arrays)])
    which = np.searchsorted(start, index, side="right") - 1
    rows = [arrays[number][row] for number, row in zip(which, index - start[which], strict=True)]
    return torch.from_numpy(np.stack(rows).astype(np.float32))
