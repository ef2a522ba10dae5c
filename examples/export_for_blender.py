"""Write a scene for Blender: skinned, animated people with Rigify's bone names, at 24 frames/s.

    python examples/export_for_blender.py examples/park.mp4 out/park --end 1

In Blender: Output Properties > Frame Rate 24, then File > Import > glTF 2.0 (docs/animation.md).
"""

import argparse
from pathlib import Path

import fitmesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--end", type=float, help="stop after this many seconds")
    parser.add_argument("--fps", type=float, default=24.0, help="frame rate of the Blender project")
    arguments = parser.parse_args()

    fitmesh.run(
        arguments.video,
        arguments.out,
        end_s=arguments.end,
        exports=("bvh",),
        rig="rigify",
        export_fps=arguments.fps,
    )
    print(f"import {arguments.out / 'scene.glb'}, or one skeleton from {arguments.out / 'bvh'}")


if __name__ == "__main__":
    main()
