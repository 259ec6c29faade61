"""The report page of a run: one HTML file that needs no network."""

from .page import report

__all__ = ["report"]
