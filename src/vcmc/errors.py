"""All exceptions and warnings of vcmc."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xarray import DataTree


class ModelError(ValueError):
    """The model cannot be split into shards."""


class StoreError(RuntimeError):
    """A run directory cannot be used as it is. Its contents are unchanged."""


class SlotLost(RuntimeError):
    """The process that a message was sent to has died."""


class Interrupted(Exception):
    """Stop the threads of a run that was interrupted."""


class DoubtfulWarning(UserWarning):
    """A result may be wrong. Its `warnings` attribute has the same text."""


class ShardError(RuntimeError):
    """Some shards could not be sampled. `tree` has the draws of the others, if any."""

    def __init__(self, message: str, tree: "DataTree | None"):
        super().__init__(message)
        self.tree = tree


class CombineError(ShardError):
    """All shards were sampled, but could not be combined. `tree` has their draws."""
