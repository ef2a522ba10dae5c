"""Make pose2d/weights/hand_landmarks_fp16.npz and pose2d/graphs/hand_landmarks.onnx from MediaPipe's hand landmarks.

    python tools/convert_hands.py path/to/mediapipe_hand_landmark_full_224.onnx     (needs onnx)

The ONNX file was converted with tf2onnx 1.17 from hand_landmark_full.tflite of the npm package @mediapipe/hands
0.4.1675469240 (SHA-256 8c026882c9ec059ce0f8e75266bee5a9a23c341a40e0000df755374d3d1b9b68). Its numbers are half floats
that were widened, so writing them as half floats loses nothing. Several crops may go through the network at once.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.hands import HAND_GRAPH, HAND_WEIGHTS

ROOT = Path(__file__).resolve().parents[1] / "pose2d"
SHA256 = "db7e3b8d1a317c82df73026b9e1d5be836d27d97c99802efed1f537eeaee3273"
OUTPUTS = {"Identity": "landmarks", "Identity_1": "score", "Identity_2": "handedness", "Identity_3": "metres"}


def short_names(graph: onnx.GraphProto) -> dict[str, str]:
    """Tensors by the order in which nodes meet them: exporters write whole paths, again and again."""
    names = {graph.input[0].name: "crops", **OUTPUTS}
    for node in graph.node:
        for name in (*node.input, *node.output):
            names.setdefault(name, f"t{len(names)}")
    return names


def main() -> None:
    path = Path(sys.argv[1])
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise UserError(f"{path} has SHA-256 {digest}, expected {SHA256}: it is another file.")
    model = onnx.load(str(path))
    graph, weights = model.graph, {}
    names = short_names(graph)
    for node in graph.node:
        node.name = node.doc_string = ""
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for value in (*graph.input, *graph.output):
        value.name = names[value.name]
        value.type.tensor_type.shape.dim[0].dim_param = "n"
    del graph.value_info[:]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
        value, shape = numpy_helper.to_array(tensor), list(tensor.dims)
        if value.dtype != np.float32 or value.ndim == 0:
            continue  # an axis, a limit
        assert (value == value.astype(np.float16)).all()
        weights[tensor.name] = value.astype(np.float16)
        name = tensor.name
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = name, onnx.TensorProto.FLOAT, onnx.TensorProto.EXTERNAL
        tensor.dims.extend(shape)
        tensor.external_data.add(key="location", value="weights")
    with atomic_file(ROOT / "graphs" / HAND_GRAPH) as temporary:
        temporary.write_bytes(model.SerializeToString())
    with atomic_file(ROOT / "weights" / HAND_WEIGHTS) as temporary:
        np.savez(temporary, allow_pickle=False, **weights)
    for made in (ROOT / "graphs" / HAND_GRAPH, ROOT / "weights" / HAND_WEIGHTS):
        print(f"{made.stat().st_size:,} bytes -> {made.name}")


if __name__ == "__main__":
    main()
