"""Make pose2d/graphs/*.onnx: what the two networks that ship compute, without their weights.

    python tools/export_graphs.py     (needs onnx)

Initialisers have the names of the module's own tensors and no content; `pose2d.models.convolutions`
fills them.
"""

import warnings
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

import pose2d
from pose2d.base.files import atomic_file
from pose2d.detect.yolox import YOLOX_GRAPH, load_yolox
from pose2d.models.rtmpose import TOKENS, RTMPose

OUT = Path(__file__).resolve().parents[1] / "pose2d" / "graphs"
OPSET = 17
NAME = "rtmpose-s-halpe26"


class Features(nn.Module):
    """What CCNet and the pose head read, under the module's own names."""

    def __init__(self, model: RTMPose) -> None:
        super().__init__()
        self.backbone = model.backbone
        self.head = model.head

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        maps = self.backbone(crops)
        return self.head[TOKENS](maps), maps


def export(module: nn.Module, example: Tensor, axes: dict[str, dict[int, str]], name: str) -> None:
    """axes: of the input and the outputs, in order, those that vary."""
    inputs, *outputs = axes
    path = OUT / name
    with atomic_file(path) as temporary, torch.no_grad():
        torch.onnx.export(
            module,
            (example,),
            str(temporary),
            input_names=[inputs],
            output_names=outputs,
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
            do_constant_folding=False,
        )
        model = onnx.load(str(temporary))
        for tensor in model.graph.initializer:
            name = tensor.name
            shape = list(tensor.dims)
            tensor.Clear()
            tensor.name = name
            tensor.data_type = onnx.TensorProto.FLOAT
            tensor.dims.extend(shape)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights")
        for node in model.graph.node:
            node.doc_string = ""
        temporary.write_bytes(model.SerializeToString())
    print(f"{len(model.graph.node)} nodes, {path.stat().st_size / 1e3:.0f} kB -> {path.name}")


def main() -> None:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    OUT.mkdir(exist_ok=True)
    model = pose2d.load(NAME, engine="torch")
    assert isinstance(model, RTMPose)
    graph = pose2d.card(NAME).graph
    assert graph is not None
    crops = torch.rand(2, 3, *model.input_wh[::-1])
    export(Features(model), crops, {"crops": {0: "n"}, "tokens": {0: "n"}, "maps": {0: "n"}}, graph)
    images = 255 * torch.rand(1, 3, 256, 416)
    axes = {"images": {2: "height", 3: "width"}, "boxes": {1: "cells"}, "scores": {1: "cells"}}
    export(load_yolox(), images, axes, YOLOX_GRAPH)


if __name__ == "__main__":
    main()
