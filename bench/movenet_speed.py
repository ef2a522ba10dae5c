"""How fast MoveNet's features come on a CPU, and in how much memory: ways to run the same weights,
side by side.

    python bench/movenet_speed.py --data ../shared/data/coco

Each way runs in a process of its own (its peak memory is its own) on one thread and on two. A
figure is the best of several rounds: crops per second through `features`, the part that costs. `AP`
is COCO's keypoint AP on val2017 with annotated boxes, for the default and for the ways that change
the numbers by more than rounding. A way that loses more than 0.3 AP cannot become the default.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib.claim import claim
from bench.lib.coco_people import Cropping, PeopleSet, average_precision, cut_all, read_set
from pose2d import crops
from pose2d.models import movenet
from pose2d.models.movenet import Conv
from pose2d.models.trunk import FeaturesWithTrunk

Features = Callable[[Tensor], FeaturesWithTrunk]  # normalised crops -> features
WAYS = {
    "plain": "torch's public convolutions, channels first, the whole batch at once",
    "channels-last": "the same, channels last",
    "chunks (default)": "channels last, a few crops at a time",
    "torch.compile": "channels last, compiled (needs a C++ compiler)",
    "bfloat16": "channels last, weights and activations in bfloat16",
    "onnxruntime": "exported, ONNX Runtime (needs onnxruntime)",
    "onnxruntime int8": "exported, quantised on 128 holdout crops (needs onnxruntime)",
}
OTHER_NUMBERS = (
    "chunks (default)",
    "bfloat16",
    "onnxruntime int8",
)  # whose accuracy is worth measuring
BATCHES = (1, 16)


def build(way: str, model: movenet.SinglePose, data: Path, threads: int) -> Features:
    """The features of `model`, run one way."""
    whole_batch = 1_000_000
    if way == "chunks (default)":
        return model.features  # type: ignore[return-value]
    model.chunk = whole_batch
    if way == "plain":
        for weight in model.parameters():
            weight.data = weight.data.contiguous()
        model.net.layout = torch.contiguous_format
        return model.features  # type: ignore[return-value]
    if way == "channels-last":
        return model.features  # type: ignore[return-value]
    if way == "torch.compile":
        return _joined(torch.compile(_Both(model)))
    if way == "bfloat16":
        low = _Both(model.bfloat16())
        return _joined(lambda x: [out.float() for out in low(x.bfloat16())], back_to_float=model)
    return _joined(_onnx(model, data, threads, int8=way.endswith("int8")))


class _Both(torch.nn.Module):
    """Crops -> hidden features and trunk, as plain tensors."""

    def __init__(self, model: movenet.SinglePose) -> None:
        super().__init__()
        self.net = model.net

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        trunk = self.net.trunk(crops)
        return self.net.head("kpt_heatmap").hidden(trunk), trunk


def _joined(pair: Callable, back_to_float: movenet.SinglePose | None = None) -> Features:
    if back_to_float is not None:  # decoding stays in full precision
        for name, head in back_to_float.net.heads.items():
            back_to_float.net.heads[name] = (
                head.float() if name != "kpt_heatmap" else _float_output(head)
            )
    return lambda crops: FeaturesWithTrunk.join(*pair(crops))


def _float_output(head: torch.nn.Module) -> torch.nn.Module:
    head.out.float()
    return head


def _onnx(
    model: movenet.SinglePose, data: Path, threads: int, int8: bool
) -> Callable[[Tensor], list[Tensor]]:
    import onnxruntime

    folder = Path(tempfile.mkdtemp())
    path = folder / "movenet.onnx"
    side = model.input_wh[0]
    for conv in model.modules():
        if isinstance(conv, Conv):  # the exporter wants kernels that are constants
            conv.kernel = partial(torch.Tensor.detach, conv.kernel())  # type: ignore[method-assign]
    torch.onnx.export(
        _Both(model),
        (torch.zeros(1, 3, side, side),),
        str(path),
        input_names=["crops"],
        output_names=["hidden", "trunk"],
        dynamic_axes={"crops": {0: "n"}},
        dynamo=False,
    )
    if int8:
        path = _quantized(path, model, data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda crops: [
        torch.from_numpy(out) for out in session.run(None, {"crops": crops.contiguous().numpy()})
    ]


def _quantized(path: Path, model: movenet.SinglePose, data: Path) -> Path:
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    truth = read_set(data, "holdout")
    pixels, _ = cut_all(
        truth.images, truth.boxes[::8][:128], Cropping(model.box_scale), model.input_wh[0]
    )

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rest = iter(model.normalize(pixels).contiguous().split(1))

        def get_next(self) -> dict | None:
            crop = next(self.rest, None)
            return None if crop is None else {"crops": crop.numpy()}

    prepared = path.with_name("prepared.onnx")
    small = path.with_name("int8.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(prepared),
        str(small),
        Reader(),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return small


def accuracy(truth: PeopleSet, model: movenet.SinglePose, features: Features) -> float:
    mode = Cropping(model.box_scale)
    side = model.input_wh[0]
    pixels, affine = cut_all(truth.images, truth.boxes, mode, side)
    results = [model.predict(features(model.normalize(part))) for part in pixels.split(8)]
    xy = crops.move(crops.invert(affine), torch.cat([f.xy_px for f in results]).double()).numpy()
    score = torch.cat([f.score for f in results]).mean(1).numpy()
    return float(average_precision(truth, truth.boxes, xy, score)[0])


def work(way: str, name: str, threads: int, rounds: int, data: Path, no_accuracy: bool) -> None:
    """One way, in this process; prints what it measured."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = pose2d.load(name)
    side = model.input_wh[0]
    batch = model.normalize(
        torch.randint(0, 256, (max(BATCHES), side, side, 3)).permute(0, 3, 1, 2)
    )
    result: dict[str, float] = {}
    with torch.inference_mode(way != "torch.compile"), torch.no_grad():
        features = build(way, model, data, threads)
        for size in BATCHES:
            features(batch[:size])
            seconds = []
            for _ in range(max(2, rounds * 8 // (size + 7))):
                begin = time.perf_counter()
                features(batch[:size])
                seconds.append(time.perf_counter() - begin)
            result[f"batch {size}"] = size / min(seconds)
        result["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        if not no_accuracy:
            result["AP"] = accuracy(read_set(data, "val2017"), model, features)
    print(json.dumps(result))


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(__file__).resolve().parents[2] / "shared/data/coco"
    )
    parser.add_argument(
        "--model", default="movenet-thunder", choices=["movenet-thunder", "movenet-lightning"]
    )
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--work", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--no-accuracy", action="store_true", help="speed and memory only")
    options = parser.parse_args()
    if options.work:
        return work(
            options.work,
            options.model,
            options.threads[0],
            options.rounds,
            options.data,
            options.no_accuracy,
        )
    table = Table(
        title=f"{options.model}: crops per second through features()", header_style="bold"
    )
    for heading in (
        "way",
        "threads",
        *(f"batch {size}" for size in BATCHES),
        "of plain",
        "peak MB",
        "AP",
        "what",
    ):
        table.add_column(heading, justify="left" if heading in ("way", "what") else "right")
    for threads in options.threads:
        base = None
        for way in options.ways:
            silent = (
                options.no_accuracy or threads != options.threads[0] or way not in OTHER_NUMBERS
            )
            print(f"{way}, {threads} thread{'s' * (threads > 1)} ..", file=sys.stderr, flush=True)
            result = _run(way, options, threads, silent)
            if "error" in result:
                table.add_row(
                    way, str(threads), *["-"] * (len(BATCHES) + 3), str(result["error"])[-60:]
                )
                continue
            base = base or result[f"batch {BATCHES[-1]}"]
            row = [f"{result[f'batch {size}']:.1f}" for size in BATCHES]
            precision = f"{100 * result['AP']:.1f}" if "AP" in result else ""
            ratio = f"{result[f'batch {BATCHES[-1]}'] / base:.2f}x"
            table.add_row(
                way, str(threads), *row, ratio, f"{result['peak MB']:.0f}", precision, WAYS[way]
            )
    Console(width=170).print(table)


def _run(way: str, options: argparse.Namespace, threads: int, silent: bool) -> dict:
    command = [
        sys.executable,
        __file__,
        "--work",
        way,
        "--model",
        options.model,
        "--threads",
        str(threads),
        "--rounds",
        str(options.rounds),
        "--data",
        str(options.data),
        *(["--no-accuracy"] if silent else []),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)}
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"}
    return json.loads(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    claim(main)
