"""Run the frozen network on annotated people and note how right it was."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields

import cv2
import numpy as np
import torch
from torch import Tensor

from ccnet.data.augment import Augment, jitter_box, spoil
from ccnet.data.datasets import Person, load_image
from ccnet.heads.head import Head
from ccnet.losses import Truth
from pose2d import crops
from pose2d.estimate import Crops, crop_people, estimate_crops
from pose2d.models.base import PoseModel
from pose2d.oks import keypoint_oks, l_squared

NETWORK_BATCH = 32


@dataclass(frozen=True)
class Observed:
    """What the network said of N people, what the head will read of it, and how right it was."""

    read: Tensor  # [N, *read_shape]
    xy_px: Tensor  # [N, K, 2] image pixels; in a mirrored crop too, keypoints under their true names
    score: Tensor  # [N, K] the network's own confidence, in the crop's order of keypoints (as all below)
    sigma_px: Tensor  # [N, K, 2] the network's own standard deviation in image pixels; NaN if it states none
    oks: Tensor  # [N, K] 0 where not labelled
    present: Tensor  # [N, K] 1 if labelled and inside the crop
    labelled: Tensor  # [N, K] 1 if labelled
    crop_area_px2: Tensor  # [N] of the crop, in image pixels
    area_share: Tensor  # [N] the person's area over the crop's

    def __len__(self) -> int:
        return len(self.oks)

    def truth(self, index: Tensor) -> Truth:
        return Truth(self.oks, self.present, self.labelled, index)


def join(parts: Sequence[Observed]) -> Observed:
    """Several batches as one."""
    return Observed(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(Observed)))


class Image:
    """The last image read: people come sorted by image."""

    def __init__(self) -> None:
        self.person: Person | None = None
        self.pixels = np.zeros((0, 0, 3), np.uint8)

    def of(self, person: Person) -> np.ndarray:
        if self.person is None or self.person.image != person.image:
            self.person, self.pixels = person, load_image(person)
        return self.pixels


def observe(
    model: PoseModel,
    head: Head,
    people: Sequence[Person],
    augment: Augment | None = None,
    seed: Sequence[int] = (0,),
) -> Iterator[Observed]:
    """One batch after another, on the CPU, in the order of `people`.

    The randomness of one person's crop hangs on `seed` and the person's id alone, not on its neighbours.
    """
    parts = [people[i : i + NETWORK_BATCH] for i in range(0, len(people), NETWORK_BATCH)]
    last = Image()
    with ThreadPoolExecutor(1) as ahead:  # the next crops are cut while the network runs
        coming = ahead.submit(cut, model, parts[0], last, augment, seed) if parts else None
        for number, part in enumerate(parts):
            assert coming is not None
            ready = coming.result()
            if number + 1 < len(parts):
                coming = ahead.submit(cut, model, parts[number + 1], last, augment, seed)
            yield _observe_batch(model, head, part, *ready)


def cut(
    model: PoseModel, people: Sequence[Person], last: Image, augment: Augment | None, seed: Sequence[int]
) -> tuple[Crops, np.ndarray]:
    """The network's crops of these people, augmented if asked for, and which of them are mirrored, [N]."""
    pixels, affines, mirrored = [], [], []
    mirror = np.array([[-1.0, 0, model.input_wh[0] - 1], [0, 1, 0], [0, 0, 1]])  # crop pixels -> mirrored crop pixels
    for person in people:
        random = np.random.default_rng([*seed, person.id])
        box = np.asarray(person.box_px)
        if augment is not None:
            box = jitter_box(box, augment, random)
        one = crop_people(model, last.of(person), box[None])
        several, affine = one.pixels, one.affine
        grey_around = model.crop == "square"
        if augment is not None and random.random() < augment.surroundings:
            several, grey_around = crops.cut(last.of(person), affine, model.input_wh), False
        crop = several[0]
        mirrored.append(augment is not None and random.random() < augment.flip)
        if augment is not None:
            labelled = person.keypoints[person.keypoints[:, 2] > 0, :2]
            person_px = crops.move(affine, torch.from_numpy(labelled)[None])[0].numpy()
            shown_px = np.array([0, 0, *model.input_wh])
            if grey_around:
                (shown_px,) = crops.grown_boxes(box[None], model.box_scale, affine)
            spoilt = spoil(crop.permute(1, 2, 0).numpy(), shown_px, person_px, augment, random)
            crop = torch.from_numpy(spoilt).permute(2, 0, 1)
        pixels.append(crop.flip(-1) if mirrored[-1] else crop)
        affines.append(mirror[:2] @ np.vstack([affine[0], [0, 0, 1]]) if mirrored[-1] else affine[0])
    return Crops(torch.stack(pixels), np.stack(affines)), np.array(mirrored)


@torch.inference_mode()
def _observe_batch(
    model: PoseModel, head: Head, people: Sequence[Person], cropped: Crops, mirrored: np.ndarray
) -> Observed:
    found = estimate_crops(model, cropped)
    keypoints = torch.from_numpy(np.stack([person.keypoints for person in people]))
    area = torch.tensor([person.area_px2 for person in people], dtype=torch.float32)
    order = torch.tensor(model.skeleton.flip_order)

    def swapped(values: Tensor) -> Tensor:  # left and right trade places where the crop is mirrored
        choose = torch.from_numpy(mirrored).reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(choose, values[:, order], values)

    xy_px = swapped(found.xy_px)
    labelled = keypoints[..., 2] > 0
    truth_crop = crops.move(cropped.affine, keypoints[..., :2])
    inside = ((truth_crop >= 0) & (truth_crop <= torch.tensor(model.input_wh) - 1.0)).all(-1)
    distance2 = (xy_px - keypoints[..., :2]).square().sum(-1)
    oks = keypoint_oks(distance2, l_squared(area, model.skeleton)).float() * labelled
    return Observed(
        read=head.read(found.features.float()).cpu(),
        xy_px=xy_px,
        score=found.score,
        sigma_px=found.sigma_px,
        oks=swapped(oks),
        present=swapped((labelled & inside).float()),
        labelled=swapped(labelled.float()),
        crop_area_px2=found.crop_area_px2,
        area_share=area / found.crop_area_px2,
    )


def use_threads(count: int | None) -> None:
    """How many processor cores to use; None leaves the choice to torch."""
    if count is not None:
        torch.set_num_threads(count)
        cv2.setNumThreads(count)
