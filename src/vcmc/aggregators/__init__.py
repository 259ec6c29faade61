"""Aggregators: maps from one point per shard to one point."""

from .base import AbstractAggregator
from .vector import Vector

__all__ = ["AbstractAggregator", "Vector"]
