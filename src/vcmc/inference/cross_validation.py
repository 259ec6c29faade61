"""The verbs `loo` and `waic`: how well a model predicts rows that it has not seen.

The terms of all rows are computed where the rows are; results are ArviZ's own.
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from ..data.files import FilePartition
from ..data.grouped import GroupedPartition
from ..data.partition import Partition
from ..data.row_order import row_numbers
from ..errors import DoubtfulWarning, warn_user
from ..model import Model
from ..progress import ProgressDisplay, ProgressMode
from ..target import Target
from .arguments import check_integer, check_model, check_result
from .assessment import ROW_WEIGHTS
from .moment_matching import Posterior, full_posterior, match_moments
from .pointwise import Pointwise, Reduction, Unit, pointwise, unit_log_likelihoods
from .predictive_terms import EFFECTIVE, ELPD, MIN_LOO_DRAWS, PARETO_K, LooTerms, waic_terms
from .preparation import check_num_rows, result_target
from .result_points import posterior_points, spaced_draws

if TYPE_CHECKING:
    from arviz_stats import ELPDData
    from xarray import DataArray, DataTree

ROW_DIM = "row"
MAX_MATCHED = 100  # rows or groups whose moments are matched, those with the largest k
MAX_NAMED = 5  # rows or groups in a message
MIN_ESS_DRAWS = 4  # of each chain, for ArviZ's effective draws
MAX_GOOD_K = 0.7  # of Pareto distributions; lower with fewer than 2154 draws (Vehtari et al. 2024)
MAX_GOOD_VARIANCE = (
    0.4  # of a row's log likelihood: above, WAIC is unreliable (Vehtari et al. 2017)
)


def loo(
    tree: "DataTree",
    model: Model,
    rows: Any,
    *,
    num_draws: int | None = None,
    moment_matching: bool = False,
    executor: Any = None,
    progress: ProgressMode = True,
) -> "ELPDData":
    """Estimate how well a model predicts rows by leave-one-out cross-validation.

    Every row is left out by Pareto-smoothed importance sampling, block by block of rows in the
    processes that hold them: no matrix of draws × rows is made. A model with groups is assessed by
    leaving out one group at a time, its local parameters integrated out.

    Args:
        tree: a result of `infer`, `combine` or `refine`.
        model: the model, whose log likelihoods are normalized.
        rows: the rows that the model was fitted to, as `infer` takes them.
        num_draws: number of posterior draws to use, evenly spaced; by default all.
        moment_matching: where Pareto's k is large, move the draws to the posterior without the
            row (or group), which takes some evaluations of the full-data log density for each.
        executor: where log likelihoods are evaluated; by default `executors.Local()`.
        progress: show progress if standard error is a terminal; "lines" prints plain lines
            elsewhere.

    Returns:
        ArviZ's `ELPDData`, which is printed as a table. `elpd_i` and `pareto_k` have one value
        per row, in the order of the rows, or per group, with its label. Rows that a function loads
        are numbered shard after shard.
    """
    target, draws = _target_and_draws(tree, model, rows, num_draws, executor)
    draws_used = draws.shape[0] * draws.shape[1]
    efficiency = _relative_efficiency(tree, target.model, draws)
    terms, units = _terms("leave one out", target, draws, LooTerms(efficiency), progress)
    good_k = min(1 - 1 / np.log10(draws_used), MAX_GOOD_K)
    if moment_matching and (terms[PARETO_K] > good_k).any():
        posterior = full_posterior(target, draws.reshape(-1, draws.shape[2]), efficiency)
        _match(terms, units, target, posterior, good_k, progress)
    is_bad = terms[PARETO_K].to_numpy() > good_k
    if is_bad.any():
        warn_user(_bad_k_message(terms[PARETO_K], good_k, moment_matching), DoubtfulWarning)
    return _elpd_data("loo", terms, draws_used, bool(is_bad.any()), good_k)


def _match(
    terms: "dict[str, DataArray]",
    units: Int[np.ndarray, "2 unit"],
    target: Target,
    posterior: Posterior,
    good_k: float,
    progress: ProgressMode,
) -> None:
    """Replace the terms of rows, or groups, with the largest k."""
    k = terms[PARETO_K].to_numpy()
    bad = np.flatnonzero(k > good_k)
    bad = bad[np.argsort(-k[bad], kind="stable")][:MAX_MATCHED]
    with ProgressDisplay(progress) as display:
        stage = display.stage("match moments", len(bad))
        for number in bad:
            unit = Unit(*units[:, number].tolist())
            log_likelihood = partial(unit_log_likelihoods, target, unit)
            elpd, new_k, log_mean = match_moments(posterior, log_likelihood)
            if new_k < k[number]:
                for name, value in ((ELPD, elpd), (PARETO_K, new_k), (EFFECTIVE, log_mean - elpd)):
                    terms[name][number] = value
            stage.advance(1)
        stage.finish()


def waic(
    tree: "DataTree",
    model: Model,
    rows: Any,
    *,
    num_draws: int | None = None,
    executor: Any = None,
    progress: ProgressMode = True,
) -> "ELPDData":
    """Estimate how well a model predicts rows by the widely applicable information criterion.

    `loo` estimates the same, and tells better when the estimate is unreliable. The arguments are
    those of `loo`.
    """
    target, draws = _target_and_draws(tree, model, rows, num_draws, executor)
    terms, _ = _terms("waic", target, draws, waic_terms, progress)
    variances = terms[EFFECTIVE]
    is_bad = variances.to_numpy() > MAX_GOOD_VARIANCE
    if is_bad.any():
        message = (
            f"The log likelihoods of {_named(variances, is_bad, 'variance')} vary by more "
            f"than {MAX_GOOD_VARIANCE} over the draws: WAIC is unreliable there. Use vcmc.loo."
        )
        warn_user(message, DoubtfulWarning)
    return _elpd_data("waic", terms, draws.shape[0] * draws.shape[1], bool(is_bad.any()), None)


def _target_and_draws(
    tree: "DataTree", model: Model, rows: Any, num_draws: int | None, executor: Any
) -> tuple[Target, Float[np.ndarray, "chain draw dim"]]:
    """Check the arguments, and return the target and the draws to use."""
    check_result(tree)
    if column := tree.attrs.get(ROW_WEIGHTS):
        raise ValueError(
            f"the result has weights of rows ({column!r}), for which a row that is left out has no "
            "one meaning. Repeat the rows by their weights, and infer without weights="
            f"{column!r}."
        )
    check_model(model)
    if num_draws is not None:
        check_integer("num_draws", num_draws, MIN_LOO_DRAWS)
    points = posterior_points(tree, model)
    chains, draws = points.shape[:2]
    if chains * draws < MIN_LOO_DRAWS:
        raise ValueError(
            f"the posterior must have at least {MIN_LOO_DRAWS} draws; the tree has "
            f"{chains * draws}."
        )
    target = result_target(model, rows, int(tree.attrs.get("num_shards", 1)), executor, seed=0)
    check_num_rows(tree, target)
    return target, points[:, spaced_draws(points, num_draws)]


def _relative_efficiency(
    tree: "DataTree", model: Model, draws: Float[np.ndarray, "chain draw dim"]
) -> float:
    """Return effective draws per draw, as ArviZ does: the mean over all quantities but local ones.

    Those of a single chain are taken to be independent, as combined draws are.
    """
    from arviz_stats.base import array_stats

    num_chains, num_draws = draws.shape[:2]
    if num_chains == 1 or num_draws < MIN_ESS_DRAWS:
        return 1.0
    posterior = tree["posterior"].to_dataset().transpose("chain", "draw", ...)
    chosen = np.arange(num_draws) * posterior.sizes["draw"] // num_draws
    column = None if model.local is None else model.local.groups
    ess = [
        np.ravel(
            array_stats.ess(values.to_numpy()[:, chosen], chain_axis=0, draw_axis=1, method="mean")
        )
        for values in posterior.data_vars.values()
        if column not in values.dims
    ]
    mean = float(np.nanmean(np.concatenate(ess)))
    return mean / (num_chains * num_draws) if np.isfinite(mean) else 1.0


def _terms(
    name: str,
    target: Target,
    draws: Float[np.ndarray, "chain draw dim"],
    reduction: Reduction,
    progress: ProgressMode,
) -> "tuple[dict[str, DataArray], Int[np.ndarray, '2 unit']]":
    """Return the terms of all rows in their order, or of all groups, with labels and places."""
    points = draws.reshape(-1, draws.shape[2])
    with ProgressDisplay(progress) as display:
        stage = display.stage(name, _num_terms(target))
        parts = pointwise(target, points, reduction, stage.advance)
        stage.finish()
    terms, units = _in_order(target, parts)
    is_broken = ~np.isfinite(terms[ELPD].to_numpy())
    if is_broken.any():
        raise ValueError(
            f"the log likelihood is not finite at some draws for {_named(terms[ELPD], is_broken)}. "
            "A row that is impossible under some draws cannot be left out by reweighting them: "
            "check these rows, and that the tree belongs to the model."
        )
    return terms, units


def _num_terms(target: Target) -> int | None:
    """Return the number of rows, or groups, if it is known before they are loaded."""
    partition = target.shard_cache.partition
    if isinstance(partition, GroupedPartition):
        return sum(map(len, partition.members))
    return sum(partition.sizes) if isinstance(partition, Partition | FilePartition) else None


def _in_order(
    target: Target, parts: list[Pointwise]
) -> "tuple[dict[str, DataArray], Int[np.ndarray, '2 unit']]":
    from xarray import DataArray

    partition = target.shard_cache.partition
    sizes = [len(part[ELPD]) for part in parts]
    if isinstance(partition, GroupedPartition) and target.model.local is not None:
        numbers = np.concatenate(partition.members)
        dim, labels = target.model.local.groups, partition.labels[np.sort(numbers)]
    else:
        numbers = np.concatenate(row_numbers(partition, sizes))
        dim, labels = ROW_DIM, np.arange(len(numbers))
    order = np.argsort(numbers)
    units = np.stack(
        [np.repeat(np.arange(len(sizes)), sizes), np.concatenate([*map(np.arange, sizes)])]
    )
    terms = {
        name: DataArray(
            np.concatenate([part[name] for part in parts])[order], {dim: labels}, [dim], name=name
        )
        for name in parts[0]
    }
    return terms, units[:, order]


def _elpd_data(
    kind: str, terms: "dict[str, DataArray]", num_draws: int, is_doubtful: bool, good_k: Any
) -> "ELPDData":
    from ..results.elpd_data import elpd_data, elpd_se  # slow to import

    elpd_i = terms[ELPD].to_numpy()
    return elpd_data(
        kind,
        elpd=float(np.sum(elpd_i)),
        se=elpd_se(elpd_i),
        p=float(terms[EFFECTIVE].sum()),
        n_samples=num_draws,
        n_data_points=len(elpd_i),
        scale="log",
        warning=is_doubtful,
        good_k=good_k,
        elpd_i=terms[ELPD].rename("elpd_i"),
        pareto_k=terms[PARETO_K].rename("pareto_k") if PARETO_K in terms else None,
    )


def _bad_k_message(pareto_k: "DataArray", good_k: float, is_matched: bool) -> str:
    is_bad = pareto_k.to_numpy() > good_k
    unit = "row" if pareto_k.dims[0] == ROW_DIM else "group"
    if is_matched:
        advice = f"or fit the model without each of these {unit}s and evaluate it there."
    else:
        advice = "or vcmc.loo(..., moment_matching=True), which moves the draws."
    return (
        f"Pareto k is above {good_k:.2f} for {_named(pareto_k, is_bad, 'k')}: their terms of "
        f"elpd_loo are unreliable, as the posterior without such a {unit} is far from that with "
        f"it. Look at these {unit}s first. Try a likelihood with heavier tails if the model does "
        f"not expect them, more draws if k is just above the limit, {advice}"
    )


def _named(values: "DataArray", chosen: np.ndarray, symbol: str = "") -> str:
    """Return rows or groups in words: their number, and those with the largest values, if any."""
    dim = str(values.dims[0])
    unit = "rows" if dim == ROW_DIM else f"groups of {dim!r}"
    numbers = np.flatnonzero(chosen)
    if symbol:
        numbers = numbers[np.argsort(-values.to_numpy()[numbers], kind="stable")]
    labels, array = values[dim].to_numpy(), values.to_numpy()
    names = [
        f"{labels[number]}" + (f" ({symbol} = {array[number]:.2f})" if symbol else "")
        for number in numbers[:MAX_NAMED]
    ]
    more = ", …" if len(numbers) > MAX_NAMED else ""
    return f"{len(numbers)} of {len(chosen)} {unit} ({'; '.join(names)}{more})"
