"""The modes of a result: as groups of the tree, read from it, and as lines of text."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from ..data.params import to_params
from ..diagnostics.mode_regions import ModeDraws, ModeRegions
from ..diagnostics.sampling_error import DrawSource
from ..space import Product

if TYPE_CHECKING:
    from xarray import DataTree

MODE_GROUPS = ("draw_modes", "modes", "mode_weights", "mode_regions")
MODE_ATTRIBUTES = ("mode_verdicts", "mode_lines", "mode_exact")


def mode_groups(
    modes: ModeDraws, labels: Int[np.ndarray, "chain draw"], space: Product
) -> dict[str, dict[str, Any]]:
    """Return the groups of a tree that record the modes.

    `draw_modes` has the mode of every draw, `modes` the values of the parameters at the modes,
    `mode_weights` their shares of the mass, and `mode_regions` the Gaussians that divide the space.
    """
    regions = modes.regions
    return {
        "draw_modes": {"mode": labels},
        "modes": to_params(space, jnp.asarray(regions.centres)),
        "mode_weights": {
            "weight": modes.weights,
            "standard_error": modes.standard_errors,
            "pareto_k": modes.pareto_k,
        },
        "mode_regions": {
            "centre": regions.centres,
            "precision": regions.precisions,
            "log_mass": regions.log_masses,
        },
    }


def stored_modes(tree: "DataTree") -> ModeDraws | None:
    """Return the modes of a result, or None if it has one."""
    if not set(MODE_GROUPS) <= set(tree.children):
        return None
    labels = tree["draw_modes"]["mode"].transpose("chain", "draw").to_numpy().ravel().astype(int)
    weights, regions = (
        {str(name): values.to_numpy() for name, values in tree[group].data_vars.items()}
        for group in ("mode_weights", "mode_regions")
    )
    counts = np.bincount(labels, minlength=len(weights["weight"]))
    return ModeDraws(
        labels,
        ModeRegions(regions["centre"], regions["precision"], regions["log_mass"]),
        weights["weight"],
        weights["standard_error"],
        weights["pareto_k"],
        tuple(DrawSource(float(count)) for count in counts),
        tuple(np.atleast_1d(tree.attrs["mode_exact"]).astype(str).tolist()),
    )
