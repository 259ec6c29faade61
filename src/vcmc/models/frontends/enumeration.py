"""Sum discrete latent values of single rows out of a NumPyro model, with funsor.

A row's likelihood is its joint density with the discrete values summed out, less the prior. It is
computed one row at a time.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...data.rows import Rows
from ...model import LogLikelihood
from ...space import Params, Scalar
from .sites import TRACE_LOCK


def enumerated_log_likelihood(
    model: Callable[..., Any], log_prior: Callable[[Params], Scalar], num_batch_axes: int
) -> LogLikelihood:
    """Return the log likelihood per row of a model with `infer={"enumerate": "parallel"}` sites.

    `num_batch_axes` is the number of batch axes that the model itself uses: funsor takes the next.
    """
    try:
        import funsor
        from numpyro.contrib.funsor import config_enumerate, enum
        from numpyro.contrib.funsor.infer_util import log_density
    except ImportError:
        raise ImportError(
            "summing out discrete latent sites needs funsor. Try: pip install 'vcmc[enum]'"
        ) from None
    funsor.set_backend("jax")
    enumerated = enum(config_enumerate(model), -1 - num_batch_axes)

    def log_likelihood(params: Params, rows: Rows) -> Float[Array, " row"]:
        def log_joint(row: dict[str, Array]) -> Scalar:
            single = {name: value[None] for name, value in row.items()}
            with TRACE_LOCK:
                return log_density(enumerated, (), single, dict(params))[0]

        arrays = {name: jnp.asarray(array) for name, array in rows.items()}
        return jax.vmap(log_joint)(arrays) - log_prior(params)

    return log_likelihood
