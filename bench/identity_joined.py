"""Pieces of the shared clips end to end in one video, for bench/identity_cost.py: every cut found,
no track over one?

python bench/identity_joined.py --videos DIR --out joined.mp4     writes the video and prints where
its cuts are
"""

import argparse
import sys
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib.claim import Console, claim
from pose2d.video.frames import Video

SIZE = (640, 360)
FPS = 25
PIECES = (
    ("bedroom_children.mp4", 0, 45),
    ("worker_back.mp4", 30, 40),
    ("park_two_people.mp4", 60, 50),
    ("desk_classroom.mp4", 0, 40),
    ("one_by_one.mp4", 80, 50),
    ("upper_body_sign.mkv", 10, 30),
    ("bedroom_children.mp4", 50, 40),
    ("street_5_frames.mp4", 0, 5),
    ("park_two_people.mp4", 150, 40),
)


def fitted(rgb: np.ndarray) -> np.ndarray:
    """An image in the middle of one of SIZE, black around it."""
    zoom = min(SIZE[0] / rgb.shape[1], SIZE[1] / rgb.shape[0])
    small = cv2.resize(
        rgb, (int(rgb.shape[1] * zoom), int(rgb.shape[0] * zoom)), interpolation=cv2.INTER_AREA
    )
    out = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    y = (SIZE[1] - small.shape[0]) // 2
    x = (SIZE[0] - small.shape[1]) // 2
    out[y : y + small.shape[0], x : x + small.shape[1]] = small
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    starts = []
    count = 0
    with av.open(str(arguments.out), "w") as container:
        stream = container.add_stream("libx264", rate=Fraction(FPS))
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for name, first, length in PIECES:
            starts.append(count)
            for frame in Video(arguments.videos / name).frames():
                if frame.index >= first + length:
                    break
                if frame.index >= first:
                    container.mux(
                        stream.encode(av.VideoFrame.from_ndarray(fitted(frame.rgb), "rgb24"))
                    )
                    count += 1
        container.mux(stream.encode(None))
    Console().print(f"{count} frames; shots begin at {starts}")


if __name__ == "__main__":
    claim(main)
