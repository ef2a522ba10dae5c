"""Weights, inputs and a toy body made from names alone.

A checkpoint for a published architecture can be re-made anywhere from its key names and shapes:
every tensor is drawn from a generator seeded by its own key. The .npz files beside this one hold
what the ORIGINAL implementations answer for such checkpoints.
"""

import hashlib
import json

import numpy as np


def rng(name: str) -> np.random.Generator:
    return np.random.default_rng(
        int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    )


def tensor(key: str, shape: tuple[int, ...]) -> np.ndarray:
    """The value that a state-dict entry has in every reference checkpoint."""
    g = rng(key)
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if key.endswith("running_mean"):
        value = 0.1 * g.standard_normal(shape)
    elif key.endswith("running_var") or (len(shape) == 1 and key.endswith("weight")):
        value = g.uniform(0.5, 1.5, shape)
    elif len(shape) <= 1:
        value = 0.1 * g.standard_normal(shape)
    else:
        gain = 1.0 if len(shape) == 4 else 0.6
        value = g.standard_normal(shape) * gain / np.sqrt(np.prod(shape[1:]))
    return np.asarray(value, np.float32)


def checkpoint(reference: str) -> dict[str, np.ndarray]:
    """The whole state dict of one reference file, under the ORIGINAL key names.

    Two kinds of entries are fixed by the architecture, not drawn: RLE's `flow.mask` (rows alternate
    [0, 1] and [1, 0], six in all) and mmpose's `head.loss_module.*` / `data_preprocessor.*`.
    """
    keys = json.loads(str(np.load(reference)["keys"]))
    return {key: tensor(key, tuple(shape)) for key, shape in keys}


def network_input(reference: str) -> np.ndarray:
    """The already normalised input batch, [N, 3, H, W]."""
    file = np.load(reference)
    return (
        rng(str(file["input_name"])).standard_normal(tuple(file["input_shape"])).astype(np.float32)
    )


PARENTS = np.array(
    [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 12, 13, 14, 16, 17, 18, 19, 20, 21]
)
TOY_JOINTS = np.array(
    [
        [0, -0.22, 0.03],
        [0.06, -0.31, 0.01],
        [-0.06, -0.31, 0.01],
        [0, -0.1, 0],
        [0.1, -0.69, 0.01],
        [-0.1, -0.69, 0.01],
        [0, 0.03, 0.02],
        [0.09, -1.09, -0.03],
        [-0.09, -1.09, -0.03],
        [0, 0.09, 0.03],
        [0.12, -1.15, 0.09],
        [-0.12, -1.15, 0.09],
        [0, 0.3, -0.01],
        [0.08, 0.2, -0.01],
        [-0.08, 0.2, -0.01],
        [0, 0.38, 0.04],
        [0.2, 0.23, -0.03],
        [-0.2, 0.23, -0.03],
        [0.45, 0.22, -0.05],
        [-0.45, 0.22, -0.05],
        [0.7, 0.23, -0.05],
        [-0.7, 0.23, -0.05],
        [0.79, 0.22, -0.06],
        [-0.79, 0.22, -0.06],
    ],
    np.float32,
)


def toy_body() -> dict[str, np.ndarray]:
    """A body in SMPL's file layout with SMPL's 6890 vertices, made of random numbers."""
    owner = np.arange(6890) % 24
    vertices = (TOY_JOINTS[owner] + rng("toy:verts").normal(0, 0.05, (6890, 3))).astype(np.float32)
    regressor = np.zeros((24, 6890), np.float32)
    for joint in range(24):
        regressor[joint, owner == joint] = 1 / (owner == joint).sum()
    weights = np.zeros((6890, 24), np.float32)
    weights[np.arange(6890), owner] = 0.8
    weights[np.arange(6890), np.maximum(PARENTS[owner], 0)] += 0.2
    return dict(
        v_template=vertices,
        shapedirs=rng("toy:shape").normal(0, 0.008, (6890, 3, 10)).astype(np.float32),
        posedirs=rng("toy:pose").normal(0, 0.001, (6890, 3, 207)).astype(np.float32),
        J_regressor=regressor,
        weights=weights,
        kintree_table=np.stack([PARENTS, np.arange(24)]).astype(np.int64),
        f=np.zeros((4, 3), np.int64),
    )


def toy_extra_regressor() -> np.ndarray:
    """Stands for J_regressor_extra, [9, 6890]."""
    extra = np.zeros((9, 6890))
    for row in range(9):
        extra[row, rng(f"toy:extra{row}").choice(6890, 8, replace=False)] = 1 / 8
    return extra


def toy_pose_mixture() -> dict[str, np.ndarray]:
    """Stands for SMPLify's 8-component pose prior: means [8, 69], covars [8, 69, 69], weights [8]."""
    g = rng("toy:gmm")
    factors = g.normal(0, 0.15, (8, 69, 69))
    covars = np.einsum("mij,mkj->mik", factors, factors) / 69 * 4 + np.eye(69) * 0.05
    return dict(means=g.normal(0, 0.2, (8, 69)), covars=covars, weights=g.dirichlet(np.ones(8)))
