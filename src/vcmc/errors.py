"""Every exception and warning that vcmc raises for its users."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xarray import DataTree


class ModelError(ValueError):
    """The model cannot be sharded as it stands."""


class StoreError(RuntimeError):
    """A run directory cannot be used as it is. What is in it stays."""


class SlotLost(RuntimeError):
    """The process that a message was sent to is gone."""


class Interrupted(Exception):
    """Raised in the threads of a run that was stopped."""


class DoubtfulWarning(UserWarning):
    """Something in a result looks doubtful. The result's `warnings` attribute has the same text."""


class ShardError(RuntimeError):
    """Some shards could not be sampled. `tree` holds the draws of the others, if there are any."""

    def __init__(self, message: str, tree: "DataTree | None"):
        super().__init__(message)
        self.tree = tree


class CombineError(ShardError):
    """All shards were sampled, but could not be combined. `tree` holds their draws."""
