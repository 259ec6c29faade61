"""The sites of a NumPyro model, found by tracing it without running it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers

from ...data.rows import Rows
from ...space import Params

TRACING = threading.RLock()
"""Held while NumPyro runs a model: its stack of handlers is one for all threads, and shards are evaluated in several."""


class Seeded:
    """A model with its constants filled in, and a seed for the sites that are not given a value."""

    def __init__(self, model: Callable[..., Any], constants: Mapping[str, Any], seed: int = 0):
        self.model, self.constants, self.seed = model, constants, seed

    def __call__(self, **rows: Any) -> Any:
        seeded = handlers.seed(self.model, jax.random.key(self.seed))
        return seeded(**rows, **self.constants)

    def with_seed(self, seed: int) -> "Seeded":
        """The same model, with other values where it is free to choose them."""
        return Seeded(self.model, self.constants, seed)


class Site(NamedTuple):
    """What the trace of a model on so many rows tells of a site."""

    name: str
    kind: str
    shape: tuple[int, ...]
    log_prob_shapes: tuple[tuple[int, ...], ...]
    """Shapes of the log probability with 0, 1, … event axes told apart."""
    num_batch_axes: int
    is_discrete: bool


def trace_at(model: Seeded, params: Params, rows: Rows) -> dict[str, Any]:
    """NumPyro's trace of the model at given params."""
    with TRACING:
        return handlers.trace(handlers.substitute(model, data=dict(params))).get_trace(**rows)


def sites_on(model: Seeded, arrays: Rows, num_rows: int) -> dict[str, Site]:
    """The model's sites on abstract rows of a given number."""
    found: dict[str, Site] = {}
    problems: list[str] = []

    def run(rows: Rows) -> None:
        for name, site in handlers.trace(model).get_trace(**rows).items():
            if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
                problems.append(
                    f"plate {name!r} subsamples its rows, which vcmc's shards do already: leave out "
                    "subsample_size."
                )
            elif site["type"] == "param":
                problems.append(
                    f"numpyro.param({name!r}) is for optimisation and has no posterior: make it a constant, or "
                    "give it a prior with numpyro.sample."
                )
            elif site["type"] in ("sample", "deterministic"):
                found[name] = _site(name, site)

    abstract = {
        name: jax.ShapeDtypeStruct((num_rows, *array.shape[1:]), jnp.asarray(array[:1]).dtype)
        for name, array in arrays.items()
    }
    try:
        jax.eval_shape(run, abstract)
    except jax.errors.ConcretizationTypeError as error:
        raise ValueError(
            "the model computes a Python number from the values of its rows, such as int(x.max()), and cannot "
            f"be compiled: compute it beforehand and pass it in constants={{...}} ({_first_line(error)})."
        ) from None
    except NotImplementedError:
        raise ValueError(
            "a latent site has a distribution that cannot be drawn from, such as ImproperUniform: give it a proper "
            "prior, however wide. A shard that says little on it would have no posterior otherwise."
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model must run on any number of rows, but not on {num_rows}: {_first_line(error)} Is a size "
            "hard-coded in it? Write x.shape[0] for the number of rows. Is one of its arguments not per row? "
            "Pass it in constants={...}."
        ) from None
    if problems:
        raise ValueError(problems[0])
    return found


def _site(name: str, site: dict[str, Any]) -> Site:
    if site["type"] == "deterministic":
        return Site(name, "deterministic", jnp.shape(site["value"]), (), 0, False)
    fn = site["fn"]
    kind = "observed" if site["is_observed"] else "latent"
    if isinstance(fn, dist.Unit):
        kind = "factor"
    elif kind == "latent" and site["infer"].get("enumerate") == "parallel":
        kind = "enumerated"
    shapes = [jnp.shape(log_prob(site))]
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
        shapes.append(jnp.shape(fn.log_prob(site["value"])))
    return Site(
        name,
        kind,
        jnp.shape(site["value"]),
        tuple(shapes),
        len(site["fn"].batch_shape),
        bool(site["fn"].support.is_discrete),
    )


def log_prob(site: dict[str, Any], depth: int = 0) -> Array:
    """Log probability of a site's value, scaled as handlers say, with so many event axes told apart."""
    fn = site["fn"]
    for _ in range(depth):
        fn = fn.base_dist
    values = fn.log_prob(site["value"])
    return values if site["scale"] is None else site["scale"] * values


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
