"""The scene that people stand in: lens, camera motion, gravity, floor, contacts and the world
frame.
"""
