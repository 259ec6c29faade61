"""Groups: models with local parameters, which are integrated out group by group.

Imported by `model`; imports `data`, `space` and below.
"""
