"""The arena's models once more, in PyMC: rows in, model out. What the NumPyro model does not have is not named after one of its parameters."""

from collections.abc import Callable
from typing import Any

import numpy as np

Rows = dict[str, np.ndarray]


def logistic(scale: float) -> Callable[[Rows], Any]:
    def make(rows: Rows) -> Any:
        import pymc as pm

        with pm.Model() as model:
            x, y = pm.Data("x", rows["x"]), pm.Data("y", rows["y"])
            beta = pm.Normal("beta", 0, scale, shape=rows["x"].shape[1])
            pm.Bernoulli("obs", logit_p=x @ beta, observed=y)
        return model

    return make


def probit(rows: Rows) -> Any:
    """PyMC's own logarithm of the normal distribution function has no JAX program, and `invprobit` is 0 or 1 far out, where chains may begin."""
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=rows["x"].shape[1])
        signed = pm.Data("signed", (2 * rows["y"] - 1)[:, None] * rows["x"])
        pm.Potential("obs", _log_normal_cdf(signed @ beta).sum())
    return model


def _log_normal_cdf(score: Any) -> Any:
    import pytensor.tensor as pt

    far = score < -10
    near = pt.log(0.5 * pt.erfc(-pt.switch(far, 0.0, score) / np.sqrt(2)))
    away = pt.switch(far, score, -10.0)
    series = pt.log1p(-(away**-2.0) + 3 * away**-4.0 - 15 * away**-6.0 + 105 * away**-8.0)
    return pt.switch(far, -0.5 * away**2 - pt.log(-away) - 0.5 * np.log(2 * np.pi) + series, near)


def poisson(rows: Rows) -> Any:
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=10)
        shape = pm.HalfNormal("shape", 2.0)
        rate = pm.math.exp(pm.Data("x", rows["x"]) @ beta)
        pm.NegativeBinomial("obs", mu=rate, alpha=shape, observed=rows["y"])
    return model


def robust(rows: Rows) -> Any:
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=8)
        scale = pm.LogNormal("scale", 0, 1)
        dof = pm.Gamma("dof", alpha=2, beta=0.1)
        centre = pm.Data("x", rows["x"]) @ beta
        pm.StudentT("obs", nu=dof, mu=centre, sigma=scale, observed=rows["y"])
    return model


def mixture(rows: Rows) -> Any:
    import pymc as pm

    with pm.Model() as model:
        # an unconstrained normal whose increments are exponentials: the prior of the NumPyro model
        base = pm.Normal("base", 0, 3, shape=3)
        steps = pm.math.concatenate([base[:1], pm.math.exp(base[1:])])
        centres = pm.Deterministic("centres", pm.math.cumsum(steps))
        scales = pm.LogNormal("scales", 0, 0.5, shape=3)
        shares = pm.Dirichlet("shares", np.ones(3))
        pm.NormalMixture("obs", w=shares, mu=centres, sigma=scales, observed=rows["y"])
    return model


def wishart(rows: Rows) -> Any:
    """By Bartlett's decomposition: PyMC's own Wishart distribution cannot be sampled."""
    import pymc as pm
    import pytensor.tensor as pt

    dim = rows["x"].shape[1]
    below = np.tril_indices(dim, -1)
    with pm.Model() as model:
        squares = pm.ChiSquared("squares", dim + 2.0 - np.arange(dim), shape=dim)
        normals = pm.Normal("normals", 0, 1, shape=len(below[0]))
        root = pt.diag(pm.math.sqrt(squares))[below].set(normals)
        precision = pm.Deterministic("precision", root @ root.T / (dim + 2))
        pm.MvNormal("obs", np.zeros(dim), tau=precision, observed=rows["x"])
    return model
