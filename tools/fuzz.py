"""Random damage to what readers read, for minutes; prints what was neither read nor refused in
words.

    python tools/fuzz.py npz --seconds 60        npz, json, mp4, onnx, edits, lists, rig, plugin or hub

Each try takes a valid input, changes it (bytes, numbers, entries, array types), and hands it to its
reader. Counted as failures: any exception but UserError, more than 10 seconds, more memory than 6
GiB. The input of a failure is kept in --keep under a name that tells the seed; made small, it
belongs in tests/data/hostile.
"""

import argparse
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from pose2d.base.errors import UserError
from tools.hostile.fuzz_targets import TARGETS, Target
from tools.hostile.inputs import make_valid

LONGEST_S = 10
MEMORY_BYTES = 6 << 30


def fuzz(target: Target, seconds: float, seed: int, keep: Path) -> Counter[str]:
    """Return how the tries ended."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {LONGEST_S} s")

    ended: Counter[str] = Counter()
    reported: set[str] = set()
    signal.signal(signal.SIGALRM, too_long)
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end:
            name, content = target.draw(np.random.default_rng(seed))
            path = Path(folder, name)
            path.write_bytes(content)
            signal.alarm(LONGEST_S)
            try:
                target.read(path)
                ended["read"] += 1
            except UserError:
                ended["refused"] += 1
            except Exception as error:
                ended["failed"] += 1
                place = "".join(traceback.format_exception(error)[-2:])
                if place not in reported:
                    reported.add(place)
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{seed}-{name}").write_bytes(content)
                    print(f"seed {seed}, {name}:\n{place}", flush=True)
            finally:
                signal.alarm(0)
            path.unlink(missing_ok=True)
            seed += 1
    return ended


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("target", choices=TARGETS)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument(
        "--seed", type=int, default=0, help="of the first try; each next one has one more"
    )
    options.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "fitmesh_fuzz")
    options.add_argument(
        "--keep", type=Path, help="folder for inputs that failed; default: WORK/failed"
    )
    arguments = options.parse_args()

    import torch

    torch.set_num_threads(1)
    np.seterr(all="ignore")
    resource.setrlimit(
        resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1])
    )
    target = TARGETS[arguments.target](make_valid(arguments.work / f"valid_{arguments.target}"))
    ended = fuzz(
        target, arguments.seconds, arguments.seed, arguments.keep or arguments.work / "failed"
    )
    print(f"{arguments.target}: {sum(ended.values())} tries: {dict(ended)}")
    sys.exit(bool(ended["failed"]))


if __name__ == "__main__":
    main()
