"""What runs inside Blender."""
