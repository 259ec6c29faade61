"""The data of the report page: a summary of a result that is small enough for one HTML file.

Curves and quantiles are stored as integers relative to the ends of their axis, one or two bytes
each, in base64.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ...diagnostics.shards import MAX_RHAT, MIN_ESS, max_rhat, min_ess
from ..effective_draws import effective_draws_of
from ..quantities import (
    INTERVAL_LEVELS,
    TOLERATED_ERROR,
    Quantity,
    densities,
    density_range,
    outlier_threshold,
    parameter_shape,
    quantiles,
    quantities,
    shard_distances,
)
from .check_contents import as_number
from .group_contents import group_contents
from .update_contents import update_contents

if TYPE_CHECKING:
    from xarray import DataTree

# These bounds keep the page below 2 MB.
NUM_GRID_POINTS = 80  # of a density
MAX_QUANTITIES = 5000  # lines of the table
MAX_INTERVALS = 40_000  # intervals of shards, over all quantities
MAX_CURVES = 6_000  # densities of shards, over all quantities
MAX_ITERATIONS = 500  # points of the objective's curve
DISTANCE_WEIGHT = 0.1  # a shard at distance 10 ranks like a mean that is 1 sd off
SMALL_WEIGHT, LARGE_WEIGHT = 0.005, 3  # times an equal share: zero when rounded, and remarkable
STAGES = ("start", "compile", "sample", "modes", "check", "combine", "refine", "diagnose", "locals")
ERROR_KEYS = {
    "mean_error": "meanError",
    "mean_error_se": "meanErrorSe",
    "sd_error": "sdError",
    "sd_error_se": "sdErrorSe",
    "q05_error": "q05Error",
    "q05_error_se": "q05ErrorSe",
    "q95_error": "q95Error",
    "q95_error_se": "q95ErrorSe",
}
LINE_KEYS = {"ess": "ess", **ERROR_KEYS}  # of a line of the table, by group
Groups = dict[str, dict[str, np.ndarray]]


def contents(tree: "DataTree") -> dict[str, Any]:
    """Return the data of all tables and charts, ready for JSON."""
    elements = list(quantities(tree))
    listed = elements[:MAX_QUANTITIES]
    names = {quantity.name for quantity in listed}
    groups = _error_and_weight_groups(tree) | {"ess": effective_draws_of(tree, names)}
    shards = _shards(tree)
    distances = _distances(tree, elements, len(shards))
    detailed = _detailed(groups, listed, distances, len(shards))
    with_curves = len(detailed) * len(shards) <= MAX_CURVES
    table = [
        _line(groups, quantity)
        | (_charts(groups, quantity, with_curves) if quantity.label in detailed else {})
        for quantity in listed
    ]
    threshold = outlier_threshold(sum(map(len, distances.values()))) if distances else None
    return {
        "intervalLevels": INTERVAL_LEVELS,
        "toleratedError": TOLERATED_ERROR,
        "numGridPoints": NUM_GRID_POINTS,
        "quantities": table,
        "numQuantities": len(elements),
        "numDetailed": len(detailed),
        "shards": _with_distances(shards, distances),
        **_shard_bounds(tree),
        "outlierThreshold": None if threshold is None else as_number(threshold),
        "groups": group_contents(tree),
        "exchangeable": _is_exchangeable(tree),
        "smallWeight": SMALL_WEIGHT,
        "largeWeight": LARGE_WEIGHT,
        "objective": _objective(tree),
        "updates": update_contents(tree, listed),
        "stages": [
            [name, as_number(tree.attrs[f"seconds_{name}"])]
            for name in STAGES
            if f"seconds_{name}" in tree.attrs
        ],
    }


def _error_and_weight_groups(tree: "DataTree") -> Groups:
    """Return the errors, and the weights of parameters whose elements have one each, as arrays.

    Arrays are indexed much faster than a tree.
    """
    groups = {
        group: {str(name): values.to_numpy() for name, values in tree[group].data_vars.items()}
        for group in (*ERROR_KEYS, "weights")
        if group in tree.children
    }
    groups["weights"] = {  # not a simplex, which has one coordinate less than elements
        name: values
        for name, values in groups.get("weights", {}).items()
        if values.shape[1:] == parameter_shape(tree, name)
    }
    return groups


def _is_exchangeable(tree: "DataTree") -> bool:
    """Whether components may be ordered differently in every shard."""
    return "Exchangeable" in str(tree.attrs.get("model", ""))


def _distances(
    tree: "DataTree", elements: Sequence[Quantity], num_shards: int
) -> dict[str, Float[np.ndarray, " shard"]]:
    """Return the distances of the shards from each other, by label of the quantity."""
    if num_shards < 2 or _is_exchangeable(tree):
        return {}
    widening = float(num_shards) if tree.attrs.get("prior") == "powered" else 1.0
    return {
        quantity.label: shard_distances(quantity.shards, widening)
        for quantity in elements
        if quantity.shards is not None
    }


def _detailed(
    groups: Groups, elements: Sequence[Quantity], distances: Mapping[str, Any], num_shards: int
) -> set[str]:
    """Return labels of the quantities that get charts: all, or those with the largest errors."""
    max_detailed = max(1, MAX_INTERVALS // max(1, num_shards))
    labels = [quantity.label for quantity in elements]
    if len(labels) <= max_detailed:
        return set(labels)
    doubt = {}
    for quantity in elements:
        error = _element(groups, "mean_error", quantity)
        distance = np.abs(distances[quantity.label]).max() if quantity.label in distances else 0.0
        doubt[quantity.label] = max(
            np.nan_to_num(abs(error or 0.0)), DISTANCE_WEIGHT * np.nan_to_num(distance)
        )
    return set(sorted(labels, key=lambda label: -doubt[label])[:max_detailed])


def _line(groups: Groups, quantity: Quantity) -> dict[str, Any]:
    """Return a line of the table."""
    line: dict[str, Any] = {"label": quantity.label}
    if quantity.combined is not None:
        low, _, median, _, high = np.quantile(quantity.combined, INTERVAL_LEVELS)
        line |= {
            "mean": as_number(quantity.combined.mean()),
            "sd": as_number(quantity.combined.std()),
        }
        line |= {"low": as_number(low), "median": as_number(median), "high": as_number(high)}
    for group, key in LINE_KEYS.items():
        if (value := _element(groups, group, quantity)) is not None:
            line[key] = as_number(value)
    return line


def _element(groups: Groups, group: str, quantity: Quantity) -> float | None:
    values = groups.get(group, {}).get(quantity.name)
    return None if values is None else float(values[quantity.indices])


def _charts(groups: Groups, quantity: Quantity, with_curves: bool) -> dict[str, Any]:
    """Return the densities, intervals and weights of one quantity."""
    grid = np.linspace(*density_range(quantity), NUM_GRID_POINTS)
    charts: dict[str, Any] = {"range": [as_number(grid[0], 8), as_number(grid[-1], 8)]}
    curves = []
    if quantity.combined is not None:
        curves.append(densities(quantity.combined[None], grid))
    if quantity.shards is not None:
        levels = quantiles(quantity.shards, INTERVAL_LEVELS, axis=1).T
        low, high = float(levels.min()), float(levels.max())
        if quantity.combined is not None:
            ends = np.quantile(quantity.combined, [INTERVAL_LEVELS[0], INTERVAL_LEVELS[-1]])
            low, high = min(low, ends[0]), max(high, ends[1])
        charts["forest"] = [as_number(low, 8), as_number(high, 8)]
        charts["quantiles"] = _pack((levels - low) / max(high - low, 1e-300), np.uint16)
        if with_curves:
            curves.append(densities(quantity.shards, grid))
    if curves:
        heights = np.concatenate(curves)
        charts["curves"] = _pack(heights / (heights.max() or 1.0), np.uint8)
    if quantity.name in groups["weights"]:
        weights = [shard[quantity.indices] for shard in groups["weights"][quantity.name]]
        charts["weights"] = [as_number(value, 3) for value in weights]
    return charts


def _pack(fractions: Float[np.ndarray, "..."], dtype: Any) -> str:
    """Encode numbers between 0 and 1 as little-endian integers in base64."""
    largest = np.iinfo(dtype).max
    integers = np.round(np.clip(np.nan_to_num(fractions), 0, 1) * largest).astype(
        np.dtype(dtype).newbyteorder("<")
    )
    return base64.b64encode(integers.tobytes()).decode()


def _shards(tree: "DataTree") -> list[dict[str, Any]]:
    """Return size, diagnostics and times of every shard."""
    group = (
        tree["subposterior"] if "subposterior" in tree.children else tree.get("subposterior_rhat")
    )
    if group is None:
        return []
    numbers = np.atleast_1d(tree.attrs.get("sound_shards", np.arange(group.sizes["shard"])))
    columns: dict[str, np.ndarray] = {}
    if "shard_sizes" in tree.attrs:
        columns["rows"] = np.atleast_1d(tree.attrs["shard_sizes"])
    # chains that start near different modes differ on purpose
    if "subposterior_rhat" in tree.children and "draw_modes" not in tree.children:
        columns["rhat"] = _extreme(tree, "subposterior_rhat", np.fmax)
        columns["ess"] = _extreme(tree, "subposterior_ess", np.fmin)
    stats = tree["sample_stats"].data_vars if "sample_stats" in tree.children else {}
    if "diverging" in stats:
        columns["divergences"] = np.nansum(stats["diverging"].to_numpy(), axis=(1, 2))
    if "acceptance_rate" in stats:
        columns["acceptance"] = np.nanmean(stats["acceptance_rate"].to_numpy(), axis=(1, 2))
    shards: list[dict[str, Any]] = [{"shard": int(number)} for number in numbers]
    for name, values in columns.items():
        for shard, value in zip(shards, values, strict=False):
            shard[name] = as_number(value)
    if "sample_seconds" in tree.children:
        begin, end = (tree["sample_seconds"][name].to_numpy() for name in ("begin", "end"))
        for shard, begins, ends in zip(shards, begin, end, strict=False):
            shard["spans"] = [
                [as_number(a), as_number(b)] for a, b in zip(begins, ends, strict=True)
            ]
            shard["seconds"] = as_number(float((ends - begins).sum()))
    return shards


def _shard_bounds(tree: "DataTree") -> dict[str, float]:
    """Return the bounds beyond which R-hat and effective draws of shards are flagged."""
    if "subposterior_rhat" not in tree.children or "subposterior" not in tree.children:
        return {"maxRhat": MAX_RHAT, "minEss": MIN_ESS}
    sizes = tree["subposterior"].sizes
    num_draws = sizes["chain"] * sizes["draw"]
    num_series = sum(values.size for values in tree["subposterior_rhat"].data_vars.values())
    return {"maxRhat": max_rhat(num_draws, num_series), "minEss": min_ess(num_draws)}


def _extreme(tree: "DataTree", group: str, extreme: np.ufunc) -> np.ndarray:
    """Return the largest or smallest value of every shard, over all parameters."""
    values = [variable.to_numpy() for variable in tree[group].data_vars.values()]
    by_parameter = [extreme.reduce(array.reshape(len(array), -1), axis=1) for array in values]
    return extreme.reduce(by_parameter)


def _with_distances(
    shards: list[dict[str, Any]], distances: Mapping[str, Float[np.ndarray, " shard"]]
) -> list[dict[str, Any]]:
    """Return the shards, each with its largest distance and the quantity that has it."""
    if not distances:
        return shards
    labels = list(distances)
    table = np.nan_to_num(np.stack(list(distances.values())))
    worst = np.abs(table).argmax(axis=0)
    return [
        shard
        | {
            "distance": as_number(table[worst[number], number], 3),
            "distantIn": labels[worst[number]],
        }
        for number, shard in enumerate(shards)
    ]


def _objective(tree: "DataTree") -> dict[str, Any] | None:
    if "optimization" not in tree.children:
        return None
    objective, error = (
        tree["optimization"][name].to_numpy() for name in ("objective", "objective_error")
    )
    num_points = min(len(objective), MAX_ITERATIONS)
    iterations = np.unique(np.linspace(0, len(objective) - 1, num_points).astype(int))
    return {
        "last": as_number(objective[-1], 8),
        "iterations": iterations.tolist(),
        "values": [as_number(value) for value in (objective - objective[-1])[iterations]],
        "errors": [as_number(value) for value in error[iterations]],
    }
