"""Read the weights in an ONNX file without the onnx package.

protobuf reads the few fields that matter. Nothing in the file is executed."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import open_regular

# The fields of onnx.proto that are read: name, number and type; "*" marks repeated fields.
_MESSAGES = {
    "Model": "graph 7 Graph",
    "Value": "name 1 string",
    "Graph": "node 1 *Node, initializer 5 *Tensor, output 12 *Value",
    "Node": "input 1 *string, output 2 *string, op_type 4 string, attribute 5 *Attribute",
    "Attribute": "t 5 Tensor",
    "Tensor": "dims 1 *int64, data_type 2 int32, float_data 4 *float, int32_data 5 *int32, "
    "int64_data 7 *int64, name 8 string, raw_data 9 bytes, double_data 10 *double, "
    "external_data 13 *Entry",
    "Entry": "key 1 string",
}
# TensorProto.DataType -> type of the numbers, and the field that holds them if not raw_data
_KINDS = {
    1: ("<f4", "float_data"),
    2: ("<u1", "int32_data"),
    3: ("<i1", "int32_data"),
    6: ("<i4", "int32_data"),
    7: ("<i8", "int64_data"),
    9: ("?", "int32_data"),
    10: ("<f2", "int32_data"),
    11: ("<f8", "double_data"),
}
MOST_NUMBERS = 2**31  # along one axis of a tensor: ONNX files are at most 2 GB
MOST_AXES = 32


@cache
def _model() -> Any:
    """Return the protobuf message class of an ONNX file."""
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )

    file = descriptor_pb2.FileDescriptorProto(name="onnx_weights.proto", package="fitmesh_onnx")
    for message, field_list in _MESSAGES.items():
        descriptor = file.message_type.add(name=message)
        for name, number, kind in (field.split() for field in field_list.split(", ")):
            label = 3 if kind.startswith("*") else 1  # LABEL_REPEATED or LABEL_OPTIONAL
            field = descriptor.field.add(name=name, number=int(number), label=label)
            if (kind := kind.removeprefix("*")) in _MESSAGES:
                field.type = field.TYPE_MESSAGE
                field.type_name = f".fitmesh_onnx.{kind}"
            else:
                field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fitmesh_onnx.Model"))


@dataclass(frozen=True)
class OnnxGraph:
    """The nodes, outputs and constant tensors of an ONNX file."""

    nodes: tuple[Any, ...]  # in the order of the file, each with `op_type`, `input` and `output`
    outputs: tuple[str, ...]
    tensors: Mapping[str, np.ndarray]  # initialisers and constants, by the name that nodes read


def read_onnx(path: str | Path) -> OnnxGraph:
    """Return the graph of an ONNX file; a file whose tensors lie in other files is refused."""
    path = Path(path)
    try:
        with open_regular(path) as file:
            content = file.read(MOST_NUMBERS)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.", file=path) from error
    try:
        model = _model().FromString(content)
        if not model.HasField("graph"):
            raise ValueError("it holds no graph")
        tensors = {tensor.name: _array(tensor) for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.output:
                constants = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
                tensors |= [(node.output[0], _array(constant)) for constant in constants]
        outputs = tuple(output.name for output in model.graph.output)
        return OnnxGraph(tuple(model.graph.node), outputs, tensors)
    except _Refused as error:
        raise UserError(f"{path} was refused: {error}.", file=path) from error
    except Exception as error:  # damaged bytes can raise almost anything
        raise UserError(
            f"{path} is not an ONNX file, or it is damaged or cut off: {error}.", file=path
        ) from error


def ordered_weights(graph: OnnxGraph) -> dict[str, np.ndarray]:
    """Return the float tensors that nodes read, in order of computation, by `{op}.{count}.{input}`.

    "Conv.3.1" is the kernel of the fourth convolution with weights, "Conv.3.2" its bias. Names in
    the file do not help, since exporters number what they fold. The order is that of a walk from
    the outputs back through each node's inputs, so it depends on what the graph computes and not on
    how the file lists its nodes. Single numbers (epsilons, divisors) are left out."""
    counts: dict[str, int] = {}
    ordered = {}
    for node in _in_order(graph):
        inputs = [(slot, graph.tensors.get(name)) for slot, name in enumerate(node.input)]
        weights = [
            (slot, value)
            for slot, value in inputs
            if value is not None and value.dtype.kind == "f" and value.ndim > 0
        ]
        if weights:
            count = counts.get(node.op_type, 0)
            counts[node.op_type] = count + 1
            ordered.update({f"{node.op_type}.{count}.{slot}": value for slot, value in weights})
    return ordered


def _in_order(graph: OnnxGraph) -> Iterator[Any]:
    """Yield each node after the nodes that it reads, in a depth-first walk from the outputs."""
    maker = {name: node for node in graph.nodes for name in node.output if name}
    entered = set()
    done = set()
    stack = [maker[name] for name in reversed(graph.outputs) if name in maker]
    while stack:
        node = stack[-1]
        if id(node) not in entered:
            entered.add(id(node))
            stack.extend(
                maker[name]
                for name in reversed(node.input)
                if name in maker and id(maker[name]) not in entered
            )
            continue
        stack.pop()
        if id(node) not in done:
            done.add(id(node))
            yield node


class _Refused(Exception):
    """The bytes are what ONNX writes, but this reader will not follow them."""


def _array(tensor: Any) -> np.ndarray:
    """Return the numbers of a tensor message in their shape."""
    name = tensor.name
    shape = list(tensor.dims)
    if tensor.data_type not in _KINDS:
        raise _Refused(
            f"its tensor {name!r} has numbers of kind {tensor.data_type}; "
            "only plain floats and integers are read"
        )
    dtype, field = _KINDS[tensor.data_type]
    if tensor.external_data:
        raise _Refused(
            f"its tensor {name[:80]!r} lies in another file. Export it with all weights in one"
        )
    if tensor.HasField("raw_data"):
        values = np.frombuffer(tensor.raw_data, dtype)
    else:
        values = np.array(getattr(tensor, field))
        if dtype == "<f2":  # int32_data holds the bits of half floats
            values = values.astype(np.uint16).view(np.float16)
    is_possible = len(shape) <= MOST_AXES and all(0 <= side <= MOST_NUMBERS for side in shape)
    if not is_possible or math.prod(shape) != values.size:
        raise ValueError(
            f"tensor {name[:80]!r} of shape {shape[:MOST_AXES]} has {values.size} numbers"
        )
    return values.astype(dtype).reshape(shape)
