"""The report page of a result: one HTML file that needs no network.

Imported by `cli` and re-exported as `vcmc.report`; imports `results.quantities` only.
"""

from .page import report

__all__ = ["report"]
