"""Levenberg-Marquardt over a track: unknowns, residuals, normal equations, uncertainty."""
