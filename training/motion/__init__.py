"""Captured and made motion that networks and priors learn from."""
