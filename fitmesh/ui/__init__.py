"""What a person or a program sees of the work: events and their sinks, errors in words, the log,
signals, tables.
"""
