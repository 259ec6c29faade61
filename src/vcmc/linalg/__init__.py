"""Linear algebra on draws: whitening, shrinkage and Stein's identities.

Imported by everything above; imports nothing of vcmc.
"""
