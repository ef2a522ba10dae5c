"""`import fitting` is quick, shows its names, and running a fit needs nothing of training."""

import subprocess
import sys

import pytest

import fitting


def imported(statement: str) -> set[str]:
    """Modules that a fresh interpreter has after a statement."""
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_no_large_one() -> None:
    assert not imported("import fitting") & {"torch", "numba", "matplotlib", "scipy", "cv2"}


def test_a_fit_imports_neither_training_nor_what_it_does_not_use() -> None:
    found = imported("import fitting; fitting.fit_track; fitting.load_body; fitting.fit_frames")
    assert "torch" in found
    assert not found & {
        "numba",
        "matplotlib",
        "scipy",
        "cv2",
        "torch._dynamo",
        "fitting.init.regressors",
    }
    assert not {name for name in found if name.startswith(("training", "fitting.render"))}


def test_the_public_names_are_there_and_completed() -> None:
    assert set(fitting.__all__) <= set(dir(fitting))
    for name in fitting.__all__:
        assert getattr(fitting, name).__name__ == name
    assert callable(fitting.fit), "a module of the same name must not hide the function"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = fitting.nothing
