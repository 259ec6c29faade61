r"""A density fitted to the draws of an old posterior, which stands for rows that are gone.

$$\log q(u) = \log N(w; 0, I) + \log \Bigl|\frac{d w}{d u}\Bigr|, \qquad
  w = R_3^{-1} \bigl(g_2(R_2^{-1} g_1(R_1^{-1} (u - c_1))) - c_3\bigr).$$

The roots $R$ whiten: $R_1$ has the sds of the coordinates, $R_2$ is along the principal axes. The
maps $g$ act on each coordinate, $g(x) = \sinh(\delta \operatorname{asinh}((x - \xi) / \lambda)
- \epsilon)$ of Jones and Pewsey, *Sinh-arcsinh distributions* (2009): $\epsilon$ makes skewness,
$\delta$ tails. They are fitted by maximum likelihood, and kept where they pay; elsewhere
$g(x) = x$, and without any map $q$ is the Gaussian of the draws. With 5000 log-gamma draws of shape
1, 3 or 10 and rows that move the mean by one sd, ten data sets were right to 0.09 sd, and on
average to 0.05; by two sds, a Gaussian is 0.4 sd off.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._runtime import FAST_COMPILATION

# Log likelihood that a map must gain with its two further parameters, in nats (Akaike: 2). It costs
# less to have a map too many than to leave a skewness of 0.1, which moves means by 0.04 sd.
MIN_GAIN = 3.0
# Effective draws, without which a covariance is no estimate.
MIN_DRAWS_PER_DIM, MIN_SPARE_DRAWS = 2.0, 10
CANDIDATE_SHARE = 0.3  # of that gain, expected from skewness and kurtosis, before a map is fitted
MAX_FIT_STEPS = 200  # of BFGS; 10 to 20 suffice

Chosen = Bool[np.ndarray, " *dim"]
NO_MAP = np.array(False)

Draws = Float[np.ndarray, "draw dim"]


class Maps(NamedTuple):
    """A sinh-arcsinh map for each coordinate."""

    location: Float[Array | np.ndarray, " dim"]
    log_scale: Float[Array | np.ndarray, " dim"]
    skewness: Float[Array | np.ndarray, " dim"]
    log_tail: Float[Array | np.ndarray, " dim"]

    def __call__(
        self, x: Float[Array, "*batch dim"]
    ) -> tuple[Float[Array, "*batch dim"], Float[Array, "*batch dim"]]:
        """Return the mapped values, and the logarithms of the slopes."""
        standardized = (x - self.location) * jnp.exp(-self.log_scale)
        angles = jnp.exp(self.log_tail) * jnp.arcsinh(standardized) - self.skewness
        log_cosh = jnp.abs(angles) + jnp.log1p(jnp.exp(-2 * jnp.abs(angles))) - np.log(2.0)
        slopes = log_cosh + self.log_tail - self.log_scale - 0.5 * jnp.log1p(standardized**2)
        return jnp.sinh(angles), slopes


class Surrogate(NamedTuple):
    """A density of points: maps of standardized and of principal coordinates, and a Gaussian.

    Attributes:
        centre: mean of the draws.
        sds: their sds.
        first: maps of the standardized coordinates.
        axes: from mapped to principal coordinates, which are white.
        second: maps of the principal coordinates.
        mean: of the twice mapped draws.
        whiten: from them to white coordinates.
        log_scale: minus the log determinants of all that is linear.
    """

    centre: Float[Array | np.ndarray, " dim"]
    sds: Float[Array | np.ndarray, " dim"]
    first: Maps
    axes: Float[Array | np.ndarray, "dim dim"]
    second: Maps
    mean: Float[Array | np.ndarray, " dim"]
    whiten: Float[Array | np.ndarray, "dim dim"]
    log_scale: Float[Array | np.ndarray, ""]

    @classmethod
    def fitted(
        cls,
        draws: Draws,
        num_effective: float,
        min_gain: float = MIN_GAIN,
        like: "Surrogate | None" = None,
    ) -> "Surrogate":
        """Fit a surrogate to draws.

        Args:
            draws: the draws.
            num_effective: number of independent draws that they are worth.
            min_gain: log likelihood that a map must gain to be kept, in nats.
            like: another surrogate, whose choice of maps is taken over.
        """
        _check_draws(draws, num_effective)
        min_gain *= len(draws) / num_effective
        if like is not None:
            return cls._fitted(draws, num_effective, min_gain, *map(is_mapped, like.all_maps))
        surrogate = cls._fitted(draws, num_effective, min_gain)
        if draws.shape[1] == 1 or not surrogate.num_maps:
            return surrogate
        # what is skewed along the principal axes is better left alone before
        other = cls._fitted(draws, num_effective, min_gain, NO_MAP)
        return max(surrogate, other, key=lambda fit: fit._gain(draws, min_gain))

    def _gain(self, draws: Draws, min_gain: float) -> float:
        """Return the log likelihood of draws, less what maps must gain."""
        return float(np.sum(self.evaluate(draws)[1])) - min_gain * self.num_maps

    @classmethod
    def _fitted(
        cls,
        draws: Draws,
        num_effective: float,
        min_gain: float,
        first_chosen: Chosen | None = None,
        second_chosen: Chosen | None = None,
    ) -> "Surrogate":
        """Fit a surrogate whose coordinates with maps may be chosen already."""
        dim = draws.shape[1]
        centre, sds = draws.mean(axis=0), draws.std(axis=0)
        white = (draws - centre) / sds
        first = _fit_maps(white, min_gain, first_chosen)
        mapped = np.asarray(_apply(first, white))
        axes = _principal_whitening(_covariance(mapped))
        origin = mapped.mean(axis=0) @ axes.T
        second_chosen = second_chosen if dim > 1 else NO_MAP
        second = _fit_maps(mapped @ axes.T - origin, min_gain, second_chosen)
        second = second._replace(location=second.location + origin)
        twice = np.asarray(_apply(second, mapped @ axes.T))
        # so that the precision, which weighs the old rows against the new, is unbiased
        factor = num_effective / (num_effective - dim - 2)
        whiten = np.linalg.inv(np.linalg.cholesky(_covariance(twice) * factor))
        log_scale = sum(np.linalg.slogdet(matrix)[1] for matrix in (axes, whiten))
        log_scale = np.asarray(log_scale - np.sum(np.log(sds)))
        return cls(centre, sds, first, axes, second, twice.mean(axis=0), whiten, log_scale)

    @property
    def all_maps(self) -> tuple[Maps, Maps]:
        """The maps of standardized and of principal coordinates."""
        return self.first, self.second

    @property
    def num_maps(self) -> int:
        """Number of coordinates, standardized or principal, that have a map."""
        return sum(int(is_mapped(maps).sum()) for maps in self.all_maps)

    def white_with_log_density(
        self, points: Float[Array, "*batch dim"]
    ) -> tuple[Float[Array, "*batch dim"], Float[Array, "*batch"]]:
        """Return points in coordinates in which the density is standard normal, and its log."""
        mapped, first_slopes = self.first((points - self.centre) / self.sds)
        twice, second_slopes = self.second(mapped @ self.axes.T)
        white = (twice - self.mean) @ self.whiten.T
        slopes = jnp.sum(first_slopes + second_slopes, axis=-1)
        constant = self.log_scale - 0.5 * white.shape[-1] * np.log(2 * np.pi)
        return white, slopes - 0.5 * jnp.sum(white**2, axis=-1) + constant

    def evaluate(self, points: Draws) -> tuple[Draws, Float[np.ndarray, " draw"]]:
        """Return white coordinates and log densities of a batch of points, in NumPy."""
        white, values = _evaluate(self, points)
        return np.asarray(white), np.asarray(values)


def _check_draws(draws: Draws, num_effective: float) -> None:
    dim = draws.shape[1]
    least = max(MIN_DRAWS_PER_DIM * dim, dim + MIN_SPARE_DRAWS)
    if not num_effective >= least:
        raise ValueError(
            f"to stand for the old rows, the old result needs at least {least:.0f} effective draws "
            f"for its {dim} coordinates; it has {num_effective:.0f}. Give the old rows with "
            "rows=, or make the old result with more draws, infer(..., num_draws=...)."
        )
    if not np.isfinite(draws).all() or not (draws.std(axis=0) > 0).all():
        raise ValueError(
            "to stand for the old rows, the old draws must be finite and vary in every coordinate. "
            "Give the old rows with rows=."
        )


@partial(jax.jit, compiler_options=FAST_COMPILATION)
def _evaluate(surrogate: Surrogate, points: Array) -> tuple[Array, Array]:
    return surrogate.white_with_log_density(points)


@partial(jax.jit, compiler_options=FAST_COMPILATION)
def _apply(maps: Maps, x: Array) -> Array:
    return maps(x)[0]


def _principal_whitening(covariance: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """Return the matrix to white coordinates along the principal axes."""
    values, vectors = np.linalg.eigh(covariance)
    floor = 1e-12 * values.max()  # coordinates that determine each other
    return np.asarray((vectors / np.sqrt(np.maximum(values, floor))).T)


def _covariance(draws: Draws) -> Float[np.ndarray, "dim dim"]:
    return np.cov(draws, rowvar=False).reshape(2 * draws.shape[1:])


def is_mapped(maps: Maps) -> Bool[np.ndarray, " dim"]:
    """Return which coordinates are mapped."""
    return (np.asarray(maps.skewness) != 0) | (np.asarray(maps.log_tail) != 0)


def _fit_maps(
    white: Draws, min_gain: float, chosen: Bool[np.ndarray, " dim"] | None = None
) -> Maps:
    """Fit a map to every coordinate of white draws, and keep it where it gains enough.

    If the coordinates are chosen already, they get a map, whatever it gains.
    """
    from scipy.optimize import minimize  # here, as it adds to the time of `import vcmc`

    num_draws, dim = white.shape
    parameters = np.zeros((4, dim))
    if chosen is None:
        skewness, excess = np.mean(white**3, axis=0), np.mean(white**4, axis=0) - 3
        # what Edgeworth's series gains, to leading order
        expected = num_draws * (skewness**2 / 12 + excess**2 / 48)
        candidates = expected > CANDIDATE_SHARE * min_gain
    else:
        candidates = np.broadcast_to(chosen, dim)
    for j in np.flatnonzero(candidates):
        column = white[:, j]
        with np.errstate(all="ignore"):
            result = minimize(
                _negative_log_likelihood,
                np.zeros(4),
                args=(column,),
                jac=True,
                method="BFGS",
                options={"maxiter": MAX_FIT_STEPS, "gtol": 1e-5},
            )
        # without a map, minus the log likelihood is half the mean square
        gain = num_draws * (0.5 * np.mean(column**2) - result.fun)
        if np.isfinite(result.x).all() and (chosen is not None or gain > min_gain):
            parameters[:, j] = result.x
    return Maps(*parameters)


def _negative_log_likelihood(
    parameters: np.ndarray, x: np.ndarray
) -> tuple[float, Float[np.ndarray, "4"]]:
    """Return the mean negative log density of draws of a mapped normal, and its gradient."""
    location, log_scale, skewness, log_tail = parameters
    scale, tail = np.exp(log_scale), np.exp(log_tail)
    standardized = (x - location) / scale
    angles = tail * np.arcsinh(standardized) - skewness
    sinh, cosh = np.sinh(angles), np.cosh(angles)
    squares = 1 + standardized**2
    values = 0.5 * sinh**2 - np.log(cosh) - log_tail + 0.5 * np.log(squares) + log_scale
    by_angle = sinh * cosh - sinh / cosh
    by_x = by_angle * tail / np.sqrt(squares) + standardized / squares
    gradient = np.array(
        [
            -np.mean(by_x) / scale,
            1 - np.mean(by_x * standardized),
            -np.mean(by_angle),
            np.mean(by_angle * (angles + skewness)) - 1,
        ]
    )
    value = float(np.mean(values))
    return (value, gradient) if np.isfinite(value) else (np.inf, np.zeros(4))
