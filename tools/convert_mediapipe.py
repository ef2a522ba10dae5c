"""Make weights (pose2d/weights/*_fp16.npz) and graph (pose2d/graphs) of MediaPipe's hand landmarks
or person masks.

    python tools/convert_mediapipe.py path/to/mediapipe_hand_landmark_full_224.onnx     (needs onnx)
    python tools/convert_mediapipe.py path/to/mediapipe_pose_landmark_lite_256.onnx

The ONNX files were converted with tf2onnx 1.17 from hand_landmark_full.tflite of the npm package
@mediapipe/hands 0.4.1675469240 (SHA-256
8c026882c9ec059ce0f8e75266bee5a9a23c341a40e0000df755374d3d1b9b68) and pose_landmark_lite.tflite of
@mediapipe/pose 0.5.1675469404 (SHA-256
f17bfbecadb61c3be1baa8b8d851cc6619c870a87167b32848ad20db306b9d61). Their numbers are half floats
that were widened, so writing them as half floats loses nothing. Of the pose landmarks only what the
mask is made of is kept. Several crops may go through a network at once.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from pose2d import hands, masks
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

ROOT = Path(__file__).resolve().parents[1] / "pose2d"
# By SHA-256: graph, weights, and outputs by their names in the file.
FILES = {
    "db7e3b8d1a317c82df73026b9e1d5be836d27d97c99802efed1f537eeaee3273": (
        hands.HAND_GRAPH,
        hands.HAND_WEIGHTS,
        {
            "Identity": "landmarks",
            "Identity_1": "score",
            "Identity_2": "handedness",
            "Identity_3": "metres",
        },
    ),
    "07713bd6eece3f08940c8c8a3659010ce713b5b107b60adfcedf9e0c62fbb422": (
        masks.MASK_GRAPH,
        masks.MASK_WEIGHTS,
        {"Identity_2": "mask"},
    ),
}


def needed(graph: onnx.GraphProto, outputs: dict[str, str]) -> list[onnx.NodeProto]:
    """Return the nodes that the outputs depend on, in their order."""
    requested = set(outputs)
    selected = []
    for node in reversed(graph.node):
        if requested & set(node.output):
            requested |= set(node.input)
            selected.append(node)
    return selected[::-1]


def short_names(graph: onnx.GraphProto, outputs: dict[str, str]) -> dict[str, str]:
    """Number tensors in the order in which nodes use them; exporters write whole paths, again and
    again.
    """
    names = {graph.input[0].name: "crops", **outputs}
    for node in graph.node:
        for name in (*node.input, *node.output):
            names.setdefault(name, f"t{len(names)}")
    return names


def main() -> None:
    path = Path(sys.argv[1])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest not in FILES:
        raise UserError(
            f"{path} has SHA-256 {digest}, expected one of {', '.join(FILES)}: it is another file."
        )
    graph_file, weights_file, outputs = FILES[digest]
    model = onnx.load(str(path))
    graph = model.graph
    weights = {}
    parts = (
        (graph.node, needed(graph, outputs)),
        (graph.output, [value for value in graph.output if value.name in outputs]),
    )
    for part, selected in parts:
        selected = [
            type(graph_node).FromString(graph_node.SerializeToString()) for graph_node in selected
        ]
        del part[:]
        part.extend(selected)
    names = short_names(graph, outputs)
    tensors = [tensor for tensor in graph.initializer if tensor.name in names]
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del graph.initializer[:]
    for node in graph.node:
        node.name = node.doc_string = ""
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del graph.value_info[:]
    scales = {name for node in graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for tensor in tensors:
        tensor.name = names[tensor.name]
        value = numpy_helper.to_array(tensor)
        shape = list(tensor.dims)
        if (
            value.dtype == np.float32 and value.ndim and tensor.name not in scales
        ):  # the others are axes and limits
            assert (value == value.astype(np.float16)).all()
            weights[tensor.name] = value.astype(np.float16)
            name = tensor.name
            tensor.Clear()
            tensor.name = name
            tensor.data_type = onnx.TensorProto.FLOAT
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.dims.extend(shape)
            tensor.external_data.add(key="location", value="weights")
        graph.initializer.append(tensor)
    with atomic_file(ROOT / "graphs" / graph_file) as temporary:
        temporary.write_bytes(model.SerializeToString())
    with atomic_file(ROOT / "weights" / weights_file) as temporary:
        np.savez(temporary, allow_pickle=False, **weights)
    for written in (ROOT / "graphs" / graph_file, ROOT / "weights" / weights_file):
        print(f"{written.stat().st_size:,} bytes -> {written.name}")


if __name__ == "__main__":
    main()
