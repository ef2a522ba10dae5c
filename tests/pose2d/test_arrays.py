"""The reader of .npz and .npy: equal or refused, and never more memory than the file can fill."""

import contextlib
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pose2d.base import arrays as reader
from pose2d.base.arrays import Array, check_arrays, read_npy, read_npz
from pose2d.base.errors import UserError
from tools.hostile.mutations import HEADERS, npy_header

ANY = hnp.arrays(
    st.sampled_from(
        [np.float32, np.float64, np.int64, np.uint8, np.bool_, np.dtype("<U3"), np.dtype(">f4")]
    ),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
FAST = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@FAST
@given(st.dictionaries(st.sampled_from("abcd"), ANY, min_size=1), st.booleans())
def test_what_numpy_writes_is_read_back(
    tmp_path: Path, content: dict[str, np.ndarray], compressed: bool
) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, **content)  # type: ignore[operator]
    found = read_npz(path, "")
    assert list(found) == list(content)
    for name, value in content.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype.newbyteorder("=")


@FAST
@given(ANY)
def test_npy_too_also_in_columns(tmp_path: Path, value: np.ndarray) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(value))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy", ""), value)


@FAST
@given(st.data())
def test_changed_bytes_are_refused_or_change_nothing(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "a.npz"
    value = np.arange(200.0).reshape(10, 20)
    np.savez_compressed(path, value=value)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with contextlib.suppress(UserError):
        found = read_npz(path, "", ["value"])
        if "value" in found:  # its name may have been changed
            np.testing.assert_array_equal(found["value"], value)


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_header_that_lies_allocates_nothing(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", npy_header(header) + bytes(64))
    (tmp_path / "a.npy").write_bytes(npy_header(header) + bytes(64))
    tracemalloc.start()
    with pytest.raises(UserError):
        read_npz(path, "")
    with pytest.raises(UserError):
        read_npy(tmp_path / "a.npy", "")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_decompression_bomb_is_refused_with_the_limit_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 MB of zeros in 20 kB; the limit is lowered so that the test is fast."""
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, a=np.zeros(2_500_000), b=np.zeros(10))
    monkeypatch.setattr(reader, "MOST_ARRAY_BYTES", 1_000_000)
    tracemalloc.start()
    with pytest.raises(
        UserError, match=r"would take 20 MB of memory, and at most 1 MB may be used"
    ):
        read_npz(path, "")
    assert len(read_npz(path, "", ["b"])["b"]) == 10  # only what is asked for counts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_500_000


def test_arrays_of_another_size_kind_or_value_are_refused() -> None:
    wanted = {
        "xy": Array("f", ("N", 2), finite=True, high=9),
        "id": Array("i", ("N",)),
        "more": Array("f", (), optional=True),
    }
    good = {"xy": np.zeros((3, 2)), "id": np.arange(3)}
    check_arrays(good, wanted, "x.npz", "a test")
    for change, message in (
        ({"xy": np.zeros((4, 2))}, r"id has size \[3\], expected \[4\]"),
        ({"xy": np.zeros((3, 3))}, r"xy has size \[3, 3\], expected \[3, 2\]"),
        ({"id": np.zeros(3)}, "id holds float64, not whole numbers"),
        ({"xy": np.full((3, 2), np.nan)}, "xy has a number that is not finite"),
        ({"xy": np.full((3, 2), 10.0)}, "xy has 10.0, expected at most 9"),
        ({"more": np.array("x")}, "more holds <U1, not numbers"),
    ):
        with pytest.raises(UserError, match=message):
            check_arrays({**good, **change}, wanted, "x.npz", "a test")
    with pytest.raises(UserError, match="it lacks id"):
        check_arrays({"xy": good["xy"]}, wanted, "x.npz", "a test")
