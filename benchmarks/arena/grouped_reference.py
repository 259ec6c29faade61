r"""The reference of hierarchical problems: local effects integrated out exactly, by own code.

The marginal likelihood of the globals is a closed form for normal outcomes, and the trapezoidal
rule on fixed nodes for binary ones, $\int N(u; 0, \tau^2) \prod_i p(y_i \mid x_i^\top \beta + u)
\,du$, which converges exponentially. Globals come from importance sampling of that density
(`weighting.py`). A local effect is a mixture of its conditional densities over these points. No
code is shared with vcmc's integration, which puts nodes around the mode of every group.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from answer import Draws, named
from density import Density
from grouped_problems import COEFFICIENT_SD, SIGMA_SD, TAU_SD, GroupedProblem
from scipy.interpolate import CubicSpline
from scipy.special import ndtr
from truth import LEVELS, Truth
from weighting import by_importance

SPACING = 0.2  # of the nodes: the rule is exact to 1e-8 for a normal density of sd 0.2
NODES = np.arange(-6.0, 6.0 + SPACING / 2, SPACING)
MIN_LOCAL_SD, MAX_TAU = 0.2, 1.0  # what the nodes suffice for: they reach six prior sds
PROPOSAL_DOF = 20.0  # the log sd of few effects has a heavier tail than a normal density
MAX_PAIRS = 20_000  # of points, where evaluations are cheap
MAX_LOCAL_POINTS = 2000  # local effects depend little on globals, which differ between points
NUM_BISECTIONS = 50
FINE = 20  # points per node, for quantiles


class Marginal(NamedTuple):
    """A likelihood of globals, and what it says about local effects.

    Attributes:
        log_density: log likelihood of named globals.
        local: from named globals (point, …) and weights to mean, sd and quantiles (4, group).
        num_terms: numbers that one evaluation takes.
    """

    log_density: Callable[[Any], Any]
    local: Callable[[Draws, np.ndarray], np.ndarray]
    num_terms: int


def grouped_reference(problem: GroupedProblem) -> Truth:
    """Return means, sds and quantiles of globals and of the scored local effects."""
    marginal = _binary(problem) if problem.is_binary else _normal(problem)
    density = _density(problem, marginal.log_density)

    def local(points: np.ndarray, weights: np.ndarray) -> Draws:
        weights = weights[:MAX_LOCAL_POINTS] / weights[:MAX_LOCAL_POINTS].sum()
        return {"u": marginal.local(density.params(points[:MAX_LOCAL_POINTS]), weights)}

    return by_importance(density, marginal.num_terms, local, PROPOSAL_DOF, MAX_PAIRS)


def _density(problem: GroupedProblem, log_likelihood: Callable[[Any], Any]) -> Density:
    """Return the density of the coefficients and the logarithms of the sds."""
    dim = problem.rows["x"].shape[1]
    prior_sds = {"tau": TAU_SD} | ({} if problem.is_binary else {"sigma": SIGMA_SD})

    def constrain(point: Any) -> Any:
        sds = dict(zip(prior_sds, jnp.exp(point[dim:]), strict=True))
        return {"beta": point[:dim], **sds}

    def log_density(point: Any) -> Any:
        params = constrain(point)
        prior = -0.5 * jnp.sum((params["beta"] / COEFFICIENT_SD) ** 2) + jnp.sum(point[dim:])
        prior -= sum(0.5 * (params[name] / sd) ** 2 for name, sd in prior_sds.items())
        return prior + log_likelihood(params)

    def params(points: Any) -> Draws:
        return named(jax.vmap(constrain)(jnp.asarray(points)))

    return Density(jnp.zeros(dim + len(prior_sds)).at[dim:].set(-0.5), log_density, params)


def _normal(problem: GroupedProblem) -> Marginal:
    """Integrate normal outcomes by sums over rows and groups."""
    group, x, y = (problem.rows[name] for name in ("group", "x", "y"))
    sizes = np.bincount(group).astype(float)
    sums = np.stack([np.bincount(group, column) for column in x.T], axis=1)
    totals = np.bincount(group, y)
    gram, moments, square, num_rows = x.T @ x, x.T @ y, y @ y, len(y)

    def log_density(params: Any) -> Any:
        beta, tau, sigma = params["beta"], params["tau"], params["sigma"]
        residuals = totals - sums @ beta
        variances = sigma**2 + sizes * tau**2
        squares = square - 2 * beta @ moments + beta @ gram @ beta
        squares -= jnp.sum(tau**2 * residuals**2 / variances)
        log_det = (num_rows - len(sizes)) * 2 * jnp.log(sigma) + jnp.sum(jnp.log(variances))
        return -0.5 * (squares / sigma**2 + log_det)

    def local(params: Draws, weights: np.ndarray) -> np.ndarray:
        tau, sigma = params["tau"][:, None], params["sigma"][:, None]
        scored = problem.scored
        residuals = totals[scored] - params["beta"] @ sums[scored].T
        variances = sigma**2 + sizes[scored] * tau**2
        return _normal_mixture(
            tau**2 * residuals / variances, tau * sigma / np.sqrt(variances), weights
        )

    return Marginal(log_density, local, len(sizes) * (x.shape[1] + 4))


def _normal_mixture(means: np.ndarray, sds: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return mean, sd and quantiles of mixtures of normals (point, group)."""
    mean = weights @ means
    sd = np.sqrt(weights @ (sds**2 + (means - mean) ** 2))
    quantiles = []
    for level in LEVELS:
        low, high = mean - 6 * sd, mean + 6 * sd
        for _ in range(NUM_BISECTIONS):
            middle = (low + high) / 2
            is_below = weights @ ndtr((middle - means) / sds) < level
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        quantiles.append(middle)
    return np.stack([mean, sd, *quantiles])


