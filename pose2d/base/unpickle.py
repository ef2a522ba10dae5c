"""Read pickles of arrays without running anything they ask for.

SMPL bodies and 3DPW sequences are distributed as Python 2 pickles. A pickle is a program: it names
functions and the reader calls them. Here every name that such a file may use is answered by a
stand-in that only remembers what it was given, and every other name is refused before anything is
called. Arrays are made from the remembered parts once the file has been read, so no constructor of
numpy, scipy or chumpy ever gets the file's own arguments."""

import math
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular

# Byte order, kind (bool, int, unsigned, float, complex, bytes, text, object) and size of a dtype
_TYPE = re.compile(r"([<>|=]?)([biufcSUO])(\d*)")
_MEMO_SLACK = 1 << 16  # memo numbers may exceed the operations before them by this


class Refused(pickle.UnpicklingError):
    """The pickle asks for something that plain data does not need."""


def load(path: str | Path, encoding: str = "latin1") -> Any:
    """Return the content of a pickle: plain Python values, numpy arrays, scipy sparse matrices.

    chumpy's arrays become numpy arrays. `encoding` is that of Python 2 strings; "latin1" keeps
    their bytes."""
    path = Path(path)
    try:
        with open_regular(path) as stream:
            _check_memo(stream)
            return _Finisher().finish(_Reader(stream, encoding=encoding).load())
    except Refused as refusal:
        raise UserError(
            f"{path} was refused: {refusal}. Get the file again from its official site.", file=path
        ) from refusal
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}.", file=path) from error
    except Exception as error:  # damaged bytes can raise almost anything
        raise UserError(
            f"{path} is not a readable pickle: damaged, cut short, or another kind of file. "
            "Get it again.",
            file=path,
        ) from error


def _check_memo(stream: BinaryIO) -> None:
    """Refuse memo numbers that are much larger than the number of objects.

    Python's unpickler allocates memory for the largest memo number that a file names."""
    start = stream.tell()
    for count, (code, argument, _) in enumerate(pickletools.genops(stream)):
        is_put = code.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if is_put and int(argument or 0) > count + _MEMO_SLACK:
            raise Refused("it counts objects that are not there")
    stream.seek(start)


class _Reader(pickle.Unpickler):
    """Answers every name in a pickle by a stand-in, or refuses it."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "chumpy" and name.isidentifier():
            return type(name, (_Chumpy,), {})
        if (module, name) not in _STAND_INS:
            raise Refused(
                f"it asks for {module}.{name}, which is code and not data; nothing was run"
            )
        return _STAND_INS[module, name]


class _Held:
    """Remembers the state that the pickle gives to an object."""

    state: Any = None

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def value(self, finish: Callable[[Any], Any]) -> Any:
        """Return the value it stands for; `finish` converts the objects that it refers to."""
        raise Refused(f"{type(self).__name__} is not data")


class _Object(_Held):
    """Stands for Python's `object`, the base that old pickles name."""


class _Type(_Held):
    """Stands for numpy.dtype; only the letter, the size and the byte order are taken from the file."""

    def __init__(self, spec: Any = "", *_: object) -> None:
        self.match = _TYPE.fullmatch(spec) if isinstance(spec, str) else None

    @property
    def dtype(self) -> np.dtype:
        match = getattr(self, "match", None)
        if match is None:
            raise Refused("an array has a type that is neither number, text nor object")
        order, letter, size = match.groups()
        if letter == "O":
            return np.dtype(object)
        if isinstance(self.state, tuple) and len(self.state) > 1 and self.state[1] in ("<", ">"):
            order = self.state[1]
        return np.dtype(order + letter + size)


class _Array(_Held):
    """Stands for numpy.ndarray; its state is (version, shape, type, is column-major, data)."""

    def value(self, finish: Callable[[Any], Any]) -> np.ndarray:
        _, shape, kind, column_major, data = self.state
        if not isinstance(data, list):
            return _number_array(data, kind, shape, "F" if column_major else "C")
        flat = np.empty(len(data), object)
        for index, item in enumerate(data):
            flat[index] = finish(item)
        return flat.reshape(tuple(int(side) for side in shape))  # refuses a shape of another size


class _Sparse(_Held):
    """Stands for the sparse matrices of scipy; its state is their attributes."""

    format: str  # csc, csr or coo

    def value(self, finish: Callable[[Any], Any]) -> Any:
        import scipy.sparse  # a quarter of a second, needed only here

        part = {name: finish(content) for name, content in self.state.items()}
        shape = tuple(int(side) for side in part["_shape" if "_shape" in part else "shape"])
        if self.format == "coo":
            row, column = part["coords"] if "coords" in part else (part["row"], part["col"])
            return scipy.sparse.coo_matrix((part["data"], (row, column)), shape=shape)
        make = scipy.sparse.csc_matrix if self.format == "csc" else scipy.sparse.csr_matrix
        matrix = make((part["data"], part["indices"], part["indptr"]), shape=shape)
        matrix.check_format(full_check=True)  # a wrong index would read outside the arrays
        return matrix


