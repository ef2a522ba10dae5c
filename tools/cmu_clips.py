"""clips_30fps.npz and poses_5fps.npz, the captured motion behind training and benches, made from CMU's clips.

python tools/cmu_clips.py --captured FOLDER --out CMU

FOLDER holds, in any sub-folders, CMU's motion capture (mocap.cs.cmu.edu, free for all uses): its own files `02.asf`,
`02_02.amc`, .., or a conversion to BVH, `02_02.bvh`, .. . `bench/cmu_clips.json` lists the clips of both files with
their lengths and descriptions; a clip of another length is an error. Angles are stored in hundredths of a degree from
-180 to 180. The skeleton is that of the first clip.
"""

import argparse
import json
import sys
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from tools.cmu.capture import Bone, Capture, read_amc, read_asf, read_bvh

LISTED = Path(__file__).resolve().parents[1] / "bench" / "cmu_clips.json"
CAPTURED_FPS = (120, 60)  # most subjects, and some; CMU's own files do not say which
FINGERS = ("FingerBase", "HandIndex1", "Thumb")  # not in poses_5fps.npz
JOINTS = (
    "Hips", "LHipJoint", "LeftUpLeg", "LeftLeg", "LeftFoot", "LeftToeBase", "RHipJoint", "RightUpLeg", "RightLeg",
    "RightFoot", "RightToeBase", "LowerBack", "Spine", "Spine1", "Neck", "Neck1", "Head", "LeftShoulder", "LeftArm",
    "LeftForeArm", "LeftHand", "LeftFingerBase", "LeftHandIndex1", "LThumb", "RightShoulder", "RightArm",
    "RightForeArm", "RightHand", "RightFingerBase", "RightHandIndex1", "RThumb",
)  # fmt: skip


def find(folder: Path) -> dict[str, Path]:
    """Clip name -> its file; CMU's own before a conversion of it."""
    found = {path.stem: path for path in sorted(folder.rglob("*.bvh"))}
    return found | {path.stem: path for path in sorted(folder.rglob("*.amc"))}


def read(path: Path) -> Capture:
    """A clip. Some conversions put the rest pose before the first frame: a first frame without any turn is left out."""
    if path.suffix == ".amc":
        skeleton = path.with_name(f"{path.stem.split('_')[0]}.asf")
        if not skeleton.is_file():
            raise UserError(f"{path} needs its skeleton {skeleton.name} beside it.")
        return read_amc(path, _bones(skeleton))
    clip = read_bvh(path)
    first = 1 if len(clip.root) > 1 and not clip.euler_zyx_deg[0].any() else 0
    return Capture(clip.skeleton, clip.euler_zyx_deg[first:], clip.root[first:])


@cache
def _bones(path: Path) -> list[Bone]:
    return read_asf(path)


def frames_of(clip: Capture, fps: int, length: int) -> slice | None:
    """Every n-th frame, beginning with the first, such that there are `length`; None: no usual rate gives that."""
    steps = (slice(None, None, captured // fps) for captured in CAPTURED_FPS)
    return next((step for step in steps if len(clip.root[step]) == length), None)


def collect(folder: Path, listed: dict[str, tuple[int, str]], fps: int) -> dict[str, np.ndarray]:
    """The arrays of one file, as `fitting.motion_capture.load_motion` reads them."""
    files = find(folder)
    missing = [name for name in listed if name not in files]
    if missing:
        few = ", ".join(missing[:4]) + (", .." if len(missing) > 4 else "")
        raise UserError(f"{folder} has no .amc or .bvh file of {len(missing)} clips: {few}")
    angles, roots, parents, offsets = [], [], None, None
    for name, (length, _) in listed.items():
        clip = read(files[name])
        lacking = [joint for joint in JOINTS if joint not in clip.skeleton.joint]
        if lacking:
            raise UserError(f"{files[name]} lacks the joints {', '.join(lacking[:4])} of CMU's skeleton.")
        frames = frames_of(clip, fps, length)
        if frames is None:
            raise UserError(
                f"{files[name]} has {len(clip.root)} frames, which do not become {length} at {fps}/s: another clip?"
            )
        order = [clip.skeleton.joint.index(joint) for joint in JOINTS]
        angles.append(np.rint(100 * ((clip.euler_zyx_deg[frames][:, order] + 180) % 360 - 180)).astype(np.int16))
        roots.append(clip.root[frames].astype(np.float32))
        if parents is None:
            above = [clip.skeleton.parent[place] for place in order]
            parents = [JOINTS.index(clip.skeleton.joint[place]) if place >= 0 else -1 for place in above]
            offsets = clip.skeleton.offset[order].astype(np.float32)
    return {
        "euler_zyx_deg_x100": np.concatenate(angles),
        "root_pos": np.concatenate(roots),
        "joint": np.array(JOINTS),
        "parent": np.array(parents),
        "offset": np.asarray(offsets),
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
    parser.add_argument("--captured", type=Path, required=True, help="the folder of CMU's clips")
    parser.add_argument("--out", type=Path, required=True, help="where the two files are written")
    arguments = parser.parse_args()
    listed = json.loads(LISTED.read_text(encoding="utf-8"))
    try:
        files = {
            "clips_30fps.npz": collect(arguments.captured, listed["clips_30fps"], 30),
            "poses_5fps.npz": without_fingers(collect(arguments.captured, listed["poses_5fps"], 5)),
        }
        for name, arrays in files.items():
            with atomic_file(arguments.out / name) as temporary:
                np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
