"""Make tests/data/openmmlab_onnx.npz: what ONNX Runtime says of fixed inputs to the two networks that ship.

    python tools/record_onnx_outputs.py path/to/folder     (needs onnx and onnxruntime)

The weights in the graphs are rounded to half floats first, as in pose2d/weights, so that answers can be compared
exactly and not only to half precision.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from convert_rtmpose import RTMPOSE, YOLOX, checked
from onnx import numpy_helper

from pose2d.base.files import atomic_file
from tests.patterns import pattern

OUT = Path(__file__).resolve().parents[1] / "tests" / "data" / "openmmlab_onnx.npz"
KEPT = 7  # every seventh of YOLOX's cells is stored
YOLOX_BEFORE_SUPPRESSION = ("1189", "1191")  # boxes [1, M, 4], scores [1, M, 80]


def run(path: Path, inputs: np.ndarray, extra: tuple[str, ...] = ()) -> list[np.ndarray]:
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim > 0 and "priors" not in tensor.name:
            rounded = values.astype(np.float16).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    for name in extra:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(list(extra) or None, {"input": inputs})


def main() -> None:
    folder = Path(sys.argv[1])
    crops = (pattern(1, 256, 192) - np.array([[[[123.675]], [[116.28]], [[103.53]]]])) / np.array(
        [[[[58.395]], [[57.12]], [[57.375]]]]
    )
    x, y = run(checked(folder / RTMPOSE), crops.astype(np.float32))
    boxes, scores = run(checked(folder / YOLOX), pattern(2, 416, 416).astype(np.float32), YOLOX_BEFORE_SUPPRESSION)
    with atomic_file(OUT) as temporary:
        np.savez_compressed(
            temporary, simcc_x=x, simcc_y=y, boxes=boxes[:, ::KEPT], scores=scores[:, ::KEPT, 0], kept=KEPT
        )
    print(f"{OUT.stat().st_size / 1e3:.0f} kB -> {OUT.name}; highest score {scores[..., 0].max():.3f}")


if __name__ == "__main__":
    main()
