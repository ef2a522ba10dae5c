"""One file a command. Heavy imports stay inside the functions, so that `fitmesh --help` answers at
once.
"""
