"""The test functions of the paper: moments of a vector, in three classes."""

import numpy as np
from jaxtyping import Array, Float


def moments(vector: Float[Array, " dim"]) -> dict[str, Array]:
    """Return first moments, squares, and products of pairs.

    >>> import jax.numpy as jnp
    >>> {name: values.tolist() for name, values in moments(jnp.array([2.0, 3.0])).items()}
    {'first': [2.0, 3.0], 'pure second': [4.0, 9.0], 'mixed second': [6.0]}
    """
    rows, columns = np.triu_indices(len(vector), 1)
    return {
        "first": vector,
        "pure second": vector**2,
        "mixed second": vector[rows] * vector[columns],
    }
