"""Fit one body to two calibrated cameras and print where the person walked.

    python examples/two_cameras.py left.mp4 right.mp4 rig.toml out/walk

docs/cameras.md lists the calibration files that can stand in place of rig.toml; `auto` finds the
cameras from the people.
"""

import argparse
from pathlib import Path

import fitmesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("left", type=Path)
    parser.add_argument("right", type=Path)
    parser.add_argument("cameras", help="a calibration file, or auto")
    parser.add_argument("out", type=Path)
    parser.add_argument("--end", type=float, help="stop after this many seconds")
    arguments = parser.parse_args()

    result = fitmesh.run(
        [arguments.left, arguments.right],
        arguments.out,
        cameras=arguments.cameras,
        end_s=arguments.end,
        exports=("trc",),
        outputs=("fit",),
    )
    for view in result.views:
        print(f"camera {view.name}: clock offset {view.offset_s:+.3f} s")
    for person in result.people:
        if person.joints_world_m is None:
            print(f"person {person.identity}: gravity is not known, so there is no world frame")
            continue
        pelvis_m = person.joints_world_m[:, 0]
        print(f"person {person.identity}: from {pelvis_m[0]} to {pelvis_m[-1]} m")


if __name__ == "__main__":
    main()
