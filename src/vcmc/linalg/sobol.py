"""Points that fill the unit cube evenly: scrambled Sobol points, and Latin hypercubes.

Each Sobol point is uniform, and the error of a mean over $n$ of them falls almost like $n^{-3/2}$
for smooth functions (Owen, *Scrambled net variance for integrals of smooth functions*, 1997). Those
of a Latin hypercube are even along each axis, and take no time to import.
"""

import warnings

import numpy as np
from jaxtyping import Float

MIN_LEVEL = 1e-12  # distance of points from the ends, whose normal quantiles are infinite


def sobol_points(
    count: int, dim: int, generator: np.random.Generator
) -> Float[np.ndarray, "count dim"]:
    """Return points of the open unit cube.

    >>> points = sobol_points(1000, 2, np.random.default_rng(0))
    >>> bool(np.abs(points.mean(axis=0) - 0.5).max() < 0.001)
    True
    """
    from scipy.stats.qmc import Sobol  # here, as it takes as long to import as half of vcmc

    with warnings.catch_warnings():
        # counts that are no powers of two are less even, and far more so than random points
        warnings.simplefilter("ignore", UserWarning)
        points = Sobol(dim, scramble=True, rng=generator).random(count)
    return np.clip(points, MIN_LEVEL, 1 - MIN_LEVEL)


def latin_points(
    count: int, dim: int, generator: np.random.Generator
) -> Float[np.ndarray, "count dim"]:
    """Return points of the open unit cube, of which every axis has one in each of `count` parts.

    >>> points = latin_points(4, 2, np.random.default_rng(0))
    >>> np.sort(np.floor(4 * points), axis=0)[:, 1]
    array([0., 1., 2., 3.])
    """
    places = generator.permuted(np.tile(np.arange(count), (dim, 1)), axis=1).T
    points = (places + generator.uniform(size=(count, dim))) / max(1, count)
    return np.clip(points, MIN_LEVEL, 1 - MIN_LEVEL)
