"""How lifter and pose prior are learned: captured motion, simulated keypoints, losses. Never
imported by inference.
"""
