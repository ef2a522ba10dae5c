"""Make tests/data/openmmlab_onnx.npz: what ONNX Runtime says of fixed inputs to the two networks
that ship.

    python tools/record_onnx_outputs.py path/to/folder     (needs onnx and onnxruntime)

The weights in the graphs are first rounded as those in pose2d/weights are, so that answers can be
compared exactly and not only to half precision.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from pose2d.base.files import atomic_file
from pose2d.base.onnx_weights import ordered_weights, read_onnx
from pose2d.detect.yolox import load_yolox
from tests.patterns import pattern
from tools.convert_rtmpose import NAME, RTMPOSE, YOLOX, checked, is_half, yolox_state

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "openmmlab_onnx.npz"
KEPT = 7  # every seventh of YOLOX's cells is stored
YOLOX_BEFORE_SUPPRESSION = ("1189", "1191")  # boxes [1, M, 4], scores [1, M, 80]


def run(
    path: Path, module: torch.nn.Module, inputs: np.ndarray, extra: tuple[str, ...] = ()
) -> list[np.ndarray]:
    """Return the outputs of an ONNX file, or others of its tensors, with weights rounded as those
    of `module` are stored.
    """
    model = onnx.load(path)
    rounded = {name for name, half in _halves(path, module).items() if half}
    for tensor in model.graph.initializer:
        if tensor.name in rounded:
            values = numpy_helper.to_array(tensor).astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    for name in extra:
        model.graph.output.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        )
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(list(extra) or None, {"input": inputs})


def _halves(path: Path, module: torch.nn.Module) -> dict[str, bool]:
    """Return for each weight, by the file's name, whether it is stored in half precision."""
    graph = read_onnx(path)
    named = {id(value): name for name, value in graph.tensors.items()}
    # Numbers in place of weights, of which `convert` then says where they belong.
    weights = ordered_weights(graph)
    marked = {
        key: torch.full(value.shape, float(n)) for n, (key, value) in enumerate(weights.items())
    }
    names = [named[id(value)] for value in weights.values()]
    converted = yolox_state(marked, module) if path.name == YOLOX else module.convert(marked)  # type: ignore[operator]
    return {
        names[int(value.flatten()[0])]: is_half(key, value.ndim) for key, value in converted.items()
    }


def main() -> None:
    folder = Path(sys.argv[1])
    crops = (pattern(1, 256, 192) - np.array([[[[123.675]], [[116.28]], [[103.53]]]])) / np.array(
        [[[[58.395]], [[57.12]], [[57.375]]]]
    )
    x, y = run(checked(folder / RTMPOSE), pose2d.load(NAME), crops.astype(np.float32))
    images = pattern(2, 416, 416).astype(np.float32)
    boxes, scores = run(checked(folder / YOLOX), load_yolox(), images, YOLOX_BEFORE_SUPPRESSION)
    with atomic_file(OUT) as temporary:
        np.savez_compressed(
            temporary,
            simcc_x=x,
            simcc_y=y,
            boxes=boxes[:, ::KEPT],
            scores=scores[:, ::KEPT, 0],
            kept=KEPT,
        )
    print(
        f"{OUT.stat().st_size / 1e3:.0f} kB -> {OUT.name}; highest score {scores[..., 0].max():.3f}"
    )


if __name__ == "__main__":
    main()
