"""Annotated people on disk: COCO, COCO-WholeBody and MPII in the layouts they are published in."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np

from ccnet.coco_ap.matching import GroundTruth, ground_truth_from_coco
from ccnet.data.coco_files import read_coco, read_wholebody
from ccnet.data.mpii import mpii_as_coco
from pose2d.base.errors import UserError
from pose2d.base.json_files import Json, read_json
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133, Skeleton
from pose2d.video.images import read_image

# Where annotations are, with `*` for the split, and the suffix of the split's name that the file
# name lacks. Halpe's first 17 keypoints are COCO's.
_COCO_LAYOUT = ("annotations/person_keypoints_*.json", "")


_LAYOUT = {
    COCO17: _COCO_LAYOUT,
    HALPE26: _COCO_LAYOUT,
    MPII16: ("annot/*.json", ""),
    WHOLEBODY133: ("annotations/coco_wholebody_*_v1.0.json", "2017"),
}


@dataclass(frozen=True)
class AnnotatedPerson:
    """One annotated person with at least one labelled keypoint."""

    id: int  # of the annotation
    image_id: int
    image: Path
    image_wh: tuple[int, int] | None  # size the coordinates refer to, if not the file's own
    box_px: tuple[float, float, float, float]  # x1, y1, x2, y2
    area_px2: float  # sets the scale of OKS
    keypoints: np.ndarray  # [K, 3] x, y in image pixels; 0 not labelled, 1 hidden, 2 visible
    head_px: float = math.nan  # size of the head, in whose parts MPII counts errors; NaN: not known


@dataclass(frozen=True)
class Split:
    name: str
    skeleton: Skeleton
    people: tuple[AnnotatedPerson, ...]  # sorted by image
    # All images and annotations in COCO's form, keypoints in the order of `skeleton`.
    dataset: Mapping[str, Any]
    source: Path  # the annotation file
    head_sizes: str = ""  # where `head_px` comes from, for MPII

    @cached_property
    def truth(self) -> GroundTruth:
        """Return all annotated people as AP counts them."""
        return ground_truth_from_coco(self.dataset, labelled_skeleton(self.skeleton).size)


def labelled_skeleton(skeleton: Skeleton) -> Skeleton:
    """Return the keypoints that data sets label: of Halpe's 26, COCO's 17."""
    return COCO17 if skeleton == HALPE26 else skeleton


def read_split(
    root: str | Path, name: str, skeleton: Skeleton = COCO17, plain_boxes: bool = False
) -> Split:
    """Read one split of the data set in `root`, for example "val2017". The skeleton decides which
    data set is read: COCO, COCO-WholeBody or MPII. Annotated boxes are cut to the image as
    SimpleBaseline does it, which removes 1 px; `plain_boxes` takes them as they are.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(
            f"no data folder at {root}. Pass the folder that holds annotations/ and the images."
        )
    if skeleton not in _LAYOUT:
        raise UserError(
            f"no data set with the keypoints of {skeleton.name!r} can be read; expected coco17, "
            "mpii16 or wholebody133."
        )
    pattern, year = _LAYOUT[skeleton]
    source = root / pattern.replace("*", name.removesuffix(year))
    content = _read_json(source, root, skeleton)
    heads = source.with_name(f"gt_{name}.mat")
    if skeleton == MPII16:
        dataset = mpii_as_coco(content, heads)
        images = root / "images"
    else:
        read = read_wholebody if skeleton == WHOLEBODY133 else read_coco
        dataset = read(content, skeleton)
        images = _image_folder(root, name)
    people = tuple(_people(dataset, images, skeleton, source, plain_boxes))
    if not people:
        raise UserError(
            f"{source} has no person with a labelled keypoint: nothing to train on or to evaluate."
        )
    present = {path.name for path in images.iterdir()} if images.is_dir() else set()
    if missing := sorted({person.image.name for person in people} - present):
        raise UserError(
            f"{len(missing)} images are not in {images}, the first is {missing[0]}. "
            "Download the images that belong to the annotations."
        )
    head_sizes = ""
    if skeleton == MPII16:
        head_sizes = heads.name if heads.is_file() else "upper neck to head top"
    return Split(name, skeleton, people, dataset, source, head_sizes)


def usual_split(role: Literal["train", "test"], skeleton: Skeleton) -> str:
    """Return the name of the split that published figures are trained on or reported on."""
    mpii, coco = {"train": ("train", "train2017"), "test": ("valid", "val2017")}[role]
    return mpii if skeleton == MPII16 else coco


