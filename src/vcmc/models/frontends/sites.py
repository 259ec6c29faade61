"""The sites of a NumPyro model, by tracing it without running it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers

from ...data.rows import Rows
from ...space import Params
from .checks import first_line

TRACE_LOCK = threading.RLock()
"""Held while NumPyro runs a model: its stack of handlers is shared by all threads, and shards are
evaluated in several."""

Kind = Literal["latent", "enumerated", "observed", "factor", "deterministic"]


class Seeded:
    """A model with its constants, and a seed for the sites that are not substituted."""

    def __init__(self, model: Callable[..., Any], constants: Mapping[str, Any], seed: int = 0):
        self.model, self.constants, self.seed = model, constants, seed

    def __call__(self, **rows: Any) -> Any:
        seeded = handlers.seed(self.model, jax.random.key(self.seed))
        return seeded(**rows, **self.constants)

    def with_seed(self, seed: int) -> "Seeded":
        """Return the same model with another seed."""
        return Seeded(self.model, self.constants, seed)


class Site(NamedTuple):
    """A site in the trace of a model.

    Attributes:
        name: name of the site.
        kind: role of the site in the model.
        shape: shape of its value.
        log_prob_shapes: shapes of its log probability with 0, 1, … event axes kept apart.
        num_batch_axes: number of batch axes of its distribution.
        is_discrete: whether its support is discrete.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    log_prob_shapes: tuple[tuple[int, ...], ...]
    num_batch_axes: int
    is_discrete: bool


def trace_at(model: Seeded, params: Params, rows: Rows) -> dict[str, Any]:
    """Return NumPyro's trace of the model at given params."""
    with TRACE_LOCK:
        return handlers.trace(handlers.substitute(model, data=dict(params))).get_trace(**rows)


def sites_on(model: Seeded, arrays: Rows, num_rows: int) -> dict[str, Site]:
    """Return the model's sites on a number of abstract rows."""
    sites: dict[str, Site] = {}
    problems: list[str] = []

    def run(rows: Rows) -> None:
        for name, site in handlers.trace(model).get_trace(**rows).items():
            if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
                problems.append(
                    f"plate {name!r} subsamples its rows, as vcmc's shards already do: leave out "
                    "subsample_size."
                )
            elif site["type"] == "param":
                problems.append(
                    f"numpyro.param({name!r}) is for optimization and has no posterior: make it a "
                    "constant, or give it a prior with numpyro.sample."
                )
            elif site["type"] in ("sample", "deterministic"):
                sites[name] = _site(name, site)

    abstract = {
        name: jax.ShapeDtypeStruct((num_rows, *array.shape[1:]), jnp.asarray(array[:1]).dtype)
        for name, array in arrays.items()
    }
    try:
        jax.eval_shape(run, abstract)
    except jax.errors.ConcretizationTypeError as error:
        raise ValueError(
            "the model computes a Python number from the values of its rows, e.g. int(x.max()), "
            "and cannot be compiled: compute it beforehand and pass it in constants={...} "
            f"({first_line(error)})."
        ) from None
    except NotImplementedError:
        raise ValueError(
            "a latent site has a distribution without a sampler, e.g. ImproperUniform: give it a "
            "proper prior, however wide. Otherwise a shard with little information on it has no "
            "posterior."
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model must run on any number of rows, but fails on {num_rows}: "
            f"{first_line(error)} Is a size hard-coded in it? Use x.shape[0] for the number of "
            "rows. Is one of its arguments not per row? Pass it in constants={...}."
        ) from None
    if problems:
        raise ValueError(problems[0])
    return sites


def _site(name: str, site: dict[str, Any]) -> Site:
    if site["type"] == "deterministic":
        return Site(name, "deterministic", jnp.shape(site["value"]), (), 0, False)
    fn = site["fn"]
    shapes = [jnp.shape(log_prob(site))]
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
        shapes.append(jnp.shape(fn.log_prob(site["value"])))
    return Site(
        name,
        _kind(site),
        jnp.shape(site["value"]),
        tuple(shapes),
        len(site["fn"].batch_shape),
        bool(site["fn"].support.is_discrete),
    )


def _kind(site: dict[str, Any]) -> Kind:
    if isinstance(site["fn"], dist.Unit):
        return "factor"
    if site["is_observed"]:
        return "observed"
    return "enumerated" if site["infer"].get("enumerate") == "parallel" else "latent"


def log_prob(site: dict[str, Any], depth: int = 0) -> Array:
    """Return the scaled log probability of a site's value, with `depth` event axes kept apart."""
    fn = site["fn"]
    for _ in range(depth):
        fn = fn.base_dist
    values = fn.log_prob(site["value"])
    return values if site["scale"] is None else site["scale"] * values
