"""Training of the miniature networks (training/train_mini.py)."""
