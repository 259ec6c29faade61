"""Scalar quantities of a result, the shards' draws of them, and densities of those draws.

The plots and the report page are both made from these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from ..data.labels import element_label
from ..diagnostics.shards import FALSE_ALARM_RATE
from ..diagnostics.verdict import MAX_ERROR
from .tree import DEFAULT_DIMS

if TYPE_CHECKING:
    from xarray import DataArray, DataTree

Labels = dict[tuple[int, ...], str]  # of the elements of a parameter, by index

INTERVAL_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles of the intervals that are drawn
TOLERATED_ERROR = MAX_ERROR  # sds of a mean, share of an sd: the bound of a good verdict
MIN_SHARDS = 3  # that remain when outliers are set aside
# Half-width of a density's axis in posterior sds: 5 show a Gaussian whole; beyond 12, wide shards
# would leave the combined density too narrow to be read.
MIN_HALF_WIDTH_SDS, MAX_HALF_WIDTH_SDS = 5.0, 12.0
MARGIN_SDS = 0.5  # between the outermost draw and the end of the axis


class Quantity(NamedTuple):
    """A scalar that a result has draws of, e.g. `beta[3]`.

    Attributes:
        label: the name with the index or its coordinates, as it is shown.
        name: the parameter that it is an element of.
        indices: its indices in the parameter.
        combined: the combined draws, if there are any.
        shards: the shards' draws, if there are any; NaN where a shard has fewer than the others.
    """

    label: str
    name: str
    indices: tuple[int, ...]
    combined: Float[np.ndarray, " draw"] | None
    shards: Float[np.ndarray, "shard draw"] | None


def quantities(tree: "DataTree", names: Iterable[str] | None = None) -> Iterator[Quantity]:
    """Iterate over the scalar quantities of a result.

    Args:
        tree: the result.
        names: parameters, or labels of single elements; by default all that are not local: groups
            have charts of their own.
    """
    groups = [group for group in ("posterior", "subposterior") if group in tree.children]
    if not groups:
        raise TypeError(
            "tree must be a result of infer, combine or load, with a group 'posterior' or "
            f"'subposterior'; got the groups {list(tree.children)}."
        )
    parameters = dict.fromkeys(str(name) for group in groups for name in tree[group].data_vars)
    if names is None:
        local = set(local_names(tree))
        names = [name for name in parameters if name not in local]
        parameters = dict.fromkeys(names)
    labels = {name: element_labels(parameter_array(tree, name)) for name in parameters}
    selected = selected_elements(labels, names)
    for name, elements in labels.items():
        indices = [index for index in elements if (name, index) in selected]
        if not indices:
            continue
        combined, shards = (_draws(tree, group, name) for group in ("posterior", "subposterior"))
        for index in indices:
            element: Any = (..., *index)
            yield Quantity(
                elements[index],
                name,
                index,
                None if combined is None else combined[0][element],
                None if shards is None else shards[element],
            )


def local_names(tree: "DataTree") -> list[str]:
    """Return the local parameters of a result, which have one value per group."""
    if "groups" not in tree.attrs:
        return []
    if "local_mean" in tree.children:
        return [str(name) for name in tree["local_mean"].data_vars]
    arrays = tree["posterior"].data_vars if "posterior" in tree.children else {}
    return [str(name) for name, array in arrays.items() if tree.attrs["groups"] in array.dims]


def element_labels(array: "DataArray") -> Labels:
    """Return the labels of the elements of a parameter by index.

    An axis whose coordinates are unique is labelled by them, others by numbers.

    Args:
        array: an array of the parameter, with or without axes of draws.
    """
    dims = [dim for dim in array.dims if dim not in DEFAULT_DIMS]
    coords: list[list[Any]] = []
    for dim in dims:
        values = array[dim].to_numpy() if dim in array.coords else np.arange(array.sizes[dim])
        unique = len(np.unique(values.astype(str))) == len(values)
        coords.append(values.tolist() if unique else list(range(len(values))))
    return {
        index: element_label(
            str(array.name), tuple(coords[axis][number] for axis, number in enumerate(index))
        )
        for index in np.ndindex(*(array.sizes[dim] for dim in dims))
    }


def selected_elements(
    labels: Mapping[str, Labels], names: Iterable[str]
) -> set[tuple[str, tuple[int, ...]]]:
    """Return parameter and index of the elements that the user names.

    Args:
        labels: the labels of all elements, by parameter.
        names: parameters, or single elements by their labels or numbers.
    """
    elements: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, by_index in labels.items():
        elements |= {element_label(name, index): (name, index) for index in by_index}
        elements |= {label: (name, index) for index, label in by_index.items()}
    names = [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in names if name not in labels and name not in elements]:
        first = next((label for by_index in labels.values() for label in by_index.values()), "")
        raise ValueError(
            f"names must be parameters of the result ({list(labels)}) or single elements, e.g. "
            f"{first!r}; got {unknown[0]!r}."
        )
    chosen = [(name, index) for name in names for index in labels.get(name, ())]
    return {*chosen, *(elements[name] for name in names if name not in labels)}


def parameter_array(tree: "DataTree", name: str) -> "DataArray":
    """Return the draws of a parameter, with the axes of draws first."""
    if "posterior" in tree.children and name in tree["posterior"].data_vars:
        return cast("DataArray", tree["posterior"][name]).transpose("chain", "draw", ...)
    return cast("DataArray", tree["subposterior"][name]).transpose(*DEFAULT_DIMS, ...)


def parameter_shape(tree: "DataTree", name: str) -> tuple[int, ...]:
    """Return the shape of one draw of a parameter."""
    array = parameter_array(tree, name)
    return tuple(array.sizes[dim] for dim in array.dims if dim not in DEFAULT_DIMS)


def _draws(tree: "DataTree", group: str, name: str) -> np.ndarray | None:
    """Return draws (shard, draw, …) of a parameter, chains concatenated.

    Combined draws are returned as those of a single shard.
    """
    if group not in tree.children or name not in tree[group].data_vars:
        return None
    axes = ("shard", "chain", "draw") if group == "subposterior" else ("chain", "draw")
    values = tree[group][name].transpose(*axes, ...).to_numpy()
    values = values if group == "subposterior" else values[None]
    return np.asarray(values.reshape(len(values), -1, *values.shape[3:]), float)


def shard_distances(
    shards: Float[np.ndarray, "shard draw"], widening: float = 1.0
) -> Float[np.ndarray, " shard"]:
    r"""Return the standardized distance of every shard's mean from that of the other shards.

    With means $m_k$, variances $v_k$, and the precision-weighted mean $m_{-k}$ of the others, whose
    variance is $v_{-k} = 1 / \sum_{j \ne k} 1 / v_j$, it is $(m_k - m_{-k}) / \sqrt{v_k + v_{-k}}$:
    about standard normal if the shards agree. An outlier is set aside before the other shards are
    compared again, so that it cannot make them look distant.

    Args:
        shards: draws of one quantity.
        widening: factor of the variances, for shards whose likelihood was raised to a power and
            which are therefore narrower than their rows imply.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.nanmean(shards, axis=1)
        variances = widening * np.nanvar(shards, axis=1)
        precisions = 1 / variances
        threshold = outlier_threshold(len(shards))
        included = np.ones(len(shards), bool)
        while True:
            others = precisions[included].sum() - included * precisions
            weighted = (precisions * means)[included].sum() - included * precisions * means
            distances = (means - weighted / others) / np.sqrt(variances + 1 / others)
            worst = int(np.argmax(np.where(included, np.abs(np.nan_to_num(distances)), -1)))
            if included.sum() <= MIN_SHARDS or not np.abs(distances[worst]) > threshold:
                return distances
            included[worst] = False


