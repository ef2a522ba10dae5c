"""Hostile input, made from valid input: damaged, truncated, wrong in every way a file or an option
can be wrong.
"""
