"""Linear algebra on draws: operators, whitening, shrinkage and Stein's identities.

Imported by everything above; imports nothing of vcmc.
"""
