"""3DPW's files: what they hold, and what is refused."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from eval3dpw.sequences import (
    camera_params,
    image_numbers,
    read_sequence,
    read_spin_npz,
    sequence_files,
)
from fitting.body.load import load_body
from pose2d.base.errors import UserError
from tests.eval3dpw import tiny_3dpw


def test_the_truth_in_the_camera_is_the_world_seen_by_the_camera(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path)
    sequence = read_sequence(data / "sequenceFiles" / "test" / "two_00.pkl")
    body = load_body()
    for number, track in enumerate(sequence.people):
        found = body.at(camera_params(track, body), vertices=True).vertices
        torch.testing.assert_close(
            found, tiny_3dpw.true_mesh(tiny_3dpw.actor(10 + number)), atol=2e-5, rtol=0
        )


def test_sequences_are_found_in_order_and_by_name(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path)
    assert [path.stem for path in sequence_files(data, "test")] == ["one_00", "two_00"]
    assert [path.stem for path in sequence_files(data, "test", ["two_00"])] == ["two_00"]
    assert image_numbers(data, "one_00") == set(range(tiny_3dpw.FRAMES))


@pytest.mark.parametrize(
    ("split", "names", "words"),
    [
        ("train", (), "has no split 'train'; it has test"),
        ("test", ("three",), "has no sequence three; it has one_00"),
    ],
)
def test_a_missing_split_or_sequence_is_told_with_what_there_is(
    tmp_path, split, names, words
) -> None:
    with pytest.raises(UserError, match=words):
        sequence_files(tiny_3dpw.write(tmp_path), split, names)


def test_a_folder_that_is_not_3dpw_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder sequenceFiles.*virtualhumans"):
        sequence_files(tmp_path, "test")


class _Runs:
    def __reduce__(self):
        return (print, ("code ran",))


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "evil.pkl"
    path.write_bytes(pickle.dumps({"poses": _Runs()}))
    with pytest.raises(UserError, match=r"evil\.pkl was refused"):
        read_sequence(path)
    assert "code ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("cam_poses", np.zeros((6, 3)), "cam_poses has size"),
        ("poses", [np.zeros((5, 72))], r"poses\[0\] has size \[5, 72\]; expected \[6, 72\]"),
        ("poses", [np.full((6, 72), np.nan)], "not finite"),
        ("trans", [], "different numbers of people"),
        ("genders", ["x"], "expected m or f"),
        ("betas", ["words"], "not an array of numbers"),
    ],
)
def test_a_damaged_sequence_names_what_is_wrong(tmp_path: Path, key, value, words) -> None:
    data = tiny_3dpw.write(
        tmp_path, {"one_00": 1}, lambda name, content: content.update({key: value})
    )
    with pytest.raises(UserError, match=words):
        read_sequence(data / "sequenceFiles" / "test" / "one_00.pkl")


def test_a_file_without_a_key_names_it(tmp_path: Path) -> None:
    data = tiny_3dpw.write(tmp_path, {"one_00": 1}, lambda name, content: content.pop("cam_poses"))
    with pytest.raises(UserError, match="lacks cam_poses"):
        read_sequence(data / "sequenceFiles" / "test" / "one_00.pkl")


def test_300_shape_numbers_become_10(tmp_path: Path) -> None:
    data = tiny_3dpw.write(
        tmp_path, {"one_00": 1}, lambda name, content: content.update(betas=[np.arange(300.0)])
    )
    (person,) = read_sequence(data / "sequenceFiles" / "test" / "one_00.pkl").people
    np.testing.assert_array_equal(person.shape, np.arange(10.0))


def spin_rows(count: int = 4) -> dict[str, np.ndarray]:
    names = [f"imageFiles/walk_00/image_{n:05d}.jpg" for n in (0, 2, 0, 1)]
    return {
        "imgname": np.array(names[:count]),
        "center": np.full((count, 2), 50.0),
        "scale": np.full(count, 0.6),
        "pose": np.zeros((count, 72)),
        "shape": np.zeros((count, 10)),
        "gender": np.array(["m", "m", "f", "f"][:count]),
    }


def test_spins_file_becomes_tracks_where_image_numbers_rise(tmp_path: Path) -> None:
    np.savez(tmp_path / "3dpw_test.npz", **spin_rows())
    first, second = read_spin_npz(tmp_path / "3dpw_test.npz")
    assert (first.name, second.name) == ("walk_00/0", "walk_00/1")
    assert (first.frame.tolist(), second.frame.tolist()) == ([0, 2], [0, 1])
    assert (first.gender, second.gender) == ("male", "female")
    np.testing.assert_allclose(
        first.boxes_px[0], [0, 0, 100, 100]
    )  # 200 * 0.6 / 1.2 = 100 pixels wide


def test_another_npz_is_not_spins_file(tmp_path: Path) -> None:
    rows = spin_rows()
    del rows["scale"]
    np.savez(tmp_path / "other.npz", **rows)
    with pytest.raises(UserError, match="lacks scale"):
        read_spin_npz(tmp_path / "other.npz")
