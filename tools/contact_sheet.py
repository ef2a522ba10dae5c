"""A video at a glance: frames spread evenly over it, in a grid, each with its number.

python tools/contact_sheet.py out/park/overlay.mp4 sheet.jpg --frames 24 --columns 4 --width 440
"""

import argparse
from pathlib import Path

import cv2
import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.video.frames import Span
from pose2d.video.video_file import Video


def contact_sheet(video: Path, frames: int, columns: int, width: int, span: Span) -> np.ndarray:
    """Return an RGB image [H, W, 3] of about `frames` frames of the span, `columns` beside each
    other, each `width` pixels wide.
    """
    clip = Video(video)
    height = round(width * clip.info.height_px / clip.info.width_px)
    total = span.expected_frames(clip.info) or frames
    span = Span(span.start_s, span.end_s, max(1, -(-total // frames)))
    cells = []
    for frame in clip.frames(span):
        cell = cv2.resize(frame.rgb, (width, height), interpolation=cv2.INTER_AREA)
        label = f"{frame.index}  {float(frame.time_s):.2f} s"
        (text_width, text_height), _ = cv2.getTextSize(label, cv2.FONT_HERSHEY_DUPLEX, 0.45, 1)
        cv2.rectangle(cell, (0, 0), (text_width + 8, text_height + 8), (0, 0, 0), cv2.FILLED)
        cv2.putText(
            cell,
            label,
            (4, text_height + 4),
            cv2.FONT_HERSHEY_DUPLEX,
            0.45,
            (255, 255, 255),
            1,
            cv2.LINE_AA,
        )
        cells.append(cell)
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % columns)
    return np.vstack([np.hstack(cells[i : i + columns]) for i in range(0, len(cells), columns)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("video", type=Path)
    parser.add_argument("sheet", type=Path, help="a .jpg or .png")
    parser.add_argument("--frames", type=int, default=24)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--width", type=int, default=440, help="of one frame, in pixels")
    parser.add_argument("--start", type=float, default=0.0)
    parser.add_argument("--end", type=float)
    arguments = parser.parse_args()
    try:
        span = Span(arguments.start, arguments.end)
        rgb = contact_sheet(
            arguments.video, arguments.frames, arguments.columns, arguments.width, span
        )
        quality = (
            [cv2.IMWRITE_JPEG_QUALITY, 85]
            if arguments.sheet.suffix.lower() in (".jpg", ".jpeg")
            else []
        )
        encoded, data = cv2.imencode(
            arguments.sheet.suffix, cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), quality
        )
        assert encoded
        with atomic_file(arguments.sheet) as temporary:
            temporary.write_bytes(data.tobytes())
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
