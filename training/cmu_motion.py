"""Make clips_30fps.npz and poses_5fps.npz, which training, tests and benches read, from CMU's
motion capture.

    python -m training.cmu_motion FOLDER --out clips_30fps.npz                       238 clips at 30 frames/s, 31 joints
    python -m training.cmu_motion FOLDER --out poses_5fps.npz --fps 5 --all --body   every clip at 5 frames/s, 25 joints

FOLDER holds what mocap.cs.cmu.edu gives out (`02.asf` and `02_02.amc`, in any sub-folder), or the
same clips as BVH (`02_02.bvh`), which begin with a T-pose that is left out. The data was created
with funding from NSF EIA-0196217 and is free for all uses. `training/cmu/clips.csv` names the clips,
says what they show and how many frames there must be.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from training.cmu.capture import Bone, Capture, read_amc, read_asf, read_bvh

LIST = Path(__file__).parent / "cmu" / "clips.csv"
HANDS = ("FingerBase", "HandIndex1", "Thumb")  # joints without motion in most clips
JOINTS = (
    "Hips",
    "LHipJoint",
    "LeftUpLeg",
    "LeftLeg",
    "LeftFoot",
    "LeftToeBase",
    "RHipJoint",
    "RightUpLeg",
    "RightLeg",
    "RightFoot",
    "RightToeBase",
    "LowerBack",
    "Spine",
    "Spine1",
    "Neck",
    "Neck1",
    "Head",
    "LeftShoulder",
    "LeftArm",
    "LeftForeArm",
    "LeftHand",
    "LeftFingerBase",
    "LeftHandIndex1",
    "LThumb",
    "RightShoulder",
    "RightArm",
    "RightForeArm",
    "RightHand",
    "RightFingerBase",
    "RightHandIndex1",
    "RThumb",
)


@dataclass(frozen=True)
class Wanted:
    """A clip of the list."""

    name: str  # subject_take
    frames: int  # at 30 frames/s; 0: not known
    description: str


def listed(path: Path = LIST) -> list[Wanted]:
    with path.open(newline="") as file:
        return [
            Wanted(row["name"], int(row["frames_30fps"]), row["description"])
            for row in csv.DictReader(file)
        ]


def find(folder: Path) -> dict[str, Path]:
    """Return the motion file of each clip; CMU's own before a conversion of it."""
    paths = {path.stem: path for path in sorted(folder.rglob("*.bvh"))}
    return paths | {path.stem: path for path in sorted(folder.rglob("*.amc"))}


def read(path: Path, fps: float) -> Capture:
    """Read a clip; `fps` is that of files that do not state it."""
    if path.suffix == ".amc":
        skeleton = path.with_name(f"{path.stem.split('_')[0]}.asf")
        if not skeleton.is_file():
            raise UserError(f"{path} needs its skeleton {skeleton.name} beside it.")
        return read_amc(path, _bones(skeleton), fps)
    capture = read_bvh(path)
    starts_at_rest = len(capture.root) > 1 and not capture.euler_zyx_deg[0].any()
    return Capture(
        capture.skeleton,
        capture.euler_zyx_deg[starts_at_rest:],
        capture.root[starts_at_rest:],
        capture.fps,
    )


@cache
def _bones(path: Path) -> list[Bone]:
    return read_asf(path)


def sampled(capture: Capture, fps: float) -> slice:
    """Return every n-th frame, beginning with the first."""
    step = round(capture.fps / fps)
    if step < 1 or abs(capture.fps / step - fps) > 0.02 * fps:
        raise UserError(
            f"{capture.fps:g} frames/s cannot be thinned to {fps:g}: give a rate that divides it."
        )
    return slice(None, None, step)


def pack(
    clips: Sequence[Wanted],
    files: dict[str, Path],
    fps: float,
    source_fps: float,
    joints: Sequence[str],
) -> dict:
    """Return the arrays of an npz file."""
    missing = [clip.name for clip in clips if clip.name not in files]
    if missing:
        raise UserError(f"{len(missing)} clips are not there: {', '.join(missing[:5])} ..")
    euler = []
    root = []
    skeleton = None
    for clip in clips:
        capture = read(files[clip.name], source_fps)
        lacking = sorted(set(joints) - set(capture.skeleton.joint))
        if lacking:
            raise UserError(f"{files[clip.name]} lacks the joints {', '.join(lacking[:4])}.")
        order = [capture.skeleton.joint.index(name) for name in joints]
        frames = sampled(capture, fps)
        euler.append(capture.euler_zyx_deg[frames][:, order])
        root.append(capture.root[frames])
        skeleton = skeleton or capture.skeleton
    assert skeleton is not None
    order = [skeleton.joint.index(name) for name in joints]
    turned = (np.concatenate(euler) + 180) % 360 - 180
    return {
        "euler_zyx_deg_x100": np.round(100 * turned).astype(np.int16),
        "root_pos": np.concatenate(root).astype(np.float32),
        "joint": np.array(joints),
        "parent": np.array(
            [_parent(skeleton.joint, skeleton.parent, place, joints) for place in order]
        ),
        "offset": skeleton.offset[order].astype(np.float32),  # of the first clip's subject
        "clip_start": np.cumsum([0, *map(len, euler)]),
        "clip_name": np.array([clip.name for clip in clips]),
        "clip_desc": np.array([clip.description for clip in clips]),
    }


def _parent(
    names: Sequence[str], parents: Sequence[int], place: int, selected: Sequence[str]
) -> int:
    return selected.index(names[parents[place]]) if parents[place] >= 0 else -1


def differences(arrays: dict, clips: Sequence[Wanted], fps: float) -> Iterator[str]:
    """List clips that are not as long as the list says."""
    for clip, length in zip(clips, np.diff(arrays["clip_start"]), strict=True):
        if clip.frames and fps == 30 and length != clip.frames:
            yield f"{clip.name} has {length} frames, the list says {clip.frames}: its rate may be another (--source-fps)"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument(
        "--source-fps", type=float, default=120.0, help="of .amc files, which do not state it"
    )
    parser.add_argument(
        "--all", action="store_true", help="every clip of the folder, not those of the list"
    )
    parser.add_argument("--body", action="store_true", help="leave the hands' joints out")
    options = parser.parse_args(arguments)
    try:
        files = find(options.folder)
        listed_clips = {clip.name: clip for clip in listed()}
        names = sorted(files) if options.all else list(listed_clips)
        clips = [listed_clips.get(name, Wanted(name, 0, "")) for name in names]
        joints = tuple(name for name in JOINTS if not (options.body and name.endswith(HANDS)))
        arrays = pack(clips, files, options.fps, options.source_fps, joints)
        for text in differences(arrays, clips, options.fps):
            print(f"Warning: {text}", file=sys.stderr)
        with atomic_file(options.out) as temporary:
            np.savez_compressed(temporary, **arrays)
    except UserError as error:
        sys.exit(f"Error: {error}")
    print(
        f"{options.out}: {len(clips)} clips, {len(arrays['root_pos'])} frames, {len(joints)} joints"
    )


if __name__ == "__main__":
    main()
