"""ONNX files are read as the onnx package reads them; what is broken or leads elsewhere is refused
in words.
"""

import numpy as np
import pytest

import pose2d
from pose2d import UserError
from pose2d.base.onnx_weights import ordered_weights, read_onnx

onnx = pytest.importorskip("onnx")
helper = onnx.helper
numpy_helper = onnx.numpy_helper


def _tensor(name, shape, dtype=np.float32):
    return numpy_helper.from_array(
        np.random.default_rng(len(name)).normal(size=shape).astype(dtype), name
    )


def _model(nodes, tensors, outputs=("y",)):
    infos = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        for name in ("x", *outputs)
    ]
    return helper.make_model(helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors))


def _two_branches(swapped=False):
    """Two convolutions whose maps are joined: a first, then b, in whichever order the file lists
    them.
    """
    nodes = [helper.make_node("Conv", ["x", f"w{name}", f"b{name}"], [name]) for name in "ab"]
    nodes = nodes[::-1] if swapped else nodes
    join = helper.make_node("Concat", ["a", "b"], ["y"], axis=1)
    tensors = [
        _tensor("wa", (2, 3, 1, 1)),
        _tensor("ba", (2,)),
        _tensor("wb", (4, 3, 1, 1)),
        _tensor("bb", (4,)),
    ]
    return _model([*nodes, join], tensors)


@pytest.fixture
def written(tmp_path):
    def write(model, **how):
        path = tmp_path / "model.onnx"
        onnx.save(model, path, **how)
        return path

    return write


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.bool_]
)
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_are_those_of_the_onnx_package(written, dtype, raw):
    values = (np.arange(24).reshape(2, 3, 4) - (0 if dtype in (np.uint8, np.bool_) else 7)).astype(
        dtype
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    content = values.tobytes() if raw else values.ravel()
    tensor = helper.make_tensor("w", kind, values.shape, content, raw=raw)
    found = read_onnx(
        written(_model([helper.make_node("Add", ["x", "w"], ["y"])], [tensor]))
    ).tensors["w"]
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_constants_count_as_weights(written):
    value = _tensor("c", (3,))
    nodes = [
        helper.make_node("Constant", [], ["c"], value=value),
        helper.make_node("Mul", ["x", "c"], ["y"]),
    ]
    assert list(ordered_weights(read_onnx(written(_model(nodes, []))))) == ["Mul.0.1"]


@pytest.mark.parametrize("swapped", [False, True])
def test_the_order_of_weights_is_that_of_the_computation(written, swapped):
    found = ordered_weights(read_onnx(written(_two_branches(swapped))))
    assert {key: value.shape for key, value in found.items()} == {
        "Conv.0.1": (2, 3, 1, 1),
        "Conv.0.2": (2,),
        "Conv.1.1": (4, 3, 1, 1),
        "Conv.1.2": (4,),
    }


@pytest.mark.parametrize("location", ["weights.bin", "../secret.bin", "/etc/hostname", ""])
def test_tensors_in_other_files_are_refused(written, location):
    model = _two_branches()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    path = written(model)
    path.with_name("weights.bin").write_bytes(bytes(1000))
    with pytest.raises(UserError, match="lies in another file"):
        read_onnx(path)


def test_a_file_cut_anywhere_is_refused(written):
    path = written(_two_branches())
    content = path.read_bytes()
    for length in range(
        0, len(content) - 12, 7
    ):  # the last bytes hold the version, after the graph
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match=r"model\.onnx"):
            read_onnx(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 not onnx", b"\x00" * 64, b"\xff" * 64, bytes(range(256))]
)
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not an ONNX file"):
        read_onnx(path)


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 2**62, 0), (-1, 6), (-2, -3, 1, 1)])
def test_shapes_that_no_tensor_has_are_refused(written, shape):
    model = _two_branches()
    tensor = model.graph.initializer[0]
    if 0 in shape:
        tensor.raw_data = b""
    del tensor.dims[:]
    tensor.dims.extend(shape)
    with pytest.raises(UserError, match="tensor 'wa'"):
        read_onnx(written(model))


def test_a_tensor_with_too_few_numbers_is_refused(written):
    model = _two_branches()
    model.graph.initializer[0].dims[0] = 2**40
    with pytest.raises(UserError, match="tensor 'wa'"):
        read_onnx(written(model))


def test_numbers_of_an_unknown_kind_are_refused(written):
    model = _two_branches()
    model.graph.initializer[0].data_type = onnx.TensorProto.BFLOAT16
    with pytest.raises(UserError, match="only plain floats and integers"):
        read_onnx(written(model))


def test_a_graph_that_runs_in_a_circle_ends(written):
    nodes = [helper.make_node("Add", ["b", "w"], ["a"]), helper.make_node("Add", ["a", "w"], ["b"])]
    found = ordered_weights(read_onnx(written(_model(nodes, [_tensor("w", (3,))], outputs=("a",)))))
    assert len(found) == 2


def test_the_export_of_another_network_does_not_load(written):
    with pytest.raises(UserError, match=r"does not fit rtmpose-s-halpe26: .* tensors are missing"):
        pose2d.load("rtmpose-s-halpe26", written(_two_branches()))


def test_wrong_shapes_and_missing_weights_are_named(shared, written):
    model = onnx.load(shared / "weights/rtmpose_s_halpe26_256x192.onnx")
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    wrong = np.zeros((26, 512, 5, 5), np.float32)
    tensors["head.final_layer.weight"].CopyFrom(
        numpy_helper.from_array(wrong, "head.final_layer.weight")
    )
    with pytest.raises(
        UserError, match=r"head.final_layer.weight is \[26, 512, 5, 5\], expected \[26, 512, 7, 7\]"
    ):
        pose2d.load("rtmpose-s-halpe26", written(model))
    model.graph.initializer.remove(tensors["head.gau.beta"])
    with pytest.raises(UserError, match="missing"):
        pose2d.load("rtmpose-s-halpe26", written(model))
