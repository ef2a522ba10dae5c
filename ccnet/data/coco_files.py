"""Annotation files of COCO and COCO-WholeBody, with every entry that is read later checked."""

from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base.json_files import Json
from pose2d.base.limits import MOST_PIXELS
from pose2d.skeletons import COCO17, Skeleton
from pose2d.video.images import LARGEST_SIDE

WHOLEBODY_FIELDS = ("keypoints", "foot_kpts", "face_kpts", "lefthand_kpts", "righthand_kpts")


_MOST_PX = 1 << 20  # limit on coordinates


def read_coco(content: Json, skeleton: Skeleton) -> dict[str, Any]:
    """Return the people of a COCO keypoint file with every entry that is read later checked."""
    images = {}
    for image in content.item("images").items():
        entry = {
            "id": image.item("id").integer(),
            "file_name": checked_file_name(image.item("file_name")),
        }
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
    numbers: set[int] = set()
    for annotation in content.item("annotations").items():
        if annotation.item("category_id").integer() != person["id"]:
            continue
        if (number := annotation.item("id").integer()) in numbers:
            raise annotation.item("id").refuse(
                f"is {number}, as in another annotation; ids must be unique"
            )
        numbers.add(number)
        image_id = annotation.item("image_id").integer()
        if image_id not in images:
            raise annotation.item("image_id").refuse("is not the id of any image")
        points = annotation.get("keypoints", []).finite_numbers()
        if len(points) % 3:
            raise annotation.item("keypoints").refuse(
                f"has {len(points)} numbers; expected x, y, visibility for each keypoint"
            )
        if np.abs(points).max(initial=0) > _MOST_PX or points[2::3].max(initial=0) > 100:
            raise annotation.item("keypoints").refuse(
                "holds a coordinate or visibility out of range"
            )
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
    """Return the category of people, wherever it is listed. Its keypoints, if named, must be in our
    order.
    """
    entries = list(categories.items())
    people = entries
    if len(entries) > 1:
        people = [entry for entry in entries if entry.get("name", "").value == "person"]
    if len(people) != 1:
        categories_named = ", ".join(repr(entry.get("name", "").value) for entry in entries)[:200]
        raise categories.refuse(
            f"must have one category named 'person', has {categories_named or 'none'}"
        )
    keypoints = people[0].get("keypoints", [])
    listed = keypoints.value if isinstance(keypoints.value, list) else []
    names = [str(name).lower().replace(" ", "_") for name in listed]
    body = COCO17.keypoints  # all data sets start with these; names of faces and hands vary
    differs = next((name for name, ours in zip(names, body, strict=False) if name != ours), "")
    if names and (differs or len(names) not in (COCO17.size, skeleton.size)):
        why = f"there are {len(names)}"
        if differs:
            why = f"the first that differs is {differs[:80]!r}"
        raise keypoints.refuse(
            f"are not the {skeleton.size} of {skeleton.name} in their order ({why}): choose a "
            "model for the keypoints of this data set, or bring them into this order"
        )
    return {**people[0].object(), "id": people[0].item("id").integer()}


def checked_file_name(name: Json) -> str:
    """Return the file name of an image; refuse one that leaves the folder of images."""
    parts = Path(name.text()).parts
    if ".." in parts or Path(name.text()).is_absolute() or "\0" in name.text():
        raise name.refuse("leaves the folder of images")
    return name.text()


def read_wholebody(content: Json, skeleton: Skeleton) -> dict[str, Any]:
    """Return COCO-WholeBody's people, their five keypoint lists joined into one of 133."""
    joined = []
    for annotation in content.item("annotations").items():
        points = [
            value
            for field in WHOLEBODY_FIELDS
            for value in annotation.get(field, []).finite_numbers().tolist()
        ]
        labelled = sum(value > 0 for value in points[2::3])
        joined.append({**annotation.object(), "keypoints": points, "num_keypoints": labelled})
    one_list = {**content.object(), "annotations": joined}
    return read_coco(Json(one_list, content.path, expected=content.expected), skeleton)
