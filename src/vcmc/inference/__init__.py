"""The verbs (`infer`, `combine`, `diagnose`, `refine`, `compare`) and the stages that they share.

Imported by `cli`, `paper` and `testing` only; imports everything below.
"""
