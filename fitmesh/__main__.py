"""`python -m fitmesh`, also for torchrun."""

from fitmesh.cli import main

main()
