"""Fit bodies to a video and read the result.

python examples/read_result.py examples/park.mp4 out/park --end 1
"""

import argparse
from pathlib import Path

import fitmesh
from fitmesh import Result


def describe(result: Result) -> list[str]:
    """Return one line of text for each person: when, how tall, and how well the pose is known."""
    lines = []
    for person in result.people:
        first_s = person.time_s[0]
        last_s = person.time_s[-1]
        error_mm = person.joint_std_mm.mean()
        lines.append(
            f"person {person.identity}: {first_s:.2f} to {last_s:.2f} s, "
            f"{person.height_m:.2f} m tall, expected joint error {error_mm:.0f} mm"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("video", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--end", type=float, help="stop after this many seconds")
    arguments = parser.parse_args()

    result = fitmesh.run(arguments.video, arguments.out, end_s=arguments.end, outputs=("fit",))
    print("\n".join(describe(result)))
    if result.people:
        person = result.people[0]
        vertices_m = result.vertices(person, 0)  # [V, 3] metres, camera frame
        print(f"mesh of the first frame: {len(vertices_m)} vertices")


if __name__ == "__main__":
    main()
