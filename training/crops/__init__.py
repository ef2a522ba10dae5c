"""Render crops of people with exact truth, for networks that read images."""
