"""Executors: where shards are sampled and evaluated."""

from .base import AbstractExecutor
from .local import Local

__all__ = ["AbstractExecutor", "Local"]
