"""Combiners side by side, on the same draws of shards."""

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
from ..results.tree import posterior_draws
from ..space import Product, Space
from .assembly import check_kind, check_together, partition_of
from .combination import combine
from .memory import PeakMemory
from .pipeline import infer

SERIAL_DRAWS = 4000  # of the chain on all rows


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
    executor: Any = None,
    seed: int = 0,
    progress: ProgressMode = True,
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
        progress: show progress if standard error is a terminal; "lines" writes plain lines elsewhere.
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
        else:
            check_together("compare", model, rows)
            options["prior"] = prior
        exact: Draws | None = None
        if isinstance(reference, str):
            exact = _serial(reference, model, rows, options)
        elif reference is not None:
            exact = _reference(reference)
        inside = model.space if model else Product(space) if space else None
        options |= {"model": model, "rows": rows} if model else {"space": space}
        entries, trees = [], {}
        for name, combiner in named.items():
            draws = by_prior.get(combiner.needs.prior, source)
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


def _named(combiners: Any, sampled: bool) -> dict[str, AbstractCombiner]:
    if combiners is None:
        others = [Swiss()] if sampled else []  # draws made elsewhere are of one kind
        combiners = [Consensus(), Parametric(), Semiparametric(), *others, Variational()]
    if not isinstance(combiners, Mapping):
        if not isinstance(combiners, Sequence) or isinstance(combiners, str):
            raise TypeError(
                f"combiners must be a list of combiners, or names for them; got {combiners!r}."
            )
        names = [
            repr(each) if _is_twin(each, combiners) else type(each).__name__ for each in combiners
        ]
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
        raise ValueError(
            f'reference must be "serial", a tree, or arrays by name; got {reference!r}.'
        )
    if model is None or rows is None:
        raise ValueError('reference="serial" needs a model and its rows; got none.')
    rows = rows.rows if isinstance(rows, Partition) else rows
    return posterior_draws(infer(model, rows, num_shards=1, num_draws=SERIAL_DRAWS, **options))


def _reference(reference: Any) -> Draws:
    """A reference's draws by name, with one axis of draws."""
    if hasattr(reference, "children"):
        if "posterior" not in reference.children:
            raise ValueError(
                f"a reference tree must have the group 'posterior'; got the groups {list(reference.children)}."
            )
        return posterior_draws(reference)
    if not isinstance(reference, Mapping) or not reference:
        raise TypeError(
            f"reference must be a tree, or arrays (draw, …) by name; got {type(reference).__name__}."
        )
    return {name: np.asarray(array, float) for name, array in reference.items()}


def _entry(
    name: str, tree: Any, exact: Draws | None, space: Product | None, memory: float
) -> Entry:
    attributes = tree.attrs
    verdict = attributes["verdict"]
    remark = (
        "" if verdict == "good" else " ".join(np.atleast_1d(attributes["verdict_reasons"]).tolist())
    )
    errors = None if exact is None else errors_of(posterior_draws(tree), exact, space)
    own = _largest(tree, "mean_error"), _largest(tree, "sd_error")
    return Entry(name, verdict, errors, *own, attributes["seconds_combine"], memory, remark)


def _largest(tree: Any, group: str) -> float:
    if group not in tree.children:
        return np.nan
    return max(float(np.nanmax(np.abs(each))) for each in tree[group].data_vars.values())
