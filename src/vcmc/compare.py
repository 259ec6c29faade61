"""Combiners side by side, on the same draws of shards."""

import os
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.table import Table

from . import executors
from .aggregators.combinatorial import common_labels, relabel
from .assembly import DoubtfulWarning, check_kind, partition_of
from .combine import combine
from .combiners import (
    AbstractCombiner,
    Average,
    Consensus,
    Parametric,
    Prior,
    Semiparametric,
    Swiss,
    Variational,
)
from .infer import infer
from .model import Model
from .partition import Partition
from .result import to_params, to_points
from .space import Product, Space

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from xarray import DataTree

LEVELS = (0.05, 0.95)
INTERVAL = 0.002  # seconds between two looks at the memory in use
Draws = dict[str, np.ndarray]


class Errors(NamedTuple):
    """Errors against a reference, over all numbers that a model reports: the median and the largest of each class.

    Means and quantiles (5 % and 95 %) are in the reference's sds, sds are relative, correlations are differences.
    """

    mean: float
    mean_worst: float
    sd: float
    sd_worst: float
    quantile: float
    quantile_worst: float
    correlation: float
    correlation_worst: float


class Entry(NamedTuple):
    """What is known of one combiner.

    Attributes:
        name: its name.
        verdict: what its result says of itself: good, doubtful, poor; unknown without a model; failed if there is no result.
        errors: against the reference, if there is one.
        self_mean, self_sd: the largest errors of a mean (in sds) and of an sd (relative) that the result itself estimates.
        seconds: that combining took, compiling included.
        memory: megabytes that it took at most, beyond what was in use before.
        remark: what was doubtful about the result, or why there is none.
    """

    name: str
    verdict: str
    errors: Errors | None
    self_mean: float
    self_sd: float
    seconds: float
    memory: float
    remark: str


HEADS = (
    "combiner",
    "verdict",
    "means, sds",
    "sds, %",
    "5–95 %, sds",
    "correlations",
    "own: means, sds",
    "own: sds, %",
    "seconds",
    "MB",
)


