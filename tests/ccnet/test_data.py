import json

import cv2
import numpy as np
import pytest

from ccnet.coco_ap.matching import ground_truth_from_coco
from ccnet.data.datasets import load_image, read_split, split_names
from pose2d.base.errors import UserError
from pose2d.skeletons import COCO17, HALPE26, MPII16, WHOLEBODY133
from tests.ccnet.toy import write_coco, write_mpii


def change(root, split, edit):
    path = root / "annotations" / f"person_keypoints_{split}.json"
    dataset = json.loads(path.read_text())
    edit(dataset)
    path.write_text(json.dumps(dataset))


def test_people_come_with_their_images_and_boxes(tmp_path):
    write_coco(tmp_path, "train2017", count=3, people=2)
    split = read_split(tmp_path, "train2017")
    assert len(split.people) == 6
    person = split.people[0]
    assert person.box_px == (10, 5, 59, 54)  # COCO's width counts pixels
    assert person.keypoints.shape == (17, 3)
    assert load_image(person).shape == (60, 80, 3)
    assert split_names(tmp_path) == ["train2017"]


def test_crowds_and_people_without_keypoints_are_left_out(tmp_path):
    write_coco(tmp_path, "train2017", count=2, people=2)

    def edit(dataset):
        dataset["annotations"][0]["iscrowd"] = 1
        dataset["annotations"][1]["keypoints"] = [0] * 51

    change(tmp_path, "train2017", edit)
    assert len(read_split(tmp_path, "train2017").people) == 2


def test_a_image_stored_smaller_is_brought_to_the_size_of_its_annotations(tmp_path):
    write_coco(tmp_path, "train2017", count=1)
    path = tmp_path / "train2017" / "000000000001.png"
    full = cv2.imread(str(path))
    cv2.imwrite(str(path), cv2.resize(full, (32, 32)))
    assert load_image(read_split(tmp_path, "train2017").people[0]).shape == (60, 80, 3)


def test_two_annotation_files_may_share_a_folder_of_images(tmp_path):
    write_coco(tmp_path, "train2017_256")
    annotations = tmp_path / "annotations" / "person_keypoints_train2017_256.json"
    annotations.rename(annotations.with_name("person_keypoints_train2017_256_holdout.json"))
    (tmp_path / "images").mkdir()
    (tmp_path / "train2017_256").rename(tmp_path / "images" / "train2017_256")
    assert read_split(tmp_path, "train2017_256_holdout").people[0].image.is_file()


def test_mistakes_are_told_in_words(tmp_path):
    with pytest.raises(UserError, match="no data folder"):
        read_split(tmp_path / "nowhere", "train2017")
    write_coco(tmp_path, "train2017")
    with pytest.raises(
        UserError,
        match=r"no annotations at .*val2017.*person_keypoints_train2017.json",
    ):
        read_split(tmp_path, "val2017")
    (tmp_path / "train2017" / "000000000002.png").unlink()
    with pytest.raises(
        UserError, match=r"1 images are not in .*train2017, the first is 000000000002.png"
    ):
        read_split(tmp_path, "train2017")
    (tmp_path / "annotations" / "person_keypoints_train2017.json").write_text('{"images": [')
    with pytest.raises(UserError, match="not JSON"):
        read_split(tmp_path, "train2017")


def test_people_are_found_whatever_the_order_of_categories(tmp_path):
    write_coco(tmp_path, "train2017", count=2, people=2)

    def edit(dataset):
        dataset["categories"] = [{"id": 1, "name": "dog"}, {"id": 7, "name": "person"}]
        for number, annotation in enumerate(dataset["annotations"]):
            annotation["category_id"] = 7 if number else 1

    change(tmp_path, "train2017", edit)
    split = read_split(tmp_path, "train2017")
    assert [person.id for person in split.people] == [2, 3, 4]
    assert len(ground_truth_from_coco(split.dataset).id) == 3


SWAPPED = ["nose", "right_eye", "left_eye", *COCO17.keypoints[3:]]
CROWDPOSE = [name for name in COCO17.keypoints if "eye" not in name and "ear" not in name]