class _Chumpy(_Held):
    """Stands for chumpy's arrays: a plain one keeps its numbers in `x`, a selection of another one
    in `a[idxs]`.
    """

    def value(self, finish: Callable[[Any], Any]) -> np.ndarray:
        if "x" in self.state:
            return np.asarray(finish(self.state["x"]))
        if "a" in self.state and "idxs" in self.state:
            source = np.asarray(finish(self.state["a"]))
            picked = np.asarray(finish(self.state["idxs"]))
            shape = finish(self.state.get("preferred_shape", picked.shape))
            return source.ravel()[picked.ravel()].reshape(shape)
        raise Refused(f"chumpy's {type(self).__name__} is a formula and not an array")


class _Call:
    """A function that a pickle may call and cannot alter."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __setstate__(self, _: object) -> None:
        raise Refused("it tries to change a function")


class _Finisher:
    """Converts stand-ins to values, each of them once however often it is referred to."""

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._open: set[int] = set()

    def finish(self, item: Any) -> Any:
        if not isinstance(item, _Held | dict | list | tuple | set):
            return item
        if id(item) not in self._done:
            if id(item) in self._open:
                raise Refused("it holds something that contains itself")
            self._open.add(id(item))
            if isinstance(item, _Held):
                value = item.value(self.finish)
            elif isinstance(item, dict):
                value = {self.finish(key): self.finish(content) for key, content in item.items()}
            else:
                value = type(item)(self.finish(content) for content in item)
            self._done[id(item)] = value
        return self._done[id(item)]


def _number_array(data: Any, kind: Any, shape: Any, order: Any, *_: object) -> np.ndarray:
    """Make an array of bytes whose number must be what shape and type need."""
    sides = tuple(int(side) for side in shape)
    content = _bytes(data)
    dtype = kind.dtype
    claimed = math.prod(sides) * max(dtype.itemsize, 1)
    if min(sides, default=0) < 0 or dtype.hasobject or len(content) != claimed:
        raise Refused("an array's content does not have the size that its shape and type need")
    if not content:
        return np.zeros(sides, dtype)
    return np.frombuffer(content, dtype).reshape(sides, order="F" if order == "F" else "C").copy()


def _empty_array(kind: Any, *_: object) -> _Array:
    """Return the stand-in of an array, as numpy's `_reconstruct` returns an array."""
    if kind is not _Array:
        raise Refused("it makes an array of a class of its own")
    return _Array()


def _instance(kind: Any, base: Any = _Object, state: Any = None) -> _Held:
    """Return an instance of a stand-in, as `copyreg._reconstructor` makes objects."""
    is_stand_in = isinstance(kind, type) and issubclass(kind, _Held)
    if not is_stand_in or base is not _Object or state is not None:
        raise Refused("it rebuilds an object of a class of its own")
    return kind()


def _bytes(data: Any = b"", encoding: Any = "latin1") -> bytes:
    """Return bytes, which Python 2 has as text.

    Python 3 writes empty bytes for Python 2 as a call without arguments."""
    if not isinstance(data, str | bytes | bytearray) or encoding != "latin1":
        raise Refused("it encodes something other than text")
    return data.encode("latin1") if isinstance(data, str) else bytes(data)


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Call(_bytes),
}
for _core in ("numpy.core", "numpy._core"):
    _STAND_INS[f"{_core}.multiarray", "_reconstruct"] = _Call(_empty_array)
    _STAND_INS[f"{_core}.multiarray", "scalar"] = _Call(
        lambda kind, data: _number_array(data, kind, (1,), "C")[0]
    )
    _STAND_INS[f"{_core}.numeric", "_frombuffer"] = _Call(_number_array)
for _module in ("copy_reg", "copyreg"):  # of Python 2 and 3
    _STAND_INS[_module, "_reconstructor"] = _Call(_instance)
for _module in ("__builtin__", "builtins"):
    _STAND_INS |= {
        (_module, "object"): _Object,
        (_module, "set"): _Call(set),
        (_module, "bytes"): _Call(_bytes),
    }
for _format in ("csc", "csr", "coo"):
    _kind = type(_format, (_Sparse,), {"format": _format})
    for _module in ("scipy.sparse", f"scipy.sparse.{_format}", f"scipy.sparse._{_format}"):
        _STAND_INS |= {(_module, f"{_format}_matrix"): _kind, (_module, f"{_format}_array"): _kind}