@dataclass(frozen=True)
class Comparison:
    """Combiners side by side. Printed, it is a table; `plot` draws it.

    Attributes:
        entries: what is known of every combiner.
        trees: the results, by the combiner's name.
    """

    entries: list[Entry]
    trees: "dict[str, DataTree]" = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        table = Table(
            caption="errors: median (largest) over all parameters; own: largest error by its own estimate"
        )
        for head in HEADS:
            table.add_column(head, justify="left" if head in HEADS[:2] else "right", no_wrap=True)
        for entry in self.entries:
            table.add_row(*_cells(entry))
        text = StringIO()
        Console(file=text, width=200).print(table)
        remarks = [f"{entry.name}: {entry.remark}" for entry in self.entries if entry.remark]
        return text.getvalue() + "\n".join(remarks)

    def markdown(self) -> str:
        """The table as Markdown."""
        rows = [HEADS, ["---"] * len(HEADS), *(_cells(entry) for entry in self.entries)]
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Draw the errors of every combiner, or what it says of itself if there is no reference; save it, if told where."""
        try:
            from matplotlib.figure import Figure
            from matplotlib.ticker import NullFormatter
        except ImportError as error:
            raise ImportError(
                "a plot needs matplotlib, which is not installed. Try: pip install 'vcmc[plots]'"
            ) from error
        shown = [entry for entry in self.entries if entry.verdict != "failed"]
        panels = _panels(shown)
        figure = Figure(figsize=(2.8 * len(panels) + 1.5, 1.2 + 0.32 * len(shown)), layout="constrained")
        places = np.arange(len(shown))[::-1]
        for axes, (title, medians, worst) in zip(
            figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True
        ):
            for place, low, high, entry in zip(places, medians, worst, shown, strict=True):
                colour = COLOURS[entry.verdict]
                if np.isfinite([low, high]).all() and high > low:
                    axes.plot([low, high], [place, place], color=colour, linewidth=1.5, alpha=0.5)
                axes.plot(low, place, "o", color=colour)
            axes.set(title=title, xscale="log", yticks=places, yticklabels=[entry.name for entry in shown])
            axes.xaxis.set_minor_formatter(NullFormatter())
            _show_two_decades(axes)
            axes.grid(axis="x", color="0.9")
            axes.spines[["top", "right"]].set_visible(False)
        handles = [
            axes.plot([], [], "o", color=COLOURS[verdict], label=verdict)[0]
            for verdict in COLOURS
            if verdict in {entry.verdict for entry in shown}
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False)
        if path is not None:
            figure.savefig(path, dpi=120)
        return figure


def _show_two_decades(axes: Any) -> None:
    """Make an axis wide enough for labels at two powers of ten."""
    low, high = axes.get_xlim()
    axes.set_xlim(
        min(low, 10.0 ** np.floor(np.log10(high) - 0.5)), max(high, 10.0 ** np.ceil(np.log10(low) + 0.5))
    )


COLOURS = {"good": "tab:green", "doubtful": "tab:orange", "poor": "tab:red", "unknown": "tab:blue"}


def compare(
    source: Any,
    rows: Any = None,
    *,
    combiners: Sequence[AbstractCombiner] | Mapping[str, AbstractCombiner] | None = None,
    reference: Any = None,
    model: Model | None = None,
    space: Mapping[str, Space] | None = None,
    num_shards: int | None = None,
    num_draws: int = 1000,
    prior: Prior | None = None,
    executor: executors.AbstractExecutor | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Comparison:
    """Run several combiners on the same draws of shards.

    Args:
        source: a model, whose shards are then sampled (twice, if some combiners need powered shards); or draws of shards, as `combine`
            takes them.
        rows: all rows, as `infer` takes them; with draws of shards they are needed for results that say how good they are.
        combiners: the combiners, or names for them; by default a few that differ.
        reference: draws of the posterior itself, as a tree with a group `posterior` or as arrays (draw, …) by name; or "serial": a chain on
            all rows is run for it. Without one, results are judged by what they say of themselves.
        model: the model that draws of shards belong to.
        space: where the parameters of draws live, if there is no model.
        num_shards: number of shards, if `source` is a model and rows is not a `Partition`.
        num_draws: draws of every shard, if `source` is a model.
        prior: what draws of shards hold besides their rows, as in `combine`.
        executor: where shards are sampled and evaluated; by default `executors.Local()`.
        seed: seed of everything random.
        progress: show progress if standard error is a terminal.
    """
    named = _named(combiners, isinstance(source, Model))
    options: dict[str, Any] = {"executor": executor, "seed": seed, "progress": progress}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # what is doubtful stands in the table
        by_prior: dict[Any, Any] = {}
        if isinstance(source, Model):
            model, rows = source, partition_of(rows, num_shards, seed)
            for kind in sorted({combiner.needs.prior for combiner in named.values()}):
                start = Swiss() if kind == "powered" else Average()
                by_prior[kind] = infer(model, rows, combiner=start, num_draws=num_draws, **options)
        elif (model is None) != (rows is None):
            raise ValueError("compare takes a model and its rows together, or neither; got only one of them.")
        else:
            options["prior"] = prior
        exact: Draws | None = None
        if isinstance(reference, str):
            exact = _serial(reference, model, rows, options)
        elif reference is not None:
            exact = _reference(reference)
        inside = model.space if model else Product(space) if space else None
        entries, trees = [], {}
        for name, combiner in named.items():
            draws = by_prior.get(combiner.needs.prior, source)
            if model is not None and rows is not None:
                options |= {"model": model, "rows": rows}
            else:
                options |= {"space": space}
            with PeakMemory() as memory:
                try:
                    tree = combine(draws, combiner=combiner, **options)
                except Exception as error:
                    remark = f"{type(error).__name__}: {error}"
                    nothing = np.nan, np.nan, np.nan, np.nan
                    entries.append(Entry(name, "failed", None, *nothing, remark))
                    continue
            entries.append(_entry(name, tree, exact, inside, memory.megabytes))
            trees[name] = tree
    return Comparison(entries, trees)


class PeakMemory:
    """How much memory is in use at most, beyond what was in use before; not a number where that cannot be asked."""

    def __init__(self) -> None:
        self.megabytes = np.nan
        self._most = self._first = 0
        self._done = threading.Event()

    def __enter__(self) -> "PeakMemory":
        self._most = self._first = _resident()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL):
            self._most = max(self._most, _resident())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._first:
            self.megabytes = (self._most - self._first) / 2**20


def _resident() -> int:
    """Bytes that this process has in memory, or zero where that is not known."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _named(combiners: Any, sampled: bool) -> dict[str, AbstractCombiner]:
    if combiners is None:
        others = [Swiss()] if sampled else []  # draws made elsewhere are of one kind
        combiners = [Consensus(), Parametric(), Semiparametric(), *others, Variational()]
    if not isinstance(combiners, Mapping):
        if not isinstance(combiners, Sequence) or isinstance(combiners, str):
            raise TypeError(f"combiners must be a list of combiners, or names for them; got {combiners!r}.")
        names = [repr(each) if _is_twin(each, combiners) else type(each).__name__ for each in combiners]
        if len(set(names)) < len(names):
            raise ValueError(f"combiners must differ, or have names of their own; got {names}.")
        combiners = dict(zip(names, combiners, strict=True))
    if not combiners:
        raise ValueError("compare needs at least one combiner; got none.")
    for name, combiner in combiners.items():
        check_kind(f"combiners[{name!r}]", combiner, AbstractCombiner, "vcmc.combiners.Consensus()")
    return dict(combiners)


