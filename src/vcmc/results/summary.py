"""What pictures and pages show of a result: its numbers one by one, the shards' draws of them, smoothed densities."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

if TYPE_CHECKING:
    from xarray import DataTree

INTERVAL = (0.05, 0.25, 0.5, 0.75, 0.95)  # quantiles that are shown
SUSPICIOUS = 1e-4  # chance that any shard of a sound run is called far from the others
NARROW, WIDE = (
    5.0,
    12.0,
)  # sds of the posterior that a density's axis shows on either side: at least, at most


class Quantity(NamedTuple):
    """One number that a result has draws of, such as `beta[3]`.

    Attributes:
        label: how it is called.
        name: the parameter it belongs to.
        place: where in the parameter it is.
        combined: its combined draws, if there are any.
        shards: the shards' draws of it, if there are any; NaN where a shard has fewer than others.
    """

    label: str
    name: str
    place: tuple[int, ...]
    combined: Float[np.ndarray, " draw"] | None
    shards: Float[np.ndarray, "shard draw"] | None


def quantities(tree: "DataTree", names: Iterable[str] | None = None) -> Iterator[Quantity]:
    """The numbers of a result, one after the other; or those of some parameters, or some numbers by their labels."""
    groups = [group for group in ("posterior", "subposterior") if group in tree.children]
    if not groups:
        raise TypeError(
            "tree must be what infer, combine or load returned, with a group 'posterior' or 'subposterior'; got the groups "
            f"{list(tree.children)}."
        )
    shapes = {
        str(name): shape_of(tree, str(name)) for group in groups for name in tree[group].data_vars
    }
    wanted = _wanted(shapes, names)
    for name, shape in shapes.items():
        places = [index for index in np.ndindex(shape) if label_of(name, index) in wanted]
        if not places:
            continue
        combined, shards = (_draws(tree, group, name) for group in ("posterior", "subposterior"))
        for index in places:
            here = (..., *index)
            yield Quantity(
                label_of(name, index),
                name,
                index,
                None if combined is None else combined[0][here],
                None if shards is None else shards[here],
            )


def label_of(name: str, index: tuple[int, ...]) -> str:
    """How a number is called."""
    return name + (f"[{','.join(map(str, index))}]" if index else "")


def _wanted(shapes: dict[str, tuple[int, ...]], names: Iterable[str] | None) -> set[str]:
    every = {
        name: [label_of(name, index) for index in np.ndindex(shape)]
        for name, shape in shapes.items()
    }
    labels = {label for each in every.values() for label in each}
    if names is None:
        return labels
    names = [names] if isinstance(names, str) else list(names)
    if unknown := [name for name in names if name not in every and name not in labels]:
        raise ValueError(
            f"names must be parameters of the result ({list(every)}), or single numbers such as "
            f"{next(iter(labels))!r}; got {unknown[0]!r}."
        )
    return {label for name in names for label in every.get(name, [name])}


def shape_of(tree: "DataTree", name: str) -> tuple[int, ...]:
    """The shape of a parameter."""
    if "posterior" in tree.children and name in tree["posterior"].data_vars:
        return tree["posterior"][name].transpose("chain", "draw", ...).shape[2:]
    return tree["subposterior"][name].transpose("shard", "chain", "draw", ...).shape[3:]


def _draws(tree: "DataTree", group: str, name: str) -> np.ndarray | None:
    """Draws (shard, draw, …) of a parameter, all chains one after the other; combined ones are those of one shard."""
    if group not in tree.children or name not in tree[group].data_vars:
        return None
    axes = ("shard", "chain", "draw") if group == "subposterior" else ("chain", "draw")
    values = tree[group][name].transpose(*axes, ...).to_numpy()
    values = values if group == "subposterior" else values[None]
    return np.asarray(values.reshape(len(values), -1, *values.shape[3:]), float)


def distances(
    shards: Float[np.ndarray, "shard draw"], widening: float = 1.0
) -> Float[np.ndarray, " shard"]:
    r"""How far every shard's mean is from the others', in what their spreads explain: about standard normal if they agree.

    With means $m_k$ and variances $v_k$, and the others' mean $m_{-k}$ weighted by precision, which has the variance
    $v_{-k} = 1 / \sum_{j \ne k} 1 / v_j$: $(m_k - m_{-k}) / \sqrt{v_k + v_{-k}}$. Variances are multiplied by `widening` first, as
    shards whose likelihood was raised to a power are narrower than their rows say. A shard that is far is set aside before
    the rest is looked at again, so that it cannot make others look far.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.nanmean(shards, axis=1)
        variances = widening * np.nanvar(shards, axis=1)
        precisions = 1 / variances
        limit = far_limit(len(shards))
        rest = np.ones(len(shards), bool)
        while True:
            others = precisions[rest].sum() - rest * precisions
            pull = (precisions * means)[rest].sum() - rest * precisions * means
            found = (means - pull / others) / np.sqrt(variances + 1 / others)
            worst = int(np.argmax(np.where(rest, np.abs(np.nan_to_num(found)), -1)))
            if rest.sum() <= 3 or not np.abs(found[worst]) > limit:
                return found
            rest[worst] = False


