"""Rendered people in 3DPW's layout, with exact truth: every line of the evaluation runs without a licence."""
