"""Replicated data of a model with groups, or of one that another library simulates (PyMC).

The rows are simulated by `predict`, some draws at a time, and summaries are computed in the process
that called.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from ..data.rows import named_columns
from ..data.size import rows_size
from ..model import Model
from .checked_rows import CheckOptions, checked_observed, is_in_memory, with_group_codes
from .prediction import predict
from .replication import GROUP_CODES, Part, Replicates, draw_blocks, parts_of

if TYPE_CHECKING:
    from xarray import DataTree

MAX_PREDICTED_BYTES = 2**28  # of replicated values in memory


def replicate_by_prediction(
    tree: "DataTree",
    model: Model,
    rows: Any,
    draws: Int[np.ndarray, " draw"],
    options: CheckOptions,
    seed: int,
) -> Replicates:
    """Return summaries of the data and of replicates at some draws of every chain."""
    posterior = tree["posterior"]
    local = [] if model.local is None else list(model.local.space)
    missing = [name for name in local if name not in posterior.data_vars]
    if missing:
        raise ValueError(
            f"the model's groups need draws of their local parameters {missing}, which the tree "
            'does not have: vcmc.infer(..., locals="draws") keeps them.'
        )
    if not is_in_memory(rows):
        raise ValueError(
            "rows of a model with groups, or of PyMC, must be in memory for a posterior check: "
            f"arrays or a data frame; got {type(rows).__name__}. Check some of them."
        )
    labels, groups = None, None
    if options.by is not None:
        coded, labels = with_group_codes(rows, options.by)
        groups = coded[GROUP_CODES]
    chains, num_rows = posterior.sizes["chain"], rows_size(rows).num_rows
    blocks = [block for _, block in draw_blocks(draws, chains * num_rows, MAX_PREDICTED_BYTES)]
    seeds = np.random.SeedSequence(seed).generate_state(len(blocks)).tolist()

    def replicated(number: int) -> tuple[str, np.ndarray]:
        """Return what was predicted, and its values (row, draw, …)."""
        part = tree.copy()
        part["posterior"] = type(tree)(posterior.to_dataset().isel(draw=blocks[number]))
        values: Any = predict(
            part, model, rows, options.name, draws=True, seed=seeds[number], progress=False
        )
        (name,) = values.data_vars
        array = values[name].transpose("chain", "draw", "row", ...).to_numpy()
        return str(name), np.moveaxis(array.reshape(-1, *array.shape[2:]), 0, 1)

    name, first = replicated(0)
    columns = named_columns(rows)
    response = options.response(name, checked_observed(options.observed, name, columns), None)
    data = np.asarray(columns[response.observed], float)

    def parts() -> Iterator[dict[Any, Part]]:
        yield parts_of(data[:, None], groups, response)
        yield parts_of(first, groups, response)
        for number in range(1, len(blocks)):
            yield parts_of(replicated(number)[1], groups, response)

    return Replicates(name, labels, parts())
