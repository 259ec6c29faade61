"""What the report page knows: numbers of a result, small enough to travel inside one page.

Curves and quantiles are whole numbers between the ends of an axis, packed in base64: a byte or two each.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from ..summary import (
    INTERVAL,
    Quantity,
    densities,
    distances,
    far_limit,
    quantiles,
    quantities,
    shape_of,
    shown_range,
)

if TYPE_CHECKING:
    from xarray import DataTree

NUM_POINTS = 80  # of a curve
MAX_QUANTITIES = 5000  # lines of the table
MAX_INTERVALS, MAX_CURVES = 40_000, 6_000  # of shards, for all numbers together
STAGES = ("start", "compile", "sample", "check", "combine", "refine", "diagnose")
Kept = dict[str, dict[str, np.ndarray]]
MEANT = {
    "mean_error": "off",
    "mean_error_se": "offSe",
    "sd_error": "sdOff",
    "sd_error_se": "sdOffSe",
}


def contents(tree: "DataTree") -> dict[str, Any]:
    """All that the page shows as tables and charts, ready for JSON."""
    every = list(quantities(tree))
    kept = _kept(tree)
    shards = _shards(tree)
    num_shards = len(shards)
    widening = float(num_shards) if tree.attrs.get("prior") == "powered" else 1.0
    away = {
        each.label: distances(each.shards, widening)
        for each in every
        if each.shards is not None and num_shards > 1 and not _is_labelled(tree)
    }
    detailed = set(_detailed(kept, every, away, num_shards))
    with_curves = len(detailed) * num_shards <= MAX_CURVES
    table = []
    for each in every[:MAX_QUANTITIES]:
        line = _line(kept, each)
        if each.label in detailed:
            line |= _charts(kept, each, with_curves)
        table.append(line)
    return {
        "interval": INTERVAL,
        "quantities": table,
        "numQuantities": len(every),
        "numDetailed": len(detailed),
        "shards": _with_distances(shards, away),
        "farLimit": _number(far_limit(sum(map(len, away.values())))) if away else None,
        "labelled": _is_labelled(tree),
        "objective": _objective(tree),
        "stages": [
            [name, _number(tree.attrs[f"seconds_{name}"])]
            for name in STAGES
            if f"seconds_{name}" in tree.attrs
        ],
    }


def _kept(tree: "DataTree") -> Kept:
    """Errors of all numbers, and weights where every number has one: as arrays, which are read faster than a tree."""
    found = {
        group: {str(name): values.to_numpy() for name, values in tree[group].data_vars.items()}
        for group in (*MEANT, "weights")
        if group in tree.children
    }
    weights = found.get("weights", {})  # a simplex has a coordinate less than values
    return found | {
        "weights": {
            name: values
            for name, values in weights.items()
            if values.shape[1:] == shape_of(tree, name)
        }
    }


def _is_labelled(tree: "DataTree") -> bool:
    """Whether components may have another order in every shard, whose draws of them cannot be compared then."""
    return "Exchangeable" in str(tree.attrs.get("model", ""))


def _detailed(
    kept: Kept, every: list[Quantity], away: Mapping[str, np.ndarray], num_shards: int
) -> list[str]:
    """Numbers that have charts: all, or those that are most doubtful by themselves or by their shards."""
    most = max(1, MAX_INTERVALS // max(1, num_shards))
    listed = [each.label for each in every[:MAX_QUANTITIES]]
    if len(listed) <= most:
        return listed
    doubt = {}
    for each in every[:MAX_QUANTITIES]:
        own = _stored(kept, "mean_error", each)
        far = np.abs(away[each.label]).max() if each.label in away else 0.0
        doubt[each.label] = max(np.nan_to_num(abs(own or 0.0)), np.nan_to_num(far) / 10)
    return sorted(listed, key=lambda label: -doubt[label])[:most]


def _line(kept: Kept, quantity: Quantity) -> dict[str, Any]:
    """A line of the table."""
    line: dict[str, Any] = {"label": quantity.label}
    if quantity.combined is not None:
        low, _, middle, _, high = np.quantile(quantity.combined, INTERVAL)
        line |= {"mean": _number(quantity.combined.mean()), "sd": _number(quantity.combined.std())}
        line |= {"low": _number(low), "median": _number(middle), "high": _number(high)}
    for group, short in MEANT.items():
        if (value := _stored(kept, group, quantity)) is not None:
            line[short] = _number(value)
    return line


def _stored(kept: Kept, group: str, quantity: Quantity) -> float | None:
    values = kept.get(group, {}).get(quantity.name)
    return None if values is None else float(values[quantity.place])


def _charts(kept: Kept, quantity: Quantity, with_curves: bool) -> dict[str, Any]:
    """Curves and intervals of one number."""
    grid = np.linspace(*shown_range(quantity), NUM_POINTS)
    drawn: dict[str, Any] = {"range": [_number(grid[0], 8), _number(grid[-1], 8)]}
    curves = []
    if quantity.combined is not None:
        curves.append(densities(quantity.combined[None], grid))
    if quantity.shards is not None:
        places = quantiles(quantity.shards, INTERVAL, axis=1).T
        low, high = float(places.min()), float(places.max())
        if quantity.combined is not None:
            ends = np.quantile(quantity.combined, [INTERVAL[0], INTERVAL[-1]])
            low, high = min(low, ends[0]), max(high, ends[1])
        drawn["forest"] = [_number(low, 8), _number(high, 8)]
        drawn["quantiles"] = _packed((places - low) / max(high - low, 1e-300), np.uint16)
        if with_curves:
            curves.append(densities(quantity.shards, grid))
    if curves:
        heights = np.concatenate(curves)
        top = heights.max() or 1.0
        drawn["curves"] = _packed(heights / top, np.uint8)
    if quantity.name in kept["weights"]:
        weights = [each[quantity.place] for each in kept["weights"][quantity.name]]
        drawn["weights"] = [_number(value, 3) for value in weights]
    return drawn


def _packed(shares: Float[np.ndarray, "..."], kind: Any) -> str:
    """Numbers between 0 and 1 in base64, little end first."""
    top = np.iinfo(kind).max
    whole = np.round(np.clip(np.nan_to_num(shares), 0, 1) * top).astype(
        np.dtype(kind).newbyteorder("<")
    )
    return base64.b64encode(whole.tobytes()).decode()


def _shards(tree: "DataTree") -> list[dict[str, Any]]:
    """What is known of every shard by itself."""
    group = (
        tree["subposterior"] if "subposterior" in tree.children else tree.get("subposterior_rhat")
    )
    if group is None:
        return []
    names = np.atleast_1d(tree.attrs.get("sound_shards", np.arange(group.sizes["shard"])))
    columns: dict[str, np.ndarray] = {}
    if "shard_sizes" in tree.attrs:
        columns["rows"] = np.atleast_1d(tree.attrs["shard_sizes"])
    if "subposterior_rhat" in tree.children:
        columns["rhat"] = _extreme(tree, "subposterior_rhat", np.fmax)
        columns["ess"] = _extreme(tree, "subposterior_ess", np.fmin)
    stats = tree["sample_stats"].data_vars if "sample_stats" in tree.children else {}
    if "diverging" in stats:
        columns["divergences"] = stats["diverging"].to_numpy().sum(axis=(1, 2))
    if "acceptance_rate" in stats:
        columns["acceptance"] = stats["acceptance_rate"].to_numpy().mean(axis=(1, 2))
    found: list[dict[str, Any]] = [{"shard": int(name)} for name in names]
    for name, values in columns.items():
        for shard, value in zip(found, values, strict=False):
            shard[name] = _number(value)
    if "sample_seconds" in tree.children:
        begin, end = (tree["sample_seconds"][name].to_numpy() for name in ("begin", "end"))
        for number, shard in enumerate(found):
            shard["spans"] = [
                [_number(a), _number(b)] for a, b in zip(begin[number], end[number], strict=True)
            ]
            shard["seconds"] = _number(float((end[number] - begin[number]).sum()))
    return found


def _extreme(tree: "DataTree", group: str, extreme: np.ufunc) -> np.ndarray:
    """The largest or smallest value of every shard, over all parameters."""
    values = [each.to_numpy() for each in tree[group].data_vars.values()]
    return extreme.reduce([extreme.reduce(each.reshape(len(each), -1), axis=1) for each in values])


def _with_distances(
    shards: list[dict[str, Any]], away: Mapping[str, Float[np.ndarray, " shard"]]
) -> list[dict[str, Any]]:
    """Shards, each with the number in which it is farthest from the others."""
    if not away:
        return shards
    labels = list(away)
    table = np.nan_to_num(np.stack(list(away.values())))
    worst = np.abs(table).argmax(axis=0)
    return [
        shard | {"away": _number(table[worst[place], place], 3), "where": labels[worst[place]]}
        for place, shard in enumerate(shards)
    ]


def _objective(tree: "DataTree") -> dict[str, Any] | None:
    if "optimization" not in tree.children:
        return None
    objective, error = (
        tree["optimization"][name].to_numpy() for name in ("objective", "objective_error")
    )
    some = np.unique(np.linspace(0, len(objective) - 1, min(len(objective), 500)).astype(int))
    return {
        "last": _number(objective[-1], 8),
        "steps": some.tolist(),
        "gain": [_number(value) for value in (objective - objective[-1])[some]],
        "error": [_number(value) for value in error[some]],
    }


def _number(value: Any, digits: int = 5) -> float | int | None:
    """A number of so many digits, or nothing in place of what JSON has no word for."""
    value = float(value)
    if not np.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
