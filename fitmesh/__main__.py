"""`python -m fitmesh`, also for torchrun."""

from fitmesh.entry import main

main()
