"""The kinds of planted faults, by name: each a function from a seed to a case."""

from collections.abc import Callable

from case import Case
from not_additive import not_additive
from priors import heavy_tails, spike_slab, spike_slab_logistic
from second_modes import absolute, angle, clusters, dose
from shapes import banana, change_point, funnel, separation
from wrong_draws import bad_chains, wrong_draws

FAULTS: dict[str, Callable[[int], Case]] = {
    kind.__name__: kind
    for kind in (
        dose,
        angle,
        absolute,
        clusters,
        spike_slab,
        spike_slab_logistic,
        heavy_tails,
        change_point,
        funnel,
        banana,
        separation,
        wrong_draws,
        bad_chains,
        not_additive,
    )
}
