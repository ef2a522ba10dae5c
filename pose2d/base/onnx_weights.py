"""The weights in an ONNX file, without the onnx package: a small reader of the few protobuf fields that matter.

Field numbers are those of onnx.proto (ModelProto.graph = 7, GraphProto.node = 1, ...). Nothing of a file is executed.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import MOST_ARRAY_BYTES, most_bytes, open_regular

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protobuf's wire types
_DTYPES = {1: "<f4", 2: "<u1", 3: "<i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}  # TensorProto.DataType
_TYPED_FIELDS = {4: "<f4", 10: "<f8"}  # float_data, double_data: packed numbers beside raw_data
_INTEGER_FIELDS = {5, 7}  # int32_data, int64_data: packed varints
MOST_NUMBERS = 2**31  # along one axis of a tensor: ONNX files are at most 2 GB
MOST_AXES = 32


@dataclass(frozen=True)
class OnnxNode:
    """One operation of a graph."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class OnnxGraph:
    """What this project needs of an ONNX file."""

    nodes: tuple[OnnxNode, ...]
    outputs: tuple[str, ...]
    tensors: Mapping[str, np.ndarray]  # initialisers and constants, by the name under which nodes read them


def read_onnx(path: str | Path) -> OnnxGraph:
    """The graph of an ONNX file. Tensors may lie beside it, in its own folder; other places are refused."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            content = file.read(MOST_NUMBERS)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error
    try:
        graph = next((value for field, value in _fields(memoryview(content)) if field == 7), None)
        if not isinstance(graph, memoryview):
            raise _Broken("it holds no graph")
        return _graph(graph, _Beside(path.parent))
    except _Broken as error:
        raise UserError(f"{path} is not an ONNX file, or it is damaged or cut off: {error}.") from error
    except _Refused as error:
        raise UserError(f"{path} was refused: {error}.") from error


def ordered_weights(graph: OnnxGraph) -> dict[str, np.ndarray]:
    """Every float tensor that a node reads, in the order of computation, as `{op}.{count}.{input}`. "Conv.3.1" is the
    kernel of the fourth convolution with weights, "Conv.3.2" its bias. Names in a file do not help: exporters give
    numbers to whatever they folded. The order is that of a walk from the outputs back through each node's inputs, so it
    depends on what the graph computes and not on how a file lists its nodes. Single numbers (epsilons, divisors) are
    left out."""
    counts: dict[str, int] = {}
    ordered = {}
    for node in _in_order(graph):
        read = [(slot, graph.tensors[name]) for slot, name in enumerate(node.inputs) if name in graph.tensors]
        weights = [(slot, value) for slot, value in read if value.dtype.kind == "f" and value.ndim > 0]
        if weights:
            count = counts.get(node.op, 0)
            counts[node.op] = count + 1
            ordered.update({f"{node.op}.{count}.{slot}": value for slot, value in weights})
    return ordered


def _in_order(graph: OnnxGraph) -> Iterator[OnnxNode]:
    """Each node after all that it reads, as a depth-first walk from the outputs meets them."""
    maker = {name: node for node in graph.nodes for name in node.outputs if name}
    entered, done = set(), set()
    stack = [maker[name] for name in reversed(graph.outputs) if name in maker]
    while stack:
        node = stack[-1]
        if id(node) not in entered:
            entered.add(id(node))
            stack.extend(
                maker[name] for name in reversed(node.inputs) if name in maker and id(maker[name]) not in entered
            )
            continue
        stack.pop()
        if id(node) not in done:
            done.add(id(node))
            yield node


class _Broken(Exception):
    """The bytes are not what ONNX writes."""


class _Refused(Exception):
    """They are, but this reader will not follow them."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _Broken("a number ends too early")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field number and value of a message's fields, in order: numbers, or the bytes of anything longer."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise _Broken(f"a field has the unknown type {wire}")
        if at + length > len(data):
            raise _Broken(f"{length} bytes were announced where {len(data) - at} are left")
        yield field, data[at : at + length]
        at += length