def _binary(problem: GroupedProblem) -> Marginal:
    """Integrate binary outcomes by the trapezoidal rule."""

    def at_nodes(params: Any, rows: Any, num_groups: int) -> Any:
        """Return log p(y_g, u) (node, group)."""
        offsets = rows["x"] @ params["beta"]

        def at_node(node: Any) -> Any:
            score = offsets + node
            terms = rows["y"] * score - jnp.maximum(score, 0) - jnp.log1p(jnp.exp(-jnp.abs(score)))
            return jax.ops.segment_sum(terms, rows["group"], num_groups, indices_are_sorted=True)

        log_prior = -0.5 * (NODES / params["tau"]) ** 2 - jnp.log(params["tau"])
        return jax.lax.map(at_node, jnp.asarray(NODES)) + log_prior[:, None]

    def log_density(params: Any) -> Any:
        rows = jax.tree.map(jnp.asarray, problem.rows)
        return jnp.sum(
            jax.scipy.special.logsumexp(at_nodes(params, rows, problem.num_groups), axis=0)
        )

    def local(params: Draws, weights: np.ndarray) -> np.ndarray:
        if not weights @ params["tau"] < MAX_TAU:
            raise RuntimeError("effects vary too much for the nodes of the reference.")
        chosen = np.isin(problem.rows["group"], problem.scored)
        rows = {name: jnp.asarray(array[chosen]) for name, array in problem.rows.items()}
        rows["group"] = jnp.searchsorted(jnp.asarray(problem.scored), rows["group"])

        @jax.jit
        def shares(params: Any) -> Any:
            return jax.nn.softmax(at_nodes(params, rows, len(problem.scored)), axis=0)

        density = sum(
            weight * np.asarray(shares({name: values[i] for name, values in params.items()}))
            for i, weight in enumerate(weights)
        )
        return _on_nodes(density)

    return Marginal(log_density, local, problem.num_rows * len(NODES))


def _on_nodes(density: np.ndarray) -> np.ndarray:
    """Return mean, sd and quantiles of densities on the nodes (node, group)."""
    mean = NODES @ density
    sd = np.sqrt(NODES**2 @ density - mean**2)
    if not sd.min() > MIN_LOCAL_SD:
        raise RuntimeError("a local effect is known too well for the nodes of the reference.")
    fine = np.linspace(NODES[0], NODES[-1], FINE * (len(NODES) - 1) + 1)
    smooth = np.exp(CubicSpline(NODES, np.log(np.maximum(density, 1e-300)))(fine))
    shares = np.cumsum(smooth, axis=0) - 0.5 * smooth
    shares /= smooth.sum(axis=0)
    quantiles = [[np.interp(level, column, fine) for column in shares.T] for level in LEVELS]
    return np.stack([mean, sd, *np.array(quantiles)])
