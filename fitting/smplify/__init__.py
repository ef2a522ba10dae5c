"""SMPLify with SPIN's losses, the baseline."""
