"""Training of the miniature networks (tools/train_mini.py)."""
