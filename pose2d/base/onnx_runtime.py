"""A network in ONNX Runtime: the graph from a file in pose2d/graphs, the weights from the module that it was made of.

Graphs hold no weights (tools/export_graphs.py), so whatever weights a module was loaded with run here, and they ship
once. On one core of a CPU this is about 1.5 times as fast as torch (bench/engines.py).
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class OnnxNetwork:
    """One network on the CPU. Calls may come from several threads, and each computes on its own."""

    def __init__(self, graph: str, weights: Mapping[str, Tensor]) -> None:
        """graph: file in pose2d/graphs; weights: by the names of its initialisers."""
        import onnxruntime

        self._made_of = (graph, dict(weights))
        path = Path(str(files("pose2d") / "graphs" / graph))
        options = onnxruntime.SessionOptions()
        # A pool of its own would spin while it waits, and take that time from whatever else runs.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        for pool in ("intra", "inter"):
            options.add_session_config_entry(f"session.{pool}_op.allow_spinning", "0")
        options.log_severity_level = 3
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value.numpy()) for value in weights.values()]
        options.add_external_initializers(list(weights), values)
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._input = self._session.get_inputs()[0].name

    def __reduce__(self) -> tuple[type["OnnxNetwork"], tuple[str, dict[str, Tensor]]]:
        """Copies and pickles are made anew: a session can be neither."""
        return OnnxNetwork, self._made_of

    def __call__(self, inputs: Tensor) -> list[Tensor]:
        """Every output for a batch [N, ...] of float32, in as many threads as torch would use."""
        threads = min(torch.get_num_threads(), len(inputs))
        if threads < 2:
            return [torch.from_numpy(output) for output in self._run(inputs.numpy())]
        parts = list(_pool(threads).map(self._run, np.array_split(inputs.numpy(), threads)))
        return [torch.from_numpy(np.concatenate(outputs)) for outputs in zip(*parts, strict=True)]

    def __deepcopy__(self, memo: object) -> "OnnxNetwork":
        """A session never changes once it is made, so copies of a model share it."""
        return self

    def _run(self, inputs: np.ndarray) -> list[np.ndarray]:
        return self._session.run(None, {self._input: np.ascontiguousarray(inputs)})


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="onnx")
