"""The size of the house: how much code there is, and how much of it one frame passes through.

python tools/house.py                  # a table
python tools/house.py --json           # for comparing
PYTHONPATH=/some/other/checkout python tools/house.py --root /some/other/checkout

| line | what is counted |
|---|---|
| lines, files | of the product's packages, blank lines and comments too |
| dataclasses | classes decorated as such |
| long lists | functions in fitting/ with more than 8 parameters, without the ones that `fitting` exports |
| loaded | our modules in sys.modules when `fitmesh run --video` of one frame writes fit.npz, without `__init__` files |
| files, functions | what of these was called until then, also in threads, but not while a module is imported |
| idle | modules that were loaded and of which nothing was called |
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pose2d", "ccnet", "fitting", "eval3dpw", "fitmesh")
MOST_PARAMETERS = 8

# Starts the command as `python -m fitmesh` does, notes every function of ours that is called, and
# stops the moment a file of the wanted name is moved to its place.
_PROBE = """
import json, os, sys, threading

wanted, report, root = sys.argv[1:4]
sys.argv = ["fitmesh", *sys.argv[4:]]
called = set()

def importing(frame):
    while frame := frame.f_back:
        if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(root):
            return True
    return False

def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code not in called and code.co_filename.startswith(root) and not importing(frame):
        called.add(code)

def leave(event, about):
    if event == "os.rename" and str(about[1]).endswith(wanted):
        sys.setprofile(None)
        modules = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
        functions = [(c.co_filename, c.co_qualname) for c in called if c.co_flags & 2 and c.co_name != "<module>"]
        with open(report, "w") as file:
            json.dump({"modules": modules, "functions": functions}, file)
        os._exit(0)

threading.setprofile(note)
sys.setprofile(note)
sys.addaudithook(leave)
from fitmesh.cli import main
main()
"""


@dataclass(frozen=True)
class Walk:
    """What a command executed until it wrote a file."""

    loaded: list[str]  # our modules, without package __init__ files
    libraries: list[str]  # top-level names of everything else that was loaded
    files: list[str]  # relative paths of those in which a function was called
    functions: int
    idle: list[str]  # modules of which nothing was called


def walk(root: Path, file: str, *arguments: object) -> Walk:
    """Run `fitmesh ARGUMENTS` with the code in `root` until it writes `file`."""
    packages = tuple(str(root / package) + os.sep for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [
            sys.executable,
            "-c",
            _PROBE,
            file,
            str(report),
            str(root) + os.sep,
            *map(str, arguments),
        ]
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if not report.is_file():
            raise RuntimeError(
                f"fitmesh {' '.join(map(str, arguments))} wrote no {file}:\n{ended.stderr}"
            )
        walked = json.loads(report.read_text())
    ours = {name: path for name, path in walked["modules"].items() if path.startswith(packages)}
    loaded = {name: path for name, path in ours.items() if not path.endswith("__init__.py")}
    functions = {(path, name) for path, name in walked["functions"] if path.startswith(packages)}
    files = {path for path, _ in functions}
    return Walk(
        sorted(loaded),
        sorted({name.split(".")[0] for name in walked["modules"]} - {*PACKAGES}),
        sorted(str(Path(path).relative_to(root)) for path in files),
        len(functions),
        sorted(name for name, path in loaded.items() if path not in files),
    )


def run_one_frame(root: Path) -> Walk:
    """Run the defaults on one frame of the example clip, up to fit.npz."""
    with tempfile.TemporaryDirectory() as out:
        video = root / "examples" / "park.mp4"
        return walk(
            root, "fit.npz", "run", "--video", video, "--end", 0.02, "--out", out, "--quiet"
        )


def eval_one_sequence(root: Path) -> Walk:
    """`eval-3dpw` on one rendered sequence of two frames."""
    with tempfile.TemporaryDirectory() as out:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        data = Path(out, "set")
        synth = [
            sys.executable,
            "-m",
            "fitmesh",
            "synth",
            "--out",
            data,
            "--sequences",
            "1",
            "--frames",
            "2",
            "--seed",
            "1",
        ]
        subprocess.run(
            list(map(str, synth)), cwd=out, env=environment, check=True, capture_output=True
        )
        return walk(
            root,
            "eval-3dpw.json",
            "eval-3dpw",
            "--data",
            data,
            "--out",
            Path(out, "eval"),
            "--quiet",
        )


@dataclass(frozen=True)
class Source:
    """What can be counted without running anything."""

    lines: int
    files: int
    dataclasses: int
    long_lists: list[str]  # functions in fitting/ with more than 8 parameters


def source(root: Path) -> Source:
    lines = files = dataclasses = 0
    long_lists = []
    public = _exported(root / "fitting" / "__init__.py")
    for path in sorted(path for package in PACKAGES for path in (root / package).rglob("*.py")):
        text = path.read_text("utf-8")
        lines = lines + text.count("\n")
        files = files + 1
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                dataclasses += any(
                    "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
                )
            elif isinstance(node, ast.FunctionDef) and path.is_relative_to(root / "fitting"):
                count = sum(map(len, (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)))
                if count > MOST_PARAMETERS and node.name not in public:
                    long_lists.append(
                        f"{path.relative_to(root)}:{node.lineno} {node.name} ({count})"
                    )
    return Source(lines, files, dataclasses, long_lists)


def _exported(path: Path) -> set[str]:
    """Return the names that a package offers."""
    tree = ast.parse(path.read_text("utf-8"))
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    parser.add_argument("--json", action="store_true", help="everything, with names, as json")
    parser.add_argument(
        "--names",
        action="store_true",
        help="name the files of one frame, idle modules, long parameter lists",
    )
    options = parser.parse_args()
    root = options.root.resolve()
    measured = source(root)
    run = run_one_frame(root)
    evaluation = eval_one_sequence(root)
    if options.json:
        print(
            json.dumps(
                {"source": asdict(measured), "run": asdict(run), "eval-3dpw": asdict(evaluation)},
                indent=1,
            )
        )
        return
    rows = {
        "product lines": measured.lines,
        "product files": measured.files,
        "dataclasses": measured.dataclasses,
        "functions over 8 parameters in fitting/": len(measured.long_lists),
        "run, one frame: modules loaded": len(run.loaded),
        "run, one frame: of these idle": len(run.idle),
        "run, one frame: files executed": len(run.files),
        "run, one frame: functions executed": run.functions,
        "eval-3dpw: modules loaded": len(evaluation.loaded),
        "eval-3dpw: files executed": len(evaluation.files),
        "eval-3dpw: functions executed": evaluation.functions,
    }
    for name, value in rows.items():
        print(f"{name:42} {value:>7,}")
    if options.names:
        named = {
            "files of `run`": run.files,
            "idle in `run`": run.idle,
            "long parameter lists": measured.long_lists,
        }
        for title, names in named.items():
            print(f"\n{title}:", *names, sep="\n  ")


if __name__ == "__main__":
    main()