def quantiles(
    draws: Float[np.ndarray, "..."], levels: Sequence[float], axis: int | None = None
) -> np.ndarray:
    """Quantiles of the draws that there are; where all are there, ten times as fast as NumPy's own way around NaN."""
    return (np.nanquantile if np.isnan(draws).any() else np.quantile)(draws, levels, axis=axis)


def far_limit(num_numbers: int) -> float:
    """The distance that none of so many numbers has by chance."""
    return float(-ndtri(SUSPICIOUS / (2 * max(1, num_numbers))))


def shown_range(quantity: Quantity) -> tuple[float, float]:
    """The part of the axis on which densities are drawn: the combined draws, with as much of the shards as leaves them visible."""
    combined, shards = quantity.combined, quantity.shards
    if combined is None:
        assert shards is not None
        low, high = quantiles(shards, [0.005, 0.995])
        return _apart(float(low), float(high))
    middle, sd = float(np.mean(combined)), float(np.std(combined))
    low, high = middle - NARROW * sd, middle + NARROW * sd
    if shards is not None:
        least, most = quantiles(shards, [0.01, 0.99])
        low = min(low, max(least, middle - WIDE * sd))
        high = max(high, min(most, middle + WIDE * sd))
    lowest = min(np.min(combined), np.inf if shards is None else np.nanmin(shards))
    highest = max(np.max(combined), -np.inf if shards is None else np.nanmax(shards))
    margin = 0.5 * sd  # where there are no draws, there is nothing to see
    return _apart(max(low, float(lowest) - margin), min(high, float(highest) + margin))


def _apart(low: float, high: float) -> tuple[float, float]:
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def densities(
    draws: Float[np.ndarray, "curve draw"], grid: Float[np.ndarray, " point"]
) -> Float[np.ndarray, "curve point"]:
    """Gaussian kernel densities on an even grid, with Silverman's bandwidths; zero for what does not vary.

    Draws are counted into narrow bins, which are smoothed all at once by a Fourier transform.
    """
    num_bins = 4 * len(grid)
    step = (grid[-1] - grid[0]) / (len(grid) - 1)
    margin = 0.25 * (grid[-1] - grid[0])
    edges = np.linspace(grid[0] - margin, grid[-1] + margin, num_bins + 1)
    width = edges[1] - edges[0]
    there: Bool[np.ndarray, "curve draw"] = np.isfinite(draws)
    counts = there.sum(axis=1)
    bins = np.stack([np.histogram(each[each == each], bins=edges)[0] for each in draws])
    with np.errstate(invalid="ignore", divide="ignore"):
        quarters = quantiles(draws, [0.25, 0.75], axis=1)
        spread = np.minimum(np.nanstd(draws, axis=1), (quarters[1] - quarters[0]) / 1.34)
        bandwidths = np.maximum(0.9 * spread * counts**-0.2, 0.5 * step)
        frequencies = np.fft.rfftfreq(2 * num_bins, d=width)
        damping = np.exp(-0.5 * (2 * np.pi * frequencies * bandwidths[:, None]) ** 2)
        smooth = np.fft.irfft(np.fft.rfft(bins, 2 * num_bins, axis=1) * damping, axis=1)[
            :, :num_bins
        ]
    middles = 0.5 * (edges[1:] + edges[:-1])
    heights = np.stack([np.interp(grid, middles, each) for each in smooth]) / (
        counts[:, None] * width
    )
    return np.where(spread[:, None] > 0, np.maximum(heights, 0.0), 0.0)