@pytest.mark.parametrize(
    ("categories", "says"),
    [
        (
            [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}],
            "one category named 'person', has 'dog', 'cat'",
        ),
        ([], "one category named 'person', has none"),
        (
            [{"id": 1, "name": "person", "keypoints": SWAPPED}],
            r"first that differs is 'right_eye'\): choose a model",
        ),
        ([{"id": 1, "name": "person", "keypoints": CROWDPOSE}], "not the 17 of coco17"),
        ([{"id": 1, "name": "person", "keypoints": list(COCO17.keypoints[:14])}], "there are 14"),
    ],
)
def test_other_keypoints_and_categories_are_told_before_any_work(tmp_path, categories, says):
    write_coco(tmp_path, "train2017")
    change(tmp_path, "train2017", lambda dataset: dataset.update(categories=categories))
    with pytest.raises(UserError, match=says):
        read_split(tmp_path, "train2017")


def test_keypoint_names_in_our_order_are_accepted(tmp_path):
    write_coco(tmp_path, "train2017")
    named = [
        {
            "id": 1,
            "name": "person",
            "keypoints": [name.replace("_", " ") for name in COCO17.keypoints],
        }
    ]
    change(tmp_path, "train2017", lambda dataset: dataset.update(categories=named))
    assert read_split(tmp_path, "train2017", HALPE26).people


def test_two_annotations_of_one_id_are_refused(tmp_path):
    write_coco(tmp_path, "train2017")
    change(tmp_path, "train2017", lambda dataset: dataset["annotations"][3].update(id=1))
    with pytest.raises(UserError, match=r"annotations\[3\].id is 1"):
        read_split(tmp_path, "train2017")


def test_a_folder_of_another_data_set_is_named(tmp_path):
    write_mpii(tmp_path / "mpii", "valid")
    write_coco(tmp_path / "coco", "val2017")
    with pytest.raises(UserError, match="has annotations of mpii16: choose a model"):
        read_split(tmp_path / "mpii", "val2017")
    with pytest.raises(UserError, match="has annotations of coco17: choose a model"):
        read_split(tmp_path / "coco", "valid", MPII16)


def test_a_data_set_without_people_is_refused(tmp_path):
    write_coco(tmp_path, "train2017")
    change(tmp_path, "train2017", lambda dataset: dataset.update(annotations=[]))
    with pytest.raises(UserError, match="no person with a labelled keypoint"):
        read_split(tmp_path, "train2017")


def test_wholebody_joins_its_five_lists(tmp_path):
    write_coco(tmp_path, "train2017", count=1, people=1)
    old = tmp_path / "annotations" / "person_keypoints_train2017.json"
    dataset = json.loads(old.read_text())
    for person in dataset["annotations"]:
        for field, count in (
            ("foot_kpts", 6),
            ("face_kpts", 68),
            ("lefthand_kpts", 21),
            ("righthand_kpts", 21),
        ):
            person[field] = [float(count), 1.0, 2.0] * count
    (tmp_path / "annotations" / "coco_wholebody_train_v1.0.json").write_text(json.dumps(dataset))
    person = read_split(tmp_path, "train2017", WHOLEBODY133).people[0]
    assert person.keypoints.shape == (133, 3)
    assert person.keypoints[[17, 23, 91, 132], 0].tolist() == [6, 68, 21, 21]
    assert split_names(tmp_path, WHOLEBODY133) == ["train2017"]


def test_mpii_is_read_from_its_own_layout(tmp_path):
    (tmp_path / "annot").mkdir()
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.jpg"), np.zeros((50, 60, 3), np.uint8))
    joints = [[11.0 + i, 21.0] for i in range(16)]
    person = {
        "image": "a.jpg",
        "center": [31.0, 21.0],
        "scale": 0.1,
        "joints": joints,
        "joints_vis": [1] * 15 + [0],
    }
    joints[3][1] = 31.0
    (tmp_path / "annot" / "valid.json").write_text(json.dumps([person]))
    found = read_split(tmp_path, "valid", MPII16).people[0]
    np.testing.assert_allclose(found.keypoints[0], [10, 20, 2])
    np.testing.assert_allclose(found.keypoints[15], [0, 0, 0])
    np.testing.assert_allclose(
        found.box_px, [20, 11.5, 40, 31.5]
    )  # centre 30, 20 + 15 * 0.1; side 200 * 0.1
    assert found.area_px2 == 14 * 10
    assert load_image(found).shape == (50, 60, 3)


def test_the_shared_sets_hold_as_many_people_as_they_say(shared):
    counts = {
        name: len(read_split(shared / "data" / "coco", name).people)
        for name in ("train2017", "val2017")
    }
    assert counts == {"train2017": 225, "val2017": 406}
    squashed = read_split(shared / "data" / "coco", "train2017_256_holdout", COCO17).people[0]
    assert load_image(squashed).shape[1::-1] == squashed.image_wh
