"""The sites of a NumPyro model, by tracing it without running it."""

import inspect
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.primitives import Messenger

from ...data.labels import Dims
from ...data.rows import Rows, native
from ...space import Params
from .checks import first_line

TRACE_LOCK = threading.RLock()
"""Held while NumPyro runs a model: its stack of handlers is shared by all threads, and shards are
evaluated in several."""

ORIGINAL_NAME = "vcmc_original_name"  # an entry of a site that has another name in results

Kind = Literal["latent", "enumerated", "observed", "factor", "deterministic"]

TRIAL_RADIUS = 1.0  # of trial values around zero, in real coordinates


class WithoutSlashes(Messenger):
    """Give sites the names that they have in results, which cannot have slashes as scopes have."""

    def process_message(self, msg: Any) -> None:
        if msg.get("name") and "/" in msg["name"]:
            msg[ORIGINAL_NAME] = msg["name"]
            msg["name"] = result_name(msg["name"])
        if msg.get("cond_indep_stack"):
            msg["cond_indep_stack"] = [
                frame._replace(name=result_name(frame.name)) for frame in msg["cond_indep_stack"]
            ]


def result_name(name: str) -> str:
    """Return the name of a site in results.

    >>> result_name("net/b")
    'net.b'
    """
    return name.replace("/", ".")


def renamed_sites(trace: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of sites in the model, by their names in results, where they differ."""
    return {name: site[ORIGINAL_NAME] for name, site in trace.items() if ORIGINAL_NAME in site}


def argument_names(model: Callable[..., Any]) -> set[str] | None:
    """Return the names of a model's arguments; None if it takes any."""
    parameters = inspect.signature(model).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind is not p.VAR_POSITIONAL}