def split_names(root: str | Path, skeleton: Skeleton = COCO17) -> list[str]:
    """Return the splits that `root` has annotations for."""
    pattern, year = _LAYOUT[skeleton]
    before, after = Path(pattern).name.split("*")
    return sorted(
        path.name.removeprefix(before).removesuffix(after) + year
        for path in Path(root).glob(pattern)
    )


def load_image(person: AnnotatedPerson) -> np.ndarray:
    """Read the person's image, RGB uint8, at the size its annotations were made for."""
    image = read_image(person.image)
    if person.image_wh is None or (image.shape[1], image.shape[0]) == person.image_wh:
        return image
    return cv2.resize(image, person.image_wh, interpolation=cv2.INTER_LINEAR)


def evenly(people: Sequence[AnnotatedPerson], most: int) -> list[AnnotatedPerson]:
    """Return at most `most` of the people, evenly spread."""
    if not people:
        return []
    chosen = np.unique(np.linspace(0, len(people) - 1, most).astype(int))
    return [people[i] for i in chosen]


def by_image(people: Sequence[AnnotatedPerson]) -> list[list[AnnotatedPerson]]:
    """Group people by the image they are in. `people` must be sorted by image."""
    return [list(group) for _, group in groupby(people, key=lambda person: person.image)]


def _read_json(path: Path, root: Path, skeleton: Skeleton) -> Json:
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*.json")) if path.parent.is_dir() else []
        hint = f" That folder has {', '.join(beside)}." if beside else ""
        alternatives = [
            alternative
            for alternative in (COCO17, MPII16, WHOLEBODY133)
            if alternative != skeleton and split_names(root, alternative)
        ]
        if alternatives and not split_names(root, skeleton):
            hint = (
                f" {root} has annotations of {alternatives[0].name}: choose a model for them "
                "(`fitmesh models`)."
            )
        raise UserError(f"no annotations at {path}.{hint}")
    return read_json(path, "Expected annotations as they are published; download them again.")


def _image_folder(root: Path, split: str) -> Path:
    """Return the folder named `split`, or by the part of its name before an underscore: two
    annotation files may share images.
    """
    for name in (split.rsplit("_", n)[0] for n in range(split.count("_") + 1)):
        for folder in (root / name, root / "images" / name):
            if folder.is_dir():
                return folder
    raise UserError(
        f"no images for {split!r}: expected a folder {root / split} or {root / 'images' / split}."
    )


def _people(
    dataset: Mapping[str, Any],
    image_folder: Path,
    skeleton: Skeleton,
    source: Path,
    plain_boxes: bool,
) -> Iterable[AnnotatedPerson]:
    """Return the people who can be evaluated, sorted by image."""
    image_of = {image["id"]: image for image in dataset["images"]}
    people = []
    for annotation in dataset["annotations"]:
        keypoints = np.asarray(annotation["keypoints"], np.float32).reshape(-1, 3)
        image = image_of[annotation["image_id"]]
        box = _clean_box(annotation["bbox"], {} if plain_boxes else image)
        if annotation["iscrowd"] or box is None or not (keypoints[:, 2:] > 0).any():
            continue
        if skeleton == HALPE26 and len(keypoints) == COCO17.size:
            unlabelled = np.zeros((HALPE26.size - COCO17.size, 3), np.float32)
            keypoints = np.concatenate([keypoints, unlabelled])
        if len(keypoints) != skeleton.size:
            raise UserError(
                f"{source}: annotation {annotation['id']} has {len(keypoints)} keypoints, expected "
                f"the {skeleton.size} of {skeleton.name}. Choose a model that predicts the "
                "keypoints of this data set."
            )
        size = (image["width"], image["height"]) if "width" in image else None
        people.append(
            AnnotatedPerson(
                id=annotation["id"],
                image_id=annotation["image_id"],
                image=image_folder / image["file_name"],
                image_wh=size,
                box_px=box,
                area_px2=annotation["area"],
                keypoints=keypoints,
                head_px=annotation.get("head_px", math.nan),
            )
        )
    return sorted(people, key=lambda person: (str(person.image), person.id))


def _clean_box(
    box: Sequence[float], image: Mapping[str, Any]
) -> tuple[float, float, float, float] | None:
    """Return x1, y1, x2, y2 of COCO's x, y, width, height, cut to the image as SimpleBaseline does:
    the last pixel is at width - 1, so boxes lose 1 px. None if nothing of the box is inside.
    """
    x, y, width, height = box
    if "width" not in image:  # plain boxes; MPII does not give sizes of images
        return (x, y, x + width, y + height) if min(width, height) > 0 else None
    x1 = max(0.0, x)
    y1 = max(0.0, y)
    x2 = min(image["width"] - 1.0, x1 + max(0.0, width - 1))
    y2 = min(image["height"] - 1.0, y1 + max(0.0, height - 1))
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else None
