"""The reader of JSON: whatever a file holds, access to it gives the right type or says where it is
wrong.
"""

import contextlib
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pose2d.base import json_files
from pose2d.base.errors import UserError
from pose2d.base.json_files import read_json

FAST = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b"]), inner),
    max_leaves=12,
)


@FAST
@given(VALUES)
def test_access_gives_the_type_asked_for_or_a_user_error(tmp_path: Path, value: object) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(value))
    content = read_json(path)
    for access in (
        lambda: isinstance(content.integer(), int),
        lambda: math.isfinite(content.number()),
        lambda: content.text() != "",
        lambda: content.numbers(3).shape == (3,),
        lambda: math.isfinite(content.finite_numbers().sum()) or True,
        lambda: all(math.isfinite(entry.number()) for entry in content.items()),
        lambda: content.item("a").item("b").integer() is not None,
        lambda: content.get("a", 1).number(0, 2) <= 2,
    ):
        with contextlib.suppress(UserError):
            assert access()


@FAST
@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with contextlib.suppress(UserError):
        read_json(path)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a":' * 200_000, "[" + "9" * 10_000 + "]", "[1, 2", ""]
)
def test_what_cannot_be_parsed_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x\.json"):
        read_json(tmp_path / "x.json")


def test_the_place_of_a_mistake_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(
        '{"people": [{"box": [1, 2, 3]}, {"box": [1, 2, null, 4]}, {"box": [1e400, 1, 1, 1]}]}'
    )
    people = list(read_json(tmp_path / "x.json", "Expected boxes.").item("people").items())
    with pytest.raises(
        UserError, match=r"people\[0\]\.box has 3 numbers; expected 4\. Expected boxes\."
    ):
        people[0].item("box").numbers(4)
    with pytest.raises(UserError, match=r"people\[1\]\.box holds null where a number should be"):
        people[1].item("box").numbers(4)
    with pytest.raises(UserError, match=r"people\[2\]\.box holds a number that is not finite"):
        people[2].item("box").finite_numbers(4)
    with pytest.raises(UserError, match=r'people\[0\] has no "id"'):
        people[0].item("id")


def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.json").write_text("[" + "1," * 1000 + "1]")
    monkeypatch.setattr(json_files, "most_bytes", lambda cap: 1000)
    with pytest.raises(UserError, match="at most 100 bytes can be read"):
        read_json(tmp_path / "x.json")


def test_a_device_that_never_ends_is_refused() -> None:
    with pytest.raises(UserError, match="a device"):
        read_json("/dev/zero")
