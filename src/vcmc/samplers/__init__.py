"""Samplers: one chain on one shard."""

from .base import AbstractSampler, Chain
from .nuts import NUTS

__all__ = ["NUTS", "AbstractSampler", "Chain"]
