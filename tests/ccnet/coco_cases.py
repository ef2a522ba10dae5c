"""Random annotation files and results with everything in them that an evaluator can get wrong."""

from typing import Any

import numpy as np

from ccnet.coco_ap.matching import GroundTruth

SIZES_PX = (12, 30, 34, 60, 95, 98, 200, 400)  # around the borders of small, medium and large


def ground_truth(
    image: np.ndarray,
    xy_px: np.ndarray,
    visibility: np.ndarray,
    area_px2: np.ndarray,
    box_px: np.ndarray,
) -> GroundTruth:
    """People from arrays (shapes as in `GroundTruth`)."""
    return GroundTruth(
        images=np.unique(image),
        image=image,
        xy_px=xy_px,
        visibility=visibility,
        area_px2=area_px2,
        box_px=box_px,
        crowd=np.zeros(len(image), bool),
        ignore=~(visibility > 0).any(1),
        id=np.arange(1, len(image) + 1),
    )


def random_case(
    seed: int, images: int = 12, keypoints: int = 17
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A COCO data set and results for it. Crowds, people without labels, ties, doubles, crowded and
    empty images.
    """
    rng = np.random.default_rng(seed)
    ids = rng.choice(10_000, images, replace=False)  # neither sorted nor gapless
    people: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for image in ids:
        here = [_person(rng, int(image), keypoints) for _ in range(rng.integers(0, 7))]
        if here and rng.random() < 0.5:
            here.append(_twin(rng, here[0]))
        people += here
        for person in here:
            results += [_near(rng, person) for _ in range(rng.integers(0, 6))]
        results += [_anywhere(rng, int(image), keypoints) for _ in range(rng.integers(0, 4))]
    rng.shuffle(people)  # type: ignore[arg-type]
    rng.shuffle(results)  # type: ignore[arg-type]
    for number, person in enumerate(
        people, start=int(rng.integers(0, 2))
    ):  # pycocotools has a word to say on id 0
        person["id"] = number
    categories = [{"id": 1, "name": "person"}]
    return {
        "images": [{"id": int(i)} for i in ids],
        "annotations": people,
        "categories": categories,
    }, results


def _person(rng: np.random.Generator, image: int, keypoints: int) -> dict[str, Any]:
    size = float(rng.choice(SIZES_PX))
    corner = rng.uniform(0, 300, 2)
    xy = np.round(corner + rng.uniform(0, size, (keypoints, 2)))
    visibility = rng.choice([0, 1, 2], keypoints, p=[0.3, 0.2, 0.5])
    if rng.random() < 0.15:
        visibility[:] = 0
    xy[visibility == 0] = 0
    labelled = int(np.count_nonzero(visibility))
    return {
        "image_id": image,
        "category_id": 1,
        "keypoints": np.column_stack([xy, visibility]).ravel().tolist(),
        # sometimes the file's own count contradicts its labels; pycocotools believes the count
        "num_keypoints": 0 if rng.random() < 0.05 else labelled,
        "area": float(size**2 * rng.choice([0.5, 1.0])),
        "bbox": [*corner.tolist(), size, size],
        "iscrowd": int(rng.random() < 0.15),
    }


def _twin(rng: np.random.Generator, person: dict[str, Any]) -> dict[str, Any]:
    """The same person annotated again with fewer labels: an exact detection is equally similar to
    both.
    """
    points = np.asarray(person["keypoints"]).reshape(-1, 3).copy()
    points[rng.random(len(points)) < 0.5] = 0
    return {
        **person,
        "keypoints": points.ravel().tolist(),
        "num_keypoints": int(np.count_nonzero(points[:, 2])),
    }


def _near(rng: np.random.Generator, person: dict[str, Any]) -> dict[str, Any]:
    points = np.asarray(person["keypoints"], float).reshape(-1, 3).copy()
    points[points[:, 2] == 0, :2] = person["bbox"][:2]
    spread = rng.choice([0.0, 0.02, 0.08, 0.2]) * np.sqrt(person["area"])
    points[:, :2] += rng.normal(0, 1, (len(points), 2)) * spread
    if (
        rng.random() < 0.2
    ):  # exact on some keypoints, hopeless on the rest: OKS falls on a threshold
        points[:, :2] += np.where(rng.random((len(points), 1)) < 0.4, 1e4, 0)
    return _result(rng, person["image_id"], points)


def _anywhere(rng: np.random.Generator, image: int, keypoints: int) -> dict[str, Any]:
    points = np.column_stack(
        [rng.uniform(0, 700, (keypoints, 2)) * rng.choice([0.05, 0.3, 1.0]), np.ones(keypoints)]
    )
    return _result(rng, image, points)


def _result(rng: np.random.Generator, image: int, points: np.ndarray) -> dict[str, Any]:
    score = rng.choice([rng.random(), rng.integers(0, 5) / 4])  # half of them tie with others
    return {
        "image_id": image,
        "category_id": 1,
        "keypoints": points.ravel().tolist(),
        "score": float(score),
    }
