"""Rendered people in 3DPW's layout, with exact truth, so that the evaluation runs without licensed
files.
"""
