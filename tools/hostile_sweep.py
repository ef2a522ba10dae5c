"""A sweep of hostile input over all commands and loaders; prints what did not end well.

    python tools/hostile_sweep.py                    all cases, some minutes; --only PATTERN for some of them

Each case ends in words and exit code 2 (or succeeds, where that is right). Counted as failures: a
traceback or an unforeseen error, more than 60 seconds, a lack of memory (the limit is 4
GiB), a success where the input is wrong.
"""

import argparse
import importlib
import itertools
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.hostile.cases import all_cases
from tools.hostile.inputs import make_valid
from tools.hostile.runner import Outcome, run_case, summary

HEAVY = (
    "fitmesh.api",
    "fitmesh.eval_3dpw.pipeline",
    "fitmesh.coco.train_ccnet",
    "fitmesh.coco.eval_coco",
    "eval3dpw.synth.dataset",
    "fitmesh.viewer.server",
    "fitmesh.tracks",
)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--only", default="", help="cases whose name matches this regular expression"
    )
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--every", type=int, default=1, help="every n-th case only")
    options.add_argument("--json", type=Path, help="write all outcomes to this file")
    options.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "fitmesh_hostile"
    )
    arguments = options.parse_args()

    import torch

    for module in HEAVY:  # once here instead of in every case
        importlib.import_module(module)
    torch.set_num_threads(1)
    valid = make_valid(arguments.work / "valid")
    outcomes: list[Outcome] = []
    scratch = arguments.work / "case"
    chosen = (
        case for case in all_cases(valid, arguments.seed) if re.search(arguments.only, case.name)
    )
    for case in itertools.islice(chosen, 0, None, arguments.every):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        outcome = run_case(case, scratch)
        outcomes.append(outcome)
        if outcome.ended != "fine":
            print(
                f"{outcome.ended}: {outcome.case} (code {outcome.code}, {outcome.seconds:.1f} s)",
                flush=True,
            )
            print("    " + "\n    ".join(outcome.said.splitlines()[-6:]), flush=True)
    slowest = max(outcomes, key=lambda case_outcome: case_outcome.seconds)
    print(
        f"{len(outcomes)} cases: {summary(outcomes)}; slowest {slowest.case!r}, {slowest.seconds:.1f} s"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=1))
    sys.exit(any(outcome.ended != "fine" for outcome in outcomes))


if __name__ == "__main__":
    main()
