"""Front ends: convert models written in NumPyro or PyMC to `Model`.

Imported by `cli` and the package root; imports `model`, `space` and `data`.
"""
