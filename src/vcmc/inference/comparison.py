"""The verb `compare`: combiners side by side, on the same shard draws."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..combiners import (
    AbstractCombiner,
    Average,
    Consensus,
    Parametric,
    Prior,
    Semiparametric,
    Swiss,
    Variational,
)
from ..data.partition import Partition
from ..errors import DoubtfulWarning
from ..model import Model
from ..progress import ProgressMode
from ..results.comparison import Comparison, Draws, Entry, errors_of
from ..results.draws import tree_space
from ..results.tree import draws_by_parameter
from ..space import Product, Space
from .arguments import check_combiner, check_model_with_rows
from .combination import combine
from .memory import PeakMemory
from .model_rows import model_rows
from .partitioning import as_partition
from .pipeline import infer

NUM_SERIAL_DRAWS = 4000  # of the reference chain on all rows


def compare(
    source: Any,
    rows: Any = None,
    *,
    combiners: Sequence[AbstractCombiner] | Mapping[str, AbstractCombiner] | None = None,
    reference: Any = None,
    model: Model | None = None,
    space: Mapping[str, Space] | None = None,
    num_shards: int | None = None,
    num_draws: int | None = None,
    shard_draws: int = 1000,
    chains: bool | None = None,
    prior: Prior | None = None,
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
) -> Comparison:
    """Run several combiners on the same draws of shards.

    Args:
        source: a model, whose shards are then sampled (twice, if some combiners need powered
            shards), or draws of shards, as `combine` takes them.
        rows: all rows, as `infer` takes them. With draws of shards they are needed for results
            that estimate their own errors.
        combiners: the combiners, or a mapping from names to combiners; by default a selection.
        reference: draws of the posterior itself, as a tree with a group `posterior` or as arrays
            (draw, …) by name; or "serial", to run a chain on all rows. Without a reference,
            results are compared by the errors that they estimate themselves.
        model: the model that draws of shards belong to.
        space: the space of every parameter, if neither a model nor a tree defines it.
        num_shards: number of shards, if `source` is a model and rows is not a `Partition`.
        num_draws: combined draws of every combiner, as in `combine`.
        shard_draws: draws of every shard, if `source` is a model. Methods that estimate densities
            need many.
        chains: whether arrays of draws have an axis of chains, as in `combine`.
        prior: which prior the draws of shards have, as in `combine`.
        executor: where shards are sampled and evaluated; by default `executors.Local()`.
        seed: seed of all random numbers.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.
    """
    named = _named_combiners(combiners, is_sampled=isinstance(source, Model))
    options: dict[str, Any] = {"executor": executor, "seed": seed, "progress": progress}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DoubtfulWarning)  # the table has the verdicts
        trees_by_prior: dict[Any, Any] = {}
        if isinstance(source, Model):
            model, rows = source, model_rows(rows, source)
            rows = as_partition(rows, num_shards, seed, local=source.local)
            for kind in sorted({combiner.needs.prior for combiner in named.values()}):
                first = Swiss() if kind == "powered" else Average()
                trees_by_prior[kind] = infer(
                    model, rows, combiner=first, shard_draws=shard_draws, **options
                )
        else:
            check_model_with_rows("compare", model, rows)
            options["prior"] = prior
        reference_draws = _reference_draws(reference, model, rows, options)
        product = _comparison_space(source, model, space)
        options |= {"model": model, "rows": rows} if model else {"space": space}
        options["chains"] = chains
        entries, trees = [], {}
        for name, combiner in named.items():
            draws = trees_by_prior.get(combiner.needs.prior, source)
            with PeakMemory() as memory:
                try:
                    tree = combine(draws, combiner=combiner, num_draws=num_draws, **options)
                except Exception as error:
                    entries.append(_failed_entry(name, error))
                    continue
            entries.append(_entry(name, tree, reference_draws, product, memory.megabytes))
            trees[name] = tree
    return Comparison(entries, trees)


def _named_combiners(combiners: Any, is_sampled: bool) -> dict[str, AbstractCombiner]:
    if combiners is None:
        powered = [Swiss()] if is_sampled else []  # given draws have one prior
        combiners = [Consensus(), Parametric(), Semiparametric(), *powered, Variational()]
    if not isinstance(combiners, Mapping):
        if not isinstance(combiners, Sequence) or isinstance(combiners, str):
            raise TypeError(
                "combiners must be a list of combiners, or a mapping from names to combiners; "
                f"got {combiners!r}."
            )
        kinds = [type(combiner) for combiner in combiners]
        names = [
            repr(combiner) if kinds.count(kind) > 1 else kind.__name__
            for combiner, kind in zip(combiners, kinds, strict=True)
        ]
        if len(set(names)) < len(names):
            raise ValueError(f"combiners must differ, or be a mapping with names; got {names}.")
        combiners = dict(zip(names, combiners, strict=True))
    if not combiners:
        raise ValueError("compare needs at least one combiner; got none.")
    for name, combiner in combiners.items():
        check_combiner(combiner, f"combiners[{name!r}]")
    return dict(combiners)


def _comparison_space(
    source: Any, model: Model | None, space: Mapping[str, Space] | None
) -> Product | None:
    """Return the space in which results are compared with a reference, if it is known."""
    if model:
        return model.space
    spaces = tree_space(source, space or {})
    return Product(spaces) if spaces else None


def _reference_draws(
    reference: Any, model: Model | None, rows: Any, options: Mapping[str, Any]
) -> Draws | None:
    """Return the draws of a reference by name, with one axis of draws."""
    if reference is None:
        return None
    if isinstance(reference, str):
        return _serial_draws(reference, model, rows, options)
    if hasattr(reference, "children"):
        if "posterior" not in reference.children:
            raise ValueError(
                "a reference tree must have the group 'posterior'; got the groups "
                f"{list(reference.children)}."
            )
        return draws_by_parameter(reference)
    if not isinstance(reference, Mapping) or not reference:
        raise TypeError(
            "reference must be a tree, or arrays (draw, …) by name; got "
            f"{type(reference).__name__}."
        )
    return {name: np.asarray(array, float) for name, array in reference.items()}


def _serial_draws(
    reference: str, model: Model | None, rows: Any, options: Mapping[str, Any]
) -> Draws:
    if reference != "serial":
        raise ValueError(
            f'reference must be "serial", a tree, or arrays by name; got {reference!r}.'
        )
    if model is None or rows is None:
        raise ValueError('reference="serial" needs a model and its rows; got none.')
    rows = rows.rows if isinstance(rows, Partition) else rows
    return draws_by_parameter(
        infer(model, rows, num_shards=1, shard_draws=NUM_SERIAL_DRAWS, **options)
    )


def _failed_entry(name: str, error: Exception) -> Entry:
    unknown = np.nan, np.nan, np.nan, np.nan
    return Entry(name, "failed", None, *unknown, f"{type(error).__name__}: {error}")


def _entry(
    name: str, tree: Any, reference: Draws | None, space: Product | None, megabytes: float
) -> Entry:
    verdict = tree.attrs["verdict"]
    reasons = np.atleast_1d(tree.attrs["verdict_reasons"]).tolist()
    remark = "" if verdict == "good" else " ".join(reasons)
    errors = None if reference is None else errors_of(draws_by_parameter(tree), reference, space)
    estimated = _largest(tree, "mean_error"), _largest(tree, "sd_error")
    seconds = tree.attrs["seconds_combine"]
    return Entry(name, verdict, errors, *estimated, seconds, megabytes, remark)


def _largest(tree: Any, group: str) -> float:
    """Return the largest absolute value of a group, or NaN if the tree does not have it."""
    if group not in tree.children:
        return np.nan
    return max(float(np.nanmax(np.abs(values))) for values in tree[group].data_vars.values())
