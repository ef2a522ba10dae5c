"""Meshes -> images: z-buffer, shading."""

from fitting.render.draw import Mesh, render, render_onto

__all__ = ["Mesh", "render", "render_onto"]
