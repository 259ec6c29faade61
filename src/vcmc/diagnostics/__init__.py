"""Checks of a model before sampling, of the shards' draws, and of the combined draws.

Imported by `combiners`, `results` and above; imports `samplers`, `target`, `linalg` and below.
"""
