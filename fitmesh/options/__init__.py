"""What each command can be told: a record per command, from which the command line and the Python
function follow.
"""
