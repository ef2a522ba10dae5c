"""Claim: ONNX Runtime is the fastest engine on a CPU that keeps the accuracy.

    python bench/engines.py --data ../shared/data/coco --onnx ../shared/weights [--threads 1]

The same two networks side by side in one run. Times are CPU time of all threads of the process,
which another program on the machine hardly changes; engines take turns, and the middle of their
rounds counts. Engines that round more than float32 does are judged by COCO's AP too (val2017,
annotated boxes); to become the default one may lose 0.3 at most. --onnx is a folder with the
published files, for OpenVINO and for int8, which are left out where they are not installed (`pip
install openvino onnx`). int8 is calibrated on crops of the holdout.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from rich.table import Table
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pose2d
from bench.lib.claim import Console, claim
from bench.lib.coco_people import PeopleSet, average_precision, read_set
from pose2d import crops
from pose2d.detect.yolox import YOLOX_GRAPH, load_yolox
from pose2d.models.convolutions import OnnxNetwork
from pose2d.models.rtmpose import RTMPose

RTMPOSE, YOLOX = "rtmpose_s_halpe26_256x192.onnx", "yolox_tiny_humanart_416.onnx"
ROUNDS = 24
DETECTOR_ROUNDS = 12
BATCH = 8
CALIBRATION = 128
PER_CHANNEL_OPSET = 13  # the first that has a scale for every channel
SimCC = Callable[[Tensor], tuple[Tensor, Tensor]]  # normalised crops -> the network's two outputs


def milliseconds(
    calls: Mapping[str, Callable[[], object]], rounds: int = ROUNDS
) -> dict[str, float]:
    """CPU time of each call, the middle of the rounds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    return {name: 1000 * statistics.median(values[1:]) for name, values in times.items()}


def people_crops(truth: PeopleSet, model: RTMPose) -> tuple[Tensor, np.ndarray]:
    """Normalised crops [N, 3, 256, 192] and their affine maps [N, 2, 3]."""
    parts = [
        crops.crop_boxes(truth.images[i], box[None], model.input_wh, model.box_scale, model.crop)
        for i, box in truth.boxes
    ]
    return model.normalize(torch.cat([pixels for pixels, _ in parts])), np.concatenate(
        [affine for _, affine in parts]
    )


def accuracy(run: SimCC, model: RTMPose, truth: PeopleSet) -> float:
    inputs, affine = people_crops(truth, model)
    pair = [run(part) for part in inputs.split(16)]
    result = model._decoded(*(torch.cat(axis) for axis in zip(*pair, strict=True)))
    xy = crops.move(crops.invert(affine), result.xy_px.double()).numpy()[:, :17]
    return 100 * float(
        average_precision(truth, truth.boxes, xy, result.score.numpy()[:, :17].mean(1))[0]
    )


def runtime(path: Path | str, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def int8_file(path: Path, inputs: Tensor, folder: Path) -> Path:
    """Weights per channel and activations in 8 bits, calibrated on `inputs`."""
    import onnx.version_converter
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.rows: Iterator[Tensor] = iter(inputs.split(1))

        def get_next(self) -> dict[str, np.ndarray] | None:
            row = next(self.rows, None)
            return None if row is None else {"input": row.numpy()}

    newer = folder / "newer.onnx"
    prepared = folder / "prepared.onnx"
    out = folder / "int8.onnx"
    onnx.save(onnx.version_converter.convert_version(onnx.load(path), PER_CHANNEL_OPSET), newer)
    quantization.quant_pre_process(str(newer), str(prepared))
    quantization.quantize_static(
        str(prepared),
        str(out),
        Reader(),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod.MinMax,
        op_types_to_quantize=["Conv"],
    )
    return out


def openvino_network(
    path: Path, threads: int, precision: str
) -> Callable[[np.ndarray], list[np.ndarray]] | None:
    try:
        import openvino
    except ImportError:
        return None
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    return lambda inputs: [np.array(value) for value in request.infer({0: inputs}).values()]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="COCO's layout, with val2017 and the holdout"
    )
    parser.add_argument("--onnx", type=Path, help="folder with the published ONNX files")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with torch.inference_mode():
        pose(arguments.data, arguments.onnx, arguments.threads)
        detector(arguments.onnx, arguments.threads)


