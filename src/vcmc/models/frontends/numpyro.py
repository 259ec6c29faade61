"""Convert NumPyro models.

The latent sites are the prior and the observed sites the likelihood. A dependence on the number of
rows is detected by tracing the model, without running it, on two numbers of rows.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro.distributions.constraints import Constraint

from ...data.categories import check_order, encode_text, read_columns, text_coords
from ...data.rows import Rows, as_rows, original_columns
from ...errors import warn_user
from ...groups.quadrature import AbstractQuadrature
from ...model import Derived, LogLikelihood, Model
from ...space import Dependent, Params, Product, Scalar, Space
from .checks import (
    FEW_ROWS,
    MORE_ROWS,
    check_prior,
    example_params,
    first_rows,
    neutral_rows,
    row_axis,
    same_for_all_rows,
    sum_per_row,
    warn_of_omitted,
)
from .enumeration import enumerated_log_likelihood
from .labels import site_labels
from .numpyro_groups import UserLabels, grouped_model
from .numpyro_predictive import SiteSimulator
from .recognition import recognised_groups
from .sites import (
    Seeded,
    Site,
    argument_names,
    log_prob,
    renamed_sites,
    result_name,
    sites_on,
    trace_at,
)


def from_numpyro(
    model: Callable[..., Any],
    rows: Any,
    *,
    constants: Mapping[str, Any] | None = None,
    space: Mapping[str, Space] | None = None,
    prior_sites: Iterable[str] = (),
    likelihood_sites: Iterable[str] = (),
    dims: Mapping[str, Iterable[str | None]] | None = None,
    coords: Mapping[str, Any] | None = None,
    groups: str | None = None,
    num_groups: str | None = None,
    group_rows: Any = None,
    quadrature: AbstractQuadrature | None = None,
) -> Model:
    """Convert a NumPyro model: latent sites are the prior, observed sites the likelihood.

    Args:
        model: a NumPyro model, whose arguments are the names of the rows.
        rows: rows to learn shapes from: all of them, or the first few. Columns that are not
            arguments of the model are ignored. Columns of text become numbers of their levels,
            which are the labels along a plate or dim with the column's name.
        constants: arguments that are not per row, e.g. a number of groups.
        space: spaces that say more than the support does, e.g. `vcmc.Exchangeable`.
        prior_sites: names of `numpyro.factor` sites that belong to the prior.
        likelihood_sites: names of `numpyro.factor` sites that belong to the likelihood; their
            value must be one number per row.
        dims: names of the axes of sites in the result, e.g. `{"beta": ["feature"]}`. Axes of plates
            have their names, and axes with one element per column of a data frame in `rows`, e.g.
            `{"x": frame}`, are called `x_column`.
        coords: labels along these axes, e.g. `{"feature": ["age", "income"]}`.
        groups: for a hierarchical model, the column of rows with the group of every row, as
            numbers or labels of any kind. The model's argument of this name gets numbers from zero.
            Latent sites with one value per group are local: they are integrated out, and drawn
            after the global ones.
        num_groups: the name of the model's argument with the number of groups.
        group_rows: a table with one row per group, whose column `groups` has the labels; its other
            columns are arguments of the model with one entry per group. Groups that have no rows
            are predicted.
        quadrature: how local parameters are integrated out, e.g. `vcmc.GaussHermite(15)`.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def normal(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0, 10))
    ...     numpyro.sample("y", dist.Normal(mean, 1), obs=y)
    >>> from_numpyro(normal, {"y": np.zeros(100)})
    Model(mean: Space(Real(), shape=()))
    """
    if not callable(model):
        raise TypeError(f"model must be a NumPyro model, a function of its rows; got {model!r}.")
    dims = {result_name(name): axes for name, axes in (dims or {}).items()}
    coords, given = dict(coords or {}), rows
    rows = read_columns(rows, argument_names(model))
    columns, levels = encode_text(rows, text_coords(coords), skip={groups})
    check_order(levels, coords)
    coords = {**levels, **coords}
    if groups is not None:
        if factors := [*prior_sites, *likelihood_sites]:
            raise ValueError(
                f"a model with groups cannot have numpyro.factor; got {factors} in prior_sites= "
                "or likelihood_sites=. Write their terms as distributions."
            )
        return grouped_model(
            model,
            given,
            columns,
            (groups, num_groups, group_rows),
            constants or {},
            _check_arguments,
            {result_name(name): part for name, part in (space or {}).items()},
            quadrature,
            UserLabels(dims, coords),
        )
    _check_arguments(model, original_columns(given), constants or {})
    arrays = as_rows(columns)
    seeded = Seeded(model, constants or {})
    few, more = sites_on(seeded, arrays, FEW_ROWS), sites_on(seeded, arrays, MORE_ROWS)
    prior_sites = tuple(map(result_name, prior_sites))
    roles = _roles(few, more, prior_sites, tuple(map(result_name, likelihood_sites)))
    template = first_rows(arrays)

    def prior_given(params: Params, rows: Rows) -> Scalar:
        trace = trace_at(seeded, params, rows)
        names = (*roles.latents, *prior_sites)
        return sum((jnp.sum(log_prob(trace[name])) for name in names), jnp.zeros(()))

    def observed_log_likelihood(params: Params, rows: Rows) -> Float[Array, " row"]:
        trace = trace_at(seeded, params, rows)
        parts = [
            sum_per_row(log_prob(trace[name], depth), axis)
            for name, (depth, axis) in roles.observed.items()
        ]
        return jnp.sum(jnp.stack(parts), axis=0)

    def log_prior(params: Params) -> Scalar:
        return prior_given(params, neutral)

    log_likelihood: LogLikelihood = observed_log_likelihood
    if roles.has_enumerated:
        num_axes = max(site.num_batch_axes for site in few.values())
        log_likelihood = enumerated_log_likelihood(seeded, log_prior, num_axes)
    declared = {result_name(name): part for name, part in (space or {}).items()}
    spaces = _spaces(seeded, few, roles.latents, template, declared)
    examples = example_params(spaces)
    check_prior(prior_given, examples, arrays, "pass it in constants={...}")
    neutral = neutral_rows(prior_given, examples[0], arrays)
    _warn_of_groups(log_likelihood, spaces, arrays, constants or {})
    derived = _derived(seeded, few, more, arrays, examples)
    dims, coords = site_labels(seeded, few, rows, arrays, dims, coords)
    renamed = renamed_sites(trace_at(seeded, examples[0], template))
    return Model(
        spaces,
        log_prior,
        log_likelihood,
        derived=derived,
        dims=dims,
        coords=coords,
        columns=arrays,
        renamed=renamed,
        simulate=SiteSimulator.of_sites(
            model, constants or {}, roles.observed, (few, more), arrays
        ),
    )


def _warn_of_groups(
    log_likelihood: LogLikelihood,
    spaces: Mapping[str, Space],
    arrays: Mapping[str, np.ndarray],
    constants: Mapping[str, Any],
) -> None:
    """Warn of a hierarchical model that is given without groups, and say what to write."""
    found = recognised_groups(log_likelihood, Product(spaces), arrays)
    if found is None:
        return
    is_count = [name for name, value in constants.items() if np.ndim(value) == 0]
    counts = [name for name in is_count if constants[name] == found.size]
    number = counts[0] if counts else f"num_{found.column}"
    how = "without this constant" if counts else f"with the argument {number} as the plate's size"
    warn_user(
        f'{found.sentence}from_numpyro(..., groups="{found.column}", num_groups="{number}") {how}.',
        UserWarning,
    )


class _Roles(NamedTuple):
    """The roles of the sites.

    Attributes:
        latents: latent sites.
        observed: sites of the likelihood: event axes to keep apart, and the row axis.
        has_enumerated: whether there are discrete latent sites to sum out.
    """

    latents: list[str]
    observed: dict[str, tuple[int, int]]
    has_enumerated: bool


def _roles(
    few: dict[str, Site],
    more: dict[str, Site],
    prior_sites: tuple[str, ...],
    likelihood_sites: tuple[str, ...],
) -> _Roles:
    """Check the sites on few and on more rows, and return their roles."""
    declared = {*prior_sites, *likelihood_sites}
    if unknown := declared - set(few):
        raise ValueError(f"sites {sorted(unknown)} are declared but not in the model: {list(few)}.")
    latents: list[str] = []
    observed: dict[str, tuple[int, int]] = {}
    has_enumerated = False
    for name, site in few.items():
        if site.kind == "enumerated":
            _check_enumerated(site, more[name])
            has_enumerated = True
        elif site.kind == "latent":
            _check_latent(site, more[name])
            latents.append(name)
        elif site.kind == "factor" and name not in declared:
            raise ValueError(
                f"numpyro.factor({name!r}) may belong to the prior or to the likelihood: declare "
                f"it with from_numpyro(..., prior_sites=[{name!r}]) or, if its value is one number "
                f"per row, with likelihood_sites=[{name!r}]."
            )
        elif site.kind in ("observed", "factor") and name not in prior_sites:
            observed[name] = _row_axis(site, more[name])
    if not observed:
        raise ValueError(
            "the model must observe its rows with numpyro.sample(..., obs=...); got the sites "
            f"{list(few)}, none of which is observed."
        )
    if not latents:
        raise ValueError(f"the model must have a latent site to infer; got the sites {list(few)}.")
    return _Roles(latents, observed, has_enumerated)


def _check_latent(site: Site, more: Site) -> None:
    if site.is_discrete:
        raise ValueError(
            f"latent site {site.name!r} is discrete, and gradient-based samplers cannot sample it: "
            "sum it out, with dist.MixtureSameFamily instead of a latent assignment or, if it has "
            "one value per row, with numpyro.sample(..., infer={'enumerate': 'parallel'})."
        )
    if site.shape != more.shape:
        raise ValueError(
            f"latent site {site.name!r} has one value per row (shape {site.shape} for {FEW_ROWS} "
            f"rows, {more.shape} for {MORE_ROWS}), so that shards cannot share it: integrate it "
            "out of the likelihood (for a random effect per row, use the marginal distribution; "
            "for missing values, drop or impute them)."
        )


def _check_enumerated(site: Site, more: Site) -> None:
    if site.shape == more.shape:
        raise ValueError(
            f"discrete latent site {site.name!r} is shared by all rows, so that rows are not "
            "independent once it is summed out: fit the model for each of its values, or give each "
            "row a value of its own."
        )


def _row_axis(site: Site, more: Site) -> tuple[int, int]:
    """Return the number of event axes to keep apart, and the row axis of the log probability."""
    for depth, shapes in enumerate(zip(site.log_prob_shapes, more.log_prob_shapes, strict=True)):
        axis = row_axis(*shapes)
        if axis is not None:
            return depth, axis
    if site.kind == "factor":
        raise ValueError(
            f"numpyro.factor({site.name!r}) is declared as likelihood and must have one value per "
            f"row; got shape {site.log_prob_shapes[0]} for {FEW_ROWS} rows. Do not sum it over "
            "rows."
        )
    if site.shape == more.shape:
        raise ValueError(
            f"observed site {site.name!r} does not depend on the rows: its shape is {site.shape} "
            "for any number of rows, so that every shard would count it again. Pass its data per "
            "row, or move it into the prior with numpyro.factor and prior_sites=[...]."
        )
    raise ValueError(
        f"observed site {site.name!r} has one joint distribution over all rows, so that rows are "
        "not independent given the parameters and cannot be split into shards. Let each row be an "
        "independent unit, e.g. a whole series or group. If this is unintended, check the shapes: "
        "(N, 1) and (N,) broadcast to (N, N)."
    )


def _spaces(
    model: Seeded,
    sites: dict[str, Site],
    latents: list[str],
    rows: Rows,
    declared: Mapping[str, Space],
) -> dict[str, Space]:
    """Return the space of each latent site: the declared one, or that of its support."""
    if unknown := set(declared) - set(latents):
        raise ValueError(f"space names {sorted(unknown)}, but the latent sites are {latents}.")
    first, second = (trace_at(model.with_seed(seed), {}, rows) for seed in (1, 2))
    spaces: dict[str, Space] = {}
    for name in latents:
        shape = sites[name].shape
        support = first[name]["fn"].support
        if name in declared:
            if declared[name].shape != shape:
                raise ValueError(
                    f"space[{name!r}] must have the site's shape {shape}; got {declared[name]}."
                )
            spaces[name] = declared[name]
        elif _equal(support, second[name]["fn"].support):
            spaces[name] = Space(support, *shape)
        else:

            def support_given(earlier: Params, name: str = name) -> Constraint:
                return trace_at(model, earlier, rows)[name]["fn"].support

            spaces[name] = Dependent(support_given, support, *shape)
    return spaces


def _equal(first: Constraint, second: Constraint) -> bool:
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b) for a, b in leaves)


def _derived(
    model: Seeded,
    few: dict[str, Site],
    more: dict[str, Site],
    arrays: Rows,
    examples: list[dict[str, Array]],
) -> Derived | None:
    """Return the deterministic sites that do not depend on the rows, as a function of params."""
    deterministic = [name for name, site in few.items() if site.kind == "deterministic"]
    candidates = [name for name in deterministic if few[name].shape == more[name].shape]

    def values(params: Params, rows: Rows) -> Params:
        trace = trace_at(model, params, rows)
        return {name: jnp.asarray(trace[name]["value"]) for name in candidates}

    names = same_for_all_rows(jax.jit(values), candidates, examples, arrays) if candidates else []
    warn_of_omitted(name for name in deterministic if name not in names)
    if not names:
        return None
    template = neutral_rows(values, examples[0], arrays)

    def derived(params: Params) -> Params:
        all_values = values(params, template)
        return {name: all_values[name] for name in names}

    return derived


def _check_arguments(
    model: Callable[..., Any], arrays: Mapping[str, Any], constants: Mapping[str, Any]
) -> None:
    """Refuse constants that a model does not take, and rows that do not have what it needs."""
    parameters = inspect.signature(model).parameters.values()
    named = {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    required = {p.name for p in parameters if p.default is p.empty and p.name in named}
    unknown = set() if takes_any else {*arrays, *constants} - named
    missing = required - {*arrays, *constants}
    is_read = takes_any or named & set(arrays)
    if missing or unknown & set(constants) or not is_read:  # other columns of rows are ignored
        raise ValueError(
            f"the names of rows and constants must be the model's arguments {sorted(named)}; got "
            f"rows {list(arrays)} and constants {list(constants)}"
            + (f", so {sorted(unknown)} are not arguments" if unknown else "")
            + (f", so {sorted(missing)} are missing" if missing else "")
            + "."
        )
