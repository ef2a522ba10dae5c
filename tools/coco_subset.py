"""The parts of COCO that the figures in README and bench/README.md were measured on, made from
COCO's own files.

    python tools/coco_subset.py --coco COCO --out DATA --sets val2017 train2017

COCO holds `annotations/person_keypoints_{train,val}2017.json` and the folders `train2017`,
`val2017` (cocodataset.org). `bench/coco_subsets.json` has the image ids of each set. In `val2017`,
images listed as grey were measured in grey; those of the `train2017_256` sets were stored squashed
to 256 x 256 and are enlarged on reading, as `fitmesh train-ccnet` does.

Figures made from these files differ a little from the published ones: where COCO's own area of a
person was not at hand, 0.53 of the box was taken (in `val2017` for 295 of 438 people), and pixels
went through another JPEG encoder.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from pose2d.base.errors import UserError
from pose2d.base.files import atomic_file
from pose2d.base.json_files import read_json

SUBSETS = Path(__file__).resolve().parents[1] / "bench" / "coco_subsets.json"
JPEG = [cv2.IMWRITE_JPEG_QUALITY, 95]


def subset(annotations: dict[str, Any], ids: set[int]) -> dict[str, Any]:
    """Return COCO's annotations of some images only; a missing image is an error."""
    images = [image for image in annotations["images"] if image["id"] in ids]
    missing = ids - {image["id"] for image in images}
    if missing:
        raise UserError(
            f"{len(missing)} images are not in the annotations, among them {min(missing)}."
        )
    people = [person for person in annotations["annotations"] if person["image_id"] in ids]
    return {**annotations, "images": images, "annotations": people}


def stored(bgr: np.ndarray, grey: bool, squashed_px: int | None) -> np.ndarray:
    """Return an image as it was measured."""
    if squashed_px is not None:
        bgr = cv2.resize(bgr, (squashed_px, squashed_px), interpolation=cv2.INTER_AREA)
    return cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY) if grey else bgr


def make(coco: Path, out: Path, name: str) -> None:
    """Write one set: its annotations, and its images in the folder that the annotations are named
    after.
    """
    details = json.loads(SUBSETS.read_text())[name]
    requested = out / "annotations" / f"person_keypoints_{name}.json"
    folder = out / "images" / details["images"]
    ids = set(details["ids"])
    grey = set(details["grey"])
    annotations = subset(
        read_json(coco / "annotations" / f"person_keypoints_{details['from']}.json").object(), ids
    )
    folder.mkdir(parents=True, exist_ok=True)
    requested.parent.mkdir(parents=True, exist_ok=True)
    for image in annotations["images"]:
        source = coco / details["from"] / image["file_name"]
        bgr = cv2.imread(str(source), cv2.IMREAD_COLOR)
        if bgr is None:
            raise UserError(
                f"{source} is missing or no image: unpack {details['from']}.zip of COCO into {coco}."
            )
        encoded, data = cv2.imencode(
            ".jpg", stored(bgr, image["id"] in grey, details["squashed_px"]), JPEG
        )
        assert encoded
        with atomic_file(folder / image["file_name"]) as temporary:
            temporary.write_bytes(data.tobytes())
    with atomic_file(requested) as temporary:
        temporary.write_text(json.dumps(annotations))
    print(
        f"{name}: {len(annotations['images'])} images, {len(annotations['annotations'])} people -> {requested}"
    )


def main() -> None:
    names = list(json.loads(SUBSETS.read_text()))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--coco",
        type=Path,
        required=True,
        help="COCO as published: annotations, train2017, val2017",
    )
    parser.add_argument("--out", type=Path, required=True, help="where the sets are written")
    parser.add_argument("--sets", nargs="+", choices=names, default=names)
    arguments = parser.parse_args()
    try:
        for name in arguments.sets:
            make(arguments.coco, arguments.out, name)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
