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
from pose2d.base.errors import UserError
from pose2d.base.json_files import Json, read_json
from pose2d.base.limits import MOST_PIXELS
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133, Skeleton
from pose2d.video.images import LARGEST_SIDE, read_image

WHOLEBODY_FIELDS = ("keypoints", "foot_kpts", "face_kpts", "lefthand_kpts", "righthand_kpts")
_MOST_PX = 1 << 20  # of an image's side
# Where annotations are, `*` for the split, and what its file's name lacks of the split's. Halpe's
# first 17 are COCO's.
_COCO_LAYOUT = ("annotations/person_keypoints_*.json", "")
_LAYOUT = {
    COCO17: _COCO_LAYOUT,
    HALPE26: _COCO_LAYOUT,
    MPII16: ("annot/*.json", ""),
    WHOLEBODY133: ("annotations/coco_wholebody_*_v1.0.json", "2017"),
}
MPII_BOX_PX = 200.0  # MPII states a person's size in units of 200 pixels


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
    dataset: Mapping[
        str, Any
    ]  # all images and annotations in COCO's form, keypoints in `skeleton`'s order
    source: Path  # the annotation file
    head_sizes: str = ""  # where `head_px` comes from, for MPII

    @cached_property
    def truth(self) -> GroundTruth:
        """Everybody, as AP counts them. Of Halpe's keypoints COCO labels the first 17."""
        return ground_truth_from_coco(self.dataset, labelled_skeleton(self.skeleton).size)


def labelled_skeleton(skeleton: Skeleton) -> Skeleton:
    """Those of a network's keypoints that data sets label: of Halpe's, COCO's 17."""
    return COCO17 if skeleton == HALPE26 else skeleton


def read_split(root: str | Path, name: str, skeleton: Skeleton = COCO17) -> Split:
    """One split of the data set in `root`, for example "val2017"; the skeleton says which kind of
    data set it is.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(
            f"no data folder at {root}. Pass the folder that holds annotations/ and the images."
        )
    if skeleton not in _LAYOUT:
        known = "coco17, mpii16, wholebody133"
        raise UserError(
            f"no data set with the keypoints of {skeleton.name!r} can be read, only: {known}."
        )
    pattern, year = _LAYOUT[skeleton]
    source = root / pattern.replace("*", name.removesuffix(year))
    content = _read_json(source, root, skeleton)
    heads = source.with_name(f"gt_{name}.mat")
    if skeleton == MPII16:
        dataset = _mpii_as_coco(content, heads)
        images = root / "images"
    else:
        dataset = (
            _wholebody_as_one(content, skeleton)
            if skeleton == WHOLEBODY133
            else _coco(content, skeleton)
        )
        images = _image_folder(root, name)
    people = tuple(_people(dataset, images, skeleton, source))
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
    head_sizes = (
        "" if skeleton != MPII16 else heads.name if heads.is_file() else "upper neck to head top"
    )
    return Split(name, skeleton, people, dataset, source, head_sizes)


def usual_split(role: Literal["train", "test"], skeleton: Skeleton) -> str:
    """The split that published figures are trained on, and the one that they are reported on."""
    mpii, coco = {"train": ("train", "train2017"), "test": ("valid", "val2017")}[role]
    return mpii if skeleton == MPII16 else coco


def split_names(root: str | Path, skeleton: Skeleton = COCO17) -> list[str]:
    """The splits that `root` has annotations for."""
    pattern, year = _LAYOUT[skeleton]
    before, after = Path(pattern).name.split("*")
    return sorted(
        path.name.removeprefix(before).removesuffix(after) + year
        for path in Path(root).glob(pattern)
    )


def load_image(person: AnnotatedPerson) -> np.ndarray:
    """The person's image, RGB uint8, at the size its annotations were made for."""
    image = read_image(person.image)
    if person.image_wh is None or (image.shape[1], image.shape[0]) == person.image_wh:
        return image
    return cv2.resize(image, person.image_wh, interpolation=cv2.INTER_LINEAR)


def evenly(people: Sequence[AnnotatedPerson], most: int) -> list[AnnotatedPerson]:
    """At most so many of them, evenly spread."""
    return (
        [people[i] for i in np.unique(np.linspace(0, len(people) - 1, most).astype(int))]
        if people
        else []
    )