def _bytes(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise _Broken("a number stands where text or a message belongs")
    return value


def _text(value: int | memoryview) -> str:
    try:
        return bytes(_bytes(value)).decode()
    except UnicodeDecodeError as error:
        raise _Broken("a name is not text") from error


def _graph(data: memoryview, beside: "_Beside") -> OnnxGraph:
    nodes: list[OnnxNode] = []
    outputs: list[str] = []
    tensors: dict[str, np.ndarray] = {}
    for field, value in _fields(data):
        if field == 1:
            node, constant = _node(_bytes(value), beside)
            nodes.append(node)
            if constant is not None and node.outputs:
                tensors[node.outputs[0]] = constant
        elif field == 5:
            name, tensor = _tensor(_bytes(value), beside)
            tensors[name] = tensor
        elif field == 12:
            outputs.extend(_text(part) for inner, part in _fields(_bytes(value)) if inner == 1)
    return OnnxGraph(tuple(nodes), tuple(outputs), tensors)


def _node(data: memoryview, beside: "_Beside") -> tuple[OnnxNode, np.ndarray | None]:
    """A node, and its value if it is a constant."""
    inputs, outputs, op, constant = [], [], "", None
    for field, value in _fields(data):
        if field == 1:
            inputs.append(_text(value))
        elif field == 2:
            outputs.append(_text(value))
        elif field == 4:
            op = _text(value)
        elif field == 5 and op in ("", "Constant"):
            for inner, part in _fields(_bytes(value)):
                if inner == 5:  # AttributeProto.t
                    constant = _tensor(_bytes(part), beside)[1]
    return OnnxNode(op, tuple(inputs), tuple(outputs)), constant if op == "Constant" else None


def _tensor(data: memoryview, beside: "_Beside") -> tuple[str, np.ndarray]:
    name, kind, shape, external = "", 0, [], {}
    values: np.ndarray | None = None
    raw: memoryview | None = None
    for field, value in _fields(data):
        if field == 1:
            shape.extend([value] if isinstance(value, int) else _varints(value))
        elif field == 2 and isinstance(value, int):
            kind = value
        elif field == 8:
            name = _text(value)
        elif field == 9:
            raw = _bytes(value)
        elif field == 13:
            entry = dict(_fields(_bytes(value)))
            external[_text(entry.get(1, memoryview(b"")))] = _text(entry.get(2, memoryview(b"")))
        elif field in _TYPED_FIELDS:
            values = _numbers(_bytes(value), _TYPED_FIELDS[field])
        elif field in _INTEGER_FIELDS:
            more = np.array([value] if isinstance(value, int) else _varints(value), np.uint64).view(np.int64)
            values = more if values is None else np.concatenate([values, more])
    if kind not in _DTYPES:
        raise _Refused(f"its tensor {name!r} has numbers of kind {kind}; only plain floats and integers are read")
    if external:
        raw = memoryview(beside.read(external, name))
    if raw is not None:
        values = _numbers(raw, _DTYPES[kind])
    elif kind == 10 and values is not None:
        values = values.astype(np.uint16).view(np.float16)  # half floats lie in int32_data as their bits
    values = np.zeros(0) if values is None else values
    if len(shape) > MOST_AXES or math.prod(shape) != values.size or max(shape, default=0) > MOST_NUMBERS:
        raise _Broken(f"tensor {name[:80]!r} of shape {shape[:MOST_AXES]} has {values.size} numbers")
    return name, values.astype(_DTYPES[kind]).reshape(shape)


def _varints(data: memoryview) -> list[int]:
    at, values = 0, []
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values


def _numbers(data: memoryview, dtype: str) -> np.ndarray:
    if len(data) % np.dtype(dtype).itemsize:
        raise _Broken("a tensor ends within a number")
    return np.frombuffer(data, dtype)


class _Beside:
    """Tensors that lie in files of the model's folder: together they take no more than those files have."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._left, self._taken = folder, most_bytes(MOST_ARRAY_BYTES), dict[Path, int]()

    def read(self, entry: Mapping[str, str], name: str) -> bytes:
        location = entry.get("location", "")
        try:
            path = (self._folder / location).resolve()
            if not location or not path.is_relative_to(self._folder.resolve()):
                raise _Refused(f"its tensor {name!r} lies in {location!r}, outside the file's own folder")
            start, length = int(entry.get("offset", 0)), int(entry.get("length", -1))
            with open_regular(path) as file:
                size = path.stat().st_size
                length = size - start if length < 0 else length
                self._taken[path] = self._taken.get(path, 0) + length
                self._left -= length
                if self._taken[path] > size or self._left < 0:
                    raise _Refused(f"its tensors take more of {location!r} than it has, or than fits into memory")
                file.seek(start)
                data = file.read(length)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise _Broken(f"tensor {name!r} lies in {location!r}, which cannot be read ({error})") from error
        if len(data) != length:
            raise _Broken(f"{location!r} has {len(data)} of the {length} bytes of tensor {name!r}")
        return data
