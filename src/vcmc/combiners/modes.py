r"""Combine mode by mode, and weigh the modes by the full-data density.

Pompe, Holmes and Łatuszyński, *A framework for adaptive MCMC targeting multimodal distributions*
(2020), divide a target into parts of one hill each, $p = \sum_j p \, r_j$. The shards' draws are
combined near every mode, as if $p \, r_j$ were the posterior, and the modes' weights are the masses
of the parts, $w_j \propto \int p \, r_j$, estimated by importance or bridge sampling. The posterior
draws are a mixture: $w_j T$ of $T$ draws are from mode $j$.
"""

from dataclasses import replace
from typing import ClassVar, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from ..diagnostics.mode_regions import ModeDraws, ModeRegions
from ..diagnostics.mode_search import find_modes
from ..diagnostics.modes import ModeSearch
from ..linalg.whitening import Whitening
from ..target import Target
from .base import AbstractCombiner, Combined, Needs, Subposteriors
from .mode_parts import NUM_PILOT_PROPOSALS, ModePart, part_near
from .variational import Variational

MAX_SCALED_SHARDS = 20  # whose draws tell the posterior's width
MAX_RAY_DRAWS = 4000  # of the shards, among which the ends of the search's rays are chosen


class Modes(AbstractCombiner):
    """Draws near every mode, combined by `Variational`, and weighed by the full-data density.

    With one mode, it is `Variational`. Exchangeable components, whose modes are labels, are left
    to it, too.

    Args:
        max_proposals: the largest number of points, over all modes, at which the full-data log
            density is evaluated to make draws of modes that are not Gaussian.
    """

    needs: ClassVar[Needs] = Needs(target=True, scores=True)

    max_proposals: int = 20_000

    def __check_init__(self) -> None:
        count = self.max_proposals
        is_integer = isinstance(count, int | np.integer) and not isinstance(count, bool)
        if not (is_integer and count >= NUM_PILOT_PROPOSALS):
            raise ValueError(
                f"max_proposals must be an integer of at least {NUM_PILOT_PROPOSALS}; got "
                f"{count!r}."
            )

    def __call__(self, shards: Subposteriors) -> Combined:
        """Combine the shards' draws; a single shard's are weighed if there are several modes."""
        if shards.target is None:
            return super().__call__(shards)  # which raises an error
        search = ModeSearch()
        if not shards.space.labelled():
            search = shards.modes or search_modes(shards, shards.target)
        if not search.is_several:
            combined = Variational()(shards)
            return replace(combined, notes=combined.notes + search.notes)
        return self.combine(replace(shards, modes=search))

    def combine(self, shards: Subposteriors) -> Combined:
        search, target = cast(ModeSearch, shards.modes), cast(Target, shards.target)
        regions = ModeRegions.of(search.modes)
        budget = self.max_proposals // len(search.modes)
        parts = [
            part_near(shards, target, regions, mode, budget, share * shards.num_draws)
            for mode, share in enumerate(search.shares)
        ]
        return _mixed(shards, regions, parts, search.notes)


def combine_apart(
    combiner: AbstractCombiner, shards: Subposteriors
) -> tuple[AbstractCombiner, Subposteriors, Combined]:
    """Combine; if that ends near a mode that is not the posterior's, combine mode by mode.

    Return the combiner and the shards that the draws are from, too.
    """
    combined = combiner(shards)
    if shards.modes is None or combined.modes is not None:
        return combiner, shards, combined
    draws = np.asarray(combined.draws)
    search = shards.modes.around(draws)
    is_unknown = not search.is_several and search.is_far_from(draws)
    if shards.target is not None and is_unknown:
        search = search_modes(shards, shards.target, Whitening.from_draws(draws))
    if search is shards.modes or not search.is_several:
        return combiner, shards, combined
    apart, shards = Modes(), replace(shards, modes=search)
    return apart, shards, apart(shards)


def search_modes(
    shards: Subposteriors, target: Target, around: Whitening | None = None
) -> ModeSearch:
    """Search for modes from the draws of shards, around their mean or another point."""
    draws = np.concatenate([_some(draws, shards.num_shards) for draws in shards])
    around = posterior_scale(shards) if around is None else around
    return find_modes(target, around, draws, shards.seed)


def posterior_scale(shards: Subposteriors) -> Whitening:
    """Return the shards' mean, and the posterior's width if shards are alike."""
    numbers = np.unique(np.linspace(0, shards.num_shards - 1, MAX_SCALED_SHARDS).astype(int))
    draws = [np.asarray(shards.draws[number]) for number in numbers]
    spread = np.concatenate([part - part.mean(axis=0) for part in draws])
    centre = np.mean([part.mean(axis=0) for part in draws], axis=0)
    return Whitening.from_draws(centre + spread / np.sqrt(shards.num_shards))


def _some(draws: Float[np.ndarray, "draw dim"], num_shards: int) -> Float[np.ndarray, "draw dim"]:
    count = max(1, min(len(draws), MAX_RAY_DRAWS // num_shards))
    return draws[np.arange(count) * len(draws) // count]


def _mixed(
    shards: Subposteriors, regions: ModeRegions, parts: list[ModePart], notes: list[str]
) -> Combined:
    """Return the mixture of the parts, in random order."""
    log_masses = np.array([part.log_mass.value for part in parts])
    errors = np.array([part.log_mass.standard_error for part in parts])
    weights = softmax(log_masses)
    counts = _counts(weights, shards.num_draws)
    generator = np.random.default_rng((shards.seed, 6))
    taken = [part.take(count, generator) for part, count in zip(parts, counts, strict=True)]
    order = generator.permutation(shards.num_draws)
    draws = np.concatenate([draws for draws, _ in taken])[order]
    labels = np.repeat(np.arange(len(parts)), counts)[order]
    # each note once, with the modes that it is about
    by_note: dict[str, list[int]] = {}
    for mode, part in enumerate(parts):
        for note in part.notes:
            by_note.setdefault(note, []).append(mode)
    notes = notes + [f"Mode {', '.join(map(str, of))}: {note}" for note, of in by_note.items()]
    modes = ModeDraws(
        labels,
        regions,
        weights,
        weight_errors(weights, errors),
        np.array([part.pareto_k for part in parts]),
        tuple(source for _, source in taken),
        tuple(part.exact for part in parts),
    )
    return Combined(jnp.asarray(draws), notes=notes, modes=modes)


def weight_errors(
    weights: Float[np.ndarray, " mode"], errors: Float[np.ndarray, " mode"]
) -> Float[np.ndarray, " mode"]:
    """Return the standard errors of weights, given those of log masses, which are independent.

    >>> weight_errors(np.array([0.5, 0.5]), np.array([0.1, 0.0]))
    array([0.025, 0.025])
    """
    slopes = weights[:, None] * (np.eye(len(weights)) - weights)
    return np.sqrt(np.sum((slopes * np.minimum(errors, 1e3)) ** 2, axis=1))


def _counts(weights: Float[np.ndarray, " mode"], total: int) -> np.ndarray:
    """Return how many of some draws are from every mode: the weights' shares, rounded."""
    ends = np.round(np.cumsum(weights) * total).astype(int)
    ends[-1] = total
    return np.diff(ends, prepend=0)