def _is_twin(one: Any, combiners: Sequence[Any]) -> bool:
    return sum(type(each) is type(one) for each in combiners) > 1


def _serial(reference: str, model: Model | None, rows: Any, options: Mapping[str, Any]) -> Draws:
    if reference != "serial":
        raise ValueError(f'reference must be "serial", a tree, or arrays by name; got {reference!r}.')
    if model is None or rows is None:
        raise ValueError('reference="serial" needs a model and its rows; got none.')
    if isinstance(rows, Partition):
        rows = whole(rows)
    return _reference(infer(model, rows, num_shards=1, num_draws=SERIAL_DRAWS, **options))


SERIAL_DRAWS = 4000


def whole(partition: Partition) -> dict[str, np.ndarray]:
    """All rows of a partition, shard after shard."""
    shards = [partition.load(shard) for shard in range(partition.num_shards)]
    real = [np.asarray(shard.weights) > 0 for shard in shards]
    return {
        str(name): np.concatenate(
            [np.asarray(shard.rows[name])[kept] for shard, kept in zip(shards, real, strict=True)]
        )
        for name in shards[0].rows
    }


def _reference(reference: Any) -> Draws:
    """A reference's draws by name, with one axis of draws."""
    if hasattr(reference, "children"):
        if "posterior" not in reference.children:
            raise ValueError(
                f"a reference tree must have the group 'posterior'; got the groups {list(reference.children)}."
            )
        return _posterior(reference)
    if not isinstance(reference, Mapping) or not reference:
        raise TypeError(
            f"reference must be a tree, or arrays (draw, …) by name; got {type(reference).__name__}."
        )
    return {name: np.asarray(array, float) for name, array in reference.items()}


def _posterior(tree: Any) -> Draws:
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    arrays = {str(name): posterior[name].to_numpy() for name in posterior.data_vars}
    return {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}


def _entry(name: str, tree: Any, exact: Draws | None, space: Product | None, memory: float) -> Entry:
    attributes = tree.attrs
    verdict = attributes["verdict"]
    remark = "" if verdict == "good" else " ".join(np.atleast_1d(attributes["verdict_reasons"]).tolist())
    errors = None if exact is None else _errors(_posterior(tree), exact, space)
    own = _largest(tree, "mean_error"), _largest(tree, "sd_error")
    return Entry(name, verdict, errors, *own, attributes["seconds_combine"], memory, remark)