def by_image(people: Sequence[AnnotatedPerson]) -> list[list[AnnotatedPerson]]:
    """People grouped by the image they are in, each image once; `people` sorted by image."""
    return [list(group) for _, group in groupby(people, key=lambda person: person.image)]


def _read_json(path: Path, root: Path, skeleton: Skeleton) -> Json:
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*.json")) if path.parent.is_dir() else []
        hint = f" Found there: {', '.join(beside)}." if beside else ""
        others = [
            other
            for other in (COCO17, MPII16, WHOLEBODY133)
            if other != skeleton and split_names(root, other)
        ]
        if others and not split_names(root, skeleton):
            hint = f" {root} has annotations of {others[0].name}: choose a model for them (`fitmesh models`)."
        raise UserError(f"no annotations at {path}.{hint}")
    return read_json(path, "Expected annotations as they are published; download them again.")


def _image_folder(root: Path, split: str) -> Path:
    """`split`, or the part of its name before an underscore (two annotation files may share
    images).
    """
    for name in (split.rsplit("_", n)[0] for n in range(split.count("_") + 1)):
        for folder in (root / name, root / "images" / name):
            if folder.is_dir():
                return folder
    raise UserError(
        f"no images for {split!r}: expected a folder {root / split} or {root / 'images' / split}."
    )


def _coco(content: Json, skeleton: Skeleton) -> dict[str, Any]:
    """The people of a COCO keypoint file, every entry that is read later checked."""
    images = {}
    for image in content.item("images").items():
        entry = {"id": image.item("id").integer(), "file_name": _file_name(image.item("file_name"))}
        if "width" in image:
            width, height = (
                image.item(side).integer(1, LARGEST_SIDE) for side in ("width", "height")
            )
            if width * height > MOST_PIXELS:
                raise image.refuse(f"claims {width}x{height} pixels, more than any image may have")
            entry |= {"width": width, "height": height}
        images[entry["id"]] = entry
    person = _person_category(content.item("categories"), skeleton)
    annotations = []
    seen: set[int] = set()
    for annotation in content.item("annotations").items():
        if annotation.item("category_id").integer() != person["id"]:
            continue
        if (number := annotation.item("id").integer()) in seen:
            raise annotation.item("id").refuse(
                f"is {number}, as that of another annotation; every one has its own"
            )
        seen.add(number)
        image_id = annotation.item("image_id").integer()
        if image_id not in images:
            raise annotation.item("image_id").refuse("is none of the images")
        points = annotation.get("keypoints", []).finite_numbers()
        if len(points) % 3:
            raise annotation.item("keypoints").refuse(
                f"has {len(points)} numbers; expected x, y, visibility of each"
            )
        if np.abs(points).max(initial=0) > _MOST_PX or points[2::3].max(initial=0) > 100:
            raise annotation.item("keypoints").refuse("holds a number that no keypoint has")
        entry = {
            "id": number,
            "image_id": image_id,
            "category_id": person["id"],
            "keypoints": points.tolist(),
            "iscrowd": annotation.get("iscrowd", 0).integer(0, 1),
            "area": annotation.item("area").number(0),
            "bbox": annotation.item("bbox").finite_numbers(4).tolist(),
        }
        if "num_keypoints" in annotation:
            entry["num_keypoints"] = annotation.item("num_keypoints").integer(0)
        annotations.append(entry)
    return {"images": list(images.values()), "annotations": annotations, "categories": [person]}


def _person_category(categories: Json, skeleton: Skeleton) -> dict[str, Any]:
    """The category of people, whatever its place and id. Its keypoints, if they are named, must be
    in our order.
    """
    entries = list(categories.items())
    people = (
        entries
        if len(entries) == 1
        else [e for e in entries if e.get("name", "").value == "person"]
    )
    if len(people) != 1:
        categories_named = ", ".join(repr(entry.get("name", "").value) for entry in entries)[:200]
        raise categories.refuse(
            f"must have one category named 'person', has {categories_named or 'none'}"
        )
    stated = people[0].get("keypoints", [])
    names = (
        [str(name).lower().replace(" ", "_") for name in stated.value]
        if isinstance(stated.value, list)
        else []
    )
    body = COCO17.keypoints  # every set read here begins with them; names of faces and hands vary
    differs = next((name for name, ours in zip(names, body, strict=False) if name != ours), "")
    if names and (differs or len(names) not in (COCO17.size, skeleton.size)):
        why = (
            f"the first that differs is {differs[:80]!r}" if differs else f"there are {len(names)}"
        )
        raise stated.refuse(
            f"are not the {skeleton.size} of {skeleton.name} in their order ({why}): choose a model for the keypoints "
            "of this data set, or bring them into this order"
        )
    return {**people[0].object(), "id": people[0].item("id").integer()}