def outlier_threshold(num_distances: int) -> float:
    """Return the threshold for `num_distances` standard normals at `FALSE_ALARM_RATE`."""
    return float(-ndtri(FALSE_ALARM_RATE / (2 * max(1, num_distances))))


def quantiles(
    draws: Float[np.ndarray, "..."], levels: Sequence[float], axis: int | None = None
) -> np.ndarray:
    """Return quantiles, ignoring NaN; without NaN, ten times as fast as `np.nanquantile`."""
    return (np.nanquantile if np.isnan(draws).any() else np.quantile)(draws, levels, axis=axis)


def density_range(quantity: Quantity) -> tuple[float, float]:
    """Return the ends of the axis on which the densities of a quantity are drawn.

    It covers the combined draws, and as much of the shards as leaves the combined density visible.
    """
    combined, shards = quantity.combined, quantity.shards
    if combined is None:
        assert shards is not None
        low, high = quantiles(shards, [0.005, 0.995])
        return _nonempty(float(low), float(high))
    mean, sd = float(np.mean(combined)), float(np.std(combined))
    low, high = mean - MIN_HALF_WIDTH_SDS * sd, mean + MIN_HALF_WIDTH_SDS * sd
    if shards is not None:
        shard_low, shard_high = quantiles(shards, [0.01, 0.99])
        low = min(low, max(shard_low, mean - MAX_HALF_WIDTH_SDS * sd))
        high = max(high, min(shard_high, mean + MAX_HALF_WIDTH_SDS * sd))
    lowest = min(np.min(combined), np.inf if shards is None else np.nanmin(shards))
    highest = max(np.max(combined), -np.inf if shards is None else np.nanmax(shards))
    margin = MARGIN_SDS * sd
    return _nonempty(max(low, float(lowest) - margin), min(high, float(highest) + margin))


def _nonempty(low: float, high: float) -> tuple[float, float]:
    """Return an interval, widened to length one if it is a point."""
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def densities(
    draws: Float[np.ndarray, "curve draw"], grid: Float[np.ndarray, " point"]
) -> Float[np.ndarray, "curve point"]:
    """Return Gaussian kernel densities on an even grid, with Silverman's bandwidths.

    Draws are counted in narrow bins, and all curves are smoothed at once by a Fourier transform.
    NaN are ignored. The density of a constant is zero.
    """
    num_bins = 4 * len(grid)
    step = (grid[-1] - grid[0]) / (len(grid) - 1)
    margin = 0.25 * (grid[-1] - grid[0])
    edges = np.linspace(grid[0] - margin, grid[-1] + margin, num_bins + 1)
    width = edges[1] - edges[0]
    counts = np.isfinite(draws).sum(axis=1)
    bins = np.stack([np.histogram(row[~np.isnan(row)], bins=edges)[0] for row in draws])
    with np.errstate(invalid="ignore", divide="ignore"):
        quartiles = quantiles(draws, [0.25, 0.75], axis=1)
        spread = np.minimum(np.nanstd(draws, axis=1), (quartiles[1] - quartiles[0]) / 1.34)
        bandwidths = np.maximum(0.9 * spread * counts**-0.2, 0.5 * step)
        frequencies = np.fft.rfftfreq(2 * num_bins, d=width)
        damping = np.exp(-0.5 * (2 * np.pi * frequencies * bandwidths[:, None]) ** 2)
        padded = np.fft.irfft(np.fft.rfft(bins, 2 * num_bins, axis=1) * damping, axis=1)
    centres = 0.5 * (edges[1:] + edges[:-1])
    smooth = np.stack([np.interp(grid, centres, row[:num_bins]) for row in padded])
    heights = smooth / (counts[:, None] * width)
    return np.where(spread[:, None] > 0, np.maximum(heights, 0.0), 0.0)