def read_rows(model: Callable[..., Any], rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows that are arguments of a model: a partition may have more."""
    names = argument_names(model)
    return {name: array for name, array in rows.items() if names is None or name in names}


class Seeded:
    """A model with its constants, and a seed for the sites that are not substituted."""

    def __init__(self, model: Callable[..., Any], constants: Mapping[str, Any], seed: int = 0):
        self.model, self.constants, self.seed = model, constants, seed

    def __call__(self, **rows: Any) -> Any:
        seeded = handlers.seed(WithoutSlashes(self.model), jax.random.key(self.seed))
        return seeded(**read_rows(self.model, rows), **self.constants)

    def with_seed(self, seed: int) -> "Seeded":
        """Return the same model with another seed."""
        return Seeded(self.model, self.constants, seed)


class Site(NamedTuple):
    """A site in the trace of a model.

    Attributes:
        name: name of the site.
        kind: role of the site in the model.
        shape: shape of its value.
        dims: the plate of each axis of its value, or None.
        log_prob_shapes: shapes of its log probability with 0, 1, … event axes kept apart.
        num_batch_axes: number of batch axes of its distribution.
        is_discrete: whether its support is discrete.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    dims: Dims
    log_prob_shapes: tuple[tuple[int, ...], ...]
    num_batch_axes: int
    is_discrete: bool


def trace_at(model: Seeded, params: Params, rows: Rows) -> dict[str, Any]:
    """Return NumPyro's trace of the model at given params.

    Latent values that are not given are near zero in real coordinates. Draws from the prior may
    overflow, as those of InverseGamma(0.001, 0.001) do, and improper priors have none.
    """
    at_params = handlers.substitute(model, data=dict(params))
    with TRACE_LOCK:
        return handlers.trace(handlers.substitute(at_params, substitute_fn=_trial_value)).get_trace(
            **rows
        )


def _trial_value(site: dict[str, Any]) -> Array | None:
    """Return a value of a continuous latent site, or None for other sites."""
    if site["type"] != "sample" or site["value"] is not None or site["fn"].support.is_discrete:
        return None
    shape = (*site["kwargs"].get("sample_shape", ()), *site["fn"].shape())
    transform = biject_to(site["fn"].support)
    uniform = dist.Uniform(-TRIAL_RADIUS, TRIAL_RADIUS)
    return transform(uniform.sample(site["kwargs"]["rng_key"], transform.inverse_shape(shape)))


class _Recorder(Messenger):
    """Records the plates of a model and the last of its sites, to say where it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.plates: dict[str, int] = {}
        self.last_site = ""

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            self.plates[msg["name"]] = msg["args"][0]
        elif msg["type"] == "sample":
            self.last_site = msg["name"]


def sites_on(model: Seeded, arrays: Rows, num_rows: int) -> dict[str, Site]:
    """Return the model's sites on a number of abstract rows."""
    sites: dict[str, Site] = {}
    problems: list[str] = []
    recorder = _Recorder()

    def run(rows: Rows) -> None:
        with recorder:
            trace = trace_at(model, {}, rows)
        for name, site in trace.items():
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
        name: jax.ShapeDtypeStruct((num_rows, *array.shape[1:]), native(array[:1]).dtype)
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
    except NotImplementedError as error:
        raise ValueError(
            f"site {recorder.last_site!r} must have a distribution with a sampler, or a support "
            f"with a bijection from real coordinates; got neither ({first_line(error)}). For a "
            "flat prior use dist.ImproperUniform or dist.Normal(0, 1).mask(False), which is exact."
        ) from None
    except (TypeError, ValueError) as error:
        raise ValueError(_fails(model, arrays, num_rows, recorder.plates, error)) from None
    if problems:
        raise ValueError(problems[0])
    return sites


def _fails(
    model: Seeded, arrays: Rows, num_rows: int, plates: Mapping[str, int], error: Exception
) -> str:
    """Return the message about a model that fails on a number of rows."""
    message = (
        f"the model must run on any number of rows, but fails on {num_rows}: {first_line(error)}"
    )
    first = next(iter(arrays))
    total = len(arrays[first])
    counts = [name for name, value in model.constants.items() if _is_number(value, total)]
    sized = [name for name, size in plates.items() if size == total and total != num_rows]
    for plate in sized[:1]:
        message += (
            f" Its plate {plate!r} has {total} elements, however many rows there are: take its "
            f'size from the rows, e.g. numpyro.plate("{plate}", {first}.shape[0]).'
        )
    for name in counts[:1]:
        message += (
            f" constants[{name!r}] = {total} is the number of rows, of which a shard has fewer: "
            f"use {first}.shape[0] in its place."
        )
    if sized or counts:
        return message
    return message + (
        f" Is a size hard-coded in it? Use {first}.shape[0] for the number of rows. Is one of its "
        "arguments not per row? Pass it in constants={...}."
    )


def _is_number(value: Any, number: int) -> bool:
    return jnp.ndim(value) == 0 and not isinstance(value, bool | str) and value == number


def _site(name: str, site: dict[str, Any]) -> Site:
    if site["type"] == "deterministic":
        shape = jnp.shape(site["value"])
        return Site(name, "deterministic", shape, _dims(site, shape, 0), (), 0, False)
    fn, shape = site["fn"], jnp.shape(site["value"])
    dims = _dims(site, shape, len(fn.event_shape))
    shapes = [jnp.shape(log_prob(site))]
    while isinstance(fn, dist.Independent):
        fn = fn.base_dist
        shapes.append(jnp.shape(fn.log_prob(site["value"])))
    return Site(
        name,
        _kind(site),
        shape,
        dims,
        tuple(shapes),
        len(site["fn"].batch_shape),
        bool(site["fn"].support.is_discrete),
    )


def _dims(site: dict[str, Any], shape: tuple[int, ...], num_event_axes: int) -> Dims:
    """Return the plate of each axis of a value, or None."""
    dims: list[str | None] = [None] * len(shape)
    for plate in site["cond_indep_stack"]:
        axis = len(shape) - num_event_axes + plate.dim
        if 0 <= axis < len(shape) and shape[axis] == plate.size:
            dims[axis] = plate.name
    return tuple(dims)


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
