"""Pickles of arrays are read; pickles that ask for anything else are refused and run nothing."""

import os
import pickle
import struct
import sys
from collections import OrderedDict
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse

from pose2d.base import unpickle
from pose2d.base.errors import UserError


def saved(path: Path, value: object, protocol: int = 2) -> Path:
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    return path


class Payload:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def fake_chumpy(monkeypatch):
    """Modules that exist while a pickle is written and are gone when it is read, like chumpy
    itself.
    """

    def make(module: str, name: str, **state):
        kind = type(name, (), {"__module__": module})
        for part in ("chumpy", module):
            monkeypatch.setitem(sys.modules, part, sys.modules.get(part) or ModuleType(part))
        setattr(sys.modules[module], name, kind)
        made = kind()
        made.__dict__.update(state)
        return made

    return make


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_text_and_numbers_come_back_as_they_were(tmp_path, protocol):
    value = {
        "real": np.arange(12.0).reshape(3, 4),
        "column major": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)),
        "big endian": np.arange(4, dtype=">f4"),
        "empty": np.zeros((0, 3)),
        "truth": np.array([True, False]),
        "text": np.array(["male", "f"]),
        "scalar": np.float64(2.5),
        "objects": np.array([None, "a", 3], dtype=object),
        "list": [1, 2.5, "x", None, (True, b"\xff\x00")],
        "set": {1, 2},
    }
    again = unpickle.load(saved(tmp_path / "a.pkl", value, protocol))
    assert again.keys() == value.keys()
    for name in value:
        assert type(again[name]) is type(value[name])
        if isinstance(value[name], np.ndarray):
            np.testing.assert_array_equal(again[name], value[name])
        else:
            assert again[name] == value[name]
    assert again["big endian"].dtype == np.dtype(">f4")
    assert again["real"].flags.writeable


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("kind", ["csc", "csr", "coo"])
def test_sparse_matrices_come_back_whole(tmp_path, kind, protocol):
    matrix = scipy.sparse.random(5, 9, 0.3, format=kind, random_state=0)
    again = unpickle.load(saved(tmp_path / "a.pkl", matrix, protocol))
    assert scipy.sparse.issparse(again)
    np.testing.assert_array_equal(again.toarray(), matrix.toarray())


def test_the_module_paths_of_old_scipy_are_known(tmp_path):
    matrix = scipy.sparse.csc_matrix(np.eye(3))
    old = pickle.dumps(matrix, protocol=0).replace(b"scipy.sparse._csc", b"scipy.sparse.csc")
    (tmp_path / "a.pkl").write_bytes(old)
    np.testing.assert_array_equal(unpickle.load(tmp_path / "a.pkl").toarray(), np.eye(3))


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_chumpy_arrays_become_numpy_arrays_without_chumpy(tmp_path, fake_chumpy, protocol):
    numbers = np.arange(24.0).reshape(4, 6)
    plain = fake_chumpy("chumpy.ch", "Ch", x=numbers, _dirty_vars={"x"})
    picked = fake_chumpy(
        "chumpy.reordering", "Select", a=plain, idxs=np.array([0, 7, 23, 5]), preferred_shape=(2, 2)
    )
    path = saved(tmp_path / "a.pkl", {"v": plain, "part": picked}, protocol)
    for module in ("chumpy", "chumpy.ch", "chumpy.reordering"):
        del sys.modules[module]
    again = unpickle.load(path)
    np.testing.assert_array_equal(again["v"], numbers)
    np.testing.assert_array_equal(again["part"], [[0, 7], [23, 5]])


def test_a_chumpy_formula_is_refused_by_name(tmp_path, fake_chumpy):
    path = saved(tmp_path / "a.pkl", fake_chumpy("chumpy.ch", "add", left=1))
    with pytest.raises(UserError, match="add is a formula"):
        unpickle.load(path)


