"""The Blender extension as a zip that Blender 4.2 and later install.

python tools/blender_extension.py [FOLDER]       writes FOLDER/fitmesh-blender-VERSION.zip (dist/)

The zip holds blender/fitmesh and presets.json, the bones of each rig by joint, which are those of
`fitmesh run --rig`.
"""

import json
import sys
import zipfile
from pathlib import Path

from fitmesh.exports import DEFAULT, RIGS
from fitmesh.exports.rig import rig_names
from fitting.body.fingers import JOINT_NAMES_52
from fitting.body.kinematics import JOINT_NAMES
from pose2d.base.files import atomic_file
from pose2d.base.toml_files import parse_toml

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "blender" / "fitmesh"
_TIME = (2026, 1, 1, 0, 0, 0)  # of every file, so that the same sources make the same bytes


def presets() -> dict[str, dict[str, str]]:
    """Return the bones of each rig by joint, the fit's own skeleton as "fitmesh"."""
    joints = [*JOINT_NAMES_52, *(name for name in JOINT_NAMES if name not in JOINT_NAMES_52)]
    return {
        "fitmesh" if rig == DEFAULT else rig: dict(zip(joints, rig_names(rig, joints), strict=True))
        for rig in RIGS
    }


def build(folder: Path) -> Path:
    """Write the zip into a folder and return its path."""
    manifest_file = SOURCE / "blender_manifest.toml"
    manifest = parse_toml(manifest_file.read_text("utf-8"), manifest_file)
    contents = {path.name: path.read_bytes() for path in sorted(SOURCE.iterdir()) if path.is_file()}
    contents["presets.json"] = (json.dumps(presets(), indent=1) + "\n").encode()
    contents["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"fitmesh-blender-{manifest['version']}.zip"
    with (
        atomic_file(path) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return path


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"))
