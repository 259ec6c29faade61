"""Factorizations of many small matrices at once, written out entry by entry.

LAPACK, which JAX calls for a batch, takes longer to be called than to factorize a 2 × 2 matrix.
Entries are arrays over groups: a matrix is a list of lists of them.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_PIVOT = 1e-10  # relative to the diagonal; smaller pivots are those of a singular matrix


def positive_cholesky(
    matrices: Float[Array, "group dim dim"],
) -> Float[Array, "group dim dim"]:
    """Return lower Cholesky factors; of a matrix that is not positive, those of a similar one.

    A pivot that is not positive is replaced by its absolute value.
    """
    dim = matrices.shape[-1]
    zero = jnp.zeros_like(matrices[:, 0, 0])
    factor: list[list[Array]] = [[zero] * dim for _ in range(dim)]
    for j in range(dim):
        diagonal = matrices[:, j, j]
        pivot = diagonal - sum((factor[j][k] ** 2 for k in range(j)), zero)
        least = MIN_PIVOT * jnp.maximum(jnp.abs(diagonal), MIN_PIVOT)
        pivot = jnp.where(pivot > least, pivot, jnp.maximum(jnp.abs(pivot), least))
        factor[j][j] = jnp.sqrt(pivot)
        for i in range(j + 1, dim):
            entry = matrices[:, i, j] - sum((factor[i][k] * factor[j][k] for k in range(j)), zero)
            factor[i][j] = entry / factor[j][j]
    return jnp.stack([jnp.stack(row, axis=-1) for row in factor], axis=-2)


def inverse_transpose(factors: Float[Array, "group dim dim"]) -> Float[Array, "group dim dim"]:
    """Return the transposes of the inverses of lower triangular matrices."""
    dim = factors.shape[-1]
    zero = jnp.zeros_like(factors[:, 0, 0])
    inverse: list[list[Array]] = [[zero] * dim for _ in range(dim)]
    for j in range(dim):
        inverse[j][j] = 1 / factors[:, j, j]
        for i in range(j + 1, dim):
            total = sum((factors[:, i, k] * inverse[k][j] for k in range(j, i)), zero)
            inverse[i][j] = -total / factors[:, i, i]
    # entry (row, column) of the transpose is entry (column, row) of the inverse
    return jnp.stack(
        [jnp.stack([inverse[i][j] for i in range(dim)], axis=-1) for j in range(dim)], axis=-2
    )


def apply_squares(roots: Float[Array, "group dim dim"], vectors: Array) -> Array:
    r"""Return the products of $R R^\top$ with vectors."""
    return apply(roots, apply(jnp.swapaxes(roots, 1, 2), vectors))


def apply(matrices: Float[Array, "group dim dim"], vectors: Array) -> Float[Array, "group dim"]:
    """Return the products of matrices with vectors, one for each or one for all."""
    return jnp.sum(matrices * vectors[..., None, :], axis=-1)
