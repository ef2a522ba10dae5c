"""3DPW: reading it, and judging meshes in millimetres."""
