"""Posterior draws with the other contents of their tree, and their assessment."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..diagnostics.mode_regions import ModeDraws
from ..diagnostics.modes import ModeSearch
from ..diagnostics.sampling_error import DrawSource
from ..target import Target
from .assessment import Assessment, assess
from .mode_assessment import assess_modes


class Posterior(NamedTuple):
    """Posterior draws, and the other contents of their tree.

    Attributes:
        points: the draws.
        groups: the groups of the tree.
        notes: warnings.
        settings: settings that the tree records.
        exact: how the draws were made, if they are exact up to Monte Carlo error.
        remarks: warnings about few shards.
        source: where the draws come from, if they are paired draws of shards.
        needs_more_draws: whether the shards' draws are too few, for the shape of the combined
            ones or to tell whether the chains have converged.
        modes: the modes that the draws are from, if there are several.
        search: the search for modes, if there was one.
    """

    points: Float[np.ndarray, "chain draw dim"]
    groups: dict[str, dict[str, np.ndarray]]
    notes: list[str]
    settings: dict[str, Any]
    exact: str = ""
    remarks: tuple[str, ...] = ()
    source: DrawSource | None = None
    needs_more_draws: bool = False
    modes: ModeDraws | None = None
    search: ModeSearch | None = None

    @property
    def is_weighted(self) -> bool:
        """Whether the draws are proposals of a bent map, whose density is known."""
        return "bent_pareto_k" in self.settings


def assess_posterior(
    posterior: Posterior, target: Target | None, seed: int, is_refined: bool = False
) -> Assessment:
    """Estimate the errors of posterior draws, mode by mode if there are several."""
    if posterior.modes is not None and target is not None:
        return assess_modes(
            posterior.points,
            posterior.modes,
            target,
            posterior.notes,
            seed,
            remarks=posterior.remarks,
            exact=posterior.exact,
            is_refined=is_refined,
        )
    return assess(
        posterior.points,
        target,
        posterior.notes,
        seed,
        remarks=posterior.remarks,
        exact=posterior.exact,
        is_refined=is_refined,
        is_weighted=posterior.is_weighted,
        source=posterior.source,
        search=posterior.search,
    )
