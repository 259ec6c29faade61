r"""Probit regression.

$$\beta \sim N(0, \sigma^2 I), \qquad P(y_n = 1 \mid x_n, \beta) = \Phi(x_n^\top \beta).$$
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from ..model import Model
from ..space import Real


class Probit(Model):
    """Probit regression with rows `x`, an array (row, dim), and `y`, zeros and ones.

    >>> Probit(5)
    Probit(beta: Real(shape=(5,)))
    """

    def __init__(self, dim: int, prior_scale: float = 1.0):
        super().__init__(
            space={"beta": Real(dim)},
            log_prior=lambda params: jnp.sum(norm.logpdf(params["beta"], scale=prior_scale)),
            log_likelihood=lambda params, rows: norm.logcdf(
                (2 * rows["y"] - 1) * (rows["x"] @ params["beta"])
            ),
        )
        self.dim = dim
        self.prior_scale = prior_scale


def rare_covariate(seed: int, num_rows: int) -> dict[str, np.ndarray]:
    """Rows with an intercept and four binary covariates, one of them rare but telling.

    The design of Scott et al. (2016): frequencies (0.2, 0.3, 0.5, 0.01), coefficients
    (−3, 1.2, −0.5, 0.8, 3).
    """
    generator = np.random.default_rng(seed)
    covariates = generator.random((num_rows, 4)) < [0.2, 0.3, 0.5, 0.01]
    x = np.column_stack([np.ones(num_rows), covariates])
    latent = x @ [-3.0, 1.2, -0.5, 0.8, 3.0] + generator.normal(size=num_rows)
    return {"x": x, "y": (latent > 0).astype(float)}