def pose(data: Path, onnx: Path | None, threads: int) -> None:
    plain = pose2d.load("rtmpose-s-halpe26", engine="torch")
    fast = pose2d.load("rtmpose-s-halpe26")
    assert isinstance(plain, RTMPose)
    assert isinstance(fast, RTMPose)
    ways: dict[str, SimCC] = {
        "torch": lambda x: plain.simcc(plain.features(x)),
        "torch, bfloat16": lambda x: _half(plain, x),
        "ONNX Runtime": lambda x: fast.simcc(fast.features(x)),
    }
    with tempfile.TemporaryDirectory() as folder:
        if onnx is not None:
            published = onnx / RTMPOSE
            for precision in ("f32", "bf16"):
                network = openvino_network(published, threads, precision)
                if network is not None:
                    ways[f"OpenVINO, {precision}"] = lambda x, run=network: _pair(run(x.numpy()))
            inputs, _ = people_crops(read_set(data, "holdout"), plain)
            quantised = runtime(int8_file(published, inputs[:CALIBRATION], Path(folder)), threads)
            ways["ONNX Runtime, int8"] = lambda x: _pair(quantised.run(None, {"input": x.numpy()}))
        truth = read_set(data, "val2017")
        row = torch.randn(1, 3, 256, 192)
        eight = torch.randn(BATCH, 3, 256, 192)
        alone = milliseconds({name: partial(run, row) for name, run in ways.items()})
        together = milliseconds(
            {name: partial(run, eight) for name, run in ways.items()}, ROUNDS // 4
        )
        table = Table(
            "",
            "one crop",
            f"a crop of {BATCH}",
            "against torch",
            "AP",
            title=f"RTMPose-s, CPU ms, {threads} thread(s)",
        )
        for name, run in ways.items():
            values = together[name] / BATCH
            gain = together["torch"] / together[name]
            table.add_row(
                name,
                f"{alone[name]:.1f}",
                f"{values:.1f}",
                f"{gain:.2f}x",
                f"{accuracy(run, plain, truth):.2f}",
            )
    Console(width=120).print(table)


def _pair(outputs: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(outputs[0]), torch.from_numpy(outputs[1])


def _half(model: RTMPose, inputs: Tensor) -> tuple[Tensor, Tensor]:
    with torch.autocast("cpu", torch.bfloat16):
        x, y = model.simcc(model.features(inputs))
    return x.float(), y.float()


def detector(onnx: Path | None, threads: int) -> None:
    plain = load_yolox()
    fast = OnnxNetwork(YOLOX_GRAPH, plain.state_dict())
    table = Table(
        "",
        "416 x 416",
        "416 x 256",
        "against torch",
        title=f"YOLOX-tiny, CPU ms, {threads} thread(s)",
    )
    square, wide = (255 * torch.rand(1, 3, *size) for size in ((416, 416), (256, 416)))
    calls: dict[str, Callable[[], object]] = {
        "torch": partial(plain, square),
        "ONNX Runtime": partial(fast, square),
    }
    for precision in ("f32", "bf16"):  # the published file: square only
        network = None if onnx is None else openvino_network(onnx / YOLOX, threads, precision)
        if network is not None:
            calls[f"OpenVINO, {precision}"] = partial(network, square.numpy())
    values = milliseconds(calls, DETECTOR_ROUNDS)
    narrow = milliseconds(
        {"torch": partial(plain, wide), "ONNX Runtime": partial(fast, wide)}, DETECTOR_ROUNDS
    )
    for name, time_ms in values.items():
        less = f"{narrow[name]:.0f}" if name in narrow else ""
        table.add_row(name, f"{time_ms:.0f}", less, f"{values['torch'] / time_ms:.2f}x")
    Console(width=120).print(table)


if __name__ == "__main__":
    claim(main)