def _largest(tree: Any, group: str) -> float:
    if group not in tree.children:
        return np.nan
    return max(float(np.nanmax(np.abs(each))) for each in tree[group].data_vars.values())


def _errors(found: Draws, exact: Draws, space: Product | None) -> Errors:
    names = [name for name in exact if name in found]
    if not names:
        raise ValueError(f"the reference has draws of {list(exact)}, but the results of {list(found)}.")
    if space is not None and space.labelled() and set(space) <= set(names):
        found = _relabelled(found, exact, space)
    one, other = (
        np.concatenate([draws[name].reshape(len(draws[name]), -1) for name in names], axis=1)
        for draws in (found, exact)
    )
    varies = other.std(axis=0) > 1e-9 * np.abs(other).max(axis=0)
    one, other = one[:, varies], other[:, varies]
    unit = other.std(axis=0)
    mean = np.abs(one.mean(axis=0) - other.mean(axis=0)) / unit
    sd = np.abs(one.std(axis=0) / unit - 1)
    quantile = np.abs(np.quantile(one, LEVELS, axis=0) - np.quantile(other, LEVELS, axis=0)) / unit
    upper = np.triu_indices(len(unit), 1)
    correlation = (
        np.abs(_correlations(one) - _correlations(other))[upper] if len(unit) > 1 else np.array([np.nan])
    )
    pairs = [(np.median(each), np.max(each)) for each in (mean, sd, quantile, correlation)]
    return Errors(*(float(number) for pair in pairs for number in pair))


def _correlations(draws: Float[np.ndarray, "draw quantity"]) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.corrcoef(draws.T)


def _relabelled(found: Draws, exact: Draws, space: Product) -> Draws:
    """Draws whose exchangeable components are labelled as the reference's."""
    points = [np.asarray(to_points(space, draws)) for draws in (exact, found)]
    count = min(map(len, points))
    pair = jnp.asarray(np.stack([each[:: len(each) // count][:count] for each in points]))
    moved = jnp.asarray(points[1])[None]
    for alignment in common_labels(space, pair):
        moved = relabel(space, moved, alignment[1:])
    return {**found, **to_params(space, moved[0])}


def _cells(entry: Entry) -> list[str]:
    errors = entry.errors
    numbers = ["–"] * 4
    if errors is not None:
        numbers = [
            f"{scale * low:.{digits}f} ({scale * high:.{digits}f})" if np.isfinite(low) else "–"
            for low, high, scale, digits in (
                (errors.mean, errors.mean_worst, 1, 3),
                (errors.sd, errors.sd_worst, 100, 1),
                (errors.quantile, errors.quantile_worst, 1, 3),
                (errors.correlation, errors.correlation_worst, 1, 3),
            )
        ]
    rest = (entry.self_mean, 3), (100 * entry.self_sd, 1), (entry.seconds, 2), (entry.memory, 0)
    return [
        entry.name,
        entry.verdict,
        *numbers,
        *(f"{value:.{digits}f}" if np.isfinite(value) else "–" for value, digits in rest),
    ]


Panel = tuple[str, list[float], list[float]]


def _panels(entries: Sequence[Entry]) -> list[Panel]:
    """What is drawn: the median and the largest number of every combiner, by panel."""
    panels: list[Panel] = []
    known = [entry.errors for entry in entries]
    if any(known):
        for title, what in (
            ("means, sds off", "mean"),
            ("sds, relative", "sd"),
            ("5–95 %, sds off", "quantile"),
            ("correlations", "correlation"),
        ):
            low, high = (
                [getattr(each, what + end) if each else np.nan for each in known] for end in ("", "_worst")
            )
            if np.isfinite(low).any():
                panels.append((title, low, high))
    if np.isfinite([entry.self_mean for entry in entries]).any():
        own = [entry.self_mean for entry in entries]
        panels.append(("own estimate: means, sds off", own, own))
    seconds = [entry.seconds for entry in entries]
    return [*panels, ("seconds", seconds, seconds)]
