"""Local draws of the groups that new rows belong to: of the posterior, or of new groups.

Known groups have draws in the tree, or in the Parquet files of a run directory. Groups that were
never seen are drawn from the population.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..data.group_labels import named_labels
from ..data.rows import native
from ..errors import StoreError
from ..groups.local_model import LocalModel
from ..model import Model
from ..models.host_simulator import AbstractHostSimulator
from ..results.local_reading import load_locals
from ..results.store import LOCAL_DRAWS, Store
from .prediction_blocks import BlockGroups

if TYPE_CHECKING:
    from xarray import DataTree

TEXT_KINDS = "US"  # NumPy's codes of text


@dataclass(frozen=True, eq=False)
class LocalDraws:
    """Local draws of known groups.

    Attributes:
        model: the model.
        labels: the labels of known groups.
        chosen: the numbers of the draws of every chain that are used.
        arrays: local draws (draw, group, …) by name; None if they are in files.
        store: the run directory that they are in.
    """

    model: Model
    labels: np.ndarray
    chosen: Int[np.ndarray, " draw"]
    arrays: dict[str, np.ndarray] | None
    store: Path | None

    @property
    def local(self) -> LocalModel:
        assert self.model.local is not None
        return self.model.local

    def groups(self, labels: np.ndarray, num_padded: int) -> BlockGroups:
        """Return the groups of some rows, given their labels.

        Args:
            labels: the label of every row.
            num_padded: the number of rows with padding, which belongs to the first row's group.
        """
        unique, first_rows, places = np.unique(labels, return_index=True, return_inverse=True)
        numbers = find_labels(self.labels, unique, self.local.groups)
        new = np.flatnonzero(numbers < 0)
        self._check_new(unique[new])
        size = 1 << (len(unique) - 1).bit_length()  # few sizes, each compiled once
        return BlockGroups(
            np.concatenate([places, np.full(num_padded - len(places), places[0])]),
            self._known(np.resize(np.maximum(numbers, 0), size)),
            new,
            first_rows[new],
            np.array([label_hash(label) for label in unique[new].tolist()]).reshape(-1, 2),
        )

    def columns(self, labels: np.ndarray) -> dict[str, np.ndarray]:
        """Return the covariates of each row's group, from the model's table of groups."""
        table = dict(self.local.table or {})
        known = table.pop(self.local.groups, None)
        if not table:
            return {}
        numbers = find_labels(known, labels, self.local.groups)
        if (numbers < 0).any():
            raise ValueError(
                f"rows[{self.local.groups!r}] has groups that the model's table does not have, "
                f"e.g. {named_labels(np.unique(labels[numbers < 0]))}: it needs their "
                f"{', '.join(map(repr, table))}. Add them to group_rows=, and call infer again."
            )
        return {name: native(array)[numbers] for name, array in table.items()}

    def _check_new(self, labels: np.ndarray) -> None:
        simulator = self.model.simulate_rows
        can = self.model.simulate_local or isinstance(simulator, AbstractHostSimulator)
        if len(labels) and not can:
            raise ValueError(
                f"rows[{self.local.groups!r}] has groups that the tree has no draws of, e.g. "
                f"{named_labels(labels)}, and the model does not say how local parameters of new "
                "groups are drawn: write vcmc.Model(..., simulate_local=lambda key, params, group: "
                f"{{{next(iter(self.local.space))!r}: ...}}), or leave these rows out."
            )

    def _known(self, numbers: Int[np.ndarray, " group"]) -> dict[str, np.ndarray]:
        """Return local draws (draw, group, …) of known groups."""
        if self.arrays is not None:
            return {name: array[:, numbers] for name, array in self.arrays.items()}
        assert self.store is not None
        unique, inverse = np.unique(numbers, return_inverse=True)
        read = load_locals(self.store, self.labels[unique], list(self.local.space))
        return {
            str(name): _by_draw(array.to_numpy(), self.chosen)[:, inverse]
            for name, array in read.data_vars.items()
        }


def _by_draw(array: np.ndarray, chosen: Int[np.ndarray, " draw"]) -> np.ndarray:
    """Return chosen draws of all chains (draw, …) of an array (chain, draw, …)."""
    picked = array[:, chosen]
    return picked.reshape(-1, *array.shape[2:])


def local_draws(
    tree: "DataTree", model: Model, chosen: Int[np.ndarray, " draw"]
) -> LocalDraws | None:
    """Return the local draws of a result; None if the model has no groups."""
    if model.local is None:
        return None
    column, names = model.local.groups, list(model.local.space)
    posterior = tree["posterior"]
    if all(name in posterior.data_vars for name in names):
        arrays = {}
        for name in names:
            array = posterior[name].transpose("chain", "draw", ...)
            expected = model.local.space[name].shape
            if array.dims[2:3] != (column,) or array.shape[3:] != expected:
                raise ValueError(
                    f"the model's {name!r} has the shape {expected} for every group of {column!r}, "
                    f"but the tree's draws have the axes {array.dims} of sizes {array.shape}: the "
                    "tree is a result of another model."
                )
            arrays[name] = _by_draw(array.to_numpy(), chosen)
        return LocalDraws(model, posterior[column].to_numpy(), chosen, arrays, None)
    if LOCAL_DRAWS in tree.attrs:
        return _draws_in_files(tree, model, chosen)
    raise ValueError(
        f"predictions by group need draws of the local parameters {names}, and the tree has none: "
        'it was made with locals="none" or "summary". Call infer again with locals="draws", or, '
        'for many groups, with store="runs/a" and locals="file".'
    )


def _draws_in_files(tree: "DataTree", model: Model, chosen: Int[np.ndarray, " draw"]) -> LocalDraws:
    folder = Path(tree.attrs[LOCAL_DRAWS])
    index = Store(folder.parent).locals.index()
    if index is None:
        raise StoreError(
            f"{folder} has no complete local draws, which predictions by group need. Has it been "
            'moved? Repeat the call of infer with store=... and locals="file" to make them.'
        )
    assert model.local is not None
    shapes = {name: tuple(space.shape) for name, space in model.local.space.items()}
    sizes = (tree["posterior"].sizes["chain"], tree["posterior"].sizes["draw"])
    found = {name: tuple(index.shapes[name]) for name in shapes if name in index.shapes}
    if found != shapes or index.column != model.local.groups:
        raise ValueError(
            f"{folder} has draws of {dict(index.shapes)} by {index.column!r}, and the model's "
            f"local parameters are {shapes} by {model.local.groups!r}: it is a run of "
            "another model."
        )
    if (index.num_chains, index.num_draws) != sizes:
        raise ValueError(
            f"{folder} has {index.num_chains} x {index.num_draws} draws, and the tree "
            f"{sizes[0]} x {sizes[1]}: it holds another run. Load the tree again: "
            f"vcmc.load({str(folder.parent)!r})."
        )
    return LocalDraws(model, index.labels, chosen, None, folder.parent)


def find_labels(known: Any, labels: np.ndarray, column: str) -> Int[np.ndarray, " label"]:
    """Return the numbers of labels among known ones; -1 for new ones.

    >>> find_labels(np.array(["b", "a"]), np.array(["a", "c"]), "county").tolist()
    [1, -1]
    """
    if (known.dtype.kind in TEXT_KINDS) != (labels.dtype.kind in TEXT_KINDS):
        raise ValueError(
            f"rows[{column!r}] must hold labels of the kind that the model was fitted to, e.g. "
            f"{named_labels(known)}; got {named_labels(labels)}."
        )
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known, labels, sorter=order), len(known) - 1)
    numbers = order[places]
    return np.where(known[numbers] == labels, numbers, -1)


def label_hash(label: Any) -> tuple[int, int]:
    """Return two 32-bit numbers that depend on a label alone.

    >>> label_hash("county 7") == label_hash("county 7") != label_hash("county 8")
    True
    """
    digest = hashlib.blake2b(str(label).encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:], "big")


def identity(draws: LocalDraws | None) -> str:
    """Return what tells these local draws from others."""
    if draws is None:
        return ""
    if draws.store is not None:
        index = Store(draws.store).locals.index()
        return "" if index is None else index.identity
    digest = hashlib.blake2b(digest_size=16)
    arrays: Mapping[str, np.ndarray] = draws.arrays or {}
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
