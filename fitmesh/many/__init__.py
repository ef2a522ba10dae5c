"""Many clips in one run: which, where their results go, by whom they are done, and what became of
them.
"""
