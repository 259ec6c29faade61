"""The modes that a search has found, and what to tell the user of them."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..data.params import to_params
from ..linalg.whitening import Whitening
from ..space import Product
from .mode_regions import ModeRegions
from .mode_shape import Mode, Vector

MIN_MASS_SHARE = 0.01  # of a mode that matters
MIN_COMBINED_SHARE = 0.005  # of one that is combined: by its Gaussian, which is roughly its share
MAX_SD_RATIO = 1.1  # of sds with a mode that hardly a draw is from to those without
MAX_EXCESS_SHARE = 0.1  # of draws near a mode, beyond its share of the mass
MAX_CENTRE_SD = 4.0  # distance of the search's centre, a mode, from the mean of draws
MAX_LABEL_LENGTH = 60  # characters of a parameter's value in the message


class ModeSearch(NamedTuple):
    """The result of a search.

    Attributes:
        modes: the modes, those with the largest mass first; empty if there is only one hill, or
            none with a top.
        own: the number of the mode that the search from the draws' centre has reached.
        is_complete: whether all searches could be followed.
        left_out: modes that were found, with too little mass to be combined.
        centre: the point from which the search began.
    """

    modes: tuple[Mode, ...] = ()
    own: int = 0
    is_complete: bool = True
    left_out: tuple[Mode, ...] = ()
    centre: Vector | None = None

    @property
    def shares(self) -> Float[np.ndarray, " mode"]:
        """The modes' shares of the mass, by their Gaussians."""
        log_masses = np.array([mode.log_mass for mode in self.modes])
        return np.exp(log_masses - logsumexp(log_masses)) if len(log_masses) else log_masses

    @property
    def notes(self) -> list[str]:
        """Warnings: there may be more modes, or one with little mass is very far away."""
        notes = []
        if not self.is_complete:
            notes.append(
                "The posterior may have more modes than were found: the search was ended before "
                "all points from which the log density rises were followed."
            )
        if self.modes:
            represented = self.modes if self.is_several else (self.modes[self.own],)
            absent = self.left_out
            if not self.is_several:
                absent += self.modes[: self.own] + self.modes[self.own + 1 :]
            notes += remote_notes(_sd_ratio(represented, absent))
        return notes

    @property
    def notes_of_one(self) -> list[str]:
        """Warnings for draws of one mode; where modes are combined, their combiner has them."""
        return [] if self.is_several else self.notes

    @property
    def is_several(self) -> bool:
        """Whether a mode other than that of the draws has mass that may matter."""
        return self._has_other(MIN_COMBINED_SHARE)

    def _has_other(self, min_share: float) -> bool:
        others = np.arange(len(self.modes)) != self.own
        return bool((self.shares[others] >= min_share).any())

    def around(self, draws: Float[np.ndarray, "draw dim"]) -> "ModeSearch":
        """Return the search with the mode of these draws as its own, if they are near another one.

        An affine map of shards that see two modes may end at either, however little its mass.
        """
        modes = self.modes + self.left_out
        if len(modes) < 2:
            return self
        log_masses = np.array([mode.log_mass for mode in modes])
        shares = np.exp(ModeRegions.of(modes).log_shares(draws)).mean(axis=0)
        excess = shares - np.exp(log_masses - logsumexp(log_masses))
        nearest = int(np.argmax(excess))
        if nearest == self.own or not excess[nearest] > MAX_EXCESS_SHARE:
            return self
        return self._replace(modes=modes, own=nearest, left_out=())

    def is_far_from(self, draws: Float[np.ndarray, "draw dim"]) -> bool:
        """Return whether the search began far from these draws."""
        if self.centre is None:
            return False
        white = np.asarray(Whitening.from_draws(draws).whiten(self.centre[None]))
        return bool(np.linalg.norm(white) > MAX_CENTRE_SD)

    @property
    def other(self) -> "OtherMode | None":
        """The largest of the other modes, if it matters, and its share of the mass of the two."""
        if not self._has_other(MIN_MASS_SHARE):
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


def remote_notes(sd_ratio: float) -> list[str]:
    """Return a warning if a mode that hardly a draw is from makes an sd larger by a factor."""
    if not sd_ratio > MAX_SD_RATIO:
        return []
    return [
        f"A mode with less than {100 * MIN_MASS_SHARE:.0f} % of the mass, which hardly a draw is "
        f"from, is so far away that an sd is larger than that of the draws by a factor of "
        f"{sd_ratio:.2g}. Quantiles hardly depend on it."
    ]


def _sd_ratio(represented: tuple[Mode, ...], absent: tuple[Mode, ...]) -> float:
    """Return the largest ratio of the sd with an absent mode to that of the others."""
    log_masses = np.array([mode.log_mass for mode in represented])
    weights = np.exp(log_masses - logsumexp(log_masses))
    centres = np.stack([mode.point for mode in represented])
    steps = centres - weights @ centres
    covariance = steps.T @ (weights[:, None] * steps) + sum(
        weight * np.linalg.inv(mode.curvature)
        for weight, mode in zip(weights, represented, strict=True)
    )
    ratios = [1.0]
    for mode in absent:
        step = mode.point - weights @ centres
        share = np.exp(mode.log_mass - logsumexp(log_masses))
        ratios.append(np.sqrt(1 + share * (step @ np.linalg.solve(covariance, step))))
    return float(max(ratios))


def location(point: Vector, space: Product) -> str:
    """Return the values of the parameters at a point, as text."""
    params = to_params(space, jnp.asarray(point[None]))
    return ", ".join(
        f"{name} = {np.round(value[0], 3).tolist()}"[:MAX_LABEL_LENGTH]
        for name, value in params.items()
    )
