"""The problems' models in PyMC: each function returns a model of the given rows.

Parameters are named as in the NumPyro model; auxiliary variables have names of their own.
"""

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
    """Use our own log Φ.

    PyMC's has no JAX implementation, and `invprobit` is 0 or 1 in the tails, where chains may
    start.
    """
    import pymc as pm

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=rows["x"].shape[1])
        signed = pm.Data("signed", (2 * rows["y"] - 1)[:, None] * rows["x"])
        pm.Potential("obs", _log_normal_cdf(signed @ beta).sum())
    return model


def _log_normal_cdf(score: Any) -> Any:
    import pytensor.tensor as pt

    is_tail = score < -10  # below, the asymptotic series of Φ
    centre = pt.log(0.5 * pt.erfc(-pt.switch(is_tail, 0.0, score) / np.sqrt(2)))
    x = pt.switch(is_tail, score, -10.0)
    series = pt.log1p(-(x**-2.0) + 3 * x**-4.0 - 15 * x**-6.0 + 105 * x**-8.0)
    return pt.switch(is_tail, -0.5 * x**2 - pt.log(-x) - 0.5 * np.log(2 * np.pi) + series, centre)


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
        # ordered centres from a normal vector, with exponential increments, as in NumPyro
        base = pm.Normal("base", 0, 3, shape=3)
        steps = pm.math.concatenate([base[:1], pm.math.exp(base[1:])])
        centres = pm.Deterministic("centres", pm.math.cumsum(steps))
        scales = pm.LogNormal("scales", 0, 0.5, shape=3)
        shares = pm.Dirichlet("shares", np.ones(3))
        pm.NormalMixture("obs", w=shares, mu=centres, sigma=scales, observed=rows["y"])
    return model


def wishart(rows: Rows) -> Any:
    """Use Bartlett's decomposition: PyMC's Wishart distribution cannot be sampled."""
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


def hierarchical(is_binary: bool, is_centred: bool) -> Callable[[Rows], Any]:
    """Return a regression with local intercepts, with the priors of `grouped_problems.py`."""

    def make(rows: Rows) -> Any:
        import pymc as pm

        with pm.Model() as model:
            x, group = pm.Data("x", rows["x"]), pm.Data("group", rows["group"])
            beta = pm.Normal("beta", 0, 2.0, shape=rows["x"].shape[1])
            tau = pm.HalfNormal("tau", 1.0)
            num_groups = int(rows["group"][-1]) + 1
            if is_centred:
                u = pm.Normal("u", 0, tau, shape=num_groups)
            else:
                u = pm.Deterministic("u", tau * pm.Normal("z", 0, 1, shape=num_groups))
            score = x @ beta + u[group]
            if is_binary:
                pm.Bernoulli("obs", logit_p=score, observed=rows["y"])
            else:
                sigma = pm.HalfNormal("sigma", 2.0)
                pm.Normal("obs", score, sigma, observed=rows["y"])
        return model

    return make
