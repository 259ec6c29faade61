"""Names for the axes of a NumPyro model's sites: its plates, and the columns of data frames."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...data.categories import frame_dim
from ...data.labels import Dims
from ...data.rows import Rows
from .checks import FEW_ROWS
from .sites import Seeded, Site, sites_on

RESERVED_DIMS = ("shard", "chain", "draw")  # plates of these names do not name axes


def site_labels(
    model: Seeded,
    sites: Mapping[str, Site],
    rows: Any,
    arrays: Rows,
    dims: Mapping[str, Iterable[str | None]],
    coords: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the dims of latent and deterministic sites, and coords: the user's come first.

    Args:
        model: the model.
        sites: its sites on a few rows.
        rows: rows as the user has passed them, perhaps with data frames.
        arrays: the same as arrays.
        dims: the user's names of axes by site.
        coords: the user's labels by name of an axis.
    """
    labelled = {
        name: site for name, site in sites.items() if site.kind in ("latent", "deterministic")
    }
    if unknown := set(dims) - set(labelled):
        raise ValueError(f"dims names {sorted(unknown)}, but the sites are {list(labelled)}.")
    axes = {
        name: tuple(None if dim in RESERVED_DIMS else dim for dim in site.dims)
        for name, site in labelled.items()
    }
    labels: dict[str, Any] = {
        dim: np.arange(size)
        for site in labelled.values()
        for dim, size in zip(site.dims, site.shape, strict=True)
        if dim is not None
    }
    for array, columns in _columns(rows).items():
        wider = _wider_sites(model, arrays, array)
        dim = frame_dim(array)
        for name in set(wider) & set(axes):
            axes[name] = _name_growing_axis(axes[name], labelled[name], wider[name], dim)
        labels[dim] = columns
    return {**axes, **dims}, {**labels, **coords}


def _columns(rows: Any) -> dict[str, list[str]]:
    """Return the names of columns of those rows that are data frames."""
    if not isinstance(rows, Mapping):
        return {}
    return {
        str(name): [str(column) for column in values.columns]
        for name, values in rows.items()
        if hasattr(values, "columns")
    }


def _wider_sites(model: Seeded, arrays: Rows, name: str) -> dict[str, Site]:
    """Return the sites if an array had one more column; none if the model fails then."""
    array = arrays[name]
    wider = {**arrays, name: np.zeros((1, array.shape[1] + 1), array.dtype)}
    try:
        return sites_on(model, wider, FEW_ROWS)
    except ValueError:
        return {}


def _name_growing_axis(dims: Dims, site: Site, wider: Site, dim: str) -> Dims:
    """Name the axis that has one element for every column, unless it has a name."""
    if len(site.shape) != len(wider.shape):
        return dims
    sizes = zip(dims, site.shape, wider.shape, strict=True)
    return tuple(
        dim if current is None and more == size + 1 else current for current, size, more in sizes
    )
