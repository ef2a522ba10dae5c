"""Several cameras that look at the same people: where they stand, when they looked, who is who."""
