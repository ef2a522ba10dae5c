"""`tools/coco_subset.py` takes the right images out of COCO, and stores them as they were measured."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import cv2
import numpy as np
import pytest

from pose2d.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("coco_subset", ROOT / "tools" / "coco_subset.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sets = {
        "colour": {
            "from": "val2017",
            "images": "val2017",
            "squashed_px": None,
            "ids": [1, 2],
            "grey": [2],
        },
        "small": {
            "from": "val2017",
            "images": "val2017_8",
            "squashed_px": 8,
            "ids": [3],
            "grey": [],
        },
        "gone": {
            "from": "val2017",
            "images": "val2017",
            "squashed_px": None,
            "ids": [1, 9],
            "grey": [],
        },
    }
    path = tmp_path / "subsets.json"
    path.write_text(json.dumps(sets))
    monkeypatch.setattr(module, "SUBSETS", path)
    return module


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """Three red images with one person each."""
    root = tmp_path / "coco"
    (root / "val2017").mkdir(parents=True)
    (root / "annotations").mkdir()
    images = [{"id": i, "file_name": f"{i:012}.jpg", "width": 32, "height": 24} for i in (1, 2, 3)]
    people = [{"id": 10 * i, "image_id": i, "keypoints": [0] * 51} for i in (1, 2, 3)]
    for image in images:
        cv2.imwrite(
            str(root / "val2017" / str(image["file_name"])),
            np.full((24, 32, 3), (0, 0, 200), np.uint8),
        )
    content = {"images": images, "annotations": people, "categories": [{"id": 1, "name": "person"}]}
    (root / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(content))
    return root


def test_only_the_listed_images_and_their_people_are_taken(
    tool: ModuleType, coco: Path, tmp_path: Path
) -> None:
    tool.make(coco, tmp_path / "out", "colour")
    written = json.loads(
        (tmp_path / "out" / "annotations" / "person_keypoints_colour.json").read_text()
    )
    assert [image["id"] for image in written["images"]] == [1, 2]
    assert [person["image_id"] for person in written["annotations"]] == [1, 2]
    assert sorted(path.name for path in (tmp_path / "out" / "images" / "val2017").iterdir()) == [
        "000000000001.jpg",
        "000000000002.jpg",
    ]


def test_grey_and_squashed_images_are_stored_as_they_were_measured(
    tool: ModuleType, coco: Path, tmp_path: Path
) -> None:
    for name in ("colour", "small"):
        tool.make(coco, tmp_path / "out", name)
    images = tmp_path / "out" / "images"
    colour, grey = (
        cv2.imread(str(images / "val2017" / f"{i:012}.jpg"), cv2.IMREAD_UNCHANGED) for i in (1, 2)
    )
    assert colour.shape == (24, 32, 3)
    assert grey.shape == (24, 32)
    assert cv2.imread(str(images / "val2017_8" / "000000000003.jpg")).shape == (8, 8, 3)


def test_an_image_that_coco_does_not_have_is_an_error(
    tool: ModuleType, coco: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="1 images are not in the annotations, among them 9"):
        tool.make(coco, tmp_path / "out", "gone")


def test_the_published_sets_have_the_sizes_that_the_figures_state() -> None:
    sets = json.loads((ROOT / "bench" / "coco_subsets.json").read_text())
    sizes = {
        name: (len(about["ids"]), len(set(about["ids"])), len(about["grey"]))
        for name, about in sets.items()
    }
    assert sizes["val2017"] == (170, 170, 92)
    assert sizes["train2017"] == (78, 78, 1)
    assert sizes["train2017_256_train"] == (5000, 5000, 0)
    assert sizes["train2017_256_holdout"] == (500, 500, 0)
    assert not set(sets["train2017_256_train"]["ids"]) & set(sets["train2017_256_holdout"]["ids"])
