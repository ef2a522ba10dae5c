"""`python -m fitmesh`, also for torchrun."""

from fitmesh.ui.trouble import start

start()
