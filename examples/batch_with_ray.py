"""Fit bodies in many videos, on several processes or on a Ray cluster.

    python examples/batch_with_ray.py 'clips/**/*.mp4' out/ --jobs 4
    python examples/batch_with_ray.py 'clips/**/*.mp4' out/ --ray auto

The second form needs `pip install "fitmesh[ray]"`. A video that fails does not stop the others,
and a second call continues where the first one stopped (docs/scale.md).
"""

import argparse

import fitmesh


def report(status: fitmesh.ClipStatus) -> None:
    """Print the state of a video as soon as it ends."""
    print(status.name, status.state, status.error or "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("videos", help="a pattern, or a .txt file with one path a line")
    parser.add_argument("out")
    parser.add_argument("--jobs", type=int, default=1, help="processes on this machine")
    parser.add_argument("--ray", help="address of a Ray cluster, or auto")
    arguments = parser.parse_args()

    statuses = fitmesh.run_many(
        arguments.videos,
        arguments.out,
        jobs=arguments.jobs,
        ray=arguments.ray,
        outputs=("fit",),
        progress=report,
    )
    failed = [status for status in statuses if status.error]
    print(f"{len(statuses) - len(failed)} of {len(statuses)} videos done")


if __name__ == "__main__":
    main()
