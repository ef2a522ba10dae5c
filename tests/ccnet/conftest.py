"""Lets tests of this folder share helpers; pytest's importlib mode does not put it on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