def _file_name(name: Json) -> str:
    """Inside the folder of images."""
    parts = Path(name.text()).parts
    if ".." in parts or Path(name.text()).is_absolute() or "\0" in name.text():
        raise name.refuse("leaves the folder of images")
    return name.text()


def _people(
    dataset: Mapping[str, Any], image_folder: Path, skeleton: Skeleton, source: Path
) -> Iterable[AnnotatedPerson]:
    image_of = {image["id"]: image for image in dataset["images"]}
    people = []
    for annotation in dataset["annotations"]:
        keypoints = np.asarray(annotation["keypoints"], np.float32).reshape(-1, 3)
        image = image_of[annotation["image_id"]]
        box = _clean_box(annotation["bbox"], image)
        if annotation["iscrowd"] or box is None or not (keypoints[:, 2:] > 0).any():
            continue
        if (
            skeleton == HALPE26 and len(keypoints) == COCO17.size
        ):  # COCO labels the first 17 of them
            keypoints = np.concatenate(
                [keypoints, np.zeros((HALPE26.size - COCO17.size, 3), np.float32)]
            )
        if len(keypoints) != skeleton.size:
            raise UserError(
                f"{source}: annotation {annotation['id']} has {len(keypoints)} keypoints, expected the "
                f"{skeleton.size} of {skeleton.name}. Choose a model that predicts the keypoints of this data set."
            )
        size = (image["width"], image["height"]) if "width" in image else None
        about = (annotation["id"], annotation["image_id"], image_folder / image["file_name"], size)
        head_px = annotation.get("head_px", math.nan)
        people.append(AnnotatedPerson(*about, box, annotation["area"], keypoints, head_px))
    return sorted(people, key=lambda person: (str(person.image), person.id))


def _clean_box(
    box: Sequence[float], image: Mapping[str, Any]
) -> tuple[float, float, float, float] | None:
    """COCO's x, y, width, height cut to the image as the top-down pipelines do; None when nothing
    is left.
    """
    x, y, width, height = box
    if "width" not in image:  # MPII does not state it, and its boxes may reach over the edge
        return (x, y, x + width, y + height) if min(width, height) > 0 else None
    x1 = max(0.0, x)
    y1 = max(0.0, y)
    x2 = min(image["width"] - 1.0, x1 + max(0.0, width - 1))
    y2 = min(image["height"] - 1.0, y1 + max(0.0, height - 1))
    return (x1, y1, x2, y2) if x2 > x1 and y2 > y1 else None


def _wholebody_as_one(content: Json, skeleton: Skeleton) -> dict[str, Any]:
    """The five keypoint lists of COCO-WholeBody joined into one of 133."""
    joined = []
    for annotation in content.item("annotations").items():
        points = [
            value
            for field in WHOLEBODY_FIELDS
            for value in annotation.get(field, []).finite_numbers().tolist()
        ]
        labelled = sum(value > 0 for value in points[2::3])
        joined.append({**annotation.object(), "keypoints": points, "num_keypoints": labelled})
    return _coco(
        Json({**content.object(), "annotations": joined}, content.path, expected=content.expected),
        skeleton,
    )


