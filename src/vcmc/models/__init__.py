"""Models that come with vcmc."""

from .probit import Probit

__all__ = ["Probit"]
