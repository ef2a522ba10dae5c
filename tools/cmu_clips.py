"""clips_30fps.npz and poses_5fps.npz, the captured motion behind the benches, made from CMU's clips as BVH files.

python tools/cmu_clips.py --bvh BVH --out CMU

BVH holds `02_02.bvh`, `02_03.bvh`, .. in any sub-folders: CMU's motion capture (mocap.cs.cmu.edu, free for all uses)
in B. Hahne's conversion, 31 joints that turn by z, y, x, 120 frames/s. `bench/cmu_clips.json` lists the clips of both
files with their lengths and descriptions; a clip of another length is an error. Angles are stored in hundredths of a
degree between -180 and 180. The skeleton is that of the first clip.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file

LISTED = Path(__file__).resolve().parents[1] / "bench" / "cmu_clips.json"
CAPTURED_FPS = 120
ROTATIONS = ("Zrotation", "Yrotation", "Xrotation")
FINGERS = ("FingerBase", "HandIndex1", "Thumb")  # not in poses_5fps.npz


@dataclass(frozen=True)
class Bvh:
    """One captured clip."""

    joint: tuple[str, ...]  # [J], each after its parent
    parent: np.ndarray  # [J], -1 for the root
    offset: np.ndarray  # [J, 3] from the parent, in CMU's units
    euler_zyx_deg: np.ndarray  # [T, J, 3] about z, y, x, one after the other
    root_pos: np.ndarray  # [T, 3]


def read_bvh(path: Path) -> Bvh:
    """A BVH file whose joints all turn by z, y, x and whose root alone also moves."""
    if not path.is_file():
        raise UserError(f"{path} does not exist: give the folder of CMU's clips as BVH files.")
    words = path.read_text(encoding="ascii", errors="replace").split()
    names: list[str] = []
    parents, offsets, open_joints = [], [], []
    at, end_site = 0, False
    while at < len(words) and words[at] != "MOTION":
        word = words[at]
        if word in ("ROOT", "JOINT"):
            names.append(words[at + 1])
            parents.append(open_joints[-1] if open_joints else -1)
        elif word == "End":
            end_site = True
        elif word == "{":
            open_joints.append(len(names) - 1)
        elif word == "}":
            open_joints.pop()
            end_site = False
        elif word == "OFFSET" and not end_site:
            offsets.append([float(number) for number in words[at + 1 : at + 4]])
        elif word == "CHANNELS":
            count = int(words[at + 1])
            channels = words[at + 2 : at + 2 + count]
            if tuple(channels[-3:]) != ROTATIONS or count != (6 if len(names) == 1 else 3):
                raise UserError(
                    f"{path}: {names[-1]} has the channels {' '.join(channels)}; expected z, y, x rotations."
                )
        at += 1
    values = np.array(words[words.index("Time:", at) + 2 :], dtype=np.float64) if "Time:" in words[at:] else np.zeros(0)
    width = 3 + 3 * len(names)
    if not names or not len(values) or len(values) % width:
        raise UserError(f"{path} is no BVH file of CMU's skeleton: {len(values)} numbers for {len(names)} joints.")
    rows = values.reshape(-1, width)
    return Bvh(tuple(names), np.array(parents), np.array(offsets), rows[:, 3:].reshape(-1, len(names), 3), rows[:, :3])


def frames_of(clip: Bvh, fps: int) -> tuple[np.ndarray, np.ndarray]:
    """Every n-th frame: angles in hundredths of a degree [T, J, 3] and root positions [T, 3].

    Some conversions put the rest pose before the first frame: a first frame without any rotation is left out.
    """
    first = 1 if len(clip.euler_zyx_deg) > 1 and not clip.euler_zyx_deg[0].any() else 0
    part = slice(first, None, CAPTURED_FPS // fps)
    wrapped = (clip.euler_zyx_deg[part] + 180) % 360 - 180
    return np.rint(100 * wrapped).astype(np.int16), clip.root_pos[part].astype(np.float32)


def collect(bvh: Path, listed: dict[str, tuple[int, str]], fps: int) -> dict[str, np.ndarray]:
    """The arrays of one file, as `fitting.motion_capture.load_motion` reads them."""
    found = {path.stem: path for path in sorted(bvh.rglob("*.bvh"))}
    angles, roots, skeleton = [], [], None
    for name, (length, _) in listed.items():
        clip = read_bvh(found.get(name, bvh / f"{name}.bvh"))
        skeleton = skeleton or clip
        if clip.joint != skeleton.joint:
            raise UserError(f"{found[name]} has other joints than the clips before it.")
        turned, root = frames_of(clip, fps)
        if len(turned) != length:
            raise UserError(
                f"{found[name]} gives {len(turned)} frames at {fps}/s, expected {length}: another conversion?"
            )
        angles.append(turned)
        roots.append(root)
    assert skeleton is not None
    return {
        "euler_zyx_deg_x100": np.concatenate(angles),
        "root_pos": np.concatenate(roots),
        "joint": np.array(skeleton.joint),
        "parent": skeleton.parent,
        "offset": skeleton.offset.astype(np.float32),
        "clip_start": np.cumsum([0, *(length for length, _ in listed.values())]),
        "clip_name": np.array(list(listed)),
        "clip_desc": np.array([text for _, text in listed.values()]),
    }


def without_fingers(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Poses alone: the body's joints, and no positions."""
    body = [number for number, name in enumerate(arrays["joint"]) if not str(name).endswith(FINGERS)]
    kept = {key: arrays[key] for key in ("clip_start", "clip_name", "clip_desc")}
    return {"euler_zyx_deg_x100": arrays["euler_zyx_deg_x100"][:, body], "joint": arrays["joint"][body], **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bvh", type=Path, required=True, help="the folder of CMU's clips")
    parser.add_argument("--out", type=Path, required=True, help="where the two files are written")
    arguments = parser.parse_args()
    listed = json.loads(LISTED.read_text(encoding="utf-8"))
    try:
        files = {
            "clips_30fps.npz": collect(arguments.bvh, listed["clips_30fps"], 30),
            "poses_5fps.npz": without_fingers(collect(arguments.bvh, listed["poses_5fps"], 5)),
        }
        arguments.out.mkdir(parents=True, exist_ok=True)
        for name, arrays in files.items():
            with atomic_file(arguments.out / name) as temporary, open(temporary, "wb") as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
