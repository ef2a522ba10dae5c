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
from pose2d.estimate import crop_people
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


@dataclass(frozen=True)
class _Crops:
    pixels: Tensor  # [N, 3, H, W] uint8
    affine: np.ndarray  # [N, 2, 3] image -> crop, before mirroring
    mirrored: np.ndarray  # [N] bool


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
    device: torch.device | None = None,
) -> Iterator[Observed]:
    """One batch after another, on the CPU, in the order of `people`.

    The randomness of one person's crop hangs on `seed` and the person's id alone, not on its neighbours.
    """
    device = device or torch.device("cpu")
    parts = [people[i : i + NETWORK_BATCH] for i in range(0, len(people), NETWORK_BATCH)]
    last = Image()
    with ThreadPoolExecutor(1) as ahead:  # the next crops are cut while the network runs
        coming = ahead.submit(cut, model, parts[0], last, augment, seed) if parts else None
        for number, part in enumerate(parts):
            assert coming is not None
            ready = coming.result()
            if number + 1 < len(parts):
                coming = ahead.submit(cut, model, parts[number + 1], last, augment, seed)
            yield _look(model, head, part, ready, device)


def cut(
    model: PoseModel, people: Sequence[Person], last: Image, augment: Augment | None, seed: Sequence[int]
) -> _Crops:
    """The network's crops of these people, spoilt if asked for."""
    pixels, affines, mirrored = [], [], []
    for person in people:
        random = np.random.default_rng([*seed, person.id])
        box = np.asarray(person.box_px)
        if augment is not None:
            box = jitter_box(box, augment, random)
        several, affine = crop_people(model, last.of(person), box[None])
        grey_around = model.crop == "square"
        if augment is not None and random.random() < augment.surroundings:
            several, grey_around = crops.cut(last.of(person), affine, model.input_wh), False
        crop = several[0]
        mirror = augment is not None and random.random() < augment.flip
        if augment is not None:
            labelled = person.keypoints[person.keypoints[:, 2] > 0, :2]
            person_px = crops.move(affine, torch.from_numpy(labelled)[None])[0].numpy()
            shown_px = np.array([0, 0, *model.input_wh])
            if grey_around:
                (shown_px,) = crops.grown_boxes(box[None], model.box_scale, affine)
            spoilt = spoil(crop.permute(1, 2, 0).numpy(), shown_px, person_px, augment, random)
            crop = torch.from_numpy(spoilt).permute(2, 0, 1)
        pixels.append(crop.flip(-1) if mirror else crop)
        affines.append(affine[0])
        mirrored.append(mirror)
    return _Crops(torch.stack(pixels), np.stack(affines), np.array(mirrored))


@torch.inference_mode()
def _look(model: PoseModel, head: Head, people: Sequence[Person], cropped: _Crops, device: torch.device) -> Observed:
    features = model.features(model.normalize(cropped.pixels.to(device)))
    prediction = model.predict(features)
    read = head.read(features.float()).cpu()
    keypoints = torch.from_numpy(np.stack([person.keypoints for person in people]))
    area = torch.tensor([person.area_px2 for person in people], dtype=torch.float32)
    order = torch.tensor(model.skeleton.flip_order)
    mirrored = torch.from_numpy(cropped.mirrored)[:, None]

    def swapped(values: Tensor) -> Tensor:  # left and right trade places where the crop is mirrored
        choose = mirrored.reshape(-1, *[1] * (values.ndim - 1))
        return torch.where(choose, values[:, order], values)

    width, height = model.input_wh
    xy = swapped(prediction.xy_px.float().cpu())
    xy = torch.where(mirrored[..., None], torch.stack([width - 1 - xy[..., 0], xy[..., 1]], -1), xy)
    back = crops.invert(cropped.affine)
    xy_px = crops.move(back, xy)
    labelled = keypoints[..., 2] > 0
    truth_crop = crops.move(cropped.affine, keypoints[..., :2])
    inside = ((truth_crop >= 0) & (truth_crop <= torch.tensor([width - 1.0, height - 1.0]))).all(-1)
    distance2 = (xy_px - keypoints[..., :2]).square().sum(-1)
    oks = keypoint_oks(distance2, l_squared(area, model.skeleton)).float() * labelled
    grow = torch.from_numpy(np.sqrt(np.abs(np.linalg.det(back[:, :, :2])))).float()
    sigma = torch.full_like(xy, torch.nan) if prediction.sigma_px is None else prediction.sigma_px.cpu()
    return Observed(
        read=read,
        xy_px=xy_px,
        score=prediction.score.float().cpu(),
        sigma_px=sigma * grow[:, None, None],
        oks=swapped(oks),
        present=swapped((labelled & inside).float()),
        labelled=swapped(labelled.float()),
        crop_area_px2=grow.square() * width * height,
        area_share=area / (grow.square() * width * height),
    )


def use_threads(count: int | None) -> None:
    """How many processor cores to use; None leaves the choice to torch."""
    if count is not None:
        torch.set_num_threads(count)
        cv2.setNumThreads(count)
