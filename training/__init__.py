"""Train what fitmesh ships: lifter, pose prior, error tables. Not part of the wheel."""
