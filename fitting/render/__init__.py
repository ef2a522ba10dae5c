"""Meshes -> images: z-buffer, shading."""
