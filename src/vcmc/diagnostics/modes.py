"""The modes that a search has found, and what to tell the user of them."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..data.params import to_params
from ..space import Product
from .mode_shape import Mode, Vector

MIN_MASS_SHARE = 0.01  # of a mode that matters
MAX_LABEL_LENGTH = 60  # characters of a parameter's value in the message


class ModeSearch(NamedTuple):
    """The result of a search.

    Attributes:
        modes: the modes, those with the largest mass first; empty if there is only one hill, or
            none with a top.
        own: the number of the mode that the search from the draws' centre has reached.
        is_complete: whether all searches could be followed.
    """

    modes: tuple[Mode, ...] = ()
    own: int = 0
    is_complete: bool = True

    @property
    def shares(self) -> Float[np.ndarray, " mode"]:
        """The modes' shares of the mass, by their Gaussians."""
        log_masses = np.array([mode.log_mass for mode in self.modes])
        return np.exp(log_masses - logsumexp(log_masses)) if len(log_masses) else log_masses

    @property
    def notes(self) -> list[str]:
        """A warning if there may be more modes."""
        if self.is_complete:
            return []
        return [
            "The posterior may have more modes than were found: the search was ended before all "
            "points from which the log density rises were followed."
        ]

    @property
    def is_several(self) -> bool:
        """Whether a mode other than that of the draws has mass that matters."""
        others = np.arange(len(self.modes)) != self.own
        return bool((self.shares[others] >= MIN_MASS_SHARE).any())

    @property
    def other(self) -> "OtherMode | None":
        """The largest of the other modes, if it matters, and its share of the mass of the two."""
        if not self.is_several:
            return None
        own = self.modes[self.own]
        largest = self.modes[0 if self.own else 1]
        share = 1 / (1 + np.exp(min(own.log_mass - largest.log_mass, 700.0)))
        return OtherMode(largest, float(share))


class OtherMode(NamedTuple):
    """A mode far from the draws, and its share of the mass of the two."""

    mode: Mode
    share: float

    def sentence(self, space: Product) -> str:
        """Return what to tell the user."""
        return (
            "The posterior has another mode, far from the draws: it holds about "
            f"{100 * self.share:.0f} % of the mass of the two, near "
            f"{location(self.mode.point, space)}. Averages of shards cannot be trusted if there "
            "are two modes: leave combiner= out, or use vcmc.combiners.Modes(), or use a prior "
            "that rules one out."
        )


def location(point: Vector, space: Product) -> str:
    """Return the values of the parameters at a point, as text."""
    params = to_params(space, jnp.asarray(point[None]))
    return ", ".join(
        f"{name} = {np.round(value[0], 3).tolist()}"[:MAX_LABEL_LENGTH]
        for name, value in params.items()
    )