def test_python_2_strings_carry_array_bytes(tmp_path):
    """Written as Python 2 does it: array data is a str of raw bytes, and names are those of old
    modules.
    """
    content = np.array([1.5, -2.0, 1e300]).tobytes()
    text = b"".join(
        [
            b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n",
            b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x03\x85cnumpy\ndtype\nU\x02f8K\x00K\x01\x87R",
            b"(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<i", len(content)) + content,
            b"tb.",
        ]
    )
    (tmp_path / "a.pkl").write_bytes(text)
    np.testing.assert_array_equal(unpickle.load(tmp_path / "a.pkl"), [1.5, -2.0, 1e300])


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path, protocol):
    mark = tmp_path / "it ran"
    path = saved(
        tmp_path / "evil.pkl",
        {"v": np.zeros(3), "x": Payload(os.system, f"touch '{mark}'")},
        protocol,
    )
    with pytest.raises(UserError, match=r"evil\.pkl was refused: it asks for posix\.system"):
        unpickle.load(path)
    assert not mark.exists()
    pickle.loads(path.read_bytes())  # the payload is a real one
    assert mark.exists()


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (eval, ("1",), "eval"),
        (getattr, ("x", "upper"), "getattr"),
        (np.load, ("x.npy",), "load"),
        (np.fromfile, ("x",), "fromfile"),
        (__import__, ("os",), "__import__"),
        (OrderedDict, (), "OrderedDict"),
        (print, ("x",), "print"),
    ],
)
def test_every_other_name_is_refused_by_name(tmp_path, function, arguments, named):
    path = saved(tmp_path / "a.pkl", Payload(function, *arguments), protocol=2)
    with pytest.raises(UserError, match=rf"\.{named}, which is code"):
        unpickle.load(path)


@pytest.mark.parametrize(
    "text",
    [
        b"c__builtin__\neval\n.",  # named, not called
        b"cchumpy.ch\nos.system\n.",  # a dotted name under an admitted module
        b"\x80\x04\x8c\x05numpy\x8c\x0bctypeslib.x\x93.",
        # state for a base class
        b"ccopy_reg\n_reconstructor\n(cnumpy\ndtype\nc__builtin__\nobject\nU\x01xtR.",
        b"c_codecs\nencode\n(U\x01aU\x03hextR.",  # another codec
        b"cnumpy.core.multiarray\n_reconstruct\n}U\x01xU\x01ysb.",  # changing a function
        b"cnumpy\nndarray\n}b.",  # changing a class
        b"cnumpy.core.multiarray\n_reconstruct\n(c__builtin__\nobject\nK\x00\x85U\x01btR.",
        b"U\x01xQ.",  # a persistent id
    ],
)
def test_hand_made_abuse_of_admitted_names_is_an_error(tmp_path, text):
    (tmp_path / "a.pkl").write_bytes(text)
    with pytest.raises(UserError):
        unpickle.load(tmp_path / "a.pkl")


def test_a_sparse_matrix_that_points_outside_itself_is_an_error(tmp_path):
    matrix = scipy.sparse.csc_matrix(np.eye(3))
    matrix.indices[0] = 10_000_000
    with pytest.raises(UserError):
        unpickle.load(saved(tmp_path / "a.pkl", matrix))


def test_an_array_that_claims_more_than_it_holds_is_an_error(tmp_path):
    text = pickle.dumps(np.zeros(3), protocol=2).replace(b"K\x03\x85", b"K\x7f\x85")
    (tmp_path / "a.pkl").write_bytes(text)
    with pytest.raises(UserError):
        unpickle.load(tmp_path / "a.pkl")


@pytest.mark.parametrize("content", [b"", b"not a pickle at all", b"\x80\x02}q\x00", b"PK\x03\x04"])
def test_a_damaged_file_is_a_user_error(tmp_path, content):
    (tmp_path / "a.pkl").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.pkl"):
        unpickle.load(tmp_path / "a.pkl")


def test_every_truncation_of_a_good_file_is_a_user_error(tmp_path):
    whole = pickle.dumps({"v": np.arange(3.0), "r": scipy.sparse.csc_matrix(np.eye(2))}, protocol=2)
    path = tmp_path / "a.pkl"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError):
            unpickle.load(path)


def test_a_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        unpickle.load(tmp_path / "none.pkl")