def _mpii_as_coco(content: Json, head_boxes: Path) -> dict[str, Any]:
    """MPII in the JSON form of HRNet's authors (`image`, `center`, `scale`, `joints`, `joints_vis`)
    as COCO's. Coordinates count from 1. The centre is moved down by 15 pixels per unit of size, as
    the published results have it; the area is that of the tight box around the labelled keypoints.
    Head sizes come from the file `head_boxes` where there is one (of `valid`), else from the neck
    and the top of the head."""
    people = list(content.items())
    sizes_px = read_head_sizes(head_boxes) if head_boxes.is_file() else None
    if sizes_px is not None and len(sizes_px) != len(people):
        raise UserError(
            f"{head_boxes} has {len(sizes_px)} head boxes for the {len(people)} people of {content.path}."
        )
    names = sorted({_file_name(person.item("image")) for person in people})
    ids = {name: index for index, name in enumerate(names, 1)}
    annotations = []
    for number, person in enumerate(people, 1):
        joints = [joint.finite_numbers(2) for joint in person.item("joints").items()]
        visible = person.item("joints_vis").finite_numbers(len(joints)) > 0
        if len(joints) != MPII16.size:
            raise person.item("joints").refuse(
                f"has {len(joints)} keypoints; expected {MPII16.size}"
            )
        xy = np.stack(joints) - 1
        scale = person.item("scale").number(-1, 1e4)
        centre = person.item("center").finite_numbers(2) + np.array([0, 15 * scale]) - 1
        side = MPII_BOX_PX * scale
        extent = np.ptp(xy[visible], axis=0) if visible.any() else np.zeros(2)
        if sizes_px is not None:
            head_px = float(sizes_px[number - 1])
        else:
            head_px = (
                float(np.linalg.norm(np.subtract(*xy[HEAD_ENDS])))
                if visible[HEAD_ENDS].all()
                else math.nan
            )
        annotations.append(
            {
                "id": number,
                "image_id": ids[person.item("image").text()],
                "category_id": 1,
                "iscrowd": 0,
                "bbox": [*(centre - side / 2), side, side],
                "area": float(max(extent.prod(), 1.0)),
                "num_keypoints": int(visible.sum()),
                "head_px": head_px if head_px > 0 else math.nan,
                "keypoints": np.column_stack([xy * visible[:, None], 2 * visible]).ravel().tolist(),
            }
        )
    images = [{"id": ids[name], "file_name": name} for name in names]
    return {
        "images": images,
        "annotations": annotations,
        "categories": [{"id": 1, "name": "person"}],
    }


HEAD_ENDS = [MPII16.keypoints.index(name) for name in ("upper_neck", "head_top")]
HEAD_BIAS = 0.6  # MPII's head size is this times the diagonal of the head box
NOT_COUNTED = (MPII16.keypoints.index("pelvis"), MPII16.keypoints.index("thorax"))
# "Mean@0.1" of SimpleBaseline and HRNet reads entry 11 of the thresholds 0, 0.01, ...: it is PCKh
# at 0.11.
PCKH_AT = (0.5, 0.1, 0.11)


def right_keypoints(
    xy_px: np.ndarray,
    truth_xy_px: np.ndarray,
    labelled: np.ndarray,
    head_px: np.ndarray,
    threshold: float = 0.5,
) -> np.ndarray:
    """[N, 16] 1 where a keypoint lies no further from the truth than `threshold` head sizes, 0
    where it does; NaN where it is not labelled or the head size not known. Places [N, 16, 2],
    labelled [N, 16], head sizes [N] or NaN."""
    distance = (
        np.linalg.norm(np.asarray(xy_px, float) - truth_xy_px, axis=-1)
        / np.asarray(head_px, float)[:, None]
    )
    counted = np.asarray(labelled, bool) & np.isfinite(head_px)[:, None]
    return np.where(counted, distance <= threshold, np.nan)


def pckh(right: np.ndarray) -> dict[str, float]:
    """Percent of labelled keypoints that are right [N, 16]: of the groups that papers print, left
    and right together, and the mean over all but pelvis and thorax; NaN where none is labelled."""
    count = (~np.isnan(right)).sum(0)
    correct = np.nansum(right, 0)
    with np.errstate(invalid="ignore"):
        percent = dict(zip(MPII16.keypoints, 100 * correct / count, strict=True))
        correct, count = (np.delete(of, NOT_COUNTED) for of in (correct, count))
        mean = float(100 * correct.sum() / count.sum())
    parts = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
    both = {
        part: float(np.mean([percent[f"{side}_{part}"] for side in ("left", "right")]))
        for part in parts
    }
    return {"head": float(percent["head_top"]), **both, "mean": mean}


def read_head_sizes(path: str | Path) -> np.ndarray:
    """Head sizes [N] from the boxes of `gt_valid.mat`, in the order of `valid.json`."""
    from scipy.io import loadmat

    try:
        boxes = np.asarray(
            loadmat(str(path))["headboxes_src"], float
        )  # [2, 2, N]: corner, axis, person
    except (KeyError, ValueError, NotImplementedError) as error:
        raise UserError(f"{path} is not MPII's gt_valid.mat: {error}.") from error
    return HEAD_BIAS * np.linalg.norm(boxes[1] - boxes[0], axis=0)
