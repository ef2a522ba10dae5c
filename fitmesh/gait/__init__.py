"""Walking, squats and jumps: events with their uncertainty, steps, and cycles of angles.

Pure functions of a person's motion in a world with y up (`motion.BodyMotion`); `tables` writes what
they find (`fitmesh run --export gait`), and the report plots the cycles.
"""
